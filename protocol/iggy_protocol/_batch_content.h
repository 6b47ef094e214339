/*
 * A part of _batch.c, which includes it.
 *
 * Ids that follow from what messages hold, and from how often the same was there before.
 *
 *   low    hash of payload and headers + place + length of the headers
 *   high   the same with another seed + number of equal ones before
 *
 * Occurrences are counted in a table of the low halves: 16 bytes for each of them, in a power of
 * two that is at most three quarters full. Two contents with the same low half share a count, which
 * makes their ids depend on their order and never the same.
 *
 * This header knows no Python.
 */
#ifndef IGGY_BATCH_CONTENT_H
#define IGGY_BATCH_CONTENT_H

#include "_batch_rows.h"
#include "_xxh3.h"

#include <stdlib.h>

static const uint64_t HEADERS_FACTOR = 0x9E3779B97F4A7C15u;
static const uint64_t OCCURRENCE_FACTOR = 0xC2B2AE3D27D4EB4Fu;
static const uint64_t NOT_COUNTED = (uint64_t)1 << 63;

enum { FIRST_SLOTS = 1 << 10 };

struct content_slot {
    uint64_t low, seen; /* a slot that has seen nothing is free */
};

struct content_ids {
    struct xxh3_seed low_seed, high_seed;
    struct content_slot *slots;
    size_t slots_count, contents_count;
    uint64_t contents_max, uncounted;
    uint8_t *joined; /* payload and headers of one row, one behind the other */
    size_t joined_bytes;
};

static void free_content_ids(struct content_ids *ids)
{
    free(ids->slots);
    free(ids->joined);
    ids->slots = NULL;
    ids->joined = NULL;
}

/* Find the slot of a content, or the free one where it belongs; hashes spread by themselves. */
static inline struct content_slot *find_slot(struct content_slot *slots, size_t count, uint64_t low)
{
    size_t at = (size_t)low & (count - 1);
    while (slots[at].seen != 0 && slots[at].low != low)
        at = (at + 1) & (count - 1);
    return &slots[at];
}

static bool grow_slots(struct content_ids *ids)
{
    size_t count = ids->slots_count == 0 ? FIRST_SLOTS : 2 * ids->slots_count;
    struct content_slot *slots = calloc(count, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < ids->slots_count; i++)
        if (ids->slots[i].seen != 0)
            *find_slot(slots, count, ids->slots[i].low) = ids->slots[i];
    free(ids->slots);
    ids->slots = slots;
    ids->slots_count = count;
    return true;
}

/* Count a content; false without memory. */
static inline bool count_content(struct content_ids *ids, uint64_t low, uint64_t *occurrence)
{
    if (4 * (ids->contents_count + 1) > 3 * ids->slots_count &&
        ids->contents_count < ids->contents_max && !grow_slots(ids))
        return false;
    struct content_slot *slot = NULL;
    if (ids->slots_count > 0)
        slot = find_slot(ids->slots, ids->slots_count, low);
    if (slot != NULL && slot->seen != 0) {
        *occurrence = slot->seen++;
    } else if (ids->contents_count < ids->contents_max) {
        *slot = (struct content_slot){low, 1};
        ids->contents_count++;
        *occurrence = 0;
    } else {
        *occurrence = NOT_COUNTED + ++ids->uncounted;
    }
    return true;
}

/* Put payload and headers one behind the other; NULL without memory. */
static const uint8_t *join_row(struct content_ids *ids, const struct row_value *payload,
                               const struct row_value *headers)
{
    size_t size = payload->size + headers->size;
    if (size > ids->joined_bytes) {
        uint8_t *joined = realloc(ids->joined, 2 * size);
        if (joined == NULL)
            return NULL;
        ids->joined = joined;
        ids->joined_bytes = 2 * size;
    }
    memcpy(ids->joined, payload->bytes, payload->size);
    memcpy(ids->joined + payload->size, headers->bytes, headers->size);
    return ids->joined;
}

static enum row_fault write_content_id(struct content_ids *ids, const struct row_value *payload,
                                       const struct row_value *headers, uint64_t salt, uint8_t *id)
{
    const uint8_t *content = payload->bytes;
    size_t size = payload->size + headers->size;
    uint64_t occurrence;
    if (headers->size > 0 && (content = join_row(ids, payload, headers)) == NULL)
        return ROWS_OUT_OF_MEMORY;
    uint64_t low = xxh3_seeded(content, size, &ids->low_seed);
    uint64_t high = xxh3_seeded(content, size, &ids->high_seed);
    low += salt + HEADERS_FACTOR * headers->size;
    if (!count_content(ids, low, &occurrence))
        return ROWS_OUT_OF_MEMORY;
    store_u64(id, low);
    store_u64(id + 8, high + OCCURRENCE_FACTOR * occurrence);
    return ROWS_GOOD;
}

struct id_columns {
    struct bytes_column payloads;
    const struct bytes_column *headers, *given; /* NULL where there are none */
    uint64_t salt;
};

/* Write the ids of all rows; on failure `row` is the one to blame. */
static enum row_fault write_content_ids(struct content_ids *ids, const struct id_columns *columns,
                                        uint8_t *target, size_t *row)
{
    for (size_t i = 0; i < columns->payloads.length; i++, target += ID_BYTES) {
        struct row_value payload, headers, given;
        *row = i;
        enum row_fault fault = read_value(&columns->payloads, i, &payload);
        if (fault == ROWS_GOOD)
            fault = read_value(columns->headers, i, &headers);
        if (fault == ROWS_GOOD)
            fault = read_value(columns->given, i, &given);
        if (fault != ROWS_GOOD)
            return fault;
        if (payload.bytes == NULL)
            return PAYLOAD_MISSING;
        if (given.bytes != NULL && given.size != ID_BYTES)
            return ID_OF_OTHER_SIZE;
        if (given.bytes != NULL && (load_u64(given.bytes) | load_u64(given.bytes + 8)) != 0)
            memcpy(target, given.bytes, ID_BYTES);
        else
            fault = write_content_id(ids, &payload, &headers, columns->salt, target);
        if (fault != ROWS_GOOD)
            return fault;
    }
    return ROWS_GOOD;
}

#endif
