"""What Spark stores of a query: the next offsets, and of which partitions they are.

Spark keeps it as JSON, in the checkpoint and in its progress reports, and compares the texts:

    {"orders": {"0": 10, "1": 25,
                "start": {"1": 3},
                "identity": {"0": [7, 1763596800123456, 12], "1": [7, 1763596800123456, 13]}}}

``start`` tells where the micro-batch that ends here began in partitions that it was the first to
read, so that a repeated one reads the same messages. ``identity`` tells a partition from a later
one with the same topic and number. Checkpoints of before have neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from spark_jobs.errors import OptionError
from spark_jobs.offsets import (
    IDENTITY_KEY,
    START_KEY,
    Offsets,
    TopicPartition,
    read_offsets,
    write_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable


V = TypeVar("V")

CREATION_TIME_DRIFT_US: Final = 1_000_000
"""Apache Iggy 0.8 tells another time of creation after its first restart: that at which it has
logged the creation, a moment later."""


class PartitionIdentity(NamedTuple):
    """Which partition it is, of all that had its topic and number.

    Attributes:
        topic_id: the id of the topic, which a server may give to another one later.
        created_at_us: when the partition was created.
        incarnation: changes whenever the offsets start over; 0 where a server does not tell it,
            which those before 0.10 do not.
    """

    topic_id: int
    created_at_us: int
    incarnation: int

    def continues(self, before: PartitionIdentity) -> bool:
        """Whether this is the same partition as one that was seen before."""
        is_told = self.incarnation and before.incarnation
        drift_us = self.created_at_us - before.created_at_us
        return (
            self.topic_id == before.topic_id
            and 0 <= drift_us <= CREATION_TIME_DRIFT_US
            and (not is_told or self.incarnation == before.incarnation)
        )


@dataclass(frozen=True)
class QueryOffset:
    """Where a query is.

    Attributes:
        offsets: the next message of each partition.
        starts: where the micro-batch that ends here began, in partitions that it began to read.
        identities: of which partitions these are, as far as it is known.
    """

    offsets: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    identities: Mapping[TopicPartition, PartitionIdentity] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether the query has begun."""
        return bool(self.offsets)

    def is_of(self, place: TopicPartition, identity: PartitionIdentity) -> bool:
        """Whether an offset is of this partition, as far as it can be known."""
        before = self.identities.get(place)
        return before is None or identity.continues(before)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return what Spark stores, in one canonical order."""
        written: dict[str, dict[str, Any]] = {**write_offsets(self.offsets)}
        for name, known in ((START_KEY, self.starts), (IDENTITY_KEY, self.identities)):
            for place in sorted(set(known) & set(self.offsets)):
                values = written[place.topic].setdefault(name, {})
                values[str(place.partition)] = _plain(known[place])
        return written

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> QueryOffset:
        """Read what ``to_json`` wrote.

        Raises:
            OptionError: it is of another source, as in a checkpoint of another query.
        """
        offsets = read_offsets(written)
        try:
            starts = _by_place(written, START_KEY, int)
            identities = _by_place(written, IDENTITY_KEY, _identity)
        except (AttributeError, TypeError, ValueError):
            raise OptionError(
                f"the checkpoint cannot be read: {written!r}; "
                "it is of a later release, or give the query another checkpointLocation"
            ) from None
        return cls(offsets, starts, identities)


def _by_place(
    written: Mapping[str, Any], key: str, read: Callable[[Any], V]
) -> dict[TopicPartition, V]:
    return {
        TopicPartition(topic, int(partition)): read(value)
        for topic, known in written.items()
        for partition, value in known.get(key, {}).items()
    }


def _identity(value: Any) -> PartitionIdentity:
    topic_id, created_at_us, incarnation = map(int, value)
    return PartitionIdentity(topic_id, created_at_us, incarnation)


def _plain(value: int | PartitionIdentity) -> int | list[int]:
    return list(value) if isinstance(value, tuple) else value
