"""Datagrams of one size in one system call, which the kernel segments (``UDP_SEGMENT``).

That takes a tenth of the time of a call for each. The callers own the sockets: they send a run with
``socket.sendmsg(run, segment_option(run))``, and each datagram by itself once the call has failed
with one of ``SEGMENTATION_ERRNOS``.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["RUN_BYTES_MAX", "SEGMENTATION_ERRNOS", "SEGMENTS_MAX", "segment_option", "split_runs"]

# Of the Linux kernel: the socket option, and the limits of one call (UDP_MAX_SEGMENTS, 64 KiB).
SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
SEGMENTS_MAX: Final = 64
RUN_BYTES_MAX: Final = 65_000
SEGMENT_SIZE: Final = struct.Struct("=H")
# Errors of a kernel, a device or a route without segmentation.
SEGMENTATION_ERRNOS: Final = frozenset(
    {errno.EINVAL, errno.EIO, errno.ENOPROTOOPT, errno.EOPNOTSUPP}
)


def split_runs(datagrams: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Split a list into runs for one call each: of one size, except a shorter last datagram."""
    run: list[bytes] = []
    for data in datagrams:
        is_full = bool(run) and len(run) >= min(SEGMENTS_MAX, RUN_BYTES_MAX // len(run[0]))
        if run and (is_full or len(run[-1]) < len(run[0]) or len(data) > len(run[0])):
            yield run
            run = []
        run.append(data)
    if run:
        yield run


def segment_option(run: Sequence[bytes]) -> list[tuple[int, int, bytes]]:
    """Return the ancillary data of ``sendmsg`` for a run."""
    return [(SOL_UDP, UDP_SEGMENT, SEGMENT_SIZE.pack(len(run[0])))]
