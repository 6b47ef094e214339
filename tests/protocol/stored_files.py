"""Reads the files that a real server left behind in ``tests/golden/disk``, byte by byte.

Everything here is written from the description of the files and with nothing of the package, so
that a mistake in the package cannot hide in it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

DISK = Path(__file__).parents[1] / "golden" / "disk"
PARTITIONS = "streams/*/topics/*/partitions/*"

# index, term, leader, version, flags, timestamp, user, checksum, size of the context
STATE_ENTRY = struct.Struct("<QQIIQQIQI")
CHECKSUM_AT = slice(-12, -4)

# Creations are logged behind what the server added: an id, or the hash of a token.
CREATIONS = frozenset({33, 202, 302, 602})
TOKEN_CREATION = 42


@dataclass(frozen=True)
class StateEntry:
    """One entry of a state log; the command is as it lies there, sealed or not."""

    fixed: bytes
    code: int
    command: bytes

    @property
    def index(self) -> int:
        return int.from_bytes(self.fixed[:8], "little")

    @property
    def checksum(self) -> int:
        return int.from_bytes(self.fixed[CHECKSUM_AT], "little")

    def covered(self, command: bytes) -> bytes:
        """Return what the checksum covers: all but itself, around the command in the clear."""
        head = self.fixed[: CHECKSUM_AT.start] + self.fixed[CHECKSUM_AT.stop :]
        return head + struct.pack("<II", self.code, len(command)) + command


def state_entries(directory: str) -> Iterator[StateEntry]:
    """Walk the state log of a data directory; it must end with its last entry."""
    data = (DISK / directory / "state" / "log").read_bytes()
    offset = 0
    while offset < len(data):
        fixed = data[offset : offset + STATE_ENTRY.size]
        offset += STATE_ENTRY.size + STATE_ENTRY.unpack(fixed)[-1]
        code, size = struct.unpack_from("<II", data, offset)
        offset += 8 + size
        assert offset <= len(data), "the last entry is cut"
        yield StateEntry(fixed, code, data[offset - size : offset])


def request_of(code: int, command: bytes) -> bytes:
    """Take off what the server put in front of a request when it logged it."""
    at = 0
    if code in CREATIONS:
        at = 4
    elif code == TOKEN_CREATION:
        at = 4 + int.from_bytes(command[:4], "little")
    if not at:
        return command
    assert int.from_bytes(command[at : at + 4], "little") == len(command) - at - 4
    return command[at + 4 :]


def stored_offsets(directory: str) -> dict[str, int]:
    """Read every offset file: its path below the streams, and the offset in it."""
    root = DISK / directory
    files = sorted(root.glob(f"{PARTITIONS}/offsets/*/*"))
    assert all(file.stat().st_size == 8 for file in files)
    return {
        file.relative_to(root).as_posix(): int.from_bytes(file.read_bytes(), "little")
        for file in files
    }
