"""Cancelled anywhere: no message is skipped, no commit is lost, closing still closes."""

from __future__ import annotations

import anyio
import pytest

from iggy_protocol import LoginUser, PollingStrategy
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from tests.sdk.cancelling import cancel_at, cancelled_everywhere, tasks_at_rest
from tests.sdk.consumer.fake_topic import fake_topic_and_client, places, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

MODES = [
    AutoCommit.after_each(),
    AutoCommit.after_each(coalesce_messages=1),
    AutoCommit.after_all(),
    AutoCommit.after_every_nth(3),
    AutoCommit.interval(0.01),
    AutoCommit.when_each(),
    AutoCommit.when_all(),
    AutoCommit.when_every_nth(2),
    AutoCommit.when_polling(),
    AutoCommit.disabled(),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_group", [True, False])
async def test_next_when_cancelled_at_every_checkpoint_skips_no_message(mode, is_group):
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 12)
        fake_topic.fill(1, 12)
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", partition_id=None if is_group else "all")
        seen: list[tuple[int, int]] = []
        async with builder.commit(mode).batch_length(5) as consumer:

            async def read_one() -> None:
                seen.extend(places([await anext(consumer)]))

            checkpoint = 1
            while len(seen) < 24:
                # Each message is asked for several times, and cancelled ever later until it comes.
                before = len(seen)
                await cancel_at(read_one, checkpoint)
                checkpoint = 1 if len(seen) > before else checkpoint + 1
        for partition_id in range(2):
            own = [offset for number, offset in seen if number == partition_id]
            assert own == list(range(12))


async def test_commit_when_cancelled_at_every_checkpoint_is_made_by_the_end():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 50)
        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=2) as consumer:
            await take(consumer, 2)
            async for _ in cancelled_everywhere(lambda: anext(consumer)):
                assert fake_topic.offset() in (None, 1, *range(1, 50))
            delivered = consumer.get_last_consumed_offset(0)
        assert delivered is not None
        assert fake_topic.offset() == delivered - 1


@pytest.mark.parametrize("is_group", [True, False])
async def test_own_commit_when_cancelled_at_every_checkpoint_is_made_or_can_be_made(is_group):
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 50)
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", batch_length=50, partition_id=None if is_group else 0)
        async with builder.commit(AutoCommit.disabled()) as consumer:
            messages = await take(consumer, 50)
            tasks, logins = await tasks_at_rest(), fake_topic.count(LoginUser)
            checkpoints = 0

            async def commit_first() -> None:
                await messages[0].commit()

            async for _ in cancelled_everywhere(commit_first, children=True):
                before = messages[0].offset - 1 if checkpoints else None
                assert fake_topic.offset() in (before, messages[0].offset)
                assert await tasks_at_rest() == tasks
                # The next answer belongs to the next question, and no commit blocks a later one.
                await messages[1].commit()
                assert fake_topic.offset() == messages[1].offset
                del messages[:2]
                checkpoints += 1
            assert checkpoints
            assert fake_topic.offset() == messages[0].offset
            assert fake_topic.count(LoginUser) == logins


async def test_seek_when_cancelled_at_every_checkpoint_moves_or_does_not():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 5)
            async for _ in cancelled_everywhere(lambda: consumer.seek(PollingStrategy.offset(2))):
                # Where it is on its way nobody knows; both of the others would be wrong.
                assert consumer.position(0) in (5, None)
            assert places(await take(consumer, 2)) == [(0, 2), (0, 3)]


async def test_close_when_cancelled_at_every_checkpoint_still_commits_and_leaves():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 1_000)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=7)
        expected = -1
        checkpoints = 0
        for checkpoint in range(1, 60):
            consumer = await builder
            read = await take(consumer, 3)
            assert read[0].offset == expected + 1
            expected = read[1].offset
            reached = await cancel_at(consumer.aclose, checkpoint)
            assert consumer.is_closed
            assert fake_topic.offset() == expected
            assert fake_topic.make_group("g").members_count == 0
            checkpoints += reached
        assert checkpoints > 2


async def test_entering_when_cancelled_at_every_checkpoint_leaves_no_member_behind():
    async with fake_topic_and_client() as (fake_topic, client):
        builder = ConsumerBuilder.group(client, "g", "s", "t")

        async def enter_and_leave() -> None:
            async with builder as consumer:
                consumer.stop()

        async for _ in cancelled_everywhere(enter_and_leave):
            await anyio.sleep(10)
            assert fake_topic.make_group("g").members_count == 0
