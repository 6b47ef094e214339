"""Keys that older files still have: passed over with a warning, where others are refused.

Apache Iggy ignores whatever it does not know, so files live on with sections that lost their
meaning long ago. Nobody can have mistyped these.

Owns the list. What the keys of today mean is the schema's affair.
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
"""Sections and keys by their paths."""


def drop_former(tree: Tree, warnings: list[str], prefix: str = "") -> Tree:
    """Return what is left of a file without its former keys.

    Args:
        tree: what the file says.
        warnings: receives a line for each that was dropped.
        prefix: where the tree stands in the file.
    """
    kept: Tree = {}
    for key, node in tree.items():
        path = f"{prefix}{key}"
        if path in FORMER:
            warnings.append(f"{path} is a key of older releases; it has no effect, remove it")
        elif isinstance(node, dict):
            kept[key] = drop_former(node, warnings, f"{path}.")
        else:
            kept[key] = node
    return kept
