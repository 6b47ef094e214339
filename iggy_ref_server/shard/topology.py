"""Which shard runs on which CPU core: from the configuration and the usable cores.

Shard numbers are dense and independent of core numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import record
from iggy_ref_server.config import (
    AllCores,
    CoreCount,
    CoreRange,
    NumaCores,
    parse_cpu_allocation,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.shard.machine import Core, Machine

__all__ = ["ShardPlacement", "TopologyError", "place_shards"]


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


def place_shards(cpu_allocation: str, machine: Machine) -> list[ShardPlacement]:
    """Assign a core to every shard.

    Args:
        cpu_allocation: the value of ``system.sharding.cpu_allocation``.
        machine: the usable cores.

    Raises:
        TopologyError: the configured cores are not available.
        ValueError: the text is malformed.
    """
    wanted = parse_cpu_allocation(cpu_allocation)
    if isinstance(wanted, AllCores):
        cores = _within_shares(machine.cores, machine)
    elif isinstance(wanted, CoreCount):
        cores = _first(wanted.count, machine)
    elif isinstance(wanted, CoreRange):
        cores = _range(wanted, machine)
    else:
        cores = _by_node(wanted, machine)
    return [ShardPlacement(shard_id, core.id, core.node) for shard_id, core in enumerate(cores)]


def _within_shares(cores: tuple[Core, ...], machine: Machine) -> tuple[Core, ...]:
    """Limit the cores to the CPU quota; more shards would be throttled."""
    return cores[: machine.shares_max]


def _first(count: int, machine: Machine) -> tuple[Core, ...]:
    available = len(machine.cores)
    if count > available:
        message = f"{count} shards need {count} cores, but only {available} are usable"
        raise TopologyError(f"{message} ({_numbers(machine.cores)})")
    return machine.cores[:count]


def _range(wanted: CoreRange, machine: Machine) -> tuple[Core, ...]:
    """Choose cores by number, or by position where the process may use only some of them.

    Inside a container the cores may be numbered from anywhere, and ``0..4`` still means four.
    """
    by_number = {core.id: core for core in machine.cores}
    numbers = range(wanted.first, wanted.end)
    if all(number in by_number for number in numbers):
        return tuple(by_number[number] for number in numbers)
    if wanted.end <= len(machine.cores):
        return machine.cores[wanted.first : wanted.end]
    message = f"the cores {wanted} are not all usable; this process can use"
    raise TopologyError(f"{message} {_numbers(machine.cores)}")


def _by_node(wanted: NumaCores, machine: Machine) -> tuple[Core, ...]:
    nodes = {core.node for core in machine.cores}
    unknown = sorted(set(wanted.nodes) - nodes)
    if unknown:
        there = ", ".join(map(str, sorted(nodes)))
        raise TopologyError(
            f"there is no NUMA node {unknown[0]}; this process can use nodes {there}"
        )
    chosen: list[Core] = []
    for node in wanted.nodes or sorted(nodes):
        cores = [core for core in machine.cores if core.node == node]
        if wanted.is_physical:
            cores = _one_thread_each(cores)
        if wanted.cores_per_node > len(cores):
            kind = "physical cores" if wanted.is_physical else "cores"
            message = f"NUMA node {node} does not have {wanted.cores_per_node} {kind}"
            raise TopologyError(f"{message}; this process can use {len(cores)}")
        chosen += cores[: wanted.cores_per_node or None]
    return _within_shares(tuple(chosen), machine) if wanted == NumaCores() else tuple(chosen)


def _one_thread_each(cores: Iterable[Core]) -> list[Core]:
    """Keep one hardware thread of every physical core."""
    first: dict[int, Core] = {}
    for core in cores:
        first.setdefault(core.id if core.first_sibling is None else core.first_sibling, core)
    return list(first.values())


def _numbers(cores: Iterable[Core]) -> str:
    return "cores " + ", ".join(str(core.id) for core in cores)
