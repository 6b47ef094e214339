"""The tree of settings: keys from the schema, layers from the sources, and the sections built.

    system.segment.size                    IGGY_SYSTEM_SEGMENT_SIZE
    cluster.node.others[0].ports.tcp       IGGY_CLUSTER_NODE_OTHERS_0_PORTS_TCP

The name of a variable cannot be split at its underscores, because keys have underscores too. So the
names are generated from the schema.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from msgspec import NODEFAULT
from msgspec.structs import fields

from iggy_protocol import record
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.config.value_codecs import (
    BooleanCodec,
    ChoiceCodec,
    SecretCodec,
    Section,
    StringCodec,
    StringListCodec,
    ValueCodec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


KeyPath: TypeAlias = "tuple[str | int, ...]"

ENVIRONMENT_PREFIX: Final = "IGGY_"
ARRAY_INDEXES: Final = range(10)
"""The elements of an array that an environment variable can set."""

_PLAIN_CODECS: Final[dict[Any, ValueCodec]] = {
    bool: BooleanCodec(),
    str: StringCodec(),
    tuple[str, ...]: StringListCodec(),
}


@record
class ScalarField:
    """A field that holds a value."""

    codec: ValueCodec

    @property
    def is_secret(self) -> bool:
        """Whether the value must not be displayed."""
        return isinstance(self.codec, SecretCodec)


@record
class SectionField:
    """A field of a section.

    Attributes:
        attribute: the name of the field in the struct.
        key: its name in TOML.
        content: a value, a section, or the section of a list.
        is_array: whether it is a list of sections.
        default: the default of the struct, or ``NODEFAULT`` where a value is required.
    """

    attribute: str
    key: str
    content: ScalarField | type[Section]
    is_array: bool
    default: object

    @property
    def is_required(self) -> bool:
        """Whether a value is required."""
        return self.default is NODEFAULT


@cache
def section_fields(section: type[Section]) -> dict[str, SectionField]:
    """Return the fields of a section, by TOML key."""
    section_keys = {}
    for info in fields(section):
        content, is_array = _field_content(info.type)
        section_keys[info.encode_name] = SectionField(
            info.name, info.encode_name, content, is_array, info.default
        )
    return section_keys


def _field_content(annotation: Any) -> tuple[ScalarField | type[Section], bool]:
    """Return the content that an annotation declares, and whether it is a list of sections."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return ScalarField(arguments[1]), False
    if origin in {Union, UnionType}:
        (present,) = (argument for argument in arguments if argument is not NoneType)
        return _field_content(present)
    if origin is Literal:
        return ScalarField(ChoiceCodec(*arguments)), False
    if annotation in _PLAIN_CODECS:
        return ScalarField(_PLAIN_CODECS[annotation]), False
    element = arguments[0] if origin is tuple else annotation
    assert issubclass(element, Section), annotation
    return element, origin is tuple


def scalar_keys(
    section: type[Section] = ServerConfig, path: KeyPath = ()
) -> Iterator[tuple[KeyPath, ScalarField]]:
    """Yield every key with a value; those of arrays once for each element that can be set."""
    for field in section_fields(section).values():
        here = (*path, field.key)
        if isinstance(field.content, ScalarField):
            yield here, field.content
        elif field.is_array:
            for index in ARRAY_INDEXES:
                yield from scalar_keys(field.content, (*here, index))
        else:
            yield from scalar_keys(field.content, here)


@cache
def known_paths() -> frozenset[str]:
    """Return the paths of all sections and keys; those of arrays with index 0."""
    paths = [
        path for path, _ in scalar_keys() if not any(part in ARRAY_INDEXES[1:] for part in path)
    ]
    return frozenset(
        join_path(path[:length]) for path in paths for length in range(1, len(path) + 1)
    )


@cache
def environment_names() -> dict[str, tuple[KeyPath, ScalarField]]:
    """Return every environment variable with the key that it sets."""
    return {
        ENVIRONMENT_PREFIX + "_".join(map(str, path)).upper(): (path, scalar)
        for path, scalar in scalar_keys()
    }


def join_path(path: KeyPath) -> str:
    """Write a path with dots and indexes."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def similar_names(name: str, known: Iterable[str], *, count_max: int = 3) -> list[str]:
    """Return the most similar names, the nearest first."""
    return get_close_matches(name, list(known), n=count_max, cutoff=0.6)


# The problems of a configuration, each with the key and what to write instead.


@record
class ConfigProblem:
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

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        lines = "".join(f"\n  {problem}" for problem in problems)
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"The configuration has {count}:{lines}")
        self.problems = tuple(problems)


# Layers of settings: merging them, and building the configuration.
#
# A layer is a tree like the TOML file, in which each value keeps its origin. Sections of two layers
# are merged key by key; any other value of the higher layer replaces the lower one. Building
# converts the merged tree to ``ServerConfig`` and collects every invalid value.


class Layer(IntEnum):
    """The source of a setting; a higher one overrides a lower one."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2


@record
class RawSetting:
    """A value before its conversion.

    Attributes:
        raw: a TOML value, or the text of an environment variable.
        origin: the file or the variable, for error texts.
    """

    raw: object
    layer: Layer
    origin: str = ""


SettingTree: TypeAlias = "dict[str, SettingNode]"
SettingNode: TypeAlias = "RawSetting | SettingTree | list[SettingNode]"

SectionT = TypeVar("SectionT", bound=Section)


def tree_from_toml(raw: Mapping[str, object], layer: Layer, origin: str = "") -> SettingTree:
    """Convert the result of a TOML parser to a tree of settings."""
    return {key: _node_from_toml(value, layer, origin) for key, value in raw.items()}


def _node_from_toml(raw: object, layer: Layer, origin: str) -> SettingNode:
    if isinstance(raw, dict):
        return tree_from_toml(raw, layer, origin)
    if isinstance(raw, list) and any(isinstance(element, dict) for element in raw):
        return [_node_from_toml(element, layer, origin) for element in raw]
    return RawSetting(raw, layer, origin)


def merge_trees(lower: SettingTree, upper: SettingTree) -> SettingTree:
    """Merge two layers."""
    merged = dict(lower)
    for key, node in upper.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(node, dict):
            node = merge_trees(below, node)
        merged[key] = node
    return merged


def find_setting(tree: SettingTree, path: str) -> RawSetting | None:
    """Find the setting of a key; of an array, the first setting of its first element."""
    node: SettingNode = tree
    for part in path.partition("[")[0].split("."):
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return _first_setting(node)


def _first_setting(node: SettingNode) -> RawSetting | None:
    while isinstance(node, list | dict) and node:
        node = node[0] if isinstance(node, list) else next(iter(node.values()))
    return node if isinstance(node, RawSetting) else None


def build_section(
    section: type[SectionT], tree: SettingTree, problems: list[ConfigProblem], path: KeyPath = ()
) -> SectionT | None:
    """Build a section from a tree.

    Args:
        problems: receives every invalid or unknown key.
        path: the path of the section.

    Returns:
        The section, or None if there was a problem in it.
    """
    count = len(problems)
    section_keys = section_fields(section)
    problems.extend(
        _unknown_key(section, (*path, key), node)
        for key, node in tree.items()
        if key not in section_keys
    )
    values = {
        field.attribute: _build_field(field, tree.get(field.key), problems, (*path, field.key))
        for field in section_keys.values()
    }
    return section(**values) if len(problems) == count else None


def _build_field(
    field: SectionField, node: SettingNode | None, problems: list[ConfigProblem], path: KeyPath
) -> object:
    if node is None:
        if field.is_required:
            problems.append(ConfigProblem(join_path(path), "is missing"))
        return field.default
    if isinstance(field.content, ScalarField):
        return _read_scalar(field.content, node, problems, path)
    if field.is_array:
        return _build_array(field.content, node, problems, path)
    if isinstance(node, dict):
        return build_section(field.content, node, problems, path)
    message = f"must be a section: write [{join_path(path)}] and its keys below"
    problems.append(ConfigProblem(join_path(path), message, _origin(node)))
    return None


def _build_array(
    section: type[Section], node: SettingNode, problems: list[ConfigProblem], path: KeyPath
) -> tuple[object, ...]:
    if isinstance(node, RawSetting) and node.raw == []:
        return ()
    tables = [table for table in node if isinstance(table, dict)] if isinstance(node, list) else []
    if not isinstance(node, list) or len(tables) < len(node):
        message = f"must be a list of sections: write [[{join_path(path)}]] for each"
        problems.append(ConfigProblem(join_path(path), message, _origin(node)))
    return tuple(
        build_section(section, table, problems, (*path, index))
        for index, table in enumerate(tables)
    )


def _read_scalar(
    scalar: ScalarField, node: SettingNode, problems: list[ConfigProblem], path: KeyPath
) -> object:
    if not isinstance(node, RawSetting):
        problems.append(
            ConfigProblem(join_path(path), "must be a value, not a section", _origin(node))
        )
        return None
    try:
        if node.layer is Layer.ENVIRONMENT:
            assert isinstance(node.raw, str)
            return scalar.codec.read_text(node.raw)
        return scalar.codec.read(node.raw)
    except ValueError as error:
        message = str(error)
        if message.startswith(("'", '"')):
            message = f"= {message}"
        problems.append(ConfigProblem(join_path(path), message, node.origin))
        return None


def _unknown_key(section: type[Section], path: KeyPath, node: SettingNode) -> ConfigProblem:
    """Suggest a key: the only one of that name, a similar sibling, or any similar key."""
    here, key = join_path(path), str(path[-1])
    siblings = [join_path((*path[:-1], sibling)) for sibling in section_fields(section)]
    same_name = sorted(known for known in known_paths() if known.endswith(f".{key}"))
    nearest = (
        (same_name if len(same_name) == 1 else [])
        or similar_names(here, siblings, count_max=1)
        or same_name
        or similar_names(here, known_paths(), count_max=1)
    )
    advice = f"did you mean {nearest[0]}?" if nearest else "iggy-server defaults lists all keys"
    return ConfigProblem(here, f"is not a key of the configuration; {advice}", _origin(node))


def _origin(node: SettingNode) -> str:
    setting = _first_setting(node)
    return setting.origin if setting else ""
