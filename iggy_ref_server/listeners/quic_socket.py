"""The UDP socket of the QUIC door: many datagrams for one wake, and few calls to send them.

``receive`` waits once, then takes what is there, up to a bound; before it falls asleep it looks
around for a moment, as long as that pays, and everybody else has turns meanwhile. ``send`` hands
all datagrams of a step to the kernel and never waits: what the kernel does not take at once is
dropped, as any router may do, and QUIC sends it again. Datagrams of one size to one client are
handed over in one call and cut apart by the kernel (``UDP_SEGMENT``), which takes a tenth of the
time; where that is not to be had, each is sent by itself.

Owns the descriptor. Knows no packets.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import trio

from iggy_ref_server.data_plane.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Datagram", "DatagramSocket", "UdpSocket", "cut_runs"]

Datagram: TypeAlias = tuple[bytes, Any]
"""The bytes, and the address where they come from or go to."""

# What one wake takes before others have their turn; with large datagrams half a megabyte.
DATAGRAMS_PER_WAKE: Final = 64
DATAGRAM_BYTES_MAX: Final = 65_536
# What a client on the same machine needs to decipher an answer and to ask again. A core that slept
# meanwhile has forgotten the library's code and needs half as long again for the next request.
MOMENT_S: Final = 600e-6
# Room for the windows of many clients; the kernel grants what its own bound allows.
RECEIVE_BUFFER_BYTES: Final = 4 << 20
# Of the kernel: the option, and how much one call may carry.
SOL_UDP: Final = 17
UDP_SEGMENT: Final = 103
SEGMENTS_MAX: Final = 64
RUN_BYTES_MAX: Final = 65_000
SEGMENT_SIZE: Final = struct.Struct("=H")
# What the kernel says that cannot cut datagrams, or not for this way.
UNABLE: Final = frozenset({errno.EINVAL, errno.EIO, errno.ENOPROTOOPT, errno.EOPNOTSUPP})


class DatagramSocket(Protocol):
    """How datagrams travel."""

    async def receive(self) -> list[Datagram]:
        """Wait for datagrams, and return what has come."""

    def send(self, datagrams: list[Datagram]) -> None:
        """Send what can be sent."""

    def close(self) -> None:
        """Send and receive nothing more."""


class UdpSocket:
    """A bound UDP socket.

    Args:
        bound: the socket, which belongs to this object from now on.
    """

    def __init__(self, bound: socket.socket) -> None:
        bound.setblocking(False)
        self._socket = bound
        self._space = bytearray(DATAGRAM_BYTES_MAX)
        self._can_segment = True
        self._ready = select.poll()
        self._ready.register(bound, select.POLLIN)
        self._patience = Patience(self._has_some, moment_s=MOMENT_S)

    def set_options(
        self,
        *,
        receive_bytes: int = RECEIVE_BUFFER_BYTES,
        send_bytes: int | None = None,
        keepalive: bool = False,
    ) -> None:
        """Ask the kernel for other buffers than its default; it need not grant them."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, keepalive)
            if send_bytes is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)

    async def receive(self) -> list[Datagram]:
        """Wait for datagrams, and return what has come."""
        received: list[Datagram] = []
        while not received:
            if not await self._patience.pays_in_turns():
                if self._socket.fileno() < 0:
                    raise trio.ClosedResourceError
                await trio.lowlevel.wait_readable(self._socket)
            view = memoryview(self._space)
            for _ in range(DATAGRAMS_PER_WAKE):
                try:
                    size, address = self._socket.recvfrom_into(self._space)
                except BlockingIOError:
                    break
                except OSError:
                    # An earlier datagram of ours could not be delivered; whose, nobody says.
                    continue
                received.append((bytes(view[:size]), address))
        return received

    def _has_some(self) -> bool:
        # The number of a closed socket may belong to somebody else by now.
        return self._socket.fileno() >= 0 and bool(self._ready.poll(0))

    def send(self, datagrams: list[Datagram]) -> None:
        """Send what can be sent."""
        if len(datagrams) == 1:
            self._send_each(datagrams)
            return
        for address, group in groupby(datagrams, itemgetter(1)):
            for run in cut_runs([data for data, _ in group]):
                if len(run) == 1 or not self._can_segment or not self._send_run(run, address):
                    self._send_each([(data, address) for data in run])

    def _send_run(self, run: list[bytes], address: Any) -> bool:
        """Send datagrams of one size in one call; False where the kernel does not do that."""
        size = [(SOL_UDP, UDP_SEGMENT, SEGMENT_SIZE.pack(len(run[0])))]
        try:
            self._socket.sendmsg(run, size, 0, address)
        except BlockingIOError:
            return True
        except OSError as error:
            # Anything else is about this client, and as if its datagrams were lost.
            self._can_segment = error.errno not in UNABLE
            return self._can_segment
        return True

    def _send_each(self, datagrams: list[Datagram]) -> None:
        for data, address in datagrams:
            try:
                self._socket.sendto(data, address)
            except BlockingIOError:
                return
            except OSError:
                continue

    def close(self) -> None:
        """Close, and wake whoever waits here."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


def cut_runs(datagrams: list[bytes]) -> Iterator[list[bytes]]:
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
