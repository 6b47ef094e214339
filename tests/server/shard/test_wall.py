"""The wall between two shards: letters in order, bounded both ways, and whole at any size."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from iggy_protocol import StatusCode
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
async def joined(neighbour: Neighbour) -> AsyncIterator[tuple[Hatch, Hatch]]:
    """Join two shards; the first one asks."""
    ours, theirs = map(trio.socket.from_stdlib_socket, socket.socketpair())
    left, right = Hatch(ours, Neighbour()), Hatch(theirs, neighbour)
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
