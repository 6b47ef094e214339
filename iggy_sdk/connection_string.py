"""Connection strings: endpoints, credentials and settings.

    scheme://[user:password@ | token@]host[:port][,host[:port]…][?key=value&…]

Schemes are ``iggy`` (TCP), ``iggy+tcp``, ``iggy+ws``, ``iggy+wss``, ``iggy+quic``, ``iggy+http``
and ``iggy+https``. Credentials and values are percent-decoded, so a literal ``%`` is written
``%25``. A text without ``://`` is a TCP address alone. The keys of Apache Iggy are understood under
each of their spellings. No error quotes the credentials.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from difflib import get_close_matches
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from iggy_protocol import Dialect, StatusCode, record
from iggy_sdk.durations import parse_duration
from iggy_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable


TransportName: TypeAlias = Literal["tcp", "ws", "quic", "http"]

_SCHEMES: Final[Mapping[str, tuple[TransportName, bool]]] = {
    "iggy": ("tcp", False),
    "iggy+tcp": ("tcp", False),
    "iggy+ws": ("ws", False),
    "iggy+wss": ("ws", True),
    "iggy+quic": ("quic", True),
    "iggy+http": ("http", False),
    "iggy+https": ("http", True),
}
DEFAULT_PORTS: Final[Mapping[TransportName, int]] = {
    "tcp": 8090,
    "ws": 8092,
    "quic": 8080,
    "http": 3000,
}


@record
class Endpoint:
    """One address of a server; ``str()`` writes it as ``host:port``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServerProtocol(Enum):
    """Which generation of the protocol a client speaks; the values are releases of Apache Iggy."""

    AUTO = "auto"
    """The newest one that the server offers, which the client finds out by itself."""

    V0_8 = "0.8"
    V0_9 = "0.9"
    V0_10 = "0.10"

    @property
    def dialects(self) -> tuple[Dialect, ...]:
        """What may be spoken, the newest first."""
        return tuple(
            dialect
            for dialect in reversed(Dialect)
            if self is ServerProtocol.AUTO or self.value == dialect.generation
        )


def server_protocol(text: str, *, name: str = "protocol") -> ServerProtocol:
    """Read the name of a generation of the protocol.

    Raises:
        ConfigurationError: there is no such generation.
    """
    try:
        return ServerProtocol(text)
    except ValueError:
        allowed = ", ".join(protocol.value for protocol in ServerProtocol)
        raise ConfigurationError(
            f"{name} is {text!r}", advice=f"Use one of {allowed}; auto is what most want."
        ) from None


@record
class PasswordLogin:
    """Log in with a name and a password."""

    username: str
    password: str = field(repr=False)


@record
class TokenLogin:
    """Log in with a personal access token."""

    token: str = field(repr=False)


Credentials: TypeAlias = PasswordLogin | TokenLogin


@record
class ConnectionString:
    """A parsed connection string.

    Attributes:
        transport: how to reach the server.
        tls: whether the scheme itself asks for TLS.
        endpoints: where the server is; several are tried in turn.
        credentials: the login, if any.
        settings: the options of the query, by their names in ``CONNECTION_STRING_KEYS``.
    """

    transport: TransportName
    tls: bool
    endpoints: tuple[Endpoint, ...]
    credentials: Credentials | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def _read_bool(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise _invalid(f"{name} is {text!r}", f"Write {name}=true or {name}=false.")
    return text == "true"


def _read_int(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _invalid(f"{name} is {text!r}", f"Give {name} as a whole number.")
    return int(text)


def _read_retries(text: str, name: str) -> int | None:
    return None if text == "unlimited" else _read_int(text, name)


def _read_duration(text: str, name: str) -> float:
    return parse_duration(text, name=name)


def _read_text(text: str, name: str) -> str:
    return text


def _read_protocol(text: str, name: str) -> ServerProtocol:
    return server_protocol(text, name=name)


@record
class ConnectionStringKey:
    """One key of the query: the name of the setting, and how its value is read."""

    name: str
    read: Callable[[str, str], Any]


CONNECTION_STRING_KEYS: Final[Mapping[str, ConnectionStringKey]] = {
    "tls": ConnectionStringKey("tls", _read_bool),
    "tls_domain": ConnectionStringKey("tls_domain", _read_text),
    "tls_ca_file": ConnectionStringKey("tls_ca_file", _read_text),
    "tls_validate_certificate": ConnectionStringKey("tls_validate_certificate", _read_bool),
    "validate_certificate": ConnectionStringKey("tls_validate_certificate", _read_bool),
    "tls_client_cert": ConnectionStringKey("tls_client_cert", _read_text),
    "tls_client_key": ConnectionStringKey("tls_client_key", _read_text),
    "nodelay": ConnectionStringKey("nodelay", _read_bool),
    "connect_timeout": ConnectionStringKey("connect_timeout", _read_duration),
    "request_timeout": ConnectionStringKey("request_timeout", _read_duration),
    "close_timeout": ConnectionStringKey("close_timeout", _read_duration),
    "heartbeat_interval": ConnectionStringKey("heartbeat_interval", _read_duration),
    "reconnection_enabled": ConnectionStringKey("reconnection_enabled", _read_bool),
    "reconnection_retries": ConnectionStringKey("reconnection_retries", _read_retries),
    "reconnection_max_retries": ConnectionStringKey("reconnection_retries", _read_retries),
    "reconnection_interval": ConnectionStringKey("reconnection_interval", _read_duration),
    "reconnection_max_interval": ConnectionStringKey("reconnection_max_interval", _read_duration),
    "reestablish_after": ConnectionStringKey("reestablish_after", _read_duration),
    "reconnection_reestablish_after": ConnectionStringKey("reestablish_after", _read_duration),
    "max_outstanding": ConnectionStringKey("max_outstanding", _read_int),
    "protocol": ConnectionStringKey("protocol", _read_protocol),
    # Of single transports: QUIC, WebSocket, HTTP.
    "response_buffer_size": ConnectionStringKey("response_buffer_size", _read_int),
    "max_concurrent_bidi_streams": ConnectionStringKey("max_concurrent_bidi_streams", _read_int),
    "datagram_send_buffer_size": ConnectionStringKey("datagram_send_buffer_size", _read_int),
    "initial_mtu": ConnectionStringKey("initial_mtu", _read_int),
    "send_window": ConnectionStringKey("send_window", _read_int),
    "receive_window": ConnectionStringKey("receive_window", _read_int),
    "keep_alive_interval": ConnectionStringKey("keep_alive_interval", _read_int),
    "max_idle_timeout": ConnectionStringKey("max_idle_timeout", _read_int),
    "read_buffer_size": ConnectionStringKey("read_buffer_size", _read_int),
    "write_buffer_size": ConnectionStringKey("write_buffer_size", _read_int),
    "max_write_buffer_size": ConnectionStringKey("max_write_buffer_size", _read_int),
    "max_message_size": ConnectionStringKey("max_message_size", _read_int),
    "max_frame_size": ConnectionStringKey("max_frame_size", _read_int),
    "accept_unmasked_frames": ConnectionStringKey("accept_unmasked_frames", _read_bool),
    "retries": ConnectionStringKey("retries", _read_int),
}


def parse_connection_string(text: str) -> ConnectionString:
    """Read a connection string, or a bare ``host:port``.

    Raises:
        ConfigurationError: the text is neither; it is a ``ValueError`` too.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return ConnectionString("tcp", False, _endpoints(text, "tcp"))
    if scheme not in _SCHEMES:
        # What stands before "://" may be a password that lost its scheme, so it is not quoted.
        raise _invalid("the scheme is not known", _did_you_mean(scheme, _SCHEMES, "schemes"))
    transport, tls = _SCHEMES[scheme]
    authority, _, query = rest.partition("?")
    userinfo, at, hosts = authority.rpartition("@")
    return ConnectionString(
        transport,
        tls,
        _endpoints(hosts.removesuffix("/"), transport),
        _credentials(userinfo) if at else None,
        MappingProxyType(_settings(query)),
    )


def parse_endpoint(text: str, *, default_port: int = DEFAULT_PORTS["tcp"]) -> Endpoint:
    """Read ``host``, ``host:port`` or ``[v6]:port``.

    Raises:
        ConfigurationError: there is no host, or the port is no port.
    """
    advice = "Write an address as host:port, and an IPv6 address as [host]:port."
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        # It is not quoted: a string that was cut at the wrong place may hold a password.
        raise _invalid("an address cannot be read", advice)
    port = default_port if match["port"] is None else int(match["port"])
    if not 1 <= port <= 65_535:
        raise _invalid(f"{port} is not a port", "Ports go from 1 to 65535.")
    # A zone such as %eth0 is written %25eth0 in addresses.
    return Endpoint((match["v6"] or match["host"]).replace("%25", "%"), port)


_ENDPOINT: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\s:@/?#\[\],]+))(?::(?P<port>[0-9]{1,5}))?"
)


def _endpoints(text: str, transport: TransportName) -> tuple[Endpoint, ...]:
    port = DEFAULT_PORTS[transport]
    return tuple(parse_endpoint(part, default_port=port) for part in text.split(","))


def _credentials(userinfo: str) -> Credentials:
    first, colon, second = userinfo.partition(":")
    if not first or (colon and not second):
        raise _invalid(
            "the credentials are not complete",
            "Write user:password@ or token@ before the host, or nothing at all.",
        )
    if not colon:
        return TokenLogin(_decoded(first, "the token"))
    return PasswordLogin(_decoded(first, "the user name"), _decoded(second, "the password"))


def _settings(query: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for pair in query.split("&") if query else ():
        key, equals, raw = pair.partition("=")
        if not _OPTION.fullmatch(key):
            # A password with a bare ? in it would end up here, so it is not quoted.
            raise _invalid("an option cannot be read", "Write ? and & in credentials as %3F, %26.")
        if key not in CONNECTION_STRING_KEYS:
            raise _invalid(
                f"there is no option {key!r}",
                _did_you_mean(key, CONNECTION_STRING_KEYS, "the options"),
            )
        if not equals or "=" in raw:
            raise _invalid(f"{key} has no single value", f"Write {key}=value.")
        setting = CONNECTION_STRING_KEYS[key]
        if setting.name in settings:
            raise _invalid(f"{key} comes twice", "Write each option once.")
        settings[setting.name] = setting.read(_decoded(raw, key), key)
    return settings


_OPTION: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")


def _decoded(text: str, what: str) -> str:
    """Undo percent-encoding; a stray ``%`` is an error."""
    data = text.encode()
    escapes = _ESCAPE.findall(data)
    try:
        if len(escapes) != data.count(b"%"):
            raise ValueError(text)
        return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), data).decode()
    except ValueError:
        # The cause would quote what may be a password, so it is not chained.
        raise _invalid(
            f"{what} cannot be decoded",
            "Write a literal % as %25, and other characters as the bytes of their UTF-8.",
        ) from None


def _did_you_mean(given: str, known: Iterable[str], what: str) -> str:
    near = get_close_matches(given, known, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Use one of {what}: {', '.join(sorted(known))}."


def _invalid(message: str, advice: str) -> ConfigurationError:
    return ConfigurationError(
        f"the connection string is not valid: {message}",
        code=StatusCode.INVALID_CONNECTION_STRING,
        advice=advice,
    )
