"""Connection migration: move a client's socket to the shard that owns the data it uses.

Forwarding wakes the other process for every request and copies every byte. A client that keeps
using partitions of one other shard is better served there. So its socket is passed to that shard,
with the session. The client notices nothing: its id, its login and its group memberships stay, and
bytes that it has sent ahead are passed along.

A descriptor travels as ancillary data of ``sendmsg``, and every read of a stream would have to
provide for it. So each pair of shards has a second socket for migration, of type SEQPACKET: each
packet holds one descriptor and one record. The socket server decides when a client migrates.
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

# A record has a few hundred bytes, plus at most 64 KiB that the client has sent ahead.
PACKET_BYTES_MAX = 1 << 17


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """A client that migrates from another shard.

    Attributes:
        caller: its session.
        metadata_version: the version that it has seen; it must not see an older one here.
        last_seen_us: when its last request came.
        unread: bytes that it has sent ahead.
    """

    caller: Caller
    metadata_version: int
    last_seen_us: int
    unread: bytes

    @property
    def session(self) -> Session:
        """The session to continue."""
        return session_of(self.caller)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Arrival)


class Handover:
    """Sends clients to other shards, and receives theirs.

    Args:
        passages: SEQPACKET sockets to the other shards, by their ids.
        last_seen_us: returns when the last request of a client came.
        leave: removes a client from this shard.
        version: returns the version of the metadata that clients of this shard see.
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
        """Pass a connection to another shard; return False if its socket is full."""
        arrival = Arrival(caller_of(session), self._version(), self._last_seen_us(session), unread)
        packet = _encoder.encode(arrival)
        try:
            socket.send_fds(self._passages[shard_id], [packet], [connected.fileno()])
        except OSError:
            return False
        self._leave(session)
        return True

    async def run(self, arrived: Callable[[socket.socket, Arrival], None]) -> None:
        """Receive connections of other shards until cancelled."""
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
