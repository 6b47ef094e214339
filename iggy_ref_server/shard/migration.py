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

from iggy_ref_server.shard.calls import describe_session, restore_session
from iggy_ref_server.shard.messages import SessionInfo  # noqa: TC001  msgspec reads the annotation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iggy_ref_server.net.socket_server import MovingClient
    from iggy_ref_server.session import ClientSession


# A record has a few hundred bytes, plus at most 64 KiB that the client has sent ahead.
PACKET_BYTES_MAX = 1 << 17


class MigratedClient(msgspec.Struct, frozen=True, array_like=True):
    """A client that migrates from another shard.

    Attributes:
        session_info: its session, with what its login has bound.
        metadata_version: the version that it has seen; it must not see an older one here.
        last_seen_us: when its last request came.
        is_vsr: whether it uses the framing from 0.9 on.
        unread: bytes that it has sent ahead.
    """

    session_info: SessionInfo
    metadata_version: int
    last_seen_us: int
    is_vsr: bool
    unread: bytes

    @property
    def session(self) -> ClientSession:
        """The session to continue."""
        return restore_session(self.session_info)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(MigratedClient)


class ConnectionMigration:
    """Sends clients to other shards, and receives theirs.

    Args:
        migration_sockets: SEQPACKET sockets to the other shards, by their ids.
        last_seen_us: returns when the last request of a client came.
        on_left: removes a client from this shard.
        version: returns the version of the metadata that clients of this shard see.
    """

    def __init__(
        self,
        migration_sockets: Mapping[int, socket.socket],
        last_seen_us: Callable[[ClientSession], int],
        on_left: Callable[[ClientSession], None],
        version: Callable[[], int],
    ) -> None:
        self._sockets = migration_sockets
        self._last_seen_us = last_seen_us
        self._on_left = on_left
        self._version = version
        for migration_socket in migration_sockets.values():
            migration_socket.setblocking(False)

    def move(self, connected: socket.socket, client: MovingClient, shard_id: int) -> bool:
        """Pass a connection to another shard; return False if its socket is full."""
        session = client.session
        migrated = MigratedClient(
            describe_session(session),
            self._version(),
            self._last_seen_us(session),
            client.is_vsr,
            client.unread,
        )
        packet = _encoder.encode(migrated)
        try:
            socket.send_fds(self._sockets[shard_id], [packet], [connected.fileno()])
        except OSError:
            return False
        self._on_left(session)
        return True

    async def run(self, on_migrated: Callable[[socket.socket, MigratedClient], None]) -> None:
        """Receive connections of other shards until cancelled."""
        async with trio.open_nursery() as nursery:
            for migration_socket in self._sockets.values():
                nursery.start_soon(self._receive, migration_socket, on_migrated)

    async def _receive(
        self,
        migration_socket: socket.socket,
        on_migrated: Callable[[socket.socket, MigratedClient], None],
    ) -> None:
        with migration_socket:
            while True:
                await trio.lowlevel.wait_readable(migration_socket)
                try:
                    packet, descriptors, _, _ = socket.recv_fds(
                        migration_socket, PACKET_BYTES_MAX, 1
                    )
                except BlockingIOError:
                    continue
                except OSError:
                    return
                if not packet:
                    return
                connected = socket.socket(fileno=descriptors[0])
                connected.set_inheritable(False)
                on_migrated(connected, _decoder.decode(packet))
