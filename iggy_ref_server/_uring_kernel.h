/*
 * A part of _uring.c, which includes it: the ring as the kernel shows it. Set-up, shared memory,
 * the entries in it, and one system call.
 *
 * Knows nothing of Python, nor of what an entry is about. There is no kernel thread that polls the
 * submission queue, so the kernel looks at it only inside enter().
 */
#ifndef IGGY_URING_KERNEL_H
#define IGGY_URING_KERNEL_H

#include <errno.h>
#include <linux/io_uring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The smallest kernel header we build with has no such flag; a kernel without it refuses it. */
#ifndef IORING_SETUP_SUBMIT_ALL
#define IORING_SETUP_SUBMIT_ALL (1U << 7)
#endif

enum { PROBED_OPERATIONS = 256 };

struct kernel_ring {
    int descriptor;
    int eventfd;
    unsigned entries;

    void *shared;
    size_t shared_bytes;

    struct io_uring_sqe *submissions;
    size_t submissions_bytes;
    unsigned *submission_head;
    unsigned *submission_tail;
    unsigned *submission_flags;
    unsigned submission_mask;
    unsigned tail; /* ours; the kernel learns of it in enter() */

    struct io_uring_cqe *completions;
    unsigned *completion_head;
    unsigned *completion_tail;
    unsigned completion_mask;
};

static int kernel_setup(unsigned entries, struct io_uring_params *parameters)
{
    static const unsigned wishes[] = {IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL,
                                      IORING_SETUP_CLAMP};
    int descriptor = -1;
    for (size_t i = 0; descriptor < 0 && i < sizeof wishes / sizeof wishes[0]; i++) {
        memset(parameters, 0, sizeof *parameters);
        parameters->flags = wishes[i];
        descriptor = (int)syscall(__NR_io_uring_setup, entries, parameters);
        if (descriptor < 0 && errno != EINVAL)
            break;
    }
    return descriptor;
}

static int kernel_register(const struct kernel_ring *ring, unsigned what, void *argument,
                           unsigned count)
{
    return (int)syscall(__NR_io_uring_register, ring->descriptor, what, argument, count);
}

/* Tell whether the kernel knows every operation we ask for; 0, or -1 with errno. */
static int kernel_probe(const struct kernel_ring *ring, const char **step)
{
    static const uint8_t needed[] = {IORING_OP_NOP,   IORING_OP_READ,  IORING_OP_WRITE,
                                     IORING_OP_WRITEV, IORING_OP_FSYNC, IORING_OP_ASYNC_CANCEL};
    union {
        struct io_uring_probe head;
        uint8_t bytes[sizeof(struct io_uring_probe) +
                      PROBED_OPERATIONS * sizeof(struct io_uring_probe_op)];
    } probe;
    memset(&probe, 0, sizeof probe);
    *step = "probe the operations of io_uring";
    if (kernel_register(ring, IORING_REGISTER_PROBE, &probe, PROBED_OPERATIONS) < 0)
        return -1;
    const struct io_uring_probe_op *known =
        (const void *)(probe.bytes + offsetof(struct io_uring_probe, ops));
    for (size_t i = 0; i < sizeof needed; i++) {
        if (needed[i] > probe.head.last_op || !(known[needed[i]].flags & IO_URING_OP_SUPPORTED)) {
            *step = "find the operations needed in this kernel's io_uring";
            errno = EOPNOTSUPP;
            return -1;
        }
    }
    return 0;
}

static int kernel_map(struct kernel_ring *ring, const struct io_uring_params *parameters)
{
    size_t ring_bytes = parameters->sq_off.array + parameters->sq_entries * sizeof(unsigned);
    size_t completed_bytes =
        parameters->cq_off.cqes + parameters->cq_entries * sizeof(struct io_uring_cqe);
    ring->shared_bytes = ring_bytes > completed_bytes ? ring_bytes : completed_bytes;
    ring->submissions_bytes = parameters->sq_entries * sizeof(struct io_uring_sqe);

    int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    ring->shared = mmap(NULL, ring->shared_bytes, protection, flags, ring->descriptor,
                        IORING_OFF_SQ_RING);
    if (ring->shared == MAP_FAILED)
        return -1;
    ring->submissions = mmap(NULL, ring->submissions_bytes, protection, flags, ring->descriptor,
                             IORING_OFF_SQES);
    if (ring->submissions == MAP_FAILED)
        return -1;
    /* A child process must not even be able to write into its parent's queues. */
    if (madvise(ring->shared, ring->shared_bytes, MADV_DONTFORK) < 0)
        return -1;
    return madvise(ring->submissions, ring->submissions_bytes, MADV_DONTFORK);
}

static void kernel_find_parts(struct kernel_ring *ring, const struct io_uring_params *parameters)
{
    uint8_t *start = ring->shared;
    const struct io_sqring_offsets *submission = &parameters->sq_off;
    const struct io_cqring_offsets *completion = &parameters->cq_off;
    ring->entries = parameters->sq_entries;
    ring->submission_head = (void *)(start + submission->head);
    ring->submission_tail = (void *)(start + submission->tail);
    ring->submission_flags = (void *)(start + submission->flags);
    ring->submission_mask = *(unsigned *)(void *)(start + submission->ring_mask);
    ring->completions = (void *)(start + completion->cqes);
    ring->completion_head = (void *)(start + completion->head);
    ring->completion_tail = (void *)(start + completion->tail);
    ring->completion_mask = *(unsigned *)(void *)(start + completion->ring_mask);
    ring->tail = *ring->submission_tail;
    unsigned *order = (void *)(start + submission->array);
    for (unsigned i = 0; i < ring->entries; i++)
        order[i] = i;
}

/* Let go of descriptors and, unless a fork has passed them on, of the mappings. */
static void kernel_close(struct kernel_ring *ring, bool is_ours)
{
    if (is_ours && ring->shared != MAP_FAILED)
        munmap(ring->shared, ring->shared_bytes);
    if (is_ours && ring->submissions != MAP_FAILED)
        munmap(ring->submissions, ring->submissions_bytes);
    if (ring->descriptor >= 0)
        close(ring->descriptor);
    if (ring->eventfd >= 0)
        close(ring->eventfd);
    ring->shared = ring->submissions = MAP_FAILED;
    ring->descriptor = ring->eventfd = -1;
}

static void kernel_clear(struct kernel_ring *ring)
{
    memset(ring, 0, sizeof *ring);
    ring->shared = ring->submissions = MAP_FAILED;
    ring->descriptor = ring->eventfd = -1;
}

/* Set a ring up; 0, or -1 with errno and the step that failed, and nothing left behind. */
static int kernel_open(struct kernel_ring *ring, unsigned entries, const char **step)
{
    const unsigned needed = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP;
    struct io_uring_params parameters;
    kernel_clear(ring);
    *step = "set up io_uring";
    ring->descriptor = kernel_setup(entries, &parameters);
    if (ring->descriptor < 0)
        return -1;
    if ((parameters.features & needed) != needed) {
        *step = "find the features needed in this kernel's io_uring";
        errno = EOPNOTSUPP;
    } else if (kernel_probe(ring, step) == 0) {
        *step = "map the memory of io_uring";
        if (kernel_map(ring, &parameters) == 0) {
            kernel_find_parts(ring, &parameters);
            *step = "make an eventfd for io_uring";
            ring->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
            if (ring->eventfd >= 0 &&
                kernel_register(ring, IORING_REGISTER_EVENTFD, &ring->eventfd, 1) == 0)
                return 0;
        }
    }
    int error = errno;
    kernel_close(ring, true);
    errno = error;
    return -1;
}

/* ---- submissions ------------------------------------------------------------------------ */

static unsigned kernel_consumed(const struct kernel_ring *ring)
{
    return __atomic_load_n(ring->submission_head, __ATOMIC_ACQUIRE);
}

/* How many entries are written and not yet taken by the kernel. */
static unsigned kernel_prepared(const struct kernel_ring *ring)
{
    return ring->tail - kernel_consumed(ring);
}

static struct io_uring_sqe *kernel_entry(const struct kernel_ring *ring, unsigned number)
{
    return &ring->submissions[number & ring->submission_mask];
}

/* The next empty entry; the caller has seen to it that there is one. */
static struct io_uring_sqe *kernel_prepare(struct kernel_ring *ring)
{
    struct io_uring_sqe *entry = kernel_entry(ring, ring->tail++);
    memset(entry, 0, sizeof *entry);
    return entry;
}

/* Take back all that the kernel has not seen. */
static void kernel_unprepare(struct kernel_ring *ring)
{
    ring->tail = kernel_consumed(ring);
    __atomic_store_n(ring->submission_tail, ring->tail, __ATOMIC_RELEASE);
}

/* Hand over up to `submit` entries, wait for `wait` completions; as the system call answers. */
static int kernel_enter(struct kernel_ring *ring, unsigned submit, unsigned wait)
{
    unsigned flags = submit == 0 || wait > 0 ? IORING_ENTER_GETEVENTS : 0;
    __atomic_store_n(ring->submission_tail, ring->tail, __ATOMIC_RELEASE);
    return (int)syscall(__NR_io_uring_enter, ring->descriptor, submit, wait, flags, NULL, 0);
}

/* ---- completions ------------------------------------------------------------------------ */

/* The oldest completion not yet seen, or NULL. It stays valid until kernel_seen(). */
static const struct io_uring_cqe *kernel_completion(const struct kernel_ring *ring)
{
    unsigned head = *ring->completion_head;
    if (head == __atomic_load_n(ring->completion_tail, __ATOMIC_ACQUIRE))
        return NULL;
    return &ring->completions[head & ring->completion_mask];
}

static void kernel_seen(struct kernel_ring *ring)
{
    __atomic_store_n(ring->completion_head, *ring->completion_head + 1, __ATOMIC_RELEASE);
}

/* Whether the kernel keeps completions that did not fit; enter() makes it bring them. */
static bool kernel_overflowed(const struct kernel_ring *ring)
{
    return __atomic_load_n(ring->submission_flags, __ATOMIC_RELAXED) & IORING_SQ_CQ_OVERFLOW;
}

/* ---- waking ----------------------------------------------------------------------------- */

static void kernel_wake(const struct kernel_ring *ring)
{
    uint64_t one = 1;
    ssize_t count = write(ring->eventfd, &one, sizeof one);
    (void)count; /* a full counter wakes just as well */
}

static void kernel_unwake(const struct kernel_ring *ring)
{
    uint64_t wakes;
    ssize_t count = read(ring->eventfd, &wakes, sizeof wakes);
    (void)count; /* nothing to read is no error */
}

#endif
