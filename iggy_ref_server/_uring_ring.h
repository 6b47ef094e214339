/*
 * A part of _uring.c, which includes it: operations on their way through the kernel's ring. They
 * are prepared, submitted, completed or given up.
 *
 * A function here never calls Python code while slots and queues disagree. Where it must (taking
 * and releasing buffers may run anything), the ring is marked busy and refuses to be used.
 */
#ifndef IGGY_URING_RING_H
#define IGGY_URING_RING_H

#include "_uring_kernel.h"
#include "_uring_operation.h"

#include "_uring_fault.h"

/* The completion queue holds twice the entries; what completes beyond it the kernel keeps. */
enum { OPERATIONS_PER_ENTRY = 4 };

/* The kernel may copy while it takes entries; from here on others shall run meanwhile. */
enum { RELEASE_GIL_BYTES = 1 << 20 };

#define NO_SLOT UINT32_MAX
#define NO_OPERATION UINT64_MAX /* marks entries whose completion is ignored */

struct ring {
    PyObject_HEAD
    struct kernel_ring kernel;
    struct operation *operations;
    uint32_t operations_count;
    uint32_t free_count;
    uint32_t first_free;
    uint32_t finished_count;
    uint32_t submitted_count;
    size_t prepared_bytes;
    unsigned long long submissions_count;
    struct faults faults;
    pid_t owner;
    bool is_open;
    bool is_busy;
};

/* ---- slots ------------------------------------------------------------------------------ */

static int ring_allocate(struct ring *ring)
{
    uint32_t count = ring->kernel.entries * OPERATIONS_PER_ENTRY;
    ring->operations = PyMem_Calloc(count, sizeof *ring->operations);
    if (ring->operations == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t i = 0; i < count; i++)
        ring->operations[i].next_free = i + 1 < count ? i + 1 : NO_SLOT;
    ring->operations_count = ring->free_count = count;
    ring->first_free = 0;
    return 0;
}

static uint64_t ring_number(const struct ring *ring, const struct operation *operation)
{
    return (uint64_t)operation->generation << 32 | (uint64_t)(operation - ring->operations);
}

/* The operation an entry or completion is about, or NULL where it has none. */
static struct operation *ring_find(struct ring *ring, uint64_t number)
{
    uint32_t slot = (uint32_t)number;
    if (number == NO_OPERATION || slot >= ring->operations_count)
        return NULL;
    struct operation *operation = &ring->operations[slot];
    bool is_same = operation->generation == number >> 32 && operation->state != STATE_FREE;
    return is_same ? operation : NULL;
}

/* How many operations could be prepared now. */
static uint32_t ring_room(const struct ring *ring)
{
    uint32_t entries = ring->kernel.entries - kernel_prepared(&ring->kernel);
    return entries < ring->free_count ? entries : ring->free_count;
}

static struct operation *ring_take(struct ring *ring, PyObject *token, enum kind kind)
{
    struct operation *operation = &ring->operations[ring->first_free];
    ring->first_free = operation->next_free;
    ring->free_count--;
    operation->token = Py_NewRef(token);
    operation->kind = kind;
    operation->state = STATE_PREPARED;
    operation->result = 0;
    operation->is_forced = operation->is_held = false;
    return operation;
}

/* Free a slot. Its buffers are let go of by the way, so the ring must be busy. */
static void ring_put_back(struct ring *ring, struct operation *operation)
{
    operation_release_buffers(operation);
    Py_CLEAR(operation->token);
    operation->state = STATE_FREE;
    operation->generation = (operation->generation + 1) & INT32_MAX; /* so never NO_OPERATION */
    operation->next_free = ring->first_free;
    ring->first_free = (uint32_t)(operation - ring->operations);
    ring->free_count++;
}

/* An operation is over without, or besides, what the kernel says. */
static void ring_finish(struct ring *ring, struct operation *operation, int result)
{
    operation->result = result;
    operation->state = STATE_FINISHED;
    ring->finished_count++;
}

/* ---- submitting ------------------------------------------------------------------------- */

/* Give an operation its entry, with whatever a test has planned for it. */
static struct io_uring_sqe *ring_enqueue(struct ring *ring, struct operation *operation,
                                         int descriptor)
{
    int result = 0;
    struct io_uring_sqe *entry = kernel_prepare(&ring->kernel);
    entry->user_data = ring_number(ring, operation);
    entry->fd = descriptor;
    if (fault_strike(&ring->faults, (int)operation->kind, true, &result))
        operation->is_held = true;
    if (!fault_strike(&ring->faults, (int)operation->kind, false, &result))
        return entry;
    if (result >= 0) {
        operation_shorten(operation, (size_t)result);
    } else {
        /* Without a file the kernel really fails, and breaks a chain as it does for any error. */
        entry->fd = -1;
        operation->is_forced = true;
        operation->result = result;
    }
    return entry;
}

static void ring_mark_submitted(struct ring *ring, unsigned first, unsigned end)
{
    for (unsigned number = first; number != end; number++) {
        struct operation *operation =
            ring_find(ring, kernel_entry(&ring->kernel, number)->user_data);
        if (operation != NULL) {
            operation->state = STATE_SUBMITTED;
            ring->submitted_count++;
        }
    }
}

/*
 * Where the kernel has stopped inside a chain, what follows no longer waits for what went before:
 * a sync could overtake its write. So what follows becomes a cancelled operation.
 */
static void ring_mend_chain(struct ring *ring, unsigned consumed)
{
    const struct io_uring_sqe *last = kernel_entry(&ring->kernel, consumed - 1);
    if (consumed == ring->kernel.tail || !(last->flags & IOSQE_IO_LINK))
        return;
    struct io_uring_sqe *next = kernel_entry(&ring->kernel, consumed);
    uint64_t number = next->user_data;
    struct operation *operation = ring_find(ring, number);
    memset(next, 0, sizeof *next);
    next->opcode = IORING_OP_NOP;
    next->user_data = number;
    if (operation != NULL) {
        operation->is_forced = true;
        operation->result = -ECANCELED;
    }
}

/* The kernel refuses for good: all that was prepared ends with that error. */
static void ring_refuse(struct ring *ring, int error)
{
    for (unsigned number = kernel_consumed(&ring->kernel); number != ring->kernel.tail; number++) {
        struct operation *operation =
            ring_find(ring, kernel_entry(&ring->kernel, number)->user_data);
        if (operation != NULL)
            ring_finish(ring, operation, -error);
    }
    kernel_unprepare(&ring->kernel);
}

/* One system call; how many entries the kernel took, or a negative error number. */
static int ring_enter(struct ring *ring, unsigned submit)
{
    int most = 0, taken;
    if (fault_strike(&ring->faults, FAULT_SUBMIT, false, &most)) {
        if (most <= 0)
            return most == 0 ? -EAGAIN : most;
        submit = submit < (unsigned)most ? submit : (unsigned)most;
    }
    bool was_busy = ring->is_busy;
    ring->submissions_count++;
    ring->is_busy = true;
    if (ring->prepared_bytes >= RELEASE_GIL_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        taken = kernel_enter(&ring->kernel, submit, 0);
        taken = taken < 0 ? -errno : taken;
        Py_END_ALLOW_THREADS
    } else {
        taken = kernel_enter(&ring->kernel, submit, 0);
        taken = taken < 0 ? -errno : taken;
    }
    ring->is_busy = was_busy;
    return taken;
}

/* Hand over all that is prepared; what the kernel cannot take now stays, and wakes the reaper. */
static unsigned ring_submit_all(struct ring *ring)
{
    unsigned total = 0, left = kernel_prepared(&ring->kernel);
    while (left > 0) {
        unsigned first = kernel_consumed(&ring->kernel);
        int taken = ring_enter(ring, left);
        if (taken == -EINTR)
            continue;
        if (taken > 0) {
            ring_mark_submitted(ring, first, first + (unsigned)taken);
            ring_mend_chain(ring, first + (unsigned)taken);
            total += (unsigned)taken;
            left -= (unsigned)taken;
            continue;
        }
        if (taken != 0 && taken != -EAGAIN && taken != -EBUSY)
            ring_refuse(ring, -taken);
        kernel_wake(&ring->kernel);
        return total;
    }
    ring->prepared_bytes = 0;
    return total;
}

/* ---- completing ------------------------------------------------------------------------- */

/* Put a finished operation on the list and free its slot; -1 without an exception if it cannot. */
static int ring_deliver(struct ring *ring, struct operation *operation, PyObject *completions)
{
    PyObject *item = Py_BuildValue("(Oi)", operation->token, operation->result);
    int status = item == NULL ? -1 : PyList_Append(completions, item);
    Py_XDECREF(item);
    if (status < 0) {
        PyErr_Clear();
        return -1;
    }
    ring->finished_count--;
    ring_put_back(ring, operation);
    return 0;
}

static int ring_deliver_finished(struct ring *ring, PyObject *completions)
{
    for (uint32_t i = 0; ring->finished_count > 0 && i < ring->operations_count; i++) {
        struct operation *operation = &ring->operations[i];
        if (operation->state == STATE_FINISHED && ring_deliver(ring, operation, completions) < 0)
            return -1;
    }
    return 0;
}

/* Take one completion out of the kernel's queue: its operation if that is finished, else NULL. */
static struct operation *ring_complete(struct ring *ring, const struct io_uring_cqe *completion)
{
    struct operation *operation = ring_find(ring, completion->user_data);
    int result = completion->res;
    kernel_seen(&ring->kernel);
    if (operation == NULL)
        return NULL;
    ring->submitted_count--;
    if (operation->is_forced)
        result = operation->result;
    if (!operation->is_held) {
        ring_finish(ring, operation, result);
        return operation;
    }
    operation->state = STATE_HELD;
    operation->result = result;
    return NULL;
}

/* Put all that has completed on the list; -1 if memory is short, and then the rest waits. */
static int ring_deliver_completed(struct ring *ring, PyObject *completions)
{
    do {
        const struct io_uring_cqe *completion;
        while ((completion = kernel_completion(&ring->kernel)) != NULL) {
            struct operation *operation = ring_complete(ring, completion);
            if (operation != NULL && ring_deliver(ring, operation, completions) < 0)
                return -1;
        }
    } while (kernel_overflowed(&ring->kernel) && kernel_enter(&ring->kernel, 0, 0) >= 0 &&
             kernel_completion(&ring->kernel) != NULL);
    return 0;
}

#ifdef IGGY_URING_FAULTS

static void ring_unhold(struct ring *ring)
{
    for (uint32_t i = 0; i < ring->operations_count; i++) {
        struct operation *operation = &ring->operations[i];
        operation->is_held = false;
        if (operation->state == STATE_HELD)
            ring_finish(ring, operation, operation->result);
    }
    if (ring->finished_count > 0)
        kernel_wake(&ring->kernel);
}

#endif

/* ---- closing ---------------------------------------------------------------------------- */

static void ring_prepare_cancel(struct ring *ring, const struct operation *operation)
{
    struct io_uring_sqe *entry = kernel_prepare(&ring->kernel);
    entry->opcode = IORING_OP_ASYNC_CANCEL;
    entry->fd = -1;
    entry->addr = ring_number(ring, operation);
    entry->user_data = NO_OPERATION;
}

/* A read may wait for ever, as on a pipe; no operation waits for it any more. */
static void ring_cancel_reads(struct ring *ring)
{
    for (uint32_t i = 0; i < ring->operations_count; i++) {
        const struct operation *operation = &ring->operations[i];
        if (operation->state != STATE_SUBMITTED || operation->kind != KIND_READ)
            continue;
        if (kernel_prepared(&ring->kernel) == ring->kernel.entries)
            ring_submit_all(ring);
        if (kernel_prepared(&ring->kernel) < ring->kernel.entries)
            ring_prepare_cancel(ring, operation);
    }
    ring_submit_all(ring);
}

/* Wait until the kernel has let go of all memory; false where it cannot be asked any more. */
static bool ring_settle(struct ring *ring)
{
    fault_forget(&ring->faults);
    ring_refuse(ring, ECANCELED);
    ring_cancel_reads(ring);
    while (ring->submitted_count > 0) {
        int status;
        Py_BEGIN_ALLOW_THREADS
        status = kernel_enter(&ring->kernel, kernel_prepared(&ring->kernel), 1);
        status = status < 0 ? -errno : status;
        Py_END_ALLOW_THREADS
        if (status < 0 && status != -EINTR && status != -EAGAIN && status != -EBUSY)
            return false;
        const struct io_uring_cqe *completion;
        while ((completion = kernel_completion(&ring->kernel)) != NULL)
            ring_complete(ring, completion);
    }
    return true;
}

/*
 * Let go of everything. Memory that the kernel may still touch is leaked rather than freed; that
 * takes code that has closed our descriptor behind our back.
 */
static void ring_shut(struct ring *ring)
{
    if (!ring->is_open)
        return;
    bool is_ours = ring->owner == getpid();
    ring->is_open = false;
    ring->is_busy = true;
    bool is_settled = !is_ours || ring_settle(ring);
    kernel_close(&ring->kernel, is_ours);
    for (uint32_t i = 0; i < ring->operations_count; i++) {
        struct operation *operation = &ring->operations[i];
        bool is_free = operation->state == STATE_FREE;
        if (!is_free && (is_settled || operation->state != STATE_SUBMITTED))
            ring_put_back(ring, operation);
    }
    if (is_settled) {
        PyMem_Free(ring->operations);
        ring->operations = NULL;
        ring->operations_count = 0;
    }
    ring->is_busy = false;
}

#endif
