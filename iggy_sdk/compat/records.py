"""What servers tell about, under the official names; ``own`` is the record of this SDK.

Times are in microseconds since 1970. What a server of an older generation does not tell is empty
or 0, as with the official client.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Generic, TypeVar, overload

import iggy_protocol
from iggy_protocol import OptionDescription, OptionFlags, OptionValue, ProtocolError
from iggy_sdk.compat.headers import (
    HeaderValue,
    UserHeaders,
    header_value_of,
    options_as_headers,
)
from iggy_sdk.compat.settings import IggyExpiry, MaxTopicSize, expiry_of, size_of
from iggy_sdk.compat.variants import ByValue

R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
AnyTopic = TypeVar("AnyTopic", bound=iggy_protocol.Topic)
AnyStream = TypeVar("AnyStream", bound=iggy_protocol.Stream)
AnyGroup = TypeVar("AnyGroup", bound=iggy_protocol.ConsumerGroup)


class Reported(Generic[R_co]):
    """What a server told.

    Attributes:
        own: the same as a record of this SDK.
    """

    __slots__ = ("own",)

    def __init__(self, own: R_co) -> None:
        """Take the record of this SDK."""
        self.own: R_co = own

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Reported) or type(other) is not type(self):
            return NotImplemented
        return bool(self.own == other.own)

    def __hash__(self) -> int:
        return hash((type(self), self.own))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.own!r}>"


class Told(Generic[T_co]):
    """An attribute that the record of this SDK has as well, perhaps at another place.

    Args:
        path: where it is in the record, as in ``key.stream.id``; by default, under its own name.
    """

    __slots__ = ("_path", "_read")

    def __init__(self, path: str = "") -> None:
        self._path = path

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._read = attrgetter(self._path or name)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Told[T_co]: ...
    @overload
    def __get__(self, instance: Reported[Any], owner: type[Any]) -> T_co: ...
    def __get__(self, instance: Reported[Any] | None, owner: type[Any]) -> T_co | Told[T_co]:
        """Return the value that the server told."""
        if instance is None:
            return self
        value: T_co = self._read(instance.own)
        return value


# The state of a partition, for requests that shall fail when it has changed.


class PartitionContext(ByValue):
    """The state of a partition that a request from 0.10 on refers to."""

    __slots__ = ("incarnation", "metadata_op", "owner_generation")
    __match_args__ = ("incarnation", "owner_generation", "metadata_op")

    def __init__(self, incarnation: int, owner_generation: int, metadata_op: int) -> None:
        """Take what an earlier message or partition told.

        Args:
            incarnation: changes when the offsets of the partition start over.
            owner_generation: changes when another member of a group owns the partition.
            metadata_op: the change of metadata that the server must have applied.
        """
        self.incarnation: int = incarnation
        self.owner_generation: int = owner_generation
        self.metadata_op: int = metadata_op

    @property
    def own(self) -> iggy_protocol.PartitionContext:
        """The context as this SDK spells it."""
        return iggy_protocol.PartitionContext(
            self.incarnation, self.owner_generation, self.metadata_op
        )


def context_of(own: iggy_protocol.PartitionContext) -> PartitionContext:
    """Return a context in the official spelling."""
    return PartitionContext(own.incarnation, own.owner_generation, own.metadata_position)


class ConsumerPosition(ByValue):
    """Where a message stands: its partition, its offset, and the state of the partition then."""

    __slots__ = ("context", "offset", "partition_id")
    __match_args__ = ("partition_id", "offset", "context")

    def __init__(self, partition_id: int, offset: int, context: PartitionContext) -> None:
        """Take what ``ReceiveMessage.position()`` told.

        Args:
            partition_id: the partition.
            offset: the offset of the message.
            context: the state of the partition when it was polled.
        """
        self.partition_id: int = partition_id
        self.offset: int = offset
        self.context: PartitionContext = context


# Streams, topics, partitions.


class Partition(Reported[iggy_protocol.Partition]):
    """One append-only log of a topic."""

    __slots__ = ()
    id: Told[int] = Told[int]()
    created_at: Told[int] = Told[int]("created_at_us")
    segments_count: Told[int] = Told[int]()
    current_offset: Told[int] = Told[int]()
    size: Told[int] = Told[int]("size_bytes")
    messages_count: Told[int] = Told[int]()

    @property
    def context(self) -> PartitionContext:
        """The state of the partition; servers before 0.10 do not tell it."""
        return context_of(self.own.context)


class TopicAttributes(Reported[AnyTopic]):
    """The attributes of Topic and TopicDetails."""

    __slots__ = ()
    id: Told[int] = Told[int]()
    name: Told[str] = Told[str]()
    messages_count: Told[int] = Told[int]()
    partitions_count: Told[int] = Told[int]()
    created_at: Told[int] = Told[int]("created_at_us")
    size: Told[int] = Told[int]("size_bytes")

    @property
    def message_expiry(self) -> IggyExpiry:
        """How long messages are kept."""
        return expiry_of(self.own.message_expiry_us)

    @property
    def compression_algorithm(self) -> str:
        """The label of the topic: none or gzip."""
        return self.own.compression.name.lower()

    @property
    def max_topic_size(self) -> MaxTopicSize:
        """How large the topic may get."""
        return size_of(self.own.max_topic_size_bytes)

    @property
    def options(self) -> UserHeaders:
        """What a client has set."""
        return options_as_headers(self.own.options)

    @property
    def derived_options(self) -> UserHeaders:
        """What the server chose."""
        return options_as_headers(self.own.derived_options)


class Topic(TopicAttributes[iggy_protocol.Topic]):
    """A topic, its settings and its totals."""

    __slots__ = ()


class TopicDetails(TopicAttributes[iggy_protocol.TopicDetails]):
    """A topic with its partitions."""

    __slots__ = ()

    @property
    def partitions(self) -> list[Partition]:
        """The partitions, which are numbered from 0 without gaps."""
        return [Partition(partition) for partition in self.own.partitions]


class StreamAttributes(Reported[AnyStream]):
    """The attributes of Stream and StreamDetails."""

    __slots__ = ()
    id: Told[int] = Told[int]()
    created_at: Told[int] = Told[int]("created_at_us")
    name: Told[str] = Told[str]()
    size: Told[int] = Told[int]("size_bytes")
    messages_count: Told[int] = Told[int]()
    topics_count: Told[int] = Told[int]()

    @property
    def options(self) -> UserHeaders:
        """What a client has set."""
        return options_as_headers(self.own.options)

    @property
    def derived_options(self) -> UserHeaders:
        """What the server chose."""
        return options_as_headers(self.own.derived_options)

    @property
    def encryption_key_source(self) -> str | None:
        """Who chose the key of the stream: stream, server or none; None if the server is silent."""
        return self._derived_text("encryption_key_source")

    @property
    def encryption_key_fingerprint(self) -> str | None:
        """What identifies the key of the stream; None for a plain one."""
        return self._derived_text("encryption_key_fingerprint")

    @property
    def encryption_kek_fingerprints(self) -> list[str]:
        """What identifies the keys of the server that seal the key of the stream."""
        told = self._derived_text("encryption_kek_fingerprint")
        return told.split(",") if told else []

    def _derived_text(self, key: str) -> str | None:
        value = self.own.derived_options.get(key)
        return None if value is None else str(value.value)


class Stream(StreamAttributes[iggy_protocol.Stream]):
    """A stream and its totals."""

    __slots__ = ()


class StreamDetails(StreamAttributes[iggy_protocol.StreamDetails]):
    """A stream with its topics."""

    __slots__ = ()

    @property
    def topics(self) -> list[Topic]:
        """The topics, by ascending id."""
        return [Topic(topic) for topic in self.own.topics]


class OptionSpec(Reported[OptionDescription]):
    """An option as a server describes it; what may be done with it servers tell from 0.10 on."""

    __slots__ = ()
    key: Told[str] = Told[str]()
    description: Told[str] = Told[str]()

    @property
    def kind(self) -> str:
        """The kind in which the server reports the value, such as uint64."""
        return self.own.kind.name.lower()

    @property
    def default_value(self) -> HeaderValue | None:
        """What the server takes where nothing is given; None if it has no value then."""
        try:
            return header_value_of(OptionValue(self.own.kind, self.own.default))
        except ProtocolError:
            return None

    @property
    def updatable(self) -> bool:
        """Whether an update may change it."""
        return OptionFlags.UPDATABLE in self.own.flags

    @property
    def resettable(self) -> bool:
        """Whether an update may give it back its default."""
        return OptionFlags.RESETTABLE in self.own.flags

    @property
    def secret(self) -> bool:
        """Whether the server never reports it."""
        return OptionFlags.SECRET in self.own.flags

    @property
    def read_only(self) -> bool:
        """Whether the server alone sets it."""
        return OptionFlags.READ_ONLY in self.own.flags

    @property
    def critical(self) -> bool:
        """Whether a client that does not know it must not go on."""
        return OptionFlags.CRITICAL in self.own.flags

    def __repr__(self) -> str:
        return f"OptionSpec(key={self.key!r}, kind={self.kind!r})"


# Groups.


class ConsumerGroupAttributes(Reported[AnyGroup]):
    """The attributes of ConsumerGroup and ConsumerGroupDetails."""

    __slots__ = ()
    id: Told[int] = Told[int]()
    name: Told[str] = Told[str]()
    partitions_count: Told[int] = Told[int]()
    members_count: Told[int] = Told[int]()


class ConsumerGroupMember(Reported[iggy_protocol.ConsumerGroupMember]):
    """A member and the partitions it reads."""

    __slots__ = ()
    id: Told[int] = Told[int]()

    @property
    def partitions_count(self) -> int:
        """How many partitions it reads."""
        return len(self.own.partitions)

    @property
    def partitions(self) -> list[int]:
        """The partitions it reads."""
        return list(self.own.partitions)


class ConsumerGroup(ConsumerGroupAttributes[iggy_protocol.ConsumerGroup]):
    """A group of a topic and its totals."""

    __slots__ = ()


class ConsumerGroupDetails(ConsumerGroupAttributes[iggy_protocol.ConsumerGroupDetails]):
    """A group with its members."""

    __slots__ = ()

    @property
    def members(self) -> list[ConsumerGroupMember]:
        """The members."""
        return [ConsumerGroupMember(member) for member in self.own.members]
