"""Servers that open all listeners at once, some plainly and some behind TLS."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iggy_sdk.testing.server import in_test_protocol
from tests.certificates import Certificate
from tests.server.free_ports import free_ports
from tests.server.running import RunningServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAIN = ("tcp", "ws", "quic", "http")
SECURED = ("tls", "wss", "https")
TRANSPORTS = (*PLAIN, *SECURED)

# What each is called in a connection string, and where the server keeps its address.
_SCHEMES = {
    "tcp": ("iggy", "tcp"),
    "ws": ("iggy+ws", "websocket"),
    "quic": ("iggy+quic", "quic"),
    "http": ("iggy+http", "http"),
    "tls": ("iggy+tcp", "tcp"),
    "wss": ("iggy+wss", "websocket"),
    "https": ("iggy+https", "http"),
}
_SECTIONS = ("tcp", "websocket", "quic", "http")


@dataclass
class TransportServer:
    """One server with several listeners, and names that no test has used there."""

    server: RunningServer
    certificate: Certificate
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        shards: int,
        secured: bool,
        certificate: Certificate,
        settings: Mapping[str, str] | None = None,
    ) -> TransportServer:
        """Start a server; it keeps its ports when it is restarted."""
        ports = zip(_SECTIONS, free_ports(len(_SECTIONS)), strict=True)
        told = {
            **{f"IGGY_{name.upper()}_ADDRESS": f"127.0.0.1:{port}" for name, port in ports},
            # Base64 makes batches larger by a third.
            "IGGY_HTTP_MAX_REQUEST_SIZE": "16 MB",
            **certificate.settings("QUIC_CERTIFICATE", is_switch=False),
            **(settings or {}),
        }
        for section in ("TCP_TLS", "WEBSOCKET_TLS", "HTTP_TLS") if secured else ():
            told |= certificate.settings(section)
        server = RunningServer(folder, shards=shards, settings=told)
        server.start()
        return cls(server, certificate)

    def url(self, transport: str, login: str = "iggy:iggy@", **options: object) -> str:
        """Write the connection string for one transport."""
        told = dict(options)
        if transport not in ("tcp", "ws", "http"):
            told["tls_ca_file"] = self.certificate.ca_file
        if transport == "tls":
            told["tls"] = "true"
        query = "&".join(f"{key}={value}" for key, value in told.items())
        address = f"{_SCHEMES[transport][0]}://{login}{self._address(transport)}"
        return in_test_protocol(f"{address}?{query}" if query else address)

    def _address(self, transport: str) -> str:
        return self.server.settings[f"IGGY_{_SCHEMES[transport][1].upper()}_ADDRESS"]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Have all processes of the server stand still for the length of a block."""
        os.killpg(self.server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.server.pid, signal.SIGCONT)

    def fresh_name(self) -> str:
        """Make a name that is short enough for users and tokens."""
        return f"name-{next(self._numbers)}"
