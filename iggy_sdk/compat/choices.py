"""The official spellings of choices: where to poll and send, when to commit, how long to keep.

Each gives the value of this SDK, so both spellings may be mixed. Names are those of the official
client, capital letters included.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Literal

import iggy_protocol
from iggy_sdk.consumer.auto_commit import AutoCommit as OwnAutoCommit
from iggy_sdk.producer import Backpressure

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = [
    "AutoCommit",
    "AutoCommitAfter",
    "AutoCommitWhen",
    "BackpressureMode",
    "Consumer",
    "IggyExpiry",
    "MaxTopicSize",
    "Partitioning",
    "PollingStrategy",
    "ProducerSharding",
]


class PollingStrategy:
    """Where a poll starts."""

    @staticmethod
    def Offset(value: int) -> iggy_protocol.PollingStrategy:
        """Start at this offset."""
        return iggy_protocol.PollingStrategy.offset(value)

    @staticmethod
    def Timestamp(value: int) -> iggy_protocol.PollingStrategy:
        """Start at the first message stored at or after this time, in microseconds."""
        return iggy_protocol.PollingStrategy.timestamp(value)

    @staticmethod
    def First() -> iggy_protocol.PollingStrategy:
        """Start at the oldest message."""
        return iggy_protocol.PollingStrategy.first()

    @staticmethod
    def Last() -> iggy_protocol.PollingStrategy:
        """Take the newest messages."""
        return iggy_protocol.PollingStrategy.last()

    @staticmethod
    def Next() -> iggy_protocol.PollingStrategy:
        """Start behind the stored offset."""
        return iggy_protocol.PollingStrategy.next()

    offset, timestamp, first, last, next = Offset, Timestamp, First, Last, Next


class AutoCommitWhen:
    """Store the offset when something is delivered: at most once."""

    @staticmethod
    def PollingMessages() -> OwnAutoCommit:
        """Store as part of the poll."""
        return OwnAutoCommit.when_polling()

    @staticmethod
    def ConsumingAllMessages() -> OwnAutoCommit:
        """Store when the last message of a poll is delivered."""
        return OwnAutoCommit.when_all()

    @staticmethod
    def ConsumingEachMessage() -> OwnAutoCommit:
        """Store when each message is delivered."""
        return OwnAutoCommit.when_each()

    @staticmethod
    def ConsumingEveryNthMessage(n: int, /) -> OwnAutoCommit:
        """Store when every nth message is delivered."""
        return OwnAutoCommit.when_every_nth(n)


class AutoCommitAfter:
    """Store the offset after something was processed: at least once."""

    @staticmethod
    def ConsumingAllMessages() -> OwnAutoCommit:
        """Store after the last message of a poll."""
        return OwnAutoCommit.after_all()

    @staticmethod
    def ConsumingEachMessage() -> OwnAutoCommit:
        """Store after each message."""
        return OwnAutoCommit.after_each(coalesce_messages=1)

    @staticmethod
    def ConsumingEveryNthMessage(n: int, /) -> OwnAutoCommit:
        """Store after every nth message."""
        return OwnAutoCommit.after_every_nth(n)


class AutoCommit:
    """When offsets are stored without being asked for."""

    @staticmethod
    def Disabled() -> OwnAutoCommit:
        """Store nothing; ``store_offset`` does."""
        return OwnAutoCommit.disabled()

    @staticmethod
    def Interval(interval: timedelta, /) -> OwnAutoCommit:
        """Store every so often what was processed."""
        return OwnAutoCommit.interval(interval)

    @staticmethod
    def IntervalOrWhen(interval: timedelta, when: OwnAutoCommit, /) -> OwnAutoCommit:
        """Store every so often, and when ``AutoCommitWhen`` says so."""
        return OwnAutoCommit.interval(interval, or_=when)

    @staticmethod
    def IntervalOrAfter(interval: timedelta, after: OwnAutoCommit, /) -> OwnAutoCommit:
        """Store every so often, and after what ``AutoCommitAfter`` says."""
        return OwnAutoCommit.interval(interval, or_=after)

    @staticmethod
    def When(when: OwnAutoCommit, /) -> OwnAutoCommit:
        """Store when ``AutoCommitWhen`` says so."""
        return when

    @staticmethod
    def After(after: OwnAutoCommit, /) -> OwnAutoCommit:
        """Store after what ``AutoCommitAfter`` says."""
        return after


class Consumer:
    """Who polls."""

    @staticmethod
    def Single(id: iggy_protocol.Identifier) -> iggy_protocol.Consumer:  # noqa: A002  official name
        """Name a single consumer."""
        return iggy_protocol.Consumer.single(id)

    @staticmethod
    def Group(id: iggy_protocol.Identifier) -> iggy_protocol.Consumer:  # noqa: A002  official name
        """Name a consumer group."""
        return iggy_protocol.Consumer.group(id)


class Partitioning:
    """Who chooses the partition of a batch."""

    @staticmethod
    def balanced() -> iggy_protocol.Partitioning:
        """Let the server go round."""
        return iggy_protocol.Partitioning.balanced()

    @staticmethod
    def partition_id(partition_id: int, /) -> iggy_protocol.Partitioning:
        """Name the partition."""
        return iggy_protocol.Partitioning.partition(partition_id)

    @staticmethod
    def messages_key(key: str | bytes, /) -> iggy_protocol.Partitioning:
        """Keep everything with the same key in the same partition."""
        return iggy_protocol.Partitioning.key(key)


class BackpressureMode:
    """What a background send does while the buffer is full."""

    @staticmethod
    def block() -> Backpressure:
        """Wait for space."""
        return Backpressure.block()

    @staticmethod
    def block_with_timeout(timeout: timedelta, /) -> Backpressure:
        """Wait for space, but not longer than this."""
        return Backpressure.block(timeout)

    @staticmethod
    def fail_immediately() -> Backpressure:
        """Raise at once."""
        return Backpressure.fail()


class ProducerSharding(Enum):
    """How the official client spreads sends over its tasks; here one task keeps the order."""

    ORDERED = "ordered"
    BALANCED = "balanced"


class IggyExpiry:
    """How long messages are kept."""

    @staticmethod
    def ServerDefault() -> None:
        """As the server is set to."""

    @staticmethod
    def ExpireDuration(duration: timedelta, /) -> timedelta:
        """So long."""
        return duration

    @staticmethod
    def NeverExpire() -> Literal["never"]:
        """For ever."""
        return "never"


class MaxTopicSize:
    """How large a topic may get."""

    @staticmethod
    def ServerDefault() -> None:
        """As the server is set to."""

    @staticmethod
    def Custom(size_bytes: int, /) -> int:
        """So many bytes."""
        return size_bytes

    @staticmethod
    def Unlimited() -> Literal["unlimited"]:
        """Without a bound."""
        return "unlimited"
