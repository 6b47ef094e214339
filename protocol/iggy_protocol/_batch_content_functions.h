/*
 * A part of _batch.c, which includes it.
 *
 * User headers and ids of rows as Python sees them. The interpreter lock is held, because the
 * counts of ContentIds must not change in between.
 */
#ifndef IGGY_BATCH_CONTENT_FUNCTIONS_H
#define IGGY_BATCH_CONTENT_FUNCTIONS_H

#include "_batch_content.h"
#include "_batch_header_blocks.h"
#include "_batch_rows_open.h"

/* ---- user headers ------------------------------------------------------------------------ */

static PyObject *refuse_headers(enum row_fault fault, size_t row, const struct block_writer *writer)
{
    switch (fault) {
    case KEY_TOO_LONG:
        return PyErr_Format(PyExc_ValueError, "row %zu: a key has 1 to 255 bytes, not %zu", row,
                            writer->size);
    case HEADER_KEY_TOO_LONG:
        return PyErr_Format(PyExc_ValueError, "row %zu: a header key has 1 to 255 bytes, not %zu",
                            row, writer->size);
    case HEADER_VALUE_TOO_LONG:
        return PyErr_Format(PyExc_ValueError, "row %zu: a header value has 1 to 255 bytes, not %zu",
                            row, writer->size);
    case HEADER_KIND_UNKNOWN:
        return PyErr_Format(PyExc_ValueError, "row %zu: no header kind has the code %d", row,
                            writer->kind);
    case HEADER_OF_OTHER_SIZE:
        return PyErr_Format(PyExc_ValueError,
                            "row %zu: a header value of kind %d has %d bytes, not %zu", row,
                            writer->kind, HEADER_KIND_BYTES[writer->kind], writer->size);
    case HEADERS_TOO_LONG:
        return PyErr_Format(PyExc_ValueError,
                            "row %zu: user headers have at most %d bytes, not %zu", row,
                            HEADER_BLOCK_BYTES_MAX, writer->size);
    default:
        return refuse_rows(fault, row);
    }
}

enum { PAIRS_FIELDS = 4 };

struct open_headers {
    struct header_columns columns;
    struct open_column keys, places, names, values;
    Py_buffer kinds;
};

static void close_headers(struct open_headers *open)
{
    close_column(&open->keys);
    close_column(&open->places);
    close_column(&open->names);
    close_column(&open->values);
    if (open->kinds.obj != NULL)
        PyBuffer_Release(&open->kinds);
}

static int take_u8(PyObject *number, const char *name, uint8_t *value)
{
    return take_unsigned(number, name, value, sizeof *value);
}

/* Open lists of pairs, or None; the memory of `open` is zero before. */
static int open_pairs(PyObject *pairs, struct open_headers *open, size_t count)
{
    struct header_columns *columns = &open->columns;
    if (pairs == Py_None)
        return 0;
    if (!PyTuple_Check(pairs) || PyTuple_GET_SIZE(pairs) != PAIRS_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "pairs have four fields");
        return -1;
    }
    PyObject *kinds = PyTuple_GET_ITEM(pairs, 2);
    if (open_column_of(PyTuple_GET_ITEM(pairs, 0), &open->places, count) < 0 ||
        require_column(&open->places) < 0 ||
        open_column(PyTuple_GET_ITEM(pairs, 1), &open->names) < 0 ||
        require_column(&open->names) < 0 ||
        open_column_of(PyTuple_GET_ITEM(pairs, 3), &open->values, open->names.column.length) < 0 ||
        require_column(&open->values) < 0)
        return -1;
    if (PyLong_Check(kinds)) {
        if (take_u8(kinds, "kind", &columns->kind) < 0)
            return -1;
    } else if (open_buffer(kinds, &open->kinds, &columns->kinds) < 0) {
        return -1;
    } else if ((size_t)open->kinds.len < open->names.column.length) {
        refuse_rows(COLUMN_TOO_SHORT, 0);
        return -1;
    }
    columns->places = open->places.given;
    columns->names = open->names.column;
    columns->values = open->values.column;
    return 0;
}

static PyObject *make_blocks(const struct header_columns *columns, size_t count, size_t first_row)
{
    size_t row = 0;
    struct block_writer writer = {0};
    if (count >= PY_SSIZE_T_MAX / 8 - 1)
        return PyErr_NoMemory();
    PyObject *bounds = PyByteArray_FromStringAndSize(NULL, 8 * ((Py_ssize_t)count + 1));
    if (bounds == NULL)
        return NULL;
    enum row_fault fault = write_blocks(&writer, columns, count,
                                        (uint8_t *)PyByteArray_AS_STRING(bounds), &row);
    PyObject *blocks = NULL;
    if (fault == ROWS_GOOD)
        blocks = PyByteArray_FromStringAndSize((const char *)writer.blocks,
                                               (Py_ssize_t)writer.used);
    else
        refuse_headers(fault, first_row + row, &writer);
    free_block_writer(&writer);
    if (blocks != NULL)
        return Py_BuildValue("(NN)", bounds, blocks);
    Py_DECREF(bounds);
    return NULL;
}

static PyObject *batch_header_blocks(PyObject *Py_UNUSED(module), PyObject *const *arguments,
                                     Py_ssize_t given)
{
    struct open_headers open = {0};
    size_t count, first_row;
    PyObject *made = NULL;
    if (check_arguments("header_blocks", given, 5) < 0 || take_size(arguments[0], &count) < 0 ||
        take_u8(arguments[2], "kind", &open.columns.key_kind) < 0 ||
        take_size(arguments[4], &first_row) < 0)
        return NULL;
    if (open_column_of(arguments[1], &open.keys, count) == 0 &&
        open_pairs(arguments[3], &open, count) == 0) {
        open.columns.keys = open.keys.given;
        made = make_blocks(&open.columns, count, first_row);
    }
    close_headers(&open);
    return made;
}

/* ---- ContentIds -------------------------------------------------------------------------- */

struct content_ids_object {
    PyObject_HEAD
    struct content_ids ids;
};

static PyObject *content_ids_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    uint64_t low, high, contents_max;
    if (keywords != NULL && PyDict_GET_SIZE(keywords) > 0)
        return PyErr_Format(PyExc_TypeError, "ContentIds() takes no keywords");
    if (check_arguments("ContentIds", PyTuple_GET_SIZE(arguments), 3) < 0 ||
        take_u64(PyTuple_GET_ITEM(arguments, 0), "seed", &low) < 0 ||
        take_u64(PyTuple_GET_ITEM(arguments, 1), "seed", &high) < 0 ||
        take_u64(PyTuple_GET_ITEM(arguments, 2), "number of contents", &contents_max) < 0)
        return NULL;
    struct content_ids_object *self = (struct content_ids_object *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    xxh3_prepare(&self->ids.low_seed, low);
    xxh3_prepare(&self->ids.high_seed, high);
    self->ids.contents_max = contents_max;
    return (PyObject *)self;
}

static void content_ids_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free_content_ids(&((struct content_ids_object *)self)->ids);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *make_ids(struct content_ids *ids, const struct id_columns *columns)
{
    size_t row = 0, count = columns->payloads.length;
    if (count > PY_SSIZE_T_MAX / ID_BYTES)
        return PyErr_NoMemory();
    PyObject *target = PyByteArray_FromStringAndSize(NULL, ID_BYTES * (Py_ssize_t)count);
    if (target == NULL)
        return NULL;
    enum row_fault fault =
        write_content_ids(ids, columns, (uint8_t *)PyByteArray_AS_STRING(target), &row);
    if (fault == ROWS_GOOD)
        return target;
    Py_DECREF(target);
    return refuse_rows(fault, row);
}

static PyObject *content_ids_assign(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    struct id_columns columns = {0};
    struct open_column payloads, headers = {0}, own = {0};
    PyObject *made = NULL;
    if (check_arguments("assign", given, 4) < 0 ||
        take_u64(arguments[3], "salt", &columns.salt) < 0)
        return NULL;
    if (open_column(arguments[0], &payloads) == 0 && require_column(&payloads) == 0 &&
        open_column_of(arguments[1], &headers, payloads.column.length) == 0 &&
        open_column_of(arguments[2], &own, payloads.column.length) == 0) {
        columns.payloads = payloads.column;
        columns.headers = headers.given;
        columns.given = own.given;
        made = make_ids(&((struct content_ids_object *)self)->ids, &columns);
    }
    close_column(&payloads);
    close_column(&headers);
    close_column(&own);
    return made;
}

static PyObject *content_ids_count(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(((struct content_ids_object *)self)->ids.contents_count);
}

static PyGetSetDef content_ids_getset[] = {
    {"contents_count", content_ids_count, NULL, "different contents that are counted", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef content_ids_methods[] = {
    {"assign", (PyCFunction)(void (*)(void))content_ids_assign, METH_FASTCALL,
     PyDoc_STR("assign($self, payloads, headers, given, salt, /)\n--\n\n"
               "Return the ids of rows, 16 bytes each.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot content_ids_slots[] = {
    {Py_tp_doc, "ContentIds(low_seed, high_seed, contents_max, /)\n--\n\n"
                "Ids that follow from what messages hold."},
    {Py_tp_new, content_ids_new},
    {Py_tp_dealloc, content_ids_dealloc},
    {Py_tp_getset, content_ids_getset},
    {Py_tp_methods, content_ids_methods},
    {0, NULL},
};

static PyType_Spec content_ids_spec = {
    .name = "iggy_protocol._batch.ContentIds",
    .basicsize = sizeof(struct content_ids_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = content_ids_slots,
};

#endif
