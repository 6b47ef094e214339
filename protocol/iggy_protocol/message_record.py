"""Message views with slots for decoded values, in pure Python.

A part of ``batch_python``; import from there. A consumer derives its own class of messages from
``MessageRecord``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from iggy_protocol.message_view import MessageView, walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from iggy_protocol.layout import Buffer

__all__ = ["MessageRecord", "reading"]

R = TypeVar("R", bound="MessageRecord")


class MessageRecord:
    """One message of a batch; a base for a consumer's own class of messages.

    A class that adds no slots costs one allocation for each message. Its ``__init__`` is called
    when a record is made from a view, and not by ``reading``.
    """

    __slots__ = ("_opened", "_opens_plain", "_source", "_value", "_view")

    _view: MessageView
    _opens_plain: bool
    _source: Any
    _opened: Any
    _value: Any

    def __new__(cls, view: MessageView | MessageRecord, /, *_args: Any, **_keywords: Any) -> Self:
        """Make a record of the message that a view or another record looks at.

        Args:
            view: where the message is.
            _args: those of a derived class, whose ``__init__`` takes them.
            _keywords: the same.
        """
        if not isinstance(view, MessageView | MessageRecord):
            raise TypeError(f"a record is made of a MessageView, not of {type(view).__name__}")
        record = object.__new__(cls)
        record._view = view if isinstance(view, MessageView) else view._view
        record._opens_plain = False
        record._source = record._opened = record._value = None
        return record

    @property
    def checksum(self) -> int:
        """XXH3-64 over the rest of the message."""
        return self._view.checksum

    @property
    def id(self) -> int:
        """128-bit id."""
        return self._view.id

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        return self._view.offset

    @property
    def timestamp_us(self) -> int:
        """Server clock on append."""
        return self._view.timestamp_us

    @property
    def origin_timestamp_us(self) -> int:
        """Producer's clock."""
        return self._view.origin_timestamp_us

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return self._view.size

    @property
    def payload(self) -> bytes:
        """The payload; a copy if the message is plain, else what ``_read_payload`` returns."""
        return self.raw_payload if self._is_plain else self._read_payload()

    @property
    def raw_payload(self) -> bytes:
        """A copy of the payload as it lies there."""
        return bytes(self._view.payload)

    @property
    def raw_user_headers(self) -> bytes:
        """A copy of the user headers as they lie there."""
        return bytes(self._view.user_headers)

    @property
    def _is_plain(self) -> bool:
        """Whether the payload needs no decoding, because this message has no user headers."""
        return self._opens_plain and not len(self._view.user_headers)

    def _read_payload(self) -> bytes:
        """Read the payload of a message that is not plain."""
        return self.raw_payload


def reading(
    messages: Buffer,
    kind: type[R],
    source: object,
    opens_plain: object,
    kept: list[R | None],
    /,
) -> Iterator[R]:
    """Iterate over records of the messages; ValueError at a cut tail.

    A message has the same record as long as the record is referenced or holds a decoded value.
    Where ``kept`` has none, a new one is stored there; the extension removes records that are no
    longer referenced.
    """
    if not isinstance(kind, type) or not issubclass(kind, MessageRecord):
        raise TypeError("records are made of a class of MessageRecord")
    if not isinstance(kept, list):
        raise TypeError("records are kept in a list")
    return _reading(walk(messages), kind, source, bool(opens_plain), kept)


def _reading(
    views: Iterator[MessageView],
    kind: type[R],
    source: object,
    is_plain: bool,
    kept: list[R | None],
) -> Iterator[R]:
    for index, view in enumerate(views):
        if index >= len(kept):
            raise ValueError(f"there is no place for message {index}")
        record = kept[index]
        if record is None:
            record = MessageRecord.__new__(kind, view)
            record._source = source
            record._opens_plain = is_plain
            kept[index] = record
        yield record
