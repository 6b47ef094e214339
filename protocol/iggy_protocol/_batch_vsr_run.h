/*
 * A part of _batch.c, which includes it.
 *
 * Runs of small sends of 0.9 and later that say the same but for their messages, and the replies to
 * them.
 *
 *   head, 256 bytes | u32 M | M bytes of metadata | head of the batch, 256 bytes | frames
 *
 * As in a run of classic sends the messages are moved together where they were received, and here
 * they become classic records on the way. A record is 16 bytes longer than its frame, and the heads
 * before a frame are longer than that, so there is room for it. A batch of so many small messages
 * that there is not ends the run, and so does everything that is unusual in any way: the server
 * takes it alone, and finds out what it is.
 *
 * The head of a frame must be that of the request before the run, but for its size, its number, and
 * the two checksums that nobody verifies. Numbers rise, so a run repeats no request of its own.
 *
 * This header knows no Python. It runs with the interpreter lock, so nobody changes the bytes.
 */
#ifndef IGGY_BATCH_VSR_RUN_H
#define IGGY_BATCH_VSR_RUN_H

#include "_batch_gather.h"
#include "_batch_vsr_send.h"

enum {
    VSR_HEAD_BYTES = 256,
    AT_VSR_CLUSTER = 32,
    AT_VSR_SIZE = 48,
    AT_VSR_VIEW = 52,
    AT_VSR_IDENTIFIER = 144,
    AT_VSR_TIMESTAMP = 160,
    AT_VSR_NUMBER = 168,
    AT_VSR_OPERATION = 176,

    /* In a reply: the number in its head; behind the head u32 count, three u32 ids, u64 offset. */
    AT_REPLY_NUMBER = 200,
    AT_REPLY_OFFSET = VSR_HEAD_BYTES + 16,
    CONFIRMATION_BYTES = AT_REPLY_OFFSET + 8,

    /* A frame in a run holds less than 2^14 bytes, so less than so many messages. */
    RUN_FRAMES_MAX = GATHERED_FRAME_BYTES_MAX / FRAME_BYTES,
    SMALLEST_SEND_BYTES = VSR_HEAD_BYTES + 4 + BATCH_HEAD_BYTES + FRAME_BYTES,
};

struct vsr_run {
    const uint8_t *head; /* of the request before the run */
    const uint8_t *metadata;
    size_t metadata_bytes, frames_max;
    uint8_t *numbers, *counts; /* 8 and 4 bytes for each frame */
    uint64_t number;           /* of the last frame */
    struct run taken;
};

/* Tell whether the head at `at` is that of the run, but for what differs in each frame. */
static bool has_head(const uint8_t *at, const uint8_t *head)
{
    return memcmp(at + AT_VSR_CLUSTER, head + AT_VSR_CLUSTER, AT_VSR_SIZE - AT_VSR_CLUSTER) == 0 &&
           memcmp(at + AT_VSR_VIEW, head + AT_VSR_VIEW, AT_VSR_IDENTIFIER - AT_VSR_VIEW) == 0 &&
           is_zero(at + AT_VSR_IDENTIFIER, AT_VSR_TIMESTAMP - AT_VSR_IDENTIFIER) &&
           memcmp(at + AT_VSR_TIMESTAMP, head + AT_VSR_TIMESTAMP, 8) == 0 &&
           memcmp(at + AT_VSR_OPERATION, head + AT_VSR_OPERATION,
                  VSR_HEAD_BYTES - AT_VSR_OPERATION) == 0;
}

/* Measure the frame at `at` if it is a complete, small send that continues the run; else 0. */
static size_t measure_vsr_send(const struct vsr_run *run, const uint8_t *at, size_t left)
{
    if (left < SMALLEST_SEND_BYTES)
        return 0;
    size_t size = load_u32(at + AT_VSR_SIZE);
    bool is_small = size >= SMALLEST_SEND_BYTES && size <= GATHERED_FRAME_BYTES_MAX;
    if (!is_small || size > left || load_u64(at + AT_VSR_NUMBER) <= run->number)
        return 0;
    bool is_same = has_head(at, run->head) && has_metadata(at + VSR_HEAD_BYTES,
                                                           size - VSR_HEAD_BYTES, run->metadata,
                                                           run->metadata_bytes);
    return is_same ? size : 0;
}

/* Check all checksums of a body that was inspected. */
static bool is_intact(const struct vsr_send *send)
{
    uint8_t space[SEALED_HEAD_BYTES + 8 * RUN_FRAMES_MAX];
    struct sealed sealed = {space, 0};
    const uint8_t *frame = send->body + send->metadata_end + BATCH_HEAD_BYTES;
    size_t left = (size_t)send->head.length - BATCH_HEAD_BYTES;
    seal_head(&sealed, send->head.bytes);
    for (struct extent extent; measure_frame(frame, left, &extent); left -= extent.size) {
        uint64_t checksum = frame_checksum(frame, extent.size);
        if (checksum != load_u64(frame))
            return false;
        seal_frame(&sealed, checksum);
        frame += extent.size;
    }
    return sealed_checksum(&sealed) == head_u64(&send->head, AT_BATCH_CHECKSUM);
}

/* Write the record of a frame that it may overlap, and that begins 16 bytes behind it or later. */
static void move_record(uint8_t *record, const uint8_t *frame, const struct extent *extent,
                        uint64_t batch_origin)
{
    uint64_t id_low = load_u64(frame + AT_ID), id_high = load_u64(frame + AT_ID + 8);
    uint64_t origin = batch_origin + load_u32(frame + AT_ORIGIN_DELTA);
    memmove(record + HEADER_BYTES, frame + FRAME_BYTES, extent->payload + extent->headers);
    store_u64(record, 0);
    store_u64(record + AT_ID, id_low);
    store_u64(record + AT_ID + 8, id_high);
    store_u64(record + AT_OFFSET, 0);
    store_u64(record + AT_TIMESTAMP, 0);
    store_u64(record + AT_ORIGIN_TIMESTAMP, origin);
    store_u32(record + AT_HEADERS_LENGTH, (uint32_t)extent->headers);
    store_u32(record + AT_PAYLOAD_LENGTH, (uint32_t)extent->payload);
    store_u64(record + AT_PAYLOAD_LENGTH + 4, 0);
}

/* Move the messages of a send to `target`, which is before them; returns how many have no id. */
static size_t move_records(uint8_t *target, const struct vsr_send *send)
{
    const uint8_t *frame = send->body + send->metadata_end + BATCH_HEAD_BYTES;
    size_t left = (size_t)send->head.length - BATCH_HEAD_BYTES, missing_ids = 0;
    uint64_t origin = head_u64(&send->head, AT_BATCH_ORIGIN);
    for (struct extent extent; measure_frame(frame, left, &extent); left -= extent.size) {
        const uint8_t *next = frame + extent.size;
        move_record(target, frame, &extent, origin);
        missing_ids += is_id_missing(target);
        target += extent.size + RECORD_SURPLUS;
        frame = next;
    }
    return missing_ids;
}

/* Add the body of a frame to the run; false, and nothing is changed, if it must be taken alone. */
static bool take_vsr_send(struct vsr_run *run, uint8_t *start, const uint8_t *body, size_t size)
{
    struct vsr_send send = {.body = body, .size = size, .producers_allowed = false};
    if (inspect_vsr_send(&send) != VSR_GOOD || !is_intact(&send))
        return false;
    uint8_t *target = start + run->taken.message_bytes;
    size_t room = (size_t)(body + send.metadata_end + BATCH_HEAD_BYTES - target);
    if (room < RECORD_SURPLUS * (size_t)send.head.count)
        return false;
    run->taken.missing_ids += move_records(target, &send);
    run->taken.message_bytes += send.messages_bytes;
    run->taken.count += send.head.count;
    store_u32(run->counts + 4 * run->taken.frames, send.head.count);
    return true;
}

/* Take frames from `at` on as long as they continue the run; their records end up at `at`. */
static void gather_vsr_run(uint8_t *at, size_t size, struct vsr_run *run)
{
    while (run->taken.frames < run->frames_max) {
        const uint8_t *frame = at + run->taken.consumed;
        size_t frame_bytes = measure_vsr_send(run, frame, size - run->taken.consumed);
        if (frame_bytes == 0)
            return;
        uint64_t number = load_u64(frame + AT_VSR_NUMBER); /* the records may cover it */
        if (!take_vsr_send(run, at, frame + VSR_HEAD_BYTES, frame_bytes - VSR_HEAD_BYTES))
            return;
        run->number = number;
        store_u64(run->numbers + 8 * run->taken.frames, number);
        run->taken.consumed += frame_bytes;
        run->taken.frames++;
    }
}

/* Write the replies to a run: each is the first one, with its own number and offset. */
static void write_confirmations(uint8_t *at, const uint8_t *first, const uint8_t *numbers,
                                const uint8_t *counts, size_t frames)
{
    uint64_t offset = load_u64(first + AT_REPLY_OFFSET);
    for (size_t i = 0; i < frames; i++, at += CONFIRMATION_BYTES) {
        memcpy(at, first, CONFIRMATION_BYTES);
        store_u64(at + AT_REPLY_NUMBER, load_u64(numbers + 8 * i));
        store_u64(at + AT_REPLY_OFFSET, offset);
        offset += load_u32(counts + 4 * i);
    }
}

#endif
