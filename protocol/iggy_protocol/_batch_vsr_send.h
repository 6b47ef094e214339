/*
 * A part of _batch.c, which includes it.
 *
 * From the body of a SendMessages request of 0.9 to a classic one, which the server appends.
 *
 *   u32 M | M bytes of metadata | one batch   -->   u32 M | metadata | index entries | records
 *
 * Problems are found in the order in which a server reports them: structure, sizes, checksums.
 * This header knows no Python.
 */
#ifndef IGGY_BATCH_VSR_SEND_H
#define IGGY_BATCH_VSR_SEND_H

#include "_batch_inspect.h"
#include "_batch_vsr.h"

/* A larger body might not fit into the 32 bits of the positions in a classic index. */
static const size_t VSR_SEND_BYTES_MAX = (size_t)1 << 30;

struct vsr_send {
    const uint8_t *body;
    size_t size;
    bool producers_allowed;
    size_t where; /* on failure: the message, or the byte, to blame */
    size_t metadata_end;
    size_t messages_bytes; /* of the records */
    struct batch_head head;
};

static enum vsr_fault inspect_frames(struct vsr_send *send, size_t announced)
{
    const struct batch_head *head = &send->head;
    const uint8_t *at = send->body + send->metadata_end + BATCH_HEAD_BYTES;
    size_t left = (size_t)head->length - BATCH_HEAD_BYTES, count = 0, oversized_at = 0;
    enum vsr_fault oversized = VSR_GOOD;
    for (; left > 0; count++) {
        struct extent extent;
        enum vsr_fault fault = inspect_frame(head, at, left, &extent);
        if (fault == VSR_GOOD && load_u32(at + AT_OFFSET_DELTA) != count)
            fault = VSR_DELTA;
        send->where = count;
        if (fault != VSR_GOOD)
            return fault;
        bool is_payload = extent.payload > PAYLOAD_BYTES_MAX;
        if (oversized == VSR_GOOD && (is_payload || extent.headers > USER_HEADERS_BYTES_MAX)) {
            oversized = is_payload ? VSR_PAYLOAD_TOO_LARGE : VSR_HEADERS_TOO_LARGE;
            oversized_at = count;
        }
        at += extent.size;
        left -= extent.size;
    }
    send->where = send->metadata_end;
    if (count != head->count || count != announced)
        return VSR_COUNT;
    if (count == 0)
        return VSR_NO_MESSAGES;
    send->where = oversized_at;
    send->messages_bytes = (size_t)head->length - BATCH_HEAD_BYTES + RECORD_SURPLUS * count;
    return oversized;
}

/* Check all of a body but its checksums, and learn what its classic form needs. */
static enum vsr_fault inspect_vsr_send(struct vsr_send *send)
{
    struct shape shape = {0};
    if (send->size > VSR_SEND_BYTES_MAX)
        return VSR_TOO_LARGE;
    enum status status = read_metadata(send->body, send->size, &shape);
    send->where = shape.where;
    if (status != GOOD || shape.indexes_at != shape.where + 4)
        return VSR_METADATA;
    send->where = send->metadata_end = shape.indexes_at;
    const uint8_t *batch = send->body + send->metadata_end;
    size_t left = send->size - send->metadata_end;
    enum vsr_fault fault = read_head(batch, left, send->producers_allowed, &send->head);
    if (fault != VSR_GOOD)
        return fault;
    if (send->head.length != left)
        return VSR_LENGTH;
    if (!is_zero(send->head.bytes, AT_BATCH_ORIGIN))
        return VSR_STAMPED;
    return inspect_frames(send, shape.count);
}

static inline size_t classic_send_bytes(const struct vsr_send *send)
{
    return send->metadata_end + INDEX_BYTES * (size_t)send->head.count + send->messages_bytes;
}

/* Write metadata, index table and records of a body that was inspected; checks all checksums. */
static enum vsr_fault write_classic_send(struct vsr_send *send, uint8_t *target,
                                         struct sealed sealed)
{
    const struct batch_head *head = &send->head;
    const uint8_t *frame = send->body + send->metadata_end + BATCH_HEAD_BYTES;
    size_t left = (size_t)head->length - BATCH_HEAD_BYTES, written = 0;
    uint8_t *entry = target + send->metadata_end;
    uint8_t *records = entry + INDEX_BYTES * (size_t)head->count;
    memcpy(target, send->body, send->metadata_end);
    seal_head(&sealed, head->bytes);
    for (size_t i = 0; i < head->count; i++, entry += INDEX_BYTES) {
        struct extent extent;
        send->where = i;
        if (!measure_frame(frame, left, &extent) ||
            extent.size + RECORD_SURPLUS > send->messages_bytes - written)
            return VSR_CHANGED;
        uint64_t checksum = frame_checksum(frame, extent.size);
        if (checksum != load_u64(frame))
            return VSR_MESSAGE_CHECKSUM;
        seal_frame(&sealed, checksum);
        const struct stamps stamps = {
            .origin = head_u64(head, AT_BATCH_ORIGIN) + load_u32(frame + AT_ORIGIN_DELTA)};
        store_u64(records + written, 0);
        write_record(records + written, frame, &extent, &stamps);
        written += extent.size + RECORD_SURPLUS;
        store_u32(entry, 0);
        store_u32(entry + AT_INDEX_POSITION, (uint32_t)written);
        store_u64(entry + AT_INDEX_TIMESTAMP, 0);
        frame += extent.size;
        left -= extent.size;
    }
    send->where = send->metadata_end;
    if (written != send->messages_bytes)
        return VSR_CHANGED;
    return sealed_checksum(&sealed) == head_u64(head, AT_BATCH_CHECKSUM) ? VSR_GOOD
                                                                        : VSR_BATCH_CHECKSUM;
}

#endif
