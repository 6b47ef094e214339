"""From a request to its reply: the command table, the dispatcher and the handlers."""

from __future__ import annotations
