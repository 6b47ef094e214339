"""Membership in groups: joining, losing and joining again, and sharing partitions."""

from __future__ import annotations

import logging

import anyio
import pytest

from iggy_protocol import (
    CreateConsumerGroup,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    PollMessages,
    StatusCode,
    StoreConsumerOffset,
)
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.errors import (
    ConfigurationError,
    ConsumerGroupNotFoundError,
    DisconnectedError,
    IggyError,
    NotAMemberError,
    PartitionNotOwnedError,
    PermissionDeniedError,
)
from iggy_sdk.options import Reconnect
from tests.sdk.consumer.fake_topic import fake_topic_and_client, places, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]


async def test_group_when_missing_is_made_once_and_joined_on_an_own_connection():
    async with fake_topic_and_client() as (fake_topic, client):
        builder = ConsumerBuilder.group(client, "g", "s", "t")
        async with builder, builder:
            assert fake_topic.count(CreateConsumerGroup) == 1
            assert fake_topic.make_group("g").members_count == 2
        assert fake_topic.make_group("g").members_count == 0
        assert fake_topic.count(LeaveConsumerGroup) == 2


async def test_group_when_it_must_not_be_made_is_missed():
    async with fake_topic_and_client() as (_, client):
        builder = ConsumerBuilder.group(client, "g", "s", "t")
        with pytest.raises(ConsumerGroupNotFoundError):
            await builder.create_consumer_group_if_not_exists(False)


async def test_group_when_not_joined_refuses_and_does_not_wait_for_ever():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.make_group("g")
        async with ConsumerBuilder.group(
            client, "g", "s", "t", auto_join_consumer_group=False
        ) as consumer:
            with pytest.raises(NotAMemberError):
                await anext(consumer)


async def test_group_when_another_client_makes_it_first_is_joined():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.plan(JoinConsumerGroup, StatusCode.CONSUMER_GROUP_ID_NOT_FOUND)
        fake_topic.make_group("g")
        async with ConsumerBuilder.group(client, "g", "s", "t"):
            assert fake_topic.make_group("g").members_count == 1


async def test_two_consumers_when_they_share_a_connection_are_refused():
    async with fake_topic_and_client() as (fake_topic, client):
        builder = ConsumerBuilder.group(client, "g", "s", "t", connection="shared")
        async with builder as consumer:
            with pytest.raises(ConfigurationError):
                await builder
            async with ConsumerBuilder.group(client, "other", "s", "t", connection="shared"):
                fake_topic.fill(0, 1)
                await take(consumer, 1)
        async with builder:
            assert fake_topic.make_group("g").members_count == 1


async def test_consumer_when_the_connection_breaks_joins_again_and_misses_nothing():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 10)
        fake_topic.fill(1, 10)
        seen = []
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=4) as consumer:
            for _ in range(20):
                seen += await take(consumer, 1)
                if len(seen) % 3 == 0:
                    fake_topic.hang_up()
            assert sorted(set(places(seen))) == [(p, n) for p in range(2) for n in range(10)]
            assert len(seen) == 20
            assert consumer.statistics().joins > 2


async def test_consumer_when_the_server_forgets_its_members_joins_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 6)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=2) as consumer:
            await take(consumer, 2)
            fake_topic.forget_members("g")
            assert places(await take(consumer, 4)) == [(0, offset) for offset in range(2, 6)]
            assert consumer.statistics().joins == 2
        assert fake_topic.offset() == 4


@pytest.mark.parametrize("mode", [AutoCommit.after_each(), AutoCommit.disabled()])
async def test_buffer_when_the_membership_was_renewed_is_polled_again_and_not_handed_out_twice(
    mode,
):
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(client, "g", "s", "t", commit=mode) as consumer:
            await take(consumer, 3)
            fake_topic.hang_up()
            await anyio.sleep(1)
            await consumer.lag()
            assert consumer.statistics().joins == 2
            assert consumer.statistics().buffered == 0
            assert places(await take(consumer, 7)) == [(0, offset) for offset in range(3, 10)]


async def test_consumer_when_others_went_further_meanwhile_goes_on_behind_them():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 3)
            fake_topic.stored[2, "g", 0] = 6
            fake_topic.hang_up()
            await anyio.sleep(1)
            assert places(await take(consumer, 2))[-1] == (0, 8)
            await anyio.sleep(1)
        assert fake_topic.offset() == 7


async def test_join_when_it_fails_for_a_while_is_tried_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=2) as consumer:
            await take(consumer, 2)
            fake_topic.forget_members("g")
            fake_topic.plan(JoinConsumerGroup, *[StatusCode.CANNOT_WRITE_TO_FILE] * 4)
            assert places(await take(consumer, 2)) == [(0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("status", "error", "attempts"),
    [
        (StatusCode.UNAUTHORIZED, PermissionDeniedError, 1),
        (StatusCode.CANNOT_WRITE_TO_FILE, IggyError, 10),
    ],
)
async def test_join_when_it_keeps_failing_is_raised(status, error, attempts):
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=2) as consumer:
            await take(consumer, 2)
            fake_topic.forget_members("g")
            before = fake_topic.count(JoinConsumerGroup)
            fake_topic.plan(JoinConsumerGroup, *[status] * 100)
            with pytest.raises(error):
                await take(consumer, 1)
            assert fake_topic.count(JoinConsumerGroup) - before >= attempts


async def test_server_when_it_is_away_and_reconnecting_is_off_is_missed_at_once():
    async with (
        fake_topic_and_client(reconnect=Reconnect(enabled=False)) as (fake_topic, client),
        ConsumerBuilder.standalone(client, "c", "s", "t") as consumer,
    ):
        fake_topic.plan(PollMessages, "drop")
        with pytest.raises(DisconnectedError):
            await anext(consumer)


async def test_commit_when_the_partition_went_to_another_member_is_dropped_with_a_word(caplog):
    caplog.set_level(logging.INFO, logger="iggy_sdk.consumer")
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 4)
        fake_topic.fill(1, 4)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            read = (await take(consumer, 2))[-1]
            fake_topic.plan(StoreConsumerOffset, StatusCode.NOT_RESOLVED_CONSUMER)
            await anyio.sleep(1)
            assert consumer.statistics().commits_dropped == 1
            assert "the partition has another owner" in caplog.text
            # The rest of that batch is the other member's; what comes next is stored by others.
            fake_topic.stored[2, "g", read.partition_id] = 2
            seen = places(await take(consumer, 5))
            assert (read.partition_id, 2) not in seen
            assert (read.partition_id, 3) in seen


async def test_message_when_its_partition_is_lost_while_it_is_stored_is_not_handed_out():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 6)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=AutoCommit.when_each())
        async with builder as consumer:
            await take(consumer, 2)
            fake_topic.plan(StoreConsumerOffset, StatusCode.NOT_RESOLVED_CONSUMER)
            fake_topic.stored[2, "g", 0] = 3
            assert places(await take(consumer, 2)) == [(0, 4), (0, 5)]


async def test_partition_when_it_is_away_for_a_while_is_read_on_from_where_it_was_left():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(1, 6)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=AutoCommit.disabled())
        builder = builder.partition_id([1]).batch_length(3).prefetch_messages(0)
        async with builder as consumer:
            await (await take(consumer, 3))[-1].commit()
            await client.request(JoinConsumerGroup("s", "t", "g"))
            with anyio.move_on_after(1):
                pytest.fail(f"not ours: {await anext(consumer)}")
            await client.request(LeaveConsumerGroup("s", "t", "g"))
            fake_topic.stored.clear()
            assert places(await take(consumer, 3)) == [(1, 3), (1, 4), (1, 5)]


async def test_commit_when_asked_for_by_hand_and_not_ours_is_raised():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            message = (await take(consumer, 1))[0]
            fake_topic.plan(StoreConsumerOffset, StatusCode.NOT_RESOLVED_CONSUMER)
            with pytest.raises(PartitionNotOwnedError):
                await message.commit()


async def test_partition_when_promised_to_a_newcomer_moves_as_soon_as_the_buffer_is_drained():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 10)
        fake_topic.fill(1, 10)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=5)
        async with builder as old:
            seen = places(await take(old, 12))
            async with builder as new:
                with anyio.move_on_after(2):
                    async for message in old:
                        seen += places([message])
                with anyio.move_on_after(2):
                    async for message in new:
                        seen += places([message])
                assert fake_topic.make_group("g").details()[1].partitions != ()
        assert sorted(seen) == [(p, n) for p in range(2) for n in range(10)]


async def test_leaving_when_the_server_does_not_answer_takes_no_longer_than_allowed():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        consumer = await ConsumerBuilder.group(client, "g", "s", "t", close_timeout=3.0)
        await take(consumer, 2)
        fake_topic.plan(StoreConsumerOffset, "hold")
        began = anyio.current_time()
        await consumer.aclose()
        assert anyio.current_time() - began < 10


async def test_membership_when_leaving_failed_is_free_for_the_next():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        builder = ConsumerBuilder.group(client, "g", "s", "t", connection="shared")
        async with builder.close_timeout(3.0) as consumer:
            await take(consumer, 2)
            step = fake_topic.plan(StoreConsumerOffset, "hold")
        step.release.set()
        async with builder as consumer:
            assert (await take(consumer, 1))[0].offset < 2
