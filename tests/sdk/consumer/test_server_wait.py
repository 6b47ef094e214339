"""Waiting on the server, which it can from 0.10 on: nothing is polled in vain, nothing is late."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import (
    FetchMessages,
    PollDeferred,
    PollingStrategy,
    PollMessages,
    StatusCode,
    StoreConsumerOffset,
    SyncConsumerGroup,
    WaitForMessages,
)
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.consumer.server_wait import ANSWER_SECONDS, WAIT_SECONDS_MAX
from tests.sdk.consumer.fake_topic import FakeTopic, fake_topic_and_client, places, take
from tests.sdk.dialects import SPOKEN
from tests.sdk.net.clients import ONE, TWO, client_of, cluster
from tests.sdk.scripted_peer import scripted_server
from tests.sdk.vsr_peer import vsr_peers

if TYPE_CHECKING:
    from iggy_sdk.consumer import IggyConsumer

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("later_dialect"),
    pytest.mark.filterwarnings("ignore:start= overrides:DeprecationWarning"),
]

WAITS = (PollDeferred, WaitForMessages, FetchMessages)


def waits(fake_topic: FakeTopic) -> list[Any]:
    return [said for said in fake_topic.heard if isinstance(said, WAITS)]


async def idle(consumer: IggyConsumer[Any], seconds: float) -> None:
    """Read from a consumer for which there is nothing."""
    with anyio.move_on_after(seconds), suppress(StopAsyncIteration):
        await anext(consumer)


@pytest.mark.parametrize("partitions_count", [1, 3])
@pytest.mark.parametrize("is_group", [True, False])
async def test_message_when_it_comes_to_a_waiting_consumer_then_is_there_at_once(
    partitions_count, is_group
):
    async with fake_topic_and_client(partitions_count) as (fake_topic, client):
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", partition_id=None if is_group else "all")
        async with builder as consumer, anyio.create_task_group() as tasks:
            arrived: list[float] = []

            async def read() -> None:
                while True:
                    await anext(consumer)
                    arrived.append(anyio.current_time())

            tasks.start_soon(read)
            sent: list[float] = []
            for number in range(10):
                await anyio.sleep(0.777)
                sent.append(anyio.current_time())
                fake_topic.fill(number % partitions_count, 1)
            await anyio.sleep(0.1)
            tasks.cancel_scope.cancel()

    delays = [there - gone for gone, there in zip(sent, arrived, strict=True)]
    assert max(delays) <= 0.005


async def test_consumer_when_idle_then_asks_once_in_twenty_seconds():
    async with (
        fake_topic_and_client() as (fake_topic, client),
        ConsumerBuilder.standalone(client, "c", "s", "t") as consumer,
    ):
        await idle(consumer, 10 * WAIT_SECONDS_MAX + 1)
        assert fake_topic.count(PollMessages) == 1
        assert len(waits(fake_topic)) == 11


async def test_member_when_idle_then_asks_for_its_partitions_once_a_second_and_waits_meanwhile():
    async with (
        fake_topic_and_client(4) as (fake_topic, client),
        ConsumerBuilder.group(client, "g", "s", "t") as consumer,
    ):
        await idle(consumer, 30)
        assert fake_topic.count(PollMessages) == 4
        assert fake_topic.count(SyncConsumerGroup) in (30, 31)
        assert len(waits(fake_topic)) in (30, 31)


async def test_consumer_when_it_stops_waiting_then_the_server_forgets_the_request():
    async with fake_topic_and_client() as (fake_topic, client):
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            await idle(consumer, 1)
            await anyio.sleep(0.1)
            assert fake_topic.deferred.waiting_count == 0
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(idle, consumer, 10)
                await anyio.sleep(1)
                assert fake_topic.deferred.waiting_count == 1
                consumer.stop()
        await anyio.sleep(0.1)
        assert fake_topic.deferred.waiting_count == 0


@pytest.mark.parametrize("partitions_count", [1, 2])
async def test_position_when_it_is_moved_while_waiting_then_the_wait_is_for_the_new_one(
    partitions_count,
):
    async with fake_topic_and_client(partitions_count) as (fake_topic, client):
        fake_topic.fill(0, 5)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", partition_id="all")
        async with builder as consumer, anyio.create_task_group() as tasks:
            seen: list[int] = []

            async def read() -> None:
                while True:
                    seen.append((await anext(consumer)).offset)

            tasks.start_soon(read)
            await anyio.sleep(1)
            assert seen == [0, 1, 2, 3, 4]
            await consumer.seek(PollingStrategy.offset(3), 0)
            await anyio.sleep(0.1)
            assert seen[5:] == [3, 4]
            consumer.pause()
            await anyio.sleep(0.1)
            assert fake_topic.deferred.waiting_count == 0
            fake_topic.fill(0, 1)
            await anyio.sleep(1)
            assert len(seen) == 7
            consumer.resume()
            await anyio.sleep(0.1)
            assert seen[7:] == [5]
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("partitions_count", [1, 2])
async def test_server_when_it_commits_what_it_hands_out_then_no_wait_commits(partitions_count):
    async with fake_topic_and_client(partitions_count) as (fake_topic, client):
        mode = AutoCommit.when_polling()
        async with ConsumerBuilder.group(client, "g", "s", "t", commit=mode) as consumer:
            await idle(consumer, 3)
            fake_topic.fill(0, 2)
            assert places(await take(consumer, 2)) == [(0, 0), (0, 1)]
        assert fake_topic.offset() == 1
        assert waits(fake_topic)
        assert not any(getattr(wait, "auto_commit", False) for wait in waits(fake_topic))


@pytest.mark.parametrize(
    "start", [PollingStrategy.first(), PollingStrategy.last(), PollingStrategy.next()]
)
async def test_partitions_when_empty_then_are_waited_for_wherever_they_start(start):
    async with fake_topic_and_client(2) as (fake_topic, client):
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", partition_id="all")
        async with builder.start(start) as consumer:
            await idle(consumer, 30)
            assert fake_topic.count(PollMessages) == 2
            fake_topic.fill(1, 1)
            assert places(await take(consumer, 1)) == [(1, 0)]


async def test_partitions_when_they_start_at_a_time_then_are_polled_now_and_then():
    async with fake_topic_and_client(2) as (fake_topic, client):
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", partition_id="all")
        async with builder.start(PollingStrategy.timestamp(7)) as consumer:
            await idle(consumer, 5)
            assert not waits(fake_topic)
            fake_topic.fill(1, 1)
            assert places(await take(consumer, 1)) == [(1, 0)]


async def test_end_when_it_is_read_to_then_nothing_waits():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 3)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", partition_id="all")
        async with builder as consumer:
            seen = [message async for message in consumer.iter_messages(until_end=True)]
        assert len(seen) == 3
        assert not waits(fake_topic)


async def test_batch_when_it_may_wait_a_moment_then_the_server_waits_no_longer():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 2)
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            begun_at = anyio.current_time()
            batch = await anext(consumer.batches(max_messages=5, max_wait=0.5))
            assert len(batch) == 2
            assert anyio.current_time() - begun_at == pytest.approx(0.5, abs=0.02)


async def test_wait_when_the_server_refuses_it_at_once_then_is_not_asked_in_a_loop():
    async with fake_topic_and_client() as (fake_topic, client):
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            fake_topic.deferred.answers_at_once = True
            await idle(consumer, 10)
        assert len(waits(fake_topic)) < 10 / 0.05


async def test_wait_when_there_is_no_room_for_it_then_is_asked_again_and_reads_on():
    async with (
        fake_topic_and_client() as (fake_topic, client),
        ConsumerBuilder.standalone(client, "c", "s", "t") as consumer,
    ):
        fake_topic.deferred.refusals = [StatusCode.TOO_MANY_DEFERRED_POLLS] * 5
        await idle(consumer, 5)
        fake_topic.fill(0, 1)
        assert places(await take(consumer, 1)) == [(0, 0)]


async def test_server_when_it_never_answers_a_wait_then_the_connection_is_replaced():
    async with fake_topic_and_client() as (fake_topic, client):
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            fake_topic.deferred.is_deaf = True
            await idle(consumer, WAIT_SECONDS_MAX + ANSWER_SECONDS + 1)
            fake_topic.deferred.is_deaf = False
            fake_topic.fill(0, 1)
            assert places(await take(consumer, 1)) == [(0, 0)]
        assert client.epoch == 2


async def test_connection_when_lost_while_waiting_then_the_session_and_the_wait_go_on():
    async with fake_topic_and_client() as (fake_topic, client):
        builder = ConsumerBuilder.group(client, "g", "s", "t")
        async with builder as consumer, anyio.create_task_group() as tasks:
            seen: list[Any] = []

            async def read() -> None:
                seen.extend(await take(consumer, 2))

            tasks.start_soon(read)
            await anyio.sleep(0.5)
            fake_topic.hang_up(keeps_sessions=True)
            fake_topic.fill(0, 2)
            await anyio.sleep(0.5)
            assert places(seen) == [(0, 0), (0, 1)]
            assert consumer.statistics().joins == 1


async def test_topic_when_purged_while_waiting_then_the_next_history_is_read():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            await take(consumer, 5)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(idle, consumer, 1)
                await anyio.sleep(0.5)
                fake_topic.purge()
                fake_topic.fill(0, 2)
                tasks.cancel_scope.cancel()
            assert places(await take(consumer, 2)) == [(0, 0), (0, 1)]
        assert fake_topic.count(StoreConsumerOffset)


async def test_consumer_when_its_partitions_are_on_several_nodes_then_no_node_waits_for_all():
    peers = vsr_peers(SPOKEN.dialect)
    peers.roster = cluster(ONE, TWO)
    fake_topic = FakeTopic(2)
    async with (
        scripted_server(fake_topic.serve, peers=peers) as server,
        client_of(server, **SPOKEN.options) as client,
        ConsumerBuilder.standalone(client, "c", "s", "t", partition_id="all") as consumer,
    ):
        await idle(consumer, 5)
        assert client.is_clustered
        assert waits(fake_topic) == []
        assert fake_topic.count(PollMessages) > 2
        fake_topic.fill(1, 1)
        assert (await anext(consumer)).partition_id == 1
