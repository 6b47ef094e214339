"""Reads messages: the batch reader, and its base for the streaming reader.

A task polls its slice piece by piece, and polls the next piece while Spark processes the last one.
Messages that retention deleted meanwhile are a loss; offsets that never had a message are not.
"""

from __future__ import annotations

from bisect import bisect_left
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]  # it comes without types
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from iggy_sdk import HeaderKind, HeaderValue, ReceivedBatch
from spark_jobs.errors import DataLossError, SchemaError
from spark_jobs.offsets import Offsets, TopicPartition
from spark_jobs.pushdown import PushedFilters
from spark_jobs.schema import check_read_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from spark_jobs.options import ReadOptions


# Plan the tasks of a read: which task reads which messages of which partition.
#
# The same start and end give the same plan, because a repeated micro-batch must consist of the same
# rows in the same tasks.


@dataclass(frozen=True)
class OffsetSlice(InputPartition):
    """Messages of one partition for one task.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        start: the first offset.
        end: the offset after the last.
    """

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many messages there are, if none is missing."""
        return self.end - self.start

    def pieces(self, count: int) -> list[OffsetSlice]:
        """Split it into pieces of nearly the same size, in order."""
        cuts = [self.start + self.size * index // count for index in range(count + 1)]
        return [
            OffsetSlice(self.topic, self.partition, start, end) for start, end in pairwise(cuts)
        ]


def plan_tasks(start: Offsets, end: Offsets, options: ReadOptions) -> list[OffsetSlice]:
    """Make the tasks for everything between two offsets.

    Args:
        start: the first offset of each partition.
        end: the offset after the last of each partition that is to be read.
        options: the wanted number of tasks.
    """
    whole = [OffsetSlice(*at, start[at], end[at]) for at in sorted(end) if end[at] > start[at]]
    return split_slices(
        whole,
        min_partitions=options.min_partitions or 0,
        max_records=options.max_records_per_task or 0,
    )


def split_slices(
    slices: Iterable[OffsetSlice], *, min_partitions: int, max_records: int
) -> list[OffsetSlice]:
    """Split slices until there are enough of them, and none is too large; 0 is no limit.

    The largest is split first, so that all are nearly equal in the end.
    """
    whole = list(slices)
    counts = [max(1, -(-one.size // max_records)) if max_records else 1 for one in whole]
    wanted = min(min_partitions, sum(one.size for one in whole))
    if sum(counts) < wanted:
        total = sum(one.size for one in whole)
        counts = [
            min(one.size, max(count, one.size * wanted // total))
            for one, count in zip(whole, counts, strict=True)
        ]
    while sum(counts) < wanted:
        largest = max(range(len(whole)), key=lambda index: whole[index].size / counts[index])
        counts[largest] += 1
    return [piece for one, count in zip(whole, counts, strict=True) for piece in one.pieces(count)]


POLL_BYTES: Final = 4 << 20
"""The target size of a poll: large enough that the cost of a request does not matter, small enough
for a processor cache."""

FIRST_POLL_COUNT: Final = 1000
"""Messages of the first poll, before their size is known."""

POLL_COUNT_MAX: Final = 100_000


class SliceReader:
    """Reads slices in a Spark task; it is pickled, so it holds no connection.

    Args:
        options: where and how.
        schema: the requested columns.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_read_schema(schema)
        self.options = options
        self.schema = schema

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a slice as Arrow record batches.

        Raises:
            DataLossError: messages of the slice are lost, and ``failOnDataLoss`` is on.
        """
        # For an empty plan Spark passes a partition of its own.
        if not isinstance(partition, OffsetSlice):
            return
        # Only tasks need Arrow; the planner starts faster without it.
        from spark_jobs.reader import ArrowRowBuilder

        maker = ArrowRowBuilder(
            self.schema,
            {
                "stream": self.options.stream,
                "topic": partition.topic,
                "partition": partition.partition,
            },
        )
        for batch in self._batches(partition):
            rows = maker.rows(batch, partition.end)
            if rows.num_rows:
                yield rows

    def _batches(self, wanted: OffsetSlice) -> Iterator[ReceivedBatch[bytes]]:
        """Poll a slice from start to end, always one poll ahead."""
        at, count = wanted.start, self.options.poll_count or FIRST_POLL_COUNT
        with ThreadPoolExecutor(1, "iggy-poll") as ahead:
            pending = ahead.submit(self._poll, wanted, at, count)
            while at < wanted.end:
                batch = pending.result()
                first = batch.first_offset
                if first != at:
                    self._check_gap(wanted, at, first)
                if first is None:
                    return
                at, count = _last_offset(batch) + 1, self._next_count(batch)
                if at < wanted.end:
                    pending = ahead.submit(self._poll, wanted, at, count)
                yield batch

    def _poll(self, wanted: OffsetSlice, at: int, count: int) -> ReceivedBatch[bytes]:
        from iggy_sdk import PollingStrategy
        from spark_jobs.topics import POLL_CONSUMER, connection

        return connection(self.options.server).poll_messages(
            self.options.stream,
            wanted.topic,
            consumer=POLL_CONSUMER,
            partition_id=wanted.partition,
            strategy=PollingStrategy.offset(at),
            count=min(count, wanted.end - at),
        )

    def _next_count(self, batch: ReceivedBatch[bytes]) -> int:
        if self.options.poll_count is not None:
            return self.options.poll_count
        return max(1, min(POLL_COUNT_MAX, POLL_BYTES * len(batch) // batch.nbytes))

    def _check_gap(self, wanted: OffsetSlice, at: int, found: int | None) -> None:
        """Raise unless the missing offsets are a gap that a crashed server left.

        A gap has messages on both sides, and may be wider than the slice.
        """
        from spark_jobs.topics import earliest_offset

        if not self.options.fail_on_data_loss:
            return
        place = TopicPartition(wanted.topic, wanted.partition)
        earliest = earliest_offset(self.options, place)
        if found is not None and earliest is not None and earliest <= at:
            return
        after = wanted.end if found is None else min(found, wanted.end)
        kept = "has no messages" if earliest is None else f"begins with offset {earliest}"
        raise DataLossError(
            f"{place}: offsets {at} to {after - 1} are gone, it now {kept}; "
            "retention or a purge deleted them. Set failOnDataLoss to false to continue with what "
            "is left"
        )


def _last_offset(batch: ReceivedBatch[bytes]) -> int:
    """Return the last offset; the batch itself would make an object of every message."""
    offsets = batch.columns(payloads=False, user_headers=False).offsets
    return memoryview(offsets).cast("Q")[-1]


class BatchReader(SliceReader, DataSourceReader):
    """Reads what a topic holds now, or a part of it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._bounds = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """Ask the server for offsets and divide them into tasks."""
        from spark_jobs.topics import end_offsets, resolve

        options = self.options
        ends = end_offsets(options)
        start = resolve(options, options.starting, ends, name="startingOffsets")
        end = resolve(options, options.ending, ends, name="endingOffsets")
        for place in ends:
            self._check_end(place, max(start[place], end[place]), ends[place])
        return plan_tasks(*self._bounds.narrow(options, start, end, ends), options)

    def _check_end(self, place: TopicPartition, asked: int, end: int) -> None:
        if asked > end and self.options.fail_on_data_loss:
            raise DataLossError(
                f"{place}: offset {asked} was asked for, and it ends before {end}; give offsets up "
                "to its end, or set failOnDataLoss to false to continue with what there is"
            )


class PushdownReader(BatchReader):
    """A batch reader that polls only what the filters allow."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the supported filters; return those that Spark has to apply."""
        return [one for one in filters if not self._bounds.take_filter(one)]


# Convert polled messages to Arrow record batches, column by column.
#
# The SDK returns the columns of a batch as whole arrays, and Arrow uses their memory without a
# copy. No Python object is made for a message, unless it is compressed or has headers that are not
# strings.

ID_BYTES: Final = 16

Columns: TypeAlias = Any
"""What ``ReceivedBatch.columns()`` returns."""


class ArrowRowBuilder:
    """Builds the rows of a schema.

    Args:
        schema: the requested columns, in their order.
        constants: what is the same in all rows, such as the names of stream and topic.
    """

    def __init__(self, schema: StructType, constants: Mapping[str, str | int]) -> None:
        self._schema: Any = to_arrow_schema(schema, timezone="UTC")
        self._constants = constants
        names = set(schema.fieldNames())
        self._payloads = "payload" in names
        self._headers = "headers" in names

    def rows(self, batch: ReceivedBatch[bytes], end: int) -> Any:
        """Build a record batch of all messages before an offset.

        Raises:
            SchemaError: the schema has payload as string, and a payload is not UTF-8.
        """
        columns = batch.columns(payloads=self._payloads, user_headers=self._headers)
        count = len(batch)
        arrays = [self._array(field, columns, count) for field in self._schema]
        # Arrow takes the number of rows from the columns; without columns it needs empty structs.
        rows = (
            pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            if arrays
            else pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        )
        return rows.slice(0, rows_before(columns, end))

    def _array(self, field: Any, columns: Columns, count: int) -> Any:
        constant = self._constants.get(field.name)
        if constant is not None:
            return pa.repeat(pa.scalar(constant, field.type), count)
        return _COLUMN_BUILDERS[field.name](columns, count, field.type)


def rows_before(columns: Columns, end: int) -> int:
    """Count the messages before an offset; after retention a poll may return later ones."""
    return bisect_left(memoryview(columns.offsets).cast("Q"), end)


def _numbers(name: str) -> Callable[[Columns, int, Any], Any]:
    def make(columns: Columns, count: int, kind: Any) -> Any:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(getattr(columns, name))])

    return make


def _binary(bounds: bytearray | None, data: bytearray | None, count: int) -> Any:
    assert bounds is not None
    assert data is not None
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


def _ids(columns: Columns, count: int, kind: Any) -> Any:
    fixed = [None, pa.py_buffer(columns.ids)]
    return pa.Array.from_buffers(pa.binary(ID_BYTES), count, fixed).cast(kind)


def _payloads(columns: Columns, count: int, kind: Any) -> Any:
    payloads = _binary(columns.payload_bounds, columns.payloads, count)
    try:
        return payloads if payloads.type == kind else payloads.cast(kind)
    except pa.ArrowInvalid:
        raise SchemaError(
            "a payload is not UTF-8, and the schema has payload as string; use binary"
        ) from None


def _headers(columns: Columns, count: int, kind: Any) -> Any:
    pairs = columns.split_user_headers()
    keys_count = len(pairs.key_kinds)
    keys = _texts(pairs.key_kinds, _binary(pairs.key_bounds, pairs.keys, keys_count))
    values = _binary(pairs.value_bounds, pairs.values, keys_count)
    bounds = _bounds(pairs.pair_bounds, pairs.readable, count)
    if pa.types.is_map(kind):
        if pa.types.is_string(kind.item_type):
            values = _texts(pairs.value_kinds, values)
        return pa.MapArray.from_arrays(bounds, keys, values, type=kind)
    kinds = pa.Array.from_buffers(
        pa.uint8(), keys_count, [None, pa.py_buffer(pairs.value_kinds)]
    ).cast(pa.int32())
    names = pa.DictionaryArray.from_arrays(kinds, _KIND_NAMES).cast(pa.string())
    fields = list(kind.value_type)
    structs = pa.StructArray.from_arrays([keys, names, values], fields=fields)
    return pa.ListArray.from_arrays(bounds, structs, type=kind)


def _bounds(bounds: bytearray, readable: bytearray, count: int) -> Any:
    """Return the bounds of each row's headers; rows with unreadable headers are null."""
    validity = None
    if 0 in readable:
        flags = pa.py_buffer(bytes(readable) + b"\x01")
        known = pa.Array.from_buffers(pa.uint8(), count + 1, [None, flags])
        validity = known.cast(pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(pa.int32(), count + 1, [validity, pa.py_buffer(bounds)])


def _texts(kinds: bytearray, raw: Any) -> Any:
    """Convert keys or values to text; other kinds as Python formats them."""
    if kinds.count(HeaderKind.STRING) == len(kinds):
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            pass
    pairs = zip(kinds, raw.to_pylist(), strict=True)
    return pa.array([_text(HeaderKind(kind), data) for kind, data in pairs], pa.string())


def _text(kind: HeaderKind, data: bytes) -> str:
    if kind in (HeaderKind.RAW, HeaderKind.STRING):
        return data.decode(errors="backslashreplace")
    if kind is HeaderKind.BOOL:
        return "false" if data == b"\0" else "true"
    return str(HeaderValue(kind, data).value)


_KIND_NAMES: Final = pa.array(["", *(kind.name.lower() for kind in HeaderKind)])

_COLUMN_BUILDERS: Final[Mapping[str, Callable[[Columns, int, Any], Any]]] = {
    "offset": _numbers("offsets"),
    "timestamp": _numbers("timestamps_us"),
    "origin_timestamp": _numbers("origin_timestamps_us"),
    "checksum": _numbers("checksums"),
    "id": _ids,
    "payload": _payloads,
    "headers": _headers,
}
