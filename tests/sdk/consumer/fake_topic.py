"""A server in memory with one topic to read, which misbehaves on demand.

    async with fake_topic_and_client(partitions_count=3) as (fake_topic, client):
        fake_topic.put(0, b"one", b"two")
        fake_topic.plan(StoreConsumerOffset, "drop")
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer: ...

Groups follow the rules of the reference server, whose pure part is used here. Everything else is a
list per partition, so that tests can look inside and change the past.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from iggy_protocol import (
    CLASSIC,
    NO_CONTEXT,
    Command,
    CompressionAlgorithm,
    ConsumerGroup,
    ConsumerGroupAssignment,
    ConsumerKind,
    ConsumerOffset,
    CreateConsumerGroup,
    DeleteConsumerOffset,
    Dialect,
    FetchedPartition,
    FetchMessages,
    GetConsumerOffset,
    GetPartitionRoute,
    GetStream,
    GetTopic,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    LogoutUser,
    MessageBatch,
    Partition,
    PartitionContext,
    PartitionRoute,
    PollDeferred,
    PolledMessages,
    PollingKind,
    PollMessages,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    StreamDetails,
    SyncConsumerGroup,
    TopicDetails,
    WaitForMessages,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupState as GroupRules
from iggy_sdk.client import IggyClient
from tests.sdk.api.polling import polled
from tests.sdk.consumer.fake_parts import DEFERRED, DeferredRequests, Kind, Log, Step
from tests.sdk.dialects import SPOKEN
from tests.sdk.scripted_peer import PeerGone, options, scripted_server
from tests.sdk.vsr_peer import VsrPeer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_protocol import Buffer, NewMessage
    from iggy_sdk.consumer import IggyConsumer
    from iggy_sdk.message import ReceivedMessage

T = TypeVar("T")


class FakeTopic:
    """The server.

    Attributes:
        logs: the partitions.
        stored: stored offsets by kind and name of the consumer and by partition.
        heard: everything that was asked, in order.
        sent: payloads that were sent to any topic.
    """

    def __init__(self, partitions_count: int = 1) -> None:
        self.logs = [Log() for _ in range(partitions_count)]
        self.stored: dict[tuple[int, Any, int], int] = {}
        self.heard: list[Command[Any]] = []
        self.sent: list[tuple[Any, MessageBatch]] = []
        self.has_topic = True
        self.has_stream = True
        self._groups: dict[Any, GroupRules] = {}
        self._plans: dict[type[Command[Any]], deque[Step | None]] = defaultdict(deque)
        self._client_ids = count(1)
        self._members: dict[int, Any] = {}
        self._sessions: dict[bytes, int] = {}
        self.deferred = DeferredRequests(self._answer)
        self._generation = 0
        # Of the request that is being answered.
        self._context = NO_CONTEXT
        self._dialect: Dialect = CLASSIC

    # What tests do

    def put(self, partition_id: int, *messages: Buffer | NewMessage) -> None:
        """Append messages."""
        self.logs[partition_id].messages.extend(messages)
        self.deferred.notify()

    def fill(self, partition_id: int, messages_count: int) -> None:
        """Append messages that say where they are."""
        end = self.logs[partition_id].end
        self.put(partition_id, *(b"%d:%d" % (partition_id, end + n) for n in range(messages_count)))

    def add_partition(self) -> None:
        """Give the topic one more partition."""
        self.logs.append(Log())
        for group in self._groups.values():
            group.set_partitions(len(self.logs))

    def delete_before(self, partition_id: int, offset: int) -> None:
        """Delete old messages, as retention does."""
        log = self.logs[partition_id]
        del log.messages[: offset - log.first]
        log.first = offset

    def purge(self) -> None:
        """Delete all messages and offsets; new messages begin at 0."""
        for log in self.logs:
            log.first, log.messages = 0, []
            log.incarnation += 1
        self.stored.clear()
        self.deferred.notify()

    def plan(self, kind: type[Command[Any]], *steps: Kind | StatusCode | Step | None) -> Step:
        """Say what happens to the next commands of a kind; None lets one pass."""
        last = Step("hold")
        for step in steps:
            if isinstance(step, StatusCode):
                step = Step("refuse", step)
            elif isinstance(step, str):
                step = Step(step)
            self._plans[kind].append(step)
            last = step or last
        return last

    def make_group(self, name: str) -> GroupRules:
        """Make a group, or return the one there is."""
        if name not in self._groups:
            self._groups[name] = GroupRules(len(self.logs), rebalancing_timeout_us=10**12)
        return self._groups[name]

    def forget_members(self, name: str) -> None:
        """Forget who is in a group, as a restart does."""
        self._groups.pop(name, None)
        self.make_group(name)

    def hang_up(self, *, keeps_sessions: bool = False) -> None:
        """Close all connections, and end the sessions that could go on over others."""
        for peer in tuple(self._members.values()):
            if isinstance(peer, VsrPeer) and not keeps_sessions:
                peer.peers.forget_sessions()
            peer.wire.abort()
        if not keeps_sessions:
            self.end_sessions()

    def offset(self, partition_id: int = 0, *, name: Any = "g") -> int | None:
        """Tell the stored offset of a group or consumer."""
        for kind in ConsumerKind:
            if (kind, name, partition_id) in self.stored:
                return self.stored[kind, name, partition_id]
        return None

    def stores(self) -> list[tuple[int | None, int]]:
        """List all requests to store: partition and offset."""
        kind = StoreConsumerOffset
        return [(said.partition_id, said.offset) for said in self.heard if isinstance(said, kind)]

    def count(self, kind: type[Command[Any]]) -> int:
        """Count the commands of a kind."""
        return sum(isinstance(said, kind) for said in self.heard)

    # What clients see

    async def serve(self, peer: Any) -> None:
        """Attend to one connection."""
        client_id = next(self._client_ids)
        self._members[client_id] = peer
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    command = await peer.hear()
                    if isinstance(command, DEFERRED):
                        self.heard.append(command)
                        self.deferred.add(tasks, peer, self._member(peer, client_id), command)
                    else:
                        await self._attend(peer, self._member(peer, client_id), command)
        finally:
            del self._members[client_id]
            self.end_membership(client_id)

    def _member(self, peer: Any, client_id: int) -> int:
        """Return who a request is from: a connection, or a session from 0.10 on."""
        request_id = getattr(peer, "request_id", None)
        if request_id is None or not peer.dialect.binds_sessions:
            return client_id
        return self._sessions.setdefault(request_id.client, next(self._client_ids))

    def end_membership(self, client_id: int) -> None:
        """Have a member leave all groups, as the end of its connection or session does."""
        for group in self._groups.values():
            if client_id in group.member_ids():
                group.leave(client_id)
        self.deferred.notify()

    def end_sessions(self) -> None:
        """Forget all sessions and their memberships."""
        for client_id in self._sessions.values():
            self.end_membership(client_id)
        self._sessions.clear()

    async def _attend(self, peer: Any, client_id: int, command: Command[Any]) -> None:
        self.heard.append(command)
        plan = self._plans[type(command)]
        step = plan.popleft() if plan else None
        if step is not None:
            step.is_reached.set()
            if step.kind == "hold":
                await step.release.wait()
            if step.kind == "drop":
                raise PeerGone
            if step.kind == "refuse":
                await peer.reply(step.status)
                return
        name = HANDLERS.get(type(command))
        if isinstance(command, LogoutUser):
            self.end_membership(client_id)
        answer = None if name is None else self._answer(peer, client_id, command)
        if step is not None and step.kind == "lose":
            raise PeerGone
        if name is None:
            await peer.answer(command)
        else:
            await peer.reply(answer)

    def _answer(self, peer: Any, client_id: int, command: Command[Any]) -> Any:
        self._context = getattr(peer, "context", NO_CONTEXT)
        self._dialect = getattr(peer, "dialect", CLASSIC)
        try:
            return getattr(self, HANDLERS[type(command)])(client_id, command)
        except ServerFault as fault:
            is_fence = fault.status == StatusCode.NOT_RESOLVED_CONSUMER
            if is_fence and self._dialect.binds_sessions:
                return StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED
            return StatusCode(fault.status)

    def _get_stream(self, client_id: int, command: GetStream) -> object:
        if not self.has_stream:
            return None
        return StreamDetails(0, 0, 0, 0, 0, "s", ())

    def _get_topic(self, client_id: int, command: GetTopic) -> object:
        if not (self.has_topic and self.has_stream):
            return None
        partitions = tuple(
            Partition(number, 0, 1, log.current_offset, 0, len(log.messages))
            for number, log in enumerate(self.logs)
        )
        return TopicDetails(
            0, 0, len(partitions), 0, CompressionAlgorithm.NONE, 0, 1, 0, 0, "t", partitions
        )

    def _create_consumer_group(self, client_id: int, command: CreateConsumerGroup) -> object:
        if command.name in self._groups:
            return StatusCode.CONSUMER_GROUP_NAME_ALREADY_EXISTS
        self.make_group(command.name)
        return ConsumerGroup(0, len(self.logs), 0, command.name)

    def _join_consumer_group(self, client_id: int, command: JoinConsumerGroup) -> object:
        self._group(command.group).join(client_id, 0)
        return None

    def _leave_consumer_group(self, client_id: int, command: LeaveConsumerGroup) -> object:
        self._group(command.group).leave(client_id)
        return None

    def _poll_refusal(self, number: int, generation: int) -> object:
        """Return the refusal of a poll; None if it may read."""
        if number >= len(self.logs):
            return StatusCode.PARTITION_NOT_FOUND
        if self._is_other_history(number):
            return StatusCode.PARTITION_HISTORY_UNAVAILABLE
        if self._context.owner_generation not in (0, generation):
            return self._fence()
        return None

    def _poll_messages(self, client_id: int, command: PollMessages) -> object:
        number, group, generation = command.partition_id or 0, None, 0
        if command.consumer.kind is ConsumerKind.GROUP:
            group = self._group(command.consumer.id)
            grant = group.resolve_poll(client_id, command.partition_id)
            if grant is None:
                return self._fence()
            number, generation = grant.partition, grant.epoch + 1
        refusal = self._poll_refusal(number, generation)
        if refusal is not None:
            return refusal
        reply = self._read(number, command, generation)
        if reply.messages_count:
            self._record(client_id, command, group, reply)
        return reply

    def _read(self, number: int, command: PollMessages, generation: int) -> PolledMessages:
        log = self.logs[number]
        context = NO_CONTEXT
        if self._dialect.binds_sessions:
            context = PartitionContext(log.incarnation, generation, 1)
        first = max(log.first, self._start(command, number, log))
        found = log.messages[first - log.first :][: command.count]
        batch = MessageBatch(b"")
        if found:
            batch = polled(found, partition_id=number, base_offset=first).messages
        return PolledMessages(number, log.current_offset, len(found), batch, context=context)

    def _record(
        self,
        client_id: int,
        command: PollMessages,
        group: GroupRules | None,
        reply: PolledMessages,
    ) -> None:
        number, last = reply.partition_id, list(reply.messages)[-1].offset
        if group is not None:
            group.record_polled(client_id, number, last)
        if command.auto_commit:
            self.stored[command.consumer.kind, command.consumer.id, number] = last
            if group is not None:
                group.record_committed(number, last)

    def _is_other_history(self, number: int) -> bool:
        """Tell whether the client refers to a partition that is no more."""
        named = self._context.incarnation
        return self._dialect.binds_sessions and named != self.logs[number].incarnation

    def _fence(self) -> object:
        """Answer a member that does not own the partition, as its dialect wants it."""
        if self._dialect.binds_sessions:
            return StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED
        return polled([], partition_id=STALE_PARTITION if self._dialect.is_vsr else 0)

    def _wait_for_messages(self, client_id: int, command: WaitForMessages) -> object:
        return tuple(
            target.partition_id
            for target in command.targets
            if self._has_message(client_id, command, target)
        )

    def _fetch_messages(self, client_id: int, command: FetchMessages) -> object:
        sections = []
        for target in command.targets:
            log = self.logs[target.partition_id]
            status = 0 if target.incarnation == log.incarnation else 87
            has_message = not status and self._has_message(client_id, command, target)
            batch = polled(log.messages[:1], partition_id=target.partition_id).messages
            sections.append(
                FetchedPartition(
                    target.partition_id,
                    status,
                    log.current_offset,
                    int(has_message),
                    0,
                    batch if has_message else MessageBatch(b""),
                )
            )
        return tuple(sections)

    def _has_message(self, client_id: int, command: Any, target: Any) -> bool:
        poll = PollMessages(command.consumer, "s", "t", target.strategy, 1, target.partition_id)
        return (
            self._start(poll, target.partition_id, self.logs[target.partition_id])
            < self.logs[target.partition_id].end
        )

    def _get_partition_route(self, client_id: int, command: GetPartitionRoute) -> object:
        if not (self.has_topic and self.has_stream):
            return StatusCode.TOPIC_ID_NOT_FOUND
        if command.partition_id >= len(self.logs):
            return StatusCode.PARTITION_NOT_FOUND
        return PartitionRoute(self.logs[command.partition_id].incarnation, 1, 0, len(self.logs), 0)

    def _sync_consumer_group(self, client_id: int, command: SyncConsumerGroup) -> object:
        group = self._group(command.group)
        if client_id not in group.member_ids():
            return None
        self._generation += 1
        member = group._members.find(client_id)
        assert member is not None
        return ConsumerGroupAssignment(self._generation, tuple(group._assignment.readable(member)))

    def _start(self, command: PollMessages, number: int, log: Log) -> int:
        match command.strategy.kind:
            case PollingKind.OFFSET:
                return command.strategy.value
            case PollingKind.LAST:
                return max(log.first, log.end - command.count)
            case PollingKind.NEXT:
                key = (command.consumer.kind, command.consumer.id, number)
                return self.stored.get(key, log.first - 1) + 1
            case _:
                return log.first

    def _store_consumer_offset(self, client_id: int, command: StoreConsumerOffset) -> object:
        number, kind = command.partition_id or 0, command.consumer.kind
        group = self._group(command.consumer.id) if kind is ConsumerKind.GROUP else None
        if group is not None:
            number = group.resolve_commit(client_id, command.partition_id)
        if self._is_other_history(number):
            return StatusCode.PARTITION_HISTORY_UNAVAILABLE
        if command.offset >= self.logs[number].end:
            return StatusCode.INVALID_OFFSET
        self.stored[kind, command.consumer.id, number] = command.offset
        if group is not None:
            group.record_committed(number, command.offset)
        return None

    def _get_consumer_offset(self, client_id: int, command: GetConsumerOffset) -> object:
        number = command.partition_id or 0
        offset = self.stored.get((command.consumer.kind, command.consumer.id, number))
        if offset is None:
            return None
        return ConsumerOffset(number, self.logs[number].current_offset, offset)

    def _delete_consumer_offset(self, client_id: int, command: DeleteConsumerOffset) -> object:
        key = (command.consumer.kind, command.consumer.id, command.partition_id or 0)
        if self.stored.pop(key, None) is None:
            return StatusCode.CONSUMER_OFFSET_NOT_FOUND
        return None

    def _send_messages(self, client_id: int, command: SendMessages) -> object:
        assert isinstance(command.messages, MessageBatch)
        self.sent.append((command.topic, MessageBatch(bytes(command.messages.buffer))))
        return None

    def _group(self, name: Any) -> GroupRules:
        if name not in self._groups:
            raise ServerFault(StatusCode.CONSUMER_GROUP_ID_NOT_FOUND, "no such group")
        return self._groups[name]


HANDLERS: dict[type[Command[Any]], str] = {
    GetStream: "_get_stream",
    GetTopic: "_get_topic",
    CreateConsumerGroup: "_create_consumer_group",
    JoinConsumerGroup: "_join_consumer_group",
    LeaveConsumerGroup: "_leave_consumer_group",
    PollMessages: "_poll_messages",
    StoreConsumerOffset: "_store_consumer_offset",
    GetConsumerOffset: "_get_consumer_offset",
    DeleteConsumerOffset: "_delete_consumer_offset",
    SendMessages: "_send_messages",
    PollDeferred: "_poll_messages",
    WaitForMessages: "_wait_for_messages",
    FetchMessages: "_fetch_messages",
    GetPartitionRoute: "_get_partition_route",
    SyncConsumerGroup: "_sync_consumer_group",
}
STALE_PARTITION = 0xFFFF_FFFF


@asynccontextmanager
async def fake_topic_and_client(
    partitions_count: int = 1, **changes: Any
) -> AsyncIterator[tuple[FakeTopic, IggyClient]]:
    """Run a fake topic, and a client that reads from it."""
    fake_topic = FakeTopic(partitions_count)
    spoken = {**SPOKEN.options, **changes}
    async with (
        scripted_server(fake_topic.serve, peers=SPOKEN.peers) as server,
        IggyClient.from_options(options(**spoken), dial=server.dial) as client,
    ):
        yield fake_topic, client


async def take(consumer: IggyConsumer[T], messages_count: int) -> list[ReceivedMessage[T]]:
    """Read some messages; the last one stays unacknowledged."""
    return [await anext(consumer) for _ in range(messages_count)]


def places(messages: list[ReceivedMessage[T]]) -> list[tuple[int, int]]:
    """Tell partition and offset of each message."""
    return [(message.partition_id, message.offset) for message in messages]
