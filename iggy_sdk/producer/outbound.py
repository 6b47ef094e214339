"""From what a caller hands over to what can travel: payloads, ids, sizes, and pieces of a list.

Owns the ids that make repeated requests harmless, and the size of a message on the wire. It knows
nothing of destinations and buffers.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX, NewMessage
from iggy_sdk.errors import MessageTooLarge
from iggy_sdk.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_protocol import Buffer, Identifier
    from iggy_sdk.message import Headers
    from iggy_sdk.pipeline import Pipeline

__all__ = [
    "OVERHEAD_BYTES",
    "Outbound",
    "as_list",
    "cut",
    "has_keys",
    "key_of",
    "with_overrides",
]

OVERHEAD_BYTES: Final = 80
"""What a message occupies of a request beside its content: 64 of its header, 16 of its index."""

PLAIN_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + OVERHEAD_BYTES

COUNTER_BITS: Final = 48
"""Ids of one producer differ in these, enough for nine years at a million messages a second. The
80 random bits above them keep producers apart."""


def with_overrides(value: Any, *, key: str | bytes | None, headers: Headers | None) -> Any:
    """Write what a call says of all its messages into one of them; its own word counts more."""
    if key is None and not headers:
        return value
    if isinstance(value, NewMessage):
        if headers:
            raise TypeError("the headers of a NewMessage are written already; use a Message")
        return value
    if not isinstance(value, Message):
        return Message(value, headers=headers, key=key)
    merged: dict[Any, Any] = {**(headers or {}), **(value.headers or {})}
    return replace(value, headers=merged or None, key=key if value.key is None else value.key)


def key_of(original: Any) -> str | bytes | None:
    """Return the key of a message, if it has one."""
    return original.key if isinstance(original, Message) else None


def has_keys(originals: Sequence[Any]) -> bool:
    """Tell whether any message has a key; payloads without anything are not looked at singly."""
    if len(originals) == 1:
        return key_of(originals[0]) is not None
    if not any(issubclass(kind, Message) for kind in set(map(type, originals))):
        return False
    return any(key_of(original) is not None for original in originals)


def cut(
    sizes: Sequence[int], *, length: int | None, size_bytes: int | None, bytes_max: int
) -> Iterator[tuple[int, int]]:
    """Divide messages into pieces for one request each, as an accumulator would.

    Args:
        sizes: their sizes.
        length: messages that fill a piece.
        size_bytes: bytes that fill a piece.
        bytes_max: bytes that no piece of several messages exceeds.

    Yields:
        Where each piece starts and stops.
    """
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > bytes_max:
            yield start, at
            start, total = at, 0
        total += size
        is_long = length is not None and at + 1 - start >= length
        if is_long or (size_bytes is not None and total >= size_bytes):
            yield start, at + 1
            start, total = at + 1, 0
    if start < len(sizes):
        yield start, len(sizes)


class Outbound:
    """Makes messages ready to travel.

    Args:
        pipeline: serde, compression and encryption.
        has_ids: whether every message gets an id.
        keeps: whether messages outlive the call, so that buffers which may change are copied.
    """

    def __init__(self, pipeline: Pipeline[Any], *, has_ids: bool, keeps: bool) -> None:
        self._pipeline = pipeline
        self._keeps = keeps
        self._first_id = secrets.randbits(128 - COUNTER_BITS) << COUNTER_BITS
        self._ids = count(1) if has_ids else None

    @property
    def has_ids(self) -> bool:
        """Whether every message gets an id."""
        return self._ids is not None

    def encode_one(
        self, original: Any, *, stream: Identifier, topic: Identifier
    ) -> tuple[Buffer | NewMessage, int]:
        """Make one message ready, and tell its size on the wire.

        Raises:
            SerdeError: it cannot be written.
            MessageTooLarge: no server takes it.
        """
        wire = self._finished(self._pipeline.outgoing(original, stream=stream, topic=topic))
        return wire, _size_of(wire)

    def encode_many(
        self, originals: list[Any], *, stream: Identifier, topic: Identifier
    ) -> tuple[Sequence[Buffer | NewMessage], Sequence[int]]:
        """Make many messages ready, and tell their sizes; plain bytes stay the list they are.

        Raises:
            SerdeError: one cannot be written.
            MessageTooLarge: no server takes one of them.
        """
        wires = self._pipeline.outgoing_all(originals, stream=stream, topic=topic)
        if wires is originals and self._ids is None:
            sizes = [size + OVERHEAD_BYTES for size in map(len, originals)]
            if sizes and max(sizes) > PLAIN_BYTES_MAX:
                raise _too_large(max(sizes) - OVERHEAD_BYTES)
            return wires, sizes
        finished = list(map(self._finished, wires))
        return finished, list(map(_size_of, finished))

    def unsent(self, originals: Sequence[Any], wires: Sequence[Any]) -> list[Any]:
        """Return messages as they were handed over, but with the ids they were given."""
        if self._ids is None:
            return list(originals)
        return list(map(_with_id, originals, wires))

    def _finished(self, wire: Buffer | NewMessage) -> Buffer | NewMessage:
        if isinstance(wire, NewMessage):
            if self._keeps and type(wire.payload) is not bytes:
                wire = wire._replace(payload=bytes(wire.payload))
            if self._ids is not None and not wire.id:
                wire = wire._replace(id=self._first_id + next(self._ids))
            return wire
        if self._keeps and type(wire) is not bytes:
            wire = bytes(wire)
        if self._ids is not None:
            return NewMessage(wire, id=self._first_id + next(self._ids))
        return wire


def _with_id(original: Any, wire: NewMessage) -> Any:
    if isinstance(original, NewMessage):
        return original._replace(id=wire.id)
    if isinstance(original, Message):
        return replace(original, id=wire.id)
    return Message(original, id=wire.id)


def _size_of(wire: Buffer | NewMessage) -> int:
    payload = wire.payload if isinstance(wire, NewMessage) else wire
    size = payload.nbytes if isinstance(payload, memoryview) else len(payload)
    if size > PAYLOAD_BYTES_MAX:
        raise _too_large(size)
    if not isinstance(wire, NewMessage):
        return size + OVERHEAD_BYTES
    if len(wire.user_headers) > USER_HEADERS_BYTES_MAX:
        raise MessageTooLarge(
            f"the user headers have {len(wire.user_headers)} bytes",
            advice=f"Servers take {USER_HEADERS_BYTES_MAX} bytes of user headers at most.",
        )
    return size + len(wire.user_headers) + OVERHEAD_BYTES


def _too_large(size_bytes: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"a payload has {size_bytes} bytes",
        advice=f"Servers take {PAYLOAD_BYTES_MAX} bytes at most; split it, or send where it is.",
    )


def as_list(values: Iterable[Any]) -> list[Any]:
    """Take the messages of one call; a single payload in their place is a mistake.

    Raises:
        TypeError: it is one payload or one message, not several.
    """
    if isinstance(values, str | bytes | bytearray | memoryview | Message | Mapping):
        raise TypeError("send_many() takes several messages; send() takes one")
    return list(values)
