"""Reading one by one: acknowledging by asking for the next, and every mode of committing."""

from __future__ import annotations

import anyio
import pytest

from iggy_protocol import GetConsumerOffset, PollMessages, StatusCode, StoreConsumerOffset
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.errors import ClientClosedError, PermissionDeniedError
from tests.sdk.consumer.fake_topic import fake_topic_and_client, places, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]


async def test_message_when_the_next_is_asked_for_counts_as_done():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            assert places(await take(consumer, 3)) == [(0, 0), (0, 1), (0, 2)]
        assert fake_topic.offset() == 1


async def test_message_when_its_block_is_left_by_break_stays_uncommitted():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            async for _ in consumer:
                break
        assert fake_topic.offset() is None


async def test_message_when_the_body_raises_stays_uncommitted_and_the_error_is_bare():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)

        async def fail_at_the_third() -> None:
            async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
                async for message in consumer:
                    if message.offset == 2:
                        raise KeyError(message.offset)

        with pytest.raises(KeyError):
            await fail_at_the_third()
        assert fake_topic.offset() == 1


async def test_message_when_committed_by_hand_is_stored_at_once():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            message = (await take(consumer, 3))[-1]
            await message.commit()
            assert fake_topic.offset() == 2
            assert consumer.get_last_stored_offset(0) == 2


async def test_commit_when_the_buffer_is_drained_comes_before_the_next_poll():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=3)
        async with builder.prefetch_messages(0) as consumer:
            await take(consumer, 3)
            fake_topic.fill(0, 1)
            await take(consumer, 1)
            kinds = [type(said) for said in fake_topic.heard]
            assert kinds[-2:] == [StoreConsumerOffset, PollMessages]
        assert fake_topic.stores() == [(0, 2)]


async def test_commits_when_messages_are_slow_are_gathered_for_a_fifth_of_a_second():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 100)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            for _ in range(21):
                await take(consumer, 1)
                await anyio.sleep(0.05)
            assert 4 <= len(fake_topic.stores()) <= 6
            assert fake_topic.offset() in range(14, 20)


async def test_commit_when_a_handler_takes_long_does_not_wait_for_it():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 100)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 10)
            await anyio.sleep(0.3)
            assert fake_topic.offset() == 8
            await anyio.sleep(3600)
            assert fake_topic.stores() == [(0, 8)]


async def test_commits_when_messages_are_fast_are_gathered_by_the_thousand():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3_500)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=5_000)
        async with builder.prefetch_messages(0) as consumer:
            await take(consumer, 3_500)
            assert fake_topic.stores() == [(0, 999), (0, 1_999), (0, 2_999)]
        assert fake_topic.offset() == 3_498


async def test_commits_when_there_is_more_to_read_are_stored_meanwhile_and_not_late():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5_000)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=4_000)
        async with builder as consumer:
            step = fake_topic.plan(StoreConsumerOffset, "hold")
            # While the first store is under way, the reader goes on, but not for ever.
            await take(consumer, 1_500)
            await step.is_reached.wait()
            await take(consumer, 400)
            assert [partition_id for partition_id, _ in fake_topic.stores()] == [0]
            with anyio.move_on_after(1):
                await take(consumer, 200)
                pytest.fail("the store is late")
            step.release.set()
            await take(consumer, 100)
            assert consumer.statistics().commits >= 2


async def test_commits_when_the_consumer_has_no_background_task_happen_as_messages_are_read():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 100)
        consumer = await ConsumerBuilder.group(client, "g", "s", "t")
        await take(consumer, 10)
        await anyio.sleep(0.3)
        await take(consumer, 1)
        assert fake_topic.offset() == 9
        await take(consumer, 1)
        assert fake_topic.offset() == 9
        await consumer.shutdown()
        await consumer.shutdown()
        assert fake_topic.offset() == 10
        assert consumer.is_closed
        with pytest.raises(ClientClosedError):
            await anext(consumer)


@pytest.mark.parametrize(
    ("mode", "read", "at_once", "in_the_end"),
    [
        (AutoCommit.disabled(), 10, None, None),
        (AutoCommit.interval(60), 10, None, 8),
        (AutoCommit.when_polling(), 1, 4, 4),
        (AutoCommit.when_each(), 1, 0, 0),
        (AutoCommit.when_each(), 7, 6, 6),
        (AutoCommit.when_all(), 4, None, None),
        (AutoCommit.when_all(), 5, 4, 4),
        (AutoCommit.when_every_nth(3), 8, 5, 5),
        (AutoCommit.after_each(coalesce_messages=1), 3, 1, 1),
        (AutoCommit.after_all(), 5, None, None),
        (AutoCommit.after_all(), 6, 4, 4),
        (AutoCommit.after_every_nth(3), 9, 5, 5),
        (AutoCommit.after_every_nth(3), 10, 8, 8),
        (AutoCommit.interval(60, or_=AutoCommit.after_every_nth(3)), 9, 5, 7),
    ],
)
@pytest.mark.parametrize("is_group", [True, False])
async def test_mode_when_messages_are_read_stores_what_it_says_and_no_more(
    mode, read, at_once, in_the_end, is_group
):
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 20)
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        async with make(client, "g", "s", "t", batch_length=5, commit=mode) as consumer:
            messages = await take(consumer, read)
            assert places(messages) == [(0, offset) for offset in range(read)]
            assert fake_topic.offset() == at_once
        assert fake_topic.offset() == in_the_end


async def test_interval_when_time_passes_stores_what_was_acknowledged():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 20)
        mode = AutoCommit.interval(10)
        async with ConsumerBuilder.group(client, "g", "s", "t", commit=mode) as consumer:
            await take(consumer, 5)
            await anyio.sleep(9)
            assert fake_topic.offset() is None
            await anyio.sleep(2)
            assert fake_topic.offset() == 3
            await take(consumer, 5)
            await anyio.sleep(20)
            assert fake_topic.stores() == [(0, 3), (0, 8)]


async def test_store_when_the_server_forbids_it_is_raised_by_the_next_call_and_not_in_the_block():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 20)
        fake_topic.plan(StoreConsumerOffset, StatusCode.UNAUTHORIZED)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 5)
            await anyio.sleep(1)
            with pytest.raises(PermissionDeniedError):
                await consumer.lag()
            assert places(await take(consumer, 1)) == [(0, 5)]
        assert fake_topic.offset() == 4


async def test_store_when_it_fails_for_a_while_is_made_later():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 20)
        fake_topic.plan(StoreConsumerOffset, *[StatusCode.CANNOT_WRITE_TO_FILE] * 3)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 5)
            await anyio.sleep(1)
            assert consumer.statistics().commit_failures == 3
            assert fake_topic.offset() == 3


async def test_offsets_when_handled_by_hand_work_for_the_last_partition():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(1, 5)
        mode = AutoCommit.disabled()
        async with ConsumerBuilder.group(client, "g", "s", "t", commit=mode) as consumer:
            await take(consumer, 3)
            assert consumer.last_partition_id == 1
            assert consumer.get_last_consumed_offset(1) == 2
            assert consumer.get_last_consumed_offset(0) is None
            await consumer.store_offset(1)
            assert fake_topic.offset(1) == 1
            await consumer.delete_offset()
            assert fake_topic.offset(1) is None
            assert (consumer.name, consumer.stream, consumer.topic) == ("g", "s", "t")
        assert fake_topic.count(GetConsumerOffset) == 0


async def test_iteration_when_nothing_comes_waits_longer_and_longer_and_reads_on(every_dialect):
    async with (
        fake_topic_and_client(3) as (fake_topic, client),
        ConsumerBuilder.group(client, "g", "s", "t") as consumer,
    ):
        with anyio.move_on_after(60):
            await anext(consumer)
        polls = consumer.statistics().polls
        if every_dialect.binds_sessions:
            # One request waits on the server, a second at most because the group is synced then.
            assert 60 <= polls < 70
        else:
            assert 60 / 0.1 * 3 < polls < 60 / 0.1 * 5
        fake_topic.fill(2, 1)
        assert places(await take(consumer, 1)) == [(2, 0)]


async def test_poll_interval_when_given_keeps_polls_apart():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", batch_length=1)
        async with builder.poll_interval(2.0) as consumer:
            began = anyio.current_time()
            await take(consumer, 4)
            assert anyio.current_time() - began == pytest.approx(6.0)


async def test_stop_when_a_task_waits_for_messages_ends_the_iteration():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 1)
        async with (
            ConsumerBuilder.group(client, "g", "s", "t") as consumer,
            anyio.create_task_group() as tasks,
        ):

            async def stop_later() -> None:
                await anyio.sleep(10)
                consumer.stop()

            tasks.start_soon(stop_later)
            assert [message.offset async for message in consumer] == [0]
        assert fake_topic.offset() == 0


async def test_two_readers_when_they_read_at_once_are_told():
    async with (
        fake_topic_and_client() as (_, client),
        ConsumerBuilder.group(client, "g", "s", "t") as consumer,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(take, consumer, 1)
        await anyio.sleep(1)
        with pytest.raises(anyio.BusyResourceError):
            await anext(consumer)
        tasks.cancel_scope.cancel()
