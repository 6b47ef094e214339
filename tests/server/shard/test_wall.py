"""The wall between two shards: letters in order, bounded both ways, and whole at any size."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_protocol import StatusCode
from iggy_ref_server.data_plane.budget import BufferBudget
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.shard import letters, wall
from iggy_ref_server.shard.wall import Hatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_protocol import Buffer

pytestmark = pytest.mark.trio


class Neighbour:
    """Takes letters; answers each at once, or not before it is told to."""

    def __init__(self, *, is_quick: bool = True) -> None:
        self.is_quick = is_quick
        self.taken: list[letters.Letter] = []
        self.payloads: list[bytes] = []
        self.open: list[tuple[Hatch, int]] = []

    def take(
        self, hatch: Hatch, question: int, letter: letters.Letter, payload: memoryview
    ) -> None:
        """Read a letter."""
        self.taken.append(letter)
        self.payloads.append(bytes(payload[:16]))
        self.open.append((hatch, question))
        if self.is_quick:
            self.answer(payload)

    def answer(self, payload: Buffer = b"") -> None:
        """Answer the oldest question that has no answer."""
        hatch, question = self.open.pop(0)
        hatch.answer(question, letters.Reply(), [payload])

    def tick(self) -> None:
        """Commit nothing."""


@asynccontextmanager
async def joined(
    neighbour: Neighbour, budget: BufferBudget | None = None
) -> AsyncIterator[tuple[Hatch, Hatch]]:
    """Join two shards; the first one asks."""
    ours, theirs = map(trio.socket.from_stdlib_socket, socket.socketpair())
    left, right = Hatch(ours, Neighbour()), Hatch(theirs, neighbour, budget)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.run)
        nursery.start_soon(right.run)
        yield left, right
        nursery.cancel_scope.cancel()


async def test_letters_when_posted_then_arrive_in_their_order():
    neighbour = Neighbour()
    async with joined(neighbour) as (left, _):
        for number in range(100):
            left.post(letters.Gone(number), (), lambda letter, payload: None)
        await left.ask(letters.Hello())

    assert neighbour.taken == [*map(letters.Gone, range(100)), letters.Hello()]


async def test_payload_when_far_larger_than_the_socket_then_comes_back_whole():
    content = bytes(range(256)) * (40 << 10)
    neighbour = Neighbour()
    async with joined(neighbour) as (left, _):
        _, payload = await left.ask(letters.Hello(), [content[:999], content[999:]])

    assert payload == content


async def test_payload_when_sent_then_its_buffer_is_not_packed_or_copied(monkeypatch):
    """What goes to the socket is the caller's own memory, beside a record that is small."""
    content = bytearray(1 << 20)
    sent: list[memoryview] = []
    async with joined(Neighbour()) as (left, _):

        async def note(buffers):
            sent.extend(buffers)
            return await send(buffers)

        send = left._socket.sendmsg
        monkeypatch.setattr(left._socket, "sendmsg", note)
        await left.ask(letters.Hello(), [content])

    assert len(sent[0]) < 100
    assert sent[1].obj is content


async def test_questions_when_too_many_are_open_then_the_next_one_waits():
    neighbour = Neighbour(is_quick=False)
    async with joined(neighbour) as (left, _), trio.open_nursery() as nursery:
        for number in range(wall.QUESTIONS_MAX + 5):
            nursery.start_soon(left.ask, letters.Gone(number))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(neighbour.taken) == wall.QUESTIONS_MAX
        assert left.is_full

        while len(neighbour.taken) < wall.QUESTIONS_MAX + 5:
            neighbour.answer()
            await trio.testing.wait_all_tasks_blocked(0.01)
        while neighbour.open:
            neighbour.answer()


async def test_questions_when_their_bytes_are_too_many_then_the_next_one_waits():
    neighbour = Neighbour(is_quick=False)
    async with joined(neighbour) as (left, _), trio.open_nursery() as nursery:
        large = bytes(wall.UNANSWERED_BYTES_MAX // 2)
        for number in range(3):
            nursery.start_soon(left.ask, letters.Gone(number), [large])
        while len(neighbour.taken) < 2:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(neighbour.taken) == 2

        neighbour.answer()
        while len(neighbour.taken) < 3:
            await trio.lowlevel.checkpoint()
        neighbour.answer()
        neighbour.answer()


async def test_question_when_the_other_shard_ends_then_is_refused_and_so_are_later_ones():
    neighbour = Neighbour(is_quick=False)
    async with joined(neighbour) as (left, right):

        async def ask():
            with pytest.raises(ServerFault) as refused:
                await left.ask(letters.Hello())
            assert refused.value.status == StatusCode.SHARD_COMMUNICATION_ERROR

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.01)
            right._socket.shutdown(socket.SHUT_RDWR)
        await ask()


async def test_budget_when_questions_are_worked_on_and_answers_unsent_then_counts_both():
    neighbour, budget = Neighbour(is_quick=False), BufferBudget(16 << 20)
    client = budget.open("a client", lambda: None, lambda: None)
    client.hold(10)
    async with joined(neighbour, budget) as (left, right):
        left.post(letters.Hello(), [bytes(1 << 20)], lambda letter, payload: None)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert budget.total_bytes == right.held_bytes + 10 == (1 << 20) + 10

        neighbour.answer(bytes(20 << 20))
        assert right.held_bytes == 20 << 20
        # Over the limit, and no client is closed for that.
        budget.relieve()
        assert budget.accounts_count == 1
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert budget.total_bytes == 10

        left.post(letters.Hello(), [bytes(1 << 20)], lambda letter, payload: None)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert right.held_bytes == 1 << 20
    assert right.held_bytes == 0
    assert budget.total_bytes == 10


async def test_shards_when_both_are_over_their_budgets_then_still_answer_each_other():
    """Nobody waits for the room of the other, so nobody waits for ever."""
    ours, theirs = map(trio.socket.from_stdlib_socket, socket.socketpair())
    left = Hatch(ours, Neighbour(), BufferBudget(1))
    right = Hatch(theirs, Neighbour(), BufferBudget(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(left.run)
        nursery.start_soon(right.run)
        with trio.fail_after(30):
            async with trio.open_nursery() as askers:
                for hatch in (left, right) * 5:
                    askers.start_soon(hatch.ask, letters.Hello(), [bytes(4 << 20)])
        nursery.cancel_scope.cancel()
