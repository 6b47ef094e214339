/*
 * A part of _batch.c, which includes it.
 *
 * What a poll returns: from stored records to batches, and from batches to records.
 *
 * This header knows no Python.
 */
#ifndef IGGY_BATCH_VSR_POLL_H
#define IGGY_BATCH_VSR_POLL_H

#include "_batch_vsr.h"

/* ---- from batches to records ------------------------------------------------------------- */

/* Batches from the front that can be read, and why the next one cannot. */
struct vsr_reading {
    const uint8_t *batches;
    size_t size;
    bool producers_allowed, verify;
    size_t count, consumed, records_bytes;
    size_t where; /* on failure: the byte to blame */
};

/* Check the frames of one batch; counts its messages and the bytes of their records. */
static enum vsr_fault inspect_batch(struct vsr_reading *reading, const struct batch_head *head)
{
    size_t at = reading->consumed + BATCH_HEAD_BYTES;
    size_t end = reading->consumed + (size_t)head->length, count = 0;
    uint64_t base_offset = head_u64(head, AT_BATCH_OFFSET);
    for (; at < end; count++) {
        const uint8_t *frame = reading->batches + at;
        struct extent extent;
        enum vsr_fault fault = inspect_frame(head, frame, end - at, &extent);
        reading->where = at;
        if (fault != VSR_GOOD)
            return fault;
        if (base_offset + load_u32(frame + AT_OFFSET_DELTA) < base_offset)
            return VSR_OVERFLOW;
        at += extent.size;
    }
    reading->where = reading->consumed;
    if (count != head->count)
        return VSR_COUNT;
    reading->count += count;
    reading->records_bytes += (size_t)head->length - BATCH_HEAD_BYTES + RECORD_SURPLUS * count;
    reading->consumed = end;
    return VSR_GOOD;
}

static enum vsr_fault inspect_batches(struct vsr_reading *reading)
{
    while (reading->consumed < reading->size) {
        struct batch_head head;
        reading->where = reading->consumed;
        enum vsr_fault fault =
            read_head(reading->batches + reading->consumed, reading->size - reading->consumed,
                      reading->producers_allowed, &head);
        if (fault == VSR_GOOD)
            fault = inspect_batch(reading, &head);
        if (fault != VSR_GOOD)
            return fault;
    }
    return VSR_GOOD;
}

/*
 * Write one record, all but its checksum. A frame whose own checksum is wrong gets a record whose
 * checksum is wrong in the same bits, so that the damage is found where records are verified.
 */
static inline struct unsealed convert_frame(uint8_t *record, const uint8_t *frame,
                                            const struct extent *extent,
                                            const struct batch_head *head, bool verify)
{
    const struct stamps stamps = {
        head_u64(head, AT_BATCH_OFFSET) + load_u32(frame + AT_OFFSET_DELTA),
        head_u64(head, AT_BATCH_TIMESTAMP),
        head_u64(head, AT_BATCH_ORIGIN) + load_u32(frame + AT_ORIGIN_DELTA),
    };
    struct unsealed written = {record, extent->size + RECORD_SURPLUS, 0};
    if (verify)
        written.difference = frame_checksum(frame, extent->size) ^ load_u64(frame);
    write_record(record, frame, extent, &stamps);
    return written;
}

/* Write the records of all batches that were inspected; false when the bytes changed since. */
static bool write_records(const struct vsr_reading *reading, uint8_t *target)
{
    size_t at = 0, written = 0;
    struct unsealed previous = {0};
    while (at < reading->consumed) {
        struct batch_head head;
        if (read_head(reading->batches + at, reading->consumed - at, true, &head) != VSR_GOOD)
            return false;
        size_t end = at + (size_t)head.length;
        for (at += BATCH_HEAD_BYTES; at < end;) {
            const uint8_t *frame = reading->batches + at;
            struct extent extent;
            if (!measure_frame(frame, end - at, &extent) ||
                extent.size + RECORD_SURPLUS > reading->records_bytes - written)
                return false;
            struct unsealed record =
                convert_frame(target + written, frame, &extent, &head, reading->verify);
            if (previous.at != NULL)
                seal_previous(&previous);
            previous = record;
            written += record.size;
            at += extent.size;
        }
    }
    if (previous.at != NULL)
        seal_previous(&previous);
    return written == reading->records_bytes;
}

/* ---- from records to batches ------------------------------------------------------------- */

/* Records that one batch can hold: of one timestamp, with deltas of 32 bits. */
struct batch_run {
    size_t count, records_bytes;
    uint64_t base_offset, timestamp, first_origin, last_origin; /* by time, not by place */
};

/* Add a record to a run; false, and nothing is added, when it needs another batch. */
static inline bool extend_run(struct batch_run *run, const uint8_t *record, size_t size)
{
    uint64_t offset = load_u64(record + AT_OFFSET), timestamp = load_u64(record + AT_TIMESTAMP);
    uint64_t origin = load_u64(record + AT_ORIGIN_TIMESTAMP);
    if (run->count == 0) {
        *run = (struct batch_run){1, size, offset, timestamp, origin, origin};
        return true;
    }
    uint64_t first = origin < run->first_origin ? origin : run->first_origin;
    uint64_t last = origin > run->last_origin ? origin : run->last_origin;
    uint64_t delta = offset - run->base_offset; /* of a smaller offset it is huge */
    if (timestamp != run->timestamp || last - first > UINT32_MAX || delta > UINT32_MAX)
        return false;
    run->first_origin = first;
    run->last_origin = last;
    run->count++;
    run->records_bytes += size;
    return true;
}

static inline size_t run_batch_bytes(const struct batch_run *run)
{
    return BATCH_HEAD_BYTES + run->records_bytes - RECORD_SURPLUS * run->count;
}

struct vsr_writing {
    const uint8_t *records;
    size_t size, bytes_max;
    uint64_t partition_id;
    bool verify;
    size_t count, consumed, batches_bytes; /* of the records that go into the batches */
    bool is_cut;                           /* the next record does not end before `size` */
};

/* Find how many records fit, and how many bytes their batches have. */
static void plan_batches(struct vsr_writing *writing)
{
    struct batch_run run = {0};
    struct extent extent;
    size_t left = writing->size;
    const uint8_t *at = writing->records;
    writing->count = writing->batches_bytes = 0;
    for (; measure_message(at, left, &extent); writing->count++) {
        struct batch_run longer = run;
        size_t more = extent.size - RECORD_SURPLUS;
        if (run.count == 0 || !extend_run(&longer, at, extent.size)) {
            longer = (struct batch_run){0};
            extend_run(&longer, at, extent.size);
            more += BATCH_HEAD_BYTES;
        }
        if (more > writing->bytes_max - writing->batches_bytes)
            break;
        run = longer;
        writing->batches_bytes += more;
        at += extent.size;
        left -= extent.size;
    }
    writing->consumed = writing->size - left;
    writing->is_cut = left > 0 && !measure_message(at, left, &extent);
}

/* Find the run at `at`, of `count` records at the most. */
static struct batch_run find_run(const uint8_t *at, size_t left, size_t count)
{
    struct batch_run run = {0};
    struct extent extent;
    while (run.count < count && measure_message(at, left, &extent) &&
           extend_run(&run, at, extent.size)) {
        at += extent.size;
        left -= extent.size;
    }
    return run;
}

enum batches_result { BATCHES_WRITTEN, RECORD_DAMAGED, RECORDS_CHANGED };

static inline void write_frame(uint8_t *frame, const uint8_t *record, const struct extent *extent,
                               const struct batch_run *run)
{
    memcpy(frame + AT_ID, record + AT_ID, ID_BYTES);
    write_frame_fields(frame, (uint32_t)(load_u64(record + AT_OFFSET) - run->base_offset),
                       (uint32_t)(load_u64(record + AT_ORIGIN_TIMESTAMP) - run->first_origin),
                       (uint32_t)extent->headers, (uint32_t)extent->payload);
    memcpy(frame + FRAME_BYTES, record + HEADER_BYTES, extent->payload + extent->headers);
}

static void write_batch_head(uint8_t *head, uint64_t partition_id, const struct batch_run *run)
{
    memset(head, 0, BATCH_HEAD_BYTES);
    store_u64(head, partition_id);
    store_u64(head + AT_BATCH_OFFSET, run->base_offset);
    store_u64(head + AT_BATCH_TIMESTAMP, run->timestamp);
    store_u64(head + AT_BATCH_ORIGIN, run->first_origin);
    store_u64(head + AT_BATCH_LENGTH, run_batch_bytes(run));
    store_u32(head + AT_BATCH_COUNT, (uint32_t)run->count);
}

/* Write the batch of one run from byte `*at` of the records on, and step over them. */
static enum batches_result write_batch(const struct vsr_writing *writing, size_t *at, uint8_t *head,
                                       const struct batch_run *run, struct sealed sealed)
{
    size_t end = *at + run->records_bytes;
    size_t room = run_batch_bytes(run) - BATCH_HEAD_BYTES;
    uint8_t *frame = head + BATCH_HEAD_BYTES;
    struct unsealed previous = {0};
    write_batch_head(head, writing->partition_id, run);
    seal_head(&sealed, head);
    for (size_t i = 0; i < run->count; i++) {
        const uint8_t *record = writing->records + *at;
        struct extent extent;
        if (!measure_message(record, end - *at, &extent) || extent.size - RECORD_SURPLUS > room)
            return RECORDS_CHANGED;
        if (writing->verify && xxh3(record + CHECKSUM_BYTES, extent.size - CHECKSUM_BYTES) !=
                                   load_u64(record))
            return RECORD_DAMAGED;
        write_frame(frame, record, &extent, run);
        if (previous.at != NULL)
            seal_frame(&sealed, seal_previous(&previous));
        previous = (struct unsealed){frame, extent.size - RECORD_SURPLUS, 0};
        frame += previous.size;
        room -= previous.size;
        *at += extent.size;
    }
    seal_frame(&sealed, seal_previous(&previous));
    store_u64(head + AT_BATCH_CHECKSUM, sealed_checksum(&sealed));
    return *at == end ? BATCHES_WRITTEN : RECORDS_CHANGED;
}

/* Write the batches that were planned; `*at` is then the end of the last good record. */
static enum batches_result write_batches(const struct vsr_writing *writing, uint8_t *target,
                                         struct sealed sealed, size_t *at)
{
    size_t count = 0, written = 0;
    *at = 0;
    while (count < writing->count) {
        struct batch_run run = find_run(writing->records + *at, writing->consumed - *at,
                                        writing->count - count);
        if (run.count == 0 || run_batch_bytes(&run) > writing->batches_bytes - written)
            return RECORDS_CHANGED;
        enum batches_result result = write_batch(writing, at, target + written, &run, sealed);
        if (result != BATCHES_WRITTEN)
            return result;
        count += run.count;
        written += run_batch_bytes(&run);
    }
    return written == writing->batches_bytes ? BATCHES_WRITTEN : RECORDS_CHANGED;
}

#endif
