/*
 * A part of _batch.c, which includes it.
 *
 * Batches of servers from 0.9 on, and how they become classic records and back.
 *
 *   batch   0 partition  8 base offset  16 timestamp  24 origin  32 length  40 checksum (u64 each)
 *           48 u32 count | 52 producer section of 20 bytes, or zero | 72 zero | 256 frames
 *   frame   0 u64 checksum  8 id  24 u32 offset delta  28 u32 origin delta
 *           32 u32 headers length  36 u32 payload length  40 zero | 48 payload, headers
 *
 * A frame is 16 bytes shorter than the record of its message; what it lacks stands once in the head
 * of the batch. The checksum of a frame covers what comes after itself, that of a batch covers the
 * head and the checksums of its frames.
 *
 * The bytes may change while they are read without the interpreter lock. So everything is measured
 * first and measured again while it is written. This header knows no Python.
 */
#ifndef IGGY_BATCH_VSR_H
#define IGGY_BATCH_VSR_H

#include "_batch_layout.h"
#include "_xxh3.h"

enum {
    BATCH_HEAD_BYTES = 256,
    AT_BATCH_OFFSET = 8,
    AT_BATCH_TIMESTAMP = 16,
    AT_BATCH_ORIGIN = 24,
    AT_BATCH_LENGTH = 32,
    AT_BATCH_CHECKSUM = 40,
    AT_BATCH_COUNT = 48,
    AT_PRODUCER = 52,
    AT_PRODUCER_ID = 56,
    AT_PRODUCER_EPOCH = 64,
    AT_PRODUCER_SEQUENCE = 68,
    AT_BATCH_RESERVED = 72,

    FRAME_BYTES = 48,
    AT_OFFSET_DELTA = 24,
    AT_ORIGIN_DELTA = 28,
    AT_FRAME_LENGTHS = 32,
    AT_FRAME_RESERVED = 40,

    RECORD_SURPLUS = HEADER_BYTES - FRAME_BYTES,
    SEALED_HEAD_BYTES = 5 * 8 + 4 + 15, /* five numbers, the count, the producer if there is one */
};

/* Why a batch is refused; `frame_view.VsrFault` has the same numbers. */
enum vsr_fault {
    VSR_GOOD = 0,
    VSR_METADATA = 1,
    VSR_HEAD_CUT = 2,
    VSR_LENGTH = 3,
    VSR_RESERVED = 4,
    VSR_STAMPED = 5,
    VSR_MESSAGE_CUT = 6,
    VSR_DELTA = 7,
    VSR_MESSAGE_RESERVED = 8,
    VSR_OVERFLOW = 9,
    VSR_COUNT = 10,
    VSR_NO_MESSAGES = 11,
    VSR_PAYLOAD_TOO_LARGE = 12,
    VSR_HEADERS_TOO_LARGE = 13,
    VSR_MESSAGE_CHECKSUM = 14,
    VSR_BATCH_CHECKSUM = 15,
    VSR_TOO_LARGE = 16,
    VSR_CHANGED = 17, /* the bytes are no longer those that were measured */
};

/* ---- the head of a batch ---------------------------------------------------------------- */

struct batch_head {
    uint8_t bytes[BATCH_HEAD_BYTES]; /* a copy, which nothing changes */
    uint64_t length;
    uint32_t count;
};

static inline uint64_t head_u64(const struct batch_head *head, size_t at)
{
    return load_u64(head->bytes + at);
}

static inline bool has_producer(const struct batch_head *head)
{
    return head->bytes[AT_PRODUCER] != 0;
}

static inline uint16_t load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static bool is_zero(const uint8_t *at, size_t size)
{
    uint8_t seen = 0;
    for (size_t i = 0; i < size; i++)
        seen |= at[i];
    return seen == 0;
}

/* Tell whether what follows the count is zero, or a producer section where one may be. */
static bool is_tail_valid(const uint8_t *head, bool producers_allowed)
{
    if (!is_zero(head + AT_BATCH_RESERVED, BATCH_HEAD_BYTES - AT_BATCH_RESERVED))
        return false;
    if (!producers_allowed || head[AT_PRODUCER] == 0)
        return is_zero(head + AT_PRODUCER, AT_BATCH_RESERVED - AT_PRODUCER);
    return head[AT_PRODUCER] == 1 && is_zero(head + AT_PRODUCER + 1, 3) &&
           load_u64(head + AT_PRODUCER_ID) >> 63 == 0 &&
           load_u16(head + AT_PRODUCER_EPOCH) >> 15 == 0 &&
           is_zero(head + AT_PRODUCER_EPOCH + 2, 2) &&
           load_u32(head + AT_PRODUCER_SEQUENCE) >> 31 == 0;
}

static enum vsr_fault read_head(const uint8_t *at, size_t left, bool producers_allowed,
                                struct batch_head *head)
{
    if (left < BATCH_HEAD_BYTES)
        return VSR_HEAD_CUT;
    memcpy(head->bytes, at, BATCH_HEAD_BYTES);
    head->length = head_u64(head, AT_BATCH_LENGTH);
    head->count = load_u32(head->bytes + AT_BATCH_COUNT);
    if (head->length < BATCH_HEAD_BYTES || head->length > left)
        return VSR_LENGTH;
    return is_tail_valid(head->bytes, producers_allowed) ? VSR_GOOD : VSR_RESERVED;
}

/* ---- the checksum of a batch ------------------------------------------------------------ */

/* What it covers, copied together: it needs room for SEALED_HEAD_BYTES, and 8 for each frame. */
struct sealed {
    uint8_t *bytes;
    size_t used;
};

static inline size_t sealed_bytes_max(size_t count)
{
    return SEALED_HEAD_BYTES + 8 * count;
}

static void seal_head(struct sealed *sealed, const uint8_t *head)
{
    uint8_t *at = sealed->bytes;
    memcpy(at, head, AT_BATCH_CHECKSUM);
    memcpy(at + AT_BATCH_CHECKSUM, head + AT_BATCH_COUNT, 4);
    sealed->used = AT_BATCH_CHECKSUM + 4;
    if (head[AT_PRODUCER] != 0) {
        at += sealed->used;
        at[0] = 1;
        memcpy(at + 1, head + AT_PRODUCER_ID, 8);
        memcpy(at + 9, head + AT_PRODUCER_EPOCH, 2);
        memcpy(at + 11, head + AT_PRODUCER_SEQUENCE, 4);
        sealed->used = SEALED_HEAD_BYTES;
    }
}

static inline void seal_frame(struct sealed *sealed, uint64_t checksum)
{
    store_u64(sealed->bytes + sealed->used, checksum);
    sealed->used += 8;
}

static inline uint64_t sealed_checksum(const struct sealed *sealed)
{
    return xxh3(sealed->bytes, sealed->used);
}

/* ---- frames ----------------------------------------------------------------------------- */

/* Tell how far the frame at `at` extends; false when it does not fit into `left` bytes. */
static inline bool measure_frame(const uint8_t *at, size_t left, struct extent *extent)
{
    return measure_parts(at, left, FRAME_BYTES, AT_FRAME_LENGTHS, extent);
}

static inline uint64_t frame_checksum(const uint8_t *frame, size_t size)
{
    return xxh3(frame + CHECKSUM_BYTES, size - CHECKSUM_BYTES);
}

/* What a server adds to a message, and what a frame says relative to its batch. */
struct stamps {
    uint64_t offset, timestamp, origin;
};

/* Write the record of a frame, all but its checksum. */
static inline void write_record(uint8_t *record, const uint8_t *frame, const struct extent *extent,
                                const struct stamps *stamps)
{
    memcpy(record + AT_ID, frame + AT_ID, ID_BYTES);
    store_u64(record + AT_OFFSET, stamps->offset);
    store_u64(record + AT_TIMESTAMP, stamps->timestamp);
    store_u64(record + AT_ORIGIN_TIMESTAMP, stamps->origin);
    store_u32(record + AT_HEADERS_LENGTH, (uint32_t)extent->headers);
    store_u32(record + AT_PAYLOAD_LENGTH, (uint32_t)extent->payload);
    store_u64(record + AT_PAYLOAD_LENGTH + 4, 0);
    memcpy(record + HEADER_BYTES, frame + FRAME_BYTES, extent->payload + extent->headers);
}

/* Write the fields of a frame between its checksum and its payload, without the id. */
static inline void write_frame_fields(uint8_t *frame, uint32_t offset_delta, uint32_t origin_delta,
                                      uint32_t headers, uint32_t payload)
{
    store_u32(frame + AT_OFFSET_DELTA, offset_delta);
    store_u32(frame + AT_ORIGIN_DELTA, origin_delta);
    store_u32(frame + AT_FRAME_LENGTHS, headers);
    store_u32(frame + AT_FRAME_LENGTHS + 4, payload);
    store_u64(frame + AT_FRAME_RESERVED, 0);
}

/*
 * A frame or record whose checksum is still to be made. It is made only after the next one is
 * written, because wide loads over bytes that were stored just before would wait for the store.
 */
struct unsealed {
    uint8_t *at; /* NULL when there is none */
    size_t size;
    uint64_t difference; /* the bits in which the checksum has to be wrong */
};

/* Write the checksum of what was written before, and return it. */
static inline uint64_t seal_previous(const struct unsealed *previous)
{
    uint64_t checksum = frame_checksum(previous->at, previous->size) ^ previous->difference;
    store_u64(previous->at, checksum);
    return checksum;
}

/* Check one frame by itself: its extent, its reserved bytes, and that its time has 64 bits. */
static inline enum vsr_fault inspect_frame(const struct batch_head *head, const uint8_t *frame,
                                           size_t left, struct extent *extent)
{
    if (!measure_frame(frame, left, extent))
        return VSR_MESSAGE_CUT;
    if (load_u64(frame + AT_FRAME_RESERVED) != 0)
        return VSR_MESSAGE_RESERVED;
    uint64_t origin = head_u64(head, AT_BATCH_ORIGIN);
    return origin + load_u32(frame + AT_ORIGIN_DELTA) < origin ? VSR_OVERFLOW : VSR_GOOD;
}

#endif
