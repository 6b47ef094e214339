"""The handlers of all commands: one module per family, registered in one table."""

from __future__ import annotations

from iggy_ref_server.handlers import (
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
from iggy_ref_server.handlers.table import HANDLERS, Handler, Place

__all__ = [
    "HANDLERS",
    "Handler",
    "Place",
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
