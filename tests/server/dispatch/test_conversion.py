"""Polled messages become batches in slices; the slices of all polls take turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    Dialect,
    MessageBatch,
    PolledWriter,
    PollMessages,
    decode_reply,
)
from iggy_ref_server.dispatch import conversion
from iggy_ref_server.dispatch.conversion import Conversions
from iggy_ref_server.partitions.steps import Suspended, run_async, run_now
from iggy_ref_server.storage.interface import FileSlice, StorageError
from tests.protocol.vsr_strategies import make_stored

if TYPE_CHECKING:
    from iggy_protocol import PolledBatches

pytestmark = pytest.mark.trio

SLICE = 1000


class MemoryFile:
    """A file whose bytes are never in the page cache."""

    path = "log"

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_nowait(self, size, position):
        return None

    async def read(self, size, position):
        await trio.lowlevel.checkpoint()
        return self.content[position : position + size]


def slice_of(content: bytes, position: int, size: int) -> FileSlice:
    file: Any = MemoryFile(content)
    return FileSlice(file, position, size)


class Rounds(trio.abc.Instrument):
    """Counts the rounds of the loop."""

    def __init__(self):
        self.count = 0

    def before_io_wait(self, timeout):
        self.count += 1


class CountedWriter(PolledWriter):
    """Notes in which round of the loop it is given how much."""

    def __init__(self, rounds, taken):
        super().__init__(0, 0, dialect=Dialect.V0_12_2)
        self.rounds, self.taken = rounds, taken

    def add(self, messages):
        self.taken[self.rounds.count] = self.taken.get(self.rounds.count, 0) + len(messages)
        return super().add(messages)


@pytest.fixture(autouse=True, scope="module")
def _small_slices():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion, "SLICE_BYTES_MAX", SLICE)
        yield


def make_writer(**options):
    return PolledWriter(0, 0, dialect=Dialect.V0_12_2, **options)


def messages_of(sizes):
    return [make_stored(bytes([n % 256]) * size, offset=n) for n, size in enumerate(sizes)]


def reply_of(written):
    payload = b"".join(map(bytes, written.buffers))
    return decode_reply(PollMessages.CODE, payload, Dialect.V0_12_2)


def parts_of(messages, cuts, data):
    """Lay messages into buffers and files."""
    parts: list[Any] = []
    at = 0
    for cut in [*sorted(cuts), len(messages)]:
        content = b"".join(messages[at:cut])
        ahead = data.draw(st.sampled_from([None, 0, 7]))
        if ahead is None:
            parts.append(content)
        else:
            parts.append(slice_of(bytes(ahead) + content, ahead, len(content)))
        at = cut
    return parts


SIZES = st.lists(st.integers(0, 300) | st.integers(900, 3000), max_size=40)


@given(sizes=SIZES, data=st.data())
async def test_messages_when_laid_anyhow_then_all_are_converted_once(sizes, data):
    messages = messages_of(sizes)
    cuts = data.draw(st.lists(st.integers(0, len(messages)), max_size=3))
    held: list[int] = []

    written = await run_async(
        Conversions(held.append).write(
            make_writer(), parts_of(messages, cuts, data), conversion.SLICE_BYTES_MAX
        )
    )

    reply = reply_of(written)
    assert reply.messages == MessageBatch(b"".join(messages))
    assert written.messages_count == len(messages)
    assert sum(held) == 0


@given(sizes=SIZES.filter(bool), data=st.data())
async def test_message_when_damaged_then_those_before_it_are_converted(sizes, data):
    messages = messages_of(sizes)
    hurt = data.draw(st.integers(0, len(messages) - 1))
    at = data.draw(st.integers(0, len(messages[hurt]) - 1))
    damaged = bytearray(messages[hurt])
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    before = messages[:hurt]
    messages[hurt] = bytes(damaged)

    written = await run_async(
        Conversions().write(make_writer(), parts_of(messages, [], data), 1 << 20)
    )

    assert written.is_damaged
    assert reply_of(written).messages == MessageBatch(b"".join(before))


@given(sizes=SIZES, data=st.data())
async def test_limit_when_reached_then_the_reply_fits_and_nothing_is_held(sizes, data):
    messages = messages_of(sizes)
    held: list[int] = []
    limit = data.draw(st.integers(40, 5000))

    written = await run_async(
        Conversions(held.append).write(
            make_writer(bytes_max=limit), parts_of(messages, [], data), limit
        )
    )

    size = sum(len(bytes(part)) for part in written.buffers)
    assert size <= limit or written.messages_count == 1
    assert (
        reply_of(written).messages.payloads()
        == [message.payload for message in MessageBatch(b"".join(messages))][
            : written.messages_count
        ]
    )
    assert sum(held) == 0


async def test_poll_when_it_fits_into_one_slice_then_is_converted_at_once():
    messages = messages_of([100] * 5)

    written = run_now(Conversions().write(make_writer(), [b"".join(messages)], SLICE))

    assert not isinstance(written, Suspended)
    assert written.messages_count == 5


async def test_polls_when_many_are_large_then_the_loop_converts_one_slice_in_a_round():
    rounds = Rounds()
    taken: dict[int, int] = {}
    conversions = Conversions()
    messages = b"".join(messages_of([100] * 200))
    counts: list[PolledBatches] = []

    async def poll():
        writer = CountedWriter(rounds, taken)
        counts.append(await run_async(conversions.write(writer, [messages], 1 << 20)))

    trio.lowlevel.add_instrument(rounds)
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(poll)
    trio.lowlevel.remove_instrument(rounds)

    assert [written.messages_count for written in counts] == [200] * 8
    assert max(taken.values()) <= SLICE
    assert len(taken) >= 8 * len(messages) // SLICE


@pytest.mark.parametrize("in_file", [False, True])
async def test_poll_when_cancelled_at_any_step_then_holds_nothing_and_others_go_on(in_file):
    content = b"".join(messages_of([100] * 60))
    part = slice_of(content, 0, len(content)) if in_file else content
    steps_count = 0
    while True:
        held: list[int] = []
        conversions = Conversions(held.append)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_async, conversions.write(make_writer(), [part], 1 << 20))
                for _ in range(steps_count):
                    await trio.lowlevel.checkpoint()
                is_done = not nursery.child_tasks
                scope.cancel()
        assert sum(held) == 0
        other = await run_async(conversions.write(make_writer(), [part], 1 << 20))
        assert other.messages_count == 60
        if is_done:
            break
        steps_count += 1
    assert steps_count > 5


async def test_poll_when_closed_before_its_first_turn_then_holds_nothing():
    held: list[int] = []
    content = b"".join(messages_of([100] * 60))

    suspended = run_now(Conversions(held.append).write(make_writer(), [content], 1 << 20))

    assert isinstance(suspended, Suspended)
    assert sum(held) == len(content)
    suspended.close()
    assert sum(held) == 0


async def test_file_when_it_ends_inside_a_part_then_refused_and_nothing_is_held():
    content = b"".join(messages_of([100] * 60))
    held: list[int] = []
    part = slice_of(content[:-50], 0, len(content))

    with pytest.raises(StorageError):
        await run_async(Conversions(held.append).write(make_writer(), [part], 1 << 20))

    assert sum(held) == 0
