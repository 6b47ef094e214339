"""Carries out the calls of other shards, by the table ``SHARD_CALLS``.

Calls that need no waiting are handled inline, in the sequence in which they arrive. Appends are
staged in that sequence too, so that the sends of one client keep theirs. All others run in tasks.
While the shard opens its partitions, only calls about metadata are handled and the others are
deferred; the limits of the channels bound how many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from iggy_protocol import (
    BatchShape,
    Buffer,
    ConsumerKind,
    PollingKind,
    PollingStrategy,
    ProducerSequence,
    RequestReceived,
    StatusCode,
)
from iggy_ref_server.dispatch.dispatcher import reply_for_error
from iggy_ref_server.dispatch.table import Execution
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import GroupKey, PollGrant
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.partition_client import ConfirmedAppend, LocalPartition
from iggy_ref_server.partitions.poll_plan import PollParams
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.partitions.write_receipts import WriteId
from iggy_ref_server.shard import group_calls, messages, session_calls
from iggy_ref_server.shard.calls import ShardClusterView, restore_request, restore_session
from iggy_ref_server.shard.partition_directory import PartitionDirectory, PartitionKey
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    import trio

    from iggy_ref_server.completion import Completion, Wait
    from iggy_ref_server.dispatch.replies import CommandReply
    from iggy_ref_server.shard.channel import ShardChannel
    from iggy_ref_server.shard.metadata_service import MetadataService
    from iggy_ref_server.shard.router import RoutingAppender
    from iggy_ref_server.shard.session_calls import LocalSessions

    CallResult = tuple[messages.ShardMessage, Sequence[Buffer]]


LOGGER = logging.getLogger(__name__)

# These get the channel and the id of the call, and reply themselves.
REPLYING_LATER: Final = (Execution.STAGED, Execution.DETACHED)


async def read_parts(parts: Sequence[Buffer | FileSlice]) -> list[Buffer]:
    """Replace file slices by their content: a file descriptor cannot cross the channel."""
    buffers: list[Buffer] = []
    for part in parts:
        if isinstance(part, FileSlice):
            content = part.file.read_nowait(part.size, part.position)
            if content is None:
                content = await part.file.read(part.size, part.position)
            buffers.append(content)
        else:
            buffers.append(part)
    return buffers


class ShardCallHandler:
    """Handles the calls of all channels of a shard.

    Args:
        directory: the partitions of this shard.
        appender: commits what calls staged.
        cluster_view: what this shard knows of itself.
        metadata: follows or writes the metadata.
        nursery: for what has to wait.
        poll_bytes_max: how much of a poll may be read into memory here, given what is asked.
        end_session: ends a session on its connections of this shard.
        sessions: the sessions of the wire; None on all shards but 0.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        appender: RoutingAppender,
        cluster_view: ShardClusterView,
        metadata: MetadataService,
        nursery: trio.Nursery,
        poll_bytes_max: Callable[[int], int],
        end_session: Callable[[int], None],
        sessions: LocalSessions | None,
    ) -> None:
        self._poll_bytes_max = poll_bytes_max
        self._end_session = end_session
        self._sessions = sessions
        self._directory = directory
        self._appender = appender
        self._cluster_view = cluster_view
        self._metadata = metadata
        self._nursery = nursery
        self._dispatch: Callable[[Any, RequestReceived], Awaitable[CommandReply]] | None = None
        # Those who made them bound their number.
        self._parked: dict[tuple[ShardChannel, int], Wait] = {}
        self._deferred: (
            list[tuple[ShardChannel, int, messages.ShardMessage, memoryview]] | None
        ) = []

    def serve_requests(
        self, reply: Callable[[Any, RequestReceived], Awaitable[CommandReply]]
    ) -> None:
        """Set the dispatcher for forwarded requests; shard 0 only."""
        self._dispatch = reply

    def open(self) -> None:
        """Handle the deferred calls; from now on no call is deferred."""
        deferred, self._deferred = self._deferred or [], None
        for deferred_call in deferred:
            self.receive(*deferred_call)
        self.batch_done()

    # Calls

    def receive(
        self,
        channel: ShardChannel,
        call_id: int,
        message: messages.ShardMessage,
        payload: memoryview,
    ) -> None:
        """Handle a call inline, or start a task for it."""
        call = SHARD_CALLS[type(message)]
        if self._deferred is not None and not call.is_handled_before_open:
            self._deferred.append((channel, call_id, message, payload))
        elif call.execution in REPLYING_LATER:
            call.handler(self, channel, call_id, message, payload)
        elif call.execution is Execution.TASK:
            self._nursery.start_soon(self._handle_awaited, channel, call_id, message, payload)
        else:
            try:
                channel.reply(call_id, call.handler(self, message))
            except ServerFault as fault:
                channel.reply(call_id, messages.FaultReply(fault.status, fault.message))

    def batch_done(self) -> None:
        """Commit the appends of the batch that has ended."""
        self._appender.commit()

    async def _handle_awaited(
        self,
        channel: ShardChannel,
        call_id: int,
        message: messages.ShardMessage,
        payload: memoryview,
    ) -> None:
        """Handle a call that has to wait."""
        try:
            handler = SHARD_CALLS[type(message)].handler
            reply, parts = await handler(self, message, payload)
            channel.reply(call_id, reply, parts)
        except ServerFault as fault:
            channel.reply(call_id, messages.FaultReply(fault.status, fault.message))
        except Exception as error:
            if isinstance(message, messages.MetadataEntryCall):
                # A replica that has missed a change would serve wrong metadata: the shard ends.
                raise
            status = reply_for_error(error).status
            channel.reply(call_id, messages.FaultReply(status, str(error)))

    # Partitions

    def _local_partition(self, partition: messages.PartitionRef) -> LocalPartition:
        key = PartitionKey(partition.stream_id, partition.topic_id, partition.partition_id)
        if not self._directory.holds(key, partition.generation, partition.created_at_us):
            raise ServerFault(StatusCode.PARTITION_NOT_FOUND, f"{key} was deleted")
        return LocalPartition(self._directory.get(key), self._appender.mark_uncommitted)

    def _append(
        self, channel: ShardChannel, call_id: int, message: messages.AppendCall, body: memoryview
    ) -> None:
        try:
            pending = self._stage(message, body)
        except ServerFault as fault:
            channel.reply(call_id, messages.FaultReply(fault.status, fault.message))
            return

        def reply(_: Completion) -> None:
            fault = pending.fault
            if fault is not None:
                channel.reply(call_id, messages.FaultReply(fault.status, fault.message))
            elif isinstance(pending, ConfirmedAppend):
                channel.reply(call_id, messages.AppendReply(pending.base_offset))
            else:
                channel.reply(call_id, messages.DONE_REPLY)

        pending.add_done_callback(reply)

    def _stage(self, message: messages.AppendCall, body: memoryview) -> Completion:
        partition, shape = self._local_partition(message.partition), BatchShape(*message.shape)
        if message.write is None:
            return partition.stage(body, shape)
        producer = None if message.producer is None else ProducerSequence(*message.producer)
        return partition.stage_confirmed(body, shape, WriteId(*message.write), producer)

    async def _poll(self, message: messages.PollCall, _: memoryview) -> CallResult:
        kind = message.consumer_kind
        size_max_bytes = self._poll_bytes_max(message.size_max_bytes)
        request = PollParams(
            strategy=PollingStrategy(PollingKind(message.strategy_kind), message.strategy_value),
            count=message.count,
            consumer=OffsetKey(ConsumerKind(kind), message.consumer_id) if kind else None,
            size_max_bytes=size_max_bytes,
            memory_max_bytes=size_max_bytes,
        )
        local_partition = self._local_partition(message.partition)
        polled = await run_async(local_partition.poll(request, auto_commit=message.auto_commit))
        head = messages.PollReply(
            polled.current_offset, polled.messages_count, polled.last_offset, polled.next_offset
        )
        return head, await read_parts(polled.parts)

    async def _change_offset(self, message: messages.OffsetCall, _: memoryview) -> CallResult:
        local_partition = self._local_partition(message.partition)
        key = OffsetKey(ConsumerKind(message.consumer_kind), message.consumer_id)
        if message.action == "get":
            return messages.OffsetReply(*await local_partition.progress(key)), ()
        write = None if message.write is None else WriteId(*message.write)
        if message.offset is None:
            await local_partition.delete_offset(key, write)
        else:
            await local_partition.store_offset(key, message.offset, write)
        return messages.DONE_REPLY, ()

    async def _maintain(self, message: messages.MaintainPartitionCall, _: memoryview) -> CallResult:
        local_partition = self._local_partition(message.partition)
        if message.action == "flush":
            await local_partition.flush(fsync=message.fsync)
        else:
            await local_partition.delete_segments(message.segments_count)
        return messages.DONE_REPLY, ()

    # Waits; they have their replies when they are over

    def _wait_for_message(
        self,
        channel: ShardChannel,
        call_id: int,
        message: messages.WaitForMessageCall,
        _: memoryview,
    ) -> None:
        try:
            wait = self._local_partition(message.partition).wait_for(message.offset)
        except ServerFault as fault:
            channel.reply(call_id, messages.FaultReply(fault.status, fault.message))
            return
        self._park(channel, call_id, wait)

    def _watch_ownership(
        self,
        channel: ShardChannel,
        call_id: int,
        message: messages.WatchOwnershipCall,
        _: memoryview,
    ) -> None:
        key = GroupKey(message.stream_id, message.topic_id, message.group_id)
        grants = [PollGrant(*grant) for grant in message.grants]
        self._park(channel, call_id, group_calls.watch_grants(self._metadata.registry, key, grants))

    def _park(self, channel: ShardChannel, call_id: int, wait: Wait) -> None:
        """Reply when a wait is over."""

        def reply(done: Completion) -> None:
            self._parked.pop((channel, call_id), None)
            fault = done.fault
            channel.reply(
                call_id,
                messages.DONE_REPLY
                if fault is None
                else messages.FaultReply(fault.status, fault.message),
            )

        self._parked[channel, call_id] = wait
        wait.add_done_callback(reply)

    def _cancel_wait(
        self, channel: ShardChannel, call_id: int, message: messages.CancelWaitCall, _: memoryview
    ) -> None:
        wait = self._parked.pop((channel, message.call_id), None)
        if wait is not None:
            wait.cancel()
            channel.reply(message.call_id, messages.DONE_REPLY)
        channel.reply(call_id, messages.DONE_REPLY)

    # Metadata and requests

    async def _snapshot(self, message: messages.SnapshotCall, _: memoryview) -> CallResult:
        return messages.SnapshotReply(), [self._metadata.snapshot_bytes()]

    async def _apply_entry(
        self, message: messages.MetadataEntryCall, payload: memoryview
    ) -> CallResult:
        await self._metadata.apply_entry(bytes(payload), is_published=message.is_published)
        return messages.DONE_REPLY, ()

    async def _forward(self, message: messages.ForwardCall, payload: memoryview) -> CallResult:
        assert self._dispatch is not None, "only shard 0 handles forwarded requests"
        request = RequestReceived(message.code, payload)
        if message.request_info is not None:
            request_id = restore_request(message.request_info)
            request = RequestReceived(message.code, payload, request_id.dialect, request_id)
        reply = await self._dispatch(restore_session(message.session_info), request)
        parts = await read_parts(reply.parts)
        version = self._metadata.current.version
        return messages.ShardReply(version, reply.status, reply.close, reply.position), parts

    # Sessions, on shard 0; and their ends, on every other shard

    def _register(self, message: messages.RegisterCall) -> messages.ShardMessage:
        return session_calls.register_session(self._local_sessions, message)

    def _bind(self, message: messages.BindCall) -> messages.ShardMessage:
        return session_calls.bind_session(self._local_sessions, message)

    def _release_session(self, message: messages.ReleaseSessionCall) -> messages.ShardMessage:
        return session_calls.release_session(self._local_sessions, message)

    def _check_session(self, message: messages.CheckSessionCall) -> messages.ShardMessage:
        return session_calls.check_session(self._local_sessions, message)

    async def _log_out(self, message: messages.LogOutCall, _: memoryview) -> CallResult:
        await self._local_sessions.log_out(message.session)
        return messages.DONE_REPLY, ()

    def _session_ended(self, message: messages.SessionEndedCall) -> messages.ShardMessage:
        self._end_session(message.session)
        return messages.DONE_REPLY

    @property
    def _local_sessions(self) -> LocalSessions:
        assert self._sessions is not None, "the sessions are on shard 0"
        return self._sessions

    # Groups, on shard 0

    def _resolve_member(self, message: messages.ResolveMemberCall) -> messages.ShardMessage:
        return group_calls.resolve_member(self._metadata.registry, message)

    def _claim(self, message: messages.ClaimCall) -> messages.ShardMessage:
        return group_calls.claim_partitions(self._metadata.registry, message)

    def _member_polled(self, message: messages.MemberPolledCall) -> messages.ShardMessage:
        return group_calls.member_polled(self._metadata.registry, message)

    def _group_committed(self, message: messages.GroupCommittedCall) -> messages.ShardMessage:
        return group_calls.group_committed(self._metadata.registry, message)

    def _groups(self, message: messages.GroupMemberships) -> messages.ShardMessage:
        return group_calls.list_memberships(self._metadata.registry, message)

    def _client_gone(self, message: messages.ClientGoneCall) -> messages.ShardMessage:
        self._metadata.registry.remove_member(message.client_id)
        return messages.DONE_REPLY

    def _publish(self, message: messages.PublishMetadataCall) -> messages.ShardMessage:
        self._metadata.publish(message.version)
        return messages.DONE_REPLY

    def _totals(self, message: messages.PartitionTotals) -> messages.ShardMessage:
        return self._cluster_view.local_totals()

    def _clients(self, message: messages.ConnectedClients) -> messages.ShardMessage:
        return self._cluster_view.local_clients()


class ShardCall(NamedTuple):
    """A row of the table of calls.

    Attributes:
        handler: the method of ``ShardCallHandler``.
        execution: at once, in a task, staged with other appends, or parked until something happens.
        is_handled_before_open: whether a shard handles it while it opens its partitions. It needs
            the metadata to go on.
    """

    handler: Callable[..., Any]
    execution: Execution = Execution.INLINE
    is_handled_before_open: bool = False


_HANDLER, _STAGED, _TASK = ShardCallHandler, Execution.STAGED, Execution.TASK
_PARKED = Execution.DETACHED
SHARD_CALLS: Final[dict[type, ShardCall]] = {
    messages.AppendCall: ShardCall(_HANDLER._append, _STAGED),
    messages.PollCall: ShardCall(_HANDLER._poll, _TASK),
    messages.OffsetCall: ShardCall(_HANDLER._change_offset, _TASK),
    messages.MaintainPartitionCall: ShardCall(_HANDLER._maintain, _TASK),
    messages.ForwardCall: ShardCall(_HANDLER._forward, _TASK),
    messages.RegisterCall: ShardCall(_HANDLER._register),
    messages.BindCall: ShardCall(_HANDLER._bind),
    messages.ReleaseSessionCall: ShardCall(_HANDLER._release_session),
    messages.CheckSessionCall: ShardCall(_HANDLER._check_session),
    messages.LogOutCall: ShardCall(_HANDLER._log_out, _TASK),
    messages.SessionEndedCall: ShardCall(_HANDLER._session_ended),
    messages.SnapshotCall: ShardCall(_HANDLER._snapshot, _TASK, is_handled_before_open=True),
    messages.MetadataEntryCall: ShardCall(
        _HANDLER._apply_entry, _TASK, is_handled_before_open=True
    ),
    messages.PublishMetadataCall: ShardCall(_HANDLER._publish, is_handled_before_open=True),
    messages.ResolveMemberCall: ShardCall(_HANDLER._resolve_member),
    messages.MemberPolledCall: ShardCall(_HANDLER._member_polled),
    messages.GroupCommittedCall: ShardCall(_HANDLER._group_committed),
    messages.GroupMemberships: ShardCall(_HANDLER._groups),
    messages.ClientGoneCall: ShardCall(_HANDLER._client_gone),
    messages.PartitionTotals: ShardCall(_HANDLER._totals),
    messages.ConnectedClients: ShardCall(_HANDLER._clients),
    messages.ClaimCall: ShardCall(_HANDLER._claim),
    messages.WatchOwnershipCall: ShardCall(_HANDLER._watch_ownership, _PARKED),
    messages.WaitForMessageCall: ShardCall(_HANDLER._wait_for_message, _PARKED),
    messages.CancelWaitCall: ShardCall(_HANDLER._cancel_wait, _PARKED),
}
