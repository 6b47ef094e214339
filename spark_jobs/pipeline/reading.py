"""Reads the tables of a pipeline file into dataclasses: the fields of a class are its keys.

A mistake is kept with its line, and reading goes on, so that one run reports all of them.
"""

from __future__ import annotations

import argparse
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from spark_jobs.jobs.command import duration
from spark_jobs.pipeline.secrets import (
    SecretOrText,
    SecretReference,
    holds_secret,
    is_reference,
    is_secret_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spark_jobs.pipeline.document import KeyPath, PipelineDocument

Duration = NewType("Duration", str)
"""A time as Spark writes it, such as ``10 seconds``."""

T = TypeVar("T")

INTERNAL: Final = {"internal": True}
"""The metadata of a field that is no key: only the ready jobs set it."""

_ADVICE: Final = 'write { env = "NAME" } or { file = "PATH" } instead, and put the secret there'


class _ValueError(ValueError):
    """A value of another type than the key has; the text says which is wanted."""


def read_table(document: PipelineDocument, path: KeyPath, values: Any, cls: type[T]) -> T | None:
    """Make an instance of a dataclass from a table; None if it has mistakes.

    Args:
        document: the file, which collects the mistakes.
        path: where the table is.
        values: the table.
        cls: a dataclass, whose fields are the keys.
    """
    if not isinstance(values, dict):
        document.add_mistake(path, f"{_name(path)} is a table; write [{_name(path)}]")
        return None
    mistakes_count = len(document.mistakes)
    keys = _keys_of(cls)
    hints = get_type_hints(cls)
    for name in values:
        if name not in keys and name != "type":
            document.add_mistake((*path, name), unknown_name(f"key {name!r}", name, keys))
    read = {}
    for name, key in keys.items():
        if name in values:
            read[name] = _read_key(document, (*path, name), values[name], hints[name], key)
        elif _is_required(key):
            document.add_mistake(path, f"{_name(path)} lacks the key {name}; add it")
    if len(document.mistakes) > mistakes_count:
        return None
    return cls(**read)


def _keys_of(cls: Any) -> dict[str, Field[Any]]:
    return {one.name: one for one in fields(cls) if not one.metadata.get("internal")}


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Say that something does not exist, and what was probably meant."""
    names = list(known)
    near = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(names))}"
    return f"there is no {what}; {hint}"


def _is_required(key: Field[Any]) -> bool:
    return key.default is MISSING and key.default_factory is MISSING


def _name(path: KeyPath) -> str:
    return ".".join(part for part in path if isinstance(part, str))


def _read_key(
    document: PipelineDocument, path: KeyPath, value: Any, hint: Any, key: Field[Any]
) -> Any:
    name = str(path[-1])
    try:
        if "least" in key.metadata:
            return _whole_number(name, value, key.metadata["least"])
        return read_value(name, value, hint)
    except _ValueError as error:
        document.add_mistake(path, str(error))
        return None


def read_value(name: str, value: Any, hint: Any) -> Any:
    """Check a value against a type, and return it as that type.

    Raises:
        ValueError: it is of another type, or a secret.
    """
    check_literal(name, value)
    if hint == SecretOrText | None or hint == SecretOrText:
        return _secret_or_text(name, value)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        (wanted,) = (one for one in arguments if one is not types.NoneType)
        return read_value(name, value, wanted)
    if origin is Literal:
        if value not in arguments:
            raise _ValueError(unknown_name(f"{name} {value!r}", str(value), arguments))
        return value
    if origin is tuple:
        return _texts(name, value)
    if origin is Mapping:
        return _mapping(name, value, arguments[1])
    return _READERS[hint](name, value)


def check_literal(name: str, value: Any) -> None:
    """Refuse a secret that stands in the file itself.

    Raises:
        ValueError: the value is one; it is not quoted.
    """
    if is_secret_name(name) and not is_reference(value):
        raise _ValueError(f"{name} is a secret and must not stand in the file; {_ADVICE}")
    if isinstance(value, str) and holds_secret(value):
        raise _ValueError(f"{name} holds a password, which must not stand in the file; {_ADVICE}")
    if isinstance(value, list):
        for one in value:
            check_literal("", one)
    if isinstance(value, dict) and not is_reference(value):
        for key, one in value.items():
            check_literal(key, one)


def _secret_or_text(name: str, value: Any) -> SecretOrText:
    if is_reference(value):
        ((kind, where),) = value.items()
        return SecretReference(kind, _text(f"{name}.{kind}", where))
    if isinstance(value, dict):
        raise _ValueError(f'{name} is a text, {{ env = "NAME" }} or {{ file = "PATH" }}')
    return _text(name, value)


def _secret(name: str, value: Any) -> SecretReference:
    found = _secret_or_text(name, value)
    if isinstance(found, SecretReference):
        return found
    raise _ValueError(f"{name} is a secret and must not stand in the file; {_ADVICE}")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        shown = "a secret" if is_reference(value) else repr(value)
        raise _ValueError(f'{name} is {shown}; give a text, such as "x"')
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise _ValueError(f'{name} is {value!r}; give a list of texts, such as ["a", "b"]')
    return tuple(value)


def _mapping(name: str, value: Any, wanted: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _ValueError(f'{name} is {value!r}; give a table, such as {{ a = "b" }}')
    return {key: read_value(key, one, wanted) for key, one in value.items()}


def _number(name: str, value: Any) -> int:
    return _whole_number(name, value, 1)


def _whole_number(name: str, value: Any, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _ValueError(f"{name} is {value!r}; give a whole number of at least {least}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _ValueError(f"{name} is {value!r}; give true or false")
    return value


def _duration(name: str, value: Any) -> Duration:
    try:
        return Duration(duration(_text(name, value)))
    except argparse.ArgumentTypeError as error:
        raise _ValueError(f"{name}: {error}") from None


_READERS: Final[Mapping[Any, Callable[[str, Any], Any]]] = {
    str: _text,
    int: _number,
    bool: _flag,
    SecretReference: _secret,
    Duration: _duration,
}


def seconds_of(time: str) -> float:
    """Turn a time as Spark writes it, such as ``10 seconds``, into seconds."""
    number, unit = time.split()
    known: dict[str, float] = {
        "milliseconds": 0.001,
        "seconds": 1.0,
        "minutes": 60.0,
        "hours": 3600.0,
    }
    return int(number) * known[unit]
