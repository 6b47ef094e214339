"""Sessions: one connection to one server for each transport, and the session that reconnects."""

from __future__ import annotations
