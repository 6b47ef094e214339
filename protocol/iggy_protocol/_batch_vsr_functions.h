/*
 * A part of _batch.c, which includes it.
 *
 * The functions for batches of 0.9 and later as Python sees them.
 */
#ifndef IGGY_BATCH_VSR_FUNCTIONS_H
#define IGGY_BATCH_VSR_FUNCTIONS_H

#include "_batch_vsr_encode.h"
#include "_batch_vsr_poll.h"
#include "_batch_vsr_run.h"
#include "_batch_vsr_send.h"

static PyObject *refuse_changed(void)
{
    return PyErr_Format(PyExc_ValueError, "the bytes changed while they were read");
}

static PyObject *refused_send(enum vsr_fault fault, size_t where)
{
    return Py_BuildValue("(inOO)", fault, (Py_ssize_t)where, Py_None, Py_None);
}

static PyObject *producer_of(const struct batch_head *head)
{
    if (!has_producer(head))
        return Py_NewRef(Py_None);
    return Py_BuildValue("(KII)", (unsigned long long)head_u64(head, AT_PRODUCER_ID),
                         (unsigned int)load_u16(head->bytes + AT_PRODUCER_EPOCH),
                         (unsigned int)load_u32(head->bytes + AT_PRODUCER_SEQUENCE));
}

/* Make the classic form of a body; fault, place, the form, producer. */
static PyObject *make_classic_send(struct vsr_send *send)
{
    enum vsr_fault fault = inspect_vsr_send(send);
    if (fault != VSR_GOOD)
        return refused_send(fault, send->where);
    struct sealed sealed = {PyMem_RawMalloc(sealed_bytes_max(send->head.count)), 0};
    if (sealed.bytes == NULL)
        return PyErr_NoMemory();
    PyObject *body = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)classic_send_bytes(send));
    if (body != NULL) {
        uint8_t *target = (uint8_t *)PyByteArray_AS_STRING(body);
        RUN_RELEASED(send->size, fault = write_classic_send(send, target, sealed));
    }
    PyMem_RawFree(sealed.bytes);
    if (body == NULL)
        return NULL;
    if (fault == VSR_GOOD)
        return Py_BuildValue("(iiNN)", 0, 0, body, producer_of(&send->head));
    Py_DECREF(body);
    return refused_send(fault, send->where);
}

static PyObject *batch_classic_send(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                    Py_ssize_t given)
{
    Py_buffer body;
    if (check_arguments("classic_send", given, 2) < 0)
        return NULL;
    int producers_allowed = PyObject_IsTrue(arguments[1]);
    if (producers_allowed < 0 || PyObject_GetBuffer(arguments[0], &body, PyBUF_SIMPLE) < 0)
        return NULL;
    struct vsr_send send = {
        .body = body.buf, .size = (size_t)body.len, .producers_allowed = producers_allowed != 0};
    PyObject *made = make_classic_send(&send);
    PyBuffer_Release(&body);
    return made;
}

/* Make the records of all batches that can be read; records, their number, fault, place. */
static PyObject *read_batches(struct vsr_reading *reading)
{
    enum vsr_fault fault = inspect_batches(reading);
    PyObject *records = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)reading->records_bytes);
    if (records == NULL)
        return NULL;
    bool is_written;
    uint8_t *target = (uint8_t *)PyByteArray_AS_STRING(records);
    RUN_RELEASED(reading->size, is_written = write_records(reading, target));
    if (!is_written) {
        fault = VSR_CHANGED;
        reading->count = reading->where = 0;
        if (PyByteArray_Resize(records, 0) < 0) {
            Py_DECREF(records);
            return NULL;
        }
    }
    if (fault == VSR_GOOD)
        reading->where = 0;
    return Py_BuildValue("(Nnin)", records, (Py_ssize_t)reading->count, fault,
                         (Py_ssize_t)reading->where);
}

static PyObject *batch_classic_records(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                       Py_ssize_t given)
{
    Py_buffer batches;
    if (check_arguments("classic_records", given, 3) < 0)
        return NULL;
    int producers_allowed = PyObject_IsTrue(arguments[1]), verify = PyObject_IsTrue(arguments[2]);
    if (producers_allowed < 0 || verify < 0 ||
        PyObject_GetBuffer(arguments[0], &batches, PyBUF_SIMPLE) < 0)
        return NULL;
    struct vsr_reading reading = {
        .batches = batches.buf,
        .size = (size_t)batches.len,
        .producers_allowed = producers_allowed != 0,
        .verify = verify != 0,
    };
    PyObject *read = read_batches(&reading);
    PyBuffer_Release(&batches);
    return read;
}

/* Write all batches that fit; where a record is damaged, once more with those before it. */
static PyObject *make_vsr_batches(struct vsr_writing *writing)
{
    plan_batches(writing);
    struct sealed sealed = {PyMem_RawMalloc(sealed_bytes_max(writing->count)), 0};
    if (sealed.bytes == NULL)
        return PyErr_NoMemory();
    PyObject *batches = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)writing->batches_bytes);
    enum batches_result result = BATCHES_WRITTEN;
    size_t good_bytes = 0;
    if (batches != NULL) {
        uint8_t *target = (uint8_t *)PyByteArray_AS_STRING(batches);
        RUN_RELEASED(writing->size,
                     result = write_batches(writing, target, sealed, &good_bytes));
    }
    PyMem_RawFree(sealed.bytes);
    if (result == BATCHES_WRITTEN)
        return batches;
    Py_DECREF(batches);
    if (result == RECORDS_CHANGED)
        return refuse_changed();
    writing->size = good_bytes;
    writing->verify = false; /* those before the damage are verified */
    batches = make_vsr_batches(writing);
    writing->is_cut = true;
    return batches;
}

static PyObject *batch_vsr_batches(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                   Py_ssize_t given)
{
    Py_buffer records;
    uint64_t bytes_max;
    struct vsr_writing writing = {0};
    if (check_arguments("vsr_batches", given, 4) < 0 ||
        take_u64(arguments[1], "partition id", &writing.partition_id) < 0 ||
        take_u64(arguments[2], "byte limit", &bytes_max) < 0)
        return NULL;
    int verify = PyObject_IsTrue(arguments[3]);
    if (verify < 0 || PyObject_GetBuffer(arguments[0], &records, PyBUF_SIMPLE) < 0)
        return NULL;
    writing.records = records.buf;
    writing.size = (size_t)records.len;
    writing.bytes_max = bytes_max < SIZE_MAX ? (size_t)bytes_max : SIZE_MAX;
    writing.verify = verify != 0;
    PyObject *batches = make_vsr_batches(&writing);
    PyBuffer_Release(&records);
    if (batches == NULL)
        return NULL;
    return Py_BuildValue("(NnnO)", batches, (Py_ssize_t)writing.count,
                         (Py_ssize_t)writing.consumed, writing.is_cut ? Py_True : Py_False);
}

static PyObject *batch_encode_vsr(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                  Py_ssize_t given)
{
    struct vsr_encoding encoding = {.batch = {.format = &VSR_BODY}};
    Py_buffer metadata, random;
    if (check_arguments("encode_vsr", given, 6) < 0 ||
        take_u64(arguments[2], "origin timestamp", &encoding.batch.origin_timestamp) < 0 ||
        take_headroom(arguments[3], &encoding.batch.headroom) < 0 ||
        take_producer(arguments[5], encoding.producer) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[4], &random, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &metadata, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&random);
        return NULL;
    }
    encoding.batch.metadata = metadata.buf;
    encoding.batch.metadata_bytes = (size_t)metadata.len;
    encoding.random = random.buf;
    encoding.random_bytes = (size_t)random.len;
    PyObject *body = encode_vsr_messages(&encoding, arguments[1]);
    PyBuffer_Release(&metadata);
    PyBuffer_Release(&random);
    return body;
}

/* ---- runs of sends ---------------------------------------------------------------------- */

/* Gather a run into bytes objects for its numbers and counts, which are cut to what was taken. */
static PyObject *gather_vsr(const Py_buffer *frames, struct vsr_run *run)
{
    size_t frames_max = (size_t)frames->len / SMALLEST_SEND_BYTES;
    if (run->frames_max > frames_max)
        run->frames_max = frames_max;
    PyObject *numbers = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(8 * run->frames_max));
    PyObject *counts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(4 * run->frames_max));
    if (numbers == NULL || counts == NULL)
        goto failed;
    run->numbers = (uint8_t *)PyBytes_AS_STRING(numbers);
    run->counts = (uint8_t *)PyBytes_AS_STRING(counts);
    gather_vsr_run(frames->buf, (size_t)frames->len, run);
    if (_PyBytes_Resize(&numbers, (Py_ssize_t)(8 * run->taken.frames)) < 0 ||
        _PyBytes_Resize(&counts, (Py_ssize_t)(4 * run->taken.frames)) < 0)
        goto failed;
    return Py_BuildValue("(nnnnnNN)", (Py_ssize_t)run->taken.frames,
                         (Py_ssize_t)run->taken.consumed, (Py_ssize_t)run->taken.count,
                         (Py_ssize_t)run->taken.missing_ids, (Py_ssize_t)run->taken.message_bytes,
                         numbers, counts);
failed:
    Py_XDECREF(numbers);
    Py_XDECREF(counts);
    return NULL;
}

static PyObject *gather_vsr_after(const Py_buffer *frames, const Py_buffer *head,
                                  const Py_buffer *metadata, size_t frames_max)
{
    if (head->len != VSR_HEAD_BYTES)
        return PyErr_Format(PyExc_ValueError, "a head has %d bytes, not %zd", VSR_HEAD_BYTES,
                            head->len);
    struct vsr_run run = {
        .head = head->buf,
        .metadata = metadata->buf,
        .metadata_bytes = (size_t)metadata->len,
        .frames_max = frames_max,
        .number = load_u64((const uint8_t *)head->buf + AT_VSR_NUMBER),
    };
    return gather_vsr(frames, &run);
}

static PyObject *batch_gather_vsr(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                  Py_ssize_t given)
{
    Py_buffer frames, head, metadata;
    if (check_arguments("gather_vsr", given, 4) < 0)
        return NULL;
    size_t frames_max = PyLong_AsSize_t(arguments[3]);
    if (frames_max == (size_t)-1 && PyErr_Occurred())
        return NULL;
    if (PyObject_GetBuffer(arguments[1], &head, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *taken = NULL;
    if (PyObject_GetBuffer(arguments[2], &metadata, PyBUF_SIMPLE) == 0) {
        if (PyObject_GetBuffer(arguments[0], &frames, PyBUF_WRITABLE) == 0) {
            taken = gather_vsr_after(&frames, &head, &metadata, frames_max);
            PyBuffer_Release(&frames);
        }
        PyBuffer_Release(&metadata);
    }
    PyBuffer_Release(&head);
    return taken;
}

static PyObject *repeat_confirmation(const Py_buffer *first, const Py_buffer *numbers,
                                     const Py_buffer *counts)
{
    size_t frames = (size_t)numbers->len / 8;
    if (first->len != CONFIRMATION_BYTES)
        return PyErr_Format(PyExc_ValueError, "a confirmation has %d bytes, not %zd",
                            CONFIRMATION_BYTES, first->len);
    if (numbers->len % 8 != 0 || (size_t)counts->len != 4 * frames)
        return PyErr_Format(PyExc_ValueError, "a run has one number and one count for each frame");
    PyObject *replies =
        PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(CONFIRMATION_BYTES * frames));
    if (replies != NULL)
        write_confirmations((uint8_t *)PyBytes_AS_STRING(replies), first->buf, numbers->buf,
                            counts->buf, frames);
    return replies;
}

static PyObject *batch_confirmations(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                     Py_ssize_t given)
{
    Py_buffer first, numbers, counts;
    if (check_arguments("confirmations", given, 3) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &first, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *replies = NULL;
    if (PyObject_GetBuffer(arguments[1], &numbers, PyBUF_SIMPLE) == 0) {
        if (PyObject_GetBuffer(arguments[2], &counts, PyBUF_SIMPLE) == 0) {
            replies = repeat_confirmation(&first, &numbers, &counts);
            PyBuffer_Release(&counts);
        }
        PyBuffer_Release(&numbers);
    }
    PyBuffer_Release(&first);
    return replies;
}

#endif
