"""What a consumer reads as record batches: whole polls, acknowledged like ``batches()``."""

from __future__ import annotations

import anyio
import pytest

from iggy_protocol import PollingStrategy, PollMessages, StatusCode
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.errors import ClientClosedError, ConfigurationError, PartitionNotFoundError
from iggy_sdk.hooks import Hook
from tests.sdk.cancelling import cancelled_everywhere
from tests.sdk.consumer.fake_topic import fake_topic_and_client

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]


def offsets(batch):
    return batch["offset"].to_pylist()


def places(batch):
    return list(zip(batch["partition"].to_pylist(), offsets(batch), strict=True))


async def test_batch_when_the_next_is_asked_for_counts_as_done():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 20)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=8) as consumer:
            batches = consumer.arrow_batches(columns=["partition", "offset", "payload"])
            first = await anext(batches)
            assert first.schema == batches.schema
            assert first["payload"].to_pylist() == [b"0:%d" % number for number in range(8)]
            assert consumer.get_last_consumed_offset(0) == 7
            await anyio.sleep(5)
            assert fake_topic.offset() is None
            second = await anext(batches)
            assert offsets(second) == list(range(8, 16))
            await anyio.sleep(5)
            assert fake_topic.offset() == 7
        assert fake_topic.offset() == 7


async def test_batches_when_read_to_the_end_stop_there_with_all_committed():
    async with fake_topic_and_client(3) as (fake_topic, client):
        for partition_id in range(3):
            fake_topic.fill(partition_id, 7)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=4) as consumer:
            seen = [
                place
                async for batch in consumer.arrow_batches(until_end=True)
                for place in places(batch)
            ]
        assert sorted(seen) == [(partition, at) for partition in range(3) for at in range(7)]
        assert [fake_topic.offset(number) for number in range(3)] == [6, 6, 6]
        assert consumer.statistics().messages == 21


async def test_batches_when_others_were_taken_one_by_one_then_nothing_is_left_out_or_comes_twice():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(
            client, "g", "s", "t", batch_length=6, until_end=True
        ) as consumer:
            first = [await anext(consumer) for _ in range(2)]
            batches = consumer.arrow_batches()
            second = await anext(batches)
            await batches.aclose()
            assert [batch async for batch in batches] == []
            rest = [message.offset async for message in consumer]
        assert [message.offset for message in first] == [0, 1]
        assert offsets(second) == [2, 3, 4, 5, 6, 7]
        assert rest == [8, 9]


async def test_batches_when_positioned_anew_go_on_there():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=4) as consumer:
            batches = consumer.arrow_batches()
            await anext(batches)
            await consumer.seek(PollingStrategy.offset(7))
            assert offsets(await anext(batches)) == [7, 8, 9]


async def test_batches_when_cancelled_anywhere_then_nothing_is_left_out_or_comes_twice():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 150)
        fake_topic.fill(1, 150)
        async with ConsumerBuilder.group(
            client, "g", "s", "t", batch_length=5, until_end=True
        ) as consumer:
            seen = []
            batches = consumer.arrow_batches()

            async def read() -> None:
                seen.append(places(await anext(batches)))

            async for _ in cancelled_everywhere(read):
                pass
            seen += [places(batch) async for batch in batches]
        for number in range(2):
            mine = [at for batch in seen for partition, at in batch if partition == number]
            assert mine == list(range(150))


async def test_batches_when_stored_before_they_are_handled_then_a_crash_skips_them():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        mode = AutoCommit.when_all()
        async with ConsumerBuilder.group(
            client, "g", "s", "t", batch_length=4, auto_commit=mode
        ) as consumer:
            await anext(consumer.arrow_batches())
            assert fake_topic.offset() == 3


async def test_batches_when_the_server_commits_the_polls_then_all_come_once():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(
            client, "g", "s", "t", batch_length=4, auto_commit=AutoCommit.when_polling()
        ) as consumer:
            seen = [
                offset
                async for batch in consumer.arrow_batches(until_end=True)
                for offset in offsets(batch)
            ]
        assert seen == list(range(10))


async def test_batches_when_there_are_hooks_then_they_see_each_message():
    seen = []

    class Seeing(Hook):
        def on_message(self, message) -> None:
            seen.append(message.offset)

    async with fake_topic_and_client(hooks=(Seeing(),)) as (fake_topic, client):
        fake_topic.fill(0, 3)
        async with ConsumerBuilder.group(client, "g", "s", "t", until_end=True) as consumer:
            assert [offsets(batch) async for batch in consumer.arrow_batches()] == [[0, 1, 2]]
    assert seen == [0, 1, 2]


async def test_batches_when_there_is_nothing_wait_for_messages():
    async with fake_topic_and_client() as (fake_topic, client), anyio.create_task_group() as tasks:

        async def produce() -> None:
            await anyio.sleep(30)
            fake_topic.fill(0, 1)

        tasks.start_soon(produce)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            before = anyio.current_time()
            assert offsets(await anext(consumer.arrow_batches())) == [0]
            assert 29 < anyio.current_time() - before < 31


async def test_batches_when_the_consumer_is_closed_then_say_so():
    async with fake_topic_and_client() as (_, client):
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            batches = consumer.arrow_batches()
            with pytest.raises(ConfigurationError, match="columns is 'offsett'"):
                consumer.arrow_batches(columns=["offsett"])
        with pytest.raises(ClientClosedError):
            await anext(batches)


# The reader of whole topics, which belongs to no consumer


async def test_reader_when_a_batch_is_used_then_the_next_polls_are_under_way():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5000)
        async with client.arrow_batches("s", "t", columns=["offset"]) as batches:
            await anyio.sleep(1)
            polls = [one for one in fake_topic.heard if isinstance(one, PollMessages)]
            # One finds the oldest message, one reply waits, and one more is held by the task.
            assert len(polls) == 3
            assert sum([batch.num_rows async for batch in batches]) == 5000
            with pytest.raises(StopAsyncIteration):
                await anext(batches)


async def test_reader_when_cancelled_anywhere_then_the_client_goes_on():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 30)
        fake_topic.fill(1, 30)

        async def read() -> None:
            table = await client.read_arrow("s", "t", columns=["partition", "offset"])
            assert table.num_rows == 60

        async for _ in cancelled_everywhere(read):
            pass
        await read()


async def test_reader_when_a_poll_fails_then_the_error_comes_out_as_it_is():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3000)
        reading = client.arrow_batches("s", "t", columns=["offset"], batch_bytes=1)
        async with reading as batches:
            fake_topic.plan(PollMessages, StatusCode.PARTITION_NOT_FOUND)
            with pytest.raises(PartitionNotFoundError):
                [batch async for batch in batches]
            with pytest.raises(PartitionNotFoundError):
                await anext(batches)
