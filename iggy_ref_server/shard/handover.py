"""Connections that move to the shard which has what they ask for.

Forwarding costs waking the other process for every request, and a copy of every byte. A client that
keeps asking for partitions of one other shard is better served there, so its socket is passed to
that shard, once, with what is known of the client. The client notices nothing: its number, its
login and its memberships stay, and what it has sent ahead goes along.

Descriptors cannot travel between the letters of the wall without every letter being read as if it
might bring one. So each pair of shards has a passage for them alone: a socket of whole packets,
each with one descriptor and one record.

Owns the passages. When a client moves is decided by those who serve it.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import msgspec
import trio

from iggy_ref_server.shard.census import caller_of, session_of
from iggy_ref_server.shard.letters import Caller  # noqa: TC001  msgspec reads the annotation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_ref_server.session import Session

__all__ = ["Arrival", "Handover"]

# A record is a few hundred bytes beside what the client has sent ahead, at most 64 KiB.
PACKET_BYTES_MAX = 1 << 17


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """A client that comes from another shard.

    Attributes:
        caller: who it is.
        metadata_version: what it has seen; it must not see anything older here.
        last_seen_us: its last sign of life.
        unread: what it has sent ahead.
    """

    caller: Caller
    metadata_version: int
    last_seen_us: int
    unread: bytes

    @property
    def session(self) -> Session:
        """The session that goes on."""
        return session_of(self.caller)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Arrival)


class Handover:
    """All passages of one shard.

    Args:
        passages: sockets to the other shards, by their ids.
        last_seen_us: returns the last sign of life of a client.
        leave: takes a client out of the books of this shard.
        version: returns which metadata this shard shows its clients.
    """

    def __init__(
        self,
        passages: Mapping[int, socket.socket],
        last_seen_us: Callable[[Session], int],
        leave: Callable[[Session], None],
        version: Callable[[], int],
    ) -> None:
        self._passages = passages
        self._last_seen_us = last_seen_us
        self._leave = leave
        self._version = version
        for passage in passages.values():
            passage.setblocking(False)

    def move(
        self, connected: socket.socket, session: Session, unread: bytes, shard_id: int
    ) -> bool:
        """Have another shard go on with a connection; False when that shard cannot take it now."""
        arrival = Arrival(caller_of(session), self._version(), self._last_seen_us(session), unread)
        packet = _encoder.encode(arrival)
        try:
            socket.send_fds(self._passages[shard_id], [packet], [connected.fileno()])
        except OSError:
            return False
        self._leave(session)
        return True

    async def run(self, arrived: Callable[[socket.socket, Arrival], None]) -> None:
        """Take connections of other shards until cancelled."""
        async with trio.open_nursery() as nursery:
            for passage in self._passages.values():
                nursery.start_soon(self._receive, passage, arrived)

    async def _receive(
        self, passage: socket.socket, arrived: Callable[[socket.socket, Arrival], None]
    ) -> None:
        with passage:
            while True:
                await trio.lowlevel.wait_readable(passage)
                try:
                    packet, descriptors, _, _ = socket.recv_fds(passage, PACKET_BYTES_MAX, 1)
                except BlockingIOError:
                    continue
                except OSError:
                    return
                if not packet:
                    return
                connected = socket.socket(fileno=descriptors[0])
                connected.set_inheritable(False)
                arrived(connected, _decoder.decode(packet))
