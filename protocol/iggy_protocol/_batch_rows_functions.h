/*
 * A part of _batch.c, which includes it.
 *
 * Rows in columns as Python sees them: their bodies, requests and partitions.
 */
#ifndef IGGY_BATCH_ROWS_FUNCTIONS_H
#define IGGY_BATCH_ROWS_FUNCTIONS_H

#include "_batch_rows_open.h"
#include "_batch_vsr_encode.h"

/* ---- bodies ----------------------------------------------------------------------------- */

static int fill_row_drafts(struct batch *batch, const struct send_rows *rows, struct draft *drafts)
{
    for (size_t i = 0; i < rows->count; i++) {
        struct row_message message;
        size_t row;
        enum row_fault fault = read_row(rows, i, &message, &row);
        if (fault != ROWS_GOOD) {
            refuse_rows(fault, row);
            return -1;
        }
        if (count_message(batch, i, message.payload.size, message.headers.size) < 0)
            return -1;
        drafts[i] = (struct draft){
            .payload = message.payload.bytes,
            .headers = message.headers.bytes,
            .payload_bytes = (uint32_t)message.payload.size,
            .headers_bytes = (uint32_t)message.headers.size,
            .origin_timestamp = message.has_origin ? message.origin : batch->origin_timestamp,
        };
        if (message.id != NULL)
            memcpy(drafts[i].id, message.id, ID_BYTES);
    }
    return 0;
}

/* Make the drafts of rows; NULL on failure. */
static struct draft *draft_rows(struct batch *batch, const struct send_rows *rows)
{
    batch->count = rows->count;
    struct draft *drafts = PyMem_New(struct draft, rows->count);
    if (drafts == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (fill_row_drafts(batch, rows, drafts) == 0)
        return drafts;
    PyMem_Free(drafts);
    return NULL;
}

static PyObject *batch_encode_rows(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                   Py_ssize_t given)
{
    struct batch batch = {.format = &CLASSIC_BODY};
    struct open_rows open;
    Py_buffer metadata;
    PyObject *body = NULL;
    if (check_arguments("encode_rows", given, 4) < 0 ||
        take_u64(arguments[2], "origin timestamp", &batch.origin_timestamp) < 0 ||
        take_headroom(arguments[3], &batch.headroom) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &metadata, PyBUF_SIMPLE) < 0)
        return NULL;
    batch.metadata = metadata.buf;
    batch.metadata_bytes = (size_t)metadata.len;
    struct draft *drafts = NULL;
    if (open_rows(arguments[1], &open) == 0)
        drafts = draft_rows(&batch, &open.rows);
    if (drafts != NULL)
        body = write_drafts(&batch, drafts);
    PyMem_Free(drafts);
    close_rows(&open);
    PyBuffer_Release(&metadata);
    return body;
}

static PyObject *write_vsr_rows(struct vsr_encoding *encoding, PyObject *rows)
{
    struct open_rows open;
    struct draft *drafts = NULL;
    PyObject *body = NULL;
    if (open_rows(rows, &open) == 0) {
        if (open.rows.count == 0)
            PyErr_SetString(PyExc_ValueError, "a batch has at least one message");
        else
            drafts = draft_rows(&encoding->batch, &open.rows);
    }
    if (drafts != NULL && complete_drafts(encoding, drafts) == 0)
        body = write_vsr_body(encoding, drafts);
    PyMem_Free(drafts);
    close_rows(&open);
    return body;
}

static PyObject *batch_encode_rows_vsr(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                       Py_ssize_t given)
{
    struct vsr_encoding encoding = {.batch = {.format = &VSR_BODY}};
    Py_buffer metadata, random;
    if (check_arguments("encode_rows_vsr", given, 6) < 0 ||
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
    PyObject *body = write_vsr_rows(&encoding, arguments[1]);
    PyBuffer_Release(&metadata);
    PyBuffer_Release(&random);
    return body;
}

static PyObject *copy_row(const struct send_rows *rows, size_t index)
{
    struct row_message message;
    size_t row;
    static const uint8_t no_id[ID_BYTES] = {0};
    enum row_fault fault = read_row(rows, index, &message, &row);
    if (fault != ROWS_GOOD)
        return refuse_rows(fault, row);
    const uint8_t *id = message.id == NULL ? no_id : message.id;
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *number = PyLong_FromUnsignedNativeBytes(id, 16, Py_ASNATIVEBYTES_LITTLE_ENDIAN);
#else
    PyObject *number = _PyLong_FromByteArray(id, 16, 1, 0);
#endif
    const char *headers = message.headers.size == 0 ? "" : (const char *)message.headers.bytes;
    PyObject *origin = message.has_origin ? PyLong_FromUnsignedLongLong(message.origin)
                                          : Py_NewRef(Py_None);
    return Py_BuildValue("(y#Ny#N)", message.payload.bytes, (Py_ssize_t)message.payload.size,
                         number, headers,
                         (Py_ssize_t)message.headers.size, origin);
}

static PyObject *batch_message_at(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                  Py_ssize_t given)
{
    struct open_rows open;
    size_t index;
    PyObject *message = NULL;
    if (check_arguments("message_at", given, 2) < 0 || take_size(arguments[1], &index) < 0)
        return NULL;
    if (open_rows(arguments[0], &open) == 0) {
        if (index < open.rows.count)
            message = copy_row(&open.rows, index);
        else
            PyErr_SetString(PyExc_ValueError, "there are fewer rows than that");
    }
    close_rows(&open);
    return message;
}

/* ---- dividing rows among requests -------------------------------------------------------- */

/* The request that is being filled: its messages, their bytes, and the span of their times. */
struct filling {
    size_t start, size;
    bool has_origins;
    uint64_t first_origin, last_origin;
};

static void begin_request(struct filling *filling, size_t at, const struct row_message *message)
{
    *filling = (struct filling){at, 0, message->has_origin, message->origin, message->origin};
}

/* Tell whether the times of a request and of one more message fit into a batch of 0.9. */
static bool widen_request(struct filling *filling, const struct row_message *message)
{
    if (message->has_origin != filling->has_origins)
        return false;
    if (!message->has_origin)
        return true;
    uint64_t first = filling->first_origin, last = filling->last_origin;
    first = message->origin < first ? message->origin : first;
    last = message->origin > last ? message->origin : last;
    if (last - first > UINT32_MAX)
        return false;
    filling->first_origin = first;
    filling->last_origin = last;
    return true;
}

static int append_size(PyObject *list, size_t size)
{
    PyObject *number = PyLong_FromSize_t(size);
    int result = number == NULL ? -1 : PyList_Append(list, number);
    Py_XDECREF(number);
    return result;
}

static int end_request(PyObject *ends, PyObject *sizes, size_t at, const struct filling *filling)
{
    return append_size(ends, at) < 0 ? -1 : append_size(sizes, filling->size);
}

static int divide_rows(const struct send_rows *rows, size_t count_max, size_t bytes_max,
                       size_t overhead, PyObject *ends, PyObject *sizes)
{
    struct filling filling = {0};
    struct batch batch = {.format = &CLASSIC_BODY};
    for (size_t i = 0; i < rows->count; i++) {
        struct row_message message;
        size_t row;
        enum row_fault fault = read_row(rows, i, &message, &row);
        if (fault != ROWS_GOOD) {
            refuse_rows(fault, row);
            return -1;
        }
        batch.message_bytes = 0; /* only the limits of a single message are of interest */
        if (count_message(&batch, 0, message.payload.size, message.headers.size) < 0)
            return -1;
        size_t size = message.payload.size + message.headers.size + overhead;
        bool is_full = i - filling.start >= count_max || filling.size + size > bytes_max;
        if (i == 0) {
            begin_request(&filling, i, &message);
        } else if (is_full || !widen_request(&filling, &message)) {
            if (end_request(ends, sizes, i, &filling) < 0)
                return -1;
            begin_request(&filling, i, &message);
        }
        filling.size += size;
    }
    return rows->count == 0 ? 0 : end_request(ends, sizes, rows->count, &filling);
}

static PyObject *batch_split_rows(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                  Py_ssize_t given)
{
    struct open_rows open;
    size_t count_max, bytes_max, overhead;
    if (check_arguments("split_rows", given, 4) < 0 || take_size(arguments[1], &count_max) < 0 ||
        take_size(arguments[2], &bytes_max) < 0 || take_size(arguments[3], &overhead) < 0)
        return NULL;
    PyObject *ends = PyList_New(0), *sizes = PyList_New(0), *divided = NULL;
    if (ends != NULL && sizes != NULL) {
        if (open_rows(arguments[0], &open) == 0 &&
            divide_rows(&open.rows, count_max, bytes_max, overhead, ends, sizes) == 0)
            divided = PyTuple_Pack(2, ends, sizes);
        close_rows(&open);
    }
    Py_XDECREF(ends);
    Py_XDECREF(sizes);
    return divided;
}

/* ---- partitions ------------------------------------------------------------------------- */

static int take_u32(PyObject *number, const char *name, uint32_t *value)
{
    uint8_t bytes[4];
    if (take_unsigned(number, name, bytes, sizeof bytes) < 0)
        return -1;
    *value = load_u32(bytes);
    return 0;
}

static PyObject *make_placing(struct placing *placing, size_t count)
{
    if (count > PY_SSIZE_T_MAX / 4)
        return PyErr_NoMemory();
    PyObject *target = PyByteArray_FromStringAndSize(NULL, 4 * (Py_ssize_t)count);
    if (target == NULL)
        return NULL;
    enum row_fault fault =
        place_rows(placing, count, (uint8_t *)PyByteArray_AS_STRING(target));
    if (fault == ROWS_GOOD)
        return target;
    Py_DECREF(target);
    return refuse_rows(fault, 0);
}

static PyObject *batch_row_partitions(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                      Py_ssize_t given)
{
    struct placing placing = {0};
    struct open_column keys;
    Py_buffer ids = {0};
    size_t count;
    if (check_arguments("row_partitions", given, 5) < 0 || take_size(arguments[0], &count) < 0 ||
        take_u32(arguments[3], "number of partitions", &placing.partitions_count) < 0 ||
        take_u32(arguments[4], "partition", &placing.otherwise) < 0)
        return NULL;
    if (placing.partitions_count == 0)
        return PyErr_Format(PyExc_ValueError, "a topic without partitions takes no messages");
    PyObject *made = NULL;
    if (open_column_of(arguments[1], &keys, count) == 0 &&
        open_buffer(arguments[2], &ids, &placing.ids) == 0) {
        placing.keys = keys.given;
        if (placing.ids != NULL && (size_t)ids.len / ID_BYTES < count)
            PyErr_SetString(PyExc_ValueError, "there are fewer ids than rows");
        else
            made = make_placing(&placing, count);
    }
    close_column(&keys);
    if (ids.obj != NULL)
        PyBuffer_Release(&ids);
    return made;
}

static PyObject *list_sizes(const size_t *sizes, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromSize_t(sizes[i]);
        if (number == NULL)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, number);
    }
    return list;
}

static PyObject *make_groups(const Py_buffer *numbers, size_t partitions_count, size_t *ends)
{
    size_t count = (size_t)numbers->len / 4, where = 0;
    PyObject *order = PyByteArray_FromStringAndSize(NULL, 4 * (Py_ssize_t)count);
    if (order == NULL)
        return NULL;
    enum row_fault fault = group_rows(numbers->buf, count, partitions_count, ends,
                                      (uint8_t *)PyByteArray_AS_STRING(order), &where);
    PyObject *list = fault == ROWS_GOOD ? list_sizes(ends, partitions_count) : NULL;
    if (list != NULL)
        return Py_BuildValue("(NN)", order, list);
    Py_DECREF(order);
    return fault == ROWS_GOOD ? NULL : refuse_rows(fault, where);
}

static PyObject *batch_group_rows(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                  Py_ssize_t given)
{
    uint32_t partitions_count;
    Py_buffer numbers;
    if (check_arguments("group_rows", given, 2) < 0 ||
        take_u32(arguments[1], "number of partitions", &partitions_count) < 0)
        return NULL;
    size_t *ends = PyMem_New(size_t, (size_t)partitions_count + 1);
    if (ends == NULL)
        return PyErr_NoMemory();
    PyObject *groups = NULL;
    if (PyObject_GetBuffer(arguments[0], &numbers, PyBUF_SIMPLE) == 0) {
        groups = make_groups(&numbers, partitions_count, ends);
        PyBuffer_Release(&numbers);
    }
    PyMem_Free(ends);
    return groups;
}

#endif
