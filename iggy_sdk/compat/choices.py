"""The official spellings of choices: where to poll and to send, who polls, what a full buffer does.

``PollingStrategy``, ``Consumer`` and the values of a ``Partitioning`` say what the values of this
SDK say, and are equal to them, so both spellings may be mixed.
"""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, IntEnum
from typing import ClassVar, TypeAlias

import iggy_protocol
from iggy_protocol import ConsumerKind, Identifier, PollingKind
from iggy_sdk.compat.variants import variant
from iggy_sdk.producer import Backpressure

# Where a poll starts.


class PollingStrategy(iggy_protocol.PollingStrategy):
    """Where a poll starts."""

    __slots__ = ()
    Offset: ClassVar[type[OffsetStrategy]]
    Timestamp: ClassVar[type[TimestampStrategy]]
    First: ClassVar[type[FirstStrategy]]
    Last: ClassVar[type[LastStrategy]]
    Next: ClassVar[type[NextStrategy]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, iggy_protocol.PollingStrategy):
            return NotImplemented
        return (self.kind, self.value) == (other.kind, other.value)

    def __hash__(self) -> int:
        return super().__hash__()


@variant(PollingStrategy, "Offset")
class OffsetStrategy(PollingStrategy):
    """Start at this offset."""

    __slots__ = ()
    __match_args__ = ("value",)

    def __init__(self, value: int) -> None:
        super().__init__(PollingKind.OFFSET, value)


@variant(PollingStrategy, "Timestamp")
class TimestampStrategy(PollingStrategy):
    """Start at the first message stored at or after this time, in microseconds."""

    __slots__ = ()
    __match_args__ = ("value",)

    def __init__(self, value: int) -> None:
        super().__init__(PollingKind.TIMESTAMP, value)


@variant(PollingStrategy, "First")
class FirstStrategy(PollingStrategy):
    """Start at the oldest message."""

    __slots__ = ()
    __match_args__ = ()

    def __init__(self) -> None:
        super().__init__(PollingKind.FIRST)


@variant(PollingStrategy, "Last")
class LastStrategy(PollingStrategy):
    """Take the newest messages."""

    __slots__ = ()
    __match_args__ = ()

    def __init__(self) -> None:
        super().__init__(PollingKind.LAST)


@variant(PollingStrategy, "Next")
class NextStrategy(PollingStrategy):
    """Start behind the stored offset."""

    __slots__ = ()
    __match_args__ = ()

    def __init__(self) -> None:
        super().__init__(PollingKind.NEXT)


# Who polls.


class Consumer(iggy_protocol.ConsumerIdentity):
    """Who polls."""

    __slots__ = ()
    Single: ClassVar[type[SingleConsumer]]
    Group: ClassVar[type[GroupConsumer]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, iggy_protocol.ConsumerIdentity):
            return NotImplemented
        return (self.kind, self.id) == (other.kind, other.id)

    def __hash__(self) -> int:
        return super().__hash__()


@variant(Consumer, "Single")
class SingleConsumer(Consumer):
    """A single consumer, with offsets under its own name."""

    __slots__ = ()
    __match_args__ = ("id",)

    def __init__(self, id: Identifier) -> None:  # noqa: A002  official name
        super().__init__(ConsumerKind.SINGLE, id)


@variant(Consumer, "Group")
class GroupConsumer(Consumer):
    """A member of a consumer group, with the offsets of the group."""

    __slots__ = ()
    __match_args__ = ("id",)

    def __init__(self, id: Identifier) -> None:  # noqa: A002  official name
        super().__init__(ConsumerKind.GROUP, id)


# Where messages go.


class Partitioning:
    """Who chooses the partition of a batch; ``own`` is what this SDK says."""

    __slots__ = ("own",)

    def __init__(self, own: iggy_protocol.Partitioning) -> None:
        """Take the value of this SDK; the methods below are the official ways to make one."""
        self.own: iggy_protocol.Partitioning = own

    @staticmethod
    def balanced() -> Partitioning:
        """Let the server go round."""
        return Partitioning(iggy_protocol.Partitioning.balanced())

    @staticmethod
    def partition_id(partition_id: int) -> Partitioning:
        """Name the partition."""
        return Partitioning(iggy_protocol.Partitioning.partition(partition_id))

    @staticmethod
    def messages_key(key: str | bytes) -> Partitioning:
        """Keep everything with the same key in the same partition."""
        return Partitioning(iggy_protocol.Partitioning.key(key))

    def __eq__(self, other: object) -> bool:
        return self.own == (other.own if isinstance(other, Partitioning) else other)

    def __hash__(self) -> int:
        return hash(self.own)

    def __repr__(self) -> str:
        return repr(self.own)


AnyPartitioning: TypeAlias = iggy_protocol.Partitioning | Partitioning | int
"""Where messages go, in either spelling, or the number of the partition."""


def own_partitioning(where: AnyPartitioning | None) -> iggy_protocol.Partitioning | None:
    """Return a partitioning as this SDK spells it."""
    if isinstance(where, Partitioning):
        return where.own
    return iggy_protocol.Partitioning.partition(where) if isinstance(where, int) else where


class BackpressureMode:
    """What a background send does while the buffer is full; ``own`` is what this SDK says."""

    __slots__ = ("own",)

    def __init__(self, own: Backpressure) -> None:
        """Take the value of this SDK; the methods below are the official ways to make one."""
        self.own: Backpressure = own

    @staticmethod
    def block() -> BackpressureMode:
        """Wait for space."""
        return BackpressureMode(Backpressure.block())

    @staticmethod
    def block_with_timeout(timeout: timedelta) -> BackpressureMode:
        """Wait for space, but not longer than this."""
        return BackpressureMode(Backpressure.block(timeout))

    @staticmethod
    def fail_immediately() -> BackpressureMode:
        """Raise at once."""
        return BackpressureMode(Backpressure.fail())

    @property
    def timeout(self) -> timedelta | None:
        """How long a send waits; None where it waits without end, or not at all."""
        seconds = self.own.timeout
        return None if seconds is None else timedelta(seconds=seconds)

    def __eq__(self, other: object) -> bool:
        return self.own == (other.own if isinstance(other, BackpressureMode) else other)

    def __hash__(self) -> int:
        return hash(self.own)

    def __repr__(self) -> str:
        if not self.own.waits:
            return "BackpressureMode.fail_immediately()"
        timeout = self.timeout
        if timeout is None:
            return "BackpressureMode.block()"
        return f"BackpressureMode.block_with_timeout({timeout!r})"


# Choices without values.


class ProducerSharding(Enum):
    """How the official client spreads sends over its tasks; here one task keeps the order."""

    ORDERED = "ordered"
    BALANCED = "balanced"

    def __repr__(self) -> str:
        return str(self)


class UserStatus(IntEnum):
    """Whether a user may log in; equal to the values of this SDK."""

    Active = iggy_protocol.UserStatus.ACTIVE
    Inactive = iggy_protocol.UserStatus.INACTIVE

    def __repr__(self) -> str:
        return f"UserStatus.{self.name}"

    __str__ = __repr__
