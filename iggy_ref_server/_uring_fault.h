/*
 * A part of _uring.c, which includes it: faults that a test injects into a real ring. Operations
 * fail, do less than asked, or their completion is kept back; submissions are taken only in part.
 *
 * They are compiled only where IGGY_URING_FAULTS is defined, as `make setup` does. The ring that
 * users install has neither the methods nor the questions.
 */
#ifndef IGGY_URING_FAULT_H
#define IGGY_URING_FAULT_H

#include <stdbool.h>
#include <stddef.h>

#ifdef IGGY_URING_FAULTS

/* After enum kind, so that one number says what a fault is about. */
enum { FAULT_SUBMIT = KIND_COUNT, FAULT_SUBJECTS };

static const char *const FAULT_NAMES[FAULT_SUBJECTS] = {
    [KIND_WRITE] = "write",
    [KIND_READ] = "read",
    [KIND_FSYNC] = "fsync",
    [FAULT_SUBMIT] = "submit",
};

enum { FAULTS_MAX = 16 };

struct fault {
    int subject;
    unsigned countdown; /* 1: the next one */
    bool is_each;       /* no countdown: every one */
    bool is_hold;
    int result; /* negative: an error number; else the most that is done */
};

struct faults {
    struct fault items[FAULTS_MAX];
    size_t count;
};

static bool fault_plant(struct faults *faults, struct fault fault)
{
    if (faults->count == FAULTS_MAX)
        return false;
    faults->items[faults->count++] = fault;
    return true;
}

/* Find what befalls an operation. Every fault of its subject counts it; one that was due goes. */
static bool fault_strike(struct faults *faults, int subject, bool is_hold, int *result)
{
    bool has_struck = false;
    size_t kept = 0;
    for (size_t i = 0; i < faults->count; i++) {
        struct fault fault = faults->items[i];
        bool is_meant = fault.subject == subject && fault.is_hold == is_hold;
        bool is_due = is_meant && (fault.is_each || --fault.countdown == 0);
        if (is_due && !has_struck) {
            has_struck = true;
            *result = fault.result;
        }
        if (!is_due || fault.is_each)
            faults->items[kept++] = fault;
    }
    faults->count = kept;
    return has_struck;
}

static void fault_forget(struct faults *faults)
{
    faults->count = 0;
}

#else

enum { FAULT_SUBMIT = KIND_COUNT };

struct faults {
    char none;
};

static inline bool fault_strike(struct faults *faults, int subject, bool is_hold, int *result)
{
    (void)faults, (void)subject, (void)is_hold, (void)result;
    return false;
}

static inline void fault_forget(struct faults *faults)
{
    (void)faults;
}

#endif /* IGGY_URING_FAULTS */

#endif
