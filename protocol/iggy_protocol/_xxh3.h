/*
 * A part of _batch.c, which includes it.
 *
 * XXH3, 64 bits. With seed 0 and the default secret it is the checksum of a stored message; with
 * seeds that nobody knows it tells messages apart.
 *
 * Inputs of up to 240 bytes are mixed with plain 64-bit arithmetic. Longer ones run through eight
 * lanes of 64 bits, 64 input bytes (a stripe) at a time; that loop exists four times: portable
 * ("scalar"), SSE2, AVX2 and AVX-512. The processor decides which one runs.
 *
 * This header knows neither messages nor Python.
 */
#ifndef IGGY_XXH3_H
#define IGGY_XXH3_H

#include "_batch_layout.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define XXH3_HAS_X86 1
#include <immintrin.h>
#else
#define XXH3_HAS_X86 0
#endif

#if defined(__GNUC__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define ALWAYS_INLINE inline
#endif

/* In front of a loop over the 16 stripes of a block. */
#if defined(__clang__)
#define UNROLL_STRIPES _Pragma("unroll")
#elif defined(__GNUC__)
#define UNROLL_STRIPES _Pragma("GCC unroll 16")
#else
#define UNROLL_STRIPES
#endif

/* ---- constants of the algorithm -------------------------------------------------------- */

#define P32_1 0x9E3779B1u
#define P32_2 0x85EBCA77u
#define P32_3 0xC2B2AE3Du
#define P64_1 0x9E3779B185EBCA87u
#define P64_2 0xC2B2AE3D27D4EB4Fu
#define P64_3 0x165667B19E3779F9u
#define P64_4 0x85EBCA77C2B2AE63u
#define P64_5 0x27D4EB2F165667C5u
#define MIX_1 0x165667919E3779F9u
#define MIX_2 0x9FB21C651E98DF25u

enum {
    SECRET_BYTES = 192,
    STRIPE_BYTES = 64,
    LANES = 8,
    STRIPES_PER_BLOCK = (SECRET_BYTES - STRIPE_BYTES) / 8,
    BLOCK_BYTES = STRIPE_BYTES * STRIPES_PER_BLOCK,
    AT_SCRAMBLE_SECRET = SECRET_BYTES - STRIPE_BYTES,
    AT_LAST_STRIPE_SECRET = SECRET_BYTES - STRIPE_BYTES - 7,
    AT_MERGE_SECRET = 11,
    AT_MIDDLE_TAIL_SECRET = 136 - 17,
    PREFETCH_AHEAD = 384,
};

static const uint8_t SECRET[SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

/* ---- building blocks ------------------------------------------------------------------- */

static ALWAYS_INLINE uint64_t rotate_left(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

static ALWAYS_INLINE uint64_t reverse_bytes(uint64_t value)
{
#if defined(__GNUC__)
    return __builtin_bswap64(value);
#else
    value = ((value & 0x00FF00FF00FF00FFu) << 8) | ((value >> 8) & 0x00FF00FF00FF00FFu);
    value = ((value & 0x0000FFFF0000FFFFu) << 16) | ((value >> 16) & 0x0000FFFF0000FFFFu);
    return (value << 32) | (value >> 32);
#endif
}

/* Multiply to 128 bits and fold the halves onto each other. */
static ALWAYS_INLINE uint64_t multiply_fold(uint64_t left, uint64_t right)
{
#if defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 uint128;
    uint128 product = (uint128)left * right;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    uint64_t low_low = (left & 0xFFFFFFFFu) * (right & 0xFFFFFFFFu);
    uint64_t high_low = (left >> 32) * (right & 0xFFFFFFFFu);
    uint64_t low_high = (left & 0xFFFFFFFFu) * (right >> 32);
    uint64_t high_high = (left >> 32) * (right >> 32);
    uint64_t cross = (low_low >> 32) + (high_low & 0xFFFFFFFFu) + low_high;
    uint64_t upper = (high_low >> 32) + (cross >> 32) + high_high;
    uint64_t lower = (cross << 32) | (low_low & 0xFFFFFFFFu);
    return lower ^ upper;
#endif
}

static ALWAYS_INLINE uint64_t avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= MIX_1;
    return hash ^ (hash >> 32);
}

static ALWAYS_INLINE uint64_t avalanche_tiny(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= P64_2;
    hash ^= hash >> 29;
    hash *= P64_3;
    return hash ^ (hash >> 32);
}

static ALWAYS_INLINE uint64_t mix_16(const uint8_t *input, const uint8_t *secret, uint64_t seed)
{
    return multiply_fold(load_u64(input) ^ (load_u64(secret) + seed),
                         load_u64(input + 8) ^ (load_u64(secret + 8) - seed));
}

/* ---- up to 240 bytes ------------------------------------------------------------------- */

/* All inline: with a seed that is known to be 0 the compiler leaves it out. */

static ALWAYS_INLINE uint64_t xxh3_to_16(const uint8_t *input, size_t length, uint64_t seed)
{
    if (length > 8) {
        uint64_t flip_low = (load_u64(SECRET + 24) ^ load_u64(SECRET + 32)) + seed;
        uint64_t flip_high = (load_u64(SECRET + 40) ^ load_u64(SECRET + 48)) - seed;
        uint64_t low = load_u64(input) ^ flip_low;
        uint64_t high = load_u64(input + length - 8) ^ flip_high;
        return avalanche(length + reverse_bytes(low) + high + multiply_fold(low, high));
    }
    if (length >= 4) {
        uint64_t first = load_u32(input), last = load_u32(input + length - 4);
        uint64_t wide_seed = seed ^ reverse_bytes((uint32_t)seed);
        uint64_t flip = (load_u64(SECRET + 8) ^ load_u64(SECRET + 16)) - wide_seed;
        uint64_t hash = (last + (first << 32)) ^ flip;
        hash ^= rotate_left(hash, 49) ^ rotate_left(hash, 24);
        hash *= MIX_2;
        hash ^= (hash >> 35) + length;
        hash *= MIX_2;
        return hash ^ (hash >> 28);
    }
    if (length > 0) {
        uint32_t first = input[0], middle = input[length >> 1], last = input[length - 1];
        uint32_t mixed = (first << 16) | (middle << 24) | last | ((uint32_t)length << 8);
        return avalanche_tiny(mixed ^ ((load_u32(SECRET) ^ load_u32(SECRET + 4)) + seed));
    }
    return avalanche_tiny(seed ^ load_u64(SECRET + 56) ^ load_u64(SECRET + 64));
}

/* 17 to 128 bytes: pairs of 16 bytes from both ends, which may overlap in the middle. */
static ALWAYS_INLINE uint64_t xxh3_to_128(const uint8_t *input, size_t length, uint64_t seed)
{
    uint64_t hash = length * P64_1;
    const uint8_t *end = input + length;
    if (length > 96)
        hash += mix_16(input + 48, SECRET + 96, seed) + mix_16(end - 64, SECRET + 112, seed);
    if (length > 64)
        hash += mix_16(input + 32, SECRET + 64, seed) + mix_16(end - 48, SECRET + 80, seed);
    if (length > 32)
        hash += mix_16(input + 16, SECRET + 32, seed) + mix_16(end - 32, SECRET + 48, seed);
    hash += mix_16(input, SECRET, seed) + mix_16(end - 16, SECRET + 16, seed);
    return avalanche(hash);
}

static ALWAYS_INLINE uint64_t xxh3_to_240(const uint8_t *input, size_t length, uint64_t seed)
{
    uint64_t hash = length * P64_1;
    uint64_t tail = mix_16(input + length - 16, SECRET + AT_MIDDLE_TAIL_SECRET, seed);
    size_t rounds = length / 16;
    for (size_t round = 0; round < 8; round++)
        hash += mix_16(input + 16 * round, SECRET + 16 * round, seed);
    for (size_t round = 8; round < rounds; round++)
        tail += mix_16(input + 16 * round, SECRET + 16 * (round - 8) + 3, seed);
    return avalanche(avalanche(hash) + tail);
}

/* ---- more than 240 bytes: the lanes ---------------------------------------------------- */

static const uint64_t FIRST_LANES[LANES] = {
    P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1,
};

static uint64_t merge_lanes(const uint64_t lanes[LANES], size_t length, const uint8_t *secrets)
{
    uint64_t hash = length * P64_1;
    for (size_t pair = 0; pair < LANES / 2; pair++) {
        const uint8_t *secret = secrets + AT_MERGE_SECRET + 16 * pair;
        hash += multiply_fold(lanes[2 * pair] ^ load_u64(secret),
                              lanes[2 * pair + 1] ^ load_u64(secret + 8));
    }
    return avalanche(hash);
}

/*
 * The walk over a long input is the same on every level. A level brings a struct `lanes_LEVEL` and
 * four steps: begin_LEVEL, accumulate_LEVEL (one stripe), scramble_LEVEL (the end of a block) and
 * finish_LEVEL (the lanes to memory).
 */
#define XXH3_DEFINE_LONG(LEVEL, ATTRIBUTE, UNROLL)                                                 \
    ATTRIBUTE static uint64_t xxh3_long_##LEVEL(const uint8_t *input, size_t length,               \
                                                const uint8_t *secret)                             \
    {                                                                                              \
        struct lanes_##LEVEL lanes;                                                                \
        uint64_t result[LANES];                                                                    \
        begin_##LEVEL(&lanes);                                                                     \
        const uint8_t *at = input;                                                                 \
        size_t blocks = (length - 1) / BLOCK_BYTES;                                                \
        for (size_t block = 0; block < blocks; block++) {                                          \
            UNROLL                                                                                 \
            for (size_t stripe = 0; stripe < STRIPES_PER_BLOCK; stripe++, at += STRIPE_BYTES) {    \
                PREFETCH((uintptr_t)at + PREFETCH_AHEAD);                                          \
                accumulate_##LEVEL(&lanes, at, secret + 8 * stripe);                               \
            }                                                                                      \
            scramble_##LEVEL(&lanes, secret);                                                      \
        }                                                                                          \
        size_t stripes = (length - 1 - BLOCK_BYTES * blocks) / STRIPE_BYTES;                       \
        for (size_t stripe = 0; stripe < stripes; stripe++, at += STRIPE_BYTES)                    \
            accumulate_##LEVEL(&lanes, at, secret + 8 * stripe);                                   \
        accumulate_##LEVEL(&lanes, input + length - STRIPE_BYTES, secret + AT_LAST_STRIPE_SECRET); \
        finish_##LEVEL(&lanes, result);                                                            \
        return merge_lanes(result, length, secret);                                                \
    }

/* Portable. */

struct lanes_scalar {
    uint64_t value[LANES];
};

static ALWAYS_INLINE void begin_scalar(struct lanes_scalar *lanes)
{
    memcpy(lanes->value, FIRST_LANES, sizeof lanes->value);
}

/* To each lane the product of the two halves of its keyed input, to its neighbour the input. */
static ALWAYS_INLINE void accumulate_scalar(struct lanes_scalar *lanes, const uint8_t *input,
                                            const uint8_t *secret)
{
    for (size_t lane = 0; lane < LANES; lane++) {
        uint64_t data = load_u64(input + 8 * lane);
        uint64_t keyed = data ^ load_u64(secret + 8 * lane);
        lanes->value[lane ^ 1] += data;
        lanes->value[lane] += (keyed & 0xFFFFFFFFu) * (keyed >> 32);
    }
}

static ALWAYS_INLINE void scramble_scalar(struct lanes_scalar *lanes, const uint8_t *secret)
{
    for (size_t lane = 0; lane < LANES; lane++) {
        uint64_t value = lanes->value[lane];
        value ^= value >> 47;
        value ^= load_u64(secret + AT_SCRAMBLE_SECRET + 8 * lane);
        lanes->value[lane] = value * P32_1;
    }
}

static ALWAYS_INLINE void finish_scalar(const struct lanes_scalar *lanes, uint64_t result[LANES])
{
    memcpy(result, lanes->value, sizeof lanes->value);
}

XXH3_DEFINE_LONG(scalar, , )

#if XXH3_HAS_X86

/*
 * With vectors the inputs are summed up apart, and the sums reach the neighbours in one go (join)
 * at the end of a block: that saves an instruction per register and stripe.
 *
 * Left alone, the compiler loads an input twice to save a register, but loads are what is scarce.
 */
#define KEEP_IN_REGISTER(vector) __asm__("" : "+x"(vector))
#define KEEP_IN_WIDE_REGISTER(vector) __asm__("" : "+v"(vector))

/* The order of 32-bit words in which neighbouring lanes have changed places. */
#define NEIGHBOURS _MM_SHUFFLE(1, 0, 3, 2)

/* SSE2: two lanes per register, four registers. */

struct lanes_sse2 {
    __m128i value[4], inputs[4];
};

static ALWAYS_INLINE __m128i load_sse2(const void *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

static ALWAYS_INLINE void begin_sse2(struct lanes_sse2 *lanes)
{
    for (size_t i = 0; i < 4; i++) {
        lanes->value[i] = load_sse2(FIRST_LANES + 2 * i);
        lanes->inputs[i] = _mm_setzero_si128();
    }
}

static ALWAYS_INLINE void accumulate_sse2(struct lanes_sse2 *lanes, const uint8_t *input,
                                          const uint8_t *secret)
{
    for (size_t i = 0; i < 4; i++) {
        __m128i data = load_sse2(input + 16 * i);
        KEEP_IN_REGISTER(data);
        __m128i keyed = _mm_xor_si128(data, load_sse2(secret + 16 * i));
        __m128i product = _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32));
        lanes->value[i] = _mm_add_epi64(lanes->value[i], product);
        lanes->inputs[i] = _mm_add_epi64(lanes->inputs[i], data);
    }
}

static ALWAYS_INLINE void join_sse2(struct lanes_sse2 *lanes)
{
    for (size_t i = 0; i < 4; i++) {
        __m128i swapped = _mm_shuffle_epi32(lanes->inputs[i], NEIGHBOURS);
        lanes->value[i] = _mm_add_epi64(lanes->value[i], swapped);
        lanes->inputs[i] = _mm_setzero_si128();
    }
}

static ALWAYS_INLINE void scramble_sse2(struct lanes_sse2 *lanes, const uint8_t *secret)
{
    const __m128i prime = _mm_set1_epi32((int)P32_1);
    join_sse2(lanes);
    for (size_t i = 0; i < 4; i++) {
        __m128i value = lanes->value[i];
        value = _mm_xor_si128(value, _mm_srli_epi64(value, 47));
        value = _mm_xor_si128(value, load_sse2(secret + AT_SCRAMBLE_SECRET + 16 * i));
        __m128i low = _mm_mul_epu32(value, prime);
        __m128i high = _mm_mul_epu32(_mm_srli_epi64(value, 32), prime);
        lanes->value[i] = _mm_add_epi64(low, _mm_slli_epi64(high, 32));
    }
}

static ALWAYS_INLINE void finish_sse2(struct lanes_sse2 *lanes, uint64_t result[LANES])
{
    join_sse2(lanes);
    for (size_t i = 0; i < 4; i++)
        _mm_storeu_si128((__m128i *)(void *)(result + 2 * i), lanes->value[i]);
}

XXH3_DEFINE_LONG(sse2, , )

/* AVX2: four lanes per register, two registers. */

#define WITH_AVX2 __attribute__((target("avx2")))

struct lanes_avx2 {
    __m256i value[2], inputs[2];
};

WITH_AVX2 static ALWAYS_INLINE __m256i load_avx2(const void *at)
{
    return _mm256_loadu_si256((const __m256i *)at);
}

WITH_AVX2 static ALWAYS_INLINE void begin_avx2(struct lanes_avx2 *lanes)
{
    for (size_t i = 0; i < 2; i++) {
        lanes->value[i] = load_avx2(FIRST_LANES + 4 * i);
        lanes->inputs[i] = _mm256_setzero_si256();
    }
}

WITH_AVX2 static ALWAYS_INLINE void accumulate_avx2(struct lanes_avx2 *lanes, const uint8_t *input,
                                                    const uint8_t *secret)
{
    for (size_t i = 0; i < 2; i++) {
        __m256i data = load_avx2(input + 32 * i);
        KEEP_IN_REGISTER(data);
        __m256i keyed = _mm256_xor_si256(data, load_avx2(secret + 32 * i));
        __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
        lanes->value[i] = _mm256_add_epi64(lanes->value[i], product);
        lanes->inputs[i] = _mm256_add_epi64(lanes->inputs[i], data);
    }
}

WITH_AVX2 static ALWAYS_INLINE void join_avx2(struct lanes_avx2 *lanes)
{
    for (size_t i = 0; i < 2; i++) {
        __m256i swapped = _mm256_shuffle_epi32(lanes->inputs[i], NEIGHBOURS);
        lanes->value[i] = _mm256_add_epi64(lanes->value[i], swapped);
        lanes->inputs[i] = _mm256_setzero_si256();
    }
}

WITH_AVX2 static ALWAYS_INLINE void scramble_avx2(struct lanes_avx2 *lanes, const uint8_t *secret)
{
    const __m256i prime = _mm256_set1_epi32((int)P32_1);
    join_avx2(lanes);
    for (size_t i = 0; i < 2; i++) {
        __m256i value = lanes->value[i];
        value = _mm256_xor_si256(value, _mm256_srli_epi64(value, 47));
        value = _mm256_xor_si256(value, load_avx2(secret + AT_SCRAMBLE_SECRET + 32 * i));
        __m256i low = _mm256_mul_epu32(value, prime);
        __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(value, 32), prime);
        lanes->value[i] = _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
    }
}

WITH_AVX2 static ALWAYS_INLINE void finish_avx2(struct lanes_avx2 *lanes, uint64_t result[LANES])
{
    join_avx2(lanes);
    for (size_t i = 0; i < 2; i++)
        _mm256_storeu_si256((__m256i *)(void *)(result + 4 * i), lanes->value[i]);
}

XXH3_DEFINE_LONG(avx2, WITH_AVX2, )

/* AVX-512: all lanes in one register. Unrolled, because all keys then stay in registers as well. */

#define WITH_AVX512 __attribute__((target("avx512f")))

struct lanes_avx512 {
    __m512i value, inputs;
};

WITH_AVX512 static ALWAYS_INLINE void begin_avx512(struct lanes_avx512 *lanes)
{
    lanes->value = _mm512_loadu_si512(FIRST_LANES);
    lanes->inputs = _mm512_setzero_si512();
}

WITH_AVX512 static ALWAYS_INLINE void accumulate_avx512(struct lanes_avx512 *lanes,
                                                        const uint8_t *input, const uint8_t *secret)
{
    __m512i data = _mm512_loadu_si512(input);
    KEEP_IN_WIDE_REGISTER(data);
    __m512i keyed = _mm512_xor_si512(data, _mm512_loadu_si512(secret));
    __m512i product = _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32));
    lanes->value = _mm512_add_epi64(lanes->value, product);
    lanes->inputs = _mm512_add_epi64(lanes->inputs, data);
}

WITH_AVX512 static ALWAYS_INLINE void join_avx512(struct lanes_avx512 *lanes)
{
    __m512i swapped = _mm512_shuffle_epi32(lanes->inputs, (_MM_PERM_ENUM)NEIGHBOURS);
    lanes->value = _mm512_add_epi64(lanes->value, swapped);
    lanes->inputs = _mm512_setzero_si512();
}

WITH_AVX512 static ALWAYS_INLINE void scramble_avx512(struct lanes_avx512 *lanes,
                                                      const uint8_t *secret)
{
    const __m512i prime = _mm512_set1_epi32((int)P32_1);
    join_avx512(lanes);
    __m512i value = lanes->value;
    value = _mm512_xor_si512(value, _mm512_srli_epi64(value, 47));
    value = _mm512_xor_si512(value, _mm512_loadu_si512(secret + AT_SCRAMBLE_SECRET));
    __m512i low = _mm512_mul_epu32(value, prime);
    __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(value, 32), prime);
    lanes->value = _mm512_add_epi64(low, _mm512_slli_epi64(high, 32));
}

WITH_AVX512 static ALWAYS_INLINE void finish_avx512(struct lanes_avx512 *lanes,
                                                    uint64_t result[LANES])
{
    join_avx512(lanes);
    _mm512_storeu_si512(result, lanes->value);
}

XXH3_DEFINE_LONG(avx512, WITH_AVX512, UNROLL_STRIPES)

#endif /* XXH3_HAS_X86 */

/* ---- levels ---------------------------------------------------------------------------- */

typedef uint64_t hash_long(const uint8_t *input, size_t length, const uint8_t *secret);

struct xxh3_level {
    const char *name;
    hash_long *function;
};

/* From the slowest to the fastest; a processor that lacks one lacks all that follow. */
static const struct xxh3_level XXH3_LEVELS[] = {
    {"scalar", xxh3_long_scalar},
#if XXH3_HAS_X86
    {"sse2", xxh3_long_sse2},
    {"avx2", xxh3_long_avx2},
    {"avx512", xxh3_long_avx512},
#endif
};

/* Count the levels that this processor can run. */
static size_t xxh3_levels_here(void)
{
#if XXH3_HAS_X86
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2"))
        return 2;
    if (!__builtin_cpu_supports("avx512f"))
        return 3;
#endif
    return sizeof XXH3_LEVELS / sizeof XXH3_LEVELS[0];
}

static hash_long *xxh3_long = xxh3_long_scalar;

static inline uint64_t xxh3(const uint8_t *input, size_t length)
{
    if (length > 240)
        return xxh3_long(input, length, SECRET);
    if (length > 128)
        return xxh3_to_240(input, length, 0);
    if (length > 16)
        return xxh3_to_128(input, length, 0);
    return xxh3_to_16(input, length, 0);
}

/* A seed, and the secret that follows from it for long inputs. */
struct xxh3_seed {
    uint64_t number;
    uint8_t secret[SECRET_BYTES];
};

static void xxh3_prepare(struct xxh3_seed *seed, uint64_t number)
{
    seed->number = number;
    for (size_t at = 0; at < SECRET_BYTES; at += 16) {
        store_u64(seed->secret + at, load_u64(SECRET + at) + number);
        store_u64(seed->secret + at + 8, load_u64(SECRET + at + 8) - number);
    }
}

static uint64_t xxh3_seeded(const uint8_t *input, size_t length, const struct xxh3_seed *seed)
{
    if (length > 240)
        return xxh3_long(input, length, seed->secret);
    if (length > 128)
        return xxh3_to_240(input, length, seed->number);
    if (length > 16)
        return xxh3_to_128(input, length, seed->number);
    return xxh3_to_16(input, length, seed->number);
}

#endif
