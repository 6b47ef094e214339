"""Deprecated keys: ignored with a warning, where unknown keys are errors.

Apache Iggy ignores unknown keys, so old files still have sections without a meaning. These names
are known, so they cannot be typing errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iggy_ref_server.config.layers import Tree

__all__ = ["FORMER", "drop_former"]

FORMER: Final = frozenset(
    {
        "http.jwt.enabled",
        "http.jwt.refresh_token_expiry",
        "system.consumer_groups",
        "system.database",
        "system.message_bus",
        "system.partitions",
        "system.personal_access_tokens",
        "system.segments",
        "system.streams",
        "system.topics",
        "system.users",
    }
)
"""Paths of sections and keys."""


def drop_former(tree: Tree, warnings: list[str], prefix: str = "") -> Tree:
    """Return the settings of a file without deprecated keys.

    Args:
        warnings: receives a line for each dropped key.
        prefix: the path of the tree in the file.
    """
    kept: Tree = {}
    for key, node in tree.items():
        path = f"{prefix}{key}"
        if path in FORMER:
            warnings.append(f"{path} is deprecated and has no effect; remove it")
        elif isinstance(node, dict):
            kept[key] = drop_former(node, warnings, f"{path}.")
        else:
            kept[key] = node
    return kept
