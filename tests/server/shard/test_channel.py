"""The channel between two shards: messages in sequence, bounded, and complete at any size."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_protocol import StatusCode
from iggy_ref_server.client_limits import BufferBudget
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.shard import channel, messages
from iggy_ref_server.shard.calls import park
from iggy_ref_server.shard.channel import ShardChannel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_protocol import Buffer
    from iggy_ref_server.completion import Completion

pytestmark = pytest.mark.trio


class Peer:
    """Receives calls; replies at once, or when a test says so."""

    def __init__(self, *, is_quick: bool = True) -> None:
        self.is_quick = is_quick
        self.taken: list[messages.ShardMessage] = []
        self.payloads: list[bytes] = []
        self.open: list[tuple[ShardChannel, int]] = []

    def receive(
        self,
        channel: ShardChannel,
        call_id: int,
        message: messages.ShardMessage,
        payload: memoryview,
    ) -> None:
        """Record a call."""
        self.taken.append(message)
        self.payloads.append(bytes(payload[:16]))
        self.open.append((channel, call_id))
        if self.is_quick:
            self.reply(payload)

    def reply(self, payload: Buffer = b"") -> None:
        """Send the reply of the oldest call without one."""
        channel, call_id = self.open.pop(0)
        channel.reply(call_id, messages.ShardReply(), [payload])

    def batch_done(self) -> None:
        """Commit nothing."""


@asynccontextmanager
async def joined(
    peer: Peer, budget: BufferBudget | None = None
) -> AsyncIterator[tuple[ShardChannel, ShardChannel]]:
    """Connect two shards; the first one calls."""
    ours, theirs = map(trio.socket.from_stdlib_socket, socket.socketpair())
    left, right = ShardChannel(ours, Peer()), ShardChannel(theirs, peer, budget)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.run)
        nursery.start_soon(right.run)
        yield left, right
        nursery.cancel_scope.cancel()


async def test_messages_when_sent_to_a_shard_then_arrive_in_their_order():
    peer = Peer()
    async with joined(peer) as (left, _):
        for number in range(100):
            left.call_nowait(messages.ClientGoneCall(number), (), lambda message, payload: None)
        await left.call(messages.SnapshotCall())

    assert peer.taken == [*map(messages.ClientGoneCall, range(100)), messages.SnapshotCall()]


async def test_payload_when_far_larger_than_the_socket_then_comes_back_whole():
    content = bytes(range(256)) * (40 << 10)
    peer = Peer()
    async with joined(peer) as (left, _):
        _, payload = await left.call(messages.SnapshotCall(), [content[:999], content[999:]])

    assert payload == content


async def test_payload_when_sent_then_its_buffer_is_not_packed_or_copied(monkeypatch):
    """What goes to the socket is the caller's own memory, beside a record that is small."""
    content = bytearray(1 << 20)
    sent: list[memoryview] = []
    async with joined(Peer()) as (left, _):

        async def note(buffers):
            sent.extend(buffers)
            return await send(buffers)

        send = left._socket.sendmsg
        monkeypatch.setattr(left._socket, "sendmsg", note)
        await left.call(messages.SnapshotCall(), [content])

    assert len(sent[0]) < 100
    assert sent[1].obj is content


async def test_questions_when_too_many_are_open_then_the_next_one_waits():
    peer = Peer(is_quick=False)
    async with joined(peer) as (left, _), trio.open_nursery() as nursery:
        for number in range(channel.CALLS_IN_FLIGHT_MAX + 5):
            nursery.start_soon(left.call, messages.ClientGoneCall(number))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(peer.taken) == channel.CALLS_IN_FLIGHT_MAX
        assert left.is_full

        while len(peer.taken) < channel.CALLS_IN_FLIGHT_MAX + 5:
            peer.reply()
            await trio.testing.wait_all_tasks_blocked(0.01)
        while peer.open:
            peer.reply()


async def test_questions_when_their_bytes_are_too_many_then_the_next_one_waits():
    peer = Peer(is_quick=False)
    async with joined(peer) as (left, _), trio.open_nursery() as nursery:
        large = bytes(channel.IN_FLIGHT_BYTES_MAX // 2)
        for number in range(3):
            nursery.start_soon(left.call, messages.ClientGoneCall(number), [large])
        while len(peer.taken) < 2:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(peer.taken) == 2

        peer.reply()
        while len(peer.taken) < 3:
            await trio.lowlevel.checkpoint()
        peer.reply()
        peer.reply()


async def test_question_when_the_other_shard_ends_then_is_refused_and_so_are_later_ones():
    peer = Peer(is_quick=False)
    async with joined(peer) as (left, right):

        async def call():
            with pytest.raises(ServerFault) as refused:
                await left.call(messages.SnapshotCall())
            assert refused.value.status == StatusCode.SHARD_COMMUNICATION_ERROR

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.testing.wait_all_tasks_blocked(0.01)
            right._socket.shutdown(socket.SHUT_RDWR)
        await call()


async def test_budget_when_questions_are_worked_on_and_answers_unsent_then_counts_both():
    peer, budget = Peer(is_quick=False), BufferBudget(16 << 20)
    client = budget.open("a client", lambda: None, lambda: None)
    client.hold(10)
    async with joined(peer, budget) as (left, right):
        left.call_nowait(messages.SnapshotCall(), [bytes(1 << 20)], lambda message, payload: None)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert budget.total_bytes == right.held_bytes + 10 == (1 << 20) + 10

        peer.reply(bytes(20 << 20))
        assert right.held_bytes == 20 << 20
        # Over the limit, and no client is closed for that.
        budget.evict_over_limit()
        assert budget.accounts_count == 1
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert budget.total_bytes == 10

        left.call_nowait(messages.SnapshotCall(), [bytes(1 << 20)], lambda message, payload: None)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert right.held_bytes == 1 << 20
    assert right.held_bytes == 0
    assert budget.total_bytes == 10


async def test_shards_when_both_are_over_their_budgets_then_still_answer_each_other():
    """No shard waits for the space of the other, so none waits for ever."""
    ours, theirs = map(trio.socket.from_stdlib_socket, socket.socketpair())
    left = ShardChannel(ours, Peer(), BufferBudget(1))
    right = ShardChannel(theirs, Peer(), BufferBudget(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.run)
        nursery.start_soon(right.run)
        with trio.fail_after(30):
            async with trio.open_nursery() as askers:
                for channel in (left, right) * 5:
                    askers.start_soon(channel.call, messages.SnapshotCall(), [bytes(4 << 20)])
        nursery.cancel_scope.cancel()


# Parked calls


async def test_calls_when_parked_then_do_not_fill_the_channel(monkeypatch):
    monkeypatch.setattr(channel, "CALLS_IN_FLIGHT_MAX", 2)
    peer, replies = Peer(is_quick=False), []
    async with joined(peer) as (left, _):
        for _ in range(5):
            left.park(messages.SnapshotCall(), lambda message, payload: replies.append(message))
        fullness = [left.is_full]
        for _ in range(2):
            left.call_nowait(messages.SnapshotCall(), (), lambda message, payload: None)
        fullness.append(left.is_full)

        await trio.testing.wait_all_tasks_blocked()
        for _ in range(7):
            peer.reply()
        await trio.testing.wait_all_tasks_blocked()

    assert replies == [messages.ShardReply()] * 5
    assert [*fullness, left.is_full] == [False, True, False]


async def test_wait_when_cancelled_then_the_other_shard_is_told_which():
    peer = Peer(is_quick=False)
    async with joined(peer) as (left, _):
        first, second = (park(left, messages.SnapshotCall()) for _ in range(2))
        told: list[Completion] = []
        for wait in (first, second):
            wait.add_done_callback(told.append)

        second.cancel()
        await trio.testing.wait_all_tasks_blocked()

        parked_id = peer.open[1][1]
        assert peer.taken[2] == messages.CancelWaitCall(parked_id)
        for _ in range(3):
            peer.reply()
        await trio.testing.wait_all_tasks_blocked()
        assert told == [first], "who has given up is not told"


@pytest.mark.parametrize("is_closed_before", [False, True])
async def test_wait_when_the_other_shard_ends_then_ends_with_a_fault(is_closed_before):
    ours, theirs = map(trio.socket.from_stdlib_socket, socket.socketpair())
    left = ShardChannel(ours, Peer())
    wait = None if is_closed_before else park(left, messages.SnapshotCall())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.run)
        await trio.testing.wait_all_tasks_blocked()
        theirs.close()
    if wait is None:
        wait = park(left, messages.SnapshotCall())

    assert wait.fault is not None
    assert wait.fault.status == StatusCode.SHARD_COMMUNICATION_ERROR
    wait.cancel()
