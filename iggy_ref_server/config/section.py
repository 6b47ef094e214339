"""The base class of sections, and the types of their fields.

A section is a frozen msgspec struct, so it can be sent to another process as bytes. Its fields are
the keys of the TOML section; a unit at the end of a field's name (``_us``, ``_bytes``) is dropped
in TOML, where the value itself carries one:

    interval_us: Duration        interval = "30 s"
    size_bytes: Size             size = "1 GiB"
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Struct
from msgspec.structs import fields

from iggy_ref_server.config.kinds import CoresKind, Measure, NumberKind, SecretKind

__all__ = [
    "U16",
    "U32",
    "U64",
    "Budget",
    "Cores",
    "Duration",
    "Expiry",
    "PositiveU32",
    "Secret",
    "Section",
    "Size",
    "TopicSize",
]

Duration: TypeAlias = Annotated[int, Measure.duration()]
"""Microseconds; 0 stands for none."""

Size: TypeAlias = Annotated[int, Measure.size()]
"""Bytes; 0 stands for no limit where a key allows that."""

Budget: TypeAlias = Annotated[int, Measure.budget()]
"""Bytes; 0 derives the value from the machine."""

Expiry: TypeAlias = Annotated[int, Measure.expiry()]
"""Microseconds as on the wire: 2^64 - 1 is never, 0 is the server's default."""

TopicSize: TypeAlias = Annotated[int, Measure.topic_size()]
"""Bytes as on the wire: 2^64 - 1 is unlimited, 0 is the server's default."""

Cores: TypeAlias = Annotated[str, CoresKind()]
"""A string that ``parse_cpu_allocation`` accepts."""

Secret: TypeAlias = Annotated[str, SecretKind()]
"""A string that is never displayed."""

U16: TypeAlias = Annotated[int, NumberKind(0, 2**16 - 1)]
U32: TypeAlias = Annotated[int, NumberKind(0, 2**32 - 1)]
U64: TypeAlias = Annotated[int, NumberKind(0, 2**64 - 1)]
PositiveU32: TypeAlias = Annotated[int, NumberKind(1, 2**32 - 1)]


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
