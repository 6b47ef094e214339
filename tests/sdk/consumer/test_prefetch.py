"""Polling ahead: bounded, dropped when the position changes, never delivered twice."""

from __future__ import annotations

import anyio
import pytest

from iggy_protocol import JoinConsumerGroup, PollMessages, StatusCode
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.errors import PermissionDeniedError
from tests.sdk.consumer.fake_topic import fake_topic_and_client, places, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]


@pytest.mark.parametrize("is_group", [True, False])
async def test_prefetch_when_the_application_is_busy_holds_no_more_than_its_bound(is_group):
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 500)
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", batch_length=10, prefetch_messages=35)
        async with builder as consumer:
            await take(consumer, 1)
            await anyio.sleep(3600)
            figures = consumer.statistics()
            assert (figures.buffered, figures.prefetched) == (9, 30)
            asked = [
                said.count
                for said in fake_topic.heard
                if isinstance(said, PollMessages) and said.count
            ]
            assert asked == [10] * 4
            assert fake_topic.stores() == []
            assert [one.offset for one in await take(consumer, 499)] == [*range(1, 500)]
        assert fake_topic.offset() == 498


async def test_prefetch_when_bounded_in_bytes_asks_for_what_fits():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.put(0, *[bytes(936)] * 200)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=10)
        async with builder.prefetch_bytes(25_000) as consumer:
            await take(consumer, 1)
            await anyio.sleep(60)
            assert consumer.statistics().prefetched == 20
        async with builder.prefetch_bytes(4_500) as consumer:
            await take(consumer, 1)
            await anyio.sleep(60)
            assert consumer.statistics().prefetched == 4


@pytest.mark.parametrize(
    "off",
    [
        {"prefetch_messages": 0},
        {"prefetch_bytes": 0},
        {"poll_interval": 0.1},
        {"commit": AutoCommit.when_polling()},
    ],
)
async def test_prefetch_when_turned_off_or_unsafe_polls_only_when_asked(off):
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 50)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=10, **off) as consumer:
            await take(consumer, 1)
            await anyio.sleep(60)
            assert consumer.statistics().prefetched == 0
            assert fake_topic.count(PollMessages) == 1


async def test_prefetch_when_there_is_nothing_more_does_not_poll_on():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            await take(consumer, 1)
            await anyio.sleep(3600)
            assert fake_topic.count(PollMessages) == 1
            fake_topic.fill(0, 1)
            assert [one.offset for one in await take(consumer, 3)] == [1, 2, 3]


async def test_prefetch_when_several_partitions_have_messages_takes_them_in_turn():
    async with fake_topic_and_client(3) as (fake_topic, client):
        for partition_id in range(3):
            fake_topic.fill(partition_id, 40)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=10, until_end=True)
        seen = []
        async with builder as consumer:
            async for message in consumer:
                await anyio.sleep(0.01)
                seen.append((message.partition_id, message.offset))
            assert await consumer.lag() == {0: 0, 1: 0, 2: 0}
        assert sorted(seen) == [(p, n) for p in range(3) for n in range(40)]
        for partition_id in range(3):
            assert [n for p, n in seen if p == partition_id] == [*range(40)]
        assert [fake_topic.offset(one) for one in range(3)] == [39] * 3


async def test_position_when_messages_were_fetched_ahead_is_that_of_the_next_delivery():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 100)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=10) as consumer:
            await take(consumer, 10)
            await anyio.sleep(1)
            assert consumer.statistics().prefetched == 90
            assert consumer.position(0) == 10
            assert await consumer.lag() == {0: 90}


async def test_seek_when_messages_were_fetched_ahead_drops_them_and_replies_under_way():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 100)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=10)
        async with builder.prefetch_messages(20) as consumer:
            await take(consumer, 1)
            await anyio.sleep(1)
            held = fake_topic.plan(PollMessages, "hold")
            await take(consumer, 10)
            await held.is_reached.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consumer.seek, 55)
                await anyio.sleep(0.5)
                held.release.set()
            assert [one.offset for one in await take(consumer, 12)] == [*range(55, 67)]


async def test_pause_when_messages_were_fetched_ahead_delivers_none_of_the_partition():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 50)
        fake_topic.fill(1, 50)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=10) as consumer:
            seen = await take(consumer, 1)
            await anyio.sleep(1)
            paused = seen[0].partition_id
            consumer.pause(paused)
            seen += await take(consumer, 50)
            assert {one.partition_id for one in seen[1:]} == {1 - paused}
            consumer.resume(paused)
            seen += await take(consumer, 49)
            assert sorted(places(seen)) == [(p, n) for p in range(2) for n in range(50)]


async def test_partition_when_lost_with_messages_fetched_ahead_is_not_delivered():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 50)
        fake_topic.fill(1, 50)
        mode = AutoCommit.after_each(coalesce_messages=1)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=10, commit=mode)
        async with builder as consumer:
            seen = places(await take(consumer, 2))
            await anyio.sleep(1)
            fake_topic.forget_members("g")
            seen += places(await take(consumer, 98))
            assert sorted(seen) == [(p, n) for p in range(2) for n in range(50)]


async def test_error_when_a_poll_ahead_fails_comes_after_what_was_fetched():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 50)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", batch_length=10)
        async with builder.prefetch_messages(20) as consumer:
            fake_topic.plan(PollMessages, None, None, StatusCode.UNAUTHORIZED)
            await take(consumer, 1)
            await anyio.sleep(1)
            assert [one.offset for one in await take(consumer, 19)] == [*range(1, 20)]
            polls = fake_topic.count(PollMessages)
            with pytest.raises(PermissionDeniedError):
                await take(consumer, 1)
            # It is the failure of the poll ahead; nothing was asked again.
            assert fake_topic.count(PollMessages) == polls
            assert [one.offset for one in await take(consumer, 2)] == [20, 21]


async def test_closing_when_a_poll_ahead_is_under_way_leaves_the_group_for_good():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 50)
        fake_topic.fill(1, 50)
        builder = ConsumerBuilder.group(client, "g", "s", "t", connection="shared")
        async with builder.batch_length(10).prefetch_messages(10) as consumer:
            await take(consumer, 10)
            await anyio.sleep(1)
            held = fake_topic.plan(PollMessages, "hold")
            await take(consumer, 1)
            await held.is_reached.wait()
            held.release.set()
        await anyio.sleep(1)
        assert fake_topic.make_group("g").members_count == 0
        assert fake_topic.count(JoinConsumerGroup) == 2


@pytest.mark.parametrize("order_by", [None, "partition"])
async def test_run_when_it_polls_ahead_handles_each_message_once(order_by):
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 60)
        fake_topic.fill(1, 60)
        seen = []

        async def handle(message) -> None:
            await anyio.sleep(0.01)
            seen.append((message.partition_id, message.offset))

        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=10)
        async with builder as consumer:
            await consumer.run(handle, concurrency=3, order_by=order_by, until_end=True)
            latency = consumer.statistics().handler_latency
        assert sorted(seen) == [(p, n) for p in range(2) for n in range(60)]
        assert [fake_topic.offset(one) for one in range(2)] == [59, 59]
        assert latency.count == 120


async def test_batches_when_polled_ahead_are_those_of_the_polls():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 45)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=10)
        lengths = []
        async with builder as consumer:
            async for batch in consumer.batches(until_end=True):
                lengths.append(len(batch))
                await anyio.sleep(1)
        assert lengths == [10, 10, 10, 10, 5]
        assert fake_topic.offset() == 44
