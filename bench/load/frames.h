/*
 * Requests of the classic wire, as bytes: u32 length, u32 code, payload; little-endian throughout.
 * This header knows no sockets.
 */
#ifndef LOAD_FRAMES_H
#define LOAD_FRAMES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_batch_layout.h"

enum {
    CODE_PING = 1,
    CODE_LOGIN = 38,
    CODE_POLL = 100,
    CODE_SEND = 101,

    HEAD_BYTES = 8,
    POLLED_HEAD_BYTES = 16,
    AT_POLLED_COUNT = 12,
    NAME_BYTES_MAX = 255,
    SMALL_FRAME_BYTES = 1024,

    KIND_TEXT = 2,
    KIND_PARTITION_ID = 2,
    KIND_SINGLE_CONSUMER = 1,
    KIND_NUMBER = 1,
    KIND_OFFSET = 1,
};

/* Bytes that grow at the end; the caller has made room for them. */
struct writer {
    uint8_t *start, *at;
};

static inline void put_u8(struct writer *writer, uint8_t value)
{
    *writer->at++ = value;
}

static inline void put_u32(struct writer *writer, uint32_t value)
{
    memcpy(writer->at, &value, sizeof value);
    writer->at += sizeof value;
}

static inline void put_u64(struct writer *writer, uint64_t value)
{
    memcpy(writer->at, &value, sizeof value);
    writer->at += sizeof value;
}

static void put_text(struct writer *writer, const char *text)
{
    size_t length = strnlen(text, NAME_BYTES_MAX);
    put_u8(writer, (uint8_t)length);
    memcpy(writer->at, text, length);
    writer->at += length;
}

static void put_name(struct writer *writer, const char *name)
{
    put_u8(writer, KIND_TEXT);
    put_text(writer, name);
}

static struct writer begin_frame(uint8_t *space, uint32_t code)
{
    struct writer writer = {space, space};
    put_u32(&writer, 0);
    put_u32(&writer, code);
    return writer;
}

/* Write the length in front; return the size of the frame. */
static size_t end_frame(struct writer *writer)
{
    size_t size = (size_t)(writer->at - writer->start);
    uint32_t length = (uint32_t)(size - 4);
    memcpy(writer->start, &length, sizeof length);
    return size;
}

static size_t write_ping(uint8_t *space)
{
    struct writer writer = begin_frame(space, CODE_PING);
    return end_frame(&writer);
}

static size_t write_login(uint8_t *space, const char *username, const char *password)
{
    struct writer writer = begin_frame(space, CODE_LOGIN);
    put_text(&writer, username);
    put_text(&writer, password);
    put_u32(&writer, 0); /* no version */
    put_u32(&writer, 0); /* no context */
    return end_frame(&writer);
}

/* Where to send to, and how much at once. */
struct batch {
    const char *stream, *topic;
    uint32_t partition, messages;
    size_t payload_bytes;
};

static size_t send_frame_bytes_max(const struct batch *batch)
{
    size_t message = HEADER_BYTES + batch->payload_bytes + INDEX_BYTES;
    return SMALL_FRAME_BYTES + (size_t)batch->messages * message;
}

static void put_destination(struct writer *writer, const struct batch *batch)
{
    put_name(writer, batch->stream);
    put_name(writer, batch->topic);
    put_u8(writer, KIND_PARTITION_ID);
    put_u8(writer, 4);
    put_u32(writer, batch->partition);
    put_u32(writer, batch->messages);
}

/* Write a batch as official clients do: without ids, so that the server has to make them. */
static size_t write_send(uint8_t *space, const struct batch *batch)
{
    struct writer writer = begin_frame(space, CODE_SEND);
    uint8_t *metadata = writer.at;
    put_u32(&writer, 0);
    put_destination(&writer, batch);
    uint32_t metadata_bytes = (uint32_t)(writer.at - metadata - 4);
    memcpy(metadata, &metadata_bytes, sizeof metadata_bytes);
    size_t size = HEADER_BYTES + batch->payload_bytes;
    for (uint32_t i = 0; i < batch->messages; i++) {
        put_u32(&writer, 0);
        put_u32(&writer, (uint32_t)((i + 1) * size));
        put_u64(&writer, 0);
    }
    for (uint32_t i = 0; i < batch->messages; i++) {
        uint32_t payload_bytes = (uint32_t)batch->payload_bytes;
        memset(writer.at, 0, HEADER_BYTES);
        memcpy(writer.at + AT_PAYLOAD_LENGTH, &payload_bytes, sizeof payload_bytes);
        memset(writer.at + HEADER_BYTES, (int)('a' + i % 26), batch->payload_bytes);
        writer.at += size;
    }
    return end_frame(&writer);
}

static void put_poll(struct writer *writer, const struct batch *batch, uint64_t offset)
{
    put_u8(writer, KIND_SINGLE_CONSUMER);
    put_u8(writer, KIND_NUMBER);
    put_u8(writer, 4);
    put_u32(writer, 1);
    put_name(writer, batch->stream);
    put_name(writer, batch->topic);
    put_u8(writer, 1);
    put_u32(writer, batch->partition);
    put_u8(writer, KIND_OFFSET);
    put_u64(writer, offset);
    put_u32(writer, batch->messages);
    put_u8(writer, 0); /* commit nothing */
}

static size_t write_poll(uint8_t *space, const struct batch *batch, uint64_t offset)
{
    struct writer writer = begin_frame(space, CODE_POLL);
    put_poll(&writer, batch, offset);
    return end_frame(&writer);
}

#endif
