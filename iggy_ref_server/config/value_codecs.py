"""Codecs for the values of keys: from TOML or an environment variable, and back to TOML.

A codec raises ``ValueError`` with a text that continues the name of the key.

The value of an environment variable has no type, so it is inferred as in Apache Iggy: ``[a, b]`` is
an array, then booleans, numbers and strings are tried. Keys with string values are not inferred.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import fields

from iggy_protocol import parse_duration
from iggy_ref_server.config.syntax import (
    format_duration,
    format_expiry,
    format_size,
    format_topic_size,
    parse_cpu_allocation,
    parse_expiry,
    parse_size,
    parse_topic_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


TomlValue: TypeAlias = "bool | int | float | str | list[TomlValue]"

U64_MAX: Final = 2**64 - 1
AUTO: Final = "auto"
_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class ValueCodec(Protocol):
    """Reads and writes the values of a key."""

    def read(self, raw: object) -> object:
        """Convert a TOML value; raise ValueError if it does not fit."""

    def read_text(self, text: str) -> object:
        """Convert the text of an environment variable; raise ValueError likewise."""

    def write(self, value: object) -> TomlValue:
        """Return the TOML value that ``read`` converts back."""


def infer_value(text: str) -> TomlValue:
    """Infer the type of an environment variable, as Apache Iggy does."""
    if text.startswith("[") and text.endswith("]"):
        return [infer_value(element) for element in split_array(text)]
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def split_array(text: str) -> list[str]:
    """Split ``[a, "b, c"]`` into its elements; quotes protect commas."""
    elements = re.findall(r'((?:[^",]|"[^"]*"?)+)(?:,|$)', text[1:-1])
    return [element.strip().strip('"') for element in elements]


def _is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode a text; undecodable bytes of the environment cannot."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


class BooleanCodec:
    """A boolean."""

    def read(self, raw: object) -> bool:
        if not isinstance(raw, bool):
            raise ValueError(f"must be true or false, not {raw!r}")
        return raw

    def read_text(self, text: str) -> bool:
        return self.read(infer_value(text))

    def write(self, value: object) -> bool:
        assert isinstance(value, bool)
        return value


class IntegerCodec:
    """An integer between two limits."""

    def __init__(self, least: int = 0, most: int = U64_MAX) -> None:
        self._least = least
        self._most = most

    def read(self, raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int):
            raise ValueError(f"must be an integer, not {raw!r}")
        if not self._least <= raw <= self._most:
            raise ValueError(f"must be from {self._least} to {self._most}, not {raw}")
        return raw

    def read_text(self, text: str) -> int:
        return self.read(infer_value(text))

    def write(self, value: object) -> int:
        assert isinstance(value, int)
        return value


class StringCodec:
    """Any string."""

    def read(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError(f"must be a string in quotes, not {raw!r}")
        if not _is_encodable(raw):
            raise ValueError(f"has characters that UTF-8 cannot encode: {raw!r}")
        return raw

    def read_text(self, text: str) -> str:
        return self.read(text)

    def write(self, value: object) -> str:
        assert isinstance(value, str)
        return value


class SecretCodec(StringCodec):
    """A string that is never displayed."""

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not _is_encodable(raw):
            raise ValueError("must be a string in quotes, with characters that UTF-8 can encode")
        return raw


class StringListCodec:
    """A list of strings."""

    def read(self, raw: object) -> tuple[str, ...]:
        if not isinstance(raw, list):
            raise ValueError(f'must be a list of strings such as ["a", "b"], not {raw!r}')
        return tuple(StringCodec().read(element) for element in raw)

    def read_text(self, text: str) -> tuple[str, ...]:
        is_array = text.startswith("[") and text.endswith("]")
        return self.read(split_array(text) if is_array else text)

    def write(self, value: object) -> list[TomlValue]:
        assert isinstance(value, tuple)
        return list(value)


class UnitCodec:
    """A number with a unit, such as a duration or a size.

    Args:
        is_bare_allowed: whether a number without a unit is valid, in the smallest unit.
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
            raise ValueError(f"must be a string with a unit, not {raw!r}")
        if raw and not self._is_bare_allowed:
            raise ValueError(f'needs a unit, such as "{raw} s"')
        return self._parse(str(raw))

    def read_text(self, text: str) -> int:
        return self._parse(text)

    def write(self, value: object) -> str:
        assert isinstance(value, int)
        return self._format(value)

    @classmethod
    def duration(cls) -> UnitCodec:
        """Return the codec of durations: microseconds, 0 for none."""
        return cls(parse_duration, format_duration, is_bare_allowed=False)

    @classmethod
    def size(cls) -> UnitCodec:
        """Return the codec of sizes: bytes, 0 for no limit."""
        return cls(parse_size, format_size, is_bare_allowed=True)

    @classmethod
    def budget(cls) -> UnitCodec:
        """Return the codec of sizes that may be derived from the machine: bytes, 0 for ``auto``."""
        return cls(
            lambda text: 0 if text.strip().lower() == AUTO else parse_size(text),
            lambda size_bytes: format_size(size_bytes) if size_bytes else AUTO,
            is_bare_allowed=True,
        )

    @classmethod
    def expiry(cls) -> UnitCodec:
        """Return the codec of expiries: microseconds as on the wire."""
        return cls(parse_expiry, format_expiry, is_bare_allowed=False)

    @classmethod
    def topic_size(cls) -> UnitCodec:
        """Return the codec of topic sizes: bytes as on the wire."""
        return cls(parse_topic_size, format_topic_size, is_bare_allowed=True)


class ChoiceCodec:
    """One of a few words, case-insensitive.

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
            raise ValueError(f"must be one of {', '.join(self._words)}, not {raw!r}")
        return word

    def read_text(self, text: str) -> str:
        return self.read(text)

    def write(self, value: object) -> str:
        assert isinstance(value, str)
        return value


class CpuAllocationCodec:
    """The CPU allocation: its syntax is checked here, the cores when the server starts."""

    def read(self, raw: object) -> str:
        if isinstance(raw, bool) or not isinstance(raw, str | int):
            raise ValueError(f'must be a number or a string such as "all", not {raw!r}')
        return str(parse_cpu_allocation(str(raw)))

    def read_text(self, text: str) -> str:
        return self.read(text)

    def write(self, value: object) -> str | int:
        assert isinstance(value, str)
        return int(value) if value.isdigit() else value


# The base class of sections, and the types of their fields.
#
# A section is a frozen msgspec struct, so it can be sent to another process as bytes. Its fields
# are the keys of the TOML section; a unit at the end of a field's name (``_us``, ``_bytes``) is
# dropped in TOML, where the value itself carries one:
#
#     interval_us: Duration        interval = "30 s"
#     size_bytes: Size             size = "1 GiB"


Duration: TypeAlias = Annotated[int, UnitCodec.duration()]
"""Microseconds; 0 stands for none."""

Size: TypeAlias = Annotated[int, UnitCodec.size()]
"""Bytes; 0 stands for no limit where a key allows that."""

Budget: TypeAlias = Annotated[int, UnitCodec.budget()]
"""Bytes; 0 derives the value from the machine."""

Expiry: TypeAlias = Annotated[int, UnitCodec.expiry()]
"""Microseconds as on the wire: 2^64 - 1 is never, 0 is the server's default."""

TopicSize: TypeAlias = Annotated[int, UnitCodec.topic_size()]
"""Bytes as on the wire: 2^64 - 1 is unlimited, 0 is the server's default."""

Cores: TypeAlias = Annotated[str, CpuAllocationCodec()]
"""A string that ``parse_cpu_allocation`` accepts."""

Secret: TypeAlias = Annotated[str, SecretCodec()]
"""A string that is never displayed."""

U16: TypeAlias = Annotated[int, IntegerCodec(0, 2**16 - 1)]
U32: TypeAlias = Annotated[int, IntegerCodec(0, 2**32 - 1)]
U64: TypeAlias = Annotated[int, IntegerCodec(0, 2**64 - 1)]
PositiveU32: TypeAlias = Annotated[int, IntegerCodec(1, 2**32 - 1)]


def toml_key(field: str) -> str:
    """Return the key of a field: its name without the unit."""
    return field.removesuffix("_us").removesuffix("_bytes")


class Section(Struct, frozen=True, kw_only=True, rename=toml_key):
    """A section of the configuration; ``repr`` hides secrets."""

    def __repr__(self) -> str:
        shown = (
            f"{info.name}={'******' if info.type == Secret else repr(getattr(self, info.name))}"
            for info in fields(self)
        )
        return f"{type(self).__name__}({', '.join(shown)})"
