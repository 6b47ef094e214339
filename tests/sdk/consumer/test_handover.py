"""Groups one can see: assignments, callbacks before a hand-over, the lag from outside."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from iggy_protocol import StatusCode, StoreConsumerOffset
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.consumer.handover import ObservedPartitions
from iggy_sdk.errors import PartitionNotOwnedError, TopicNotFoundError
from tests.sdk.consumer.fake_topic import FakeTopic, fake_topic_and_client, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

MANUAL = AutoCommit.disabled()


class Told:
    """What callbacks were told, and what was stored when they were."""

    def __init__(self, fake_topic: FakeTopic) -> None:
        self.said: list[tuple[str, int]] = []
        self.stored_at_revoke: list[dict[int, int | None]] = []
        self._fake_topic = fake_topic

    async def assigned(self, partitions: frozenset[int]) -> None:
        await anyio.lowlevel.checkpoint()
        self.said += [("assigned", one) for one in sorted(partitions)]

    def revoked(self, partitions: frozenset[int]) -> None:
        self.said += [("revoked", one) for one in sorted(partitions)]
        self.stored_at_revoke.append({one: self._fake_topic.offset(one) for one in partitions})

    def of(self, builder: ConsumerBuilder) -> ConsumerBuilder:
        """Have a consumer tell this."""
        return builder.on_assigned(self.assigned).on_revoked(self.revoked)


@pytest.mark.parametrize("is_group", [True, False])
async def test_assignment_when_a_consumer_reads_is_what_it_was_told_and_goes_at_the_end(is_group):
    async with fake_topic_and_client(3) as (fake_topic, client):
        for partition_id in range(3):
            fake_topic.fill(partition_id, 2)
        told = Told(fake_topic)
        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", partition_id=None if is_group else "all")
        async with told.of(builder) as consumer:
            await take(consumer, 6)
            assert consumer.assignment() == {0, 1, 2}
            assert sorted(told.said) == [("assigned", 0), ("assigned", 1), ("assigned", 2)]
        assert sorted(told.said[3:]) == [("revoked", 0), ("revoked", 1), ("revoked", 2)]


async def test_assigned_when_awaited_comes_before_the_first_message_of_a_partition():
    async with fake_topic_and_client(3) as (fake_topic, client):
        for partition_id in range(3):
            fake_topic.fill(partition_id, 2)
        told = Told(fake_topic)
        builder = told.of(ConsumerBuilder.group(client, "g", "s", "t", batch_length=1))
        async with builder as consumer:
            for _ in range(6):
                (message,) = await take(consumer, 1)
                assert ("assigned", message.partition_id) in told.said


@pytest.mark.parametrize("mode", [AutoCommit.after_each(coalesce_messages=1), MANUAL])
async def test_revoked_when_a_newcomer_is_to_get_a_partition_comes_before_the_last_commit(mode):
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 8)
        fake_topic.fill(1, 8)
        told = Told(fake_topic)
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=mode, batch_length=8)
        async with told.of(builder) as old:
            seen = await take(old, 2)
            async with builder:
                with anyio.move_on_after(5):
                    while True:
                        if mode.is_disabled:
                            await seen[-1].commit()
                        seen += await take(old, 1)
                gone = [one for what, one in told.said if what == "revoked"]
                assert len(gone) == 1
                assert old.assignment() == {0, 1} - set(gone)
                # All of it was delivered, and it was still ours when the callback was awaited.
                assert [one.offset for one in seen if one.partition_id == gone[0]] == [*range(8)]
                if gone[0] == seen[0].partition_id:
                    # It was in hand, so the newcomer had to wait for the commit of the last one.
                    assert told.stored_at_revoke[0][gone[0]] != 7


async def test_revoked_when_the_server_took_a_partition_is_told_as_soon_as_that_is_known():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        told = Told(fake_topic)
        builder = told.of(ConsumerBuilder.group(client, "g", "s", "t", commit=MANUAL))
        async with builder as consumer:
            seen = await take(consumer, 2)
            fake_topic.plan(StoreConsumerOffset, StatusCode.NOT_RESOLVED_CONSUMER)
            with pytest.raises(PartitionNotOwnedError):
                await seen[-1].commit()
            # What was buffered of it is not delivered as if nothing had happened.
            assert consumer.statistics().buffered == 0
            assert [one.offset for one in await take(consumer, 2)] == [0, 1]
            assert told.said[:2] == [("assigned", 0), ("revoked", 0)]


async def test_revoked_when_the_callback_commits_is_not_called_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        calls: list[frozenset[int]] = []
        builder = ConsumerBuilder.group(client, "g", "s", "t", commit=MANUAL)

        async def commit(partitions: frozenset[int]) -> None:
            calls.append(partitions)
            await consumer.commit(0, 2)

        async with builder.on_revoked(commit) as consumer:
            await take(consumer, 4)
        assert calls == [frozenset({0})]
        assert fake_topic.offset() == 2


async def test_closing_when_the_callback_fails_is_logged_and_closes(caplog):
    def fail(partitions: frozenset[int]) -> None:
        raise ValueError("no")

    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        async with ConsumerBuilder.group(client, "g", "s", "t", on_revoked=fail) as consumer:
            await take(consumer, 3)
        assert fake_topic.offset() == 1
    assert "on_revoked failed" in caplog.text


async def test_assigned_when_the_callback_fails_is_raised_where_one_reads():
    def fail(partitions: frozenset[int]) -> None:
        raise ValueError("no")

    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        async with ConsumerBuilder.group(client, "g", "s", "t", on_assigned=fail) as consumer:
            with pytest.raises(ValueError, match="no"):
                await take(consumer, 1)


async def test_lag_when_asked_from_outside_needs_no_membership():
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 10)
        fake_topic.fill(1, 5)
        fake_topic.make_group("g")
        fake_topic.stored[2, "g", 0] = 6
        assert await client.consumer_lag("g", "s", "t") == {0: 3, 1: 5}
        fake_topic.stored[1, "c", 1] = 4
        assert await client.consumer_lag("c", "s", "t", is_group=False) == {0: 10, 1: 0}
        assert fake_topic.make_group("g").members_count == 0
        fake_topic.has_topic = False
        with pytest.raises(TopicNotFoundError):
            await client.consumer_lag("g", "s", "t")


def test_observed_partitions_when_one_comes_again_are_those_in_between():
    observed = ObservedPartitions()
    known = []
    for partition_id in (0, 1, 2, 0, 1, 0, 1):
        observed.observe(partition_id)
        known.append(sorted(observed.partitions))
    assert known == [[0], [0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 1], [0, 1]]
    observed.forget(1)
    assert observed.partitions == {0}
    observed.forget()
    assert observed.partitions == frozenset()
