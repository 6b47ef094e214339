"""Messages to be sent, from columns, in pure Python: headers, ids, partitions, encoding.

A part of ``batch_python``; import from there. A column is what Arrow has: how many values, the
index of the first one, a bitmap of those that are there, the width of a bound, the bounds, and the
data. Without bounds all values have the same width. Errors begin with the number of the row.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, TypeAlias

from xxhash import xxh3_64_intdigest, xxh32_intdigest

from iggy_protocol.batch_send_python import ID_BYTES, NO_ID, check_limits, encode, unsigned
from iggy_protocol.batch_vsr_python import encode_vsr
from iggy_protocol.frame_view import LIMIT_32, LIMIT_64
from iggy_protocol.layout import Buffer
from iggy_protocol.message_columns import KEY_OR_VALUE_HEAD, KIND_BYTES
from iggy_protocol.message_view import NewMessage, as_bytes_view
from iggy_protocol.user_headers import BLOCK_BYTES_MAX, BYTES_MAX, HeaderKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


Column: TypeAlias = tuple[int, int, Buffer | None, int, Buffer | None, Buffer]
"""Count, first index, validity, width, bounds, data."""
Pairs: TypeAlias = tuple[Column, Column, int | Buffer, Column]
"""The lists of pairs, whose data is empty; names, kinds and values of all pairs."""
Rows: TypeAlias = tuple[
    Column, Column | None, Buffer | None, Column | None, Buffer | None, int, int
]
"""Payloads, user headers, ids, origin timestamps, the order of rows, the first row, the count."""

HEADERS_FACTOR = 0x9E3779B97F4A7C15
OCCURRENCE_FACTOR = 0xC2B2AE3D27D4EB4F
"""Odd numbers: products with them differ, modulo 2^64, wherever what is multiplied differs."""
NOT_COUNTED = 1 << 63
"""Above it are the occurrences of rows whose contents are no longer counted."""

_KEY_HEADER = b"iggy-key"
_STRING = int(HeaderKind.STRING)
_TIME_BYTES = 8


# ---- reading columns


class ColumnReader:
    """Reads single values of a column, after its sizes were checked."""

    def __init__(self, column: Column) -> None:
        self.count, self._start, validity, self._width, bounds, data = column
        if self.count < 0 or self._start < 0 or self._width < 0:
            raise ValueError("a column is shorter than it says")
        self._validity = None if validity is None else as_bytes_view(validity)
        self._bounds: memoryview | None = None
        self._data = as_bytes_view(data)
        if self._validity is not None:
            self._check_room(self.count, 8 * len(self._validity))
        if bounds is None:
            return
        if self._width not in (4, 8):
            raise ValueError("bounds have 32 or 64 bits")
        memory = as_bytes_view(bounds)
        self._check_room(self.count + 1, len(memory) // self._width)
        whole = len(memory) // self._width * self._width
        self._bounds = memory[:whole].cast("i" if self._width == 4 else "q")

    def _check_room(self, count: int, size: int) -> None:
        if self._start + count > size:
            raise ValueError("a column is shorter than it says")

    def span(self, index: int) -> tuple[int, int] | None:
        """Say where a value lies; None if it is missing."""
        at = self._start + index
        if self._validity is not None and not self._validity[at >> 3] >> (at & 7) & 1:
            return None
        if self._bounds is None:
            return self._width * at, self._width * (at + 1)
        return self._bounds[at], self._bounds[at + 1]

    def value(self, index: int) -> memoryview | None:
        """Return a value; None if it is missing."""
        span = self.span(index)
        if span is None:
            return None
        if not 0 <= span[0] <= span[1] <= len(self._data):
            raise ValueError("a value of a column lies outside of its data")
        return self._data[span[0] : span[1]]

    def __iter__(self) -> Iterator[memoryview | None]:
        return map(self.value, range(self.count))


def _read(column: Column | None, count: int) -> Iterable[memoryview | None]:
    """Read a column that has as many values as others; all are missing if there is none."""
    if column is None:
        return repeat(None, count)
    if column[0] != count:
        raise ValueError("the columns have different numbers of values")
    return ColumnReader(column)


# ---- user headers


def header_blocks(
    count: int, keys: Column | None, key_kind: int, pairs: Pairs | None, first_row: int, /
) -> tuple[bytearray, bytearray]:
    """Write the user headers of rows: bounds of 64 bits, and the blocks.

    Args:
        count: how many rows there are.
        keys: the key of each message, which travels in a header of its own.
        key_kind: the kind of that header.
        pairs: the other headers; of equal names the last one counts.
        first_row: the number of the first row in errors.
    """
    if count < 0:
        raise ValueError("a column is shorter than it says")
    pairs_of = None if pairs is None else _PairReader(pairs, count)
    blocks = []
    for row, key in enumerate(_read(keys, count)):
        number = row + first_row
        named = {} if pairs_of is None else pairs_of.pairs(row, number)
        if key is not None:
            _check_key(number, len(key))
            named.setdefault(_KEY_HEADER, (key_kind, bytes(key)))
        block = b"".join(_pair(name, *named[name]) for name in sorted(named))
        if len(block) > BLOCK_BYTES_MAX:
            raise ValueError(
                f"row {number}: user headers have at most {BLOCK_BYTES_MAX} bytes, not {len(block)}"
            )
        blocks.append(block)
    bounds = array("q", accumulate(map(len, blocks), initial=0))
    return bytearray(bounds.tobytes()), bytearray().join(blocks)


class _PairReader:
    """Reads the pairs of a row; those without a value are left out."""

    def __init__(self, pairs: Pairs, count: int) -> None:
        places, names, kinds, values = pairs
        if places[0] != count or names[0] != values[0]:
            raise ValueError("the columns have different numbers of values")
        self._places, self._names = ColumnReader(places), ColumnReader(names)
        self._values, self._kind = ColumnReader(values), 0
        self._kinds: memoryview | None = None
        if isinstance(kinds, int):
            self._kind = unsigned(kinds, "kind", 1)
            return
        self._kinds = as_bytes_view(kinds)
        if len(self._kinds) < names[0]:
            raise ValueError("a column is shorter than it says")

    def pairs(self, row: int, number: int) -> dict[bytes, tuple[int, bytes]]:
        """Return kinds and values by names; ``number`` is the row in errors."""
        span = self._places.span(row)
        found: dict[bytes, tuple[int, bytes]] = {}
        if span is None:
            return found
        if not 0 <= span[0] <= span[1] <= self._names.count:
            raise ValueError("a value of a column lies outside of its data")
        for at in range(*span):
            name, value = self._names.value(at), self._values.value(at)
            if value is None:
                continue
            if name is None:
                raise ValueError(f"row {number}: a header has no key")
            kind = self._kind if self._kinds is None else self._kinds[at]
            _check_half(number, "key", len(name))
            _check_value(number, kind, len(value))
            found[bytes(name)] = kind, bytes(value)
        return found


def _check_half(row: int, noun: str, size: int) -> None:
    if not 1 <= size <= BYTES_MAX:
        raise ValueError(f"row {row}: a header {noun} has 1 to {BYTES_MAX} bytes, not {size}")


def _check_key(row: int, size: int) -> None:
    if not 1 <= size <= BYTES_MAX:
        raise ValueError(f"row {row}: a key has 1 to {BYTES_MAX} bytes, not {size}")


def _check_value(row: int, kind: int, size: int) -> None:
    _check_half(row, "value", size)
    if not 1 <= kind < len(KIND_BYTES):
        raise ValueError(f"row {row}: no header kind has the code {kind}")
    if KIND_BYTES[kind] not in (0, size):
        raise ValueError(
            f"row {row}: a header value of kind {kind} has {KIND_BYTES[kind]} bytes, not {size}"
        )


def _pair(name: bytes, kind: int, value: bytes) -> bytes:
    return b"".join(
        (
            KEY_OR_VALUE_HEAD.pack(_STRING, len(name)),
            name,
            KEY_OR_VALUE_HEAD.pack(kind, len(value)),
            value,
        )
    )


# ---- ids


class ContentIds:
    """Makes ids that follow from what messages hold, and from how often the same was there before.

    An id is two seeded hashes of payload and user headers. The length of the headers is added to
    the first, so that another border between the two makes another id; the number of times that
    the same was there before is added to the second. So the ids of one object differ for all rows
    whose contents are equal, and whoever does not know the seeds cannot make others equal.

    Counting takes memory, so only ``contents_max`` contents are counted. Rows of others get
    numbers of their own, which are never used twice.

    Args:
        low_seed: of the first hash.
        high_seed: of the second one.
        contents_max: how many different contents are counted.
    """

    def __init__(self, low_seed: int, high_seed: int, contents_max: int, /) -> None:
        self._low_seed = unsigned(low_seed, "seed", 8)
        self._high_seed = unsigned(high_seed, "seed", 8)
        self._contents_max = unsigned(contents_max, "number of contents", 8)
        self._counts: dict[int, int] = {}
        self._uncounted = 0

    @property
    def contents_count(self) -> int:
        """How many different contents are counted."""
        return len(self._counts)

    def assign(
        self, payloads: Column, headers: Column | None, given: Column | None, salt: int, /
    ) -> bytearray:
        """Return the ids of rows, 16 bytes each.

        Args:
            payloads: the payloads, none of which may be missing.
            headers: the user headers.
            given: ids that rows bring along; they stay, unless they are missing or zero.
            salt: is added to the first hash, so that these rows count apart.
        """
        count, salt = payloads[0], unsigned(salt, "salt", 8)
        blocks, own = _read(headers, count), _read(given, count)
        ids = bytearray()
        for row, (payload, block, mine) in enumerate(
            zip(ColumnReader(payloads), blocks, own, strict=True)
        ):
            if payload is None:
                raise ValueError(f"row {row}: there is no payload")
            if mine is not None and len(mine) != ID_BYTES:
                raise ValueError(f"row {row}: an id has {ID_BYTES} bytes, not {len(mine)}")
            is_given = mine is not None and mine != NO_ID
            ids += mine if mine is not None and is_given else self._id(payload, block or b"", salt)
        return ids

    def _id(self, payload: memoryview, block: Buffer, salt: int) -> bytes:
        content = bytes(payload) + block
        low = xxh3_64_intdigest(content, self._low_seed)
        high = xxh3_64_intdigest(content, self._high_seed)
        low = (low + salt + HEADERS_FACTOR * len(block)) % LIMIT_64
        high = (high + OCCURRENCE_FACTOR * self._occurrence(low)) % LIMIT_64
        return low.to_bytes(8, "little") + high.to_bytes(8, "little")

    def _occurrence(self, low: int) -> int:
        seen = self._counts.get(low)
        if seen is None and len(self._counts) >= self._contents_max:
            self._uncounted += 1
            return NOT_COUNTED + self._uncounted
        seen = seen or 0
        self._counts[low] = seen + 1
        return seen


# ---- partitions


def row_partitions(
    count: int, keys: Column | None, ids: Buffer | None, partitions_count: int, otherwise: int, /
) -> bytearray:
    """Choose a partition for each row: by its key, else by its id, else the same for all.

    Returns:
        Numbers of 32 bits, in the order of this machine.
    """
    if count < 0:
        raise ValueError("a column is shorter than it says")
    if partitions_count < 1:
        raise ValueError("a topic without partitions takes no messages")
    own = None if ids is None else as_bytes_view(ids)
    if own is not None and len(own) < ID_BYTES * count:
        raise ValueError("there are fewer ids than rows")
    chosen = array("I")
    for row, key in enumerate(_read(keys, count)):
        if key is not None:
            chosen.append(xxh32_intdigest(key) % partitions_count)
        elif own is not None:
            low = int.from_bytes(own[ID_BYTES * row : ID_BYTES * row + 8], "little")
            chosen.append(low % partitions_count)
        else:
            chosen.append(otherwise)
    return bytearray(chosen.tobytes())


def group_rows(partitions: Buffer, partitions_count: int, /) -> tuple[bytearray, list[int]]:
    """Put the rows of each partition together, in their order.

    Returns:
        The order of rows as numbers of 32 bits, and where the rows of each partition end.
    """
    numbers = as_bytes_view(partitions).cast("I")
    groups: list[list[int]] = [[] for _ in range(partitions_count)]
    for row, number in enumerate(numbers):
        if number >= partitions_count:
            raise ValueError(f"row {row}: there is no partition {number}")
        groups[number].append(row)
    order = array("I", [row for group in groups for row in group])
    return bytearray(order.tobytes()), list(accumulate(map(len, groups)))


# ---- encoding


def _with_time(times: tuple[int, int] | None, time_us: int | None) -> tuple[int, int] | None:
    """Widen the earliest and the latest time of a request; None if its messages bring none."""
    if time_us is None:
        return None
    return (time_us, time_us) if times is None else (min(times[0], time_us), max(times[1], time_us))


def _fits(before: tuple[int, int] | None, after: tuple[int, int] | None) -> bool:
    """Tell whether a message fits into a request: all bring their times, or none does."""
    if before is None or after is None:
        return before is after
    return after[1] - after[0] < LIMIT_32


def split_rows(
    rows: Rows, count_max: int, bytes_max: int, overhead: int, /
) -> tuple[list[int], list[int]]:
    """Divide rows among requests.

    Args:
        rows: the rows.
        count_max: messages of one request at most.
        bytes_max: their bytes at most, unless a single message has more.
        overhead: bytes that each message has beside its contents.

    A request ends as well where the times of its messages would lie too far apart for one batch of
    0.9, which counts them from the earliest one in 32 bits.

    Returns:
        Where each request ends, counted from the first row, and how many bytes it has.
    """
    ends: list[int] = []
    sizes: list[int] = []
    start = total = 0
    times: tuple[int, int] | None = None
    messages = _messages(rows)
    for at, (payload, _, user_headers, time_us) in enumerate(messages):
        check_limits(at, len(payload), len(user_headers))
        size = len(payload) + len(user_headers) + overhead
        wider = _with_time(times, time_us)
        is_full = at - start >= count_max or total + size > bytes_max
        if at > start and (is_full or not _fits(times, wider)):
            ends.append(at)
            sizes.append(total)
            start, total, wider = at, 0, _with_time(None, time_us)
        total, times = total + size, wider
    if messages:
        ends.append(len(messages))
        sizes.append(total)
    return ends, sizes


def _messages(rows: Rows) -> list[NewMessage]:
    payloads, headers, ids, origins, order, first, count = rows
    numbers = range(payloads[0]) if order is None else as_bytes_view(order).cast("I")
    if first < 0 or count < 0 or first + count > len(numbers):
        raise ValueError("there are fewer rows than that")
    own = None if ids is None else as_bytes_view(ids)
    if own is not None and len(own) < ID_BYTES * payloads[0]:
        raise ValueError("there are fewer ids than rows")
    _check_counts(payloads[0], headers, origins)
    payload_of = ColumnReader(payloads)
    headers_of = None if headers is None else ColumnReader(headers)
    origin_of = None if origins is None else ColumnReader(origins)
    messages = []
    for row in numbers[first : first + count]:
        if row >= payloads[0]:
            raise ValueError(f"there is no row {row}")
        payload = payload_of.value(row)
        if payload is None:
            raise ValueError(f"row {row}: there is no payload")
        id_bytes = b"" if own is None else own[ID_BYTES * row : ID_BYTES * (row + 1)]
        block = None if headers_of is None else headers_of.value(row)
        origin = None if origin_of is None else origin_of.value(row)
        messages.append(
            NewMessage(
                payload,
                int.from_bytes(id_bytes, "little"),
                b"" if block is None else bytes(block),
                None if origin is None else _time(row, origin),
            )
        )
    return messages


def _check_counts(count: int, *columns: Column | None) -> None:
    if any(column is not None and column[0] != count for column in columns):
        raise ValueError("the columns have different numbers of values")


def _time(row: int, value: memoryview) -> int:
    if len(value) != _TIME_BYTES:
        raise ValueError("a time has 64 bits")
    time_us: int = value.cast("q")[0]
    if time_us < 0:
        raise ValueError(f"row {row}: the origin timestamp is before 1970")
    return time_us


def message_at(rows: Rows, index: int, /) -> tuple[bytes, int, bytes, int | None]:
    """Copy one of the rows: payload, id, user headers, origin timestamp."""
    payloads, headers, ids, origins, order, first, _ = rows
    (message,) = _messages((payloads, headers, ids, origins, order, first + index, 1))
    return (
        bytes(message.payload),
        message.id,
        bytes(message.user_headers),
        message.origin_timestamp_us,
    )


def encode_rows(
    metadata: bytes, rows: Rows, origin_timestamp_us: int, headroom: int, /
) -> bytearray:
    """Build a request body, as ``encode`` does."""
    return encode(metadata, _messages(rows), origin_timestamp_us, headroom)


def encode_rows_vsr(
    metadata: bytes,
    rows: Rows,
    origin_timestamp_us: int,
    headroom: int,
    random: Buffer,
    producer: tuple[int, int, int] | None,
    /,
) -> bytearray:
    """Build a request body of 0.9, as ``encode_vsr`` does."""
    return encode_vsr(metadata, _messages(rows), origin_timestamp_us, headroom, random, producer)
