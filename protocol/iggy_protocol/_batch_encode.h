/*
 * A part of _batch.c, which includes it.
 *
 * encode(): from a list of payloads to the body of a SendMessages request, in one allocation.
 *
 *   headroom | metadata | N index entries of 16 bytes | N messages
 *
 * A list of plain `bytes`, or of messages made of nothing but plain bytes and integers, takes the
 * short way, which runs no Python code and keeps no notes. Every other list is first turned into
 * drafts, because asking an object for its buffer may run code that changes the list.
 */
#ifndef IGGY_BATCH_ENCODE_H
#define IGGY_BATCH_ENCODE_H

#include "_batch_layout.h"
#include <Python.h>

enum { HEADROOM_BYTES_MAX = 4096 };

/* ---- integers from Python -------------------------------------------------------------- */

/* Write a Python integer as little-endian bytes; -1 with OverflowError when it does not fit. */
static int integer_to_bytes(PyObject *number, uint8_t *target, size_t size)
{
#if PY_VERSION_HEX >= 0x030D0000
    int flags = Py_ASNATIVEBYTES_LITTLE_ENDIAN | Py_ASNATIVEBYTES_UNSIGNED_BUFFER |
                Py_ASNATIVEBYTES_REJECT_NEGATIVE;
    Py_ssize_t needed = PyLong_AsNativeBytes(number, target, (Py_ssize_t)size, flags);
    if (needed < 0) {
        if (PyErr_ExceptionMatches(PyExc_ValueError))
            PyErr_SetString(PyExc_OverflowError, "negative"); /* as older versions call it */
        return -1;
    }
    if ((size_t)needed > size) {
        PyErr_SetString(PyExc_OverflowError, "too big");
        return -1;
    }
    return 0;
#else
    return _PyLong_AsByteArray((PyLongObject *)number, target, size, 1, 0);
#endif
}

/* Take an unsigned integer of `size` bytes out of an argument. */
static int take_unsigned(PyObject *number, const char *name, uint8_t *target, size_t size)
{
    if (!PyLong_Check(number)) {
        PyErr_Format(PyExc_TypeError, "%s must be an integer, not %s", name,
                     Py_TYPE(number)->tp_name);
        return -1;
    }
    if (integer_to_bytes(number, target, size) < 0) {
        if (PyErr_ExceptionMatches(PyExc_OverflowError))
            PyErr_Format(PyExc_OverflowError, "%s does not fit into %zu bits", name, 8 * size);
        return -1;
    }
    return 0;
}

static int take_u64(PyObject *number, const char *name, uint64_t *value)
{
    uint8_t bytes[8];
    if (take_unsigned(number, name, bytes, sizeof bytes) < 0)
        return -1;
    *value = load_u64(bytes);
    return 0;
}

static int take_headroom(PyObject *number, size_t *headroom)
{
    if (!PyLong_Check(number)) {
        PyErr_Format(PyExc_TypeError, "headroom must be an integer, not %s",
                     Py_TYPE(number)->tp_name);
        return -1;
    }
    int overflow;
    long value = PyLong_AsLongAndOverflow(number, &overflow);
    if (overflow || value < 0 || value > HEADROOM_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "headroom must be between 0 and %d bytes",
                     HEADROOM_BYTES_MAX);
        return -1;
    }
    *headroom = (size_t)value;
    return 0;
}

/* ---- limits ---------------------------------------------------------------------------- */

/* What a message adds to a body beside its payload and headers, and what a body may have. */
struct body_format {
    size_t message_bytes, index_bytes;
    uint64_t bytes_max;
};

/* The frame's length field is a u32 and counts the four bytes of the command code as well. */
static const struct body_format CLASSIC_BODY = {HEADER_BYTES, INDEX_BYTES, UINT32_MAX - 4u};

/* What the whole batch shares while it is measured and written. */
struct batch {
    const struct body_format *format;
    const uint8_t *metadata;
    size_t metadata_bytes;
    size_t headroom;
    uint64_t origin_timestamp;
    size_t count;
    uint64_t message_bytes; /* what the messages seen so far occupy, headers included */
};

/* Count one more message into the batch; -1 with ValueError when a limit is passed. */
static inline int count_message(struct batch *batch, size_t index, size_t payload, size_t headers)
{
    if (payload > PAYLOAD_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "message %zu: payload of %zu bytes is above the limit of %d",
                     index, payload, PAYLOAD_BYTES_MAX);
        return -1;
    }
    if (headers > USER_HEADERS_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError,
                     "message %zu: user headers of %zu bytes are above the limit of %d", index,
                     headers, USER_HEADERS_BYTES_MAX);
        return -1;
    }
    const struct body_format *format = batch->format;
    batch->message_bytes += format->message_bytes + payload + headers;
    if (batch->metadata_bytes + batch->message_bytes +
            (uint64_t)format->index_bytes * (index + 1) >
        format->bytes_max) {
        PyErr_Format(PyExc_ValueError, "the batch is above the limit of %llu bytes",
                     (unsigned long long)format->bytes_max);
        return -1;
    }
    return 0;
}

/* ---- writing --------------------------------------------------------------------------- */

/* Where the next index entry and the next message go. */
struct pens {
    uint8_t *index;
    uint8_t *message;
    const uint8_t *first_message;
};

static PyObject *start_body(const struct batch *batch, struct pens *pens)
{
    size_t indexes = batch->count * INDEX_BYTES;
    size_t prefix = batch->headroom + batch->metadata_bytes;
    /* A body that a frame can hold may still be more than 32 bits of address space can. */
    uint64_t total = (uint64_t)prefix + indexes + batch->message_bytes;
    if (total > PY_SSIZE_T_MAX)
        return PyErr_NoMemory();
    PyObject *body = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (body == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyByteArray_AS_STRING(body);
    memset(at, 0, batch->headroom);
    if (batch->metadata_bytes > 0) /* an empty buffer may have no address */
        memcpy(at + batch->headroom, batch->metadata, batch->metadata_bytes);
    pens->index = at + prefix;
    pens->message = pens->index + indexes;
    pens->first_message = pens->message;
    return body;
}

/* Write the entry of the message that was just completed. */
static inline void write_index_entry(struct pens *pens)
{
    store_u32(pens->index, 0);
    store_u32(pens->index + AT_INDEX_POSITION, (uint32_t)(pens->message - pens->first_message));
    store_u64(pens->index + AT_INDEX_TIMESTAMP, 0);
    pens->index += INDEX_BYTES;
}

/* ---- the short way: nothing that runs code ---------------------------------------------- */

/* One item taken apart; a plain payload has no other parts. */
struct parts {
    PyObject *payload, *id, *headers, *origin;
};

/* Take an item apart; 0 unless it is made of plain bytes and integers. */
static inline int take_apart(PyObject *item, struct parts *parts)
{
    *parts = (struct parts){.payload = item};
    if (PyBytes_CheckExact(item))
        return 1;
    if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 4)
        return 0;
    parts->payload = PyTuple_GET_ITEM(item, 0);
    parts->id = PyTuple_GET_ITEM(item, 1);
    parts->headers = PyTuple_GET_ITEM(item, 2);
    parts->origin = PyTuple_GET_ITEM(item, 3);
    return PyBytes_CheckExact(parts->payload) && PyBytes_CheckExact(parts->headers) &&
           PyLong_CheckExact(parts->id) &&
           (parts->origin == Py_None || PyLong_CheckExact(parts->origin));
}

/* Measure all items; 0 when one of them needs the long way, or passes a limit. */
static int measure_ready(struct batch *batch, PyObject *const *items)
{
    struct parts parts;
    for (size_t i = 0; i < batch->count; i++) {
        if (!take_apart(items[i], &parts))
            return 0;
        size_t headers = parts.headers ? (size_t)PyBytes_GET_SIZE(parts.headers) : 0;
        if (count_message(batch, i, (size_t)PyBytes_GET_SIZE(parts.payload), headers) < 0)
            return 0;
    }
    return 1;
}

/*
 * Write a number the quick way, and leave the others to integer_to_bytes(). On CPython 3.11 its
 * digits are read where they lie, which is three times as fast for ids of 128 bits; elsewhere only
 * numbers of up to 63 bits are quick.
 */
static inline int store_integer(PyObject *number, uint8_t *target, size_t size)
{
#if PY_VERSION_HEX < 0x030C0000 && PyLong_SHIFT == 30 && defined(__SIZEOF_INT128__)
    __extension__ typedef unsigned __int128 uint128;
    const digit *digits = ((PyLongObject *)number)->ob_digit;
    Py_ssize_t count = Py_SIZE(number);
    if (count < 0 || count > 5 || (count == 5 && digits[4] >> 8))
        return integer_to_bytes(number, target, size);
    uint128 value = 0;
    while (count-- > 0)
        value = value << PyLong_SHIFT | digits[count];
    if (size == ID_BYTES)
        store_u64(target + 8, (uint64_t)(value >> 64));
    else if (value >> 64)
        return integer_to_bytes(number, target, size);
#else
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow || value < 0)
        return integer_to_bytes(number, target, size);
#endif
    store_u64(target, (uint64_t)value); /* what is behind it is zero already */
    return 0;
}

/* Write what only a NewMessage has, and return where its message ends. */
static inline uint8_t *write_extras(const struct parts *parts, uint8_t *at, size_t payload)
{
    size_t headers = (size_t)PyBytes_GET_SIZE(parts->headers);
    uint8_t *end = at + HEADER_BYTES + payload;
    if (store_integer(parts->id, at + AT_ID, ID_BYTES) < 0)
        return NULL;
    if (parts->origin != Py_None && store_integer(parts->origin, at + AT_ORIGIN_TIMESTAMP, 8) < 0)
        return NULL;
    store_u32(at + AT_HEADERS_LENGTH, (uint32_t)headers);
    if (headers > 0)
        memcpy(end, PyBytes_AS_STRING(parts->headers), headers);
    return end + headers;
}

/* Write all items that measure_ready() has accepted; an integer may still turn out too large. */
static PyObject *encode_ready(const struct batch *batch, PyObject *const *items)
{
    struct pens pens;
    struct parts parts;
    PyObject *body = start_body(batch, &pens);
    if (body == NULL)
        return NULL;
    for (size_t i = 0; i < batch->count; i++) {
        take_apart(items[i], &parts);
        size_t payload = (size_t)PyBytes_GET_SIZE(parts.payload);
        uint8_t *at = pens.message;
        memset(at, 0, HEADER_BYTES);
        store_u64(at + AT_ORIGIN_TIMESTAMP, batch->origin_timestamp);
        store_u32(at + AT_PAYLOAD_LENGTH, (uint32_t)payload);
        memcpy(at + HEADER_BYTES, PyBytes_AS_STRING(parts.payload), payload);
        pens.message = at + HEADER_BYTES + payload;
        if (parts.id != NULL)
            pens.message = write_extras(&parts, at, payload);
        if (pens.message == NULL) {
            Py_DECREF(body);
            return NULL;
        }
        write_index_entry(&pens);
    }
    return body;
}

/* ---- the long way: drafts --------------------------------------------------------------- */

struct draft {
    const uint8_t *payload, *headers;
    uint32_t payload_bytes, headers_bytes;
    uint8_t id[ID_BYTES];
    uint64_t origin_timestamp;
};

/* Buffers held open until the batch is written; a chain, because an open buffer must not move. */
struct exports {
    struct exports *earlier;
    size_t used;
    Py_buffer views[32];
};

static Py_buffer *next_export(struct exports **exports)
{
    const size_t room = sizeof(*exports)->views / sizeof(*exports)->views[0];
    if (*exports == NULL || (*exports)->used == room) {
        struct exports *link = PyMem_Malloc(sizeof *link);
        if (link == NULL) {
            PyErr_NoMemory();
            return NULL;
        }
        link->earlier = *exports;
        link->used = 0;
        *exports = link;
    }
    return &(*exports)->views[(*exports)->used];
}

static void release_exports(struct exports *exports)
{
    while (exports != NULL) {
        struct exports *earlier = exports->earlier;
        for (size_t i = 0; i < exports->used; i++)
            PyBuffer_Release(&exports->views[i]);
        PyMem_Free(exports);
        exports = earlier;
    }
}

/* Find the bytes of a bytes-like object, which stay where they are until release_exports(). */
static int open_bytes(struct exports **exports, PyObject *item, const char *name,
                      const uint8_t **data, size_t *size)
{
    if (PyBytes_CheckExact(item)) {
        *data = (const uint8_t *)PyBytes_AS_STRING(item);
        *size = (size_t)PyBytes_GET_SIZE(item);
        return 0;
    }
    if (!PyObject_CheckBuffer(item)) {
        PyErr_Format(PyExc_TypeError, "%s must be bytes-like, not %s", name,
                     Py_TYPE(item)->tp_name);
        return -1;
    }
    Py_buffer *view = next_export(exports);
    if (view == NULL || PyObject_GetBuffer(item, view, PyBUF_SIMPLE) < 0)
        return -1;
    (*exports)->used++;
    *data = view->buf;
    *size = (size_t)view->len;
    return 0;
}

/* Take an id, the quick way if it is an integer that fits. */
static int take_id(PyObject *number, uint8_t *id)
{
    if (PyLong_CheckExact(number) && store_integer(number, id, ID_BYTES) == 0)
        return 0;
    PyErr_Clear(); /* the long way names the field */
    return take_unsigned(number, "id", id, ID_BYTES);
}

/* Fill a draft from one item: a bytes-like payload, or the four fields of a NewMessage. */
static int fill_draft(struct draft *draft, struct exports **exports, PyObject *item,
                      size_t *payload_bytes, size_t *headers_bytes)
{
    if (!PyTuple_Check(item))
        return open_bytes(exports, item, "payload", &draft->payload, payload_bytes);
    if (PyTuple_GET_SIZE(item) != 4) {
        PyErr_SetString(PyExc_TypeError,
                        "a message must be a payload or a tuple of payload, id, user headers "
                        "and origin timestamp");
        return -1;
    }
    PyObject *origin = PyTuple_GET_ITEM(item, 3);
    if (open_bytes(exports, PyTuple_GET_ITEM(item, 0), "payload", &draft->payload,
                   payload_bytes) < 0 ||
        take_id(PyTuple_GET_ITEM(item, 1), draft->id) < 0 ||
        open_bytes(exports, PyTuple_GET_ITEM(item, 2), "user headers", &draft->headers,
                   headers_bytes) < 0)
        return -1;
    if (origin == Py_None)
        return 0;
    return take_u64(origin, "origin timestamp", &draft->origin_timestamp);
}

/* Say in the current exception which message is to blame. */
static void blame_message(size_t index)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (type == PyExc_TypeError || type == PyExc_OverflowError) {
        PyErr_Format(type, "message %zu: %S", index, value);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    } else {
        PyErr_Restore(type, value, traceback);
    }
}

static int make_drafts(struct batch *batch, PyObject *items, struct draft *drafts,
                       struct exports **exports)
{
    for (size_t i = 0; i < batch->count; i++) {
        size_t payload = 0, headers = 0;
        drafts[i] = (struct draft){.origin_timestamp = batch->origin_timestamp};
        PyObject *item = PyTuple_GET_ITEM(items, (Py_ssize_t)i);
        if (fill_draft(&drafts[i], exports, item, &payload, &headers) < 0) {
            blame_message(i);
            return -1;
        }
        if (count_message(batch, i, payload, headers) < 0)
            return -1;
        drafts[i].payload_bytes = (uint32_t)payload;
        drafts[i].headers_bytes = (uint32_t)headers;
    }
    return 0;
}

static PyObject *write_drafts(const struct batch *batch, const struct draft *drafts)
{
    struct pens pens;
    PyObject *body = start_body(batch, &pens);
    if (body == NULL)
        return NULL;
    for (size_t i = 0; i < batch->count; i++) {
        const struct draft *draft = &drafts[i];
        uint8_t *at = pens.message;
        memset(at, 0, HEADER_BYTES);
        memcpy(at + AT_ID, draft->id, ID_BYTES);
        store_u64(at + AT_ORIGIN_TIMESTAMP, draft->origin_timestamp);
        store_u32(at + AT_HEADERS_LENGTH, draft->headers_bytes);
        store_u32(at + AT_PAYLOAD_LENGTH, draft->payload_bytes);
        at += HEADER_BYTES;
        if (draft->payload_bytes > 0)
            memcpy(at, draft->payload, draft->payload_bytes);
        at += draft->payload_bytes;
        if (draft->headers_bytes > 0)
            memcpy(at, draft->headers, draft->headers_bytes);
        pens.message = at + draft->headers_bytes;
        write_index_entry(&pens);
    }
    return body;
}

static PyObject *encode_drafts(struct batch *batch, PyObject *messages)
{
    PyObject *items = PySequence_Tuple(messages);
    if (items == NULL)
        return NULL;
    batch->count = (size_t)PyTuple_GET_SIZE(items);
    batch->message_bytes = 0;
    PyObject *body = NULL;
    struct exports *exports = NULL;
    struct draft *drafts = PyMem_New(struct draft, batch->count);
    if (drafts == NULL)
        PyErr_NoMemory();
    else if (make_drafts(batch, items, drafts, &exports) == 0)
        body = write_drafts(batch, drafts);
    PyMem_Free(drafts);
    release_exports(exports);
    Py_DECREF(items);
    return body;
}

/* ---- the choice ------------------------------------------------------------------------ */

static PyObject *encode_messages(struct batch *batch, PyObject *messages)
{
    if (PyList_CheckExact(messages) || PyTuple_CheckExact(messages)) {
        PyObject *const *items = PySequence_Fast_ITEMS(messages);
        batch->count = (size_t)PySequence_Fast_GET_SIZE(messages);
        if (measure_ready(batch, items)) {
            PyObject *body = encode_ready(batch, items);
            if (body != NULL || !PyErr_ExceptionMatches(PyExc_OverflowError))
                return body;
        }
        PyErr_Clear(); /* the long way finds the first message to blame */
    }
    return encode_drafts(batch, messages);
}

#endif
