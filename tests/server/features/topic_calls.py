"""A topic that a test works with: short words for what every scenario does.

    topic = make_topic(client, partitions=3)
    topic.send("a", "b", partition=1)
    assert topic.read(partition=1) == ["a", "b"]

It says nothing that a test could want to vary in another way; that is written out with commands.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from iggy_protocol import (
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    ClientConnection,
    Command,
    ConsumerIdentity,
    CreateConsumerGroup,
    CreateStream,
    CreateTopic,
    FlushUnsavedBuffer,
    GetConsumerGroup,
    GetStream,
    GetTopic,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    NewMessage,
    Partitioning,
    PolledMessages,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StoreConsumerOffset,
)
from tests.server.wire_client import WireClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import ConsumerGroupDetails, TopicDetails

NUMBERS = itertools.count()
ALL = 100_000
SINGLE = ConsumerIdentity.single(1)


def unique(prefix: str) -> str:
    """Make a name that no other test uses."""
    return f"{prefix}-{next(NUMBERS)}"


def frame_of(command: Command[Any]) -> bytes:
    """Return the bytes that a client sends for a command."""
    return b"".join(bytes(buffer) for buffer in ClientConnection().send(command))


def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> bool:
    """Wait until something that happens in the background is true; False if it never is."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.02)
    return True


@dataclass(frozen=True, slots=True)
class TopicScene:
    """A topic as one client sees it."""

    client: WireClient
    stream: str
    topic: str
    stream_id: int
    topic_id: int

    def seen_by(self, client: WireClient) -> TopicScene:
        """Return the same topic as another client sees it."""
        return replace(self, client=client)

    def send(
        self,
        *messages: str | bytes | NewMessage,
        partition: int = 0,
        partitioning: Partitioning | None = None,
    ) -> None:
        """Send one batch."""
        batch = [item.encode() if isinstance(item, str) else item for item in messages]
        where = Partitioning.partition(partition) if partitioning is None else partitioning
        self.client.ask(SendMessages(self.stream, self.topic, where, batch))

    def poll(
        self,
        strategy: PollingStrategy | None = None,
        *,
        count: int = ALL,
        partition: int | None = 0,
        consumer: ConsumerIdentity = SINGLE,
        auto_commit: bool = False,
    ) -> PolledMessages:
        """Poll once, from the beginning unless told otherwise."""
        return self.client.ask(
            PollMessages(
                consumer,
                self.stream,
                self.topic,
                PollingStrategy.first() if strategy is None else strategy,
                count,
                partition,
                auto_commit,
            )
        )

    def read(self, strategy: PollingStrategy | None = None, **options: Any) -> list[str]:
        """Poll once and return the payloads as texts."""
        return [payload.decode() for payload in self.poll(strategy, **options).messages.payloads()]

    def offsets(self, strategy: PollingStrategy | None = None, **options: Any) -> list[int]:
        """Poll once and return the offsets."""
        return [message.offset for message in self.poll(strategy, **options).messages]

    def store(
        self, offset: int, *, partition: int | None = 0, consumer: ConsumerIdentity = SINGLE
    ) -> None:
        """Store an offset."""
        self.client.ask(StoreConsumerOffset(consumer, self.stream, self.topic, offset, partition))

    def flush(self, partition: int = 0) -> None:
        """Have unsaved messages written."""
        self.client.ask(FlushUnsavedBuffer(self.stream, self.topic, partition, fsync=True))

    def details(self) -> TopicDetails:
        """Return what the server says about the topic."""
        details = self.client.ask(GetTopic(self.stream, self.topic))
        assert details is not None
        return details

    def make_group(self, name: str = "g") -> ConsumerIdentity:
        """Create a consumer group."""
        self.client.ask(CreateConsumerGroup(self.stream, self.topic, name))
        return ConsumerIdentity.group(name)

    def join(self, group: str = "g") -> None:
        """Make this client a member."""
        self.client.ask(JoinConsumerGroup(self.stream, self.topic, group))

    def leave(self, group: str = "g") -> None:
        """End this client's membership."""
        self.client.ask(LeaveConsumerGroup(self.stream, self.topic, group))

    def group(self, group: str = "g") -> ConsumerGroupDetails:
        """Return what the server says about a group."""
        details = self.client.ask(GetConsumerGroup(self.stream, self.topic, group))
        assert details is not None
        return details

    def shares(self, group: str = "g") -> list[list[int]]:
        """Return the partitions of each member of a group."""
        return [sorted(member.partitions) for member in self.group(group).members]


def make_topic(
    client: WireClient,
    *,
    partitions: int = 1,
    message_expiry_us: int = NEVER_EXPIRES,
    max_topic_size_bytes: int = SERVER_DEFAULT,
    name: str = "t",
    stream: str | None = None,
) -> TopicScene:
    """Create a topic, in a stream of its own unless one is given."""
    if stream is None:
        made_stream = client.ask(CreateStream(unique("s")))
        stream, stream_id = made_stream.name, made_stream.id
    else:
        found = client.ask(GetStream(stream))
        assert found is not None
        stream_id = found.id
    made = client.ask(
        CreateTopic(
            stream,
            name,
            partitions,
            message_expiry_us=message_expiry_us,
            max_topic_size_bytes=max_topic_size_bytes,
        )
    )
    return TopicScene(client, stream, name, stream_id, made.id)
