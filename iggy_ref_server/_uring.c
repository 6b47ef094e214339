/*
 * io_uring for the storage of a shard, on the kernel's own header and three system calls.
 *
 * A Ring belongs to the process that made it and to one thread at a time. It holds every buffer
 * from the moment an operation is prepared until its completion is reaped.
 *
 *   _uring_kernel.h     the queues shared with the kernel
 *   _uring_operation.h  what is remembered of an operation
 *   _uring_fault.h      faults that tests inject; empty in the build that users install
 *   _uring_ring.h       operations on their way
 *   this file           the class as Python sees it, and the module
 *
 * The headers are parts of this one file and cannot be compiled by themselves.
 *
 * Only the limited API of Python 3.11 is used, so one build serves every later version.
 * Free-threaded interpreters have no such API, and the ring would not be safe there: `is_busy` and
 * the queues are kept by the one thread that holds the GIL. Such an interpreter turns the GIL on
 * when it imports a module that does not say otherwise, and this one does not.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#if defined(__linux__) && __has_include(<linux/io_uring.h>)

#include "_uring_ring.h"

enum { ENTRIES_MAX = 4096 };

#define CHECK_ARGUMENTS(name, given, wanted)                                                       \
    if ((given) != (wanted))                                                                       \
    return PyErr_Format(PyExc_TypeError, name "() takes %d arguments, %zd given", wanted, given)

/* ---- may it be used? -------------------------------------------------------------------- */

static int check_usable(const struct ring *ring)
{
    if (!ring->is_open)
        PyErr_SetString(PyExc_ValueError, "the ring is closed");
    else if (ring->owner != getpid())
        PyErr_Format(PyExc_RuntimeError, "the ring belongs to process %ld", (long)ring->owner);
    else if (ring->is_busy)
        PyErr_SetString(PyExc_RuntimeError, "the ring is in use by another thread or a destructor");
    else
        return 0;
    return -1;
}

static int check_room(const struct ring *ring)
{
    if (check_usable(ring) < 0)
        return -1;
    if (ring_room(ring) > 0)
        return 0;
    PyErr_SetString(PyExc_BlockingIOError, "the ring is full");
    return -1;
}

static int take_descriptor(PyObject *argument, int *descriptor)
{
    long value = PyLong_AsLong(argument);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < 0 || value > INT_MAX) {
        PyErr_Format(PyExc_ValueError, "%ld is no file descriptor", value);
        return -1;
    }
    *descriptor = (int)value;
    return 0;
}

static int take_position(PyObject *argument, uint64_t *position)
{
    Py_ssize_t value = PyLong_AsSsize_t(argument);
    if (value == -1 && PyErr_Occurred())
        return -1;
    if (value < 0) {
        PyErr_Format(PyExc_ValueError, "%zd is no position in a file", value);
        return -1;
    }
    *position = (uint64_t)value;
    return 0;
}

/* ---- preparing -------------------------------------------------------------------------- */

static PyObject *ring_write(struct ring *self, PyObject *const *arguments, Py_ssize_t given)
{
    CHECK_ARGUMENTS("write", given, 5);
    int descriptor, is_linked = PyObject_IsTrue(arguments[4]);
    uint64_t position;
    if (is_linked < 0 || take_descriptor(arguments[1], &descriptor) < 0 ||
        take_position(arguments[3], &position) < 0 || check_room(self) < 0)
        return NULL;
    struct operation *operation = ring_take(self, arguments[0], KIND_WRITE);
    self->is_busy = true;
    Py_ssize_t size = operation_hold_sources(operation, arguments[2]);
    if (size < 0)
        ring_put_back(self, operation);
    self->is_busy = false;
    if (size < 0)
        return NULL;
    struct io_uring_sqe *entry = ring_enqueue(self, operation, descriptor);
    bool is_alone = operation->buffers_count == 1;
    const void *address = is_alone ? operation->vectors[0].iov_base : operation->vectors;
    entry->opcode = is_alone ? IORING_OP_WRITE : IORING_OP_WRITEV;
    entry->addr = (uint64_t)(uintptr_t)address;
    entry->len = (uint32_t)(is_alone ? operation->vectors[0].iov_len : operation->buffers_count);
    entry->off = position;
    entry->flags = is_linked ? IOSQE_IO_LINK : 0;
    self->prepared_bytes += (size_t)size;
    return PyLong_FromSsize_t(size);
}

static PyObject *ring_read(struct ring *self, PyObject *const *arguments, Py_ssize_t given)
{
    CHECK_ARGUMENTS("read", given, 5);
    int descriptor;
    uint64_t position;
    Py_ssize_t start = PyLong_AsSsize_t(arguments[3]);
    if ((start == -1 && PyErr_Occurred()) || take_descriptor(arguments[1], &descriptor) < 0 ||
        take_position(arguments[4], &position) < 0 || check_room(self) < 0)
        return NULL;
    struct operation *operation = ring_take(self, arguments[0], KIND_READ);
    self->is_busy = true;
    Py_ssize_t size = operation_hold_target(operation, arguments[2], start);
    if (size < 0)
        ring_put_back(self, operation);
    self->is_busy = false;
    if (size < 0)
        return NULL;
    struct io_uring_sqe *entry = ring_enqueue(self, operation, descriptor);
    entry->opcode = IORING_OP_READ;
    entry->addr = (uint64_t)(uintptr_t)operation->vectors[0].iov_base;
    entry->len = (uint32_t)operation->vectors[0].iov_len;
    entry->off = position;
    self->prepared_bytes += (size_t)size;
    return PyLong_FromSsize_t(size);
}

static PyObject *ring_fsync(struct ring *self, PyObject *const *arguments, Py_ssize_t given)
{
    CHECK_ARGUMENTS("fsync", given, 3);
    int descriptor, is_data_only = PyObject_IsTrue(arguments[2]);
    if (is_data_only < 0 || take_descriptor(arguments[1], &descriptor) < 0 || check_room(self) < 0)
        return NULL;
    struct operation *operation = ring_take(self, arguments[0], KIND_FSYNC);
    struct io_uring_sqe *entry = ring_enqueue(self, operation, descriptor);
    entry->opcode = IORING_OP_FSYNC;
    entry->fsync_flags = is_data_only ? IORING_FSYNC_DATASYNC : 0;
    Py_RETURN_NONE;
}

static PyObject *ring_cancel(struct ring *self, PyObject *token)
{
    if (check_usable(self) < 0)
        return NULL;
    if (kernel_prepared(&self->kernel) == self->kernel.entries)
        Py_RETURN_FALSE;
    for (uint32_t i = 0; i < self->operations_count; i++) {
        const struct operation *operation = &self->operations[i];
        bool is_under_way =
            operation->state == STATE_PREPARED || operation->state == STATE_SUBMITTED;
        if (is_under_way && operation->token == token) {
            ring_prepare_cancel(self, operation);
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

/* ---- submitting, reaping, closing ------------------------------------------------------- */

static PyObject *ring_submit(struct ring *self, PyObject *Py_UNUSED(ignored))
{
    if (check_usable(self) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(ring_submit_all(self));
}

static PyObject *ring_reap(struct ring *self, PyObject *Py_UNUSED(ignored))
{
    if (check_usable(self) < 0)
        return NULL;
    PyObject *completions = PyList_New(0);
    if (completions == NULL)
        return NULL;
    kernel_unwake(&self->kernel);
    self->is_busy = true;
    bool is_all = ring_deliver_finished(self, completions) == 0 &&
                  ring_deliver_completed(self, completions) == 0;
    self->is_busy = false;
    if (!is_all)
        kernel_wake(&self->kernel);
    return completions;
}

static PyObject *ring_close(struct ring *self, PyObject *Py_UNUSED(ignored))
{
    if (self->is_open && self->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "the ring is in use by another thread or a destructor");
        return NULL;
    }
    ring_shut(self);
    Py_RETURN_NONE;
}

#ifdef IGGY_URING_FAULTS

/* ---- faults ----------------------------------------------------------------------------- */

static PyObject *plant(struct ring *self, const char *subject, unsigned nth, bool is_hold,
                       int result)
{
    struct fault fault = {
        .subject = -1, .countdown = nth, .is_each = nth == 0, .is_hold = is_hold, .result = result};
    for (int i = 0; i < FAULT_SUBJECTS; i++) {
        if (strcmp(FAULT_NAMES[i], subject) == 0)
            fault.subject = i;
    }
    if (fault.subject < 0 || (is_hold && fault.subject == FAULT_SUBMIT))
        return PyErr_Format(PyExc_ValueError, "no such operation: %s", subject);
    if (fault.subject == KIND_FSYNC && !is_hold && result >= 0)
        return PyErr_Format(PyExc_ValueError, "a sync cannot be short, so %d is no fault", result);
    if (!fault_plant(&self->faults, fault))
        return PyErr_Format(PyExc_ValueError, "more than %d faults", FAULTS_MAX);
    Py_RETURN_NONE;
}

static PyObject *ring_inject(struct ring *self, PyObject *arguments)
{
    const char *subject;
    unsigned nth;
    int result;
    if (!PyArg_ParseTuple(arguments, "sIi:inject", &subject, &nth, &result) ||
        check_usable(self) < 0)
        return NULL;
    return plant(self, subject, nth, false, result);
}

static PyObject *ring_hold(struct ring *self, PyObject *arguments)
{
    const char *subject;
    unsigned nth;
    if (!PyArg_ParseTuple(arguments, "sI:hold", &subject, &nth) || check_usable(self) < 0)
        return NULL;
    return plant(self, subject, nth, true, 0);
}

static PyObject *ring_release(struct ring *self, PyObject *Py_UNUSED(ignored))
{
    if (check_usable(self) < 0)
        return NULL;
    ring_unhold(self);
    Py_RETURN_NONE;
}

static PyObject *ring_heal(struct ring *self, PyObject *Py_UNUSED(ignored))
{
    if (check_usable(self) < 0)
        return NULL;
    fault_forget(&self->faults);
    ring_unhold(self);
    Py_RETURN_NONE;
}

#endif

/* ---- the class -------------------------------------------------------------------------- */

static PyObject *ring_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    int entries;
    const char *step;
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "Ring() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "i:Ring", &entries))
        return NULL;
    if (entries < 1 || entries > ENTRIES_MAX)
        return PyErr_Format(PyExc_ValueError, "a ring has 1 to %d entries, not %d", ENTRIES_MAX,
                            entries);
    struct ring *self = (struct ring *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    if (kernel_open(&self->kernel, (unsigned)entries, &step) < 0) {
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, step);
        Py_DECREF(self);
        return NULL;
    }
    self->owner = getpid();
    self->is_open = true;
    if (ring_allocate(self) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int ring_traverse(struct ring *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    for (uint32_t i = 0; i < self->operations_count; i++)
        Py_VISIT(self->operations[i].token);
    return 0;
}

/* Only who asked is forgotten; the kernel may still be at the buffers. */
static int ring_clear(struct ring *self)
{
    for (uint32_t i = 0; i < self->operations_count; i++) {
        PyObject *token = self->operations[i].token;
        if (token != NULL) {
            self->operations[i].token = Py_NewRef(Py_None);
            Py_DECREF(token);
        }
    }
    return 0;
}

static void ring_dealloc(struct ring *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    ring_shut(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *get_eventfd(struct ring *self, void *Py_UNUSED(closure))
{
    if (check_usable(self) < 0)
        return NULL;
    return PyLong_FromLong(self->kernel.eventfd);
}

static PyObject *get_entries(struct ring *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(self->kernel.entries);
}

static PyObject *get_room(struct ring *self, void *Py_UNUSED(closure))
{
    if (check_usable(self) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(ring_room(self));
}

static PyObject *get_prepared(struct ring *self, void *Py_UNUSED(closure))
{
    if (check_usable(self) < 0)
        return NULL;
    return PyLong_FromUnsignedLong(kernel_prepared(&self->kernel));
}

static PyObject *get_in_flight(struct ring *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLong(self->is_open ? self->operations_count - self->free_count : 0);
}

static PyObject *get_submissions(struct ring *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(self->submissions_count);
}

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef ring_methods[] = {
    {"write", METHOD(ring_write), METH_FASTCALL,
     PyDoc_STR("write($self, token, descriptor, buffers, position, link, /)\n--\n\n"
               "Prepare a write; return how many bytes it is about.")},
    {"read", METHOD(ring_read), METH_FASTCALL,
     PyDoc_STR("read($self, token, descriptor, target, start, position, /)\n--\n\n"
               "Prepare a read that fills the target from start on; return how many bytes fit.")},
    {"fsync", METHOD(ring_fsync), METH_FASTCALL,
     PyDoc_STR("fsync($self, token, descriptor, datasync, /)\n--\n\nPrepare a sync.")},
    {"cancel", METHOD(ring_cancel), METH_O,
     PyDoc_STR("cancel($self, token, /)\n--\n\n"
               "Prepare to give an operation up; return whether there is hope.")},
    {"submit", METHOD(ring_submit), METH_NOARGS,
     PyDoc_STR("submit($self, /)\n--\n\nHand all prepared operations to the kernel at once.")},
    {"reap", METHOD(ring_reap), METH_NOARGS,
     PyDoc_STR("reap($self, /)\n--\n\nReturn token and result of all that has completed.")},
    {"close", METHOD(ring_close), METH_NOARGS,
     PyDoc_STR("close($self, /)\n--\n\n"
               "Give reads up, wait for writes and syncs, and let go of everything.")},
#ifdef IGGY_URING_FAULTS
    {"inject", METHOD(ring_inject), METH_VARARGS,
     PyDoc_STR("inject($self, operation, nth, result, /)\n--\n\n"
               "Let an operation fail, or do less than asked; for tests.")},
    {"hold", METHOD(ring_hold), METH_VARARGS,
     PyDoc_STR("hold($self, operation, nth, /)\n--\n\nKeep a completion back; for tests.")},
    {"release", METHOD(ring_release), METH_NOARGS,
     PyDoc_STR("release($self, /)\n--\n\nLet all completions go that are kept back.")},
    {"heal", METHOD(ring_heal), METH_NOARGS,
     PyDoc_STR("heal($self, /)\n--\n\nForget all faults, and release.")},
#endif
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef ring_properties[] = {
    {"eventfd", (getter)get_eventfd, NULL, "Readable when something has completed.", NULL},
    {"entries", (getter)get_entries, NULL, "How many operations one submission takes.", NULL},
    {"room", (getter)get_room, NULL, "How many operations could be prepared now.", NULL},
    {"prepared", (getter)get_prepared, NULL, "How many entries wait to be submitted.", NULL},
    {"in_flight", (getter)get_in_flight, NULL, "How many operations were not reaped yet.", NULL},
    {"submissions", (getter)get_submissions, NULL, "How often the kernel was entered.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_doc, (void *)PyDoc_STR("Ring(entries, /)\n--\n\nA submission and a completion queue.")},
    {Py_tp_new, ring_new},
    {Py_tp_dealloc, ring_dealloc},
    {Py_tp_traverse, ring_traverse},
    {Py_tp_clear, ring_clear},
    {Py_tp_methods, ring_methods},
    {Py_tp_getset, ring_properties},
    {0, NULL},
};

static PyType_Spec ring_spec = {
    .name = "iggy_ref_server._uring.Ring",
    .basicsize = sizeof(struct ring),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = ring_slots,
};

/* ---- module ----------------------------------------------------------------------------- */

static PyObject *uring_blank(PyObject *Py_UNUSED(module), PyObject *argument)
{
    Py_ssize_t size = PyLong_AsSsize_t(argument);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    if (size < 1)
        return PyErr_Format(PyExc_ValueError, "%zd bytes cannot be read into", size);
    return PyBytes_FromStringAndSize(NULL, size);
}

static PyMethodDef uring_functions[] = {
    {"blank", uring_blank, METH_O,
     PyDoc_STR("blank($module, size, /)\n--\n\n"
               "Make bytes whose content is undefined, to be filled by Ring.read.")},
    {NULL, NULL, 0, NULL},
};

static int uring_exec(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &ring_spec, NULL);
    if (type == NULL)
        return -1;
    int status = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return status;
}

#else

static PyMethodDef uring_functions[] = {{NULL, NULL, 0, NULL}};

static int uring_exec(PyObject *Py_UNUSED(module))
{
    PyErr_SetString(PyExc_ImportError, "built on a system without io_uring");
    return -1;
}

#endif

static PyModuleDef_Slot uring_slots[] = {
    {Py_mod_exec, uring_exec},
    {0, NULL},
};

static struct PyModuleDef uring_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "iggy_ref_server._uring",
    .m_doc = "io_uring for the storage of a shard.",
    .m_methods = uring_functions,
    .m_slots = uring_slots,
};

PyMODINIT_FUNC PyInit__uring(void)
{
    return PyModuleDef_Init(&uring_module);
}
