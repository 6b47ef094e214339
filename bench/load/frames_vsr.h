/*
 * Requests of the wires from 0.9 on, as bytes: a head of 256 bytes and a payload; little-endian.
 * This header knows no sockets.
 */
#ifndef LOAD_FRAMES_VSR_H
#define LOAD_FRAMES_VSR_H

#include "_xxh3.h"
#include "frames.h"

enum {
    VSR_HEAD_BYTES = 256,
    AT_SIZE = 48,
    AT_COMMAND = 60,
    AT_CLIENT = 128,
    AT_IDENTIFIER = 144,
    AT_NUMBER = 168,
    AT_OPERATION = 176,
    AT_SESSION = 184,
    AT_CODE = 196,
    AT_INCARNATION = 200,
    AT_STATUS = 216,
    CLIENT_BYTES = 16,
    SECRET_BYTES_OF_SESSION = 32,

    COMMAND_REQUEST = 5,
    COMMAND_REPLY = 8,
    OPERATION_REGISTER = 1,
    OPERATION_CODE = 2, /* the code in the head says what is asked */
    OPERATION_SEND = 160,
    CODE_ROUTE = 105,

    BATCH_HEAD_BYTES = 256,
    AT_BATCH_LENGTH = 32,
    AT_BATCH_CHECKSUM = 40,
    AT_BATCH_COUNT = 48,
    FRAME_HEAD_BYTES = 48,
    AT_FRAME_ID = 8,
    AT_FRAME_DELTA = 24,
    AT_FRAME_PAYLOAD_LENGTH = 36,

    REGISTERED_SESSION_AT = 8, /* behind the count of errors and the user */
};

/* One generation of the wire, and what a connection that speaks it has been told. */
struct dialect {
    const char *name;
    uint32_t version;  /* as announced; 0 is the classic wire */
    bool has_sessions; /* which outlive connections, and partitions with incarnations */
};

struct session {
    uint8_t client[CLIENT_BYTES];
    uint64_t number, incarnation;
};

static const struct dialect DIALECTS[] = {
    {"classic", 0, false},
    {"0.11", 11u << 10, false},
    {"0.12.0", 12u << 10, true},
    {"0.12.2", 12u << 10 | 2, true},
};

static struct writer begin_vsr(uint8_t *space, const struct session *session, uint8_t operation,
                               uint32_t code)
{
    memset(space, 0, VSR_HEAD_BYTES);
    space[AT_COMMAND] = COMMAND_REQUEST;
    space[AT_OPERATION] = operation;
    memcpy(space + AT_CLIENT, session->client, CLIENT_BYTES);
    memcpy(space + AT_SESSION, &session->number, sizeof session->number);
    memcpy(space + AT_CODE, &code, sizeof code);
    return (struct writer){space, space + VSR_HEAD_BYTES};
}

static size_t end_vsr(struct writer *writer)
{
    uint32_t size = (uint32_t)(writer->at - writer->start);
    memcpy(writer->start + AT_SIZE, &size, sizeof size);
    return size;
}

static size_t write_vsr_ping(uint8_t *space, const struct session *session)
{
    struct writer writer = begin_vsr(space, session, OPERATION_CODE, CODE_PING);
    return end_vsr(&writer);
}

static size_t write_register(uint8_t *space, const struct session *session,
                             const struct dialect *dialect, const char *username,
                             const char *password)
{
    struct writer writer = begin_vsr(space, session, OPERATION_REGISTER, 0);
    put_u32(&writer, dialect->version);
    put_text(&writer, "load");
    put_text(&writer, "0.11.0");
    if (dialect->has_sessions) {
        memcpy(space + AT_IDENTIFIER, session->client, CLIENT_BYTES);
        memset(writer.at, 1, SECRET_BYTES_OF_SESSION);
        writer.at += SECRET_BYTES_OF_SESSION;
    }
    put_text(&writer, username);
    put_text(&writer, password);
    put_u32(&writer, 0); /* no context */
    return end_vsr(&writer);
}

static size_t write_route(uint8_t *space, const struct session *session, const struct batch *batch)
{
    struct writer writer = begin_vsr(space, session, OPERATION_CODE, CODE_ROUTE);
    put_name(&writer, batch->stream);
    put_name(&writer, batch->topic);
    put_u32(&writer, batch->partition);
    return end_vsr(&writer);
}

static void put_vsr_messages(struct writer *writer, const struct batch *batch)
{
    size_t size = FRAME_HEAD_BYTES + batch->payload_bytes;
    uint32_t payload_bytes = (uint32_t)batch->payload_bytes;
    for (uint32_t i = 0; i < batch->messages; i++) {
        uint8_t *frame = writer->at;
        uint32_t id = i + 1;
        memset(frame, 0, FRAME_HEAD_BYTES);
        memcpy(frame + AT_FRAME_ID, &id, sizeof id);
        memcpy(frame + AT_FRAME_DELTA, &i, sizeof i);
        memcpy(frame + AT_FRAME_PAYLOAD_LENGTH, &payload_bytes, sizeof payload_bytes);
        memset(frame + FRAME_HEAD_BYTES, (int)('a' + i % 26), batch->payload_bytes);
        uint64_t checksum = xxh3(frame + AT_FRAME_ID, size - AT_FRAME_ID);
        memcpy(frame, &checksum, sizeof checksum);
        writer->at += size;
    }
}

/* The checksum of a batch covers its first numbers and the checksums of its messages. */
static uint64_t batch_checksum(const uint8_t *batch, uint32_t count, size_t frame_bytes)
{
    size_t size = AT_BATCH_CHECKSUM + sizeof count + count * sizeof(uint64_t);
    uint8_t *covered = malloc(size), *at = covered;
    if (covered == NULL)
        abort();
    memcpy(at, batch, AT_BATCH_CHECKSUM);
    at += AT_BATCH_CHECKSUM;
    memcpy(at, &count, sizeof count);
    at += sizeof count;
    for (uint32_t i = 0; i < count; i++, at += sizeof(uint64_t))
        memcpy(at, batch + BATCH_HEAD_BYTES + i * frame_bytes, sizeof(uint64_t));
    uint64_t checksum = xxh3(covered, size);
    free(covered);
    return checksum;
}

static size_t write_vsr_send(uint8_t *space, const struct session *session,
                             const struct batch *batch)
{
    struct writer writer = begin_vsr(space, session, OPERATION_SEND, 0);
    memcpy(space + AT_INCARNATION, &session->incarnation, sizeof session->incarnation);
    uint8_t *metadata = writer.at;
    put_u32(&writer, 0);
    put_destination(&writer, batch);
    uint32_t metadata_bytes = (uint32_t)(writer.at - metadata - 4);
    memcpy(metadata, &metadata_bytes, sizeof metadata_bytes);
    uint8_t *head = writer.at;
    memset(head, 0, BATCH_HEAD_BYTES);
    writer.at += BATCH_HEAD_BYTES;
    put_vsr_messages(&writer, batch);
    uint64_t length = (uint64_t)(writer.at - head);
    memcpy(head + AT_BATCH_LENGTH, &length, sizeof length);
    memcpy(head + AT_BATCH_COUNT, &batch->messages, sizeof batch->messages);
    uint64_t checksum =
        batch_checksum(head, batch->messages, FRAME_HEAD_BYTES + batch->payload_bytes);
    memcpy(head + AT_BATCH_CHECKSUM, &checksum, sizeof checksum);
    return end_vsr(&writer);
}

static size_t write_vsr_poll(uint8_t *space, const struct session *session,
                             const struct batch *batch, uint64_t offset)
{
    struct writer writer = begin_vsr(space, session, OPERATION_CODE, CODE_POLL);
    memcpy(space + AT_INCARNATION, &session->incarnation, sizeof session->incarnation);
    put_poll(&writer, batch, offset);
    return end_vsr(&writer);
}

#endif
