"""The UDP socket of the QUIC listener: many datagrams per wake-up, and few calls to send them.

``receive`` busy-polls for a short time before it sleeps, with checkpoints for other tasks. ``send``
never waits: a datagram that the kernel does not take is dropped, as a router may do, and QUIC
repeats it. Datagrams of one size to one client go in one call, and the kernel splits them
(``UDP_SEGMENT``), which takes a tenth of the time; without that support each is sent alone.
"""

from __future__ import annotations

import contextlib
import select
import socket
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

import trio

from iggy_protocol.quic import SEGMENTATION_ERRNOS, segment_option, split_runs
from iggy_ref_server.net.busy_poll import BusyPoll

Datagram: TypeAlias = tuple[bytes, Any]
"""The bytes, and the address where they come from or go to."""

# The limit of datagrams per wake-up; with large datagrams half a megabyte.
DATAGRAMS_PER_WAKE: Final = 64
DATAGRAM_BYTES_MAX: Final = 65_536
# What a client on the same machine needs to decrypt a reply and to send again. After a sleep the
# library's code is no longer in the core's caches, and the next request takes 1.5 times as long.
SPIN_S: Final = 600e-6
# Enough for the windows of many clients; the kernel caps it at net.core.rmem_max.
RECEIVE_BUFFER_BYTES: Final = 4 << 20


class DatagramSocket(Protocol):
    """Sends and receives datagrams."""

    async def receive(self) -> list[Datagram]:
        """Wait for datagrams, and return them."""

    def send(self, datagrams: list[Datagram]) -> None:
        """Send what the kernel takes, and drop the others."""

    def close(self) -> None:
        """Stop sending and receiving."""


class UdpSocket:
    """A bound UDP socket.

    Args:
        bound: the socket, which this object closes.
    """

    def __init__(self, bound: socket.socket) -> None:
        bound.setblocking(False)
        self._socket = bound
        self._space = bytearray(DATAGRAM_BYTES_MAX)
        self._can_segment = True
        self._ready = select.poll()
        self._ready.register(bound, select.POLLIN)
        self._busy_poll = BusyPoll(self._has_some, spin_s=SPIN_S)

    def set_options(
        self,
        *,
        receive_bytes: int = RECEIVE_BUFFER_BYTES,
        send_bytes: int | None = None,
        keepalive: bool = False,
    ) -> None:
        """Set the buffer sizes; the kernel may grant less."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, keepalive)
            if send_bytes is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)

    async def receive(self) -> list[Datagram]:
        """Wait for datagrams, and return them."""
        received: list[Datagram] = []
        while not received:
            if not await self._busy_poll.poll_with_checkpoints():
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
                    # An ICMP error of an earlier datagram; the kernel does not say for which peer.
                    continue
                received.append((bytes(view[:size]), address))
        return received

    def _has_some(self) -> bool:
        # The descriptor of a closed socket may be in use for another file.
        return self._socket.fileno() >= 0 and bool(self._ready.poll(0))

    def send(self, datagrams: list[Datagram]) -> None:
        """Send what the kernel takes, and drop the others."""
        if len(datagrams) == 1:
            self._send_each(datagrams)
            return
        for address, group in groupby(datagrams, itemgetter(1)):
            for run in split_runs([data for data, _ in group]):
                if len(run) == 1 or not self._can_segment or not self._send_run(run, address):
                    self._send_each([(data, address) for data in run])

    def _send_run(self, run: list[bytes], address: Any) -> bool:
        """Send datagrams of one size in one call; False if the kernel has no segmentation."""
        try:
            self._socket.sendmsg(run, segment_option(run), 0, address)
        except BlockingIOError:
            return True
        except OSError as error:
            # Any other error concerns this client only: its datagrams count as lost.
            self._can_segment = error.errno not in SEGMENTATION_ERRNOS
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
        """Close, and wake the task that receives."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
