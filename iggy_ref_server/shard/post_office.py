"""Carries out the calls of other shards.

Calls that need no waiting are handled inline, in the sequence in which they arrive. Appends are
among them, so that the sends of one client keep their sequence. All others run in tasks. While the
shard opens its partitions, only calls about metadata are handled and the others are deferred; the
limits of the channels bound how many.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from iggy_protocol import (
    BatchShape,
    ConsumerKind,
    PollingKind,
    PollingStrategy,
    RequestReceived,
    StatusCode,
)
from iggy_ref_server.dispatch import answer_for
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import Grant
from iggy_ref_server.groups.registry import GroupKey
from iggy_ref_server.partitions import OffsetKey, PollRequest
from iggy_ref_server.partitions.door import LocalDoor
from iggy_ref_server.shard import letters
from iggy_ref_server.shard.census import session_of
from iggy_ref_server.shard.directory import PartitionKey
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import trio

    from iggy_protocol import Buffer
    from iggy_ref_server.data_plane.answers import Answer
    from iggy_ref_server.partitions import Polled
    from iggy_ref_server.pending import Pending
    from iggy_ref_server.shard.appends import SendAppends
    from iggy_ref_server.shard.census import Census
    from iggy_ref_server.shard.directory import PartitionDirectory
    from iggy_ref_server.shard.metadata_desk import MetadataDesk
    from iggy_ref_server.shard.wall import Hatch

    Answered = tuple[letters.Letter, Sequence[Buffer]]

__all__ = ["PostOffice", "read_parts"]

LOGGER = logging.getLogger(__name__)

DONE = letters.Reply()

# A shard that opens its partitions must handle these: it needs the metadata to go on.
BEFORE_OPENING = (letters.Hello, letters.Entry, letters.Show)


async def read_parts(parts: Sequence[Buffer | FileSlice]) -> list[Buffer]:
    """Replace file slices by their content: a file descriptor cannot cross the channel."""
    buffers: list[Buffer] = []
    for part in parts:
        if isinstance(part, FileSlice):
            content = part.file.read_now(part.size, part.position)
            if content is None:
                content = await part.file.read(part.size, part.position)
            buffers.append(content)
        else:
            buffers.append(part)
    return buffers


class PostOffice:
    """Handles the calls of all channels of a shard.

    Args:
        directory: the partitions of this shard.
        appends: commits what letters staged.
        census: what this shard knows of itself.
        metadata: follows or writes the metadata.
        nursery: for what has to wait.
        poll_bytes_max: how much of a poll may be read into memory here, given what is asked.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        appends: SendAppends,
        census: Census,
        metadata: MetadataDesk,
        nursery: trio.Nursery,
        poll_bytes_max: Callable[[int], int],
    ) -> None:
        self._poll_bytes_max = poll_bytes_max
        self._directory = directory
        self._appends = appends
        self._census = census
        self._metadata = metadata
        self._nursery = nursery
        self._answer: Callable[[Any, RequestReceived], Awaitable[Answer]] | None = None
        self._early: list[tuple[Hatch, int, letters.Letter, memoryview]] | None = []

    def serve_requests(self, answer: Callable[[Any, RequestReceived], Awaitable[Answer]]) -> None:
        """Set the dispatcher for forwarded requests; shard 0 only."""
        self._answer = answer

    def open(self) -> None:
        """Handle the deferred calls; from now on no call is deferred."""
        early, self._early = self._early or [], None
        for arrived in early:
            self.take(*arrived)
        self.tick()

    # Calls

    def take(
        self, hatch: Hatch, question: int, letter: letters.Letter, payload: memoryview
    ) -> None:
        """Handle a call inline, or start a task for it."""
        if self._early is not None and not isinstance(letter, BEFORE_OPENING):
            self._early.append((hatch, question, letter, payload))
            return
        if isinstance(letter, letters.Append):
            self._append(hatch, question, letter, payload)
            return
        at_once = self._AT_ONCE.get(type(letter))
        if at_once is not None:
            try:
                hatch.answer(question, at_once(self, letter))
            except ServerFault as fault:
                hatch.answer(question, letters.Fault(fault.status, fault.message))
        else:
            self._nursery.start_soon(self._work, hatch, question, letter, payload)

    def tick(self) -> None:
        """Commit the appends of the batch that has ended."""
        self._appends.commit()

    async def _work(
        self, hatch: Hatch, question: int, letter: letters.Letter, payload: memoryview
    ) -> None:
        """Handle a call that has to wait."""
        try:
            answer, parts = await self._SLOWLY[type(letter)](self, letter, payload)
            hatch.answer(question, answer, parts)
        except ServerFault as fault:
            hatch.answer(question, letters.Fault(fault.status, fault.message))
        except Exception as error:
            if isinstance(letter, letters.Entry):
                # A replica that has missed a change would serve wrong metadata: the shard ends.
                raise
            status = answer_for(error).status
            hatch.answer(question, letters.Fault(status, str(error)))

    # Partitions

    def _door(self, partition: letters.Partition) -> LocalDoor:
        key = PartitionKey(partition.stream_id, partition.topic_id, partition.partition_id)
        if not self._directory.holds(key, partition.incarnation, partition.created_at_us):
            raise ServerFault(StatusCode.PARTITION_NOT_FOUND, f"{key} was deleted")
        return LocalDoor(self._directory.get(key), self._appends.touched)

    def _append(
        self, hatch: Hatch, question: int, letter: letters.Append, body: memoryview
    ) -> None:
        def answer(pending: Pending) -> None:
            fault = pending.fault
            hatch.answer(
                question, DONE if fault is None else letters.Fault(fault.status, fault.message)
            )

        try:
            pending = self._door(letter.partition).stage(body, BatchShape(*letter.shape))
        except ServerFault as fault:
            hatch.answer(question, letters.Fault(fault.status, fault.message))
        else:
            pending.add_done_callback(answer)

    async def _poll(self, letter: letters.Poll, _: memoryview) -> Answered:
        kind = letter.consumer_kind
        size_max_bytes = self._poll_bytes_max(letter.size_max_bytes)
        request = PollRequest(
            strategy=PollingStrategy(PollingKind(letter.strategy_kind), letter.strategy_value),
            count=letter.count,
            consumer=OffsetKey(ConsumerKind(kind), letter.consumer_id) if kind else None,
            size_max_bytes=size_max_bytes,
            memory_max_bytes=size_max_bytes,
        )
        door = self._door(letter.partition)
        polled: Polled | None = door.poll_now(request, auto_commit=letter.auto_commit)
        if polled is None:
            polled = await door.poll(request, auto_commit=letter.auto_commit)
        head = letters.PolledReply(polled.current_offset, polled.messages_count, polled.last_offset)
        return head, await read_parts(polled.parts)

    async def _change_offset(self, letter: letters.ChangeOffset, _: memoryview) -> Answered:
        door = self._door(letter.partition)
        key = OffsetKey(ConsumerKind(letter.consumer_kind), letter.consumer_id)
        if letter.action == "get":
            return letters.Stored(*await door.progress(key)), ()
        if letter.offset is None:
            await door.delete_offset(key)
        else:
            await door.store_offset(key, letter.offset)
        return DONE, ()

    async def _tend(self, letter: letters.Tend, _: memoryview) -> Answered:
        door = self._door(letter.partition)
        if letter.action == "flush":
            await door.flush(fsync=letter.fsync)
        else:
            await door.delete_segments(letter.segments_count)
        return DONE, ()

    # Metadata and requests

    async def _hello(self, letter: letters.Hello, _: memoryview) -> Answered:
        return letters.Welcome(), [self._metadata.snapshot_bytes()]

    async def _entry(self, letter: letters.Entry, payload: memoryview) -> Answered:
        await self._metadata.follow(bytes(payload), is_shown=letter.is_shown)
        return DONE, ()

    async def _ask(self, letter: letters.Ask, payload: memoryview) -> Answered:
        assert self._answer is not None, "only shard 0 handles forwarded requests"
        request = RequestReceived(letter.code, payload)
        answer = await self._answer(session_of(letter.caller), request)
        parts = await read_parts(answer.parts)
        version = self._metadata.current.version
        return letters.Reply(version, answer.status, answer.close), parts

    # Groups, on shard 0

    def _resolve(self, letter: letters.Resolve) -> letters.Letter:
        group = self._metadata.registry.require(
            GroupKey(letter.stream_id, letter.topic_id, letter.group_id)
        )
        if letter.purpose == "commit":
            chosen = group.resolve_commit(letter.client_id, letter.partition_id)
            return letters.Confirm(chosen)
        grant = group.resolve_poll(letter.client_id, letter.partition_id)
        return letters.Confirm(None) if grant is None else letters.Confirm(*grant)

    def _note_polled(self, letter: letters.NotePolled) -> letters.Letter:
        key = GroupKey(letter.stream_id, letter.topic_id, letter.group_id)
        group = self._metadata.registry.find(key)
        if group is None or not group.confirm(Grant(letter.partition_id, letter.epoch)):
            return letters.Confirm(None)
        group.note_polled(letter.client_id, letter.partition_id, letter.polled_offset)
        return letters.Confirm(letter.partition_id)

    def _committed(self, letter: letters.Committed) -> letters.Letter:
        key = GroupKey(letter.stream_id, letter.topic_id, letter.group_id)
        group = self._metadata.registry.find(key)
        if group is not None:
            group.note_committed(letter.partition_id, letter.offset)
        return DONE

    def _groups(self, letter: letters.Groups) -> letters.Letter:
        found = self._metadata.registry.memberships
        return letters.Groups(
            memberships=tuple(
                (client_id, *key) for client_id in letter.client_ids for key in found(client_id)
            )
        )

    def _gone(self, letter: letters.Gone) -> letters.Letter:
        self._metadata.registry.client_gone(letter.client_id)
        return DONE

    def _show(self, letter: letters.Show) -> letters.Letter:
        self._metadata.show(letter.version)
        return DONE

    def _totals(self, letter: letters.Totals) -> letters.Letter:
        return self._census.own_totals()

    def _clients(self, letter: letters.Clients) -> letters.Letter:
        return self._census.own_clients()

    _AT_ONCE: ClassVar[dict[type, Callable[[PostOffice, Any], letters.Letter]]] = {
        letters.Resolve: _resolve,
        letters.NotePolled: _note_polled,
        letters.Committed: _committed,
        letters.Groups: _groups,
        letters.Gone: _gone,
        letters.Show: _show,
        letters.Totals: _totals,
        letters.Clients: _clients,
    }
    _SLOWLY: ClassVar[dict[type, Callable[[PostOffice, Any, memoryview], Awaitable[Answered]]]] = {
        letters.Poll: _poll,
        letters.ChangeOffset: _change_offset,
        letters.Tend: _tend,
        letters.Hello: _hello,
        letters.Entry: _entry,
        letters.Ask: _ask,
    }
