"""What a shard is given: its configuration, its sockets, and the memory that shards share."""

from __future__ import annotations

import mmap
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import field

import trio

from iggy_protocol import record
from iggy_ref_server.clock import Clock
from iggy_ref_server.config.load import RootCredentials
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.host import Ports
from iggy_ref_server.identity.credentials import Passwords
from iggy_ref_server.shard.listener_table import BoundSockets
from iggy_ref_server.storage.interface import Storage

DEFAULT_PORTS = Ports()


@record(kw_only=True)
class ShardSpec:
    """Everything that a shard is given.

    Attributes:
        shard_id: shard 0 writes the metadata.
        root: returns the credentials of the root user, where a new data directory needs them.
        given_root: those that the environment has, which may no longer be right.
        peer_sockets: sockets of the channels to the other shards, by their ids.
        migration_sockets: sockets for connection migration; none where connections do not migrate.
        round_robin_memory: the counters of balanced sends, shared by all shards.
        position_memory: the position of the metadata, shared by all shards.
        bound_by_listener: the bound sockets of this shard, by the name of the listener.
        ports: the ports of the server's listeners.
        ip: the address of the TCP listener.
        is_follower: whether this node reports itself as a follower.
        writes_survived: whether the machine has not rebooted since a server last used the data.
        random_bytes: the source of ids and tokens.
        cores: the cores of all shards, if these are pinned.
    """

    shard_id: int
    config: ServerConfig
    storage: Storage
    clock: Clock
    root: Callable[[], RootCredentials]
    given_root: RootCredentials | None = None
    peer_sockets: Mapping[int, trio.socket.SocketType] = field(default_factory=dict)
    migration_sockets: Mapping[int, socket.socket] = field(default_factory=dict)
    passwords: Passwords | None = None
    round_robin_memory: mmap.mmap | None = None
    position_memory: mmap.mmap | None = None
    bound_by_listener: Mapping[str, BoundSockets] = field(default_factory=dict)
    ports: Ports = DEFAULT_PORTS
    ip: str = "127.0.0.1"
    is_follower: bool = False
    writes_survived: bool = False
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    cores: frozenset[int] = frozenset()
