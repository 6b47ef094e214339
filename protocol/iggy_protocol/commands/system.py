"""The server itself: ping, statistics, snapshot, options, clients, cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import V0_11, V0_12_0, ByDialect
from iggy_protocol.errors import (
    INVALID_COMMAND,
    InvalidField,
    LocalProtocolError,
    UnknownDiscriminant,
)
from iggy_protocol.fields import (
    CompiledAdapter,
    CountPrefixedArray,
    LengthPrefixedBytes,
    OptionalTail,
    RecordStruct,
    StrictGreedyRange,
)
from iggy_protocol.layout import Layout
from iggy_protocol.model.system import (
    CacheMetrics,
    ClientDetails,
    ClientInfo,
    ClusterMetadata,
    ClusterNode,
    ConsumerGroupMembership,
    HostResources,
    NodeRole,
    NodeStatus,
    OpenFiles,
    Snapshot,
    SnapshotCompression,
    SnapshotType,
    Stats,
    Transport,
)
from iggy_protocol.options import OptionDescription, OptionFlags, OptionScope
from iggy_protocol.primitives import (
    F32,
    NAME,
    NO_USER,
    TEXT,
    U8,
    U16,
    U32,
    U64,
    counted,
    discriminant,
    optional_number,
)
from iggy_protocol.records import record
from iggy_protocol.registry import (
    EMPTY,
    Codec,
    Command,
    RecordCodec,
    command,
    reply_of_many,
    reply_of_one,
    reply_of_optional,
)
from iggy_protocol.user_headers import HeaderKind

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer


CLIENT_FIELDS = (
    "client_id" / U32,
    "user_id" / optional_number(U32, NO_USER, "u32"),
    "transport" / discriminant(Transport),
    "address" / TEXT,
    "consumer_groups_count" / U32,
)
CLIENT = RecordStruct(ClientInfo, *CLIENT_FIELDS)

MEMBERSHIP = RecordStruct(
    ConsumerGroupMembership, "stream_id" / U32, "topic_id" / U32, "group_id" / U32
)

CLIENT_DETAILS = counted(
    RecordStruct(ClientDetails, *CLIENT_FIELDS, "consumer_groups" / StrictGreedyRange(MEMBERSHIP)),
    count="consumer_groups_count",
    elements="consumer_groups",
)

CACHE_METRICS = RecordStruct(
    CacheMetrics,
    "stream_id" / U32,
    "topic_id" / U32,
    "partition_id" / U32,
    "hits" / U64,
    "misses" / U64,
    "hit_ratio" / F32,
)

HOST_RESOURCES = RecordStruct(
    HostResources, "threads_count" / U32, "free_disk_bytes" / U64, "total_disk_bytes" / U64
)

OPEN_FILES = RecordStruct(OpenFiles, "count" / U64, "limit" / U64)

STATS_FIELDS = (
    "process_id" / U32,
    "cpu_usage" / F32,
    "total_cpu_usage" / F32,
    "memory_usage_bytes" / U64,
    "total_memory_bytes" / U64,
    "available_memory_bytes" / U64,
    "run_time_us" / U64,
    "start_time_us" / U64,
    "read_bytes" / U64,
    "written_bytes" / U64,
    "messages_size_bytes" / U64,
    "streams_count" / U32,
    "topics_count" / U32,
    "partitions_count" / U32,
    "segments_count" / U32,
    "messages_count" / U64,
    "clients_count" / U32,
    "consumer_groups_count" / U32,
    "hostname" / TEXT,
    "os_name" / TEXT,
    "os_version" / TEXT,
    "kernel_version" / TEXT,
    "server_version" / TEXT,
    "server_semver" / U32,
    "cache_metrics" / CountPrefixedArray(CACHE_METRICS, count_size=4),
)
STATS = RecordStruct(Stats, *STATS_FIELDS, "host" / OptionalTail(HOST_RESOURCES))
STATS_V0_12 = RecordStruct(
    Stats, *STATS_FIELDS, "host" / HOST_RESOURCES, "open_files" / OptionalTail(OPEN_FILES)
)


def _is_single_all(types: tuple[SnapshotType, ...]) -> bool:
    return SnapshotType.ALL not in types or len(types) == 1


def _decode_types(types: tuple[SnapshotType, ...]) -> tuple[SnapshotType, ...]:
    if not _is_single_all(types):
        raise InvalidField("ALL allows no other type beside it", status=INVALID_COMMAND)
    return types


def _encode_types(types: tuple[SnapshotType, ...]) -> tuple[SnapshotType, ...]:
    if not _is_single_all(types):
        raise LocalProtocolError("ALL allows no other type beside it")
    return types


SNAPSHOT_TYPES = CompiledAdapter(
    CountPrefixedArray(discriminant(SnapshotType), count_size=1), _decode_types, _encode_types
)


class SnapshotCodec:
    """The reply is the archive itself, too large to go through a layout."""

    def decode(self, payload: Buffer) -> Snapshot:
        """Take the archive as it is."""
        return Snapshot(bytes(payload))

    def encode(self, value: object) -> list[Buffer]:
        """Send the archive as it is."""
        if not isinstance(value, Snapshot):
            raise LocalProtocolError(f"a snapshot is an archive, not {value!r}")
        return [value.archive]


@command(CommandCode.PING, reply=EMPTY)
@record
class Ping(Command[None]):
    """Ask for a sign of life, and give one; works before a login."""


@command(
    CommandCode.GET_STATS,
    reply=ByDialect(reply_of_one(STATS, "Stats"), {V0_12_0: reply_of_one(STATS_V0_12, "Stats")}),
)
@record
class GetStats(Command[Stats]):
    """Ask for the statistics of the server."""


@command(
    CommandCode.GET_SNAPSHOT,
    "compression" / discriminant(SnapshotCompression),
    "types" / SNAPSHOT_TYPES,
    reply=SnapshotCodec(),
)
@record
class GetSnapshot(Command[Snapshot]):
    """Ask for an archive that helps with finding faults."""

    compression: SnapshotCompression = SnapshotCompression.DEFLATED
    types: tuple[SnapshotType, ...] = (SnapshotType.ALL,)


# Options: what a server says about the settings of its resources.


def _flags(code: int) -> OptionFlags:
    flags = OptionFlags(code)
    if flags & ~sum(OptionFlags):
        raise UnknownDiscriminant(f"{code} has bits that are no OptionFlags")
    return flags


OPTION_DEFAULT = LengthPrefixedBytes(U32, label="u32 length, bytes")
OPTION_DESCRIPTION = RecordStruct(
    OptionDescription,
    "key" / NAME,
    "kind" / discriminant(HeaderKind),
    "default" / OPTION_DEFAULT,
    "description" / TEXT,
)
OPTION_DESCRIPTION_V0_12 = RecordStruct(
    OptionDescription,
    "key" / NAME,
    "kind" / discriminant(HeaderKind),
    "flags" / CompiledAdapter(U8, _flags, int, label="u8 flags"),
    "default" / OPTION_DEFAULT,
    "description" / TEXT,
)


def _reply_of_descriptions(record: RecordStruct) -> RecordCodec:
    return RecordCodec(Layout("options", CountPrefixedArray(record, count_size=4)))


@command(
    CommandCode.DESCRIBE_OPTIONS,
    "scope" / discriminant(OptionScope),
    reply=ByDialect[Codec](
        _reply_of_descriptions(OPTION_DESCRIPTION),
        {V0_12_0: _reply_of_descriptions(OPTION_DESCRIPTION_V0_12)},
    ),
    since=V0_11,
)
@record
class DescribeOptions(Command[tuple[OptionDescription, ...]]):
    """Ask which options a kind of resource has."""

    scope: OptionScope


@command(CommandCode.GET_ME, reply=reply_of_one(CLIENT_DETAILS, "ClientDetails"))
@record
class GetMe(Command[ClientDetails]):
    """Ask how the server sees this connection."""


@command(
    CommandCode.GET_CLIENT,
    "client_id" / U32,
    reply=reply_of_optional(CLIENT_DETAILS, "ClientDetails"),
)
@record
class GetClient(Command[ClientDetails | None]):
    """Ask for one client and the groups it has joined."""

    client_id: int


@command(CommandCode.GET_CLIENTS, reply=reply_of_many(CLIENT, "clients"))
@record
class GetClients(Command[tuple[ClientInfo, ...]]):
    """Ask for all clients, in no particular order."""


# The cluster: its nodes, the leader and the ports.


NODE_FIELDS = (
    "name" / TEXT,
    "ip" / TEXT,
    "tcp_port" / U16,
    "quic_port" / U16,
    "http_port" / U16,
    "websocket_port" / U16,
    "role" / discriminant(NodeRole),
    "status" / discriminant(NodeStatus),
)
NODE = RecordStruct(ClusterNode, *NODE_FIELDS)
NODE_V0_12 = RecordStruct(ClusterNode, "replica_id" / U8, *NODE_FIELDS)

CLUSTER_METADATA = RecordStruct(
    ClusterMetadata, "name" / TEXT, "nodes" / CountPrefixedArray(NODE, count_size=4)
)
CLUSTER_METADATA_V0_12 = RecordStruct(
    ClusterMetadata, "name" / TEXT, "nodes" / CountPrefixedArray(NODE_V0_12, count_size=4)
)


@command(
    CommandCode.GET_CLUSTER_METADATA,
    reply=ByDialect(
        reply_of_one(CLUSTER_METADATA, "ClusterMetadata"),
        {V0_12_0: reply_of_one(CLUSTER_METADATA_V0_12, "ClusterMetadata")},
    ),
)
@record
class GetClusterMetadata(Command[ClusterMetadata]):
    """Ask for the nodes of the cluster; clients do so after each login."""
