"""Reading again on purpose: once, and without moving back what is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.errors import ConfigurationError
from tests.sdk.consumer.fake_topic import FakeTopic, fake_topic_and_client, places, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

EACH = AutoCommit.after_each(coalesce_messages=1)


def read_to(fake_topic: FakeTopic, *stored: int) -> None:
    """Store offsets for the group, one for each partition, in a topic of ten messages each."""
    fake_topic.make_group("g")
    for partition_id, offset in enumerate(stored):
        fake_topic.fill(partition_id, 10)
        fake_topic.stored[2, "g", partition_id] = offset


@pytest.mark.parametrize(
    ("place", "firsts"),
    [
        ("earliest", {0: 0, 1: 0}),
        (3, {0: 3, 1: 3}),
        ({1: 4}, {0: 8, 1: 4}),
        (datetime(1971, 1, 1, tzinfo=UTC), {0: 0, 1: 0}),
    ],
)
@pytest.mark.parametrize("mode", [EACH, AutoCommit.disabled(), AutoCommit.after_all()])
async def test_replay_when_it_ends_has_read_again_and_stored_nothing_lower(place, firsts, mode):
    async with fake_topic_and_client(2) as (fake_topic, client):
        read_to(fake_topic, 7, 7)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=3, until_end=True)
        seen: dict[int, list[int]] = {0: [], 1: []}
        async with builder.replay_from(place).commit(mode) as consumer:
            async for message in consumer:
                seen[message.partition_id].append(message.offset)
                if mode.is_disabled:
                    await message.commit()
            held = consumer.statistics().commits_held
        assert seen == {one: list(range(first, 10)) for one, first in firsts.items()}
        assert min(offset for _, offset in fake_topic.stores()) >= 7
        assert (fake_topic.offset(0), fake_topic.offset(1)) == (9, 9)
        assert held > 0


async def test_replay_when_it_may_commit_backwards_does():
    async with fake_topic_and_client() as (fake_topic, client):
        read_to(fake_topic, 9)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=EACH)
        async with builder.replay_from("earliest").commit_backwards() as consumer:
            await take(consumer, 3)
        assert fake_topic.offset() == 1


async def test_replay_when_nothing_is_stored_commits_as_ever():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=EACH)
        async with builder.replay_from(2) as consumer:
            assert places(await take(consumer, 2)) == [(0, 2), (0, 3)]
        assert fake_topic.offset() == 2


async def test_replay_when_the_connection_is_lost_goes_on_and_does_not_begin_again():
    async with fake_topic_and_client() as (fake_topic, client):
        read_to(fake_topic, 9)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=EACH, batch_length=2)
        async with builder.replay_from("earliest") as consumer:
            assert [offset for _, offset in places(await take(consumer, 4))] == [0, 1, 2, 3]
            fake_topic.hang_up()
            assert [offset for _, offset in places(await take(consumer, 6))] == [*range(4, 10)]
            assert fake_topic.stores() == []


async def test_replay_when_a_partition_leaves_and_returns_is_not_repeated():
    async with fake_topic_and_client(2) as (fake_topic, client):
        read_to(fake_topic, 3, 3)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=EACH)
        async with builder.replay_from("earliest") as consumer:
            seen = places(await take(consumer, 20))
            assert sorted(seen) == [(p, n) for p in range(2) for n in range(10)]
            async with builder as other:
                async for _ in other.iter_messages(until_end=True):
                    pass
                for _ in range(2):
                    seen += places([one async for one in consumer.iter_messages(until_end=True)])
            fake_topic.fill(0, 1)
            fake_topic.fill(1, 1)
            seen += places([one async for one in consumer.iter_messages(until_end=True)])
            assert sorted(seen) == [(p, n) for p in range(2) for n in range(11)]


async def test_seek_when_it_goes_back_holds_lower_commits_until_it_is_there_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=AutoCommit.disabled())
        async with builder as consumer:
            messages = await take(consumer, 10)
            await messages[-1].commit()
            await consumer.seek("earliest")
            for message in await take(consumer, 10):
                await message.commit()
            assert fake_topic.stores() == [(0, 9), (0, 9)]
            assert consumer.get_last_stored_offset(0) == 9
            await consumer.seek(4, commit_backwards=True)
            await (await take(consumer, 1))[0].commit()
            assert fake_topic.offset() == 4
            # Outside a replay, whoever stores a lower offset means it.
            await consumer.store_offset(1, 0)
            assert fake_topic.offset() == 1


async def test_seek_when_the_server_commits_does_not_let_it_go_back():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=4)
        async with builder.commit(AutoCommit.when_polling()) as consumer:
            await take(consumer, 10)
            assert fake_topic.offset() == 9
            await consumer.seek(0)
            await take(consumer, 7)
            assert fake_topic.offset() == 9
            await take(consumer, 3)
            fake_topic.fill(0, 1)
            await take(consumer, 1)
            assert fake_topic.offset() == 10


async def test_seek_when_the_place_does_not_exist_is_refused_with_advice():
    async with (
        fake_topic_and_client() as (_, client),
        ConsumerBuilder.standalone(client, "c", "s", "t") as consumer,
    ):
        refused: list[Any] = ["latest", -1, None]
        for place in refused:
            with pytest.raises(ConfigurationError, match="Use 'earliest'"):
                await consumer.seek(place)


async def test_delete_offset_during_a_replay_lets_commits_through():
    async with fake_topic_and_client() as (fake_topic, client):
        read_to(fake_topic, 9)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=AutoCommit.disabled())
        async with builder.replay_from("earliest") as consumer:
            message = (await take(consumer, 1))[0]
            await message.commit()
            assert fake_topic.offset() == 9
            await consumer.delete_offset(0)
            await message.commit()
            assert fake_topic.offset() == 0
