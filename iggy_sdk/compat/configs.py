"""The official configurations of transports, and what they are in the options of this SDK.

What is left out, or is None, takes a default: the official one where it is one of behaviour, and
the one of this SDK where it is one of size, because buffers differ. Certificates are checked
unless a configuration says otherwise, over every transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from iggy_sdk.compat.config_parts import (
    U32_MAX,
    AutoLogin,
    PendingOperationsConfig,
    QuicReconnectionConfig,
    ReconnectionConfig,
    TcpReconnectionConfig,
    WebSocketFramingConfig,
    WebSocketReconnectionConfig,
    count_in,
    either,
    invalid,
    login_of,
    positive_span,
)
from iggy_sdk.compat.variants import ByValue
from iggy_sdk.connection_string import (
    DEFAULT_PORTS,
    Credentials,
    Endpoint,
    TransportName,
    parse_endpoint,
)
from iggy_sdk.durations import to_seconds
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.options import ClientOptions, TlsOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

HEARTBEAT: Final = timedelta(seconds=5)


class TransportConfig(ByValue, ABC):
    """How to reach a server."""

    __slots__ = ()

    @abstractmethod
    def options(self) -> ClientOptions:
        """Say the same in the words of this SDK."""


class BinaryConfig(TransportConfig):
    """What TCP, QUIC and WebSocket have in common."""

    __slots__ = (
        "auto_login",
        "heartbeat_interval",
        "pending_operations",
        "reconnection",
        "server_address",
    )
    server_address: str
    auto_login: AutoLogin
    pending_operations: PendingOperationsConfig
    reconnection: ReconnectionConfig
    heartbeat_interval: timedelta
    TRANSPORT: ClassVar[TransportName]

    @property
    def _endpoint(self) -> Endpoint:
        return parse_endpoint(self.server_address, default_port=DEFAULT_PORTS[self.TRANSPORT])

    def _take(
        self,
        server_address: str | None,
        auto_login: AutoLogin | Credentials | None,
        pending_operations: PendingOperationsConfig | None,
        reconnection: ReconnectionConfig,
        heartbeat_interval: timedelta | None,
    ) -> None:
        default = f"127.0.0.1:{DEFAULT_PORTS[self.TRANSPORT]}"
        self.server_address = either(server_address, default)
        self.auto_login = login_of(auto_login)
        self.pending_operations = pending_operations or PendingOperationsConfig()
        self.reconnection = reconnection
        self.heartbeat_interval = positive_span("heartbeat_interval", heartbeat_interval, HEARTBEAT)
        # An address that cannot be read is an error here, not when the client connects.
        parse_endpoint(self.server_address)

    def _options(
        self,
        tls: TlsOptions | None,
        *,
        nodelay: bool = True,
        settings: Mapping[str, int | bool] = MappingProxyType({}),
    ) -> ClientOptions:
        return ClientOptions(
            endpoints=(self._endpoint,),
            transport=self.TRANSPORT,
            credentials=self.auto_login.own,
            reconnect=self.reconnection.reconnect(),
            heartbeat_interval=to_seconds(self.heartbeat_interval),
            max_outstanding=self.pending_operations.max_operations,
            tls=tls,
            nodelay=nodelay,
            transport_settings=settings,
        )


def _tls(domain: str, ca_file: str | None, *, validate: bool) -> TlsOptions:
    # The official client reads the file only where it checks certificates.
    return TlsOptions(
        domain=domain or None, ca_file=ca_file if validate else None, validate=validate
    )


# One configuration for each transport.


class TcpConfig(BinaryConfig):
    """How to reach a server over TCP."""

    TRANSPORT: ClassVar[TransportName] = "tcp"
    __slots__ = ("nodelay", "tls_ca_file", "tls_domain", "tls_enabled", "tls_validate_certificate")
    __match_args__ = (
        *("server_address", "auto_login", "pending_operations", "reconnection"),
        *("heartbeat_interval", "tls_enabled", "tls_domain", "tls_ca_file"),
        *("tls_validate_certificate", "nodelay"),
    )

    def __init__(
        self,
        *,
        server_address: str | None = None,
        auto_login: AutoLogin | Credentials | None = None,
        pending_operations: PendingOperationsConfig | None = None,
        reconnection: TcpReconnectionConfig | None = None,
        heartbeat_interval: timedelta | None = None,
        tls_enabled: bool | None = None,
        tls_domain: str | None = None,
        tls_ca_file: str | None = None,
        tls_validate_certificate: bool | None = None,
        nodelay: bool | None = None,
    ) -> None:
        """Say how to reach a server over TCP.

        Args:
            server_address: ``host:port``.
            auto_login: who logs in on every connection; nobody by default.
            pending_operations: how many requests may be in flight.
            reconnection: how a lost connection comes back.
            heartbeat_interval: how often to ping; every five seconds by default.
            tls_enabled: whether the connection is encrypted; it is not by default.
            tls_domain: the name that the certificate must have; empty takes the host.
            tls_ca_file: a PEM file of trusted authorities; None takes those of the system.
            tls_validate_certificate: whether the certificate is checked; it is by default.
            nodelay: whether small requests leave at once; by default they wait a moment.

        Raises:
            ConfigurationError: a value is out of range.
        """
        how = reconnection or TcpReconnectionConfig()
        self._take(server_address, auto_login, pending_operations, how, heartbeat_interval)
        self.tls_enabled: bool = either(tls_enabled, False)
        self.tls_domain: str = either(tls_domain, "")
        self.tls_ca_file: str | None = tls_ca_file
        self.tls_validate_certificate: bool = either(tls_validate_certificate, True)
        self.nodelay: bool = either(nodelay, False)

    def options(self) -> ClientOptions:
        """Say the same in the words of this SDK."""
        tls = _tls(self.tls_domain, self.tls_ca_file, validate=self.tls_validate_certificate)
        return self._options(tls if self.tls_enabled else None, nodelay=self.nodelay)


class WebSocketConfig(BinaryConfig):
    """How to reach a server over WebSocket."""

    TRANSPORT: ClassVar[TransportName] = "ws"
    __slots__ = ("framing", "tls_ca_file", "tls_domain", "tls_enabled", "tls_validate_certificate")
    __match_args__ = (
        *("server_address", "auto_login", "pending_operations", "reconnection"),
        *("heartbeat_interval", "framing", "tls_enabled", "tls_domain", "tls_ca_file"),
        "tls_validate_certificate",
    )

    def __init__(
        self,
        *,
        server_address: str | None = None,
        auto_login: AutoLogin | Credentials | None = None,
        pending_operations: PendingOperationsConfig | None = None,
        reconnection: WebSocketReconnectionConfig | None = None,
        heartbeat_interval: timedelta | None = None,
        framing: WebSocketFramingConfig | None = None,
        tls_enabled: bool | None = None,
        tls_domain: str | None = None,
        tls_ca_file: str | None = None,
        tls_validate_certificate: bool | None = None,
    ) -> None:
        """Say how to reach a server over WebSocket.

        Args:
            server_address: ``host:port``.
            auto_login: who logs in on every connection; nobody by default.
            pending_operations: how many requests may be in flight.
            reconnection: how a lost connection comes back.
            heartbeat_interval: how often to ping; every five seconds by default.
            framing: bounds of frames and messages.
            tls_enabled: whether the connection is encrypted; it is not by default.
            tls_domain: the name that the certificate must have; empty takes the host. The
                official client says ``localhost`` by default, and checks nothing.
            tls_ca_file: a PEM file of trusted authorities; None takes those of the system.
            tls_validate_certificate: whether the certificate is checked; it is by default, unlike
                in the official client.

        Raises:
            ConfigurationError: a value is out of range.
        """
        how = reconnection or WebSocketReconnectionConfig()
        self._take(server_address, auto_login, pending_operations, how, heartbeat_interval)
        self.framing: WebSocketFramingConfig = framing or WebSocketFramingConfig()
        self.tls_enabled: bool = either(tls_enabled, False)
        self.tls_domain: str = either(tls_domain, "")
        self.tls_ca_file: str | None = tls_ca_file
        self.tls_validate_certificate: bool = either(tls_validate_certificate, True)

    def options(self) -> ClientOptions:
        """Say the same in the words of this SDK."""
        tls = _tls(self.tls_domain, self.tls_ca_file, validate=self.tls_validate_certificate)
        return self._options(tls if self.tls_enabled else None, settings=self.framing.limits())


QUIC_SIZES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "response_buffer_size": 256 << 20,
        "max_concurrent_bidi_streams": 10_000,
        "datagram_send_buffer_size": 100_000,
        "initial_mtu": 1_200,
        "send_window": 16 << 20,
        "receive_window": 1 << 20,
    }
)
"""The sizes of a QUIC connection of this SDK, where a configuration leaves them out."""

QUIC_IDLE_MILLISECONDS: Final = 30_000
"""How long a server may be silent where a program says zero, as with the official client."""

ANY_ADDRESSES: Final = frozenset({"127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::1]:0"})
"""The local addresses of a QUIC connection that let the system choose."""


class QuicConfig(BinaryConfig):
    """How to reach a server over QUIC."""

    TRANSPORT: ClassVar[TransportName] = "quic"
    __slots__ = (
        *("_settings", "client_address", "datagram_send_buffer_size", "initial_mtu"),
        *("keep_alive_interval", "max_concurrent_bidi_streams", "max_idle_timeout"),
        *("receive_window", "response_buffer_size", "send_window", "server_name"),
        "validate_certificate",
    )
    __match_args__ = (
        *("server_address", "client_address", "server_name", "auto_login", "pending_operations"),
        *("reconnection", "heartbeat_interval", "response_buffer_size"),
        *("max_concurrent_bidi_streams", "datagram_send_buffer_size", "initial_mtu"),
        *("send_window", "receive_window", "keep_alive_interval", "max_idle_timeout"),
        "validate_certificate",
    )

    def __init__(
        self,
        *,
        server_address: str | None = None,
        client_address: str | None = None,
        server_name: str | None = None,
        auto_login: AutoLogin | Credentials | None = None,
        pending_operations: PendingOperationsConfig | None = None,
        reconnection: QuicReconnectionConfig | None = None,
        heartbeat_interval: timedelta | None = None,
        response_buffer_size: int | None = None,
        max_concurrent_bidi_streams: int | None = None,
        datagram_send_buffer_size: int | None = None,
        initial_mtu: int | None = None,
        send_window: int | None = None,
        receive_window: int | None = None,
        keep_alive_interval: timedelta | None = None,
        max_idle_timeout: timedelta | None = None,
        validate_certificate: bool | None = None,
    ) -> None:
        """Say how to reach a server over QUIC.

        Args:
            server_address: ``host:port``.
            client_address: any address with port 0; the system chooses both.
            server_name: the name that the certificate must have; by default the host. The
                official client says ``localhost`` by default, and checks nothing.
            auto_login: who logs in on every connection; nobody by default.
            pending_operations: how many requests may be in flight.
            reconnection: how a lost connection comes back.
            heartbeat_interval: how often to ping; every five seconds by default.
            response_buffer_size: bytes of the longest reply.
            max_concurrent_bidi_streams: how many requests may be in flight.
            datagram_send_buffer_size: taken for compatibility; requests are no datagrams.
            initial_mtu: bytes of the largest datagram.
            send_window: bytes of requests in flight.
            receive_window: bytes that the server may send before they are read.
            keep_alive_interval: how long the connection is idle before a ping; zero never pings.
            max_idle_timeout: how long the server may be silent; zero is 30 seconds.
            validate_certificate: whether the certificate is checked; it is by default, unlike in
                the official client.

        Raises:
            ConfigurationError: a value is out of range.
        """
        how = reconnection or QuicReconnectionConfig()
        self._take(server_address, auto_login, pending_operations, how, heartbeat_interval)
        self.client_address: str = either(client_address, "127.0.0.1:0")
        if self.client_address not in ANY_ADDRESSES:
            raise invalid("client_address", client_address, "Leave it out: the system chooses it.")
        self.server_name: str = either(server_name, self._endpoint.host)
        given: dict[str, int | None] = {
            "response_buffer_size": response_buffer_size,
            "max_concurrent_bidi_streams": max_concurrent_bidi_streams,
            "datagram_send_buffer_size": datagram_send_buffer_size,
            "initial_mtu": initial_mtu,
            "send_window": send_window,
            "receive_window": receive_window,
        }
        sizes = {name: count_in(name, given[name], size) for name, size in QUIC_SIZES.items()}
        self.response_buffer_size: int = sizes["response_buffer_size"]
        self.max_concurrent_bidi_streams: int = sizes["max_concurrent_bidi_streams"]
        self.datagram_send_buffer_size: int = sizes["datagram_send_buffer_size"]
        self.initial_mtu: int = sizes["initial_mtu"]
        self.send_window: int = sizes["send_window"]
        self.receive_window: int = sizes["receive_window"]
        self.keep_alive_interval: timedelta = either(keep_alive_interval, timedelta(seconds=5))
        self.max_idle_timeout: timedelta = either(max_idle_timeout, timedelta(seconds=10))
        self.validate_certificate: bool = either(validate_certificate, True)
        self._settings: dict[str, int | bool] = {
            **{name: size for name, size in given.items() if size is not None},
            "keep_alive_interval": _milliseconds("keep_alive_interval", self.keep_alive_interval),
            "max_idle_timeout": _milliseconds("max_idle_timeout", self.max_idle_timeout)
            or QUIC_IDLE_MILLISECONDS,
        }

    def options(self) -> ClientOptions:
        """Say the same in the words of this SDK."""
        tls = _tls(self.server_name, None, validate=self.validate_certificate)
        return self._options(tls, settings=self._settings)


def _milliseconds(name: str, span: timedelta) -> int:
    count, rest = divmod(span, timedelta(milliseconds=1))
    if rest or count < 0:
        raise invalid(name, span, "Give whole milliseconds, or zero.")
    return count


HTTP_PORTS: Final[Mapping[str, int]] = MappingProxyType({"http": 80, "https": 443})
"""The ports of URLs that name none."""


class HttpConfig(TransportConfig):
    """How to reach a server over HTTP; log in with ``login_user``."""

    __slots__ = ("_endpoint", "_is_secure", "_jwt", "api_url", "heartbeat_interval", "retries")
    __match_args__ = ("api_url", "retries", "has_jwt", "heartbeat_interval")

    def __init__(
        self,
        *,
        api_url: str | None = None,
        retries: int | None = None,
        jwt: str | None = None,
        heartbeat_interval: timedelta | None = None,
    ) -> None:
        """Say how to reach a server over HTTP.

        Args:
            api_url: ``http://host:port`` or ``https://host:port``, and nothing behind it.
            retries: taken for compatibility; this SDK repeats what does no harm by itself.
            jwt: a token of somebody else; a client refuses it, because it logs in by itself.
            heartbeat_interval: how often to ping; every five seconds by default.

        Raises:
            ConfigurationError: a value is out of range.
        """
        self.api_url: str = either(api_url, f"http://127.0.0.1:{DEFAULT_PORTS['http']}")
        self.retries: int = count_in("retries", retries, 3, high=U32_MAX)
        if jwt is not None and not jwt.strip():
            raise ConfigurationError("jwt is empty", advice="Leave jwt out.")
        self._jwt = jwt
        self.heartbeat_interval: timedelta = positive_span(
            "heartbeat_interval", heartbeat_interval, HEARTBEAT
        )
        self._endpoint, self._is_secure = _http_endpoint(self.api_url)

    @property
    def has_jwt(self) -> bool:
        """Whether there is a token of somebody else."""
        return self._jwt is not None

    def options(self) -> ClientOptions:
        """Say the same in the words of this SDK.

        Raises:
            ConfigurationError: there is a token of somebody else.
        """
        if self.has_jwt:
            raise ConfigurationError(
                "a client of this SDK takes no jwt",
                advice="Call login_user or login_with_personal_access_token instead.",
            )
        return ClientOptions(
            endpoints=(self._endpoint,),
            transport="http",
            tls=TlsOptions() if self._is_secure else None,
            heartbeat_interval=to_seconds(self.heartbeat_interval),
            transport_settings=MappingProxyType({"retries": self.retries}),
        )


def _http_endpoint(url: str) -> tuple[Endpoint, bool]:
    """Return where the server is, and whether over TLS."""
    scheme, separator, authority = url.removesuffix("/").partition("://")
    if not separator or scheme not in HTTP_PORTS:
        # It is not quoted, here and where the address is read: it may hold a password.
        raise ConfigurationError(
            "api_url is no URL", advice="Write http://host:port or https://host:port."
        )
    return parse_endpoint(authority, default_port=HTTP_PORTS[scheme]), scheme == "https"
