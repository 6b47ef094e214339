"""The whole configuration as one frozen tree that mirrors the TOML file.

``config.system.partition.messages_required_to_save`` is the key of the same path. Durations are
whole microseconds and end in ``_us``, sizes are whole bytes and end in ``_bytes``.

Owns the root and its small sections. Has no defaults: those are in the default file.
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
    """How partitions move between the members of a group."""

    rebalancing_timeout_us: Duration
    rebalancing_check_interval_us: Duration


class MessagesMaintenance(Section, frozen=True):
    """The cleaner that enforces retention."""

    cleaner_enabled: bool
    interval_us: Duration


class DataMaintenance(Section, frozen=True):
    """What is done to data regularly."""

    messages: MessagesMaintenance


class MessageSaver(Section, frozen=True):
    """The task that writes what is only in memory."""

    enabled: bool
    enforce_fsync: bool
    interval_us: Duration


class TokenCleaner(Section, frozen=True):
    """The task that removes tokens that have expired."""

    enabled: bool
    interval_us: Duration


class PersonalAccessToken(Section, frozen=True):
    """Tokens instead of passwords."""

    max_tokens_per_user: PositiveU32
    cleaner: TokenCleaner


class Heartbeat(Section, frozen=True):
    """Whether clients must show that they live, and how often."""

    enabled: bool
    interval_us: Duration


class Exporter(Section, frozen=True):
    """Where OpenTelemetry data would be sent."""

    transport: Literal["grpc", "http"]
    endpoint: str


class Telemetry(Section, frozen=True):
    """OpenTelemetry."""

    enabled: bool
    service_name: str
    logs: Exporter
    traces: Exporter


class CurrentNode(Section, frozen=True):
    """This server, as clients see it."""

    name: str
    ip: str


class NodePorts(Section, frozen=True):
    """The ports of another node; None means the same as here."""

    tcp: U16 | None = None
    quic: U16 | None = None
    http: U16 | None = None
    websocket: U16 | None = None


class OtherNode(Section, frozen=True):
    """Another server of the cluster."""

    name: str
    ip: str
    ports: NodePorts = NodePorts()


class Nodes(Section, frozen=True):
    """The servers of the cluster."""

    current: CurrentNode
    others: tuple[OtherNode, ...]


class Cluster(Section, frozen=True):
    """What clients are told when they ask for the cluster."""

    enabled: bool
    name: str
    node: Nodes


class WebSocketLimits(Section, frozen=True):
    """What the clients of the WebSocket door can ask for, besides the bounds of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_reply_backlog_bytes: Size = field(name="max_reply_backlog_bytes")


class HttpLimits(Section, frozen=True):
    """What the clients of the HTTP door can ask for, besides the bounds of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_head_bytes: Size = field(name="max_head_bytes")


class QuicLimits(Section, frozen=True):
    """What the clients of the QUIC door can ask for, besides the bounds of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_request_backlog_bytes: Size = field(name="max_request_backlog_bytes")
    max_reply_backlog_bytes: Size = field(name="max_reply_backlog_bytes")


class Limits(Section, frozen=True):
    """What one client, or all together, can ask of the server; the original has no such bounds."""

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
    """Everything that can be told to the server."""

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
