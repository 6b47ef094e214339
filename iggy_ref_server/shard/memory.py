"""How much memory the buffers of a shard may take, from what the machine or the container has.

Owns the reading and the share. What is counted is the affair of ``data_plane.budget``.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

__all__ = ["budget_bytes", "memory_bytes"]

# Of all memory; the rest is for the pages of files, indexes and whoever else is on the machine.
SHARE: Final = 4
# Where nothing is known, and where next to nothing is there.
UNKNOWN_BYTES: Final = 1 << 30
LEAST_BYTES: Final = 64 << 20
# cgroup v1 says "no limit" with a number near 2^63.
NO_LIMIT_BYTES: Final = 1 << 60
CGROUP: Final = "sys/fs/cgroup"


def budget_bytes(configured_bytes: int, shards_count: int, root: Path = Path("/")) -> int:
    """Return the budget of one shard.

    Args:
        configured_bytes: what the configuration says for all shards; 0 leaves it to the machine.
        shards_count: how many share it.
        root: where the files of the system are.
    """
    if configured_bytes:
        return max(1, configured_bytes // shards_count)
    return max(LEAST_BYTES, memory_bytes(root) // SHARE // shards_count)


def memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory this process and its like may use: the narrowest of all bounds."""
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
    """Read a number; 0 where there is none, as in ``max``."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return 0


def _total(path: Path) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    return 0
