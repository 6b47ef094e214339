/*
 * How long requests took, in buckets that are at most 1/32 wide: small, fast, and can be added up.
 * This header knows no sockets.
 */
#ifndef LOAD_HISTOGRAM_H
#define LOAD_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

enum { SUB_BITS = 5, SUB_BUCKETS = 1 << SUB_BITS, BUCKETS = (65 - SUB_BITS) * SUB_BUCKETS };

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total, max_ns;
};

static inline unsigned bucket_of(uint64_t ns)
{
    if (ns < SUB_BUCKETS)
        return (unsigned)ns;
    unsigned shift = 63u - SUB_BITS - (unsigned)__builtin_clzll(ns);
    return shift * SUB_BUCKETS + (unsigned)(ns >> shift);
}

/* The upper end of a bucket. */
static inline uint64_t bucket_top(unsigned bucket)
{
    if (bucket < 2 * SUB_BUCKETS)
        return bucket;
    unsigned shift = bucket / SUB_BUCKETS - 1;
    uint64_t first = (uint64_t)(bucket % SUB_BUCKETS + SUB_BUCKETS);
    return ((first + 1) << shift) - 1;
}

static inline void note(struct histogram *histogram, uint64_t ns)
{
    histogram->counts[bucket_of(ns)]++;
    histogram->total++;
    if (ns > histogram->max_ns)
        histogram->max_ns = ns;
}

/* Print the buckets that hold something as [[upper end in ns, count], ...]. */
static void print_buckets(const struct histogram *histogram)
{
    const char *between = "";
    printf("[");
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        if (histogram->counts[bucket] == 0)
            continue;
        printf("%s[%llu,%llu]", between, (unsigned long long)bucket_top(bucket),
               (unsigned long long)histogram->counts[bucket]);
        between = ",";
    }
    printf("]");
}

#endif
