"""A small server in memory that stores what it is sent and misbehaves on demand.

    async with broker_and_client() as (broker, client):
        broker.plan("refuse", StatusCode.STREAM_ID_NOT_FOUND)
        async with orders(client) as producer: ...

What happens to each SendMessages is planned in advance; without a plan it is stored. Partitions are
chosen as a real server does, so that tests can see where keys went.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import anyio

from iggy_protocol import (
    Command,
    CompressionAlgorithm,
    CreateStream,
    CreateTopic,
    GetPartitionRoute,
    GetStream,
    GetTopic,
    MessageBatch,
    Partition,
    PartitioningKind,
    PartitionRoute,
    SendConfirmation,
    SendMessages,
    StatusCode,
    Stream,
    StreamDetails,
    TopicDetails,
    partition_for_key,
)
from iggy_sdk.client import IggyClient
from tests.sdk.dialects import SPOKEN
from tests.sdk.scripted_peer import Peer, options, scripted_server
from tests.sdk.vsr_peer import VsrPeer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from iggy_sdk.producer import Producer, ProducerBuilder

STREAM_ID, TOPIC_ID, INCARNATION = 1, 2, 1_001
MANAGED = (GetStream, GetTopic, CreateStream, CreateTopic, GetPartitionRoute)

Kind = Literal["refuse", "drop", "lose", "hold", "swallow"]


@dataclass
class Step:
    """What happens to one SendMessages.

    ``refuse`` answers with a status, ``drop`` hangs up before storing, ``lose`` hangs up after it,
    ``swallow`` stores and never answers, ``hold`` stores and answers when ``release`` is set.
    """

    kind: Kind
    status: StatusCode = StatusCode.ERROR
    is_reached: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)


class Broker:
    """One stream with topics, as many connections as there are clients.

    Attributes:
        requests: the payloads of each SendMessages that was stored, in order.
        ids: the ids of all messages that were stored.
        partitions: payloads by partition.
        commands: everything that was asked, in order.
    """

    def __init__(self, *, partitions_count: int = 4, topics: tuple[str, ...] = ("orders",)) -> None:
        self.partitions_count = partitions_count
        self.streams = {"shop"}
        self.topics = {("shop", topic) for topic in topics}
        self.requests: list[list[bytes]] = []
        self.sends: list[SendMessages] = []
        self.ids: list[int] = []
        self.partitions: dict[int, list[bytes]] = {}
        self.commands: list[Command[Any]] = []
        self.refusals: dict[type[Command[Any]], StatusCode] = {}
        self._plan: deque[Step] = deque()
        self._turn = 0
        self._receipts: dict[tuple[bytes, int], object] = {}

    @property
    def payloads(self) -> list[bytes]:
        """All payloads in the order of storing."""
        return [payload for request in self.requests for payload in request]

    def plan(self, kind: Kind, status: StatusCode = StatusCode.ERROR, *, times: int = 1) -> Step:
        """Plan what happens to the next SendMessages that has no plan yet; return the last."""
        step = Step(kind, status)
        for _ in range(times):
            step = Step(kind, status)
            self._plan.append(step)
        return step

    async def serve(self, peer: Peer) -> None:
        """Serve one connection."""
        while True:
            command = await peer.hear()
            self.commands.append(command)
            if type(command) in self.refusals:
                await peer.reply(self.refusals[type(command)])
            elif isinstance(command, SendMessages):
                if not await self._hear_messages(peer, command):
                    return
            elif isinstance(command, MANAGED):
                await peer.reply(self._manage(command))
            else:
                await peer.answer(command)

    async def _hear_messages(self, peer: Peer, command: SendMessages) -> bool:
        """Follow the plan; return whether the connection goes on."""
        step = self._plan.popleft() if self._plan else None
        if step is not None:
            step.is_reached.set()
            if step.kind == "refuse":
                await peer.reply(step.status)
                return True
            if step.kind == "drop":
                return False
        reply = self._store_once(peer, command)
        if not peer_confirms(peer) and not isinstance(reply, StatusCode):
            reply = None
        if step is not None and step.kind == "lose":
            return False
        if step is not None and step.kind == "swallow":
            await anyio.sleep_forever()
        if step is not None:
            await step.release.wait()
        await peer.reply(reply)
        return True

    def _store_once(self, peer: Any, command: SendMessages) -> object:
        """Store a batch, unless the same request of the same session was stored before."""
        request_id = getattr(peer, "request_id", None)
        if request_id is None or not peer.dialect.binds_sessions:
            return self._store(command)
        key = (request_id.client, request_id.number)
        if key not in self._receipts:
            self._receipts[key] = self._store(command)
        return self._receipts[key]

    def _store(self, command: SendMessages) -> object:
        assert isinstance(command.messages, MessageBatch)
        if (command.stream, command.topic) not in self.topics:
            return StatusCode.TOPIC_ID_NOT_FOUND
        partition = self._place(command)
        if partition >= self.partitions_count:
            return StatusCode.PARTITION_NOT_FOUND
        payloads = command.messages.payloads()
        self.sends.append(command)
        self.requests.append(payloads)
        self.ids += [message.id for message in command.messages]
        log = self.partitions.setdefault(partition, [])
        confirmation = SendConfirmation(STREAM_ID, TOPIC_ID, partition, len(log))
        log.extend(payloads)
        return (confirmation,)

    def _place(self, command: SendMessages) -> int:
        partitioning = command.partitioning
        if partitioning.kind is PartitioningKind.MESSAGES_KEY:
            return partition_for_key(partitioning.value, self.partitions_count)
        if partitioning.partition_id is not None:
            return partitioning.partition_id
        self._turn += 1
        return self._turn % self.partitions_count

    def _manage(self, command: Command[Any]) -> object:
        if isinstance(command, GetStream):
            return _stream(command.stream) if command.stream in self.streams else None
        if isinstance(command, CreateStream):
            if command.name in self.streams:
                return StatusCode.STREAM_NAME_ALREADY_EXISTS
            self.streams.add(command.name)
            return Stream(1, 0, 0, 0, 0, command.name)
        if isinstance(command, GetPartitionRoute):
            return self._route(command)
        if isinstance(command, GetTopic):
            exists = (command.stream, command.topic) in self.topics
            return self._topic(str(command.topic)) if exists else None
        assert isinstance(command, CreateTopic)
        if (command.stream, command.name) in self.topics:
            return StatusCode.TOPIC_NAME_ALREADY_EXISTS
        self.topics.add((str(command.stream), command.name))
        self.partitions_count = command.partitions_count
        return self._topic(command.name)

    def _route(self, command: GetPartitionRoute) -> object:
        if (command.stream, command.topic) not in self.topics:
            return StatusCode.TOPIC_ID_NOT_FOUND
        if command.partition_id >= self.partitions_count:
            return StatusCode.PARTITION_NOT_FOUND
        return PartitionRoute(INCARNATION, 0, 0, self.partitions_count, 0)

    def _topic(self, name: str) -> TopicDetails:
        return TopicDetails(
            id=0,
            created_at_us=0,
            partitions_count=self.partitions_count,
            message_expiry_us=0,
            compression=CompressionAlgorithm.NONE,
            max_topic_size_bytes=0,
            replication_factor=1,
            size_bytes=0,
            messages_count=0,
            name=name,
            partitions=tuple(
                Partition(number, 0, 1, 0, 0, 0) for number in range(self.partitions_count)
            ),
        )


def peer_confirms(peer: Any) -> bool:
    """Tell whether the client speaks a dialect in which sends are confirmed."""
    return isinstance(peer, VsrPeer)


def _stream(name: Any) -> StreamDetails:
    return StreamDetails(
        id=0, created_at_us=0, topics_count=0, size_bytes=0, messages_count=0, name=name, topics=()
    )


@asynccontextmanager
async def broker_and_client(
    broker: Broker | None = None, **changes: Any
) -> AsyncIterator[tuple[Broker, IggyClient]]:
    """Run a broker, and a client that is connected to it."""
    broker = Broker() if broker is None else broker
    spoken = {**SPOKEN.options, **changes}
    async with (
        scripted_server(broker.serve, peers=SPOKEN.peers) as server,
        IggyClient.from_options(options(**spoken), dial=server.dial) as client,
    ):
        yield broker, client


def orders(client: IggyClient, **changes: Any) -> ProducerBuilder[Any]:
    """Make the builder of a producer to the topic that every broker has."""
    return client.producer("shop", "orders", **changes)


@asynccontextmanager
async def producing(
    broker: Broker | None = None, *, client_options: Mapping[str, Any] | None = None, **changes: Any
) -> AsyncIterator[tuple[Broker, Producer[Any]]]:
    """Run a broker, and a producer with these options that is connected to it."""
    async with (
        broker_and_client(broker, **(client_options or {})) as (serving, client),
        orders(client, **changes) as producer,
    ):
        yield serving, producer
