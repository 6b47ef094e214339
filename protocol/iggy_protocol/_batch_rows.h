/*
 * A part of _batch.c, which includes it.
 *
 * Columns of rows that are to be sent, as Arrow lays them out, and the rows themselves.
 *
 *   validity   one bit for each value that is there, from the lowest bit of each byte on
 *   bounds     signed, 32 or 64 bits, in the order of this machine; value i lies between two
 *   data       all values; without bounds each has the same width
 *
 * The first value of a column may be at any index, because Arrow slices by changing it. Nothing is
 * believed: sizes are checked when a column is opened, and the place of a value when it is read.
 *
 * This header knows no Python.
 */
#ifndef IGGY_BATCH_ROWS_H
#define IGGY_BATCH_ROWS_H

#include "_batch_layout.h"

/* Why columns cannot be read; `where` of the caller is the row. */
enum row_fault {
    ROWS_GOOD = 0,
    COLUMN_TOO_SHORT,
    BOUNDS_OF_OTHER_WIDTH,
    VALUE_OUTSIDE,
    PAYLOAD_MISSING,
    ID_OF_OTHER_SIZE,
    TIME_OF_OTHER_SIZE,
    TIME_BEFORE_1970,
    NO_SUCH_ROW,
    NO_SUCH_PARTITION,
    KEY_TOO_LONG,
    HEADER_WITHOUT_KEY,
    HEADER_KEY_TOO_LONG,
    HEADER_VALUE_TOO_LONG,
    HEADER_KIND_UNKNOWN,
    HEADER_OF_OTHER_SIZE,
    HEADERS_TOO_LONG,
    ROWS_OUT_OF_MEMORY,
};

struct bytes_column {
    size_t length, start, width;
    const uint8_t *validity, *bounds, *data; /* NULL where there is none */
    size_t data_bytes;
};

struct row_value {
    const uint8_t *bytes; /* NULL where the value is missing */
    size_t size;
};

/* Check the sizes of a column against those of its memory. */
static enum row_fault check_column(const struct bytes_column *column, size_t validity_bytes,
                                   size_t bounds_bytes)
{
    size_t end = column->start + column->length;
    if (end < column->start || end == SIZE_MAX)
        return COLUMN_TOO_SHORT;
    if (column->validity != NULL && end > 0 && (end - 1) / 8 >= validity_bytes)
        return COLUMN_TOO_SHORT;
    if (column->bounds == NULL)
        return ROWS_GOOD;
    if (column->width != 4 && column->width != 8)
        return BOUNDS_OF_OTHER_WIDTH;
    return end + 1 <= bounds_bytes / column->width ? ROWS_GOOD : COLUMN_TOO_SHORT;
}

static inline int64_t bound_at(const struct bytes_column *column, size_t index)
{
    if (column->width == 4) {
        int32_t bound;
        memcpy(&bound, column->bounds + 4 * index, sizeof bound);
        return bound;
    }
    int64_t bound;
    memcpy(&bound, column->bounds + 8 * index, sizeof bound);
    return bound;
}

static inline bool is_value_there(const struct bytes_column *column, size_t index)
{
    size_t at = column->start + index;
    return column->validity == NULL || (column->validity[at >> 3] >> (at & 7) & 1);
}

/* Find where value `index` begins and ends; false if that is not inside `limit`. */
static inline bool find_value(const struct bytes_column *column, size_t index, size_t limit,
                              size_t *begin, size_t *end)
{
    size_t at = column->start + index;
    if (column->bounds == NULL) {
        if (column->width != 0 && at >= limit / column->width)
            return false;
        *begin = column->width * at;
        *end = *begin + column->width;
        return true;
    }
    int64_t first = bound_at(column, at), last = bound_at(column, at + 1);
    if (first < 0 || last < first || (uint64_t)last > limit)
        return false;
    *begin = (size_t)first;
    *end = (size_t)last;
    return true;
}

/* Read value `index`; a column that is not there has no values. */
static inline enum row_fault read_value(const struct bytes_column *column, size_t index,
                                        struct row_value *value)
{
    static const uint8_t nothing[1] = {0}; /* an empty buffer may have no address */
    size_t begin, end;
    *value = (struct row_value){NULL, 0};
    if (column == NULL || !is_value_there(column, index))
        return ROWS_GOOD;
    if (!find_value(column, index, column->data_bytes, &begin, &end))
        return VALUE_OUTSIDE;
    value->bytes = end > begin ? column->data + begin : nothing;
    value->size = end - begin;
    return ROWS_GOOD;
}

/* ---- rows ------------------------------------------------------------------------------- */

struct send_rows {
    struct bytes_column payloads;
    const struct bytes_column *headers, *origins; /* NULL where there are none */
    const uint8_t *ids;   /* 16 bytes for each row, or NULL */
    const uint8_t *order; /* numbers of rows, 32 bits each, or NULL for all in their order */
    size_t first, count;
};

struct row_message {
    struct row_value payload, headers;
    const uint8_t *id; /* NULL where there is none */
    bool has_origin;
    uint64_t origin;
};

static inline size_t row_number(const struct send_rows *rows, size_t index)
{
    uint32_t number;
    if (rows->order == NULL)
        return rows->first + index;
    memcpy(&number, rows->order + 4 * (rows->first + index), sizeof number);
    return number;
}

/* Read one of the rows; on failure `row` is the one to blame. */
static inline enum row_fault read_row(const struct send_rows *rows, size_t index,
                                      struct row_message *message, size_t *row)
{
    struct row_value origin;
    size_t number = *row = row_number(rows, index);
    if (number >= rows->payloads.length)
        return NO_SUCH_ROW;
    enum row_fault fault = read_value(&rows->payloads, number, &message->payload);
    if (fault == ROWS_GOOD)
        fault = read_value(rows->headers, number, &message->headers);
    if (fault == ROWS_GOOD)
        fault = read_value(rows->origins, number, &origin);
    if (fault != ROWS_GOOD)
        return fault;
    if (message->payload.bytes == NULL)
        return PAYLOAD_MISSING;
    message->id = rows->ids == NULL ? NULL : rows->ids + ID_BYTES * number;
    message->has_origin = origin.bytes != NULL;
    message->origin = 0;
    if (!message->has_origin)
        return ROWS_GOOD;
    if (origin.size != sizeof message->origin)
        return TIME_OF_OTHER_SIZE;
    memcpy(&message->origin, origin.bytes, sizeof message->origin);
    return message->origin >> 63 == 0 ? ROWS_GOOD : TIME_BEFORE_1970;
}

/* ---- partitions ------------------------------------------------------------------------- */

static inline uint32_t rotate_left_32(uint32_t value, int bits)
{
    return (value << bits) | (value >> (32 - bits));
}

/* XXH32 with seed 0: the hash by which every client and server places a key. */
static uint32_t hash_key(const uint8_t *at, size_t length)
{
    enum { KEY_STRIPE_BYTES = 16 };
    static const uint32_t primes[] = {0x9E3779B1u, 0x85EBCA77u, 0xC2B2AE3Du, 0x27D4EB2Fu,
                                      0x165667B1u};
    const uint8_t *end = at + length;
    uint32_t hash = primes[4];
    if (length >= KEY_STRIPE_BYTES) {
        uint32_t lanes[4] = {primes[0] + primes[1], primes[1], 0, 0u - primes[0]};
        for (; end - at >= KEY_STRIPE_BYTES; at += KEY_STRIPE_BYTES)
            for (size_t lane = 0; lane < 4; lane++)
                lanes[lane] =
                    rotate_left_32(lanes[lane] + load_u32(at + 4 * lane) * primes[1], 13) *
                    primes[0];
        hash = rotate_left_32(lanes[0], 1) + rotate_left_32(lanes[1], 7) +
               rotate_left_32(lanes[2], 12) + rotate_left_32(lanes[3], 18);
    }
    hash += (uint32_t)length;
    for (; end - at >= 4; at += 4)
        hash = rotate_left_32(hash + load_u32(at) * primes[2], 17) * primes[3];
    for (; at < end; at++)
        hash = rotate_left_32(hash + *at * primes[4], 11) * primes[0];
    hash = (hash ^ hash >> 15) * primes[1];
    hash = (hash ^ hash >> 13) * primes[2];
    return hash ^ hash >> 16;
}

struct placing {
    const struct bytes_column *keys; /* NULL where there are none */
    const uint8_t *ids;              /* the same */
    uint32_t partitions_count, otherwise;
};

/* Choose the partition of each row: by its key, else by its id, else the same for all. */
static enum row_fault place_rows(const struct placing *placing, size_t count, uint8_t *target)
{
    for (size_t i = 0; i < count; i++) {
        struct row_value key;
        uint32_t number = placing->otherwise;
        enum row_fault fault = read_value(placing->keys, i, &key);
        if (fault != ROWS_GOOD)
            return fault;
        if (key.bytes != NULL)
            number = hash_key(key.bytes, key.size) % placing->partitions_count;
        else if (placing->ids != NULL)
            number = (uint32_t)(load_u64(placing->ids + ID_BYTES * i) % placing->partitions_count);
        memcpy(target + 4 * i, &number, sizeof number);
    }
    return ROWS_GOOD;
}

/* Put the rows of each partition together. `ends` has room for one more than there are. */
static enum row_fault group_rows(const uint8_t *numbers, size_t count, size_t partitions_count,
                                 size_t *ends, uint8_t *order, size_t *where)
{
    uint32_t number;
    memset(ends, 0, (partitions_count + 1) * sizeof *ends);
    for (size_t i = 0; i < count; i++) {
        memcpy(&number, numbers + 4 * i, sizeof number);
        if (number >= partitions_count) {
            *where = i;
            return NO_SUCH_PARTITION;
        }
        ends[number + 1]++;
    }
    for (size_t i = 1; i <= partitions_count; i++)
        ends[i] += ends[i - 1];
    for (size_t i = 0; i < count; i++) {
        /* Read again, since the bytes may have changed since the first time. */
        memcpy(&number, numbers + 4 * i, sizeof number);
        if (number >= partitions_count || ends[number] >= count)
            return NO_SUCH_PARTITION;
        uint32_t row = (uint32_t)i;
        memcpy(order + 4 * ends[number]++, &row, sizeof row);
    }
    return ROWS_GOOD;
}

#endif
