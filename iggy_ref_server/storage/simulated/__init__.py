"""The storage engine for tests: files in memory, with planned faults, kills and power losses."""

from __future__ import annotations
