"""The problems of a configuration, each with the key and what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import record

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ConfigError", "Problem"]


@record
class Problem:
    """A problem of the configuration.

    Attributes:
        path: the key, such as ``system.segment.size``.
        message: a text that continues the key.
        origin: the file or the variable; empty for a default.
    """

    path: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        origin = f" (from {self.origin})" if self.origin else ""
        return f"{self.path} {self.message}{origin}"


class ConfigError(Exception):
    """The configuration is invalid.

    Attributes:
        problems: all of them, in the order of the file.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        lines = "".join(f"\n  {problem}" for problem in problems)
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"The configuration has {count}:{lines}")
        self.problems = tuple(problems)
