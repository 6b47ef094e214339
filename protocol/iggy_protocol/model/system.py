"""A server as it describes itself: its clients, its cluster, its statistics and snapshots."""

from __future__ import annotations

from enum import IntEnum

from iggy_protocol.records import optional_field, record


class Transport(IntEnum):
    """How a client is connected."""

    TCP = 1
    QUIC = 2
    HTTP = 3
    WEBSOCKET = 4


@record
class ClientInfo:
    """A connection; ``user_id`` is ``None`` before it has logged in."""

    client_id: int
    user_id: int | None
    transport: Transport
    address: str
    consumer_groups_count: int


@record
class ConsumerGroupMembership:
    """A group that a client has joined."""

    stream_id: int
    topic_id: int
    group_id: int


@record
class ClientDetails(ClientInfo):
    """A connection with the groups it has joined."""

    consumer_groups: tuple[ConsumerGroupMembership, ...] = ()


# The nodes of a cluster as a server describes them.


class NodeRole(IntEnum):
    """Which part a node plays."""

    LEADER = 0
    FOLLOWER = 1


class NodeStatus(IntEnum):
    """How a node is doing."""

    HEALTHY = 0
    STARTING = 1
    STOPPING = 2
    UNREACHABLE = 3
    MAINTENANCE = 4
    UNKNOWN = 5


@record
class ClusterNode:
    """A node and the ports of its transports; a port of 0 is not served.

    Attributes:
        replica_id: names the node in routes and lists of replicas; servers before 0.10 tell 0.
    """

    name: str
    ip: str
    tcp_port: int
    quic_port: int
    http_port: int
    websocket_port: int
    role: NodeRole
    status: NodeStatus
    replica_id: int = optional_field(default=0, kw_only=True)


@record
class ClusterMetadata:
    """A cluster; one that does not cluster is one healthy leader."""

    name: str
    nodes: tuple[ClusterNode, ...]


# Statistics of a server, and the snapshot archive.


@record
class CacheMetrics:
    """How often reads of a partition were served from memory."""

    stream_id: int
    topic_id: int
    partition_id: int
    hits: int
    misses: int
    hit_ratio: float


@record
class HostResources:
    """Figures that servers report since 0.8."""

    threads_count: int
    free_disk_bytes: int
    total_disk_bytes: int


@record
class OpenFiles:
    """How many files a server has open, and how many it may; figures since 0.10."""

    count: int
    limit: int


@record
class Stats:
    """Statistics of a server.

    Attributes:
        host: ``None`` from servers before 0.8.
        open_files: ``None`` from servers before 0.10.
    """

    process_id: int
    cpu_usage: float
    total_cpu_usage: float
    memory_usage_bytes: int
    total_memory_bytes: int
    available_memory_bytes: int
    run_time_us: int
    start_time_us: int
    read_bytes: int
    written_bytes: int
    messages_size_bytes: int
    streams_count: int
    topics_count: int
    partitions_count: int
    segments_count: int
    messages_count: int
    clients_count: int
    consumer_groups_count: int
    hostname: str
    os_name: str
    os_version: str
    kernel_version: str
    server_version: str
    server_semver: int
    cache_metrics: tuple[CacheMetrics, ...] = ()
    host: HostResources | None = None
    open_files: OpenFiles | None = optional_field(default=None, kw_only=True)


class SnapshotCompression(IntEnum):
    """How the files inside a snapshot are packed."""

    STORED = 1
    DEFLATED = 2
    BZIP2 = 3
    ZSTD = 4
    LZMA = 5
    XZ = 6


class SnapshotType(IntEnum):
    """A part of a snapshot; ``ALL`` must be the only one."""

    FILESYSTEM_OVERVIEW = 1
    PROCESS_LIST = 2
    RESOURCE_USAGE = 3
    TEST = 4
    SERVER_LOGS = 5
    SERVER_CONFIG = 6
    ALL = 100


@record
class Snapshot:
    """A zip archive with one text file per type."""

    archive: bytes
