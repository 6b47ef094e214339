"""What is wrong with a configuration: every problem at once, each with the key and what to do.

Owns the exception. Knows no rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import record

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ConfigError", "Problem"]


@record
class Problem:
    """One thing that is wrong.

    Attributes:
        path: the key, such as ``system.segment.size``.
        message: a sentence that goes on after the key.
        origin: the file or the variable that said so; empty for a default.
    """

    path: str
    message: str
    origin: str = ""

    def __str__(self) -> str:
        origin = f" (from {self.origin})" if self.origin else ""
        return f"{self.path} {self.message}{origin}"


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        problems: all of them, in the order of the file.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        lines = "".join(f"\n  {problem}" for problem in problems)
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"The configuration has {count}:{lines}")
        self.problems = tuple(problems)
