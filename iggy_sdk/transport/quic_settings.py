"""The QUIC settings of a connection string, with defaults and limits.

Names and units (bytes, milliseconds) are those of the official clients. Without ``initial_mtu``
datagrams have 1200 bytes, which every network forwards; over loopback larger ones are several
times as fast. ``make_quic_configuration`` turns them into a configuration of ``aioquic``.
"""

from __future__ import annotations

import ipaddress
import ssl
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioquic.quic.configuration import QuicConfiguration

from iggy_protocol import record
from iggy_sdk.errors import ConfigurationError
from iggy_sdk.transport.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iggy_sdk.options import TlsOptions


DATAGRAM_BYTES_MIN: Final = 1200
DATAGRAM_BYTES_MAX: Final = 65_527
# As the reference server does over loopback.
LOCAL_DATAGRAM_BYTES: Final = 8_000
WINDOW_BYTES_MIN: Final = 4_096
MILLISECONDS: Final = 1_000
FOREVER_SECONDS: Final = 10 * 365 * 86_400.0
# The initial RTT estimate; the first retransmission follows after twice that.
ROUND_TRIP_SECONDS: Final = 0.1


@record(kw_only=True)
class QuicSettings:
    """The settings of a QUIC connection.

    Attributes:
        datagram_bytes: the largest datagram; None depends on the address of the server.
        send_window_bytes: bytes of requests in flight; one request is always allowed.
        receive_window_bytes: bytes that the server may send before they are read.
        response_bytes_max: the longest reply.
        streams_max: how many requests may be in flight.
        keep_alive_seconds: idle time after which a PING is sent; 0 sends none.
        idle_seconds: how long the server may be silent before the connection is lost.
    """

    datagram_bytes: int | None = None
    send_window_bytes: int = 16 << 20
    receive_window_bytes: int = 1 << 20
    response_bytes_max: int = 256 << 20
    streams_max: int = 10_000
    keep_alive_seconds: float = 5.0
    idle_seconds: float = 10.0

    def datagram_bytes_to(self, host: str) -> int:
        """Return the datagram size for an address."""
        if self.datagram_bytes is not None:
            return self.datagram_bytes
        with suppress(ValueError):
            if ipaddress.ip_address(host.partition("%")[0]).is_loopback:
                return LOCAL_DATAGRAM_BYTES
        return DATAGRAM_BYTES_MIN


def parse_quic_settings(given: Mapping[str, int | bool]) -> QuicSettings:
    """Read the settings of a connection string; those of other transports are ignored.

    Raises:
        ConfigurationError: a value is out of range.
    """
    values: dict[str, int | float] = {}
    for name, (ours, low, high) in _NUMBERS.items():
        if name in given:
            values[ours] = _checked(name, int(given[name]), low, high)
    for name, ours in _TIMES.items():
        if name in given:
            values[ours] = int(given[name]) / MILLISECONDS
    if values.get("idle_seconds") == 0:
        values["idle_seconds"] = FOREVER_SECONDS
    return QuicSettings(**values)  # type: ignore[arg-type]


_NUMBERS: Final = {
    "initial_mtu": ("datagram_bytes", DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX),
    "send_window": ("send_window_bytes", WINDOW_BYTES_MIN, 2**32),
    "receive_window": ("receive_window_bytes", WINDOW_BYTES_MIN, 2**32),
    "response_buffer_size": ("response_bytes_max", 8, 2**32),
    "max_concurrent_bidi_streams": ("streams_max", 1, 2**60),
}
_TIMES: Final = {
    "keep_alive_interval": "keep_alive_seconds",
    "max_idle_timeout": "idle_seconds",
}


def _checked(name: str, value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise ConfigurationError(
            f"{name} is {value}", advice=f"Give {name} from {low} to {high}, or leave it out."
        )
    return value


def make_quic_configuration(
    tls: TlsOptions, settings: QuicSettings, *, host: str
) -> QuicConfiguration:
    """Make the configuration of ``aioquic``; this reads files.

    Raises:
        ConfigurationError: a file of the options cannot be read.
    """
    # The library would read these files during the handshake and fail without a usable error.
    tls_context(tls)
    configuration = QuicConfiguration(
        is_client=True,
        idle_timeout=settings.idle_seconds,
        initial_rtt=ROUND_TRIP_SECONDS,
        max_data=settings.receive_window_bytes,
        max_stream_data=settings.receive_window_bytes,
        server_name=tls.domain or host,
        verify_mode=ssl.CERT_REQUIRED if tls.validate else ssl.CERT_NONE,
    )
    if tls.ca_file is not None:
        configuration.load_verify_locations(cafile=tls.ca_file)
    else:
        _load_system_authorities(configuration)
    if tls.client_cert is not None:
        _load_client_certificate(configuration, tls.client_cert, tls.client_key)
    return configuration


def _load_system_authorities(configuration: QuicConfiguration) -> None:
    """Use the authorities of the system, as TLS over TCP does, instead of the library's list."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        configuration.load_verify_locations(cafile=paths.cafile, capath=paths.capath)


def _load_client_certificate(
    configuration: QuicConfiguration, certificate: str, key: str | None
) -> None:
    try:
        configuration.load_cert_chain(Path(certificate), None if key is None else Path(key))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"the client certificate {certificate} cannot be used: {error}",
            advice="Give PEM files of a certificate and of the key that belongs to it.",
        ) from error
    if configuration.private_key is None:
        raise ConfigurationError(
            f"the client certificate {certificate} has no key",
            advice="Set tls_client_key to the file of the key.",
        )
