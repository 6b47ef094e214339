/*
 * A part of _batch.c, which includes it.
 *
 * Validation of a whole SendMessages body, in the order in which a server reports problems.
 *
 *   u32 M | M bytes of metadata: stream, topic, partitioning, u32 count N, anything
 *         | N index entries of 16 bytes | N messages to the end of the body
 *
 * Nothing outside the body is ever read, whatever its lengths say. This header knows no Python.
 */
#ifndef IGGY_BATCH_INSPECT_H
#define IGGY_BATCH_INSPECT_H

#include "_batch_layout.h"

enum status {
    GOOD = 0,
    INVALID_COMMAND = 3,
    INVALID_IDENTIFIER = 6,
    NO_MESSAGES = 4009,
    USER_HEADERS_TOO_LARGE = 4017,
    PAYLOAD_TOO_LARGE = 4022,
    INDEX_OFFSET_NOT_ZERO = 4031,
    INDEX_TIMESTAMP_NOT_ZERO = 4032,
    MESSAGE_OUTSIDE_ITS_SPAN = 4033,
    SIZES_DO_NOT_ADD_UP = 4036,
    OFFSET_FALLS = 4100,
    INDEX_POSITION_FALLS = 10011,
};

struct shape {
    size_t where; /* on failure: the message, or the byte, to blame */
    size_t count, topic_at, partitioning_at, indexes_at, messages_at, missing_ids;
};

/* Step over a kind byte, a length byte and a value; false when they do not fit before `end`. */
static bool read_tagged(const uint8_t *body, size_t *at, size_t end, uint8_t *kind, uint8_t *length)
{
    if (end - *at < 2)
        return false;
    uint8_t value_bytes = load_u8_once(body + *at + 1);
    if (end - *at - 2 < value_bytes)
        return false;
    *kind = body[*at];
    *length = value_bytes;
    *at += 2u + value_bytes;
    return true;
}

static bool read_identifier(const uint8_t *body, size_t *at, size_t end)
{
    enum { NUMERIC = 1, NAME = 2 };
    uint8_t kind, length;
    if (!read_tagged(body, at, end, &kind, &length))
        return false;
    return (kind == NUMERIC && length == 4) || (kind == NAME && length > 0);
}

static bool read_partitioning(const uint8_t *body, size_t *at, size_t end)
{
    enum { BALANCED = 1, PARTITION_ID = 2, MESSAGES_KEY = 3 };
    uint8_t kind, length;
    if (!read_tagged(body, at, end, &kind, &length))
        return false;
    return (kind == BALANCED && length == 0) || (kind == PARTITION_ID && length == 4) ||
           kind == MESSAGES_KEY;
}

/* Read the metadata up to the count. On failure `where` is the byte where the bad field starts. */
static enum status read_metadata(const uint8_t *body, size_t size, struct shape *shape)
{
    shape->where = 0;
    if (size < 4)
        return INVALID_COMMAND;
    uint32_t metadata = load_u32_once(body);
    if (metadata > size - 4)
        return INVALID_COMMAND;
    size_t at = 4, end = 4 + (size_t)metadata;

    shape->where = at;
    if (!read_identifier(body, &at, end))
        return INVALID_IDENTIFIER;
    shape->where = shape->topic_at = at;
    if (!read_identifier(body, &at, end))
        return INVALID_IDENTIFIER;
    shape->where = shape->partitioning_at = at;
    if (!read_partitioning(body, &at, end))
        return INVALID_COMMAND;
    shape->where = at;
    if (end - at < 4)
        return INVALID_COMMAND;
    shape->count = load_u32_once(body + at);
    shape->indexes_at = end;
    return GOOD;
}

/* Everything before the messages. */
static enum status inspect_metadata(const uint8_t *body, size_t size, struct shape *shape)
{
    enum status status = read_metadata(body, size, shape);
    if (status != GOOD)
        return status;
    if ((size - shape->indexes_at) / INDEX_BYTES < shape->count)
        return INVALID_COMMAND;
    if (shape->count == 0)
        return NO_MESSAGES;
    shape->messages_at = shape->indexes_at + INDEX_BYTES * shape->count;
    return GOOD;
}

/* The walk over index entries and messages, side by side. */
struct inspection {
    const uint8_t *indexes, *messages;
    size_t count, message_bytes;
    size_t start;       /* where the next message begins: the end in the entry before its own */
    uint64_t offset;    /* offset field of the message before */
    size_t missing_ids;
    size_t first_loose; /* first message that leaves bytes of its span unused */
};

static inline enum status inspect_message(struct inspection *walk, size_t i)
{
    const uint8_t *entry = walk->indexes + INDEX_BYTES * i;
    if (load_u32(entry) != 0)
        return INDEX_OFFSET_NOT_ZERO;
    if (load_u64(entry + AT_INDEX_TIMESTAMP) != 0)
        return INDEX_TIMESTAMP_NOT_ZERO;

    /* The last message reaches to the end of the body, whatever its entry says. */
    uint32_t position = load_u32_once(entry + AT_INDEX_POSITION);
    size_t end = i + 1 == walk->count ? walk->message_bytes : position;
    if (end > walk->message_bytes || walk->start > end)
        return MESSAGE_OUTSIDE_ITS_SPAN;
    const uint8_t *message = walk->messages + walk->start;
    struct extent extent;
    if (!measure_message(message, end - walk->start, &extent))
        return MESSAGE_OUTSIDE_ITS_SPAN;
    if (extent.payload > PAYLOAD_BYTES_MAX)
        return PAYLOAD_TOO_LARGE;
    if (extent.headers > USER_HEADERS_BYTES_MAX)
        return USER_HEADERS_TOO_LARGE;

    uint64_t offset = load_u64(message + AT_OFFSET);
    if (offset < walk->offset)
        return OFFSET_FALLS;
    if (position < walk->start)
        return INDEX_POSITION_FALLS;
    if (walk->start + extent.size != end && walk->first_loose > i)
        walk->first_loose = i;
    walk->missing_ids += is_id_missing(message);
    walk->offset = offset;
    walk->start = position;
    return GOOD;
}

/*
 * Step over a message that is right in every respect, as nearly all are; false, and no step, when
 * there is anything to look at. The message must not be the last one.
 */
static inline bool step_if_flawless(struct inspection *walk, size_t i)
{
    const uint8_t *entry = walk->indexes + INDEX_BYTES * i;
    uint32_t position = load_u32_once(entry + AT_INDEX_POSITION);
    size_t start = walk->start, span = (size_t)position - start;
    if (span > walk->message_bytes - start) /* or position < start, which makes span huge */
        return false;
    const uint8_t *message = walk->messages + start;
    struct extent extent;
    if (!measure_message(message, span, &extent) || extent.size != span)
        return false;
    uint64_t offset = load_u64(message + AT_OFFSET);
    if ((load_u32(entry) | load_u64(entry + AT_INDEX_TIMESTAMP)) != 0 || offset < walk->offset ||
        extent.payload > PAYLOAD_BYTES_MAX || extent.headers > USER_HEADERS_BYTES_MAX)
        return false;
    walk->missing_ids += is_id_missing(message);
    walk->offset = offset;
    walk->start = position;
    return true;
}

/* Step over flawless messages from the i-th on; returns the first that needs a closer look. */
static size_t skip_flawless(struct inspection *walk, size_t i)
{
    struct inspection quick = *walk; /* a copy that no pointer reaches stays in registers */
    while (i + 1 < quick.count && step_if_flawless(&quick, i))
        i++;
    *walk = quick;
    return i;
}

/* Check a whole body in the order in which a server reports problems. */
static enum status inspect_body(const uint8_t *body, size_t size, struct shape *shape)
{
    enum status status = inspect_metadata(body, size, shape);
    if (status != GOOD)
        return status;
    struct inspection walk = {
        .indexes = body + shape->indexes_at,
        .messages = body + shape->messages_at,
        .count = shape->count,
        .message_bytes = size - shape->messages_at,
        .first_loose = SIZE_MAX,
    };
    for (size_t i = skip_flawless(&walk, 0); i < walk.count; i = skip_flawless(&walk, i + 1)) {
        status = inspect_message(&walk, i);
        if (status != GOOD) {
            shape->where = i;
            return status;
        }
    }
    shape->missing_ids = walk.missing_ids;
    /* Spans lie back to back, so the sizes add up exactly when no span has bytes to spare. */
    shape->where = walk.first_loose == SIZE_MAX ? 0 : walk.first_loose;
    return walk.first_loose == SIZE_MAX ? GOOD : SIZES_DO_NOT_ADD_UP;
}

#endif
