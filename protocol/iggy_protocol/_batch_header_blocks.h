/*
 * A part of _batch.c, which includes it.
 *
 * Blocks of user headers from columns, as readers and other clients expect them: sorted by the
 * bytes of their keys, each key once. The key of a message is one of them.
 *
 * This header knows no Python.
 */
#ifndef IGGY_BATCH_HEADER_BLOCKS_H
#define IGGY_BATCH_HEADER_BLOCKS_H

#include "_batch_columns.h"
#include "_batch_rows.h"

#include <stdlib.h>

enum { STRING_KIND = 2, HEADER_BLOCK_BYTES_MAX = 100000 };

static const uint8_t KEY_HEADER[] = {'i', 'g', 'g', 'y', '-', 'k', 'e', 'y'};

struct header_columns {
    const struct bytes_column *keys;   /* of the messages, or NULL */
    const struct bytes_column *places; /* the pairs of each row, or NULL */
    struct bytes_column names, values;
    const uint8_t *kinds; /* one byte for each pair, or NULL if all have the same */
    uint8_t kind, key_kind;
};

struct header_pair {
    const uint8_t *name, *value;
    size_t name_size, value_size;
    uint8_t kind;
    size_t place; /* of equal names the last one counts */
};

/* The pairs of one row, and the blocks written so far; both grow. */
struct block_writer {
    struct header_pair *pairs;
    size_t pairs_room, pairs_count;
    uint8_t *blocks;
    size_t blocks_room, used;
    size_t size; /* what is wrong with a value or a block */
    uint8_t kind;
};

static void free_block_writer(struct block_writer *writer)
{
    free(writer->pairs);
    free(writer->blocks);
}

static int compare_pairs(const void *left, const void *right)
{
    const struct header_pair *a = left, *b = right;
    size_t common = a->name_size < b->name_size ? a->name_size : b->name_size;
    int order = memcmp(a->name, b->name, common);
    if (order == 0 && a->name_size != b->name_size)
        order = a->name_size < b->name_size ? -1 : 1;
    if (order == 0)
        order = a->place < b->place ? -1 : 1;
    return order;
}

static enum row_fault add_pair(struct block_writer *writer, struct header_pair pair)
{
    if (writer->pairs_count == writer->pairs_room) {
        size_t room = 2 * writer->pairs_room + 16;
        struct header_pair *pairs = realloc(writer->pairs, room * sizeof *pairs);
        if (pairs == NULL)
            return ROWS_OUT_OF_MEMORY;
        writer->pairs = pairs;
        writer->pairs_room = room;
    }
    pair.place = writer->pairs_count;
    writer->pairs[writer->pairs_count++] = pair;
    return ROWS_GOOD;
}

static inline bool is_half_valid(size_t size)
{
    return size >= 1 && size <= HEADER_VALUE_BYTES_MAX;
}

/* Check a pair, and leave in the writer what is wrong with it. */
static enum row_fault check_pair(struct block_writer *writer, const struct header_pair *pair)
{
    writer->kind = pair->kind;
    writer->size = pair->name_size;
    if (!is_half_valid(pair->name_size))
        return HEADER_KEY_TOO_LONG;
    writer->size = pair->value_size;
    if (!is_half_valid(pair->value_size))
        return HEADER_VALUE_TOO_LONG;
    if (pair->kind == 0 || pair->kind >= HEADER_KINDS)
        return HEADER_KIND_UNKNOWN;
    if (HEADER_KIND_BYTES[pair->kind] != 0 && HEADER_KIND_BYTES[pair->kind] != pair->value_size)
        return HEADER_OF_OTHER_SIZE;
    return ROWS_GOOD;
}

/* Read the pairs of a row; those without a value are left out. */
static enum row_fault read_pairs(struct block_writer *writer, const struct header_columns *columns,
                                 size_t row)
{
    size_t begin, end;
    if (columns->places == NULL || !is_value_there(columns->places, row))
        return ROWS_GOOD;
    if (!find_value(columns->places, row, columns->names.length, &begin, &end))
        return VALUE_OUTSIDE;
    for (size_t at = begin; at < end; at++) {
        struct row_value name, value;
        enum row_fault fault = read_value(&columns->names, at, &name);
        if (fault == ROWS_GOOD)
            fault = read_value(&columns->values, at, &value);
        if (fault == ROWS_GOOD && value.bytes == NULL)
            continue;
        if (fault == ROWS_GOOD && name.bytes == NULL)
            fault = HEADER_WITHOUT_KEY;
        if (fault != ROWS_GOOD)
            return fault;
        struct header_pair pair = {name.bytes, value.bytes, name.size, value.size,
                                   columns->kinds == NULL ? columns->kind : columns->kinds[at], 0};
        fault = check_pair(writer, &pair);
        if (fault == ROWS_GOOD)
            fault = add_pair(writer, pair);
        if (fault != ROWS_GOOD)
            return fault;
    }
    return ROWS_GOOD;
}

static bool has_pair(const struct block_writer *writer, const uint8_t *name, size_t size)
{
    for (size_t i = 0; i < writer->pairs_count; i++)
        if (writer->pairs[i].name_size == size && memcmp(writer->pairs[i].name, name, size) == 0)
            return true;
    return false;
}

/* Add the key of a message, unless a header is called as it is. */
static enum row_fault add_key(struct block_writer *writer, const struct header_columns *columns,
                              size_t row)
{
    struct row_value key;
    enum row_fault fault = read_value(columns->keys, row, &key);
    if (fault != ROWS_GOOD || key.bytes == NULL)
        return fault;
    writer->size = key.size;
    if (!is_half_valid(key.size))
        return KEY_TOO_LONG;
    if (has_pair(writer, KEY_HEADER, sizeof KEY_HEADER))
        return ROWS_GOOD;
    struct header_pair pair = {KEY_HEADER,       key.bytes, sizeof KEY_HEADER, key.size,
                               columns->key_kind, 0};
    return add_pair(writer, pair);
}

static uint8_t *write_half(uint8_t *at, uint8_t kind, const uint8_t *bytes, size_t size)
{
    at[0] = kind;
    store_u32(at + 1, (uint32_t)size);
    memcpy(at + HEADER_HALF_BYTES, bytes, size);
    return at + HEADER_HALF_BYTES + size;
}

static inline bool is_replaced(const struct block_writer *writer, size_t at)
{
    const struct header_pair *pair = &writer->pairs[at];
    return at + 1 < writer->pairs_count && pair[1].name_size == pair->name_size &&
           memcmp(pair[1].name, pair->name, pair->name_size) == 0;
}

/* Write the pairs of a row as a block. */
static enum row_fault write_block(struct block_writer *writer)
{
    size_t size = 0;
    if (writer->pairs_count > 1)
        qsort(writer->pairs, writer->pairs_count, sizeof *writer->pairs, compare_pairs);
    for (size_t i = 0; i < writer->pairs_count; i++)
        if (!is_replaced(writer, i))
            size += 2 * HEADER_HALF_BYTES + writer->pairs[i].name_size +
                    writer->pairs[i].value_size;
    writer->size = size;
    if (size > HEADER_BLOCK_BYTES_MAX)
        return HEADERS_TOO_LONG;
    if (size > writer->blocks_room - writer->used) {
        size_t room = 2 * (writer->blocks_room + size);
        uint8_t *blocks = realloc(writer->blocks, room);
        if (blocks == NULL)
            return ROWS_OUT_OF_MEMORY;
        writer->blocks = blocks;
        writer->blocks_room = room;
    }
    uint8_t *at = writer->blocks + writer->used;
    for (size_t i = 0; i < writer->pairs_count; i++) {
        const struct header_pair *pair = &writer->pairs[i];
        if (is_replaced(writer, i))
            continue;
        at = write_half(at, STRING_KIND, pair->name, pair->name_size);
        at = write_half(at, pair->kind, pair->value, pair->value_size);
    }
    writer->used += size;
    return ROWS_GOOD;
}

/* Write the blocks of all rows, and one bound more than there are; `row` is the one to blame. */
static enum row_fault write_blocks(struct block_writer *writer,
                                   const struct header_columns *columns, size_t count,
                                   uint8_t *bounds, size_t *row)
{
    int64_t bound = 0;
    memcpy(bounds, &bound, sizeof bound);
    for (size_t i = 0; i < count; i++) {
        *row = i;
        writer->pairs_count = 0;
        enum row_fault fault = read_pairs(writer, columns, i);
        if (fault == ROWS_GOOD)
            fault = add_key(writer, columns, i);
        if (fault == ROWS_GOOD)
            fault = write_block(writer);
        if (fault != ROWS_GOOD)
            return fault;
        bound = (int64_t)writer->used;
        memcpy(bounds + 8 * (i + 1), &bound, sizeof bound);
    }
    return ROWS_GOOD;
}

#endif
