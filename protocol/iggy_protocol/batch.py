"""Message batches: build them, check them, stamp them, read them in place.

There are two implementations with the same results, in C (``_batch``) and in Python
(``batch_python``). This module chooses one when it is imported, gives its functions keywords, and
turns status numbers and plain exceptions into the errors of this package.

This module has no commands and no connections. ``IGGY_NO_EXTENSIONS=1`` in the environment selects
the Python implementation.
"""

from __future__ import annotations

import os
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from iggy_protocol import batch_python
from iggy_protocol.errors import InvalidBatch, InvalidField, LocalProtocolError, TruncatedField
from iggy_protocol.message_view import HEADER, NewMessage, as_bytes_view, header_at
from iggy_protocol.model.stream import PartitionContext
from iggy_protocol.records import record
from iggy_protocol.status_table import StatusCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from iggy_protocol._batch import MessageRecord, MessageView
    from iggy_protocol.layout import Buffer

__all__ = [
    "BATCH_IMPLEMENTATION",
    "BatchShape",
    "HeaderColumns",
    "MessageBatch",
    "MessageColumns",
    "MessageRecord",
    "MessageView",
    "PolledMessages",
    "SendRun",
    "allocate",
    "checksum",
    "encode_messages",
    "gather_sends",
    "implementation",
    "index_entries",
    "inspect_send",
    "intact_prefix",
    "stamp",
]


def _choose_implementation(environment: Mapping[str, str]) -> tuple[Any, Literal["c", "python"]]:
    """Return the C extension if it is built and not switched off, else the Python module."""
    if environment.get("IGGY_NO_EXTENSIONS") != "1":
        try:
            from iggy_protocol import _batch
        except ImportError:
            pass
        else:
            return _batch, "c"
    return batch_python, "python"


BATCH_IMPLEMENTATION: Literal["c", "python"]
if TYPE_CHECKING:
    from iggy_protocol import _batch as implementation
else:
    implementation, BATCH_IMPLEMENTATION = _choose_implementation(os.environ)
    MessageRecord = implementation.MessageRecord
    MessageView = implementation.MessageView

R = TypeVar("R", bound="MessageRecord")


class BatchShape(NamedTuple):
    """Where the parts of a valid SendMessages body lie, in bytes from its start.

    Attributes:
        messages_count: how many messages there are.
        topic_at: start of the topic identifier; the stream identifier starts at 4.
        partitioning_at: start of the partitioning.
        indexes_at: start of the index table.
        messages_at: start of the messages, which reach to the end of the body.
        missing_ids: how many messages ask for an id; each needs 16 random bytes.
    """

    messages_count: int
    topic_at: int
    partitioning_at: int
    indexes_at: int
    messages_at: int
    missing_ids: int


# Why a server refuses a body. The number is a byte offset in the first three, else a message.
_REASONS: Mapping[int, str] = {
    StatusCode.INVALID_COMMAND: "the metadata cannot be read from byte {} on",
    StatusCode.INVALID_IDENTIFIER: "there is no valid identifier at byte {}",
    StatusCode.INVALID_MESSAGES_COUNT: "the count at byte {} announces no messages",
    StatusCode.TOO_BIG_USER_HEADERS: "message {} has too many bytes of user headers",
    StatusCode.TOO_BIG_MESSAGE_PAYLOAD: "message {} has too large a payload",
    StatusCode.NON_ZERO_OFFSET: "index entry {} has an offset, which only a server assigns",
    StatusCode.NON_ZERO_TIMESTAMP: "index entry {} has a timestamp, which only a server assigns",
    StatusCode.MISSING_INDEX: "message {} does not lie between the ends its index entries give",
    StatusCode.INVALID_MESSAGES_SIZE: "message {} is shorter than its index entry says",
    StatusCode.INVALID_OFFSET: "message {} has a smaller offset than the one before it",
    StatusCode.CANNOT_READ_INDEX_POSITION: "index entry {} ends before the one before it",
}
_STATUSES_WITH_BYTE_OFFSET = frozenset(
    {
        StatusCode.INVALID_COMMAND,
        StatusCode.INVALID_IDENTIFIER,
        StatusCode.INVALID_MESSAGES_COUNT,
    }
)


def inspect_send(body: Buffer) -> BatchShape:
    """Check a whole SendMessages body as a server does, and find its parts.

    Args:
        body: the payload of the request frame.

    Returns:
        Where everything is; every message may now be stored as it lies.

    Raises:
        InvalidBatch: the body must not be stored; ``status`` is what the client is told.
    """
    status, where, *shape = implementation.inspect(body)
    if status == 0:
        return BatchShape._make(shape)
    reason = _REASONS[status].format(where)
    if status in _STATUSES_WITH_BYTE_OFFSET:
        raise InvalidBatch(reason, status=status, offset=where)
    raise InvalidBatch(reason, status=status, message_index=where)


class SendRun(NamedTuple):
    """SendMessages frames of one client that were taken as one batch.

    Attributes:
        frames_count: how many requests there were; each needs a reply.
        size_bytes: how many bytes they occupied.
        messages_count: how many messages they hold.
        missing_ids: how many of those ask for an id.
        messages_bytes: size of the messages, which now begin where the frames began.
        numbers: those of the requests from 0.9 on, as integers of 64 bits.
        counts: of the messages of each request from 0.9 on, as integers of 32 bits.
    """

    frames_count: int
    size_bytes: int
    messages_count: int
    missing_ids: int
    messages_bytes: int
    numbers: bytes = b""
    counts: bytes = b""

    @property
    def shape(self) -> BatchShape:
        """The run as the shape of a body that consists of its messages alone."""
        return BatchShape(self.messages_count, 0, 0, 0, 0, self.missing_ids)

    @property
    def ends(self) -> tuple[int, int, int]:
        """The first and the last number, and the messages of the last request, from 0.9 on."""
        cuts = (self.numbers[:8], self.numbers[-8:], self.counts[-4:])
        first, last, count = (int.from_bytes(cut, "little") for cut in cuts)
        return first, last, count


def gather_sends(frames: bytearray | memoryview, metadata: Buffer, *, frames_max: int) -> SendRun:
    """Move the messages of small SendMessages frames together into one batch, in place.

    Args:
        frames: received frames of the classic framing, one after another.
        metadata: the metadata that all frames must have, from the stream to the message count.
        frames_max: how many to take at most.

    Returns:
        What was taken from the front; no frames if the first one does not match.
    """
    return SendRun(*implementation.gather(frames, metadata, frames_max))


def encode_messages(
    metadata: bytes,
    messages: Sequence[Buffer | NewMessage],
    *,
    origin_timestamp_us: int,
    headroom: int = 0,
) -> bytearray:
    """Build the body of a SendMessages request in one allocation.

    Args:
        metadata: everything before the index table, its length and the message count included.
        messages: payloads, or ``NewMessage``s where one needs an id, headers or its own time.
        origin_timestamp_us: the producer's clock, for messages without a time of their own.
        headroom: zero bytes to leave free in front, at most 4096.

    Raises:
        LocalProtocolError: a number does not fit its field, or a size is above its limit.
        TypeError: an item is neither bytes-like nor a ``NewMessage``.
    """
    try:
        return implementation.encode(metadata, messages, origin_timestamp_us, headroom)
    except (OverflowError, ValueError) as error:
        raise LocalProtocolError(str(error)) from error


def stamp(
    messages: bytearray | memoryview, *, base_offset: int, timestamp_us: int, random: Buffer
) -> int:
    """Make received messages ready to be stored, in place.

    Args:
        messages: the messages of a body that was inspected.
        base_offset: offset of the first message; the others follow it.
        timestamp_us: the server's clock.
        random: 16 bytes for each missing id, from a good source.

    Returns:
        How many messages were stamped.

    Raises:
        LocalProtocolError: a message is truncated, there are too few random bytes, or an offset
            exceeds 64 bits.
    """
    try:
        return implementation.stamp(messages, base_offset, timestamp_us, random)
    except (OverflowError, ValueError) as error:
        raise LocalProtocolError(str(error)) from error


def index_entries(messages: Buffer, *, relative_offset: int, position: int) -> bytearray:
    """Make the index entries of stamped messages that are appended to a segment.

    Args:
        messages: stamped messages.
        relative_offset: offset of the first one, counted from the start of the segment.
        position: byte of the log at which the first one will start.

    Raises:
        LocalProtocolError: a message is cut, or the segment leaves the range of 32 bits.
    """
    try:
        return implementation.index_entries(messages, relative_offset, position)
    except (OverflowError, ValueError) as error:
        raise LocalProtocolError(str(error)) from error


def checksum(data: Buffer) -> int:
    """Compute XXH3-64 as stored messages carry it, over their bytes 8 to the end."""
    return implementation.checksum(data)


def allocate(size: int) -> bytearray:
    """Make a buffer to receive into; its content is undefined until it was written.

    The extension does not touch the pages of a large buffer, so a peer cannot make this process use
    memory by announcing a large frame.
    """
    return implementation.allocate(size)


class HeaderColumns(NamedTuple):
    """The user headers of many messages as columns.

    Attributes:
        pair_bounds: which pairs belong to each message; signed, 32 bits, one more than messages.
        readable: one byte for each message, 0 if its block cannot be read and so has no pairs.
        key_kinds: a ``HeaderKind`` in one byte for each pair.
        key_bounds: where each key begins and ends; signed, 32 bits, one more than pairs.
        keys: all keys in one piece.
        value_kinds: a ``HeaderKind`` in one byte for each pair.
        value_bounds: where each value begins and ends; signed, 32 bits, one more than pairs.
        values: all values in one piece.
    """

    pair_bounds: bytearray
    readable: bytearray
    key_kinds: bytearray
    key_bounds: bytearray
    keys: bytearray
    value_kinds: bytearray
    value_bounds: bytearray
    values: bytearray


class MessageColumns(NamedTuple):
    """Messages as columns: bytes of arrays whose numbers are in the order of this machine.

    Value i of payloads and user headers lies between bounds i and i + 1.

    Attributes:
        offsets: unsigned, 64 bits.
        timestamps_us: when the server stored them; unsigned, 64 bits.
        origin_timestamps_us: the producers' time; unsigned, 64 bits.
        ids: 16 bytes each, as other clients show them in a UUID.
        checksums: unsigned, 64 bits.
        payload_bounds: signed, 32 bits, one more than messages; None if they are not wanted.
        payloads: all payloads in one piece; None if they are not wanted.
        user_header_bounds: the same for user headers.
        user_headers: all blocks of user headers in one piece; see ``split_user_headers``.
    """

    offsets: bytearray
    timestamps_us: bytearray
    origin_timestamps_us: bytearray
    ids: bytearray
    checksums: bytearray
    payload_bounds: bytearray | None
    payloads: bytearray | None
    user_header_bounds: bytearray | None
    user_headers: bytearray | None

    def split_user_headers(self) -> HeaderColumns:
        """Split all user headers into keys and values; equal keys of a message all stay.

        Raises:
            LocalProtocolError: the user headers are missing, or are not what their bounds say.
        """
        try:
            return HeaderColumns._make(
                implementation.header_pairs(
                    self.user_header_bounds or b"", self.user_headers or b""
                )
            )
        except ValueError as error:
            raise LocalProtocolError(str(error)) from error


class MessageBatch:
    """Messages back to back in a buffer, read in place.

    The buffer must not change while the batch is in use. Views hold it: a bytearray cannot be
    resized while one of them is alive. Batches are equal when their bytes are.
    """

    __slots__ = ("_buffer", "_count", "_last_at")

    def __init__(self, buffer: Buffer) -> None:
        """Check that the buffer holds whole messages and nothing else.

        Args:
            buffer: messages as a poll returns them or as a log stores them.

        Raises:
            TruncatedField: the last message is cut.
        """
        self._buffer = buffer
        self._count, whole, self._last_at = implementation.measure(buffer)
        if whole < self.nbytes:
            raise _truncation_error(as_bytes_view(buffer)[whole:], self._count, whole)

    @property
    def buffer(self) -> Buffer:
        """The bytes of all messages."""
        return self._buffer

    @property
    def nbytes(self) -> int:
        """Size of all messages, headers included."""
        return memoryview(self._buffer).nbytes

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[MessageView]:
        return implementation.walk(self._buffer)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageBatch):
            return NotImplemented
        return self._buffer == other._buffer

    __hash__ = None  # type: ignore[assignment]  # the buffer may be a mutable one

    def __repr__(self) -> str:
        return f"<MessageBatch of {len(self)} messages in {self.nbytes} bytes>"

    @property
    def first_offset(self) -> int | None:
        """The offset of the first message; ``None`` when there is none."""
        return self._offset_at(0)

    @property
    def last_offset(self) -> int | None:
        """The offset of the last message; ``None`` when there is none."""
        return self._offset_at(self._last_at)

    def _offset_at(self, at: int) -> int | None:
        return header_at(as_bytes_view(self._buffer), at).offset if self._count else None

    def payloads(self) -> list[bytes]:
        """Copy all payloads in one go."""
        return implementation.payloads(self._buffer)

    def reading(
        self, kind: type[R], *, source: object, opens_plain: bool, kept: list[R | None]
    ) -> Iterator[R]:
        """Iterate over objects of the messages, made without calling ``__init__``.

        Args:
            kind: a class derived from ``MessageRecord``.
            source: an object that all records share, for the methods of that class.
            opens_plain: whether the payload of a message without user headers needs no decoding.
            kept: one entry for each message, None where no record was made yet. An existing record
                is returned again, so that a message is always the same object.
        """
        return implementation.reading(self._buffer, kind, source, opens_plain, kept)

    def columns(self, *, payloads: bool = True, user_headers: bool = True) -> MessageColumns:
        """Copy the messages into columns, without an object for each.

        Args:
            payloads: whether payloads are wanted.
            user_headers: whether user headers are wanted.

        Raises:
            LocalProtocolError: a column would have more bytes than 31 bits can count.
        """
        try:
            return MessageColumns._make(
                implementation.columns(self._buffer, payloads, user_headers)
            )
        except ValueError as error:
            raise LocalProtocolError(str(error)) from error

    def verify(self) -> None:
        """Recompute every checksum.

        Raises:
            InvalidField: a message is not what was stored; ``field`` names it.
        """
        damaged = implementation.verify(self._buffer)
        if damaged >= 0:
            sizes = (message.size for message in self)
            raise InvalidField(
                f"message {damaged} does not match its checksum",
                field=f"messages.{damaged}.checksum",
                offset=sum(size for size, _ in zip(sizes, range(damaged), strict=False)),
            )


@record
class PolledMessages:
    """Consecutive messages of one partition: the reply to a poll.

    Attributes:
        partition_id: the partition of the messages.
        current_offset: the highest offset of the partition; 0 also when it is empty.
        messages_count: how many messages the server announced. In rare states a server announces
            another number than it sends, so iterate over ``messages`` and do not rely on this.
        messages: the messages, still as bytes of the receive buffer.
        fault: why there are fewer messages than the server sent, when the reply cannot be read to
            its end; None otherwise. The next poll from there on returns only the fault.
        context: the state of the partition that requests refer to, from 0.10 on.
    """

    partition_id: int
    current_offset: int
    messages_count: int
    messages: MessageBatch
    fault: InvalidField | TruncatedField | None = field(default=None, repr=False)
    context: PartitionContext = PartitionContext()


def intact_prefix(buffer: Buffer) -> memoryview:
    """Return the messages before the first one that is cut or does not match its checksum."""
    memory = as_bytes_view(buffer)
    count, whole, _ = implementation.measure(memory)
    damaged = implementation.verify(memory[:whole])
    if 0 <= damaged < count:
        sizes = (message.size for message in implementation.walk(memory[:whole]))
        whole = sum(size for size, _ in zip(sizes, range(damaged), strict=False))
    return memory[:whole]


def whole_prefix(buffer: Buffer) -> memoryview:
    """Return the messages before the first that is cut; checksums are not compared."""
    return as_bytes_view(buffer)[: implementation.measure(buffer)[1]]


def _truncation_error(tail: memoryview, index: int, offset: int) -> TruncatedField:
    """Say which field of the last message ends too early."""
    field, at, need = "header", 0, HEADER.size
    if len(tail) >= HEADER.size:
        header = header_at(tail, 0)
        field, at, need = "payload", HEADER.size, header.payload_length
        if len(tail) - at >= need:
            field, at, need = "user_headers", at + need, header.user_headers_length
    return TruncatedField(
        f"message {index} is cut inside its {field.replace('_', ' ')}",
        field=f"messages.{index}.{field}",
        offset=offset + at,
        need=need,
        have=len(tail) - at,
    )
