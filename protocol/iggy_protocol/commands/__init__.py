"""All commands; importing this package fills the table of the registry."""

from __future__ import annotations

from iggy_protocol.commands import (
    cluster,
    groups,
    messages,
    offsets,
    partitions,
    segments,
    streams,
    system,
    tokens,
    topics,
    users,
)

__all__ = [
    "cluster",
    "groups",
    "messages",
    "offsets",
    "partitions",
    "segments",
    "streams",
    "system",
    "tokens",
    "topics",
    "users",
]
