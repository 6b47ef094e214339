"""Messages to send, and received messages.

Received messages are created on demand and read in place: they are decrypted, decompressed and
decoded on first access. If that fails, the message holds the error: ``value`` raises it, while
``payload`` always works.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)
from uuid import UUID

from iggy_protocol import (
    HeaderKey,
    HeaderScalar,
    HeaderValue,
    Identifier,
    MessageColumns,
    MessageRecord,
    MessageView,
    PolledMessages,
    ProtocolError,
    encode_user_headers,
)
from iggy_sdk.compression import CONTENT_ENCODING
from iggy_sdk.errors import ConsumerGroupError, IggyError, error_from_protocol

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

KEY_HEADER: Final = "iggy-key"
"""The header that carries a message's key; the wire itself has no place for it."""

HEADER_BYTES: Final = 64
"""What a message occupies beside its payload and its user headers."""

Headers: TypeAlias = Mapping[Any, HeaderScalar | HeaderValue]
"""User headers to be sent. Keys are texts, or ``HeaderKey``s of another kind; plain values choose
their kind, ``HeaderValue`` names it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def message_id_from_uuid(uuid: UUID) -> int:
    """Give the message id that other clients show as this UUID."""
    return int.from_bytes(uuid.bytes, "little")


@dataclass(slots=True)
class Message(Generic[T_co]):
    """A message to be sent.

    Attributes:
        value: what to send; bytes or text unless there is a serde.
        headers: user headers.
        id: 0 lets the server choose one.
        key: messages with equal keys keep their order; it travels in the header ``iggy-key``.
        origin_timestamp_us: when it came about; None takes the time of sending.
    """

    value: T_co
    headers: Headers | None = None
    id: int | UUID = 0
    key: str | bytes | None = None
    origin_timestamp_us: int | None = None


class Committer(Protocol):
    """Stores the offset of a message when its ``commit()`` is awaited."""

    async def commit(
        self, partition_id: int, offset: int, /, *, timeout: Seconds | None = None
    ) -> None:
        """Store that this message, and all before it in its partition, are done."""


class DecodedParts(NamedTuple):
    """A message after decryption and decompression, with the errors of both."""

    payload: bytes
    headers: Mapping[HeaderKey, HeaderValue]
    error: IggyError | None
    headers_error: IggyError | None


class MessageDecoder(Protocol[T_co]):
    """What messages need of a pipeline."""

    @property
    def opens_plain(self) -> bool:
        """Whether a message without headers is nothing but its payload."""

    def open(self, message: MessageRecord, /) -> DecodedParts:
        """Undo encryption and compression."""

    def decode(self, payload: bytes, /) -> T_co:
        """Read the value, or raise ``SerdeError``."""


class MessageSource(Generic[T]):
    """What the messages of one poll have in common."""

    __slots__ = ("committer", "opener", "opens_plain", "partition_id", "stream", "topic")

    def __init__(
        self,
        opener: MessageDecoder[T],
        *,
        stream: Identifier,
        topic: Identifier,
        partition_id: int,
        committer: Committer | None = None,
    ) -> None:
        self.opener: MessageDecoder[T] = opener
        self.opens_plain: bool = opener.opens_plain
        self.stream: Identifier = stream
        self.topic: Identifier = topic
        self.partition_id: int = partition_id
        self.committer: Committer | None = committer


class ReceivedMessage(MessageRecord, Generic[T]):
    """A message that was received; everything beside its header is read when it is asked for.

    Attributes:
        payload: the bytes that the producer's serde made, with encryption and compression undone.
            Where they cannot be undone these are the bytes as they came, and ``error`` says why.
            Plain ones are copied each time, so that a batch is not twice in memory.
        raw_payload: the bytes exactly as they came from the server.
        raw_user_headers: the user headers exactly as they came from the server.
        offset: the place in the partition.
        id: a number of 128 bits.
        checksum: the one that the server stored.
        timestamp_us: when the server stored it, in microseconds since 1970.
        origin_timestamp_us: when the producer sent it, in microseconds since 1970.
        size: how many bytes it occupies on the wire, header included.
    """

    # No own slots: all fields are those of the C record, which makes creation fast.
    __slots__ = ()

    _source: MessageSource[T]
    _opened: DecodedParts | None
    _value: T | None

    def __init__(self, view: MessageView | MessageRecord, source: MessageSource[T]) -> None:
        """Take a message as it lies in the reply to a poll.

        Args:
            view: its bytes.
            source: what it has in common with the other messages of the poll.
        """
        self._source = source
        self._opens_plain = source.opens_plain

    @property
    def value(self) -> T:
        """The value, read by the serde.

        Raises:
            DecryptionError: the message was not sealed with this key.
            SerdeError: it was compressed in an unknown way, or the serde cannot read it.
        """
        value = self._value
        # A value of None is decoded again each time, with the same result.
        if value is None:
            payload, opened = self.payload, self._opened
            if opened is not None and opened.error is not None:
                raise opened.error.with_traceback(None)
            value = self._value = self._source.opener.decode(payload)
        return value

    @property
    def error(self) -> IggyError | None:
        """Why encryption or compression could not be undone; ``None`` when all is well."""
        return None if self._is_plain else self._open().error

    @property
    def headers(self) -> Mapping[str, HeaderScalar]:
        """The user headers, with keys as text and values as Python sees them.

        Raises:
            DecryptionError: the headers were not sealed with this key.
            SerdeError: the headers cannot be read.
        """
        return {} if self._is_plain else _scalars(self.typed_headers)

    @property
    def typed_headers(self) -> Mapping[HeaderKey, HeaderValue]:
        """The user headers with the kinds that the producer gave them.

        Raises:
            DecryptionError: the headers were not sealed with this key.
            SerdeError: the headers cannot be read.
        """
        opened = self._open()
        if opened.headers_error is not None:
            raise opened.headers_error.with_traceback(None)
        return opened.headers

    @property
    def key(self) -> str | bytes | None:
        """The key that the producer gave it, if any and if the headers can be read."""
        if self._is_plain:
            return None
        value = self._open().headers.get(_KEY_HEADER_KEY)
        scalar = None if value is None else _scalar(value)
        return scalar if isinstance(scalar, str | bytes) else None

    @property
    def partition_id(self) -> int:
        """The partition it came from."""
        return self._source.partition_id

    @property
    def stream(self) -> Identifier:
        """The stream it came from, as it was asked for."""
        return self._source.stream

    @property
    def topic(self) -> Identifier:
        """The topic it came from, as it was asked for."""
        return self._source.topic

    @property
    def uuid(self) -> UUID:
        """The id as the UUID that other clients show."""
        return UUID(bytes=self.id.to_bytes(16, "little"))

    @property
    def timestamp(self) -> datetime:
        """When the server stored it."""
        return _EPOCH + timedelta(microseconds=self.timestamp_us)

    @property
    def origin_timestamp(self) -> datetime:
        """When the producer sent it."""
        return _EPOCH + timedelta(microseconds=self.origin_timestamp_us)

    async def commit(self, *, timeout: Seconds | None = None) -> None:
        """Store that this message, and all before it in its partition, are done.

        Args:
            timeout: how long it may take; None takes the ``request_timeout``.

        Raises:
            ConsumerGroupError: it came from ``poll_messages``, which belongs to no consumer.
        """
        committer = self._source.committer
        if committer is None:
            raise ConsumerGroupError(
                "the message was not read by a consumer",
                advice="Use store_consumer_offset(), or read with consumer() or consumer_group().",
            )
        if timeout is None:
            await committer.commit(self._source.partition_id, self.offset)
        else:
            await committer.commit(self._source.partition_id, self.offset, timeout=timeout)

    def __repr__(self) -> str:
        return (
            f"<ReceivedMessage offset={self.offset} partition_id={self.partition_id} "
            f"topic={self.topic!r} size={self.size}>"
        )

    def _read_payload(self) -> bytes:
        return self._open().payload

    def _header_block(self) -> bytes:
        """Return the user headers as bytes of the wire, decrypted if that is possible."""
        opened = self._open()
        if opened.headers_error is not None or not self.raw_user_headers:
            return self.raw_user_headers
        return encode_user_headers(opened.headers)

    def _open(self) -> DecodedParts:
        if self._opened is None:
            self._opened = self._source.opener.open(self)
        return self._opened


class ReceivedBatch(Sequence[ReceivedMessage[T]]):
    """What one poll brought: messages of one partition in their order, made when asked for."""

    __slots__ = ("_is_plain", "_kept", "_messages", "_polled", "_source")

    def __init__(self, polled: PolledMessages, source: MessageSource[T]) -> None:
        """Take the reply to a poll, and what its messages have in common."""
        # Whether no message is encrypted or compressed, once that is known.
        self._is_plain: bool | None = None
        self._polled = polled
        self._source = source
        self._kept: list[ReceivedMessage[T] | None] | None = None
        self._messages: list[ReceivedMessage[T]] | None = None

    @property
    def partition_id(self) -> int:
        """The partition the messages come from."""
        return self._polled.partition_id

    @property
    def current_offset(self) -> int:
        """The highest offset of the partition; 0 also when it is empty."""
        return self._polled.current_offset

    @property
    def fault(self) -> IggyError | None:
        """Why there are fewer messages than the server sent; ``None`` when all is well.

        A server with a damaged log may send a reply that cannot be read to its end. The messages
        before the damage are here; a poll that begins at the damage raises this error.
        """
        fault = self._polled.fault
        return None if fault is None else error_from_protocol(fault)

    @property
    def stream(self) -> Identifier:
        """The stream, as it was asked for."""
        return self._source.stream

    @property
    def topic(self) -> Identifier:
        """The topic, as it was asked for."""
        return self._source.topic

    @property
    def first_offset(self) -> int | None:
        """The offset of the first message; ``None`` when there is none."""
        return self._polled.messages.first_offset

    @property
    def last_offset(self) -> int | None:
        """The offset of the last message; ``None`` when there is none."""
        return self._polled.messages.last_offset

    @property
    def nbytes(self) -> int:
        """Size of all messages, their headers included."""
        return self._polled.messages.nbytes

    def payloads(self) -> list[bytes]:
        """Copy all payloads, in one go where nothing has to be undone."""
        payloads = self._plain_payloads()
        if payloads is None:
            return [message.payload for message in self]
        return payloads

    def values(self) -> list[T]:
        """Read all values; the first that cannot be read raises."""
        return [message.value for message in self]

    def columns(self, *, payloads: bool = True, user_headers: bool = True) -> MessageColumns:
        """Copy all messages into columns, for column stores; no message becomes an object.

        Payloads are those of ``payloads()``: only where some have to be decrypted or decompressed
        they are read one by one, and so are user headers that have to be decrypted. What cannot be
        undone stays as it came; ``errors()`` tells.

        Args:
            payloads: whether payloads are wanted.
            user_headers: whether user headers are wanted.
        """
        views = self._polled.messages
        columns = views.columns(payloads=payloads, user_headers=user_headers)
        if columns.user_headers and not self._source.opens_plain:
            blocks = [message._header_block() for message in self]
            bounds, joined = _column(blocks)
            columns = columns._replace(user_header_bounds=bounds, user_headers=joined)
        if columns.payloads is None:
            return columns
        self._is_plain = self._are_plain(columns.payloads)
        if self._is_plain:
            return columns
        bounds, joined = _column(self.payloads())
        return columns._replace(payload_bounds=bounds, payloads=joined)

    def errors(self) -> dict[int, IggyError]:
        """Tell why encryption or compression could not be undone, by the index of the message."""
        if self._is_plain is None:
            self._is_plain = self._source.opens_plain and self._are_unmarked()
        if self._is_plain:
            return {}
        errors = ((index, message.error) for index, message in enumerate(self))
        return {index: error for index, error in errors if error is not None}

    def __len__(self) -> int:
        return len(self._polled.messages)

    def __iter__(self) -> Iterator[ReceivedMessage[T]]:
        return self._iterate() if self._messages is None else iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> ReceivedMessage[T]: ...
    @overload
    def __getitem__(self, index: slice) -> list[ReceivedMessage[T]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._all_messages()[index]

    def __repr__(self) -> str:
        return (
            f"<ReceivedBatch of {len(self)} messages, topic={self.topic!r} "
            f"partition_id={self.partition_id}>"
        )

    def _all_messages(self) -> list[ReceivedMessage[T]]:
        """Create all messages, for access by index."""
        if self._messages is None:
            self._messages = list(self._iterate())
        return self._messages

    def _iterate(self) -> Iterator[ReceivedMessage[T]]:
        if self._kept is None:
            self._kept = [None] * len(self)
        source = self._source
        return self._polled.messages.reading(
            ReceivedMessage, source=source, opens_plain=source.opens_plain, kept=self._kept
        )

    def _are_plain(self, payloads: bytearray) -> bool:
        """Tell from the headers whether no message is encrypted or compressed."""
        if not self._source.opens_plain:
            return False
        # Bytes beside payloads and fixed headers are user headers, which may say that.
        if len(payloads) + HEADER_BYTES * len(self) == self.nbytes:
            return True
        return self._are_unmarked()

    def _are_unmarked(self) -> bool:
        """Tell whether no header says that a payload is compressed."""
        blocks = self._polled.messages.columns(payloads=False).user_headers
        return blocks is not None and CONTENT_ENCODING.encode() not in blocks

    def _plain_payloads(self) -> list[bytes] | None:
        """Copy all payloads at once, unless some have to be decrypted or decompressed."""
        if not self._source.opens_plain:
            return None
        payloads = self._polled.messages.payloads()
        # Bytes beside payloads and fixed headers are user headers, which may say that.
        plain = sum(map(len, payloads)) + HEADER_BYTES * len(payloads) == self.nbytes
        return payloads if plain else None


_KEY_HEADER_KEY: Final = HeaderKey.string(KEY_HEADER)


def _column(values: Sequence[bytes]) -> tuple[bytearray, bytearray]:
    """Join values, and tell where each begins and ends."""
    bounds = array("i", accumulate(map(len, values), initial=0))
    return bytearray(bounds.tobytes()), bytearray().join(values)


def _scalars(headers: Mapping[HeaderKey, HeaderValue]) -> dict[str, HeaderScalar]:
    """Show headers with text as keys; a key that is text itself wins over one that looks alike."""
    shown: dict[str, HeaderScalar] = {}
    texts: dict[str, HeaderScalar] = {}
    for key, value in headers.items():
        name = _scalar(key)
        if isinstance(name, str):
            texts[name] = _scalar(value)
        else:
            shown[_header_name(name)] = _scalar(value)
    return shown | texts


def _scalar(half: HeaderKey | HeaderValue) -> HeaderScalar:
    """Read one half of a header; bytes that do not fit their kind are shown as they are."""
    try:
        return half.value
    except ProtocolError:
        return half.raw


def _header_name(name: HeaderScalar) -> str:
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)
