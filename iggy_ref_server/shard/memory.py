"""The memory budget of a shard's buffers, from the memory of the machine or the container."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

__all__ = ["budget_bytes", "memory_bytes"]

# A quarter of the memory; the rest is for the page cache, indexes and other programs.
SHARE: Final = 4
# Used where the memory size is unknown; and the smallest budget of a shard.
UNKNOWN_BYTES: Final = 1 << 30
LEAST_BYTES: Final = 64 << 20
# cgroup v1 says "no limit" with a number near 2^63.
NO_LIMIT_BYTES: Final = 1 << 60
CGROUP: Final = "sys/fs/cgroup"


def budget_bytes(configured_bytes: int, shards_count: int, root: Path = Path("/")) -> int:
    """Return the budget of one shard.

    Args:
        configured_bytes: the configured budget of all shards; 0 derives it from the memory.
        shards_count: how many shards share it.
        root: the root of the file system, for tests.
    """
    if configured_bytes:
        return max(1, configured_bytes // shards_count)
    return max(LEAST_BYTES, memory_bytes(root) // SHARE // shards_count)


def memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory the server may use: the smallest limit of cgroups and machine."""
    own = ""
    with contextlib.suppress(OSError, IndexError):
        own = (root / "proc/self/cgroup").read_text().splitlines()[-1].rpartition(":")[2].strip("/")
    bounds = [
        _number(root / CGROUP / own / "memory.max"),
        _number(root / CGROUP / "memory.max"),
        _number(root / CGROUP / "memory" / own / "memory.limit_in_bytes"),
        _number(root / CGROUP / "memory/memory.limit_in_bytes"),
        _total(root / "proc/meminfo"),
    ]
    return min((bound for bound in bounds if 0 < bound < NO_LIMIT_BYTES), default=UNKNOWN_BYTES)


def _number(path: Path) -> int:
    """Read a number; 0 where the file holds none, such as ``max``."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _total(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return 0
