"""The tree of settings: keys from the schema, layers from the sources, and the sections built.

    system.segment.size                    IGGY_SYSTEM_SEGMENT_SIZE
    cluster.node.others[0].ports.tcp       IGGY_CLUSTER_NODE_OTHERS_0_PORTS_TCP

The name of a variable cannot be split at its underscores, because keys have underscores too. So the
names are generated from the schema.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
)

from msgspec import NODEFAULT
from msgspec.structs import fields

from iggy_protocol import record
from iggy_ref_server.config.kinds import (
    Choice,
    Kind,
    SecretKind,
    SwitchKind,
    TextKind,
    TextsKind,
)
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.config.section import Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "ENVIRONMENT_PREFIX",
    "Branch",
    "Leaf",
    "Path",
    "branches_of",
    "environment_names",
    "join_path",
    "known_paths",
    "leaves",
    "look_alikes",
]

Path: TypeAlias = "tuple[str | int, ...]"

ENVIRONMENT_PREFIX: Final = "IGGY_"
INDEXES: Final = range(10)
"""The elements of an array that an environment variable can set."""

_PLAIN_KINDS: Final[dict[Any, Kind]] = {
    bool: SwitchKind(),
    str: TextKind(),
    tuple[str, ...]: TextsKind(),
}


@record
class Leaf:
    """A field that holds a value."""

    kind: Kind

    @property
    def is_secret(self) -> bool:
        """Whether the value must not be displayed."""
        return isinstance(self.kind, SecretKind)


@record
class Branch:
    """A field of a section.

    Attributes:
        attribute: the name of the field in the struct.
        key: its name in TOML.
        below: a value, a section, or the section of a list.
        is_array: whether it is a list of sections.
        default: the default of the struct, or ``NODEFAULT`` where a value is required.
    """

    attribute: str
    key: str
    below: Leaf | type[Section]
    is_array: bool
    default: object

    @property
    def is_required(self) -> bool:
        """Whether a value is required."""
        return self.default is NODEFAULT


@cache
def branches_of(section: type[Section]) -> dict[str, Branch]:
    """Return the fields of a section, by TOML key."""
    branches = {}
    for info in fields(section):
        below, is_array = _below(info.type)
        branches[info.encode_name] = Branch(
            info.name, info.encode_name, below, is_array, info.default
        )
    return branches


def _below(annotation: Any) -> tuple[Leaf | type[Section], bool]:
    """Return the content that an annotation declares, and whether it is a list of sections."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Leaf(arguments[1]), False
    if origin in {Union, UnionType}:
        (present,) = (argument for argument in arguments if argument is not NoneType)
        return _below(present)
    if origin is Literal:
        return Leaf(Choice(*arguments)), False
    if annotation in _PLAIN_KINDS:
        return Leaf(_PLAIN_KINDS[annotation]), False
    element = arguments[0] if origin is tuple else annotation
    assert issubclass(element, Section), annotation
    return element, origin is tuple


def leaves(section: type[Section] = ServerConfig, path: Path = ()) -> Iterator[tuple[Path, Leaf]]:
    """Yield every key with a value; those of arrays once for each element that can be set."""
    for branch in branches_of(section).values():
        here = (*path, branch.key)
        if isinstance(branch.below, Leaf):
            yield here, branch.below
        elif branch.is_array:
            for index in INDEXES:
                yield from leaves(branch.below, (*here, index))
        else:
            yield from leaves(branch.below, here)


@cache
def known_paths() -> frozenset[str]:
    """Return the paths of all sections and keys; those of arrays with index 0."""
    paths = [path for path, _ in leaves() if not any(part in INDEXES[1:] for part in path)]
    return frozenset(
        join_path(path[:length]) for path in paths for length in range(1, len(path) + 1)
    )


@cache
def environment_names() -> dict[str, tuple[Path, Leaf]]:
    """Return every environment variable with the key that it sets."""
    return {
        ENVIRONMENT_PREFIX + "_".join(map(str, path)).upper(): (path, leaf)
        for path, leaf in leaves()
    }


def join_path(path: Path) -> str:
    """Write a path with dots and indexes."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def look_alikes(name: str, known: Iterable[str], *, count_max: int = 3) -> list[str]:
    """Return the most similar names, the nearest first."""
    return get_close_matches(name, list(known), n=count_max, cutoff=0.6)
