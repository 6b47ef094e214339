"""The QUIC settings of a connection string, with defaults and limits.

Names and units (bytes, milliseconds) are those of the official clients. Without ``initial_mtu``
datagrams have 1200 bytes, which every network forwards; over loopback larger ones are several
times as fast.
"""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from iggy_protocol import record
from iggy_sdk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["QuicSettings", "parse_quic_settings"]

DATAGRAM_BYTES_MIN: Final = 1200
DATAGRAM_BYTES_MAX: Final = 65_527
# As the reference server does over loopback.
LOCAL_DATAGRAM_BYTES: Final = 8_000
WINDOW_BYTES_MIN: Final = 4_096
MILLISECONDS: Final = 1_000
FOREVER_SECONDS: Final = 10 * 365 * 86_400.0


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
