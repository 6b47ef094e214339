"""Where messages go: destinations, and the partition of a key.

A destination is a stream, a topic and a partitioning; messages with the same destination may share
a request. A server places a whole request by one key, so messages with different keys could never
share one. Therefore the client computes the partition of a key, with the server's own hash, while
it knows the number of partitions; it requests the number again every ``PARTITIONS_MAX_AGE_S``. For
users without the permission to read the topic, every key is a destination of its own and the
server does the hashing.

After partitions were added, keys may go by the old number for that long. A key moves to another
partition then in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from iggy_protocol import (
    SERVER_DEFAULT,
    Command,
    CreateStream,
    CreateTopic,
    GetStream,
    GetTopic,
    Identifier,
    Partitioning,
    TopicDetails,
    partition_for_key,
)
from iggy_sdk.durations import to_microseconds
from iggy_sdk.errors import (
    IggyError,
    InvalidRequestError,
    PermissionDeniedError,
    StreamExistsError,
    StreamNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
    describe_command,
)
from iggy_sdk.topic_difference import check_same_topic

if TYPE_CHECKING:
    from iggy_sdk.client_interface import ClientInterface
    from iggy_sdk.deadline import Deadline
    from iggy_sdk.producer.options import NewTopic, ProducerOptions


R = TypeVar("R")

PARTITIONS_MAX_AGE_S: Final = 10.0
"""How long the number of partitions is cached. Partitions are added by people, not by programs."""

KEY_BYTES_MAX: Final = 255
"""The wire gives the length of a key one byte."""

ENTERING_FRAMES: Final = 5
"""How many calls are between a check of the topic and the block that enters a producer."""

_BALANCED: Final = Partitioning.balanced()


def key_bytes(key: str | bytes) -> bytes:
    """Encode a key.

    Raises:
        InvalidRequestError: it is empty or too long.
    """
    data = key.encode() if isinstance(key, str) else key
    if not 1 <= len(data) <= KEY_BYTES_MAX:
        raise InvalidRequestError(
            f"a key of {len(data)} bytes",
            advice=f"Use a key of 1 to {KEY_BYTES_MAX} bytes, such as a hash of a longer one.",
        )
    return data


class Destination:
    """A stream, a topic and a partitioning. Hashed once, because every message looks it up."""

    __slots__ = ("_hash", "is_keyed", "partitioning", "stream", "topic")

    def __init__(
        self,
        stream: Identifier,
        topic: Identifier,
        partitioning: Partitioning,
        *,
        is_keyed: bool = False,
    ) -> None:
        self.stream: Identifier = stream
        self.topic: Identifier = topic
        self.partitioning: Partitioning = partitioning
        self.is_keyed: bool = is_keyed
        self._hash = hash((stream, topic, partitioning, is_keyed))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Destination):
            return NotImplemented
        return (
            self.partitioning == other.partitioning
            and self.stream == other.stream
            and self.topic == other.topic
            and self.is_keyed == other.is_keyed
        )

    def __repr__(self) -> str:
        return f"Destination({self.stream!r}, {self.topic!r}, {self.partitioning!r})"


class TopicRoute:
    """One topic as a producer sees it.

    Args:
        client: asks for the number of partitions.
        stream: id or name of the stream.
        topic: id or name of the topic.
    """

    def __init__(self, client: ClientInterface, stream: Identifier, topic: Identifier) -> None:
        self._client = client
        self.stream = stream
        self.topic = topic
        self.balanced: Destination = Destination(stream, topic, _BALANCED)
        self.partitions_count: int | None = None
        self.has_keys: bool = False
        self._counted_at: float | None = None
        self._may_read_topic = True
        self._keyed: list[Destination] = []

    def to(self, partitioning: Partitioning) -> Destination:
        """Return the destination of a partitioning; the server hashes its key, if any."""
        return Destination(self.stream, self.topic, partitioning)

    def to_key(self, key: bytes) -> Destination:
        """Return the destination of a key, shared with the other keys of its partition."""
        self.has_keys = True
        if self.partitions_count is None:
            return Destination(self.stream, self.topic, Partitioning.key(key), is_keyed=True)
        return self._keyed[partition_for_key(key, self.partitions_count)]

    def set_partitions_count(self, partitions_count: int | None, *, now: float) -> None:
        """Record how many partitions the topic has."""
        self._counted_at = now
        if partitions_count == self.partitions_count:
            return
        self.partitions_count = partitions_count or None
        self._keyed = [
            Destination(self.stream, self.topic, Partitioning.partition(number), is_keyed=True)
            for number in range(partitions_count or 0)
        ]

    def is_stale(self, now: float) -> bool:
        """Tell whether the number of partitions should be requested."""
        if not self._may_read_topic:
            return False
        return self._counted_at is None or now - self._counted_at >= PARTITIONS_MAX_AGE_S

    async def refresh_partitions(self, *, now: float, seconds: float | None = None) -> None:
        """Request how many partitions the topic has; keep the old number after an error.

        Args:
            now: the time.
            seconds: how long it may take; None takes the ``request_timeout`` of the client.
        """
        try:
            topic = await self._client.request(GetTopic(self.stream, self.topic), timeout=seconds)
        except PermissionDeniedError:
            self._may_read_topic = False
            self.set_partitions_count(None, now=now)
        except IggyError:
            self._counted_at = now
        else:
            self.set_partitions_count(None if topic is None else topic.partitions_count, now=now)


# Checking before the first message that stream and topic exist, or creating them.
#
# Another client may create them at the same time; then those are used. Nothing is created unless
# the options say so, because a typing error would otherwise become a topic.


async def ensure_topic(
    client: ClientInterface,
    stream: Identifier,
    topic: Identifier,
    options: ProducerOptions,
    deadline: Deadline,
) -> int | None:
    """Make sure that the topic exists, by the deadline.

    Returns:
        How many partitions it has, or None without the permission to read it.

    Raises:
        StreamNotFoundError, TopicNotFoundError: it does not, and was not to be created.
    """
    try:
        details = await _find_topic(client, stream, topic, deadline)
    except PermissionDeniedError:
        return None
    new = options.create_topic_if_not_exists
    if details is not None:
        _check_same(stream, details, new)
    else:
        await _ensure_stream(client, stream, options, deadline)
        details = await _create_topic(client, stream, topic, new, deadline)
    return details.partitions_count


def _check_same(stream: Identifier, found: TopicDetails, new: NewTopic | None) -> None:
    """Warn of a topic that another has created, and that is not as the options say explicitly."""
    if new is None:
        return
    command = _create_topic_command(stream, found.name, new)
    asked: dict[str, object] = {}
    if new.partitions_count is not None:
        asked["partitions_count"] = command.partitions_count
    if new.message_expiry is not None:
        asked["message_expiry_us"] = command.message_expiry_us
    if new.max_topic_size is not None:
        asked["max_topic_size_bytes"] = command.max_topic_size_bytes
    check_same_topic(stream, found, asked, caller_frames=ENTERING_FRAMES)


async def _request(client: ClientInterface, command: Command[R], deadline: Deadline) -> R:
    return await client.request(command, timeout=deadline.rest_for(describe_command(command)))


async def _find_topic(
    client: ClientInterface, stream: Identifier, topic: Identifier, deadline: Deadline
) -> TopicDetails | None:
    try:
        return await _request(client, GetTopic(stream, topic), deadline)
    except (StreamNotFoundError, TopicNotFoundError):
        return None


async def _ensure_stream(
    client: ClientInterface, stream: Identifier, options: ProducerOptions, deadline: Deadline
) -> None:
    if await _request(client, GetStream(stream), deadline) is not None:
        return
    if not options.create_stream_if_not_exists or isinstance(stream, int):
        raise StreamNotFoundError(
            f"there is no stream {stream!r}",
            advice="Check its name, or set create_stream_if_not_exists.",
        )
    try:
        await _request(client, CreateStream(stream), deadline)
    except StreamExistsError:
        return


async def _create_topic(
    client: ClientInterface,
    stream: Identifier,
    topic: Identifier,
    new: NewTopic | None,
    deadline: Deadline,
) -> TopicDetails:
    absent = TopicNotFoundError(
        f"stream {stream!r} has no topic {topic!r}",
        advice="Check its name, or set create_topic_if_not_exists.",
    )
    if new is None or isinstance(topic, int):
        raise absent
    try:
        return await _request(client, _create_topic_command(stream, topic, new), deadline)
    except TopicExistsError:
        details = await _request(client, GetTopic(stream, topic), deadline)
    if details is None:
        raise absent
    _check_same(stream, details, new)
    return details


def _create_topic_command(stream: Identifier, name: str, new: NewTopic) -> CreateTopic:
    expiry = new.message_expiry
    return CreateTopic(
        stream,
        name,
        1 if new.partitions_count is None else new.partitions_count,
        message_expiry_us=SERVER_DEFAULT if expiry is None else to_microseconds(expiry),
        max_topic_size_bytes=SERVER_DEFAULT if new.max_topic_size is None else new.max_topic_size,
        replication_factor=new.replication_factor or 0,
    )
