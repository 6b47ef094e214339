"""Messages to be sent that lie in columns, as in Arrow, without an object for each.

    payloads = BytesColumn(length=2, start=0, validity=None, width=4, bounds=bounds, data=data)
    ids = ContentIds(b"job 7").assign(payloads)
    rows = MessageRows(payloads, ids=ids)                   # for SendMessages, or a producer

Columns are buffers that are read where they lie; they must not change meanwhile. As everywhere in
this package there are two implementations. This module has no commands and no connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, overload

from iggy_protocol.batch import implementation
from iggy_protocol.batch_send_python import ENTRY
from iggy_protocol.errors import LocalProtocolError
from iggy_protocol.layout import Buffer
from iggy_protocol.message_view import HEADER, NewMessage
from iggy_protocol.user_headers import HeaderKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_protocol.message_rows_python import Rows


CONTENTS_MAX: Final = 3 << 20
"""Contents that are counted; they take 64 MiB in C, and a task of Spark rarely has more rows."""

MESSAGE_OVERHEAD_BYTES: Final = HEADER.size + ENTRY.size
"""What a message adds to a request beside its contents."""


class BytesColumn(NamedTuple):
    """Values of bytes in the layout of Arrow.

    Attributes:
        length: how many values there are.
        start: the index of the first one in the bitmap, and in the bounds or the data.
        validity: a bitmap of the values that are there; None if all are.
        width: the bytes of a bound, 4 or 8; without bounds those of every value.
        bounds: value i lies between the bounds i and i + 1.
        data: the values.
    """

    length: int
    start: int
    validity: Buffer | None
    width: int
    bounds: Buffer | None
    data: Buffer


class HeaderPairs(NamedTuple):
    """User headers of rows in columns, as a map or a list of Arrow has them.

    Attributes:
        places: the pairs of each row are those between its bounds; it has no data.
        names: the keys of all pairs, as UTF-8.
        kinds: the kind of all values, or one byte for each pair.
        values: the values of all pairs; a pair without a value is left out.
    """

    places: BytesColumn
    names: BytesColumn
    kinds: int | Buffer
    values: BytesColumn


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except (OverflowError, ValueError) as error:
        raise LocalProtocolError(str(error)) from error


def header_blocks(
    count: int,
    *,
    keys: BytesColumn | None = None,
    key_kind: HeaderKind = HeaderKind.STRING,
    pairs: HeaderPairs | None = None,
    first_row: int = 0,
) -> BytesColumn:
    """Write the user headers of rows, each block as ``encode_user_headers`` does.

    Args:
        count: how many rows there are.
        keys: the keys of messages, which travel in the header ``iggy-key``.
        key_kind: the kind of that header.
        pairs: other headers; of equal names in a row the last one counts.
        first_row: the number of the first row in errors.

    Raises:
        LocalProtocolError: a key, a name or a value does not fit a header, or a block is too
            long.
    """
    with _own_errors():
        bounds, blocks = implementation.header_blocks(count, keys, key_kind, pairs, first_row)
    return BytesColumn(count, 0, None, 8, bounds, blocks)


class ContentIds:
    """Makes ids of messages that follow from what the messages hold.

    Equal messages get ids that differ, by the number of those before them. So rows that come once
    more, in another order or in other pieces, get the same ids as before, and a server with
    deduplication stores each of them once; and no row has the id of another.

    Args:
        scope: what keeps these ids apart from all others; without knowing it nobody can make
            two messages that share an id.
        contents_max: how many different messages are counted; those beyond get ids that follow
            from their place as well.
    """

    __slots__ = ("_digest", "_ids")

    def __init__(self, scope: bytes, *, contents_max: int = CONTENTS_MAX) -> None:
        digest = self._digest = blake2b(scope, digest_size=16).digest()
        low, high = (int.from_bytes(half, "little") for half in (digest[:8], digest[8:]))
        self._ids = implementation.ContentIds(low, high, contents_max)

    @property
    def contents_count(self) -> int:
        """How many different messages are counted."""
        return self._ids.contents_count

    def assign(
        self,
        payloads: BytesColumn,
        *,
        headers: BytesColumn | None = None,
        given: BytesColumn | None = None,
        place: bytes = b"",
    ) -> bytearray:
        """Make the ids of rows, 16 bytes each.

        Args:
            payloads: the payloads.
            headers: the blocks of user headers.
            given: ids that some rows bring along, which they keep.
            place: where the rows go; equal messages for other places count apart.

        Raises:
            LocalProtocolError: a payload is missing, or a given id has not 16 bytes.
        """
        with _own_errors():
            return self._ids.assign(payloads, headers, given, self._salt(place))

    def _salt(self, place: bytes) -> int:
        digest = blake2b(place, digest_size=8, key=self._digest).digest()
        return int.from_bytes(digest, "little") if place else 0


def row_partitions(
    count: int,
    partitions_count: int,
    *,
    keys: BytesColumn | None = None,
    ids: Buffer | None = None,
    otherwise: int = 0,
) -> bytearray:
    """Choose a partition for each row: by its key as producers do, or else by its id.

    Args:
        count: how many rows there are.
        partitions_count: how many partitions the topic has.
        keys: the keys of messages.
        ids: 16 bytes for each row; they spread rows the same way whenever those come again.
        otherwise: the partition of rows that have neither.

    Returns:
        Numbers of 32 bits, in the order of this machine.

    Raises:
        LocalProtocolError: the topic has no partitions.
    """
    with _own_errors():
        return implementation.row_partitions(count, keys, ids, partitions_count, otherwise)


class MessageRows(Sequence[NewMessage]):
    """Messages to be sent, in columns.

    A producer sends them as they lie. As a sequence they make a ``NewMessage`` when one is asked
    for.

    Args:
        payloads: the payloads.
        headers: the blocks of user headers.
        ids: 16 bytes for each row; zeros let the server choose.
        origins_us: the times of the producer in microseconds, signed, 64 bits.
    """

    __slots__ = ("_rows",)

    def __init__(
        self,
        payloads: BytesColumn,
        *,
        headers: BytesColumn | None = None,
        ids: Buffer | None = None,
        origins_us: BytesColumn | None = None,
    ) -> None:
        self._rows: Rows = (payloads, headers, ids, origins_us, None, 0, payloads.length)

    @classmethod
    def _of(cls, rows: Rows) -> MessageRows:
        made = cls.__new__(cls)
        made._rows = rows
        return made

    @property
    def columns(self) -> Rows:
        """What the implementations read."""
        return self._rows

    def __len__(self) -> int:
        return self._rows[6]

    @overload
    def __getitem__(self, index: int) -> NewMessage: ...
    @overload
    def __getitem__(self, index: slice) -> MessageRows: ...
    def __getitem__(self, index: int | slice) -> NewMessage | MessageRows:
        """Return one message, or rows that follow each other."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError("rows are taken in their order, without gaps")
            payloads, headers, ids, origins_us, order, first, _ = self._rows
            count = max(0, stop - start)
            return self._of((payloads, headers, ids, origins_us, order, first + start, count))
        if not -len(self) <= index < len(self):
            raise IndexError("there are fewer rows than that")
        with _own_errors():
            return NewMessage(*implementation.message_at(self._rows, index % len(self)))

    def by_partition(
        self, partitions: Buffer, partitions_count: int
    ) -> list[tuple[int, MessageRows]]:
        """Divide all rows among partitions, in their order; partitions without rows are left out.

        Args:
            partitions: a number of 32 bits for each row.
            partitions_count: how many partitions the topic has.

        Raises:
            LocalProtocolError: a number is that of no partition.
        """
        payloads, headers, ids, origins_us, order, _, count = self._rows
        assert order is None, "rows are divided once"
        assert count == payloads[0], "all rows are divided"
        with _own_errors():
            order, ends = implementation.group_rows(partitions, partitions_count)
        groups = []
        start = 0
        for number, end in enumerate(ends):
            if end > start:
                rows = (payloads, headers, ids, origins_us, order, start, end - start)
                groups.append((number, self._of(rows)))
            start = end
        return groups

    def pieces(self, *, length: int | None, size_bytes: int) -> list[tuple[MessageRows, int]]:
        """Divide the rows among requests.

        Args:
            length: messages of one request at most.
            size_bytes: bytes of one request at most, unless a single message has more.

        Returns:
            The rows of each request, and how many bytes they have.

        Raises:
            LocalProtocolError: a message is larger than servers take.
        """
        count_max = len(self) if length is None else length
        with _own_errors():
            ends, sizes = implementation.split_rows(
                self._rows, count_max, size_bytes, MESSAGE_OVERHEAD_BYTES
            )
        borders = zip([0, *ends], ends, strict=False)
        return [(self[start:end], size) for (start, end), size in zip(borders, sizes, strict=True)]

    def encode(self, metadata: bytes, *, origin_timestamp_us: int, headroom: int) -> bytearray:
        """Build the body of a SendMessages request; see ``encode_messages``."""
        with _own_errors():
            return implementation.encode_rows(metadata, self._rows, origin_timestamp_us, headroom)

    def encode_vsr(
        self,
        metadata: bytes,
        *,
        origin_timestamp_us: int,
        headroom: int,
        random: Buffer,
        producer: tuple[int, int, int] | None,
    ) -> bytearray:
        """Build the body of a SendMessages request of 0.9; see ``encode_vsr_send``."""
        with _own_errors():
            return implementation.encode_rows_vsr(
                metadata, self._rows, origin_timestamp_us, headroom, random, producer
            )

    def __repr__(self) -> str:
        return f"<MessageRows of {len(self)} messages>"
