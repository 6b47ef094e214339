"""All commands; importing this package fills the table of the registry."""

from __future__ import annotations

from iggy_protocol.commands import (
    consumers,
    deferred,
    messages,
    metadata_changes,
    polled,
    routes,
    sessions,
    streams,
    system,
    topics,
    users,
)

__all__ = [
    "consumers",
    "deferred",
    "messages",
    "metadata_changes",
    "polled",
    "routes",
    "sessions",
    "streams",
    "system",
    "topics",
    "users",
]
