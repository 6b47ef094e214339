/*
 * A part of _batch.c, which includes it.
 *
 * Messages turned into columns: one array per field, as column stores want them.
 *
 *   messages      offset | timestamp | origin | id | checksum     one number each
 *                 payload bounds + payloads                       one value more than messages
 *                 user header bounds + user headers
 *
 *   user headers  pair bounds                                     pairs of each message
 *                 key kind, key bounds + keys, value kind, value bounds + values
 *
 * Value i of a variable column lies between its bounds i and i + 1, signed 32-bit numbers in the
 * order of this machine. Everything is measured before memory is asked for, and checked again while
 * it is copied, because the bytes may have changed in between.
 *
 * This header knows no Python.
 */
#ifndef IGGY_BATCH_COLUMNS_H
#define IGGY_BATCH_COLUMNS_H

#include "_batch_layout.h"

/* ---- messages --------------------------------------------------------------------------- */

struct column_sizes {
    size_t count, payload_bytes, header_bytes;
};

/* A column that is not wanted has no memory, and what belongs into it is skipped. */
struct columns {
    uint8_t *offsets, *timestamps, *origins, *ids, *checksums;
    uint8_t *payload_bounds, *payloads;
    uint8_t *header_bounds, *headers;
};

/* Measure whole messages; returns the bytes that are left over. */
static size_t measure_columns(const uint8_t *at, size_t left, struct column_sizes *sizes)
{
    struct extent extent;
    while (measure_message(at, left, &extent)) {
        sizes->count++;
        sizes->payload_bytes += extent.payload;
        sizes->header_bytes += extent.headers;
        at += extent.size;
        left -= extent.size;
    }
    return left;
}

static inline void put_u64(uint8_t *column, size_t index, uint64_t value)
{
    memcpy(column + 8 * index, &value, 8);
}

static inline void put_bound(uint8_t *column, size_t index, size_t value)
{
    int32_t bound = (int32_t)value;
    memcpy(column + 4 * index, &bound, 4);
}

/* Append bytes to a variable column at `used`; false when it has no room for them. */
static inline bool append(uint8_t *bounds, uint8_t *column, size_t index, size_t *used,
                          size_t capacity, const uint8_t *bytes, size_t size)
{
    if (bounds == NULL)
        return true;
    if (size > capacity - *used)
        return false;
    if (size > 0)
        memcpy(column + *used, bytes, size);
    *used += size;
    put_bound(bounds, index + 1, *used);
    return true;
}

/* Fill all columns; false when the messages are not those that were measured. */
static bool fill_columns(const struct columns *columns, const struct column_sizes *sizes,
                         const uint8_t *at, size_t left)
{
    size_t payload_bytes = 0, header_bytes = 0;
    if (columns->payload_bounds != NULL)
        put_bound(columns->payload_bounds, 0, 0);
    if (columns->header_bounds != NULL)
        put_bound(columns->header_bounds, 0, 0);
    for (size_t i = 0; i < sizes->count; i++) {
        struct extent extent;
        if (!measure_message(at, left, &extent))
            return false;
        /* A walk over large messages waits for each header; asking early hides that. */
        if (left - extent.size >= HEADER_BYTES)
            PREFETCH(at + extent.size);
        put_u64(columns->offsets, i, load_u64(at + AT_OFFSET));
        put_u64(columns->timestamps, i, load_u64(at + AT_TIMESTAMP));
        put_u64(columns->origins, i, load_u64(at + AT_ORIGIN_TIMESTAMP));
        memcpy(columns->ids + ID_BYTES * i, at + AT_ID, ID_BYTES);
        put_u64(columns->checksums, i, load_u64(at));
        const uint8_t *payload = at + HEADER_BYTES;
        if (!append(columns->payload_bounds, columns->payloads, i, &payload_bytes,
                    sizes->payload_bytes, payload, extent.payload) ||
            !append(columns->header_bounds, columns->headers, i, &header_bytes,
                    sizes->header_bytes, payload + extent.payload, extent.headers))
            return false;
        at += extent.size;
        left -= extent.size;
    }
    return (columns->payload_bounds == NULL || payload_bytes == sizes->payload_bytes) &&
           (columns->header_bounds == NULL || header_bytes == sizes->header_bytes);
}

/* ---- user headers ----------------------------------------------------------------------- */

enum { HEADER_HALF_BYTES = 5, HEADER_VALUE_BYTES_MAX = 255, HEADER_KINDS = 16 };

/* Bytes of each kind of header; 0 for those of any size. Kinds begin with 1. */
static const uint8_t HEADER_KIND_BYTES[HEADER_KINDS] = {
    0, 0, 0, 1, 1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 4, 8,
};

struct header_half {
    uint8_t kind;
    size_t size;
    const uint8_t *bytes;
};

/* Read a kind, a length and as many bytes; false when they are not what a reader accepts. */
static bool read_half(const uint8_t **at, size_t *left, struct header_half *half)
{
    if (*left < HEADER_HALF_BYTES)
        return false;
    half->kind = load_u8_once(*at);
    half->size = load_u32_once(*at + 1);
    if (half->kind == 0 || half->kind >= HEADER_KINDS || half->size == 0 ||
        half->size > HEADER_VALUE_BYTES_MAX || half->size > *left - HEADER_HALF_BYTES)
        return false;
    if (HEADER_KIND_BYTES[half->kind] != 0 && HEADER_KIND_BYTES[half->kind] != half->size)
        return false;
    half->bytes = *at + HEADER_HALF_BYTES;
    *at += HEADER_HALF_BYTES + half->size;
    *left -= HEADER_HALF_BYTES + half->size;
    return true;
}

struct pair_sizes {
    size_t count, key_bytes, value_bytes;
};

/* Measure the pairs of one block and add them; false, and nothing added, if it cannot be read. */
static bool measure_pairs(const uint8_t *at, size_t left, struct pair_sizes *sizes)
{
    struct pair_sizes found = *sizes;
    while (left > 0) {
        struct header_half key, value;
        if (!read_half(&at, &left, &key) || !read_half(&at, &left, &value))
            return false;
        found.count++;
        found.key_bytes += key.size;
        found.value_bytes += value.size;
    }
    *sizes = found;
    return true;
}

struct pairs {
    uint8_t *pair_bounds, *readable;
    uint8_t *key_kinds, *key_bounds, *keys;
    uint8_t *value_kinds, *value_bounds, *values;
    struct pair_sizes used;
};

/* Copy the pairs of one block that was measured; false when it is not the same any more. */
static bool fill_pairs(struct pairs *pairs, const struct pair_sizes *sizes, const uint8_t *at,
                       size_t left)
{
    struct pair_sizes *used = &pairs->used;
    while (left > 0) {
        struct header_half key, value;
        size_t index = used->count;
        if (!read_half(&at, &left, &key) || !read_half(&at, &left, &value) ||
            index == sizes->count)
            return false;
        pairs->key_kinds[index] = key.kind;
        pairs->value_kinds[index] = value.kind;
        if (!append(pairs->key_bounds, pairs->keys, index, &used->key_bytes, sizes->key_bytes,
                    key.bytes, key.size) ||
            !append(pairs->value_bounds, pairs->values, index, &used->value_bytes,
                    sizes->value_bytes, value.bytes, value.size))
            return false;
        used->count++;
    }
    return true;
}

/* Find block i between its bounds; false when those are no bounds of it. */
static bool find_block(const uint8_t *bounds, size_t index, size_t bytes, size_t *start,
                       size_t *size)
{
    int32_t pair[2];
    memcpy(pair, bounds + 4 * index, sizeof pair);
    if (pair[0] < 0 || pair[1] < pair[0] || (size_t)pair[1] > bytes)
        return false;
    *start = (size_t)pair[0];
    *size = (size_t)(pair[1] - pair[0]);
    return true;
}

#endif
