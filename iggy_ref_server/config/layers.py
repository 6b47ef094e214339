"""Layers of settings: merging them, and building the configuration.

A layer is a tree like the TOML file, in which each value keeps its origin. Sections of two layers
are merged key by key; any other value of the higher layer replaces the lower one. Building converts
the merged tree to ``ServerConfig`` and collects every invalid value.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from iggy_protocol import record
from iggy_ref_server.config.keys import (
    Branch,
    Leaf,
    Path,
    branches_of,
    join_path,
    known_paths,
    look_alikes,
)
from iggy_ref_server.config.problems import Problem
from iggy_ref_server.config.section import Section

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Layer", "Setting", "Tree", "build", "find_setting", "merge", "plant"]


class Layer(IntEnum):
    """The source of a setting; a higher one overrides a lower one."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2


@record
class Setting:
    """A value before its conversion.

    Attributes:
        raw: a TOML value, or the text of an environment variable.
        origin: the file or the variable, for error texts.
    """

    raw: object
    layer: Layer
    origin: str = ""


Tree: TypeAlias = "dict[str, Node]"
Node: TypeAlias = "Setting | Tree | list[Node]"

SectionT = TypeVar("SectionT", bound=Section)


def plant(raw: Mapping[str, object], layer: Layer, origin: str = "") -> Tree:
    """Convert the result of a TOML parser to a tree of settings."""
    return {key: _plant(value, layer, origin) for key, value in raw.items()}


def _plant(raw: object, layer: Layer, origin: str) -> Node:
    if isinstance(raw, dict):
        return plant(raw, layer, origin)
    if isinstance(raw, list) and any(isinstance(element, dict) for element in raw):
        return [_plant(element, layer, origin) for element in raw]
    return Setting(raw, layer, origin)


def merge(lower: Tree, upper: Tree) -> Tree:
    """Merge two layers."""
    merged = dict(lower)
    for key, node in upper.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(node, dict):
            node = merge(below, node)
        merged[key] = node
    return merged


def find_setting(tree: Tree, path: str) -> Setting | None:
    """Find the setting of a key; of an array, the first setting of its first element."""
    node: Node = tree
    for part in path.partition("[")[0].split("."):
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return _first_setting(node)


def _first_setting(node: Node) -> Setting | None:
    while isinstance(node, list | dict) and node:
        node = node[0] if isinstance(node, list) else next(iter(node.values()))
    return node if isinstance(node, Setting) else None


def build(
    section: type[SectionT], tree: Tree, problems: list[Problem], path: Path = ()
) -> SectionT | None:
    """Build a section from a tree.

    Args:
        problems: receives every invalid or unknown key.
        path: the path of the section.

    Returns:
        The section, or None if there was a problem in it.
    """
    count = len(problems)
    branches = branches_of(section)
    problems.extend(
        _unknown(section, (*path, key), node) for key, node in tree.items() if key not in branches
    )
    values = {
        branch.attribute: _build_branch(branch, tree.get(branch.key), problems, (*path, branch.key))
        for branch in branches.values()
    }
    return section(**values) if len(problems) == count else None


def _build_branch(branch: Branch, node: Node | None, problems: list[Problem], path: Path) -> object:
    if node is None:
        if branch.is_required:
            problems.append(Problem(join_path(path), "is missing"))
        return branch.default
    if isinstance(branch.below, Leaf):
        return _read(branch.below, node, problems, path)
    if branch.is_array:
        return _build_array(branch.below, node, problems, path)
    if isinstance(node, dict):
        return build(branch.below, node, problems, path)
    message = f"must be a section: write [{join_path(path)}] and its keys below"
    problems.append(Problem(join_path(path), message, _origin(node)))
    return None


def _build_array(
    section: type[Section], node: Node, problems: list[Problem], path: Path
) -> tuple[object, ...]:
    if isinstance(node, Setting) and node.raw == []:
        return ()
    tables = [table for table in node if isinstance(table, dict)] if isinstance(node, list) else []
    if not isinstance(node, list) or len(tables) < len(node):
        message = f"must be a list of sections: write [[{join_path(path)}]] for each"
        problems.append(Problem(join_path(path), message, _origin(node)))
    return tuple(
        build(section, table, problems, (*path, index)) for index, table in enumerate(tables)
    )


def _read(leaf: Leaf, node: Node, problems: list[Problem], path: Path) -> object:
    if not isinstance(node, Setting):
        problems.append(Problem(join_path(path), "must be a value, not a section", _origin(node)))
        return None
    try:
        if node.layer is Layer.ENVIRONMENT:
            assert isinstance(node.raw, str)
            return leaf.kind.read_text(node.raw)
        return leaf.kind.read(node.raw)
    except ValueError as refusal:
        message = str(refusal)
        if message.startswith(("'", '"')):
            message = f"= {message}"
        problems.append(Problem(join_path(path), message, node.origin))
        return None


def _unknown(section: type[Section], path: Path, node: Node) -> Problem:
    """Suggest a key: the only one of that name, a similar sibling, or any similar key."""
    here, key = join_path(path), str(path[-1])
    neighbours = [join_path((*path[:-1], neighbour)) for neighbour in branches_of(section)]
    namesakes = sorted(known for known in known_paths() if known.endswith(f".{key}"))
    nearest = (
        (namesakes if len(namesakes) == 1 else [])
        or look_alikes(here, neighbours, count_max=1)
        or namesakes
        or look_alikes(here, known_paths(), count_max=1)
    )
    advice = f"did you mean {nearest[0]}?" if nearest else "iggy-server defaults lists all keys"
    return Problem(here, f"is not a key of the configuration; {advice}", _origin(node))


def _origin(node: Node) -> str:
    setting = _first_setting(node)
    return setting.origin if setting else ""
