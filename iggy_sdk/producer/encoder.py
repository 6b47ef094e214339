"""Encoding messages for sending: payloads, ids, sizes, and splitting lists into requests.

Ids make a repeated request harmless on a server that deduplicates.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import PAYLOAD_BYTES_MAX, USER_HEADERS_BYTES_MAX, Buffer, Identifier, NewMessage
from iggy_sdk.errors import MessageTooLargeError
from iggy_sdk.message import Headers, Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_sdk.pipeline import Pipeline


OVERHEAD_BYTES: Final = 80
"""What a message adds to a request besides its content: a header of 64 and an index of 16 bytes."""

PLAIN_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + OVERHEAD_BYTES

SPLIT_ADVICE: Final = (
    f"Servers take {PAYLOAD_BYTES_MAX} bytes at most; split it, or send a reference."
)

COUNTER_BITS: Final = 48
"""Ids of one producer differ in these, enough for nine years at a million messages a second. The
80 random bits above them keep producers apart."""


def with_overrides(value: Any, *, key: str | bytes | None, headers: Headers | None) -> Any:
    """Apply key and headers of a call to one message; those of the message itself win."""
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
    """Tell whether any message has a key; plain payloads are recognised by their type alone."""
    if len(originals) == 1:
        return key_of(originals[0]) is not None
    if not any(issubclass(kind, Message) for kind in set(map(type, originals))):
        return False
    return any(key_of(original) is not None for original in originals)


def split_batches(
    sizes: Sequence[int], *, length: int | None, size_bytes: int | None, bytes_max: int
) -> Iterator[tuple[int, int]]:
    """Split messages into pieces for one request each, as the accumulator does.

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


class MessageEncoder:
    """Encodes messages.

    Args:
        pipeline: serde, compression and encryption.
        has_ids: whether every message gets an id.
        copies_buffers: whether mutable buffers are copied, because messages outlive the call.
    """

    def __init__(self, pipeline: Pipeline[Any], *, has_ids: bool, copies_buffers: bool) -> None:
        self._pipeline = pipeline
        self._copies_buffers = copies_buffers
        self._first_id = secrets.randbits(128 - COUNTER_BITS) << COUNTER_BITS
        self._ids = count(1) if has_ids else None

    @property
    def has_ids(self) -> bool:
        """Whether every message gets an id."""
        return self._ids is not None

    def encode_one(
        self, original: Any, *, stream: Identifier, topic: Identifier
    ) -> tuple[Buffer | NewMessage, int]:
        """Encode one message, and return it with its size on the wire.

        Raises:
            SerdeError: the serde cannot write it.
            MessageTooLargeError: it is above the limit of servers.
        """
        wire = self._finish_message(
            self._pipeline.encode_message(original, stream=stream, topic=topic)
        )
        return wire, _encoded_size(wire)

    def encode_many(
        self, originals: list[Any], *, stream: Identifier, topic: Identifier
    ) -> tuple[Sequence[Buffer | NewMessage], Sequence[int]]:
        """Encode many messages, and return them with their sizes; a list of bytes is not copied.

        Raises:
            SerdeError: the serde cannot write one of them.
            MessageTooLargeError: one is above the limit of servers.
        """
        wires = self._pipeline.encode_batch(originals, stream=stream, topic=topic)
        if wires is originals and self._ids is None:
            sizes = [size + OVERHEAD_BYTES for size in map(len, originals)]
            if sizes and max(sizes) > PLAIN_BYTES_MAX:
                raise _too_large_error(max(sizes) - OVERHEAD_BYTES)
            return wires, sizes
        finished = list(map(self._finish_message, wires))
        return finished, list(map(_encoded_size, finished))

    def unsent(self, originals: Sequence[Any], wires: Sequence[Any]) -> list[Any]:
        """Return the caller's messages, with the ids that were assigned."""
        if self._ids is None:
            return list(originals)
        return list(map(_with_id, originals, wires))

    def _finish_message(self, wire: Buffer | NewMessage) -> Buffer | NewMessage:
        if isinstance(wire, NewMessage):
            if self._copies_buffers and type(wire.payload) is not bytes:
                wire = wire._replace(payload=bytes(wire.payload))
            if self._ids is not None and not wire.id:
                wire = wire._replace(id=self._first_id + next(self._ids))
            return wire
        if self._copies_buffers and type(wire) is not bytes:
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


def _encoded_size(wire: Buffer | NewMessage) -> int:
    payload = wire.payload if isinstance(wire, NewMessage) else wire
    size = payload.nbytes if isinstance(payload, memoryview) else len(payload)
    if size > PAYLOAD_BYTES_MAX:
        raise _too_large_error(size)
    if not isinstance(wire, NewMessage):
        return size + OVERHEAD_BYTES
    if len(wire.user_headers) > USER_HEADERS_BYTES_MAX:
        raise MessageTooLargeError(
            f"the user headers have {len(wire.user_headers)} bytes",
            advice=f"Servers take {USER_HEADERS_BYTES_MAX} bytes of user headers at most.",
        )
    return size + len(wire.user_headers) + OVERHEAD_BYTES


def _too_large_error(size_bytes: int) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"a payload has {size_bytes} bytes",
        advice=SPLIT_ADVICE,
    )


def as_list(values: Iterable[Any]) -> list[Any]:
    """Take the messages of one call; a single payload in their place is a mistake.

    Raises:
        TypeError: it is one payload or one message, not several.
    """
    if isinstance(values, str | bytes | bytearray | memoryview | Message | Mapping):
        raise TypeError("send_many() takes several messages; send() takes one")
    return list(values)
