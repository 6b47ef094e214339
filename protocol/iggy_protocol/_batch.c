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
 *   this file         the functions as Python sees them, and the module
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_batch_encode.h"
#include "_batch_gather.h"
#include "_batch_inspect.h"
#include "_batch_layout.h"
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

/* Count the whole messages; returns the bytes they occupy. */
static size_t measure_messages(const uint8_t *at, size_t size, size_t *count)
{
    size_t left = size;
    struct extent extent;
    for (*count = 0; measure_message(at, left, &extent); ++*count) {
        at += extent.size;
        left -= extent.size;
    }
    return size - left;
}

static PyObject *batch_measure(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_buffer messages;
    if (PyObject_GetBuffer(argument, &messages, PyBUF_SIMPLE) < 0)
        return NULL;
    size_t count;
    size_t bytes = measure_messages(messages.buf, (size_t)messages.len, &count);
    PyBuffer_Release(&messages);
    return Py_BuildValue("(nn)", (Py_ssize_t)count, (Py_ssize_t)bytes);
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

/* ---- the rest of the door --------------------------------------------------------------- */

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
    struct batch batch = {0};
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
     PyDoc_STR("measure($module, messages, /)\n--\n\nCount whole messages and their bytes.")},
    {"verify", batch_verify, METH_O,
     PyDoc_STR("verify($module, messages, /)\n--\n\nFind the first bad message, or -1.")},
    {"payloads", batch_payloads, METH_O,
     PyDoc_STR("payloads($module, messages, /)\n--\n\nCopy all payloads.")},
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
    if (add_type(module, &owner_spec, &state->owner_type) < 0 ||
        add_type(module, &view_spec, &state->view_type) < 0 ||
        add_type(module, &walk_spec, &state->walk_type) < 0)
        return -1;
    return PyModule_AddType(module, state->view_type);
}

static int batch_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct module_state *state = PyModule_GetState(module);
    Py_VISIT(state->owner_type);
    Py_VISIT(state->view_type);
    Py_VISIT(state->walk_type);
    return 0;
}

static int batch_clear(PyObject *module)
{
    struct module_state *state = PyModule_GetState(module);
    Py_CLEAR(state->owner_type);
    Py_CLEAR(state->view_type);
    Py_CLEAR(state->walk_type);
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
