"""Reading in batches."""

from __future__ import annotations

import anyio
import pytest

from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.errors import ConfigurationError
from tests.sdk.cancelling import cancelled_everywhere
from tests.sdk.consumer.fake_topic import fake_topic_and_client, places

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]


async def test_batch_when_full_or_out_of_time_is_handed_out():
    async with fake_topic_and_client(2) as (fake_topic, client), anyio.create_task_group() as tasks:

        async def produce() -> None:
            for _ in range(12):
                fake_topic.fill(0, 1)
                await anyio.sleep(0.3)

        tasks.start_soon(produce)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            batches = consumer.batches(max_messages=5, max_wait=1.0)
            sizes = [len(await anext(batches)) for _ in range(3)]
        assert sizes == [4, 4, 4]


async def test_batch_when_the_next_is_asked_for_counts_as_done():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 20)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=10) as consumer:
            batches = consumer.batches(max_messages=4)
            first = await anext(batches)
            assert first.payloads() == [b"0:0", b"0:1", b"0:2", b"0:3"]
            assert first.values() == first.payloads()
            assert consumer.get_last_consumed_offset(0) == 3
            await anyio.sleep(5)
            assert fake_topic.offset() is None
            await anext(batches)
            await anyio.sleep(5)
            assert fake_topic.offset() == 3
            third = await anext(batches)
            assert third.last_offsets() == {0: 9}
            await third.commit()
            assert fake_topic.offset() == 9


async def test_batches_when_read_to_the_end_stop_there_with_all_committed():
    async with fake_topic_and_client(3) as (fake_topic, client):
        for partition_id in range(3):
            fake_topic.fill(partition_id, 7)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=4) as consumer:
            seen = []
            async for batch in consumer.batches(max_messages=5, max_wait=0.5, until_end=True):
                seen += places(batch)
        assert sorted(seen) == [(p, n) for p in range(3) for n in range(7)]
        assert [fake_topic.offset(number) for number in range(3)] == [6, 6, 6]


@pytest.mark.parametrize(
    ("mode", "stored"),
    [
        (AutoCommit.when_all(), 4),
        (AutoCommit.when_each(), 4),
        (AutoCommit.when_polling(), 4),
        (AutoCommit.after_all(), None),
        (AutoCommit.disabled(), None),
    ],
)
async def test_batch_when_handed_out_is_stored_only_where_the_mode_says_so(mode, stored):
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=5) as consumer:
            pass
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=5, commit=mode)
        async with builder as consumer:
            await anext(consumer.batches())
            assert fake_topic.offset() == stored


@pytest.mark.parametrize("mode", [AutoCommit.after_each(), AutoCommit.when_polling()])
async def test_batch_when_cancelled_while_gathered_loses_nothing(mode):
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 3)
        fake_topic.fill(1, 3)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=2, commit=mode)
        seen = []
        async with builder as consumer:
            batches = consumer.batches(max_messages=100, max_wait=0.05)

            async def gather() -> None:
                seen.extend(places(await anext(batches)))

            async for _ in cancelled_everywhere(gather):
                assert seen == []
            assert sorted(seen) == [(p, n) for p in range(2) for n in range(3)]


async def test_batches_when_closed_end():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            batches = consumer.batches()
            await anext(batches)
            await batches.aclose()
            await batches.aclose()
            assert [batch async for batch in batches] == []
            with pytest.raises(ConfigurationError):
                consumer.batches(max_messages=0)
        assert fake_topic.offset() is None
