/*
 * A part of _batch.c, which includes it.
 *
 * What a server does with messages before it stores them: stamp them, and make their index entries.
 * This header knows no Python.
 */
#ifndef IGGY_BATCH_STORE_H
#define IGGY_BATCH_STORE_H

#include "_batch_layout.h"
#include "_xxh3.h"

/* ---- stamping --------------------------------------------------------------------------- */

struct stamp {
    uint64_t base_offset, timestamp;
    const uint8_t *random; /* 16 bytes for each id that is missing */
    size_t random_bytes;
    size_t count; /* messages stamped so far */
};

enum stamp_result { STAMPED, BROKEN_MESSAGE, RANDOM_EXHAUSTED, OFFSET_OVERFLOW };

/* Turn 16 random bytes, which may overlap the id, into a UUID of version 4, in text order. */
static inline void write_random_id(uint8_t *id, const uint8_t *random)
{
    memmove(id, random, ID_BYTES);
    id[6] = (uint8_t)((id[6] & 0x0F) | 0x40);
    id[8] = (uint8_t)((id[8] & 0x3F) | 0x80);
}

static inline enum stamp_result stamp_fields(struct stamp *stamp, uint8_t *message)
{
    uint64_t offset = stamp->base_offset + stamp->count;
    if (offset < stamp->base_offset)
        return OFFSET_OVERFLOW;
    if (is_id_missing(message)) {
        if (stamp->random_bytes < ID_BYTES)
            return RANDOM_EXHAUSTED;
        write_random_id(message + AT_ID, stamp->random);
        stamp->random += ID_BYTES;
        stamp->random_bytes -= ID_BYTES;
    }
    store_u64(message + AT_OFFSET, offset);
    store_u64(message + AT_TIMESTAMP, stamp->timestamp);
    return STAMPED;
}

static inline void seal(uint8_t *message, size_t size)
{
    store_u64(message, xxh3(message + CHECKSUM_BYTES, size - CHECKSUM_BYTES));
}

/*
 * Stamp messages one by one. A message is sealed only after the fields of the next one are written,
 * because wide loads over bytes that were stored just before would wait for the store to complete.
 */
static enum stamp_result stamp_messages(struct stamp *stamp, uint8_t *at, size_t left)
{
    enum stamp_result result = STAMPED;
    uint8_t *previous = NULL;
    size_t previous_size = 0;
    while (left > 0) {
        struct extent extent;
        result = measure_message(at, left, &extent) ? stamp_fields(stamp, at) : BROKEN_MESSAGE;
        if (result != STAMPED)
            break;
        if (previous != NULL)
            seal(previous, previous_size);
        previous = at;
        previous_size = extent.size;
        at += extent.size;
        left -= extent.size;
        stamp->count++;
    }
    if (previous != NULL)
        seal(previous, previous_size);
    return result;
}

/* ---- index entries ---------------------------------------------------------------------- */

/* Write one entry per message; false when a position or offset leaves 32 bits, or bytes changed. */
static bool write_entries(uint8_t *entry, size_t count, const uint8_t *at, size_t left,
                          uint64_t relative_offset, uint64_t position)
{
    for (size_t i = 0; i < count; i++, entry += INDEX_BYTES) {
        struct extent extent;
        if (!measure_message(at, left, &extent))
            return false;
        position += extent.size;
        if (position > UINT32_MAX || relative_offset + i > UINT32_MAX)
            return false;
        store_u32(entry, (uint32_t)(relative_offset + i));
        store_u32(entry + AT_INDEX_POSITION, (uint32_t)position);
        store_u64(entry + AT_INDEX_TIMESTAMP, load_u64(at + AT_TIMESTAMP));
        at += extent.size;
        left -= extent.size;
    }
    return true;
}

#endif
