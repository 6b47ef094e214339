"""The syntax of ``.env`` files, which hold environment variables.

# a comment
IGGY_TCP_ADDRESS=127.0.0.1:8090
export IGGY_ROOT_PASSWORD='taken as it is, with $ and #'
IGGY_SYSTEM_PATH="${HOME}/data"        # outside single quotes variables are expanded
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["parse_dotenv"]

_LINE: Final = re.compile(
    r"""\s*(?:export\s+)?
    (?P<name>[A-Za-z_][A-Za-z0-9_.]*)\s*=[ \t]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<plain>[^'"\s\#](?:\S|\s(?!\s*\#))*)?)
    \s*(?:(?<=\s)\#.*)?""",
    re.VERBOSE | re.DOTALL,
)
_REFERENCE: Final = re.compile(r"(\\.)|\$(?:\{(\w+)\}|(\w+))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


def parse_dotenv(text: str, environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Parse a ``.env`` file.

    Args:
        text: its content.
        environment: variables that the file may refer to; they override earlier lines of it.

    Returns:
        The variables, and a problem for each line that is malformed.
    """
    variables: dict[str, str] = {}
    complaints = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            complaints.append(f"line {number} is not NAME=VALUE")
            continue
        if match["single"] is not None:
            variables[match["name"]] = match["single"]
        else:
            value = match["double"] or (match["plain"] or "").rstrip()
            variables[match["name"]] = _fill(value, {**variables, **environment})
    return variables, complaints


def _fill(text: str, known: Mapping[str, str]) -> str:
    """Expand variables and backslash escapes."""

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return _ESCAPES.get(match[1][1], match[1][1])
        return known.get(match[2] or match[3], "")

    return _REFERENCE.sub(replace, text)
