"""The syntax of ``system.sharding.cpu_allocation``: which CPU cores the shards get.

    all                                 every core that the process may use
    4                                   the first four of them
    5..8                                cores 5, 6 and 7
    numa:auto                           one shard for each physical core of every NUMA node
    numa:nodes=0,1;cores=4;no_ht=true   four physical cores of each of these nodes

``str`` of a parsed value gives the text again. The cores of the machine are not read here.
"""

from __future__ import annotations

from typing import TypeAlias

from iggy_protocol import record

__all__ = [
    "AllCores",
    "CoreCount",
    "CoreRange",
    "CpuAllocation",
    "NumaCores",
    "parse_cpu_allocation",
]

FORMS = "all, a number, A..B, numa:auto or numa:nodes=0,1;cores=4;no_ht=true"


@record
class AllCores:
    """Every core that the process may use."""

    def __str__(self) -> str:
        return "all"


@record
class CoreCount:
    """The first so many cores."""

    count: int

    def __str__(self) -> str:
        return str(self.count)


@record
class CoreRange:
    """The cores from ``first`` up to, but without, ``end``."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.first}..{self.end}"


@record
class NumaCores:
    """Cores by NUMA node.

    Attributes:
        nodes: which nodes; none at all means every node.
        cores_per_node: how many cores of each; 0 means all.
        is_physical: whether only one thread of each physical core is taken.
    """

    nodes: tuple[int, ...] = ()
    cores_per_node: int = 0
    is_physical: bool = True

    def __str__(self) -> str:
        if self == NumaCores():
            return "numa:auto"
        nodes = f"nodes={','.join(map(str, self.nodes))};" if self.nodes else ""
        return f"numa:{nodes}cores={self.cores_per_node};no_ht={str(self.is_physical).lower()}"


CpuAllocation: TypeAlias = AllCores | CoreCount | CoreRange | NumaCores


def parse_cpu_allocation(text: str) -> CpuAllocation:
    """Parse a CPU allocation.

    Raises:
        ValueError: the text is malformed; the message names the valid forms.
    """
    stripped = text.strip()
    if stripped == "all":
        return AllCores()
    if stripped.startswith("numa:"):
        return _parse_numa(stripped.removeprefix("numa:"), text)
    if ".." in stripped:
        first, _, end = stripped.partition("..")
        cores = CoreRange(_number(first, text), _number(end, text))
        if cores.first >= cores.end:
            raise ValueError(f"{text!r} is an empty range; the first number must be the smaller")
        return cores
    count = _number(stripped, text)
    if count == 0:
        raise ValueError("must be at least 1: a server needs a shard")
    return CoreCount(count)


def _parse_numa(parameters: str, text: str) -> NumaCores:
    if parameters == "auto":
        return NumaCores()
    given: dict[str, str] = {}
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name not in {"nodes", "cores", "no_ht"} or name in given:
            raise ValueError(
                f"{text!r} has an unknown or repeated part {parameter!r}; write {FORMS}"
            )
        given[name] = value
    nodes = (
        tuple(_number(node, text) for node in given["nodes"].split(",")) if "nodes" in given else ()
    )
    if len(set(nodes)) < len(nodes):
        raise ValueError(f"{text!r} names a node twice")
    is_physical = given.get("no_ht", "true")
    if is_physical not in {"true", "false"}:
        raise ValueError(f"{text!r}: no_ht must be true or false")
    return NumaCores(nodes, _number(given.get("cores", "0"), text), is_physical == "true")


def _number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 6:
        raise ValueError(f"{text!r} is not a CPU allocation; write {FORMS}")
    return int(digits)
