"""Identifiers, consumers, polling strategies and partitioning.

An identifier is a plain ``int`` (the numeric id, 0 included) or a plain ``str`` (the name); the
Python type is the discriminant, so ``GetStream("orders")`` and ``GetStream(7)`` need no wrapper.
A text of digits stays a name: turning it into a number is a habit of clients, not of the wire.
"""

from __future__ import annotations

from enum import IntEnum

from iggy_protocol.errors import LocalProtocolError
from iggy_protocol.records import record

Identifier = int | str


class ConsumerKind(IntEnum):
    """Whether offsets belong to one consumer, to a group, or to a group outside of the server."""

    SINGLE = 1
    GROUP = 2
    EXTERNAL_GROUP = 3


class PollingKind(IntEnum):
    """Where a poll starts."""

    OFFSET = 1
    TIMESTAMP = 2
    FIRST = 3
    LAST = 4
    NEXT = 5


class PartitioningKind(IntEnum):
    """Who chooses the partition of a batch."""

    BALANCED = 1
    PARTITION_ID = 2
    MESSAGES_KEY = 3


@record
class ConsumerIdentity:
    """Who polls: a single consumer, which needs no registration, or a group of the topic."""

    kind: ConsumerKind
    id: Identifier

    @classmethod
    def single(cls, consumer: Identifier) -> ConsumerIdentity:
        """Name a single consumer; the server keeps a text under its XXH32."""
        return cls(ConsumerKind.SINGLE, consumer)

    @classmethod
    def group(cls, group: Identifier) -> ConsumerIdentity:
        """Name a consumer group."""
        return cls(ConsumerKind.GROUP, group)

    @classmethod
    def external_group(cls, group: Identifier) -> ConsumerIdentity:
        """Name a group whose members the server does not know; from 0.10 on, for offsets only."""
        return cls(ConsumerKind.EXTERNAL_GROUP, group)


@record
class PollingStrategy:
    """Where a poll starts, with its offset or time."""

    kind: PollingKind
    value: int = 0

    @classmethod
    def offset(cls, offset: int) -> PollingStrategy:
        """Start at this offset."""
        return cls(PollingKind.OFFSET, offset)

    @classmethod
    def timestamp(cls, timestamp_us: int) -> PollingStrategy:
        """Start at the first message that the server stamped at or after this time."""
        return cls(PollingKind.TIMESTAMP, timestamp_us)

    @classmethod
    def first(cls) -> PollingStrategy:
        """Start at the oldest message that is still kept."""
        return cls(PollingKind.FIRST)

    @classmethod
    def last(cls) -> PollingStrategy:
        """Take the newest messages, as many as the poll asks for."""
        return cls(PollingKind.LAST)

    @classmethod
    def next(cls) -> PollingStrategy:
        """Start behind the offset that is stored for this consumer."""
        return cls(PollingKind.NEXT)


@record
class Partitioning:
    """How the server chooses the partition of a batch; ``value`` is as on the wire."""

    kind: PartitioningKind
    value: bytes = b""

    @classmethod
    def balanced(cls) -> Partitioning:
        """Let the server go round, one partition per request."""
        return cls(PartitioningKind.BALANCED)

    @classmethod
    def partition(cls, partition_id: int) -> Partitioning:
        """Name the partition.

        Raises:
            LocalProtocolError: no partition has this number.
        """
        if not 0 <= partition_id < 2**32:
            raise LocalProtocolError(f"{partition_id} is outside the range of partition ids")
        return cls(PartitioningKind.PARTITION_ID, partition_id.to_bytes(4, "little"))

    @classmethod
    def key(cls, key: bytes | str) -> Partitioning:
        """Keep everything with the same key in the same partition."""
        return cls(
            PartitioningKind.MESSAGES_KEY, key.encode() if isinstance(key, str) else bytes(key)
        )

    @property
    def partition_id(self) -> int | None:
        """Return the named partition, or ``None`` when the server chooses."""
        if self.kind is PartitioningKind.PARTITION_ID:
            return int.from_bytes(self.value, "little")
        return None
