"""Addresses of listeners: ``127.0.0.1:8090``, ``[::1]:8090`` or ``localhost:8090``."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

__all__ = ["Address", "parse_address"]

PORT_MAX = 2**16 - 1


class Address(NamedTuple):
    """A host and a port; written as text, it is what ``parse_address`` reads."""

    host: str
    port: int

    @property
    def version(self) -> int | None:
        """The IP version, or None where the host is a name."""
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).version
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse an address; names are not resolved.

    Raises:
        ValueError: the text is not an address; the message says what was expected.
    """
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\s:\[\]]+)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > PORT_MAX:
        raise ValueError(f'{text!r} is not an address; write "HOST:PORT", such as "127.0.0.1:8090"')
    address = Address(match[1] or match[2], int(match[3]))
    looks_numeric = re.fullmatch(r"[0-9.]+", address.host) or match[1]
    if looks_numeric and address.version is None:
        raise ValueError(f"{text!r} has an invalid IP address")
    return address
