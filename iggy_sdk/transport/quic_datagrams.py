"""Sending datagrams with few system calls.

Datagrams of one size go to the kernel in one call, which segments them (``UDP_SEGMENT``) in a tenth
of the time; where that is not supported, each is sent by itself.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence

__all__ = ["DatagramSender", "cut_runs"]

# Of the Linux kernel: the socket option, and the limits of one call (UDP_MAX_SEGMENTS, 64 KiB).
SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
SEGMENTS_MAX: Final = 64
RUN_BYTES_MAX: Final = 65_000
SEGMENT_SIZE: Final = struct.Struct("=H")

# A full queue or a route that may come back: treated as a lost datagram, which QUIC resends.
PASSING: Final = frozenset(
    {errno.ENOBUFS, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM, errno.EMSGSIZE}
)
# Errors of a kernel or device without UDP segmentation.
UNABLE: Final = frozenset({errno.EINVAL, errno.EIO, errno.ENOPROTOOPT, errno.EOPNOTSUPP})


class DatagramSender:
    """Sends through a connected UDP socket, and never waits."""

    def __init__(self, dialled: socket.socket) -> None:
        """Take the socket, which the caller closes."""
        self._socket = dialled
        self._can_segment = True

    def send(self, datagrams: Sequence[bytes]) -> None:
        """Send what can be sent; QUIC repeats the rest.

        Raises:
            OSError: the server is out of reach.
        """
        for run in cut_runs(datagrams):
            if len(run) == 1 or not self._can_segment or not self._send_run(run):
                for data in run:
                    self._send_one(data)

    def _send_run(self, run: list[bytes]) -> bool:
        """Send datagrams of one size in one call; False where the kernel does not support that."""
        try:
            self._socket.sendmsg(run, [(SOL_UDP, UDP_SEGMENT, SEGMENT_SIZE.pack(len(run[0])))])
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno in UNABLE:
                self._can_segment = False
                return False
            if error.errno not in PASSING:
                raise
        return True

    def _send_one(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in PASSING:
                raise


def cut_runs(datagrams: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Cut a list into runs that one call can send: of one size, but for a shorter last one."""
    run: list[bytes] = []
    for data in datagrams:
        is_full = bool(run) and len(run) >= min(SEGMENTS_MAX, RUN_BYTES_MAX // len(run[0]))
        if run and (is_full or len(run[-1]) < len(run[0]) or len(data) > len(run[0])):
            yield run
            run = []
        run.append(data)
    if run:
        yield run
