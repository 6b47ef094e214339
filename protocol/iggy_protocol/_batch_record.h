/*
 * A part of _batch.c, which includes it.
 *
 * MessageRecord: a message read in place, for readers' own classes of messages to derive from.
 *
 *   Python class --> MessageRecord --> what a view holds, the source, two places for the reader
 *
 * A batch of a thousand messages is a thousand objects, and making those takes longer than all the
 * rest of a poll unless one allocation each is the whole of it. So everything that a reader
 * remembers of a message has its place in here, and its class adds nothing but methods. And most
 * are read once and dropped: `reading` then uses the same few objects again.
 *
 * Unlike a view a record can be part of a cycle, by its source and by what is remembered. Those can
 * be cleared; the memory cannot, because `data` points into it.
 */
#ifndef IGGY_BATCH_RECORD_H
#define IGGY_BATCH_RECORD_H

#include "_batch_view.h"
#include <structmember.h>

static struct module_state *state_of(PyTypeObject *type)
{
    return PyModule_GetState(PyType_GetModuleByDef(type, &batch_module));
}

struct record {
    struct view view; /* first, so that the getters of views serve records too */
    PyObject *source;
    PyObject *opened;
    PyObject *value;
    char opens_plain;
};

/* Make a record of a message in `memory`. */
static PyObject *record_new(PyTypeObject *type, PyObject *memory, const uint8_t *data,
                            const struct extent *extent)
{
    /* First of all, because the allocation may collect garbage, and a finalizer end a reading. */
    Py_INCREF(memory);
    struct record *record = (struct record *)type->tp_alloc(type, 0);
    if (record == NULL) {
        Py_DECREF(memory);
        return NULL;
    }
    record->view.memory = memory;
    record->view.data = data;
    record->view.extent = *extent;
    return (PyObject *)record;
}

/*
 * Make a record of the message that a view or another record looks at. Other arguments are those
 * of a derived class, whose __init__ takes them.
 */
static PyObject *record_from_view(PyTypeObject *type, PyObject *arguments,
                                  PyObject *Py_UNUSED(keywords))
{
    struct module_state *state = state_of(type);
    PyObject *given = PyTuple_GET_SIZE(arguments) > 0 ? PyTuple_GET_ITEM(arguments, 0) : Py_None;
    if (!Py_IS_TYPE(given, state->view_type) && !PyObject_TypeCheck(given, state->record_type))
        return PyErr_Format(PyExc_TypeError, "a record is made of a MessageView, not of %s",
                            Py_TYPE(given)->tp_name);
    const struct view *view = (const struct view *)given;
    return record_new(type, view->memory, view->data, &view->extent);
}

static int record_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct record *record = (struct record *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(record->view.memory);
    Py_VISIT(record->source);
    Py_VISIT(record->opened);
    Py_VISIT(record->value);
    return 0;
}

static int record_clear(PyObject *self)
{
    struct record *record = (struct record *)self;
    Py_CLEAR(record->source);
    Py_CLEAR(record->opened);
    Py_CLEAR(record->value);
    return 0;
}

/* What is remembered may lead to further records; the trashcan keeps a long chain off the stack. */
static void record_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, record_dealloc)
    record_clear(self);
    Py_XDECREF(((struct record *)self)->view.memory);
    free_object(self);
    Py_TRASHCAN_END
}

static bool record_is_plain(const struct record *record)
{
    return record->opens_plain && record->view.extent.headers == 0;
}

static PyObject *record_get_is_plain(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(record_is_plain((struct record *)self));
}

static PyObject *record_get_raw_payload(PyObject *self, void *Py_UNUSED(closure))
{
    const struct view *view = (const struct view *)self;
    return PyBytes_FromStringAndSize((const char *)view->data + HEADER_BYTES,
                                     (Py_ssize_t)view->extent.payload);
}

static PyObject *record_get_payload(PyObject *self, void *Py_UNUSED(closure))
{
    if (record_is_plain((struct record *)self))
        return record_get_raw_payload(self, NULL);
    return PyObject_CallMethodNoArgs(self, state_of(Py_TYPE(self))->read_payload);
}

static PyObject *record_get_raw_user_headers(PyObject *self, void *Py_UNUSED(closure))
{
    const struct view *view = (const struct view *)self;
    return PyBytes_FromStringAndSize((const char *)view->data + HEADER_BYTES + view->extent.payload,
                                     (Py_ssize_t)view->extent.headers);
}

static PyObject *record_read_payload(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return record_get_raw_payload(self, NULL);
}

static PyGetSetDef record_getset[] = {
    {"checksum", view_get_u64, NULL, "XXH3-64 over the rest of the message.", (void *)0},
    {"id", view_get_id, NULL, "128-bit id.", NULL},
    {"offset", view_get_u64, NULL, "Offset in the partition.", (void *)AT_OFFSET},
    {"timestamp_us", view_get_u64, NULL, "Server clock on append.", (void *)AT_TIMESTAMP},
    {"origin_timestamp_us", view_get_u64, NULL, "Producer's clock.", (void *)AT_ORIGIN_TIMESTAMP},
    {"size", view_get_size, NULL, "Bytes of the whole message.", NULL},
    {"payload", record_get_payload, NULL,
     "The payload; a copy if the message is plain, else what ``_read_payload`` returns.", NULL},
    {"raw_payload", record_get_raw_payload, NULL, "A copy of the payload as it lies there.", NULL},
    {"raw_user_headers", record_get_raw_user_headers, NULL,
     "A copy of the user headers as they lie there.", NULL},
    {"_is_plain", record_get_is_plain, NULL,
     "Whether the source opens plain messages, and this one has no user headers.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef record_members[] = {
    {"_source", T_OBJECT, offsetof(struct record, source), 0, NULL},
    {"_opened", T_OBJECT, offsetof(struct record, opened), 0, NULL},
    {"_value", T_OBJECT, offsetof(struct record, value), 0, NULL},
    {"_opens_plain", T_BOOL, offsetof(struct record, opens_plain), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef record_methods[] = {
    {"_read_payload", record_read_payload, METH_NOARGS,
     PyDoc_STR("_read_payload($self, /)\n--\n\nRead the payload of a message that is not plain.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot record_slots[] = {
    {Py_tp_doc, "One message of a batch, to derive a reader's own class from."},
    {Py_tp_new, record_from_view},
    {Py_tp_traverse, record_traverse},
    {Py_tp_clear, record_clear},
    {Py_tp_dealloc, record_dealloc},
    {Py_tp_getset, record_getset},
    {Py_tp_members, record_members},
    {Py_tp_methods, record_methods},
    {0, NULL},
};

static PyType_Spec record_spec = {
    .name = "iggy_protocol._batch.MessageRecord",
    .basicsize = sizeof(struct record),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = record_slots,
};

/* ---- reading ----------------------------------------------------------------------------- */

/* How far behind a record may be taken again: the last one is still in the reader's variable. */
enum { READ_BEHIND = 2 };

struct reading {
    PyObject_HEAD
    PyObject *memory; /* NULL once the reading has ended, as that of a walk */
    PyTypeObject *kind;
    PyObject *source;
    PyObject *kept; /* a list with a place for every message, None where there is no record */
    const uint8_t *at;
    size_t left;
    Py_ssize_t index;
    char opens_plain;
};

static PyObject *reading_new(struct module_state *state, PyObject *exporter, PyTypeObject *kind,
                             PyObject *source, int opens_plain, PyObject *kept)
{
    PyObject *memory = open_memory(state, exporter);
    if (memory == NULL)
        return NULL;
    struct reading *reading = PyObject_GC_New(struct reading, state->reading_type);
    if (reading == NULL) {
        Py_DECREF(memory);
        return NULL;
    }
    const Py_buffer *buffer = PyMemoryView_GET_BUFFER(memory);
    reading->memory = memory;
    reading->kind = (PyTypeObject *)Py_NewRef(kind);
    reading->source = Py_NewRef(source);
    reading->kept = Py_NewRef(kept);
    reading->at = buffer->buf;
    reading->left = (size_t)buffer->len;
    reading->index = 0;
    reading->opens_plain = (char)opens_plain;
    PyObject_GC_Track((PyObject *)reading);
    return (PyObject *)reading;
}

/* Tell what is kept at a place; a borrowed reference, or NULL if there is no such place. */
static PyObject *reading_kept(const struct reading *reading, Py_ssize_t index)
{
    if (index < 0 || index >= PyList_GET_SIZE(reading->kept))
        return NULL;
    return PyList_GET_ITEM(reading->kept, index);
}

/* Tell whether only the list has a record of this reading, and nothing is remembered in it. */
static bool reading_may_reuse(const struct reading *reading, PyObject *item)
{
    /* A class with places of its own is left alone. */
    if (item == NULL || Py_REFCNT(item) != 1 || !Py_IS_TYPE(item, reading->kind) ||
        reading->kind->tp_basicsize != (Py_ssize_t)sizeof(struct record))
        return false;
    const struct record *record = (const struct record *)item;
    return record->opened == NULL && record->value == NULL &&
           record->source == reading->source && record->view.memory == reading->memory;
}

/* Make the record of a message, of one that was read and dropped if there is one. */
static PyObject *reading_make(struct reading *reading, Py_ssize_t index, const uint8_t *data,
                              const struct extent *extent)
{
    struct record *record;
    PyObject *behind = reading_kept(reading, index - READ_BEHIND);
    if (reading_may_reuse(reading, behind)) {
        record = (struct record *)behind;
        PyList_SET_ITEM(reading->kept, index - READ_BEHIND, Py_NewRef(Py_None));
        record->view.data = data;
        record->view.extent = *extent;
    } else {
        record = (struct record *)record_new(reading->kind, reading->memory, data, extent);
        if (record == NULL)
            return NULL;
        record->source = Py_NewRef(reading->source);
    }
    record->opens_plain = reading->opens_plain;
    return (PyObject *)record;
}

/* Hand out the record at a place; one is made and kept if there is none. */
static PyObject *reading_hand_out(struct reading *reading, Py_ssize_t index, const uint8_t *data,
                                  const struct extent *extent)
{
    PyObject *kept = reading_kept(reading, index), *made = NULL;
    if (kept == Py_None) {
        made = reading_make(reading, index, data, extent);
        if (made == NULL)
            return NULL;
        /* Asked again: making it may have run a finalizer that reads, too. */
        kept = reading_kept(reading, index);
    }
    if (kept == NULL) {
        Py_XDECREF(made);
        return PyErr_Format(PyExc_ValueError, "there is no place for message %zd", index);
    }
    if (kept != Py_None) {
        kept = Py_NewRef(kept);
        Py_XDECREF(made);
        return kept;
    }
    PyList_SET_ITEM(reading->kept, index, Py_NewRef(made));
    Py_DECREF(Py_None);
    return made;
}

static PyObject *reading_next(PyObject *self)
{
    struct reading *reading = (struct reading *)self;
    struct extent extent;
    if (reading->memory == NULL)
        return NULL;
    if (!measure_message(reading->at, reading->left, &extent)) {
        if (reading->left > 0)
            PyErr_Format(PyExc_ValueError, "the last %zu bytes are not a whole message",
                         reading->left);
        Py_CLEAR(reading->memory);
        return NULL;
    }
    const uint8_t *data = reading->at;
    reading->at += extent.size;
    reading->left -= extent.size;
    /* A walk over large messages waits for each header; asking early hides that. */
    if (reading->left >= HEADER_BYTES)
        PREFETCH(reading->at);
    return reading_hand_out(reading, reading->index++, data, &extent);
}

static int reading_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct reading *reading = (struct reading *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(reading->memory);
    Py_VISIT(reading->kind);
    Py_VISIT(reading->source);
    Py_VISIT(reading->kept);
    return 0;
}

static void reading_dealloc(PyObject *self)
{
    struct reading *reading = (struct reading *)self;
    PyObject_GC_UnTrack(self);
    Py_XDECREF(reading->memory);
    Py_DECREF(reading->kind);
    Py_DECREF(reading->source);
    Py_DECREF(reading->kept);
    free_object(self);
}

static PyType_Slot reading_slots[] = {
    {Py_tp_traverse, reading_traverse},
    {Py_tp_dealloc, reading_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, reading_next},
    {0, NULL},
};

static PyType_Spec reading_spec = {
    .name = "iggy_protocol._batch._Reading",
    .basicsize = sizeof(struct reading),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = reading_slots,
};

#endif
