"""Small changes to JSON objects: add, update, delete, keep and filter fields.

    add country="DE"          a field that is missing
    update price=0            a field that is there
    delete user.password      a field, also inside another
    keep id,user.name         these fields and no others
    filter amount>=10         only objects that fit go on

Fields that no step names stay as they are, in their order. Values are JSON, or ``$.path`` for a
copy of another field, or a word such as ``$now``; anything else is text.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import uuid4

import msgspec

from spark_jobs.errors import OptionError

Document: TypeAlias = dict[str, Any]
MessageMetadata: TypeAlias = Mapping[str, Any]
"""What is known about the message: stream, topic, partition, offset and timestamp."""

_MISSING: Final = object()
_WORD: Final = r"[\w-]+(?:\.[\w-]+)*"
_ASSIGNMENT: Final = re.compile(rf"\s*(?P<path>{_WORD})\s*=(?P<value>.*)", re.DOTALL)
_COMPARISON: Final = re.compile(
    rf"\s*(?P<path>{_WORD})\s*(?P<sign>==|!=|<=|>=|<|>|~)\s*(?P<value>[^=<>~].*)"
)
_PRESENCE: Final = re.compile(rf"\s*(?P<absent>!?)\s*(?P<path>{_WORD})\s*")
METADATA_COLUMNS: Final = ("stream", "topic", "partition", "offset", "timestamp")
"""What steps may copy of the message."""

_COMPUTED_VALUES: Final[Mapping[str, Callable[[], Any]]] = {
    "now": lambda: datetime.now(UTC).isoformat(),
    "uuid": lambda: str(uuid4()),
}


class PayloadMismatchError(ValueError):
    """A document does not fit a step; it is a dead letter."""


@dataclass(frozen=True)
class Transform:
    """One step.

    Attributes:
        text: how it was given.
        apply: changes the document in place and returns it, another one, or None to drop it.
    """

    text: str
    apply: Callable[[Document, MessageMetadata], Document | None]


def run_steps(steps: list[Transform], payload: bytes, facts: MessageMetadata) -> bytes | None:
    """Apply steps to a payload; None drops the message.

    Raises:
        PayloadMismatchError: it is no JSON object, or a step cannot deal with it.
    """
    try:
        return _run_steps(steps, payload, facts)
    except RecursionError:
        raise PayloadMismatchError("the payload is nested too deeply") from None


def _run_steps(steps: list[Transform], payload: bytes, facts: MessageMetadata) -> bytes | None:
    try:
        document: Document | None = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PayloadMismatchError(f"the payload is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise PayloadMismatchError("the payload is JSON, but no object")
    for step in steps:
        document = step.apply(document, facts)
        if document is None:
            return None
    return msgspec.json.encode(document)


def read_step(kind: str, text: str) -> Transform:
    """Read a step of the command line.

    Raises:
        OptionError: it cannot be read.
    """
    return Transform(f"{kind} {text}", _READERS[kind](text))


def _read_assignment(
    text: str, *, when_present: bool
) -> Callable[[Document, MessageMetadata], Document]:
    match = _ASSIGNMENT.fullmatch(text)
    if match is None:
        raise OptionError(f"{text!r} is not FIELD=VALUE, such as country='\"DE\"'")
    path, value = match["path"].split("."), _read_value(match["value"])

    def assign(document: Document, facts: MessageMetadata) -> Document:
        if (_find(document, path) is not _MISSING) == when_present:
            found = value(document, facts)
            if found is not _MISSING:
                _set(document, path, found)
        return document

    return assign


def _read_value(text: str) -> Callable[[Document, MessageMetadata], Any]:
    word = text.strip()
    if word.startswith("$."):
        path = word[2:].split(".")
        return lambda document, facts: _copy(_find(document, path))
    if word.startswith("$"):
        name = word[1:]
        if name in _COMPUTED_VALUES:
            return lambda document, facts: _COMPUTED_VALUES[name]()
        if name not in METADATA_COLUMNS:
            known = ", ".join(f"${one}" for one in (*_COMPUTED_VALUES, *METADATA_COLUMNS))
            raise OptionError(f"{word!r} is no value; there are $.FIELD, {known}")
        return lambda document, facts: facts[name]
    literal = _literal(text)
    return lambda document, facts: _copy(literal)


def _literal(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode())
    except msgspec.DecodeError:
        return text.strip()


def _copy(value: Any) -> Any:
    """Make a value of its own for each place, so that a later step on one shows nowhere else."""
    if isinstance(value, dict | list):
        return msgspec.json.decode(msgspec.json.encode(value))
    return value


def _read_delete(text: str) -> Callable[[Document, MessageMetadata], Document]:
    paths = _paths(text)

    def delete(document: Document, facts: MessageMetadata) -> Document:
        for *parents, name in paths:
            holder = _find(document, parents)
            if isinstance(holder, dict):
                holder.pop(name, None)
        return document

    return delete


def _read_keep(text: str) -> Callable[[Document, MessageMetadata], Document]:
    paths = _paths(text)

    def keep(document: Document, facts: MessageMetadata) -> Document:
        kept: Document = {}
        for path in paths:
            found = _find(document, path)
            if found is not _MISSING:
                _set(kept, path, found)
        return kept

    return keep


def _paths(text: str) -> list[list[str]]:
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(_WORD, word) for word in words):
        raise OptionError(f"{text!r} names no fields; write them as id,user.name")
    return [word.split(".") for word in words]


_COMPARISON_SIGNS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "~": lambda text, pattern: re.search(pattern, text) is not None,
}


def _read_filter(text: str) -> Callable[[Document, MessageMetadata], Document | None]:
    comparison = _COMPARISON.fullmatch(text)
    if comparison is not None:
        return _comparing(text, comparison)
    presence = _PRESENCE.fullmatch(text)
    if presence is None:
        raise OptionError(
            f'{text!r} is no filter; write FIELD>=10, FIELD=="text", FIELD~pattern, FIELD (it is '
            "there) or !FIELD (it is not)"
        )
    path, is_absent = presence["path"].split("."), bool(presence["absent"])
    return lambda document, facts: (
        document if (_find(document, path) is _MISSING) == is_absent else None
    )


def _comparing(
    text: str, match: re.Match[str]
) -> Callable[[Document, MessageMetadata], Document | None]:
    path, sign, wanted = match["path"].split("."), match["sign"], _literal(match["value"])
    if sign == "~":
        try:
            re.compile(str(wanted))
        except re.error as error:
            raise OptionError(f"{text!r}: the pattern cannot be read: {error}") from None
        wanted = str(wanted)
    compare = _COMPARISON_SIGNS[sign]

    def check(document: Document, facts: MessageMetadata) -> Document | None:
        found = _find(document, path)
        if found is _MISSING:
            return document if sign == "!=" else None
        try:
            return document if compare(found, wanted) else None
        except TypeError:
            kind = type(found).__name__
            raise PayloadMismatchError(
                f"filter {text}: the field is {kind} and cannot be compared"
            ) from None

    return check


def _find(document: Any, path: list[str]) -> Any:
    for name in path:
        if not isinstance(document, dict) or name not in document:
            return _MISSING
        document = document[name]
    return document


def _set(document: Document, path: list[str], value: Any) -> None:
    *parents, name = path
    for parent in parents:
        document = document.setdefault(parent, {})
        if not isinstance(document, dict):
            raise PayloadMismatchError(
                f"field {parent} holds no object, so {'.'.join(path)} has no place"
            )
    document[name] = value


_READERS: Final[
    Mapping[str, Callable[[str], Callable[[Document, MessageMetadata], Document | None]]]
] = {
    "add": lambda text: _read_assignment(text, when_present=False),
    "update": lambda text: _read_assignment(text, when_present=True),
    "delete": _read_delete,
    "keep": _read_keep,
    "filter": _read_filter,
}
