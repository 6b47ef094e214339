"""The CPU cores that this process may use: NUMA nodes, hardware threads, and the cgroup quota.

Where the kernel does not report nodes or threads, there is one node, and every core is physical.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from iggy_protocol import record
from iggy_ref_server.config.syntax import (
    AllCores,
    CoreCount,
    CoreRange,
    NumaCores,
    parse_cpu_allocation,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


SYSFS = Path("/sys")


@record
class CpuCore:
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
class CpuTopology:
    """The cores that this process may use.

    Attributes:
        cores: sorted by number, never none.
        quota_cores: the CPU quota of the cgroup in cores, if there is one.
    """

    cores: tuple[CpuCore, ...]
    quota_cores: int | None = None


def read_cpu_topology(root: Path = SYSFS, usable: Iterable[int] | None = None) -> CpuTopology:
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
        for core in _read_cpu_list(directory / "cpulist")
    }
    cores = tuple(
        CpuCore(core, nodes.get(core, 0), min(_read_siblings(root, core), default=None))
        for core in sorted(usable)
    )
    return CpuTopology(cores, _read_cgroup_quota(root))


def _read_siblings(root: Path, core: int) -> list[int]:
    topology = root / f"devices/system/cpu/cpu{core}/topology"
    return _read_cpu_list(topology / "thread_siblings_list")


def _read_cpu_list(path: Path) -> list[int]:
    """Read a list of numbers such as ``0-3,8``; an unreadable one is empty."""
    try:
        text = path.read_text()
    except OSError:
        return []
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _read_cgroup_quota(root: Path) -> int | None:
    """Read the CPU quota; a container sees its own cgroup as the root."""
    try:
        quota, period = (root / "fs/cgroup/cpu.max").read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return None


# Which shard runs on which CPU core: from the configuration and the usable cores.
#
# Shard numbers are dense and independent of core numbers.


class TopologyError(Exception):
    """The configured cores are not available."""


@record
class ShardPlacement:
    """Where a shard runs.

    Attributes:
        shard_id: from 0 upwards, without gaps.
        core: the core it is pinned to.
        node: the NUMA node of that core.
    """

    shard_id: int
    core: int
    node: int


def place_shards(cpu_allocation: str, topology: CpuTopology) -> list[ShardPlacement]:
    """Assign a core to every shard.

    Args:
        cpu_allocation: the value of ``system.sharding.cpu_allocation``.
        topology: the usable cores.

    Raises:
        TopologyError: the configured cores are not available.
        ValueError: the text is malformed.
    """
    wanted = parse_cpu_allocation(cpu_allocation)
    if isinstance(wanted, AllCores):
        cores = _within_quota(topology.cores, topology)
    elif isinstance(wanted, CoreCount):
        cores = _first_cores(wanted.count, topology)
    elif isinstance(wanted, CoreRange):
        cores = _cores_in_range(wanted, topology)
    else:
        cores = _cores_by_node(wanted, topology)
    return [ShardPlacement(shard_id, core.id, core.node) for shard_id, core in enumerate(cores)]


def _within_quota(cores: tuple[CpuCore, ...], topology: CpuTopology) -> tuple[CpuCore, ...]:
    """Limit the cores to the CPU quota; more shards would be throttled."""
    return cores[: topology.quota_cores]


def _first_cores(count: int, topology: CpuTopology) -> tuple[CpuCore, ...]:
    available = len(topology.cores)
    if count > available:
        message = f"{count} shards need {count} cores, but only {available} are usable"
        raise TopologyError(f"{message} ({_core_list(topology.cores)})")
    return topology.cores[:count]


def _cores_in_range(wanted: CoreRange, topology: CpuTopology) -> tuple[CpuCore, ...]:
    """Choose cores by number, or by position where the process may use only some of them.

    Inside a container the cores may be numbered from anywhere, and ``0..4`` still means four.
    """
    by_number = {core.id: core for core in topology.cores}
    numbers = range(wanted.first, wanted.end)
    if all(number in by_number for number in numbers):
        return tuple(by_number[number] for number in numbers)
    if wanted.end <= len(topology.cores):
        return topology.cores[wanted.first : wanted.end]
    message = f"the cores {wanted} are not all usable; this process can use"
    raise TopologyError(f"{message} {_core_list(topology.cores)}")


def _cores_by_node(wanted: NumaCores, topology: CpuTopology) -> tuple[CpuCore, ...]:
    nodes = {core.node for core in topology.cores}
    unknown = sorted(set(wanted.nodes) - nodes)
    if unknown:
        there = ", ".join(map(str, sorted(nodes)))
        raise TopologyError(
            f"there is no NUMA node {unknown[0]}; this process can use nodes {there}"
        )
    chosen: list[CpuCore] = []
    for node in wanted.nodes or sorted(nodes):
        cores = [core for core in topology.cores if core.node == node]
        if wanted.is_physical:
            cores = _one_thread_per_core(cores)
        if wanted.cores_per_node > len(cores):
            kind = "physical cores" if wanted.is_physical else "cores"
            message = f"NUMA node {node} does not have {wanted.cores_per_node} {kind}"
            raise TopologyError(f"{message}; this process can use {len(cores)}")
        chosen += cores[: wanted.cores_per_node or None]
    return _within_quota(tuple(chosen), topology) if wanted == NumaCores() else tuple(chosen)


def _one_thread_per_core(cores: Iterable[CpuCore]) -> list[CpuCore]:
    """Keep one hardware thread of every physical core."""
    first: dict[int, CpuCore] = {}
    for core in cores:
        first.setdefault(core.id if core.first_sibling is None else core.first_sibling, core)
    return list(first.values())


def _core_list(cores: Iterable[CpuCore]) -> str:
    return "cores " + ", ".join(str(core.id) for core in cores)
