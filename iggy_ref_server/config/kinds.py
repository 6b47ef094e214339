"""The kinds of values that a key can have, each reading and writing its own.

A kind turns what a TOML file or an environment variable says into the value that the server works
with, and back into TOML. It raises ``ValueError`` with a sentence that ends well after a key's
name. Owns the conversions. Knows no keys and no rule that spans several of them.

The value of an environment variable has no type, so it is guessed as upstream guesses it:
``[a, b]`` is an array, then come booleans, numbers and texts. A key that holds text is not guessed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from iggy_ref_server.config.cpu_allocation import parse_cpu_allocation
from iggy_ref_server.config.units import (
    format_duration,
    format_expiry,
    format_size,
    format_topic_size,
    parse_duration,
    parse_expiry,
    parse_size,
    parse_topic_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "Choice",
    "CoresKind",
    "Kind",
    "Measure",
    "NumberKind",
    "SecretKind",
    "SwitchKind",
    "TextKind",
    "TextsKind",
    "TomlValue",
    "guess_value",
]

TomlValue: TypeAlias = "bool | int | float | str | list[TomlValue]"

U64_MAX: Final = 2**64 - 1
AUTO: Final = "auto"
_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Kind(Protocol):
    """How the values of a key are read and written."""

    def read(self, raw: object) -> object:
        """Read what a TOML file says; raise ValueError with a sentence about it."""

    def read_text(self, text: str) -> object:
        """Read what an environment variable says; raise ValueError likewise."""

    def write(self, value: object) -> TomlValue:
        """Give the TOML value that reads back to the same."""


def guess_value(text: str) -> TomlValue:
    """Give the value of an environment variable a type, as upstream does."""
    if text.startswith("[") and text.endswith("]"):
        return [guess_value(element) for element in split_array(text)]
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def split_array(text: str) -> list[str]:
    """Split ``[a, "b, c"]`` into its elements; quotes protect commas."""
    elements = re.findall(r'((?:[^",]|"[^"]*"?)+)(?:,|$)', text[1:-1])
    return [element.strip().strip('"') for element in elements]


def _is_storable(text: str) -> bool:
    """Tell whether UTF-8 can hold a text; what the environment could not decode it cannot."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


class SwitchKind:
    """On or off."""

    def read(self, raw: object) -> bool:
        if not isinstance(raw, bool):
            raise ValueError(f"is true or false, not {raw!r}")
        return raw

    def read_text(self, text: str) -> bool:
        return self.read(guess_value(text))

    def write(self, value: object) -> bool:
        assert isinstance(value, bool)
        return value


class NumberKind:
    """A whole number between two bounds."""

    def __init__(self, least: int = 0, most: int = U64_MAX) -> None:
        self._least = least
        self._most = most

    def read(self, raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise ValueError(f"is a whole number, not {raw!r}")
        if not self._least <= raw <= self._most:
            raise ValueError(f"is a number from {self._least} to {self._most}, not {raw}")
        return raw

    def read_text(self, text: str) -> int:
        return self.read(guess_value(text))

    def write(self, value: object) -> int:
        assert isinstance(value, int)
        return value


class TextKind:
    """Any text, taken as it is."""

    def read(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError(f"is a text in quotes, not {raw!r}")
        if not _is_storable(raw):
            raise ValueError(f"holds characters that no file can store: {raw!r}")
        return raw

    def read_text(self, text: str) -> str:
        return self.read(text)

    def write(self, value: object) -> str:
        assert isinstance(value, str)
        return value


class SecretKind(TextKind):
    """A text that is never shown."""

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not _is_storable(raw):
            raise ValueError("is a text in quotes, without characters that no file can store")
        return raw


class TextsKind:
    """Several texts."""

    def read(self, raw: object) -> tuple[str, ...]:
        if not isinstance(raw, list):
            raise ValueError(f'is a list of texts such as ["a", "b"], not {raw!r}')
        return tuple(TextKind().read(element) for element in raw)

    def read_text(self, text: str) -> tuple[str, ...]:
        is_array = text.startswith("[") and text.endswith("]")
        return self.read(split_array(text) if is_array else text)

    def write(self, value: object) -> list[TomlValue]:
        assert isinstance(value, tuple)
        return list(value)


class Measure:
    """A number that people write with a unit, such as a duration or a size.

    Args:
        parse: reads the text.
        format_value: writes it.
        is_bare_allowed: whether a number without a unit is taken, counting the smallest unit.
    """

    def __init__(
        self,
        parse: Callable[[str], int],
        format_value: Callable[[int], str],
        *,
        is_bare_allowed: bool,
    ) -> None:
        self._parse = parse
        self._format = format_value
        self._is_bare_allowed = is_bare_allowed

    def read(self, raw: object) -> int:
        if isinstance(raw, str):
            return self._parse(raw)
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise ValueError(f"is a text with a unit, not {raw!r}")
        if raw and not self._is_bare_allowed:
            raise ValueError(f'needs a unit, such as "{raw} s"')
        return self._parse(str(raw))

    def read_text(self, text: str) -> int:
        return self._parse(text)

    def write(self, value: object) -> str:
        assert isinstance(value, int)
        return self._format(value)

    @classmethod
    def duration(cls) -> Measure:
        """Make the kind of durations: microseconds, 0 for none."""
        return cls(parse_duration, format_duration, is_bare_allowed=False)

    @classmethod
    def size(cls) -> Measure:
        """Make the kind of sizes: bytes, 0 for no bound."""
        return cls(parse_size, format_size, is_bare_allowed=True)

    @classmethod
    def budget(cls) -> Measure:
        """Make the kind of sizes that the machine decides on: bytes, 0 for ``auto``."""
        return cls(
            lambda text: 0 if text.strip().lower() == AUTO else parse_size(text),
            lambda size_bytes: format_size(size_bytes) if size_bytes else AUTO,
            is_bare_allowed=True,
        )

    @classmethod
    def expiry(cls) -> Measure:
        """Make the kind of expiries: microseconds as on the wire."""
        return cls(parse_expiry, format_expiry, is_bare_allowed=False)

    @classmethod
    def topic_size(cls) -> Measure:
        """Make the kind of topic sizes: bytes as on the wire."""
        return cls(parse_topic_size, format_topic_size, is_bare_allowed=True)


class Choice:
    """One of a few words, in any case.

    Args:
        words: the words.
        aliases: other spellings, each with its word.
    """

    def __init__(self, *words: str, aliases: Mapping[str, str] | None = None) -> None:
        self._words = words
        self._aliases = dict(aliases or {})

    def read(self, raw: object) -> str:
        word = str(raw).lower()
        word = self._aliases.get(word, word)
        if not isinstance(raw, str | bool) or word not in self._words:
            raise ValueError(f"is one of {', '.join(self._words)}, not {raw!r}")
        return word

    def read_text(self, text: str) -> str:
        return self.read(text)

    def write(self, value: object) -> str:
        assert isinstance(value, str)
        return value


class CoresKind:
    """Which cores the shards get; checked here, applied when the machine is known."""

    def read(self, raw: object) -> str:
        if isinstance(raw, bool) or not isinstance(raw, str | int):
            raise ValueError(f'is a number or a text such as "all", not {raw!r}')
        return str(parse_cpu_allocation(str(raw)))

    def read_text(self, text: str) -> str:
        return self.read(text)

    def write(self, value: object) -> str | int:
        assert isinstance(value, str)
        return int(value) if value.isdigit() else value
