"""Ports for servers that are restarted: outside the range from which systems hand out their own.

A port that was asked for as 0 may be given to somebody else while the server is away, and the next
start fails. Ports from below that range are only taken by those who name them.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

FIRST, ATTEMPTS_MAX = 10_240, 200
RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
USUAL_RANGE = "32768 60999"


def free_ports(count: int) -> list[int]:
    """Choose ports that nobody has bound on this machine, neither for TCP nor for UDP.

    Raises:
        OSError: there are not so many.
    """
    text = RANGE_FILE.read_text() if RANGE_FILE.exists() else USUAL_RANGE
    behind = max(FIRST + 1_000, int(text.split()[0]))
    # Several test runs on one machine must not choose alike, so no seed decides.
    chance, found = random.SystemRandom(), set[int]()
    for _ in range(ATTEMPTS_MAX):
        port = chance.randrange(FIRST, behind)
        if _is_free(port):
            found.add(port)
        if len(found) == count:
            return sorted(found)
    raise OSError(f"found {len(found)} of {count} free ports below {behind}")


def lasting_address() -> dict[str, str]:
    """Return the setting of a server on such a port, for a test that counts the server's clients.

    Clients of other tests may still dial a port that the system handed out, although their server
    is gone, and the system may hand the port out again.
    """
    return {"IGGY_TCP_ADDRESS": f"127.0.0.1:{free_ports(1)[0]}"}


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
