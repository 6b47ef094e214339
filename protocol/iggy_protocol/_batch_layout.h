/*
 * A part of _batch.c, which includes it.
 *
 * How a message lies in memory, and how to read it without trusting it.
 *
 *   0        8                24       32         40       48       52       56        64
 *   +--------+----------------+--------+----------+--------+--------+--------+---------+---
 *   |checksum| id             | offset | timestamp| origin |headers |payload |reserved | payload,
 *   | u64    | u128           | u64    | u64 us   | u64 us |length  |length  | u64     | headers
 *   +--------+----------------+--------+----------+--------+--------+--------+---------+---
 *
 * An index entry is 16 bytes: u32 relative offset, u32 end position, u64 timestamp.
 * Every integer is little-endian and may stand at any address.
 *
 * This header knows no Python.
 */
#ifndef IGGY_BATCH_LAYOUT_H
#define IGGY_BATCH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    HEADER_BYTES = 64,
    ID_BYTES = 16,
    CHECKSUM_BYTES = 8, /* the checksum covers what comes after itself */
    AT_ID = 8,
    AT_OFFSET = 24,
    AT_TIMESTAMP = 32,
    AT_ORIGIN_TIMESTAMP = 40,
    AT_HEADERS_LENGTH = 48,
    AT_PAYLOAD_LENGTH = AT_HEADERS_LENGTH + 4,

    INDEX_BYTES = 16,
    AT_INDEX_POSITION = 4,
    AT_INDEX_TIMESTAMP = 8,

    PAYLOAD_BYTES_MAX = 64000000,
    USER_HEADERS_BYTES_MAX = 100000,
};

/* ---- integers -------------------------------------------------------------------------- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LITTLE_32(value) __builtin_bswap32(value)
#define LITTLE_64(value) __builtin_bswap64(value)
#else
#define LITTLE_32(value) (value)
#define LITTLE_64(value) (value)
#endif

static inline uint32_t load_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return LITTLE_32(value);
}

static inline uint64_t load_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return LITTLE_64(value);
}

static inline void store_u32(uint8_t *at, uint32_t value)
{
    value = LITTLE_32(value);
    memcpy(at, &value, sizeof value);
}

static inline void store_u64(uint8_t *at, uint64_t value)
{
    value = LITTLE_64(value);
    memcpy(at, &value, sizeof value);
}

/*
 * Read a length from memory that another thread may be rewriting. The compiler must not read it a
 * second time after the bounds were checked. A byte can be volatile; a word cannot, because it may
 * stand at any address, hence the empty assembly, which hides where the value came from.
 */
static inline uint8_t load_u8_once(const uint8_t *at)
{
    return *(const volatile uint8_t *)at;
}

static inline uint32_t load_u32_once(const uint8_t *at)
{
#if defined(__GNUC__)
    uint32_t value = load_u32(at);
    __asm__ volatile("" : "+r"(value));
    return value;
#else
    const volatile uint8_t *byte = at;
    uint32_t low = byte[0] | (uint32_t)byte[1] << 8;
    return low | (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24;
#endif
}

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch((const void *)(address))
#else
#define PREFETCH(address) ((void)(address))
#endif

/* ---- one message ----------------------------------------------------------------------- */

struct extent {
    size_t payload; /* bytes of the payload, which starts right after the header */
    size_t headers; /* bytes of the user headers, which follow the payload */
    size_t size;    /* bytes of the whole message */
};

/* Measure a header, whose two lengths stand at `at_lengths`, and what follows it. */
static inline bool measure_parts(const uint8_t *at, size_t left, size_t header_bytes,
                                 size_t at_lengths, struct extent *extent)
{
    if (left < header_bytes)
        return false;
    uint32_t headers = load_u32_once(at + at_lengths);
    uint32_t payload = load_u32_once(at + at_lengths + 4);
    uint64_t size = (uint64_t)header_bytes + headers + payload;
    if (size > left)
        return false;
    extent->payload = payload;
    extent->headers = headers;
    extent->size = (size_t)size;
    return true;
}

/* Tell how far the message at `at` extends; false when it does not fit into `left` bytes. */
static inline bool measure_message(const uint8_t *at, size_t left, struct extent *extent)
{
    return measure_parts(at, left, HEADER_BYTES, AT_HEADERS_LENGTH, extent);
}

static inline bool is_id_missing(const uint8_t *message)
{
    return (load_u64(message + AT_ID) | load_u64(message + AT_ID + 8)) == 0;
}

#endif
