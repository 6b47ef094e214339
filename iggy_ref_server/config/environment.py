"""Keys of the configuration in environment variables.

The variable of every key starts with ``IGGY_``; an empty value counts as unset. An unknown variable
with this prefix is reported with similar names, as Apache Iggy does.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from iggy_ref_server.config.keys import ENVIRONMENT_PREFIX, Path, environment_names, look_alikes
from iggy_ref_server.config.layers import Layer, Node, Setting, Tree

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_environment", "unknown_variables"]

# Variables of this server, of clients and of tools that are not keys of the configuration.
_OTHER_NAMES: Final = frozenset(
    {
        "IGGY_CI_BUILD",
        "IGGY_CONFIG_PATH",
        "IGGY_DISPLAY_CONFIG",
        "IGGY_ENV_PATH",
        "IGGY_HOME",
        "IGGY_NO_EXTENSIONS",
        "IGGY_PASSWORD",
        "IGGY_ROOT_PASSWORD",
        "IGGY_ROOT_USERNAME",
        "IGGY_RUST_SERVER",
        "IGGY_USERNAME",
    }
)
_OTHER_PREFIXES: Final = ("IGGY_BENCH_", "IGGY_CONNECTORS_", "IGGY_MCP_", "IGGY_TEST_")


def read_environment(environment: Mapping[str, str]) -> Tree:
    """Read every key that the environment sets.

    Returns:
        The layer; an array with any element set replaces the whole array of the layer below.
    """
    tree: Tree = {}
    for name, (path, _) in environment_names().items():
        text = environment.get(name, "")
        if text:
            _insert(tree, path, Setting(text, Layer.ENVIRONMENT, name))
    return tree


def _insert(tree: Tree, path: Path, setting: Setting) -> None:
    """Set a value in a tree; elements of an array that are not set become empty sections."""
    node: Tree = tree
    for part, following in itertools.pairwise(path):
        if isinstance(part, int):
            continue
        if isinstance(following, int):
            array = node.setdefault(part, [])
            assert isinstance(array, list)
            array.extend({} for _ in range(following + 1 - len(array)))
            below: Node = array[following]
        else:
            below = node.setdefault(part, {})
        assert isinstance(below, dict)
        node = below
    node[str(path[-1])] = setting


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for every unknown ``IGGY_`` variable, with up to three similar names."""
    known = environment_names()
    warnings = []
    for name in sorted(environment):
        is_foreign = name in _OTHER_NAMES or name.startswith(_OTHER_PREFIXES)
        if not name.startswith(ENVIRONMENT_PREFIX) or name in known or is_foreign:
            continue
        similar = look_alikes(name, known)
        advice = f"; similar: {', '.join(similar)}" if similar else ""
        warnings.append(f"the environment variable {name} is unknown and ignored{advice}")
    return warnings
