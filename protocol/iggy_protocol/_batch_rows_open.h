/*
 * A part of _batch.c, which includes it.
 *
 * Rows and columns as they come from Python: tuples of buffers, which are opened, checked and
 * closed.
 */
#ifndef IGGY_BATCH_ROWS_OPEN_H
#define IGGY_BATCH_ROWS_OPEN_H

#include "_batch_encode.h"
#include "_batch_rows.h"

/* ---- faults ----------------------------------------------------------------------------- */

static PyObject *refuse_rows(enum row_fault fault, size_t row)
{
    static const char *const reasons[] = {
        [COLUMN_TOO_SHORT] = "a column is shorter than it says",
        [BOUNDS_OF_OTHER_WIDTH] = "bounds have 32 or 64 bits",
        [VALUE_OUTSIDE] = "a value of a column lies outside of its data",
        [TIME_OF_OTHER_SIZE] = "a time has 64 bits",
        [PAYLOAD_MISSING] = "row %zu: there is no payload",
        [ID_OF_OTHER_SIZE] = "row %zu: an id has 16 bytes",
        [TIME_BEFORE_1970] = "row %zu: the origin timestamp is before 1970",
        [NO_SUCH_ROW] = "there is no row %zu",
        [NO_SUCH_PARTITION] = "row %zu: there is no such partition",
        [HEADER_WITHOUT_KEY] = "row %zu: a header has no key",
    };
    if (fault == ROWS_OUT_OF_MEMORY)
        return PyErr_NoMemory();
    if (fault <= VALUE_OUTSIDE || fault == TIME_OF_OTHER_SIZE)
        return PyErr_Format(PyExc_ValueError, reasons[fault]);
    return PyErr_Format(PyExc_ValueError, reasons[fault], row);
}

/* ---- opening columns -------------------------------------------------------------------- */

enum { COLUMN_FIELDS = 6, COLUMN_BUFFERS = 3, ROWS_FIELDS = 7 };

struct open_column {
    struct bytes_column column;
    const struct bytes_column *given; /* NULL where the argument was None */
    Py_buffer buffers[COLUMN_BUFFERS];
};

static void close_column(struct open_column *open)
{
    for (size_t i = 0; i < COLUMN_BUFFERS; i++)
        if (open->buffers[i].obj != NULL)
            PyBuffer_Release(&open->buffers[i]);
}

/* Take a number of values or bytes. */
static int take_size(PyObject *number, size_t *size)
{
    Py_ssize_t taken = PyLong_AsSsize_t(number);
    if (taken == -1 && PyErr_Occurred())
        return -1;
    *size = (size_t)taken;
    if (taken >= 0)
        return 0;
    refuse_rows(COLUMN_TOO_SHORT, 0);
    return -1;
}

static int open_buffer(PyObject *object, Py_buffer *buffer, const uint8_t **bytes)
{
    static const uint8_t nothing[1] = {0}; /* an empty buffer may have no address */
    if (object == Py_None)
        return 0;
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0)
        return -1;
    *bytes = buffer->buf == NULL ? nothing : buffer->buf;
    return 0;
}

/* Open a column, or None; to be closed in any case. */
static int open_column(PyObject *object, struct open_column *open)
{
    struct bytes_column *column = &open->column;
    *open = (struct open_column){0};
    if (object == Py_None)
        return 0;
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != COLUMN_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a column has six fields");
        return -1;
    }
    if (take_size(PyTuple_GET_ITEM(object, 0), &column->length) < 0 ||
        take_size(PyTuple_GET_ITEM(object, 1), &column->start) < 0 ||
        take_size(PyTuple_GET_ITEM(object, 3), &column->width) < 0 ||
        open_buffer(PyTuple_GET_ITEM(object, 2), &open->buffers[0], &column->validity) < 0 ||
        open_buffer(PyTuple_GET_ITEM(object, 4), &open->buffers[1], &column->bounds) < 0 ||
        open_buffer(PyTuple_GET_ITEM(object, 5), &open->buffers[2], &column->data) < 0)
        return -1;
    column->data_bytes = (size_t)open->buffers[2].len;
    enum row_fault fault = check_column(column, (size_t)open->buffers[0].len,
                                        (size_t)open->buffers[1].len);
    if (fault != ROWS_GOOD) {
        refuse_rows(fault, 0);
        return -1;
    }
    open->given = column;
    return 0;
}

static int check_length(const struct open_column *open, size_t length)
{
    if (open->given == NULL || open->column.length == length)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the columns have different numbers of values");
    return -1;
}

static int open_column_of(PyObject *object, struct open_column *open, size_t length)
{
    return open_column(object, open) < 0 ? -1 : check_length(open, length);
}

static int require_column(const struct open_column *open)
{
    if (open->given != NULL)
        return 0;
    PyErr_SetString(PyExc_TypeError, "this column is needed");
    return -1;
}

/* ---- opening rows ----------------------------------------------------------------------- */

struct open_rows {
    struct send_rows rows;
    struct open_column payloads, headers, origins;
    Py_buffer ids, order;
};

static void close_rows(struct open_rows *open)
{
    close_column(&open->payloads);
    close_column(&open->headers);
    close_column(&open->origins);
    if (open->ids.obj != NULL)
        PyBuffer_Release(&open->ids);
    if (open->order.obj != NULL)
        PyBuffer_Release(&open->order);
}

static int check_rows(const struct open_rows *open)
{
    const struct send_rows *rows = &open->rows;
    size_t available = rows->order == NULL ? rows->payloads.length : (size_t)open->order.len / 4;
    if (rows->first > available || rows->count > available - rows->first) {
        PyErr_SetString(PyExc_ValueError, "there are fewer rows than that");
        return -1;
    }
    if (rows->ids != NULL && (size_t)open->ids.len / ID_BYTES < rows->payloads.length) {
        PyErr_SetString(PyExc_ValueError, "there are fewer ids than rows");
        return -1;
    }
    return 0;
}

/* Open the columns of rows; to be closed in any case. */
static int open_rows(PyObject *object, struct open_rows *open)
{
    struct send_rows *rows = &open->rows;
    *open = (struct open_rows){0};
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != ROWS_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "rows have seven fields");
        return -1;
    }
    if (open_column(PyTuple_GET_ITEM(object, 0), &open->payloads) < 0 ||
        require_column(&open->payloads) < 0)
        return -1;
    rows->payloads = open->payloads.column;
    if (open_column_of(PyTuple_GET_ITEM(object, 1), &open->headers, rows->payloads.length) < 0 ||
        open_buffer(PyTuple_GET_ITEM(object, 2), &open->ids, &rows->ids) < 0 ||
        open_column_of(PyTuple_GET_ITEM(object, 3), &open->origins, rows->payloads.length) < 0 ||
        open_buffer(PyTuple_GET_ITEM(object, 4), &open->order, &rows->order) < 0 ||
        take_size(PyTuple_GET_ITEM(object, 5), &rows->first) < 0 ||
        take_size(PyTuple_GET_ITEM(object, 6), &rows->count) < 0)
        return -1;
    rows->headers = open->headers.given;
    rows->origins = open->origins.given;
    return check_rows(open);
}

#endif
