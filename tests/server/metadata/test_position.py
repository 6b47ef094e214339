"""The position of the metadata: up with each change and login, and never back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import CreateStream, Dialect, GetStreams, LoginUser, RequestId
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.metadata.position import (
    EPOCH_MS,
    POSITION_END,
    MetadataPosition,
    make_position_memory,
)
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.sessions.table import NewSession
from iggy_ref_server.shard.session_calls import LocalSessions
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.simulated.server import open_simulated_server

NOW_US = 1_800_000_000_000_000


def started(metadata=Metadata.EMPTY, now_us=NOW_US):
    position = MetadataPosition()
    position.start(metadata, now_us)
    return position


def test_position_when_started_then_is_the_time_in_milliseconds_and_goes_up_by_one():
    position = started()

    assert position.current == NOW_US // 1000 - EPOCH_MS
    assert position.advance() == position.current == NOW_US // 1000 - EPOCH_MS + 1


def test_position_when_the_clock_stands_before_2020_then_is_positive_all_the_same():
    assert started(now_us=0).current >= 1


def test_position_when_the_clock_was_set_back_then_begins_at_the_newest_generation():
    later = replace(Metadata.EMPTY, last_generation=NOW_US + 5_000_000)

    assert started(later).current == started(now_us=NOW_US + 5_000_000).current


def test_position_when_it_would_go_back_then_that_is_our_mistake():
    position = started()

    with pytest.raises(AssertionError, match="only goes up"):
        position.start(Metadata.EMPTY, NOW_US)


def test_position_when_it_is_read_by_others_then_they_see_what_shard_0_has_set():
    memory = make_position_memory()
    writer, reader = MetadataPosition(memory), MetadataPosition(memory)
    assert reader.current == 0
    writer.start(Metadata.EMPTY, NOW_US)

    assert writer.advance() == reader.current


@given(
    lives=st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 2_000_000)), max_size=10),
    hurry=st.integers(0, 1000),
)
def test_position_when_the_server_starts_again_and_again_then_never_goes_back(lives, hurry):
    """However many changes there were in a moment; a login takes a millisecond at the least."""
    metadata, now_us, last = Metadata.EMPTY, NOW_US, 0
    for changes, passed_us in lives:
        position = started(metadata, now_us)
        assert last < position.current < POSITION_END
        for _ in range(min(changes, hurry)):
            position.advance()
        metadata = replace(metadata, version=metadata.version + min(changes, hurry))
        logins = passed_us // 1000
        for _ in range(min(logins, 100)):
            position.advance()
        # A process takes longer to start than this.
        last, now_us = position.current, now_us + passed_us + 1000


@pytest.mark.trio
@pytest.mark.parametrize("shards_count", [1, 3])
async def test_position_when_metadata_change_then_no_shard_is_behind_it(
    autojump_clock, shards_count
):
    async with open_simulated_server(shards_count=shards_count) as world:
        positions = [shard.handler_context.position for shard in world.shards]
        clients = [await world.log_in(shard_id) for shard_id in range(shards_count)]
        seen = [positions[0].current]
        for number in range(6):
            await clients[number % shards_count].ask(CreateStream(f"s{number}"))
            assert len({position.current for position in positions}) == 1
            seen.append(positions[-1].current)
            # What a shard tells is no newer than what it serves.
            for client in clients:
                assert len(await client.ask(GetStreams())) == number + 1

        assert seen == sorted(set(seen))


@pytest.mark.trio
async def test_sessions_when_they_begin_on_any_shard_then_have_numbers_of_their_own(
    autojump_clock,
):
    async with open_simulated_server(shards_count=3) as world:
        numbers: list[int] = []

        async def register(shard, number):
            client = bytes([number, *range(15)])
            request_id = RequestId(client, 0, 0, bytes(16), dialect=Dialect.V0_12_2)
            new = NewSession(7, request_id, 0, 1, b"")
            numbers.append(await shard.handler_context.sessions.register(new))

        async with trio.open_nursery() as nursery:
            for number, shard in enumerate(world.shards * 5):
                nursery.start_soon(register, shard, number)

        assert len(set(numbers)) == 15
        assert max(numbers) == world.shards[0].handler_context.position.current


@pytest.mark.trio
async def test_position_when_the_server_starts_again_at_once_then_goes_on_from_there(
    autojump_clock,
):
    storage, clock, last = SimulatedStorage(), SimulatedClock(), 0
    for _ in range(3):
        async with open_simulated_server(storage, clock=clock) as world:
            context = world.shards[0].handler_context
            assert isinstance(context.sessions, LocalSessions)
            assert context.position.current >= last
            client = world.connect()
            await client.ask(LoginUser("iggy", "iggy"))
            for number in range(50):
                await client.ask(CreateStream(f"s{last} {number}"))
            last = context.position.current
