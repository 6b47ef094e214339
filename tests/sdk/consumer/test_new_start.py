"""Where a new group starts: looked up once, stored, and never used again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from iggy_protocol import GetConsumerOffset, StatusCode, StoreConsumerOffset
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.errors import PermissionDeniedError
from tests.sdk.consumer.fake_topic import fake_topic_and_client, places, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

MANUAL = AutoCommit.disabled()


@pytest.mark.parametrize(
    ("start", "stored", "read"),
    [
        ("earliest", {}, {0: 0, 1: 0, 2: 0}),
        (0, {}, {0: 0, 1: 0, 2: 0}),
        ("latest", {0: 9, 1: 4}, {0: 10, 1: 5, 2: 0}),
        (7, {0: 6, 1: 4}, {0: 7, 1: 5, 2: 0}),
        (100, {0: 9, 1: 4}, {0: 10, 1: 5, 2: 0}),
    ],
)
@pytest.mark.parametrize("is_group", [True, False])
async def test_new_reader_when_it_begins_stores_where_and_reads_from_there(
    start, stored, read, is_group
):
    async with fake_topic_and_client(3) as (fake_topic, client):
        fake_topic.fill(0, 10)
        fake_topic.fill(1, 5)
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", start_if_new=start, commit=MANUAL, until_end=True)
        if not is_group:
            builder = builder.partition_id("all")
        async with builder as consumer:
            assert dict(fake_topic.stores()) == stored
            for partition_id in range(3):
                fake_topic.fill(partition_id, 2)
            firsts: dict[int, int] = {}
            async for message in consumer:
                firsts.setdefault(message.partition_id, message.offset)
        assert firsts == read
        assert dict(fake_topic.stores()) == stored


async def test_latest_when_the_group_has_stored_anything_reads_the_rest_from_the_oldest():
    async with fake_topic_and_client(3) as (fake_topic, client):
        for partition_id in range(3):
            fake_topic.fill(partition_id, 3)
        fake_topic.make_group("g")
        fake_topic.stored[2, "g", 1] = 0
        builder = ConsumerBuilder.group(
            client, "g", "s", "t", until_end=True, start_if_new="latest"
        )
        async with builder as consumer:
            seen = [message async for message in consumer]
        assert sorted(places(seen)) == [
            (0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)
        ]  # fmt: skip


async def test_latest_when_a_member_dies_before_its_first_commit_loses_nothing():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        builder = ConsumerBuilder.group(client, "g", "s", "t", start_if_new="latest", commit=MANUAL)
        async with builder:
            fake_topic.fill(0, 2)
        async with builder as consumer:
            fake_topic.fill(0, 1)
            assert places(await take(consumer, 3)) == [(0, 5), (0, 6), (0, 7)]
        async with builder as consumer:
            assert places(await take(consumer, 1)) == [(0, 5)]


async def test_latest_when_two_members_begin_at_once_passes_over_nothing_that_is_new():
    async with fake_topic_and_client(4) as (fake_topic, client):
        for partition_id in range(4):
            fake_topic.fill(partition_id, 3)
        builder = ConsumerBuilder.group(client, "g", "s", "t", start_if_new="latest")
        # The first member knows what it has, and loses half of it before it can store.
        held = fake_topic.plan(GetConsumerOffset, *[None] * 4, "hold")
        seen: list[tuple[int, int]] = []

        async def member(ready: anyio.Event) -> None:
            async with builder as consumer:
                ready.set()
                while True:
                    seen.extend(places(await take(consumer, 1)))

        async with anyio.create_task_group() as tasks:
            first, second = anyio.Event(), anyio.Event()
            tasks.start_soon(member, first)
            await held.is_reached.wait()
            tasks.start_soon(member, second)
            await second.wait()
            held.release.set()
            await first.wait()
            for partition_id in range(4):
                fake_topic.fill(partition_id, 1)
            await anyio.sleep(10)
            tasks.cancel_scope.cancel()
        assert sorted(seen) == [(0, 3), (1, 3), (2, 3), (3, 3)]
        # No store has overwritten another.
        stores = sorted(fake_topic.stores())
        assert [offset for _, offset in stores if offset == 2] == [2] * 4


async def test_latest_when_partitions_are_added_later_reads_all_of_them():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        builder = ConsumerBuilder.group(client, "g", "s", "t", start_if_new="latest")
        async with builder as consumer:
            fake_topic.add_partition()
            fake_topic.fill(1, 2)
            assert places(await take(consumer, 2)) == [(1, 0), (1, 1)]


async def test_latest_when_the_topic_is_empty_stores_nothing_and_reads_everything():
    async with fake_topic_and_client() as (fake_topic, client):
        builder = ConsumerBuilder.group(client, "g", "s", "t", start_if_new="latest")
        async with builder as consumer:
            assert fake_topic.stores() == []
            fake_topic.fill(0, 2)
            assert places(await take(consumer, 2)) == [(0, 0), (0, 1)]


async def test_start_when_another_client_stores_meanwhile_is_not_stored_over_it():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        fake_topic.make_group("g")
        held = fake_topic.plan(GetConsumerOffset, None, "hold")
        async with anyio.create_task_group() as tasks:

            async def begin() -> None:
                async with ConsumerBuilder.group(
                    client, "g", "s", "t", start_if_new="latest"
                ) as one:
                    assert places(await take(one, 1)) == [(0, 2)]

            tasks.start_soon(begin)
            await held.is_reached.wait()
            fake_topic.stored[2, "g", 0] = 1
            held.release.set()
        assert 4 not in [offset for _, offset in fake_topic.stores()]


async def test_start_when_the_server_refuses_to_store_it_raises_and_leaves_the_group():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        fake_topic.plan(StoreConsumerOffset, StatusCode.UNAUTHORIZED)
        with pytest.raises(PermissionDeniedError):
            async with ConsumerBuilder.group(client, "g", "s", "t", start_if_new="latest"):
                pass
        assert fake_topic.make_group("g").members_count == 0


async def test_start_when_the_user_joins_the_group_is_stored_with_the_first_poll():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        fake_topic.make_group("g")
        builder = ConsumerBuilder.group(
            client, "g", "s", "t", start_if_new=3, connection="shared", commit=MANUAL
        ).auto_join_consumer_group(False)
        async with builder as consumer:
            await client.join_consumer_group("s", "t", "g")
            assert places(await take(consumer, 1)) == [(0, 3)]
        assert fake_topic.stores() == [(0, 2)]


async def test_new_reader_when_it_starts_at_the_earliest_asks_nothing():
    async with (
        fake_topic_and_client() as (fake_topic, client),
        ConsumerBuilder.group(client, "g", "s", "t"),
    ):
        assert fake_topic.count(GetConsumerOffset) == 0


async def test_start_when_it_is_a_time_begins_with_the_first_message_of_that_time():
    now = datetime.now(UTC)
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", commit=MANUAL)
        async with builder.start_if_new(now - timedelta(days=9)) as consumer:
            # The fake topic takes any time for that of its first message.
            assert places(await take(consumer, 1)) == [(0, 0)]
        assert fake_topic.stores() == []
