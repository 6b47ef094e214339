"""The handlers of all commands: one module per family, registered in one table."""

from __future__ import annotations

from iggy_ref_server.dispatch.handlers import groups, messages, streams, system, users
from iggy_ref_server.dispatch.table import HANDLERS, Handler, Placement

__all__ = [
    "HANDLERS",
    "Handler",
    "Placement",
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
