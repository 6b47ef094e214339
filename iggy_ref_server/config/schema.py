"""The schema of the configuration: frozen structs that mirror the TOML file.

``config.system.partition.messages_required_to_save`` is the key of the same path. Durations are
whole microseconds and end in ``_us``, sizes are whole bytes and end in ``_bytes``. Defaults are not
here but in the default file.
"""

from __future__ import annotations

from typing import Literal

from msgspec import field

from iggy_ref_server.config.schema_doors import Http, Quic, Tcp, WebSocket
from iggy_ref_server.config.schema_system import System
from iggy_ref_server.config.section import U16, Budget, Duration, PositiveU32, Section, Size

__all__ = [
    "Cluster",
    "Http",
    "Limits",
    "OtherNode",
    "Quic",
    "ServerConfig",
    "System",
    "Tcp",
    "WebSocket",
]


class ConsumerGroup(Section, frozen=True):
    """Rebalancing of partitions between the members of a group."""

    rebalancing_timeout_us: Duration
    rebalancing_check_interval_us: Duration


class MessagesMaintenance(Section, frozen=True):
    """The periodic task that applies retention."""

    cleaner_enabled: bool
    interval_us: Duration


class DataMaintenance(Section, frozen=True):
    """Periodic work on stored data."""

    messages: MessagesMaintenance


class MessageSaver(Section, frozen=True):
    """The periodic task that writes messages that are only in memory."""

    enabled: bool
    enforce_fsync: bool
    interval_us: Duration


class TokenCleaner(Section, frozen=True):
    """The periodic task that removes expired tokens."""

    enabled: bool
    interval_us: Duration


class PersonalAccessToken(Section, frozen=True):
    """Personal access tokens."""

    max_tokens_per_user: PositiveU32
    cleaner: TokenCleaner


class Heartbeat(Section, frozen=True):
    """The heartbeats that clients must send."""

    enabled: bool
    interval_us: Duration


class Exporter(Section, frozen=True):
    """The target of OpenTelemetry data."""

    transport: Literal["grpc", "http"]
    endpoint: str


class Telemetry(Section, frozen=True):
    """Export by OpenTelemetry, which this server does not have."""

    enabled: bool
    service_name: str
    logs: Exporter
    traces: Exporter


class CurrentNode(Section, frozen=True):
    """This server, as clients address it."""

    name: str
    ip: str


class NodePorts(Section, frozen=True):
    """The ports of another node; None means the port of this node."""

    tcp: U16 | None = None
    quic: U16 | None = None
    http: U16 | None = None
    websocket: U16 | None = None


class OtherNode(Section, frozen=True):
    """Another node of the cluster."""

    name: str
    ip: str
    ports: NodePorts = NodePorts()


class Nodes(Section, frozen=True):
    """The nodes of the cluster."""

    current: CurrentNode
    others: tuple[OtherNode, ...]


class Cluster(Section, frozen=True):
    """The cluster metadata that clients get; there is no replication."""

    enabled: bool
    name: str
    node: Nodes


class WebSocketLimits(Section, frozen=True):
    """Limits of the clients over the web socket transport, besides those of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_reply_backlog_bytes: Size = field(name="max_reply_backlog_bytes")


class HttpLimits(Section, frozen=True):
    """Limits of HTTP clients, besides those of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_head_bytes: Size = field(name="max_head_bytes")


class QuicLimits(Section, frozen=True):
    """Limits of QUIC clients, besides those of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_request_backlog_bytes: Size = field(name="max_request_backlog_bytes")
    max_reply_backlog_bytes: Size = field(name="max_reply_backlog_bytes")


class Limits(Section, frozen=True):
    """Limits of one client or of all clients; Apache Iggy 0.8 has no such keys."""

    max_connections: PositiveU32
    max_unauthenticated_connections: PositiveU32
    max_unauthenticated_connections_per_address: PositiveU32
    max_pipelined_requests: PositiveU32
    max_send_bytes: Size = field(name="max_send_bytes")
    max_poll_bytes: Size = field(name="max_poll_bytes")
    max_reply_backlog_bytes: Size = field(name="max_reply_backlog_bytes")
    max_login_queue: PositiveU32
    idle_timeout_us: Duration
    stall_timeout_us: Duration
    login_timeout_us: Duration
    memory_budget_bytes: Budget
    websocket: WebSocketLimits
    http: HttpLimits
    quic: QuicLimits


class ServerConfig(Section, frozen=True):
    """The whole configuration."""

    consumer_group: ConsumerGroup
    data_maintenance: DataMaintenance
    message_saver: MessageSaver
    personal_access_token: PersonalAccessToken
    heartbeat: Heartbeat
    system: System
    tcp: Tcp
    http: Http
    quic: Quic
    websocket: WebSocket
    telemetry: Telemetry
    cluster: Cluster
    limits: Limits
