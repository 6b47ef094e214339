"""Fixtures of all tests of the SDK."""

from __future__ import annotations

from tests.sdk.dialects import every_dialect, later_dialect

__all__ = ["every_dialect", "later_dialect"]
