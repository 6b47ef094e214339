/*
 * A part of _batch.c, which includes it.
 *
 * Runs of small SendMessages frames that say the same but for their messages.
 *
 *   u32 length | u32 code | u32 M | M bytes of metadata | index entries | messages
 *
 * A client that sends single messages without waiting fills a receive buffer with hundreds of such
 * frames. Their messages are moved together, over the heads between them, so that the server can
 * store them as one batch; each frame is checked as if it had come alone.
 *
 * Knows the classic framing. This header knows no Python.
 */
#ifndef IGGY_BATCH_GATHER_H
#define IGGY_BATCH_GATHER_H

#include "_batch_inspect.h"

enum {
    FRAME_HEAD_BYTES = 8,
    SEND_MESSAGES_CODE = 101,
    GATHERED_FRAME_BYTES_MAX = 1 << 14, /* moving a larger one costs more than it saves */
};

struct run {
    size_t frames, consumed, count, missing_ids, message_bytes;
};

/* Tell whether a body begins with these metadata, up to the count of messages. */
static bool has_metadata(const uint8_t *body, size_t size, const uint8_t *metadata, size_t bytes)
{
    if (size < 4 + bytes + 4 || load_u32_once(body) != bytes + 4)
        return false;
    return memcmp(body + 4, metadata, bytes) == 0;
}

/* Measure the frame at `at` if it is a complete, small SendMessages; 0 if it is not. */
static size_t measure_send(const uint8_t *at, size_t left)
{
    if (left < FRAME_HEAD_BYTES || load_u32(at + 4) != SEND_MESSAGES_CODE)
        return 0;
    uint32_t length = load_u32_once(at); /* counts the code and the body */
    size_t size = (size_t)length + 4;
    if (length < 4 || size > left || size > GATHERED_FRAME_BYTES_MAX)
        return 0;
    return size;
}

/* Take frames from `at` on as long as they continue the run; their messages end up at `at`. */
static void gather_run(uint8_t *at, size_t size, const uint8_t *metadata, size_t metadata_bytes,
                       size_t frames_max, struct run *run)
{
    while (run->frames < frames_max) {
        uint8_t *frame = at + run->consumed;
        size_t frame_bytes = measure_send(frame, size - run->consumed);
        if (frame_bytes == 0)
            return;
        const uint8_t *body = frame + FRAME_HEAD_BYTES;
        size_t body_bytes = frame_bytes - FRAME_HEAD_BYTES;
        struct shape shape = {0};
        if (!has_metadata(body, body_bytes, metadata, metadata_bytes) ||
            inspect_body(body, body_bytes, &shape) != GOOD)
            return;
        size_t message_bytes = body_bytes - shape.messages_at;
        memmove(at + run->message_bytes, body + shape.messages_at, message_bytes);
        run->message_bytes += message_bytes;
        run->count += shape.count;
        run->missing_ids += shape.missing_ids;
        run->consumed += frame_bytes;
        run->frames++;
    }
}

#endif
