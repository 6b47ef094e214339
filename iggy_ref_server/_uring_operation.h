/*
 * A part of _uring.c, which includes it: what the ring remembers of an operation from its
 * preparation until its completion is reaped. That is who asked for it, and the memory that the
 * kernel reads or writes meanwhile.
 *
 * Slots are numbered; an entry of the kernel's queue carries number and generation of its slot, so
 * that a late completion or cancellation can never hit a successor.
 */
#ifndef IGGY_URING_OPERATION_H
#define IGGY_URING_OPERATION_H

#include <Python.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum kind { KIND_WRITE, KIND_READ, KIND_FSYNC, KIND_COUNT };

enum state {
    STATE_FREE,
    STATE_PREPARED,  /* in the submission queue; the kernel has not seen it */
    STATE_SUBMITTED, /* the kernel may touch its memory */
    STATE_HELD,      /* completed, kept back by a test */
    STATE_FINISHED,  /* completed or refused, waits to be reaped */
};

/* The count of a completion fits into an int, so no operation may be larger. */
#define OPERATION_BYTES_MAX ((size_t)INT_MAX & ~(size_t)4095)
#define BUFFERS_MAX 1024

struct operation {
    PyObject *token;
    Py_buffer *buffers; /* `alone`, or an array of our own */
    struct iovec *vectors;
    size_t buffers_count;
    Py_buffer alone;
    struct iovec alone_vector;
    uint32_t generation;
    uint32_t next_free;
    enum kind kind;
    enum state state;
    int result;
    bool is_forced; /* a test has decided the result */
    bool is_held;   /* a test wants it kept back */
};

static void operation_release_buffers(struct operation *operation)
{
    for (size_t i = 0; i < operation->buffers_count; i++)
        PyBuffer_Release(&operation->buffers[i]);
    if (operation->buffers != &operation->alone) {
        PyMem_Free(operation->buffers);
        PyMem_Free(operation->vectors);
    }
    operation->buffers = NULL;
    operation->vectors = NULL;
    operation->buffers_count = 0;
}

static int operation_allocate(struct operation *operation, size_t count)
{
    operation->buffers_count = 0;
    if (count <= 1) {
        operation->buffers = &operation->alone;
        operation->vectors = &operation->alone_vector;
        return 0;
    }
    operation->buffers = PyMem_Malloc(count * sizeof *operation->buffers);
    operation->vectors = PyMem_Malloc(count * sizeof *operation->vectors);
    if (operation->buffers != NULL && operation->vectors != NULL)
        return 0;
    operation_release_buffers(operation);
    PyErr_NoMemory();
    return -1;
}

/* Hold the buffers of a write; their size in bytes, or -1 with an exception and nothing held. */
static Py_ssize_t operation_hold_sources(struct operation *operation, PyObject *sources)
{
    /* A tuple, because an exporter that is asked for its buffer could shorten a list. */
    PyObject *items = PySequence_Tuple(sources);
    if (items == NULL)
        return -1;
    size_t count = (size_t)PyTuple_Size(items), total = 0;
    if (count < 1 || count > BUFFERS_MAX) {
        PyErr_Format(PyExc_ValueError, "a write takes 1 to %d buffers, %zu given", BUFFERS_MAX,
                     count);
        goto failed;
    }
    if (operation_allocate(operation, count) < 0)
        goto failed;
    for (size_t i = 0; i < count; i++) {
        Py_buffer *buffer = &operation->buffers[i];
        if (PyObject_GetBuffer(PyTuple_GetItem(items, (Py_ssize_t)i), buffer, PyBUF_SIMPLE) < 0)
            goto failed_holding;
        operation->buffers_count++;
        size_t room = OPERATION_BYTES_MAX - total;
        size_t size = (size_t)buffer->len < room ? (size_t)buffer->len : room;
        operation->vectors[i] = (struct iovec){.iov_base = buffer->buf, .iov_len = size};
        total += size;
    }
    Py_DECREF(items);
    return (Py_ssize_t)total;

failed_holding:
    operation_release_buffers(operation);
failed:
    Py_DECREF(items);
    return -1;
}

/* Hold what a read fills from `start` on; the size of that in bytes, or -1 with an exception. */
static Py_ssize_t operation_hold_target(struct operation *operation, PyObject *target,
                                        Py_ssize_t start)
{
    /* `bytes` are filled in place: they come from blank(), and no other code has seen them yet. */
    int flags = PyBytes_CheckExact(target) ? PyBUF_SIMPLE : PyBUF_WRITABLE;
    if (operation_allocate(operation, 1) < 0 ||
        PyObject_GetBuffer(target, operation->buffers, flags) < 0)
        return -1;
    operation->buffers_count = 1;
    Py_ssize_t size = operation->buffers[0].len - start;
    if (start < 0 || size <= 0) {
        operation_release_buffers(operation);
        PyErr_SetString(PyExc_ValueError, "nothing of the target is left to read into");
        return -1;
    }
    if ((size_t)size > OPERATION_BYTES_MAX)
        size = (Py_ssize_t)OPERATION_BYTES_MAX;
    operation->vectors[0] = (struct iovec){
        .iov_base = (uint8_t *)operation->buffers[0].buf + start,
        .iov_len = (size_t)size,
    };
    return size;
}

/* Make an operation shorter than was asked. */
static void operation_shorten(struct operation *operation, size_t size)
{
    for (size_t i = 0; i < operation->buffers_count; i++) {
        struct iovec *vector = &operation->vectors[i];
        if (vector->iov_len > size)
            vector->iov_len = size;
        size -= vector->iov_len;
    }
}

#endif
