"""A TOML file with the lines of its tables and keys, so that each error can name one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spark_jobs.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KeyPath: TypeAlias = tuple[str | int, ...]
"""Where a value is: names of tables and keys, and positions in arrays of tables."""

FILE_BYTES_MAX: Final = 256 << 10
"""A longer file is no pipeline; a mistaken path should not fill the memory."""


class PipelineFileError(OptionError):
    """A pipeline file is wrong; each line of the message names the file, a line and a mistake."""


@dataclass(frozen=True)
class PipelineDocument:
    """What a file says, and where.

    Attributes:
        file: the name of the file, as errors show it.
        values: its content.
        lines: the line of each table and key, counted from 1.
        mistakes: what was found to be wrong while it was read.
    """

    file: str
    values: Mapping[str, Any]
    lines: Mapping[KeyPath, int]
    mistakes: list[str] = field(default_factory=list)

    def place(self, path: KeyPath) -> str:
        """Return ``file:line`` of a value, or of the nearest table around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.file}:{self.lines.get(path, 1)}"

    def add_mistake(self, path: KeyPath, text: str) -> None:
        """Remember a mistake; reading goes on, so that all of them are reported."""
        mistake = f"{self.place(path)}: {text}"
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    def check(self) -> None:
        """Raise what was found.

        Raises:
            PipelineFileError: something was wrong.
        """
        if self.mistakes:
            raise PipelineFileError("\n".join(sorted(self.mistakes, key=_line_of)))


def _line_of(mistake: str) -> int:
    return int(mistake.split(": ", 1)[0].rpartition(":")[2])


def read_document(path: Path) -> PipelineDocument:
    """Read a file.

    Raises:
        PipelineFileError: it cannot be read, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise PipelineFileError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise PipelineFileError(f"{path}: is larger than {FILE_BYTES_MAX:,} bytes; is it TOML?")
    try:
        return parse_document(str(path), content.decode())
    except UnicodeDecodeError:
        raise PipelineFileError(f"{path}: is not UTF-8; save it as such") from None


def parse_document(file: str, text: str) -> PipelineDocument:
    """Parse the text of a file.

    Raises:
        PipelineFileError: it is not TOML.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, at = str(error).partition(" (at line ")
        line = at.partition(",")[0]
        place = f"{file}:{line}" if line.isdigit() else f"{file}:{len(text.splitlines()) or 1}"
        raise PipelineFileError(f"{place}: this is not TOML: {reason}") from None
    return PipelineDocument(file, values, dict(_lines(text.splitlines())))


def _lines(lines: Sequence[str]) -> Iterator[tuple[KeyPath, int]]:
    """Find the line of each key and table; the lines are known to be TOML."""
    table: KeyPath = ()
    counts: dict[KeyPath, int] = {}
    at = 0
    while at < len(lines):
        statement, length = _statement(lines, at)
        names = tuple(_names(statement))
        if lines[at].lstrip().startswith("["):
            is_array = lines[at].lstrip().startswith("[[")
            table = _resolve(names, counts, is_array=is_array)
            yield table, at + 1
        elif names:
            for depth in range(1, len(names) + 1):
                yield table + names[:depth], at + 1
        at += length


def _statement(lines: Sequence[str], first: int) -> tuple[Mapping[str, Any], int]:
    """Parse the shortest run of lines that is TOML by itself: one key, however long its value."""
    for end in range(first + 1, len(lines) + 1):
        try:
            return tomllib.loads("\n".join(lines[first:end])), end - first
        except tomllib.TOMLDecodeError:
            continue
    return {}, len(lines) - first


def _names(statement: Mapping[str, Any]) -> Iterator[str]:
    """Walk down a header or a dotted key; what an inline table holds stays on its line."""
    value: Any = statement
    while isinstance(value, dict) and value:
        name = next(iter(value))
        yield name
        value = value[name] if len(value) == 1 else None
        if isinstance(value, list):
            return


def _resolve(names: Sequence[str], counts: dict[KeyPath, int], *, is_array: bool) -> KeyPath:
    """Turn the names of a header into a path, with positions where a name is an array."""
    path: KeyPath = ()
    for depth, name in enumerate(names, start=1):
        path = (*path, name)
        if is_array and depth == len(names):
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path
