"""Whether bytes of a file are in the page cache, by the system call ``cachestat``.

A page that is just being read counts as cached, so a sender may wait for the rest of that read.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["NOWAIT", "is_resident"]

# Linux only: a read with this flag fails instead of waiting for a disk.
NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)

HAS_CACHESTAT = sys.platform == "linux"
# The same number on every architecture that got the call when it was new (6.5).
CACHESTAT_NUMBER = 451
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Without cachestat this many pages of a range are tried, the first and the last among them.
SAMPLES_MAX = 16


# struct cachestat_range: position, size. struct cachestat: cached, dirty, in writeback, evicted,
# recently evicted; all counted in pages.
Range = ctypes.c_uint64 * 2
PageCounts = ctypes.c_uint64 * 5

# Short calls that need not let other threads in.
LIBC = ctypes.PyDLL(None)


def count_cached_pages(descriptor: int, position: int, size: int) -> int | None:
    """Count the pages of a range that are in memory; None where the kernel cannot tell."""
    counts = PageCounts()
    failed = LIBC.syscall(
        ctypes.c_long(CACHESTAT_NUMBER),
        ctypes.c_uint(descriptor),
        ctypes.byref(Range(position, size)),
        ctypes.byref(counts),
        ctypes.c_uint(0),
    )
    return None if failed else counts[0]


def is_resident(descriptor: int, position: int, size: int) -> bool:
    """Tell whether a range that lies inside a file is in memory.

    Where the kernel has no ``cachestat`` a sample of its pages is tried, so that a gap between
    two of them may go unnoticed. Where it cannot be asked at all the answer is no.
    """
    if size <= 0:
        return True
    first, last = position // PAGE_BYTES, (position + size - 1) // PAGE_BYTES
    cached = count_cached_pages(descriptor, position, size) if HAS_CACHESTAT else None
    if cached is None:
        return is_sample_resident(descriptor, first, last)
    return cached > last - first


def is_sample_resident(descriptor: int, first: int, last: int) -> bool:
    """Try evenly spread pages of a range, both ends included."""
    if NOWAIT is None:
        return False
    steps = min(last - first, SAMPLES_MAX - 1)
    pages = [first + (last - first) * step // max(steps, 1) for step in range(steps + 1)]
    byte = bytearray(1)
    try:
        return all(os.preadv(descriptor, [byte], page * PAGE_BYTES, NOWAIT) for page in pages)
    except OSError:
        return False
