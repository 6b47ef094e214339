"""The CPU cores that this process may use: NUMA nodes, hardware threads, and the cgroup quota.

Where the kernel does not report nodes or threads, there is one node, and every core is physical.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from iggy_protocol import record

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Core", "Machine", "read_machine"]

SYSTEM = Path("/sys")


@record
class Core:
    """A CPU as the kernel counts them: a hardware thread.

    Attributes:
        id: its number.
        node: its NUMA node.
        first_sibling: the lowest number among the threads of the same physical core.
    """

    id: int
    node: int = 0
    first_sibling: int | None = None


@record
class Machine:
    """The cores that this process may use.

    Attributes:
        cores: sorted by number, never none.
        shares_max: the CPU quota of the cgroup in cores, if there is one.
    """

    cores: tuple[Core, ...]
    shares_max: int | None = None


def read_machine(root: Path = SYSTEM, usable: Iterable[int] | None = None) -> Machine:
    """Read the cores that this process may use.

    Args:
        root: the mount point of sysfs.
        usable: the numbers of the cores; the CPU affinity of this process by default.
    """
    if usable is None:
        usable = os.sched_getaffinity(0)
    nodes = {
        core: int(directory.name.removeprefix("node"))
        for directory in sorted((root / "devices/system/node").glob("node[0-9]*"))
        for core in _read_list(directory / "cpulist")
    }
    cores = tuple(
        Core(core, nodes.get(core, 0), min(_read_siblings(root, core), default=None))
        for core in sorted(usable)
    )
    return Machine(cores, _read_shares(root))


def _read_siblings(root: Path, core: int) -> list[int]:
    topology = root / f"devices/system/cpu/cpu{core}/topology"
    return _read_list(topology / "thread_siblings_list")


def _read_list(path: Path) -> list[int]:
    """Read a list of numbers such as ``0-3,8``; an unreadable one is empty."""
    try:
        text = path.read_text()
    except OSError:
        return []
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _read_shares(root: Path) -> int | None:
    """Read the CPU quota; a container sees its own cgroup as the root."""
    try:
        quota, period = (root / "fs/cgroup/cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return None
