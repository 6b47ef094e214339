"""Starts, seeks, pauses, ends, and ground that shifts under a reader."""

from __future__ import annotations

import anyio
import pytest

from iggy_protocol import GetTopic, Partition, PollingStrategy, PollMessages, StatusCode
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.consumer.subscription import messages_behind
from iggy_sdk.errors import StreamNotFoundError, TopicNotFoundError
from tests.sdk.consumer.fake_topic import fake_topic_and_client, places, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
    # The old way to start elsewhere works as it did.
    pytest.mark.filterwarnings("ignore:start= overrides:DeprecationWarning"),
]

FIRST, LAST, OFFSET = PollingStrategy.first(), PollingStrategy.last(), PollingStrategy.offset


@pytest.mark.parametrize("mode", [AutoCommit.after_each(), AutoCommit.disabled()])
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (PollingStrategy.next(), {0: range(4, 10), 1: range(10), 2: range(5)}),
        (FIRST, {0: range(10), 1: range(10), 2: range(5)}),
        (LAST, {0: range(8, 10), 1: range(8, 10), 2: range(3, 5)}),
        (OFFSET(3), {0: range(3, 10), 1: range(3, 10), 2: range(3, 5)}),
    ],
)
async def test_start_when_a_group_reads_several_partitions_applies_to_each(start, expected, mode):
    async with fake_topic_and_client(3) as (fake_topic, client):
        for partition_id, length in ((0, 10), (1, 10), (2, 5)):
            fake_topic.fill(partition_id, length)
        fake_topic.make_group("g")
        fake_topic.stored[2, "g", 0] = 3
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=2, until_end=True)
        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with builder.start(start).commit(mode) as consumer:
            async for message in consumer:
                seen[message.partition_id].append(message.offset)
        assert seen == {key: list(offsets) for key, offsets in expected.items()}


@pytest.mark.parametrize("partitions", [[0, 2], "all", 2])
async def test_standalone_consumer_when_told_partitions_reads_those_in_turn(partitions):
    async with fake_topic_and_client(3) as (fake_topic, client):
        for partition_id in range(3):
            fake_topic.fill(partition_id, 4)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", until_end=True, batch_length=3)
        async with builder.partition_id(partitions) as consumer:
            seen = [message.partition_id async for message in consumer]
        chosen = {"all": [0, 1, 2], 2: [2]}.get(partitions) if partitions != [0, 2] else [0, 2]
        assert chosen is not None
        assert {partition_id: seen.count(partition_id) for partition_id in seen} == dict.fromkeys(
            chosen, 4
        )
        assert [fake_topic.offset(number, name="c") for number in chosen] == [3] * len(chosen)


async def test_until_end_when_a_producer_goes_on_ends_all_the_same():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 4)
        fake_topic.fill(1, 4)
        count = 0
        async with ConsumerBuilder.group(client, "g", "s", "t", until_end=True) as consumer:
            async for message in consumer:
                count += 1
                fake_topic.fill(message.partition_id, 1)
        assert 8 <= count < 40


async def test_iter_messages_when_it_reaches_the_end_can_be_begun_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            first = [message.offset async for message in consumer.iter_messages(until_end=True)]
            fake_topic.fill(0, 2)
            again = consumer.iter_messages(until_end=True)
            second = [message.offset async for message in again]
            await again.aclose()
            assert [message async for message in again] == []
        assert (first, second) == ([0, 1, 2], [3, 4])
        assert fake_topic.offset() == 4


async def test_seek_when_given_a_partition_moves_that_one_and_stores_what_was_done():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=4) as consumer:
            await take(consumer, 6)
            await consumer.seek(OFFSET(1), partition_id=0)
            assert fake_topic.offset() == 4
            assert places(await take(consumer, 3)) == [(0, 1), (0, 2), (0, 3)]
            assert consumer.position(0) == 4
            await consumer.seek(OFFSET(8))
            assert places(await take(consumer, 2)) == [(0, 8), (0, 9)]
            # What was read again is not stored: the group had come further.
            assert fake_topic.offset() == 4
        assert fake_topic.offset() == 8


async def test_seek_when_called_by_a_reader_that_waits_takes_effect_at_once():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            await take(consumer, 3)
            with anyio.move_on_after(5):
                await anext(consumer)
            await consumer.seek(FIRST)
            assert places(await take(consumer, 3)) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("mode", [AutoCommit.after_each(), AutoCommit.when_polling()])
@pytest.mark.parametrize("is_group", [True, False])
async def test_pause_when_a_partition_is_paused_reads_the_others_and_loses_nothing(is_group, mode):
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 6)
        fake_topic.fill(1, 6)
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", partition_id=None if is_group else "all")
        async with builder.batch_length(4).commit(mode) as consumer:
            seen = await take(consumer, 1)
            paused = seen[0].partition_id
            consumer.pause(paused)
            seen += await take(consumer, 6)
            assert {message.partition_id for message in seen[1:]} == {1 - paused}
            with anyio.move_on_after(5):
                await anext(consumer)
            consumer.resume(paused)
            seen += await take(consumer, 5)
            assert sorted(places(seen)) == [(p, n) for p in range(2) for n in range(6)]


@pytest.mark.parametrize("start", [FIRST, PollingStrategy.next()])
async def test_poll_when_the_server_commits_it_is_never_thrown_away(start):
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 6)
        fake_topic.fill(1, 6)
        mode = AutoCommit.when_polling()
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=mode, start=start)
        async with builder.batch_length(3) as consumer:
            await take(consumer, 6)
            await consumer.seek(OFFSET(1), partition_id=0)
            await take(consumer, 6)
        polls = [said for said in fake_topic.heard if isinstance(said, PollMessages)]
        assert sum(poll.auto_commit for poll in polls) == 3
        # A poll that goes back is not committed by the server; its end is, once it is later.
        assert fake_topic.stores() == [(0, 3)]


async def test_pause_when_everything_pauses_polls_nothing_until_resumed():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with (
            ConsumerBuilder.group(client, "g", "s", "t") as consumer,
            anyio.create_task_group() as tasks,
        ):
            await take(consumer, 2)
            consumer.pause()
            # A poll ahead that was under way may end.
            await anyio.sleep(1)
            polls = consumer.statistics().polls

            async def resume_later() -> None:
                await anyio.sleep(100)
                assert consumer.statistics().polls == polls
                consumer.resume()

            tasks.start_soon(resume_later)
            assert places(await take(consumer, 8)) == [(0, offset) for offset in range(2, 10)]


async def test_lag_when_asked_counts_what_is_still_to_come():
    async with fake_topic_and_client(4) as (fake_topic, client):
        for partition_id, length in ((0, 10), (1, 1), (3, 5)):
            fake_topic.fill(partition_id, length)
        fake_topic.make_group("g")
        fake_topic.stored[2, "g", 3] = 1
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=5) as consumer:
            assert await consumer.lag() == {0: 10, 1: 1, 2: 0, 3: 3}
            await take(consumer, 3)
            assert await consumer.lag() == {0: 7, 1: 1, 2: 0, 3: 3}
        async with ConsumerBuilder.standalone(client, "c", "s", "t", partition_id=3) as single:
            assert await single.lag() == {3: 5}


@pytest.mark.parametrize(
    ("current", "count", "position", "expected"),
    [(0, 0, 0, 0), (0, 1, 0, 1), (0, 1, 1, 0), (9, 10, 4, 6), (9, 3, 0, 3), (9, 3, 50, 0)],
)
async def test_behind_when_messages_are_gone_counts_those_that_are_there(
    current, count, position, expected
):
    assert messages_behind(Partition(0, 0, 1, current, 0, count), position) == expected


async def test_reader_when_retention_overtakes_it_goes_on_with_what_is_left():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", batch_length=2)
        async with builder.prefetch_messages(0) as consumer:
            await take(consumer, 2)
            fake_topic.delete_before(0, 7)
            assert places(await take(consumer, 3)) == [(0, 7), (0, 8), (0, 9)]


@pytest.mark.parametrize("is_group", [True, False])
@pytest.mark.parametrize("mode", [AutoCommit.after_each(), AutoCommit.disabled()])
async def test_reader_when_the_topic_is_purged_begins_anew(is_group, mode):
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(1, 10)
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", partition_id=None if is_group else 1)
        async with builder.commit(mode) as consumer:
            await take(consumer, 10)
            fake_topic.purge()
            with anyio.move_on_after(3):
                await anext(consumer)
            fake_topic.fill(1, 3)
            assert places(await take(consumer, 3)) == [(1, 0), (1, 1), (1, 2)]


async def test_reader_when_a_killed_server_lost_the_end_of_the_log_reads_what_takes_its_place():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 10)
            with anyio.move_on_after(3):
                await anext(consumer)
            del fake_topic.logs[0].messages[6:]
            fake_topic.stored[2, "g", 0] = 5
            fake_topic.put(0, b"new")
            assert [message.payload for message in await take(consumer, 1)] == [b"new"]


async def test_partitions_when_added_while_reading_are_read_too():
    async with fake_topic_and_client(1) as (fake_topic, client):
        fake_topic.fill(0, 2)
        async with (
            ConsumerBuilder.group(client, "g", "s", "t") as member,
            ConsumerBuilder.standalone(client, "c", "s", "t", partition_id="all") as single,
        ):
            for consumer in (member, single):
                await take(consumer, 2)
            fake_topic.add_partition()
            fake_topic.fill(1, 2)
            assert places(await take(member, 2)) == [(1, 0), (1, 1)]
            assert places(await take(single, 2)) == [(1, 0), (1, 1)]


async def test_partitions_when_added_while_there_is_always_something_to_read_are_read_too():
    async with fake_topic_and_client(1) as (fake_topic, client):
        fake_topic.fill(0, 10_000)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", partition_id="all")
        async with builder.batch_length(10).prefetch_messages(50) as consumer:
            await take(consumer, 1)
            fake_topic.add_partition()
            fake_topic.fill(1, 1)
            for _ in range(200):
                await anyio.sleep(0.1)
                if (await take(consumer, 1))[0].partition_id == 1:
                    return
            pytest.fail("the new partition starved")


async def test_partitions_when_deleted_while_all_are_read_are_left_out():
    async with fake_topic_and_client(3) as (fake_topic, client):
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", partition_id="all")
        async with builder as consumer:
            with anyio.move_on_after(1):
                await anext(consumer)
            del fake_topic.logs[2:]
            fake_topic.fill(1, 2)
            assert places(await take(consumer, 2)) == [(1, 0), (1, 1)]


async def test_replay_when_allowed_hands_out_what_was_moved_back():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        builder = ConsumerBuilder.group(client, "g", "s", "t")
        for allowed, expected in ((False, []), (True, [1, 2, 3])):
            async with builder.allow_replay(allowed).start(FIRST) as consumer:
                await take(consumer, 4)
                with anyio.move_on_after(1):
                    await anext(consumer)
                fake_topic.stored[2, "g", 0] = 0
                seen = [message.offset async for message in consumer.iter_messages(until_end=True)]
                assert seen == expected


async def test_topic_when_it_comes_late_is_waited_for_as_often_as_told():
    async with fake_topic_and_client() as (fake_topic, client), anyio.create_task_group() as tasks:
        fake_topic.has_topic = False

        async def create_later() -> None:
            await anyio.sleep(25)
            fake_topic.has_topic = True

        tasks.start_soon(create_later)
        builder = ConsumerBuilder.group(client, "g", "s", "t")
        with pytest.raises(TopicNotFoundError):
            await builder
        async with builder.init_retries(10, 5.0):
            assert fake_topic.count(GetTopic) == 1 + 6
        fake_topic.has_stream = False
        with pytest.raises(StreamNotFoundError):
            await builder


async def test_poll_when_the_server_does_not_answer_for_long_is_made_until_it_does():
    async with fake_topic_and_client(request_timeout=2.0) as (fake_topic, client):
        fake_topic.fill(0, 3)
        for _ in range(20):
            fake_topic.plan(PollMessages, "hold")
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            assert places(await take(consumer, 1)) == [(0, 0)]
            assert anyio.current_time() > 30


async def test_poll_when_the_server_stumbles_is_made_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        fake_topic.plan(PollMessages, *[StatusCode.CANNOT_READ_MESSAGE] * 3, "drop", None)
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            assert places(await take(consumer, 3)) == [(0, 0), (0, 1), (0, 2)]
