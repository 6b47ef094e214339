"""The options of a client: the connection string, overridden by keywords, and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, Unpack

from iggy_protocol import Identifier, record
from iggy_sdk.connection_string import (
    DEFAULT_PORTS,
    ConnectionString,
    Credentials,
    Endpoint,
    PasswordLogin,
    ServerProtocol,
    TokenLogin,
    TransportName,
    parse_connection_string,
    parse_endpoint,
    server_protocol,
)
from iggy_sdk.durations import Seconds, to_seconds
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.hooks import Hook
from iggy_sdk.option_checks import check_fields, check_settings, invalid_option

if TYPE_CHECKING:
    from collections.abc import Iterator


# Exponential backoff with jitter. The caller sleeps and supplies the random numbers.


@record(kw_only=True)
class Backoff:
    """A schedule of delays.

    Attributes:
        initial: the first delay, in seconds.
        maximum: no delay is longer than this one, its jitter left aside.
        factor: how much longer each delay is than the one before.
        jitter: the fraction by which a delay may be longer or shorter, so that clients that lost
            the same server do not all reconnect at once.
    """

    initial: float = 0.1
    maximum: float = 30.0
    factor: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        assert self.initial >= 0
        assert self.maximum >= 0
        assert self.factor >= 1
        assert 0 <= self.jitter <= 1

    def delay(self, attempt: int, random: Callable[[], float]) -> float:
        """Tell how long to wait before attempt ``attempt``, where 0 is the first retry.

        Args:
            attempt: how many delays came before this one.
            random: a source of numbers from 0 to 1.
        """
        # The exponent is limited: a client may retry for years, and a float overflows at 2**1024.
        grown = self.initial * self.factor ** min(attempt, 64)
        return min(grown, self.maximum) * (1 + self.jitter * (2 * random() - 1))

    def delays(self, random: Callable[[], float]) -> Iterator[float]:
        """Yield one delay after the other, without end."""
        for attempt in count():
            yield self.delay(attempt, random)


Partitioner: TypeAlias = Callable[[Identifier, Identifier, Sequence[Any]], int]
"""Chooses the partition of a batch: called with stream, topic and messages, returns its id."""

DEFAULT_ADDRESS: Final = "127.0.0.1:8090"


def _require(condition: bool, message: str, advice: str) -> None:
    if not condition:
        raise ConfigurationError(message, advice=advice)


def _normalise_durations(options: object, *names: str) -> None:
    """Turn the time spans of a frozen value into seconds."""
    for name in names:
        object.__setattr__(options, name, to_seconds(getattr(options, name), name=name))


def _check_fraction(value: float, name: str) -> None:
    _require(0 <= value <= 1, f"{name} is {value!r}", f"Give {name} as a share from 0 to 1.")


@record(kw_only=True)
class Reconnect:
    """How a lost connection is made again.

    Attributes:
        enabled: whether the client reconnects by itself.
        retries: how many attempts follow the first; None means without end.
        delay: the first wait between two attempts.
        max_delay: the longest wait.
        jitter: the share by which a wait may be longer or shorter.
        reestablish_after: how old a connection must be to be dialled again at once.
    """

    enabled: bool = True
    retries: int | None = None
    delay: Seconds = 0.1
    max_delay: Seconds = 30.0
    jitter: float = 0.2
    reestablish_after: Seconds = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        _normalise_durations(self, "delay", "max_delay", "reestablish_after")
        _check_fraction(self.jitter, "jitter")
        _require(
            self.retries is None or self.retries >= 0,
            f"retries is {self.retries!r}",
            "Give the number of retries, or None for no end.",
        )

    @property
    def backoff(self) -> Backoff:
        """The schedule of waits."""
        return _backoff(self.delay, self.max_delay, self.jitter)


@record(kw_only=True)
class Retry:
    """How often an operation is tried again; only errors that are ``retriable`` are.

    Attributes:
        attempts: how many attempts follow the first; 0 means a single one.
        backoff: the first wait between two attempts.
        max_backoff: the longest wait.
        jitter: the share by which a wait may be longer or shorter.
    """

    attempts: int = 3
    backoff: Seconds = 0.1
    max_backoff: Seconds = 10.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        check_fields(self)
        _normalise_durations(self, "backoff", "max_backoff")
        _check_fraction(self.jitter, "jitter")
        _require(
            self.attempts >= 0,
            f"attempts is {self.attempts!r}",
            "Give the number of retries after the first attempt, 0 for none.",
        )

    @property
    def schedule(self) -> Backoff:
        """The schedule of waits."""
        return _backoff(self.backoff, self.max_backoff, self.jitter)


def _backoff(first: Seconds, longest: Seconds, jitter: float) -> Backoff:
    return Backoff(initial=to_seconds(first), maximum=to_seconds(longest), jitter=jitter)


@record(kw_only=True)
class TlsOptions:
    """TLS settings.

    Attributes:
        ca_file: PEM file of trusted authorities; None takes those of the system.
        domain: name that the certificate must have; None takes the host.
        validate: whether the certificate is checked at all.
        client_cert: PEM file of the client's own certificate.
        client_key: PEM file of its key, unless it stands in the same file.
    """

    ca_file: str | None = None
    domain: str | None = None
    validate: bool = True
    client_cert: str | None = None
    client_key: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@record(kw_only=True)
class ClientOptions:
    """The options of a client.

    Attributes:
        endpoints: where the server is; several are tried in turn.
        transport: how to reach it.
        protocol: which generation of the protocol to speak; by default the newest that the server
            offers.
        credentials: the login on every connection, if any.
        tls: None for a plain connection.
        nodelay: whether small requests leave at once.
        connect_timeout: seconds that one attempt to connect may take.
        request_timeout: seconds that a call may take with everything that it does: waiting for a
            connection, all attempts, and the reply.
        close_timeout: seconds that closing may take.
        heartbeat_interval: seconds between two pings; 0 never pings.
        reconnect: how a lost connection is made again.
        max_outstanding: how many requests may be pending; further callers wait.
        hooks: callbacks that observe the client.
        encryptor: seals and opens all messages of this client.
        partitioner: chooses partitions where nothing else does.
        transport_settings: further keys of the connection string, for single transports.
    """

    endpoints: tuple[Endpoint, ...] = (Endpoint("127.0.0.1", DEFAULT_PORTS["tcp"]),)
    transport: TransportName = "tcp"
    protocol: ServerProtocol = ServerProtocol.AUTO
    credentials: Credentials | None = None
    tls: TlsOptions | None = None
    nodelay: bool = True
    connect_timeout: float = 10.0
    request_timeout: float = 30.0
    close_timeout: float = 5.0
    heartbeat_interval: float = 5.0
    reconnect: Reconnect = Reconnect()
    max_outstanding: int = 1024
    hooks: tuple[Hook, ...] = ()
    encryptor: Encryptor | None = None
    partitioner: Partitioner | None = None
    transport_settings: Mapping[str, int | bool] = field(
        default_factory=lambda: MappingProxyType({})
    )

    def __post_init__(self) -> None:
        _normalise_durations(self, *_TIMES)
        check_fields(self)
        for name in _TIMEOUTS:
            _require(getattr(self, name) > 0, f"{name} is 0", f"Make {name} more than 0.")
        _require(bool(self.endpoints), "there is no endpoint", "Give at least one host:port.")
        _require(
            self.max_outstanding >= 1,
            f"max_outstanding is {self.max_outstanding!r}",
            "Allow at least one request in flight.",
        )
        _require(
            self.transport != "http" or self.protocol in (ServerProtocol.AUTO, ServerProtocol.V0_8),
            f"protocol is {self.protocol.value} over HTTP",
            "Leave protocol out: the REST API is that of 0.8.",
        )


_TIMEOUTS: Final = ("connect_timeout", "request_timeout", "close_timeout")
_TIMES: Final = (*_TIMEOUTS, "heartbeat_interval")


class ClientSettings(TypedDict, total=False):
    """The keywords of a client; each overrides what the connection string says.

    Attributes:
        username: the name to log in with, given together with the password.
        password: its password.
        token: a personal access token to log in with, instead of name and password.
        tls: True for TLS with the usual settings, or ``TlsOptions``; None and False for none.
        reconnect: False never reconnects; True does as the connection string says.
    """

    endpoints: Sequence[Endpoint | str]
    transport: TransportName
    protocol: ServerProtocol | str
    credentials: Credentials | None
    username: str
    password: str
    token: str
    tls: TlsOptions | bool | None
    nodelay: bool
    connect_timeout: Seconds
    request_timeout: Seconds
    close_timeout: Seconds
    heartbeat_interval: Seconds
    reconnect: Reconnect | bool
    max_outstanding: int
    hooks: Sequence[Hook]
    encryptor: Encryptor | None
    partitioner: Partitioner | None


def resolve_options(url: str | None = None, **settings: Unpack[ClientSettings]) -> ClientOptions:
    """Make the options of a client.

    Args:
        url: a connection string or a bare ``host:port``; None is the usual port of this machine.
        settings: keywords, which override the connection string.

    Raises:
        ConfigurationError: the connection string or a value is not valid.
        TypeError: there is no such keyword.
    """
    given: dict[str, Any] = dict(settings)
    check_settings("client", given, ClientSettings)
    if not isinstance(url, str | None):
        raise invalid_option("url", url, "Give url as text, such as 'iggy://localhost:8090'.")
    values = _from_connection_string(
        parse_connection_string(DEFAULT_ADDRESS if url is None else url)
    )
    _take_credentials(given)
    if "endpoints" in given:
        given["endpoints"] = tuple(_as_endpoint(one) for one in given["endpoints"])
    if isinstance(given.get("protocol"), str):
        given["protocol"] = server_protocol(given["protocol"])
    if "hooks" in given:
        given["hooks"] = tuple(given["hooks"])
    if isinstance(given.get("tls"), bool):
        # The connection string may hold further TLS settings.
        given["tls"] = (values["tls"] or TlsOptions()) if given["tls"] else None
    if isinstance(given.get("reconnect"), bool):
        given["reconnect"] = replace(values["reconnect"], enabled=given["reconnect"])
    return ClientOptions(**{**values, **given})


def _as_endpoint(endpoint: Endpoint | str) -> Endpoint:
    return endpoint if isinstance(endpoint, Endpoint) else parse_endpoint(endpoint)


def _take_credentials(given: dict[str, Any]) -> None:
    """Turn user name and password, or a token, into credentials."""
    username, password = given.pop("username", None), given.pop("password", None)
    token = given.pop("token", None)
    _require(
        (username is None) == (password is None),
        "user name and password are not both given",
        "Give username= and password= together.",
    )
    ways = [way for way in (username, token, given.get("credentials")) if way is not None]
    _require(
        len(ways) <= 1,
        "there is more than one way to log in",
        "Give username= and password=, or token=, or credentials=.",
    )
    if username is not None:
        given["credentials"] = PasswordLogin(username, password)
    elif token is not None:
        given["credentials"] = TokenLogin(token)


_RECONNECT_NAMES: Final = {
    "reconnection_enabled": "enabled",
    "reconnection_retries": "retries",
    "reconnection_interval": "delay",
    "reconnection_max_interval": "max_delay",
    "reestablish_after": "reestablish_after",
}
_TLS_NAMES: Final = {
    "tls_ca_file": "ca_file",
    "tls_domain": "domain",
    "tls_validate_certificate": "validate",
    "tls_client_cert": "client_cert",
    "tls_client_key": "client_key",
}


def _from_connection_string(address: ConnectionString) -> dict[str, Any]:
    """Map a connection string to the fields of ``ClientOptions``."""
    rest = dict(address.settings)
    reconnect = {ours: rest.pop(key) for key, ours in _RECONNECT_NAMES.items() if key in rest}
    own = {
        item.name: rest.pop(item.name)
        for item in fields(ClientOptions)
        if item.name in rest and item.name != "tls"
    }
    if reconnect.get("delay", 0.0) > Reconnect().max_delay:
        reconnect.setdefault("max_delay", reconnect["delay"])
    return {
        "endpoints": address.endpoints,
        "transport": address.transport,
        "credentials": address.credentials,
        "tls": _tls_of(address, rest),
        "reconnect": Reconnect(**reconnect),
        **own,
        "transport_settings": MappingProxyType(rest),
    }


def _tls_of(address: ConnectionString, rest: dict[str, Any]) -> TlsOptions | None:
    """Take the TLS settings out of the rest."""
    details: dict[str, Any] = {
        ours: rest.pop(key) for key, ours in _TLS_NAMES.items() if rest.get(key, "") != ""
    }
    wanted = rest.pop("tls", True if address.tls else None)
    if wanted is None and details and address.transport in ("tcp", "ws"):
        # A named certificate is meant to be used; ignoring it would send secrets unencrypted.
        raise ConfigurationError(
            "the connection string is not valid: it has TLS settings and does not enable TLS",
            advice="Add tls=true, or tls=false if the connection shall be a plain one.",
        )
    return TlsOptions(**details) if wanted else None
