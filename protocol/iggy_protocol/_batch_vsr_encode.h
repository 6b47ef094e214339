/*
 * A part of _batch.c, which includes it.
 *
 * encode_vsr(): from a list of payloads to the body of a SendMessages request of 0.9.
 *
 *   headroom | metadata | head of the batch, 256 bytes | N frames
 *
 * Every list is turned into drafts. The deltas count from the smallest time of all messages, so all
 * must be known before the first one is written, and the checksums are made without the interpreter
 * lock if there are many bytes.
 */
#ifndef IGGY_BATCH_VSR_ENCODE_H
#define IGGY_BATCH_VSR_ENCODE_H

#include "_batch_encode.h"
#include "_batch_store.h"
#include "_batch_vsr.h"

/* The frame's size is a u32 and counts its head of 256 bytes; the batch has one more of them. */
static const struct body_format VSR_BODY = {FRAME_BYTES, 0, UINT32_MAX - 2u * BATCH_HEAD_BYTES};

struct vsr_encoding {
    struct batch batch;
    const uint8_t *random; /* 16 bytes for each id that is missing */
    size_t random_bytes;
    uint8_t producer[AT_BATCH_RESERVED - AT_PRODUCER]; /* the section as it stands in the head */
    uint64_t first_origin;
};

/* Take an unsigned integer of `bits` bits, one less than its field has. */
static int take_narrow(PyObject *number, const char *name, int bits, uint8_t *target, size_t size)
{
    if (take_unsigned(number, name, target, size) == 0 && target[size - 1] < 0x80)
        return 0;
    if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_OverflowError, "%s does not fit into %d bits", name, bits);
    return -1;
}

/* Take None, or producer id, epoch and sequence, and write the section. */
static int take_producer(PyObject *producer, uint8_t *section)
{
    if (producer == Py_None)
        return 0;
    if (!PyTuple_Check(producer) || PyTuple_GET_SIZE(producer) != 3) {
        PyErr_SetString(PyExc_TypeError, "a producer is its id, its epoch and a sequence");
        return -1;
    }
    section[0] = 1;
    if (take_narrow(PyTuple_GET_ITEM(producer, 0), "producer id", 63,
                    section + AT_PRODUCER_ID - AT_PRODUCER, 8) < 0 ||
        take_narrow(PyTuple_GET_ITEM(producer, 1), "producer epoch", 15,
                    section + AT_PRODUCER_EPOCH - AT_PRODUCER, 2) < 0)
        return -1;
    return take_narrow(PyTuple_GET_ITEM(producer, 2), "producer sequence", 31,
                       section + AT_PRODUCER_SEQUENCE - AT_PRODUCER, 4);
}

static inline bool is_draft_without_id(const struct draft *draft)
{
    return (load_u64(draft->id) | load_u64(draft->id + 8)) == 0;
}

/* Give ids to the messages that have none, and find the smallest time; -1 with ValueError. */
static int complete_drafts(struct vsr_encoding *encoding, struct draft *drafts)
{
    size_t count = encoding->batch.count;
    encoding->first_origin = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (drafts[i].origin_timestamp < encoding->first_origin)
            encoding->first_origin = drafts[i].origin_timestamp;
    }
    for (size_t i = 0; i < count; i++) {
        if (drafts[i].origin_timestamp - encoding->first_origin > UINT32_MAX) {
            PyErr_Format(PyExc_ValueError,
                         "message %zu: origin timestamp is too long after the earliest of "
                         "the batch",
                         i);
            return -1;
        }
        if (!is_draft_without_id(&drafts[i]))
            continue;
        if (encoding->random_bytes < ID_BYTES) {
            PyErr_Format(PyExc_ValueError,
                         "message %zu needs an id, but no random bytes are left", i);
            return -1;
        }
        write_random_id(drafts[i].id, encoding->random);
        encoding->random += ID_BYTES;
        encoding->random_bytes -= ID_BYTES;
    }
    return 0;
}

static inline size_t write_draft(uint8_t *frame, const struct draft *draft, size_t index,
                                 uint64_t first_origin)
{
    uint8_t *at = frame + FRAME_BYTES;
    memcpy(frame + AT_ID, draft->id, ID_BYTES);
    write_frame_fields(frame, (uint32_t)index, (uint32_t)(draft->origin_timestamp - first_origin),
                       draft->headers_bytes, draft->payload_bytes);
    if (draft->payload_bytes > 0) /* an empty buffer may have no address */
        memcpy(at, draft->payload, draft->payload_bytes);
    at += draft->payload_bytes;
    if (draft->headers_bytes > 0)
        memcpy(at, draft->headers, draft->headers_bytes);
    return FRAME_BYTES + (size_t)draft->payload_bytes + draft->headers_bytes;
}

/* Write head and frames of a whole batch with their checksums. */
static void write_send_batch(const struct vsr_encoding *encoding, const struct draft *drafts,
                             uint8_t *head, struct sealed sealed)
{
    const struct batch *batch = &encoding->batch;
    uint8_t *frame = head + BATCH_HEAD_BYTES;
    struct unsealed previous = {0};
    memset(head, 0, BATCH_HEAD_BYTES);
    store_u64(head + AT_BATCH_ORIGIN, encoding->first_origin);
    store_u64(head + AT_BATCH_LENGTH, BATCH_HEAD_BYTES + batch->message_bytes);
    store_u32(head + AT_BATCH_COUNT, (uint32_t)batch->count);
    memcpy(head + AT_PRODUCER, encoding->producer, sizeof encoding->producer);
    seal_head(&sealed, head);
    for (size_t i = 0; i < batch->count; i++) {
        size_t size = write_draft(frame, &drafts[i], i, encoding->first_origin);
        if (previous.at != NULL)
            seal_frame(&sealed, seal_previous(&previous));
        previous = (struct unsealed){frame, size, 0};
        frame += size;
    }
    seal_frame(&sealed, seal_previous(&previous));
    store_u64(head + AT_BATCH_CHECKSUM, sealed_checksum(&sealed));
}

static PyObject *write_vsr_body(const struct vsr_encoding *encoding, const struct draft *drafts)
{
    const struct batch *batch = &encoding->batch;
    size_t prefix = batch->headroom + batch->metadata_bytes;
    uint64_t total = (uint64_t)prefix + BATCH_HEAD_BYTES + batch->message_bytes;
    if (total > PY_SSIZE_T_MAX)
        return PyErr_NoMemory();
    struct sealed sealed = {PyMem_RawMalloc(sealed_bytes_max(batch->count)), 0};
    if (sealed.bytes == NULL)
        return PyErr_NoMemory();
    PyObject *body = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (body != NULL) {
        uint8_t *at = (uint8_t *)PyByteArray_AS_STRING(body);
        memset(at, 0, batch->headroom);
        if (batch->metadata_bytes > 0)
            memcpy(at + batch->headroom, batch->metadata, batch->metadata_bytes);
        RUN_RELEASED(total, write_send_batch(encoding, drafts, at + prefix, sealed));
    }
    PyMem_RawFree(sealed.bytes);
    return body;
}

static PyObject *encode_vsr_messages(struct vsr_encoding *encoding, PyObject *messages)
{
    PyObject *items = PySequence_Tuple(messages);
    if (items == NULL)
        return NULL;
    PyObject *body = NULL;
    struct exports *exports = NULL;
    struct batch *batch = &encoding->batch;
    batch->count = (size_t)PyTuple_GET_SIZE(items);
    struct draft *drafts = PyMem_New(struct draft, batch->count);
    if (drafts == NULL)
        PyErr_NoMemory();
    else if (batch->count == 0)
        PyErr_SetString(PyExc_ValueError, "a batch has at least one message");
    else if (make_drafts(batch, items, drafts, &exports) == 0 &&
             complete_drafts(encoding, drafts) == 0)
        body = write_vsr_body(encoding, drafts);
    PyMem_Free(drafts);
    release_exports(exports);
    Py_DECREF(items);
    return body;
}

#endif
