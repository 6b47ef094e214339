"""Which offsets of each partition are read: bounds become numbers once, at the start of a read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iggy_protocol import ConsumerIdentity, GetStream, GetTopic, PollingStrategy, PollMessages
from iggy_sdk.arrow.settings import ArrowReadOptions, Bound, microseconds
from iggy_sdk.arrow.spans import Span
from iggy_sdk.errors import PartitionNotFoundError, StreamNotFoundError, TopicNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from iggy_protocol import Partition, TopicDetails
    from iggy_sdk.client_interface import ClientInterface


READER: Final = ConsumerIdentity.single("arrow")
"""The consumer of all polls. Polls by offset store nothing on a server, so readers can share it."""


class PartitionRange(NamedTuple):
    """What is read of a partition.

    Attributes:
        partition_id: its number.
        start: the first offset.
        end: the offset after the last.
        message_bytes: the mean size of its messages; 0 when it is not known.
    """

    partition_id: int
    start: int
    end: int
    message_bytes: int


class ReadPlan(NamedTuple):
    """What is read of a topic.

    Attributes:
        stream: the name of the stream.
        topic: the name of the topic.
        ranges: parts of partitions, in the order in which they are read.
    """

    stream: str
    topic: str
    ranges: list[PartitionRange]


async def plan_read(client: ClientInterface, options: ArrowReadOptions) -> ReadPlan:
    """Ask the server for the partitions and where the bounds are in them.

    Raises:
        StreamNotFoundError, TopicNotFoundError, PartitionNotFoundError: there is none.
        IggyError: the server refuses.
    """
    planner = _Planner(client, options)
    stream, topic = await planner.stream_name(), await planner.topic()
    ranges: list[PartitionRange] = []
    for partition in planner.partitions(topic):
        if partition.id not in options.wanted.partitions or options.wanted.is_empty:
            continue
        start, end = await planner.bounds(partition)
        if start < end:
            count = partition.messages_count
            mean = partition.size_bytes // count if count else 0
            ranges.append(PartitionRange(partition.id, start, end, mean))
    return ReadPlan(stream, topic.name, ranges)


class _Planner:
    def __init__(self, client: ClientInterface, options: ArrowReadOptions) -> None:
        self._client = client
        self._options = options

    async def stream_name(self) -> str:
        """Return the name of the stream, which may have been given as a number."""
        stream = self._options.stream
        if isinstance(stream, str):
            return stream
        found = await self._client.request(GetStream(stream))
        if found is None:
            raise StreamNotFoundError(f"there is no stream {stream!r}")
        return found.name

    async def topic(self) -> TopicDetails:
        """Return the topic with its partitions."""
        stream, topic = self._options.stream, self._options.topic
        found = await self._client.request(GetTopic(stream, topic))
        if found is not None:
            return found
        if await self._client.request(GetStream(stream)) is None:
            raise StreamNotFoundError(f"there is no stream {stream!r}")
        raise TopicNotFoundError(f"stream {stream!r} has no topic {topic!r}")

    def partitions(self, topic: TopicDetails) -> list[Partition]:
        """Return the partitions that are read, in their order."""
        known = {partition.id: partition for partition in topic.partitions}
        for name in ("partitions", "start", "end"):
            self._check_known(name, getattr(self._options, name), known)
        wanted = self._options.partitions
        return [known[number] for number in sorted(known if wanted is None else set(wanted))]

    def _check_known(self, name: str, given: Any, known: Mapping[int, Partition]) -> None:
        numbers: Iterable[int] = given if isinstance(given, tuple | dict) else ()
        unknown = sorted(set(numbers) - set(known))
        if unknown:
            raise PartitionNotFoundError(
                f"{name} names partition {unknown[0]}, and topic {self._options.topic!r} has "
                f"{len(known)}",
                advice="Partitions are numbered from 0.",
            )

    async def bounds(self, partition: Partition) -> tuple[int, int]:
        """Return the first offset, and the one after the last."""
        # current_offset is 0 for an empty partition and for one with a single message.
        is_used = partition.messages_count or partition.current_offset
        latest = partition.current_offset + 1 if is_used else 0
        if not latest:
            return 0, 0
        options = self._options
        start = await self._offset(partition.id, options.start, latest, default="earliest")
        end = min(latest, await self._offset(partition.id, options.end, latest, default="latest"))
        times = await self._offsets_of_times(partition.id, options.wanted.times, latest)
        for first, after in (options.wanted.offsets, times):
            start = start if first is None else max(start, first)
            end = end if after is None else min(end, after)
        return start, end

    async def _offset(self, partition_id: int, bound: Bound, latest: int, *, default: Bound) -> int:
        if isinstance(bound, dict):
            bound = bound.get(partition_id, default)
        if isinstance(bound, int):
            return bound
        if bound == "latest":
            return latest
        strategy = PollingStrategy.first()
        if not isinstance(bound, str):
            strategy = PollingStrategy.timestamp(microseconds(_as_time(bound)))
        return await self._first(partition_id, strategy, latest)

    async def _offsets_of_times(self, partition_id: int, times: Span, latest: int) -> Span:
        """Return the offsets of the messages that were stored within a span of time."""
        found = [
            None
            if time is None
            else await self._first(partition_id, PollingStrategy.timestamp(max(0, time)), latest)
            for time in times
        ]
        return Span(*found)

    async def _first(self, partition_id: int, strategy: PollingStrategy, latest: int) -> int:
        """Return the offset of the first message from there on; without one, the end."""
        stream, topic = self._options.stream, self._options.topic
        command = PollMessages(READER, stream, topic, strategy, 1, partition_id, False)
        polled = await self._client.request(command)
        found = polled.messages.first_offset
        return latest if found is None else found


def _as_time(bound: Any) -> datetime:
    moment: datetime = bound
    return moment
