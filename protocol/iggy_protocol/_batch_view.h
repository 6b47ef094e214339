/*
 * A part of _batch.c, which includes it: MessageView and walk(): messages read in place.
 *
 *   MessageView --> memoryview --> BufferOwner --> the caller's bytes, bytearray, memoryview ...
 *   walk        --^
 *
 * The owner holds the one real buffer export, so that the caller cannot resize what a view looks
 * at. It re-exports the bytes read-only; the memoryview over it is shared by the
 * walk and all its views, and payloads are slices of it.
 *
 * None of the three types has a tp_clear: they never change after creation, and a reference cycle
 * can only close through the exporter, which can break it. A view is traced by the garbage
 * collector only when the exporter is, since bytes and bytearrays cannot be part of a cycle.
 */
#ifndef IGGY_BATCH_VIEW_H
#define IGGY_BATCH_VIEW_H

#include "_batch_layout.h"
#include "_xxh3.h"
#include <Python.h>

struct module_state {
    PyTypeObject *owner_type;
    PyTypeObject *view_type;
    PyTypeObject *record_type;
    PyTypeObject *reading_type;
    PyTypeObject *walk_type;
    PyTypeObject *content_ids_type;
    PyObject *read_payload; /* the name of a method; a new text each time would fill type caches */
};

static struct PyModuleDef batch_module; /* defined where all its functions are known */

/* The end of every object here; its heap type is alive at least as long as itself. */
static void free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* ---- BufferOwner ------------------------------------------------------------------------ */

struct owner {
    PyObject_HEAD
    Py_buffer source;
};

static int owner_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct owner *owner = (struct owner *)self;
    return PyBuffer_FillInfo(view, self, owner->source.buf, owner->source.len, 1, flags);
}

/*
 * A memoryview is not visited: CPython's collector crashes when it clears one that is exported.
 * Unvisited, it counts as used from outside and is freed after us.
 */
static int owner_traverse(PyObject *self, visitproc visit, void *arg)
{
    PyObject *exporter = ((struct owner *)self)->source.obj;
    Py_VISIT(Py_TYPE(self));
    if (exporter != NULL && !PyMemoryView_Check(exporter))
        Py_VISIT(exporter);
    return 0;
}

/* A payload may hold messages in its turn; the trashcan keeps a long chain off the stack. */
static void owner_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, owner_dealloc)
    PyBuffer_Release(&((struct owner *)self)->source);
    free_object(self);
    Py_TRASHCAN_END
}

static PyType_Slot owner_slots[] = {
    {Py_bf_getbuffer, owner_getbuffer},
    {Py_tp_traverse, owner_traverse},
    {Py_tp_dealloc, owner_dealloc},
    {0, NULL},
};

static PyType_Spec owner_spec = {
    .name = "iggy_protocol._batch._BufferOwner",
    .basicsize = sizeof(struct owner),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = owner_slots,
};

/* Make the read-only memoryview through which views look at `exporter`. */
static PyObject *open_memory(struct module_state *state, PyObject *exporter)
{
    struct owner *owner = PyObject_GC_New(struct owner, state->owner_type);
    if (owner == NULL)
        return NULL;
    owner->source.obj = NULL;
    if (PyObject_GetBuffer(exporter, &owner->source, PyBUF_SIMPLE) < 0) {
        Py_DECREF(owner);
        return NULL;
    }
    PyObject_GC_Track((PyObject *)owner);
    PyObject *memory = PyMemoryView_FromObject((PyObject *)owner);
    Py_DECREF(owner);
    return memory;
}

/* ---- MessageView ------------------------------------------------------------------------ */

struct view {
    PyObject_HEAD
    PyObject *memory;    /* memoryview over all messages */
    const uint8_t *data; /* this message inside it */
    struct extent extent; /* read once: the bytes may change, the bounds must not */
};

static PyObject *view_new(PyTypeObject *type, PyObject *memory, const uint8_t *data,
                          const struct extent *extent, bool is_traced)
{
    /* First of all, because the allocation may collect garbage, and a finalizer end the walk. */
    Py_INCREF(memory);
    struct view *view = PyObject_GC_New(struct view, type);
    if (view == NULL) {
        Py_DECREF(memory);
        return NULL;
    }
    view->memory = memory;
    view->data = data;
    view->extent = *extent;
    if (is_traced)
        PyObject_GC_Track((PyObject *)view);
    return (PyObject *)view;
}

static int view_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct view *)self)->memory);
    return 0;
}

static void view_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_DECREF(((struct view *)self)->memory);
    free_object(self);
}

/* One getter serves all u64 fields; the closure is the field's place in the header. */
static PyObject *view_get_u64(PyObject *self, void *at)
{
    return PyLong_FromUnsignedLongLong(load_u64(((struct view *)self)->data + (uintptr_t)at));
}

static PyObject *view_get_id(PyObject *self, void *Py_UNUSED(closure))
{
    const uint8_t *id = ((struct view *)self)->data + AT_ID;
#if PY_VERSION_HEX >= 0x030D0000
    return PyLong_FromUnsignedNativeBytes(id, 16, Py_ASNATIVEBYTES_LITTLE_ENDIAN);
#else
    return _PyLong_FromByteArray(id, 16, 1, 0);
#endif
}

static PyObject *view_slice(struct view *view, size_t start, size_t size)
{
    const uint8_t *base = PyMemoryView_GET_BUFFER(view->memory)->buf;
    Py_ssize_t first = view->data - base + (Py_ssize_t)start;
    return PySequence_GetSlice(view->memory, first, first + (Py_ssize_t)size);
}

static PyObject *view_get_payload(PyObject *self, void *Py_UNUSED(closure))
{
    struct view *view = (struct view *)self;
    return view_slice(view, HEADER_BYTES, view->extent.payload);
}

static PyObject *view_get_user_headers(PyObject *self, void *Py_UNUSED(closure))
{
    struct view *view = (struct view *)self;
    return view_slice(view, HEADER_BYTES + view->extent.payload, view->extent.headers);
}

static PyObject *view_get_size(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((struct view *)self)->extent.size);
}

static PyObject *view_is_intact(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    struct view *view = (struct view *)self;
    uint64_t found = xxh3(view->data + CHECKSUM_BYTES, view->extent.size - CHECKSUM_BYTES);
    return PyBool_FromLong(found == load_u64(view->data));
}

static PyObject *view_repr(PyObject *self)
{
    struct view *view = (struct view *)self;
    PyObject *id = view_get_id(self, NULL);
    if (id == NULL)
        return NULL;
    PyObject *text = PyUnicode_FromFormat(
        "<MessageView offset=%llu id=%S timestamp_us=%llu payload=%zu bytes "
        "user_headers=%zu bytes>",
        (unsigned long long)load_u64(view->data + AT_OFFSET), id,
        (unsigned long long)load_u64(view->data + AT_TIMESTAMP), view->extent.payload,
        view->extent.headers);
    Py_DECREF(id);
    return text;
}

static PyGetSetDef view_getset[] = {
    {"checksum", view_get_u64, NULL, "XXH3-64 over the rest of the message", (void *)0},
    {"id", view_get_id, NULL, "128-bit id", NULL},
    {"offset", view_get_u64, NULL, "offset in the partition", (void *)AT_OFFSET},
    {"timestamp_us", view_get_u64, NULL, "server clock on append", (void *)AT_TIMESTAMP},
    {"origin_timestamp_us", view_get_u64, NULL, "producer's clock", (void *)AT_ORIGIN_TIMESTAMP},
    {"payload", view_get_payload, NULL, "read-only memoryview, no copy", NULL},
    {"user_headers", view_get_user_headers, NULL, "read-only memoryview, no copy", NULL},
    {"size", view_get_size, NULL, "bytes of the whole message", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef view_methods[] = {
    {"is_intact", view_is_intact, METH_NOARGS,
     PyDoc_STR("is_intact($self, /)\n--\n\nTell whether the checksum holds.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot view_slots[] = {
    {Py_tp_doc, "One message, read in place; made by walk()."},
    {Py_tp_traverse, view_traverse},
    {Py_tp_dealloc, view_dealloc},
    {Py_tp_repr, view_repr},
    {Py_tp_getset, view_getset},
    {Py_tp_methods, view_methods},
    {0, NULL},
};

static PyType_Spec view_spec = {
    .name = "iggy_protocol._batch.MessageView",
    .basicsize = sizeof(struct view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = view_slots,
};

/* ---- walk ------------------------------------------------------------------------------- */

struct walk {
    PyObject_HEAD
    PyObject *memory; /* NULL once the walk has ended, so that the export ends with it */
    PyTypeObject *view_type;
    const uint8_t *at;
    size_t left;
    bool is_traced;
};

static PyObject *walk_new(struct module_state *state, PyObject *exporter)
{
    PyObject *memory = open_memory(state, exporter);
    if (memory == NULL)
        return NULL;
    struct walk *walk = PyObject_GC_New(struct walk, state->walk_type);
    if (walk == NULL) {
        Py_DECREF(memory);
        return NULL;
    }
    const Py_buffer *buffer = PyMemoryView_GET_BUFFER(memory);
    walk->memory = memory;
    walk->view_type = state->view_type;
    Py_INCREF(walk->view_type);
    walk->at = buffer->buf;
    walk->left = (size_t)buffer->len;
    walk->is_traced = PyObject_IS_GC(exporter);
    PyObject_GC_Track((PyObject *)walk);
    return (PyObject *)walk;
}

/* Hand out the next view; NULL without an error ends the walk, ValueError tells of a cut tail. */
static PyObject *walk_next(PyObject *self)
{
    struct walk *walk = (struct walk *)self;
    struct extent extent;
    if (walk->memory == NULL)
        return NULL;
    if (measure_message(walk->at, walk->left, &extent)) {
        const uint8_t *data = walk->at;
        walk->at += extent.size;
        walk->left -= extent.size;
        return view_new(walk->view_type, walk->memory, data, &extent, walk->is_traced);
    }
    if (walk->left > 0)
        PyErr_Format(PyExc_ValueError, "the last %zu bytes are not a whole message", walk->left);
    Py_CLEAR(walk->memory);
    return NULL;
}

static int walk_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct walk *)self)->view_type);
    Py_VISIT(((struct walk *)self)->memory);
    return 0;
}

static void walk_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((struct walk *)self)->memory);
    Py_DECREF(((struct walk *)self)->view_type);
    free_object(self);
}

static PyType_Slot walk_slots[] = {
    {Py_tp_traverse, walk_traverse},
    {Py_tp_dealloc, walk_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, walk_next},
    {0, NULL},
};

static PyType_Spec walk_spec = {
    .name = "iggy_protocol._batch._Walk",
    .basicsize = sizeof(struct walk),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = walk_slots,
};

#endif
