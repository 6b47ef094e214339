"""The schema of the configuration: frozen structs that mirror the TOML file.

``config.system.partition.messages_required_to_save`` is the key of the same path. Durations are
whole microseconds and end in ``_us``, sizes are whole bytes and end in ``_bytes``. Defaults are not
here but in the default file.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from iggy_ref_server.config.value_codecs import (
    U16,
    U32,
    U64,
    Budget,
    ChoiceCodec,
    Cores,
    Duration,
    Expiry,
    PositiveU32,
    Secret,
    Section,
    Size,
    TopicSize,
)

# The sections of the listeners: ``[tcp]``, ``[http]``, ``[quic]`` and ``[websocket]``.


class TlsConfig(Section, frozen=True):
    """TLS of a listener: certificate files, or a self-signed certificate for development."""

    enabled: bool
    self_signed: bool
    cert_file: str
    key_file: str


class CertificateConfig(Section, frozen=True):
    """The certificate of a listener that always uses TLS."""

    self_signed: bool
    cert_file: str
    key_file: str


class TcpSocketConfig(Section, frozen=True):
    """Options of accepted TCP sockets; they apply only with ``override_defaults``."""

    override_defaults: bool
    recv_buffer_size_bytes: Size
    send_buffer_size_bytes: Size
    keepalive: bool
    nodelay: bool
    linger_us: Duration


class TcpListenerConfig(Section, frozen=True):
    """The binary protocol over TCP."""

    enabled: bool
    address: str
    socket_migration: bool
    ipv6: bool
    congestion_control: str
    tls: TlsConfig
    socket: TcpSocketConfig


class HttpCorsConfig(Section, frozen=True):
    """Cross-origin requests of browsers."""

    enabled: bool
    allowed_methods: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    allowed_headers: tuple[str, ...]
    exposed_headers: tuple[str, ...]
    allow_credentials: bool
    allow_private_network: bool


class TrustedIssuerConfig(Section, frozen=True):
    """Another issuer whose tokens are accepted."""

    issuer: str
    audience: str
    jwks_url: str
    user_id: U32 = 0


class HttpJwtConfig(Section, frozen=True):
    """The access tokens of the REST API."""

    algorithm: str
    issuer: str
    audience: str
    valid_issuers: tuple[str, ...]
    valid_audiences: tuple[str, ...]
    access_token_expiry_us: Expiry
    clock_skew_us: Duration
    not_before_us: Duration
    encoding_secret: Secret
    decoding_secret: Secret
    use_base64_secret: bool
    trusted_issuers: tuple[TrustedIssuerConfig, ...]


class HttpMetricsConfig(Section, frozen=True):
    """The endpoint for Prometheus."""

    enabled: bool
    endpoint: str


class HttpTlsConfig(Section, frozen=True):
    """TLS of the REST API."""

    enabled: bool
    cert_file: str
    key_file: str


class HttpListenerConfig(Section, frozen=True):
    """The REST API."""

    enabled: bool
    address: str
    max_request_size_bytes: Size
    web_ui: bool
    cors: HttpCorsConfig
    jwt: HttpJwtConfig
    metrics: HttpMetricsConfig
    tls: HttpTlsConfig


class QuicSocketConfig(Section, frozen=True):
    """Options of the UDP socket; they apply only with ``override_defaults``."""

    override_defaults: bool
    recv_buffer_size_bytes: Size
    send_buffer_size_bytes: Size
    keepalive: bool


class QuicListenerConfig(Section, frozen=True):
    """The binary protocol over QUIC."""

    enabled: bool
    address: str
    max_concurrent_bidi_streams: U64
    datagram_send_buffer_size_bytes: Size
    initial_mtu_bytes: Size
    send_window_bytes: Size
    receive_window_bytes: Size
    keep_alive_interval_us: Duration
    max_idle_timeout_us: Duration
    certificate: CertificateConfig
    socket: QuicSocketConfig


class WebSocketListenerConfig(Section, frozen=True):
    """The binary protocol over web sockets; a size of None means the default of the server."""

    enabled: bool
    address: str
    accept_unmasked_frames: bool
    tls: TlsConfig
    read_buffer_size_bytes: Size | None = None
    write_buffer_size_bytes: Size | None = None
    max_write_buffer_size_bytes: Size | None = None
    max_message_size_bytes: Size | None = None
    max_frame_size_bytes: Size | None = None


# The section ``[system]``: storage and shards. Directories are relative to ``system.path``.


class DirectoryConfig(Section, frozen=True):
    """A directory inside the data directory."""

    path: str


class BackupConfig(Section, frozen=True):
    """Directories of format converters, which this server does not have."""

    path: str
    compatibility: DirectoryConfig


class StateConfig(Section, frozen=True):
    """The metadata log."""

    enforce_fsync: bool
    max_file_operation_retries: U32
    retry_delay_us: Duration


class LoggingConfig(Section, frozen=True):
    """Log levels and log files."""

    path: str
    level: str
    file_enabled: bool
    max_file_size_bytes: Size
    max_total_size_bytes: Size
    rotation_check_interval_us: Duration
    retention_us: Duration
    sysinfo_print_interval_us: Duration


class EncryptionConfig(Section, frozen=True):
    """Encrypted data at rest; ``key`` is 32 bytes in base64."""

    enabled: bool
    key: Secret


class CompressionConfig(Section, frozen=True):
    """Server-side compression, which this server does not have."""

    allow_override: bool
    default_algorithm: Literal["none", "gzip"]


class TopicConfig(Section, frozen=True):
    """Defaults of topics."""

    path: str
    max_size_bytes: TopicSize
    message_expiry_us: Expiry


class PartitionConfig(Section, frozen=True):
    """When messages are written and acknowledged; ``ack`` already includes ``enforce_fsync``."""

    path: str
    ack: Literal["memory", "written", "fsync"]
    enforce_fsync: bool
    validate_checksum: bool
    messages_required_to_save: PositiveU32
    size_of_messages_required_to_save_bytes: Size


class SegmentConfig(Section, frozen=True):
    """The files that hold messages."""

    size_bytes: Size
    max_age_us: Duration
    archive_expired: bool
    cache_indexes: Annotated[
        Literal["all", "open_segment", "none"],
        ChoiceCodec("all", "open_segment", "none", aliases={"true": "all", "false": "none"}),
    ]


class RetentionConfig(Section, frozen=True):
    """Deletion of old segments on a full disk; 0 is off."""

    min_free_space_bytes: Size


class MessageDeduplicationConfig(Section, frozen=True):
    """Messages with a recent id are dropped; a limit of 0 is none."""

    enabled: bool
    max_entries: U64
    expiry_us: Duration


class RecoveryConfig(Section, frozen=True):
    """Handling of lost files, which this server does not automate."""

    recreate_missing_state: bool


class MemoryPoolConfig(Section, frozen=True):
    """The buffer pool of Apache Iggy, which this server does not have."""

    enabled: bool
    size_bytes: Size
    bucket_capacity: U32


class ShardingConfig(Section, frozen=True):
    """The shards and their CPU cores."""

    cpu_allocation: Cores


class StorageConfig(Section, frozen=True):
    """The storage engine."""

    engine: Literal["auto", "io_uring", "threads"]


class SystemConfig(Section, frozen=True):
    """Storage and shards."""

    path: str
    backup: BackupConfig
    state: StateConfig
    runtime: DirectoryConfig
    logging: LoggingConfig
    encryption: EncryptionConfig
    compression: CompressionConfig
    stream: DirectoryConfig
    topic: TopicConfig
    partition: PartitionConfig
    segment: SegmentConfig
    retention: RetentionConfig
    message_deduplication: MessageDeduplicationConfig
    recovery: RecoveryConfig
    memory_pool: MemoryPoolConfig
    sharding: ShardingConfig
    storage: StorageConfig

    def partition_path(self, stream_id: int, topic_id: int, partition_id: int) -> str:
        """Return the directory of a partition, relative to the data directory."""
        topic = f"{self.stream.path}/{stream_id}/{self.topic.path}/{topic_id}"
        return f"{topic}/{self.partition.path}/{partition_id}"


class ConsumerGroupConfig(Section, frozen=True):
    """Rebalancing of partitions between the members of a group."""

    rebalancing_timeout_us: Duration
    rebalancing_check_interval_us: Duration


class MessagesMaintenanceConfig(Section, frozen=True):
    """The periodic task that applies retention."""

    cleaner_enabled: bool
    interval_us: Duration


class DataMaintenanceConfig(Section, frozen=True):
    """Periodic work on stored data."""

    messages: MessagesMaintenanceConfig


class MessageSaverConfig(Section, frozen=True):
    """The periodic task that writes messages that are only in memory."""

    enabled: bool
    enforce_fsync: bool
    interval_us: Duration


class TokenCleanerConfig(Section, frozen=True):
    """The periodic task that removes expired tokens."""

    enabled: bool
    interval_us: Duration


class PersonalAccessTokenConfig(Section, frozen=True):
    """Personal access tokens."""

    max_tokens_per_user: PositiveU32
    cleaner: TokenCleanerConfig


class HeartbeatConfig(Section, frozen=True):
    """The heartbeats that clients must send."""

    enabled: bool
    interval_us: Duration


class ExporterConfig(Section, frozen=True):
    """The target of OpenTelemetry data."""

    transport: Literal["grpc", "http"]
    endpoint: str


class TelemetryConfig(Section, frozen=True):
    """Export by OpenTelemetry, which this server does not have."""

    enabled: bool
    service_name: str
    logs: ExporterConfig
    traces: ExporterConfig


class CurrentNodeConfig(Section, frozen=True):
    """This server, as clients address it."""

    name: str
    ip: str


class NodePortsConfig(Section, frozen=True):
    """The ports of another node; None means the port of this node."""

    tcp: U16 | None = None
    quic: U16 | None = None
    http: U16 | None = None
    websocket: U16 | None = None


class OtherNodeConfig(Section, frozen=True):
    """Another node of the cluster."""

    name: str
    ip: str
    ports: NodePortsConfig = NodePortsConfig()


class NodesConfig(Section, frozen=True):
    """The nodes of the cluster."""

    current: CurrentNodeConfig
    others: tuple[OtherNodeConfig, ...]


class ClusterConfig(Section, frozen=True):
    """The cluster metadata that clients get; there is no replication."""

    enabled: bool
    name: str
    node: NodesConfig


class WebSocketLimitsConfig(Section, frozen=True):
    """Limits of the clients over the web socket transport, besides those of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_reply_backlog_bytes: Size = field(name="max_reply_backlog_bytes")


class HttpLimitsConfig(Section, frozen=True):
    """Limits of HTTP clients, besides those of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_head_bytes: Size = field(name="max_head_bytes")


class QuicLimitsConfig(Section, frozen=True):
    """Limits of QUIC clients, besides those of all clients."""

    max_connections: PositiveU32
    max_handshakes: PositiveU32
    handshake_timeout_us: Duration
    idle_timeout_us: Duration
    max_request_backlog_bytes: Size = field(name="max_request_backlog_bytes")
    max_reply_backlog_bytes: Size = field(name="max_reply_backlog_bytes")


class LimitsConfig(Section, frozen=True):
    """Limits of one client or of all clients; Apache Iggy 0.8 has no such keys."""

    max_connections: PositiveU32
    max_unauthenticated_connections: PositiveU32
    max_unauthenticated_connections_per_address: PositiveU32
    max_pipelined_requests: PositiveU32
    max_send_bytes: Size = field(name="max_send_bytes")
    max_poll_bytes: Size = field(name="max_poll_bytes")
    max_poll_wait_us: Duration
    max_reply_backlog_bytes: Size = field(name="max_reply_backlog_bytes")
    max_login_queue: PositiveU32
    idle_timeout_us: Duration
    stall_timeout_us: Duration
    login_timeout_us: Duration
    memory_budget_bytes: Budget
    websocket: WebSocketLimitsConfig
    http: HttpLimitsConfig
    quic: QuicLimitsConfig


class ServerConfig(Section, frozen=True):
    """The whole configuration."""

    consumer_group: ConsumerGroupConfig
    data_maintenance: DataMaintenanceConfig
    message_saver: MessageSaverConfig
    personal_access_token: PersonalAccessTokenConfig
    heartbeat: HeartbeatConfig
    system: SystemConfig
    tcp: TcpListenerConfig
    http: HttpListenerConfig
    quic: QuicListenerConfig
    websocket: WebSocketListenerConfig
    telemetry: TelemetryConfig
    cluster: ClusterConfig
    limits: LimitsConfig
