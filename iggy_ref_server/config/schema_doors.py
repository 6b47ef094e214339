"""The sections of the listeners: ``[tcp]``, ``[http]``, ``[quic]`` and ``[websocket]``."""

from __future__ import annotations

from iggy_ref_server.config.section import U32, U64, Duration, Expiry, Secret, Section, Size

__all__ = ["Certificate", "Http", "Quic", "Tcp", "Tls", "TrustedIssuer", "WebSocket"]


class Tls(Section, frozen=True):
    """TLS of a listener: certificate files, or a self-signed certificate for development."""

    enabled: bool
    self_signed: bool
    cert_file: str
    key_file: str


class Certificate(Section, frozen=True):
    """The certificate of a listener that always uses TLS."""

    self_signed: bool
    cert_file: str
    key_file: str


class TcpSocket(Section, frozen=True):
    """Options of accepted TCP sockets; they apply only with ``override_defaults``."""

    override_defaults: bool
    recv_buffer_size_bytes: Size
    send_buffer_size_bytes: Size
    keepalive: bool
    nodelay: bool
    linger_us: Duration


class Tcp(Section, frozen=True):
    """The binary protocol over TCP."""

    enabled: bool
    address: str
    socket_migration: bool
    ipv6: bool
    congestion_control: str
    tls: Tls
    socket: TcpSocket


class HttpCors(Section, frozen=True):
    """Cross-origin requests of browsers."""

    enabled: bool
    allowed_methods: tuple[str, ...]
    allowed_origins: tuple[str, ...]
    allowed_headers: tuple[str, ...]
    exposed_headers: tuple[str, ...]
    allow_credentials: bool
    allow_private_network: bool


class TrustedIssuer(Section, frozen=True):
    """Another issuer whose tokens are accepted."""

    issuer: str
    audience: str
    jwks_url: str
    user_id: U32 = 0


class HttpJwt(Section, frozen=True):
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
    trusted_issuers: tuple[TrustedIssuer, ...]


class HttpMetrics(Section, frozen=True):
    """The endpoint for Prometheus."""

    enabled: bool
    endpoint: str


class HttpTls(Section, frozen=True):
    """TLS of the REST API."""

    enabled: bool
    cert_file: str
    key_file: str


class Http(Section, frozen=True):
    """The REST API."""

    enabled: bool
    address: str
    max_request_size_bytes: Size
    web_ui: bool
    cors: HttpCors
    jwt: HttpJwt
    metrics: HttpMetrics
    tls: HttpTls


class QuicSocket(Section, frozen=True):
    """Options of the UDP socket; they apply only with ``override_defaults``."""

    override_defaults: bool
    recv_buffer_size_bytes: Size
    send_buffer_size_bytes: Size
    keepalive: bool


class Quic(Section, frozen=True):
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
    certificate: Certificate
    socket: QuicSocket


class WebSocket(Section, frozen=True):
    """The binary protocol over web sockets; a size of None means the default of the server."""

    enabled: bool
    address: str
    accept_unmasked_frames: bool
    tls: Tls
    read_buffer_size_bytes: Size | None = None
    write_buffer_size_bytes: Size | None = None
    max_write_buffer_size_bytes: Size | None = None
    max_message_size_bytes: Size | None = None
    max_frame_size_bytes: Size | None = None
