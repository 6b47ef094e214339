"""What servers tell about, under the official names, and the official variants of headers.

Records are those of ``iggy_protocol``: times are ``created_at_us`` and sizes ``size_bytes`` there,
where the official client says ``created_at`` and ``size``.
"""

from __future__ import annotations

from dataclasses import field
from datetime import timedelta
from enum import Enum
from typing import Literal

import iggy_protocol
from iggy_protocol import (
    record,
)
from iggy_sdk.connection_string import Credentials, PasswordLogin, TokenLogin
from iggy_sdk.consumer.auto_commit import AutoCommit as OwnAutoCommit
from iggy_sdk.options import ClientSettings, Reconnect, TlsOptions
from iggy_sdk.producer import BackgroundMode, Backpressure, DirectMode

# The official spellings of choices: where to poll and send, when to commit, how long to keep.
#
# Each gives the value of this SDK, so both spellings may be mixed. Names are those of the official
# client, capital letters included.


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


# The official configuration classes, and what they are in the options of this SDK.


class AutoLogin:
    """Who logs in on every connection."""

    @staticmethod
    def disabled() -> Credentials | None:
        """No login; call ``login_user``."""
        return None

    @staticmethod
    def username_password(username: str, password: str, /) -> Credentials | None:
        """A user with a password."""
        return PasswordLogin(username, password)

    @staticmethod
    def personal_access_token(token: str, /) -> Credentials | None:
        """The user of the token."""
        return TokenLogin(token)


@record(kw_only=True)
class TcpReconnectionConfig:
    """How a lost connection comes back."""

    enabled: bool = True
    max_retries: int | None = None
    interval: timedelta = timedelta(seconds=1)
    reestablish_after: timedelta = timedelta(seconds=5)

    def reconnect(self) -> Reconnect:
        """Say the same in the words of this SDK."""
        return Reconnect(
            enabled=self.enabled,
            retries=self.max_retries,
            delay=self.interval,
            max_delay=max(self.interval, timedelta(seconds=30)),
            reestablish_after=self.reestablish_after,
        )


@record(kw_only=True)
class TcpConfig:
    """How to reach a server over TCP."""

    server_address: str = "127.0.0.1:8090"
    auto_login: Credentials | None = None
    reconnection: TcpReconnectionConfig = field(default_factory=TcpReconnectionConfig)
    heartbeat_interval: timedelta = timedelta(seconds=5)
    tls_enabled: bool = False
    tls_domain: str = ""
    tls_ca_file: str | None = None
    tls_validate_certificate: bool = True
    nodelay: bool = False

    def settings(self) -> ClientSettings:
        """Say the same in the words of this SDK."""
        tls = TlsOptions(
            domain=self.tls_domain or None,
            ca_file=self.tls_ca_file,
            validate=self.tls_validate_certificate,
        )
        return {
            "endpoints": [self.server_address],
            "credentials": self.auto_login,
            "reconnect": self.reconnection.reconnect(),
            "heartbeat_interval": self.heartbeat_interval,
            "tls": tls if self.tls_enabled else None,
            "nodelay": self.nodelay,
        }


def DirectProducerConfig(
    *, batch_length: int = 1_000, linger_time: timedelta = timedelta(0)
) -> DirectMode:
    """Wait for the server with every call; a ``batch_length`` of 0 is no bound."""
    return DirectMode(batch_length=batch_length or None, linger_time=linger_time)


def BackgroundProducerConfig(
    *,
    num_shards: int = 1,
    linger_time: timedelta = timedelta(milliseconds=1),
    batch_size: int = 1 << 20,
    batch_length: int = 1_000,
    max_buffer_size: int = 32 << 20,
    failure_mode: Backpressure | None = None,
    max_in_flight: int = 1,
    sharding: ProducerSharding = ProducerSharding.ORDERED,
) -> BackgroundMode:
    """Send in the background; 0 is no bound.

    ``num_shards`` and ``sharding`` are taken and have no part here: order is kept for every
    destination, and several of them are served at once.
    """
    return BackgroundMode(
        linger_time=linger_time,
        batch_size=batch_size or None,
        batch_length=batch_length or None,
        max_buffer_size=max_buffer_size or None,
        max_in_flight=max(max_in_flight, num_shards) or None,
        backpressure=failure_mode or Backpressure.block(),
    )


class HeaderKey:
    """The key of a user header, by its kind."""

    Raw = staticmethod(iggy_protocol.HeaderKey.raw_bytes)
    String = staticmethod(iggy_protocol.HeaderKey.string)
    Bool = staticmethod(iggy_protocol.HeaderKey.boolean)
    Int8 = staticmethod(iggy_protocol.HeaderKey.int8)
    Int16 = staticmethod(iggy_protocol.HeaderKey.int16)
    Int32 = staticmethod(iggy_protocol.HeaderKey.int32)
    Int64 = staticmethod(iggy_protocol.HeaderKey.int64)
    Int128 = staticmethod(iggy_protocol.HeaderKey.int128)
    UnsignedInt8 = staticmethod(iggy_protocol.HeaderKey.uint8)
    UnsignedInt16 = staticmethod(iggy_protocol.HeaderKey.uint16)
    UnsignedInt32 = staticmethod(iggy_protocol.HeaderKey.uint32)
    UnsignedInt64 = staticmethod(iggy_protocol.HeaderKey.uint64)
    UnsignedInt128 = staticmethod(iggy_protocol.HeaderKey.uint128)
    Float32 = staticmethod(iggy_protocol.HeaderKey.float32)
    Float64 = staticmethod(iggy_protocol.HeaderKey.float64)


class HeaderValue:
    """The value of a user header, by its kind."""

    Raw = staticmethod(iggy_protocol.HeaderValue.raw_bytes)
    String = staticmethod(iggy_protocol.HeaderValue.string)
    Bool = staticmethod(iggy_protocol.HeaderValue.boolean)
    Int8 = staticmethod(iggy_protocol.HeaderValue.int8)
    Int16 = staticmethod(iggy_protocol.HeaderValue.int16)
    Int32 = staticmethod(iggy_protocol.HeaderValue.int32)
    Int64 = staticmethod(iggy_protocol.HeaderValue.int64)
    Int128 = staticmethod(iggy_protocol.HeaderValue.int128)
    UnsignedInt8 = staticmethod(iggy_protocol.HeaderValue.uint8)
    UnsignedInt16 = staticmethod(iggy_protocol.HeaderValue.uint16)
    UnsignedInt32 = staticmethod(iggy_protocol.HeaderValue.uint32)
    UnsignedInt64 = staticmethod(iggy_protocol.HeaderValue.uint64)
    UnsignedInt128 = staticmethod(iggy_protocol.HeaderValue.uint128)
    Float32 = staticmethod(iggy_protocol.HeaderValue.float32)
    Float64 = staticmethod(iggy_protocol.HeaderValue.float64)
