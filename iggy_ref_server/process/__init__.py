"""The processes of a server: the supervisor, and one process per shard."""

from __future__ import annotations
