"""The accepted differences between the recordings and this server, from ``deviations.toml``."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache

from tests.server.replay.recording import GOLDEN


@dataclass(frozen=True, slots=True)
class Deviation:
    """Lines of one recording that differ for one reason.

    Attributes:
        file: the recording, as seen from ``tests/golden``.
        lines: which lines differ.
        weakness: the weakness of the original that is bettered, by its number.
        reason: what this server does instead.
        test: which test proves it, as ``file::function``.
    """

    file: str
    lines: tuple[int, ...]
    weakness: str
    reason: str
    test: str


@cache
def deviations() -> tuple[Deviation, ...]:
    """Read the list."""
    table = tomllib.loads((GOLDEN / "deviations.toml").read_text())
    return tuple(
        Deviation(
            entry["file"],
            tuple(entry["lines"]),
            entry["weakness"],
            entry["reason"],
            entry["test"],
        )
        for entry in table["deviation"]
    )


def listed_lines(file: str) -> frozenset[int]:
    """Return the lines of a recording that are known to differ."""
    found = [deviation.lines for deviation in deviations() if deviation.file == file]
    return frozenset(line for lines in found for line in lines)


def verdict(differing: dict[int, str], file: str) -> str:
    """Compare what differs with what is listed; an empty text if that is the same."""
    listed = listed_lines(file)
    new = [what for line, what in sorted(differing.items()) if line not in listed]
    gone = sorted(listed - differing.keys())
    if gone:
        new.append(f"listed in deviations.toml, but equal to the recording: {gone}")
    return "\n\n".join(new)
