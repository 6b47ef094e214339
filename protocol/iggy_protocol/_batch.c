/*
 * The batch work in C: the same module-level names as batch_python.py, and the same results.
 *
 * Problems in a peer's bytes come back as numbers, problems of the caller as TypeError,
 * OverflowError, ValueError or BufferError; batch.py turns both into the errors of the package.
 *
 *   _batch_layout.h   how a message lies in memory
 *   _xxh3.h           its checksum
 *   _batch_encode.h   from payloads to a request body
 *   _batch_inspect.h  from a received body to its parts, or to the reason to refuse it
 *   _batch_gather.h   from many small requests to one batch
 *   _batch_store.h    stamping, and index entries
 *   _batch_view.h     messages read in place
 *   _batch_record.h   the same with room for what a reader remembers of them
 *   _batch_columns.h  messages as columns
 *   _batch_vsr*.h     batches of 0.9 and later: their layout, sends, polls, encoding, functions
 *   _batch_rows.h     rows in columns that are to be sent, and their partitions
 *   _batch_content.h  ids that follow from what is in a row
 *   _batch_header_blocks.h  user headers of rows
 *   _batch_rows_*.h, _batch_content_functions.h  the functions for rows
 *   this file         the functions as Python sees them, and the module
 *
 * The headers are parts of this one file and cannot be compiled by themselves.
 *
 * What forbids the limited API, and with it one build for all versions of Python: the fields of a
 * message are read and made with macros and with _PyLong_AsByteArray and _PyLong_FromByteArray
 * (128-bit ids), and memoryviews are looked into with PyMemoryView_GET_BUFFER. Each of them is done
 * once for a message or a request, and their public counterparts make objects on the way.
 *
 * What forbids free-threading: views and records fill their fields on first use without a lock, and
 * lists are walked with borrowed references. Both are safe under the GIL, which a free-threaded
 * interpreter turns on when it imports a module that does not say otherwise, as this one.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_batch_columns.h"
#include "_batch_encode.h"
#include "_batch_gather.h"
#include "_batch_inspect.h"
#include "_batch_layout.h"
#include "_batch_record.h"
#include "_batch_store.h"
#include "_batch_view.h"
#include "_xxh3.h"

/* Below this the work is done in less time than it takes to hand the interpreter over and back. */
enum { RELEASE_GIL_BYTES = 1 << 20 };

/* Run a statement over `bytes` bytes of buffers we hold, without the interpreter lock if large. */
#define RUN_RELEASED(bytes, statement)                                                             \
    do {                                                                                           \
        if ((bytes) >= RELEASE_GIL_BYTES) {                                                        \
            Py_BEGIN_ALLOW_THREADS statement;                                                      \
            Py_END_ALLOW_THREADS                                                                   \
        } else {                                                                                   \
            statement;                                                                             \
        }                                                                                          \
    } while (0)

static int check_arguments(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, %zd given", name, wanted, given);
    return -1;
}

#include "_batch_vsr_functions.h" /* here, because they use the two above */
#include "_batch_rows_functions.h"
#include "_batch_content_functions.h"

/* ---- what a server needs: inspect, stamp, index entries ---------------------------------- */

static PyObject *batch_inspect(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_buffer body;
    if (PyObject_GetBuffer(argument, &body, PyBUF_SIMPLE) < 0)
        return NULL;
    struct shape shape = {0};
    enum status status = inspect_body(body.buf, (size_t)body.len, &shape);
    PyBuffer_Release(&body);
    if (status != GOOD)
        return Py_BuildValue("(iniiiiii)", status, (Py_ssize_t)shape.where, 0, 0, 0, 0, 0, 0);
    return Py_BuildValue("(iinnnnnn)", 0, 0, (Py_ssize_t)shape.count, (Py_ssize_t)shape.topic_at,
                         (Py_ssize_t)shape.partitioning_at, (Py_ssize_t)shape.indexes_at,
                         (Py_ssize_t)shape.messages_at, (Py_ssize_t)shape.missing_ids);
}

static PyObject *batch_gather(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                              Py_ssize_t given)
{
    Py_buffer frames, metadata;
    if (check_arguments("gather", given, 3) < 0)
        return NULL;
    size_t frames_max = PyLong_AsSize_t(arguments[2]);
    if (frames_max == (size_t)-1 && PyErr_Occurred())
        return NULL;
    if (PyObject_GetBuffer(arguments[1], &metadata, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &frames, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&metadata);
        return NULL;
    }
    struct run run = {0};
    gather_run(frames.buf, (size_t)frames.len, metadata.buf, (size_t)metadata.len, frames_max,
               &run);
    PyBuffer_Release(&frames);
    PyBuffer_Release(&metadata);
    return Py_BuildValue("(nnnnn)", (Py_ssize_t)run.frames, (Py_ssize_t)run.consumed,
                         (Py_ssize_t)run.count, (Py_ssize_t)run.missing_ids,
                         (Py_ssize_t)run.message_bytes);
}

static PyObject *stamp_outcome(enum stamp_result result, size_t count)
{
    static const char *const reasons[] = {
        [BROKEN_MESSAGE] = "message %zu does not fit into the bytes given",
        [RANDOM_EXHAUSTED] = "message %zu needs an id, but no random bytes are left",
        [OFFSET_OVERFLOW] = "message %zu: offset does not fit into 64 bits",
    };
    if (result == STAMPED)
        return PyLong_FromSize_t(count);
    return PyErr_Format(PyExc_ValueError, reasons[result], count);
}

static PyObject *batch_stamp(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                             Py_ssize_t given)
{
    struct stamp stamp = {0};
    Py_buffer messages, random;
    if (check_arguments("stamp", given, 4) < 0 ||
        take_u64(arguments[1], "base offset", &stamp.base_offset) < 0 ||
        take_u64(arguments[2], "timestamp", &stamp.timestamp) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[3], &random, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &messages, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&random);
        return NULL;
    }
    stamp.random = random.buf;
    stamp.random_bytes = (size_t)random.len;
    enum stamp_result result;
    RUN_RELEASED(messages.len, result = stamp_messages(&stamp, messages.buf, (size_t)messages.len));
    PyBuffer_Release(&messages);
    PyBuffer_Release(&random);
    return stamp_outcome(result, stamp.count);
}

/* ---- messages back to back: measure, verify, payloads, index entries --------------------- */

/* Count the whole messages and find the last of them; returns the bytes they occupy. */
static size_t find_last_message(const uint8_t *at, size_t size, size_t *count, size_t *last_at)
{
    size_t left = size;
    struct extent extent;
    *last_at = 0;
    for (*count = 0; measure_message(at, left, &extent); ++*count) {
        *last_at = size - left;
        at += extent.size;
        left -= extent.size;
    }
    return size - left;
}

/* Count the whole messages; returns the bytes they occupy. */
static size_t measure_messages(const uint8_t *at, size_t size, size_t *count)
{
    size_t last_at;
    return find_last_message(at, size, count, &last_at);
}

static PyObject *batch_measure(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_buffer messages;
    if (PyObject_GetBuffer(argument, &messages, PyBUF_SIMPLE) < 0)
        return NULL;
    size_t count, last_at;
    size_t bytes = find_last_message(messages.buf, (size_t)messages.len, &count, &last_at);
    PyBuffer_Release(&messages);
    return Py_BuildValue("(nnn)", (Py_ssize_t)count, (Py_ssize_t)bytes, (Py_ssize_t)last_at);
}

/* Find the first message whose checksum does not hold, or that is cut; -1 when there is none. */
static Py_ssize_t verify_messages(const uint8_t *at, size_t left)
{
    for (Py_ssize_t i = 0; left > 0; i++) {
        struct extent extent;
        if (!measure_message(at, left, &extent))
            return i;
        if (xxh3(at + CHECKSUM_BYTES, extent.size - CHECKSUM_BYTES) != load_u64(at))
            return i;
        at += extent.size;
        left -= extent.size;
    }
    return -1;
}

static PyObject *batch_verify(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_buffer messages;
    if (PyObject_GetBuffer(argument, &messages, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t bad;
    RUN_RELEASED(messages.len, bad = verify_messages(messages.buf, (size_t)messages.len));
    PyBuffer_Release(&messages);
    return PyLong_FromSsize_t(bad);
}

static PyObject *refuse_cut_tail(size_t bytes)
{
    return PyErr_Format(PyExc_ValueError, "the last %zu bytes are not a whole message", bytes);
}

static PyObject *copy_payloads(const uint8_t *at, size_t left)
{
    size_t count;
    size_t whole = measure_messages(at, left, &count);
    if (whole < left)
        return refuse_cut_tail(left - whole);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        struct extent extent;
        PyObject *payload = NULL;
        /* Measured again, since the bytes may have changed since the first time. */
        if (measure_message(at, left, &extent))
            payload = PyBytes_FromStringAndSize((const char *)at + HEADER_BYTES,
                                                (Py_ssize_t)extent.payload);
        else
            refuse_cut_tail(left);
        if (payload == NULL) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, payload);
        at += extent.size;
        left -= extent.size;
    }
    return list;
}

static PyObject *batch_payloads(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_buffer messages;
    if (PyObject_GetBuffer(argument, &messages, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *list = copy_payloads(messages.buf, (size_t)messages.len);
    PyBuffer_Release(&messages);
    return list;
}

static PyObject *batch_reading(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    struct module_state *state = PyModule_GetState(module);
    if (check_arguments("reading", given, 5) < 0)
        return NULL;
    PyTypeObject *kind = (PyTypeObject *)arguments[1];
    if (!PyType_Check(arguments[1]) || !PyType_IsSubtype(kind, state->record_type))
        return PyErr_Format(PyExc_TypeError, "records are made of a class of MessageRecord");
    if (!PyList_Check(arguments[4]))
        return PyErr_Format(PyExc_TypeError, "records are kept in a list");
    int opens_plain = PyObject_IsTrue(arguments[3]);
    if (opens_plain < 0)
        return NULL;
    return reading_new(state, arguments[0], kind, arguments[2], opens_plain, arguments[4]);
}

static PyObject *make_entries(const Py_buffer *messages, uint64_t relative_offset,
                              uint64_t position)
{
    size_t count, size = (size_t)messages->len;
    size_t whole = measure_messages(messages->buf, size, &count);
    if (whole < size)
        return refuse_cut_tail(size - whole);
    PyObject *entries = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(count * INDEX_BYTES));
    if (entries == NULL)
        return NULL;
    uint8_t *target = (uint8_t *)PyByteArray_AS_STRING(entries);
    if (relative_offset <= UINT32_MAX && position <= UINT32_MAX &&
        write_entries(target, count, messages->buf, size, relative_offset, position))
        return entries;
    Py_DECREF(entries);
    return PyErr_Format(PyExc_ValueError, "an offset or position does not fit into 32 bits");
}

static PyObject *batch_index_entries(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                     Py_ssize_t given)
{
    uint64_t relative_offset, position;
    Py_buffer messages;
    if (check_arguments("index_entries", given, 3) < 0 ||
        take_u64(arguments[1], "relative offset", &relative_offset) < 0 ||
        take_u64(arguments[2], "position", &position) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &messages, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *entries = make_entries(&messages, relative_offset, position);
    PyBuffer_Release(&messages);
    return entries;
}

/* ---- columns ---------------------------------------------------------------------------- */

/* The fixed columns in their order, then bounds and bytes of payloads and user headers. */
enum { COLUMNS_COUNT = 9, PAIR_COLUMNS_COUNT = 8 };

/* Make bytearrays of these sizes, unset; a negative size makes None. */
static PyObject *make_arrays(const Py_ssize_t *sizes, Py_ssize_t count)
{
    PyObject *arrays = PyTuple_New(count);
    for (Py_ssize_t i = 0; arrays != NULL && i < count; i++) {
        PyObject *array = sizes[i] < 0 ? Py_NewRef(Py_None)
                                       : PyByteArray_FromStringAndSize(NULL, sizes[i]);
        if (array == NULL)
            Py_CLEAR(arrays);
        else
            PyTuple_SET_ITEM(arrays, i, array);
    }
    return arrays;
}

static uint8_t *array_at(PyObject *arrays, Py_ssize_t index)
{
    PyObject *array = PyTuple_GET_ITEM(arrays, index);
    return array == Py_None ? NULL : (uint8_t *)PyByteArray_AS_STRING(array);
}

/* Tell whether bounds of 32 bits reach over so many bytes or values. */
static int check_bounds(const char *what, size_t size)
{
    if (size <= INT32_MAX)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s do not fit into one column: %zu of them", what, size);
    return -1;
}

static PyObject *copy_columns(const Py_buffer *messages, bool has_payloads, bool has_headers)
{
    struct column_sizes sizes = {0};
    size_t rest = measure_columns(messages->buf, (size_t)messages->len, &sizes);
    if (rest > 0)
        return refuse_cut_tail(rest);
    if ((has_payloads && check_bounds("bytes of payloads", sizes.payload_bytes) < 0) ||
        (has_headers && check_bounds("bytes of user headers", sizes.header_bytes) < 0))
        return NULL;
    Py_ssize_t count = (Py_ssize_t)sizes.count;
    const Py_ssize_t widths[COLUMNS_COUNT] = {
        8 * count,
        8 * count,
        8 * count,
        ID_BYTES * count,
        8 * count,
        has_payloads ? 4 * (count + 1) : -1,
        has_payloads ? (Py_ssize_t)sizes.payload_bytes : -1,
        has_headers ? 4 * (count + 1) : -1,
        has_headers ? (Py_ssize_t)sizes.header_bytes : -1,
    };
    PyObject *arrays = make_arrays(widths, COLUMNS_COUNT);
    if (arrays == NULL)
        return NULL;
    const struct columns columns = {
        array_at(arrays, 0), array_at(arrays, 1), array_at(arrays, 2),
        array_at(arrays, 3), array_at(arrays, 4), array_at(arrays, 5),
        array_at(arrays, 6), array_at(arrays, 7), array_at(arrays, 8),
    };
    bool is_filled;
    RUN_RELEASED(messages->len, is_filled = fill_columns(&columns, &sizes, messages->buf,
                                                         (size_t)messages->len));
    if (is_filled)
        return arrays;
    Py_DECREF(arrays);
    return refuse_changed();
}

static PyObject *batch_columns(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                               Py_ssize_t given)
{
    Py_buffer messages;
    if (check_arguments("columns", given, 3) < 0)
        return NULL;
    int has_payloads = PyObject_IsTrue(arguments[1]), has_headers = PyObject_IsTrue(arguments[2]);
    if (has_payloads < 0 || has_headers < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &messages, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *columns = copy_columns(&messages, has_payloads, has_headers);
    PyBuffer_Release(&messages);
    return columns;
}

static PyObject *refuse_bounds(size_t index)
{
    return PyErr_Format(PyExc_ValueError, "bounds %zu are not those of a block", index);
}

/* Copy the pairs of all blocks whose measure found them readable. */
static PyObject *fill_all_pairs(PyObject *arrays, const struct pair_sizes *sizes,
                                const Py_buffer *bounds, const Py_buffer *blocks,
                                const uint8_t *readable, size_t count)
{
    struct pairs pairs = {
        array_at(arrays, 0), array_at(arrays, 1), array_at(arrays, 2), array_at(arrays, 3),
        array_at(arrays, 4), array_at(arrays, 5), array_at(arrays, 6), array_at(arrays, 7),
        {0},
    };
    put_bound(pairs.pair_bounds, 0, 0);
    put_bound(pairs.key_bounds, 0, 0);
    put_bound(pairs.value_bounds, 0, 0);
    memcpy(pairs.readable, readable, count);
    for (size_t i = 0; i < count; i++) {
        size_t start, size;
        if (readable[i] && (!find_block(bounds->buf, i, (size_t)blocks->len, &start, &size) ||
                            !fill_pairs(&pairs, sizes, (const uint8_t *)blocks->buf + start, size)))
            return refuse_changed();
        put_bound(pairs.pair_bounds, i + 1, pairs.used.count);
    }
    return pairs.used.count == sizes->count ? arrays : refuse_changed();
}

static PyObject *split_pairs(const Py_buffer *bounds, const Py_buffer *blocks)
{
    if (bounds->len < 4 || bounds->len % 4 != 0)
        return PyErr_Format(PyExc_ValueError, "the bounds are not whole numbers of 32 bits");
    size_t count = (size_t)bounds->len / 4 - 1;
    struct pair_sizes sizes = {0};
    PyObject *marks = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count);
    if (marks == NULL)
        return NULL;
    uint8_t *readable = (uint8_t *)PyBytes_AS_STRING(marks);
    for (size_t i = 0; i < count; i++) {
        size_t start, size;
        if (!find_block(bounds->buf, i, (size_t)blocks->len, &start, &size)) {
            Py_DECREF(marks);
            return refuse_bounds(i);
        }
        readable[i] = measure_pairs((const uint8_t *)blocks->buf + start, size, &sizes);
    }
    Py_ssize_t pairs = (Py_ssize_t)sizes.count;
    const Py_ssize_t widths[PAIR_COLUMNS_COUNT] = {
        (Py_ssize_t)bounds->len,  (Py_ssize_t)count, pairs, 4 * (pairs + 1),
        (Py_ssize_t)sizes.key_bytes, pairs, 4 * (pairs + 1), (Py_ssize_t)sizes.value_bytes,
    };
    PyObject *arrays = NULL, *filled = NULL;
    if (check_bounds("bytes of header values", sizes.value_bytes) == 0 &&
        check_bounds("bytes of header keys", sizes.key_bytes) == 0)
        arrays = make_arrays(widths, PAIR_COLUMNS_COUNT);
    if (arrays != NULL)
        filled = fill_all_pairs(arrays, &sizes, bounds, blocks, readable, count);
    if (filled == NULL)
        Py_XDECREF(arrays);
    Py_DECREF(marks);
    return filled;
}

static PyObject *batch_header_pairs(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                    Py_ssize_t given)
{
    Py_buffer bounds, blocks;
    if (check_arguments("header_pairs", given, 2) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &bounds, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[1], &blocks, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&bounds);
        return NULL;
    }
    PyObject *pairs = split_pairs(&bounds, &blocks);
    PyBuffer_Release(&blocks);
    PyBuffer_Release(&bounds);
    return pairs;
}

/* ---- the other functions of the module -------------------------------------------------- */

static PyObject *batch_checksum(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_buffer data;
    if (PyObject_GetBuffer(argument, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    uint64_t hash;
    RUN_RELEASED(data.len, hash = xxh3(data.buf, (size_t)data.len));
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLongLong(hash);
}

static PyObject *batch_encode(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                              Py_ssize_t given)
{
    struct batch batch = {.format = &CLASSIC_BODY};
    Py_buffer metadata;
    if (check_arguments("encode", given, 4) < 0 ||
        take_u64(arguments[2], "origin timestamp", &batch.origin_timestamp) < 0 ||
        take_headroom(arguments[3], &batch.headroom) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[0], &metadata, PyBUF_SIMPLE) < 0)
        return NULL;
    batch.metadata = metadata.buf;
    batch.metadata_bytes = (size_t)metadata.len;
    PyObject *body = encode_messages(&batch, arguments[1]);
    PyBuffer_Release(&metadata);
    return body;
}

static PyObject *batch_allocate(PyObject *Py_UNUSED(module), PyObject *argument)
{
    if (!PyLong_Check(argument))
        return PyErr_Format(PyExc_TypeError, "size must be an integer, not %s",
                            Py_TYPE(argument)->tp_name);
    Py_ssize_t size = PyLong_AsSsize_t(argument);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    if (size < 0)
        return PyErr_Format(PyExc_ValueError, "size must not be negative");
    return PyByteArray_FromStringAndSize(NULL, size);
}

static PyObject *batch_walk(PyObject *module, PyObject *argument)
{
    return walk_new(PyModule_GetState(module), argument);
}

static PyObject *batch_available_levels(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    size_t count = xxh3_levels_here();
    PyObject *names = PyTuple_New((Py_ssize_t)count);
    for (size_t i = 0; names != NULL && i < count; i++) {
        PyObject *name = PyUnicode_FromString(XXH3_LEVELS[i].name);
        if (name == NULL)
            Py_CLEAR(names);
        else
            PyTuple_SET_ITEM(names, (Py_ssize_t)i, name);
    }
    return names;
}

static PyObject *batch_use(PyObject *Py_UNUSED(module), PyObject *argument)
{
    const char *name = PyUnicode_AsUTF8(argument);
    if (name == NULL)
        return NULL;
    for (size_t i = 0; i < xxh3_levels_here(); i++) {
        if (strcmp(XXH3_LEVELS[i].name, name) == 0) {
            xxh3_long = XXH3_LEVELS[i].function;
            Py_RETURN_NONE;
        }
    }
    return PyErr_Format(PyExc_ValueError, "this processor has no level %R", argument);
}

/* ---- module ----------------------------------------------------------------------------- */

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef batch_methods[] = {
    {"checksum", batch_checksum, METH_O,
     PyDoc_STR("checksum($module, data, /)\n--\n\nXXH3-64 with seed 0 and the default secret.")},
    {"encode", FAST(batch_encode), METH_FASTCALL,
     PyDoc_STR("encode($module, metadata, messages, origin_timestamp_us, headroom, /)\n--\n\n"
               "Build a request body: headroom, metadata, index entries, messages.")},
    {"inspect", batch_inspect, METH_O,
     PyDoc_STR("inspect($module, body, /)\n--\n\nCheck a SendMessages body and find its parts.")},
    {"gather", FAST(batch_gather), METH_FASTCALL,
     PyDoc_STR("gather($module, frames, metadata, frames_max, /)\n--\n\n"
               "Move the messages of a run of SendMessages frames together.")},
    {"stamp", FAST(batch_stamp), METH_FASTCALL,
     PyDoc_STR("stamp($module, messages, base_offset, timestamp_us, random, /)\n--\n\n"
               "Write offsets, timestamp, missing ids and checksums in place.")},
    {"index_entries", FAST(batch_index_entries), METH_FASTCALL,
     PyDoc_STR("index_entries($module, messages, relative_offset, position, /)\n--\n\n"
               "Make the stored index entries of messages appended at a position.")},
    {"measure", batch_measure, METH_O,
     PyDoc_STR("measure($module, messages, /)\n--\n\n"
               "Count whole messages and their bytes, and find the last.")},
    {"verify", batch_verify, METH_O,
     PyDoc_STR("verify($module, messages, /)\n--\n\nFind the first bad message, or -1.")},
    {"payloads", batch_payloads, METH_O,
     PyDoc_STR("payloads($module, messages, /)\n--\n\nCopy all payloads.")},
    {"reading", FAST(batch_reading), METH_FASTCALL,
     PyDoc_STR("reading($module, messages, kind, source, opens_plain, kept, /)\n--\n\n"
               "Iterate over records of the messages.")},
    {"columns", FAST(batch_columns), METH_FASTCALL,
     PyDoc_STR("columns($module, messages, payloads, user_headers, /)\n--\n\n"
               "Copy the messages into one array per field.")},
    {"header_pairs", FAST(batch_header_pairs), METH_FASTCALL,
     PyDoc_STR("header_pairs($module, bounds, blocks, /)\n--\n\n"
               "Split blocks of user headers into columns of keys and values.")},
    {"classic_send", FAST(batch_classic_send), METH_FASTCALL,
     PyDoc_STR("classic_send($module, body, producers_allowed, /)\n--\n\n"
               "Check the body of a send of 0.9 and write its classic form.")},
    {"classic_records", FAST(batch_classic_records), METH_FASTCALL,
     PyDoc_STR("classic_records($module, batches, producers_allowed, verify, /)\n--\n\n"
               "Write the records of polled batches.")},
    {"vsr_batches", FAST(batch_vsr_batches), METH_FASTCALL,
     PyDoc_STR("vsr_batches($module, records, partition_id, bytes_max, verify, /)\n--\n\n"
               "Write stored records as batches.")},
    {"encode_vsr", FAST(batch_encode_vsr), METH_FASTCALL,
     PyDoc_STR("encode_vsr($module, metadata, messages, origin_timestamp_us, headroom, random, "
               "producer, /)\n--\n\n"
               "Build a request body of 0.9: headroom, metadata, one batch.")},
    {"gather_vsr", FAST(batch_gather_vsr), METH_FASTCALL,
     PyDoc_STR("gather_vsr($module, frames, head, metadata, frames_max, /)\n--\n\n"
               "Move the messages of a run of sends of 0.9 together, as classic ones.")},
    {"confirmations", FAST(batch_confirmations), METH_FASTCALL,
     PyDoc_STR("confirmations($module, first, numbers, counts, /)\n--\n\n"
               "Write the replies to a run of sends of 0.9.")},
    {"encode_rows", FAST(batch_encode_rows), METH_FASTCALL,
     PyDoc_STR("encode_rows($module, metadata, rows, origin_timestamp_us, headroom, /)\n--\n\n"
               "Build a request body of rows in columns.")},
    {"encode_rows_vsr", FAST(batch_encode_rows_vsr), METH_FASTCALL,
     PyDoc_STR("encode_rows_vsr($module, metadata, rows, origin_timestamp_us, headroom, random, "
               "producer, /)\n--\n\n"
               "Build a request body of 0.9 of rows in columns.")},
    {"message_at", FAST(batch_message_at), METH_FASTCALL,
     PyDoc_STR("message_at($module, rows, index, /)\n--\n\n"
               "Copy one of the rows: payload, id, user headers, origin timestamp.")},
    {"split_rows", FAST(batch_split_rows), METH_FASTCALL,
     PyDoc_STR("split_rows($module, rows, count_max, bytes_max, overhead, /)\n--\n\n"
               "Divide rows among requests.")},
    {"row_partitions", FAST(batch_row_partitions), METH_FASTCALL,
     PyDoc_STR("row_partitions($module, count, keys, ids, partitions_count, otherwise, /)\n--\n\n"
               "Choose a partition for each row.")},
    {"group_rows", FAST(batch_group_rows), METH_FASTCALL,
     PyDoc_STR("group_rows($module, partitions, partitions_count, /)\n--\n\n"
               "Put the rows of each partition together, in their order.")},
    {"header_blocks", FAST(batch_header_blocks), METH_FASTCALL,
     PyDoc_STR("header_blocks($module, count, keys, key_kind, pairs, first_row, /)\n--\n\n"
               "Write the user headers of rows.")},
    {"allocate", batch_allocate, METH_O,
     PyDoc_STR("allocate($module, size, /)\n--\n\nMake a bytearray of unset bytes.")},
    {"walk", batch_walk, METH_O,
     PyDoc_STR("walk($module, messages, /)\n--\n\nIterate over views of the messages.")},
    {"available_levels", batch_available_levels, METH_NOARGS,
     PyDoc_STR("available_levels($module, /)\n--\n\nName the checksum loops this processor runs.")},
    {"_use", batch_use, METH_O,
     PyDoc_STR("_use($module, level, /)\n--\n\nForce one checksum loop; for tests.")},
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type == NULL ? -1 : 0;
}

static int batch_exec(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);
    xxh3_long = XXH3_LEVELS[xxh3_levels_here() - 1].function;
    state->read_payload = PyUnicode_InternFromString("_read_payload");
    if (state->read_payload == NULL)
        return -1;
    if (add_type(module, &owner_spec, &state->owner_type) < 0 ||
        add_type(module, &view_spec, &state->view_type) < 0 ||
        add_type(module, &record_spec, &state->record_type) < 0 ||
        add_type(module, &reading_spec, &state->reading_type) < 0 ||
        add_type(module, &walk_spec, &state->walk_type) < 0 ||
        add_type(module, &content_ids_spec, &state->content_ids_type) < 0)
        return -1;
    if (PyModule_AddType(module, state->content_ids_type) < 0)
        return -1;
    if (PyModule_AddType(module, state->record_type) < 0)
        return -1;
    return PyModule_AddType(module, state->view_type);
}

static int batch_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct module_state *state = PyModule_GetState(module);
    Py_VISIT(state->owner_type);
    Py_VISIT(state->view_type);
    Py_VISIT(state->record_type);
    Py_VISIT(state->reading_type);
    Py_VISIT(state->walk_type);
    Py_VISIT(state->content_ids_type);
    return 0;
}

static int batch_clear(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->owner_type);
    Py_CLEAR(state->view_type);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->reading_type);
    Py_CLEAR(state->walk_type);
    Py_CLEAR(state->content_ids_type);
    Py_CLEAR(state->read_payload);
    return 0;
}

static void batch_free(void *module)
{
    batch_clear((PyObject *)module);
}

static PyModuleDef_Slot batch_slots[] = {
    {Py_mod_exec, batch_exec},
    {0, NULL},
};

static struct PyModuleDef batch_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "iggy_protocol._batch",
    .m_doc = "The batch work in C; batch_python.py is its twin.",
    .m_size = sizeof(struct module_state),
    .m_methods = batch_methods,
    .m_slots = batch_slots,
    .m_traverse = batch_traverse,
    .m_clear = batch_clear,
    .m_free = batch_free,
};

PyMODINIT_FUNC PyInit__batch(void)
{
    return PyModuleDef_Init(&batch_module);
}
