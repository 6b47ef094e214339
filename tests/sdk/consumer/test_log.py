"""The log of a consumer: what it says, in which fields, and what never gets into it."""

from __future__ import annotations

import logging

import anyio
import pytest

from iggy_protocol import PollMessages, StatusCode, StoreConsumerOffset
from iggy_sdk.connection_string import PasswordLogin
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.consumer.latency import BUCKETS, LatencyHistogram
from iggy_sdk.options import Retry
from tests.sdk.consumer.fake_topic import fake_topic_and_client, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

SENTINEL = b"payload-that-nobody-may-see"


class Sink:
    """Takes dead letters."""

    async def send(self, value: object) -> None:
        """Take one."""


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """List the events in the log of consumers."""
    return [
        record.iggy_event
        for record in caplog.records
        if record.name == "iggy_sdk.consumer" and hasattr(record, "iggy_event")
    ]


async def test_log_when_a_consumer_reads_and_ends_tells_it_and_warns_of_nothing(caplog):
    caplog.set_level(logging.DEBUG, logger="iggy_sdk")
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 3)
        fake_topic.fill(1, 3)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 6)
            fake_topic.hang_up()
            fake_topic.fill(0, 1)
            fake_topic.fill(1, 1)
            await take(consumer, 2)
    told = events(caplog)
    assert told[0] == "joined"
    assert told.count("joined") >= 2
    assert "assigned" in told
    assert told[-1] == "revoked"
    joined = next(one for one in caplog.records if getattr(one, "iggy_event", "") == "joined")
    assert (joined.group, joined.stream, joined.topic) == ("g", "s", "t")
    assigned = next(one for one in caplog.records if getattr(one, "iggy_event", "") == "assigned")
    assert set(assigned.partitions) <= {0, 1}
    assert joined.levelno == assigned.levelno == logging.INFO


async def test_log_when_nothing_goes_wrong_warns_of_nothing(caplog):
    caplog.set_level(logging.DEBUG, logger="iggy_sdk")
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await take(consumer, 2)
    assert [one for one in caplog.records if one.levelno > logging.INFO] == []


async def test_log_when_a_newcomer_takes_a_partition_tells_of_the_rebalance(caplog):
    caplog.set_level(logging.INFO, logger="iggy_sdk.consumer")
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 4)
        fake_topic.fill(1, 4)
        builder = ConsumerBuilder.group(client, "g", "s", "t")
        async with builder as consumer:
            await take(consumer, 8)
            async with builder:
                with anyio.move_on_after(3):
                    await take(consumer, 1)
                told = events(caplog)
                assert "rebalanced" in told
                assert told.index("rebalanced") < told.index("revoked")


async def test_log_when_a_handler_fails_has_the_traceback_and_the_dead_letter(caplog):
    def handle(message) -> None:
        raise LookupError("no such article")

    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.put(0, SENTINEL)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await consumer.run(handle, retry=Retry(attempts=1), dead_letter=Sink(), until_end=True)
    failed = [one for one in caplog.records if getattr(one, "iggy_event", "") == "handler_failed"]
    assert [(one.partition, one.offset, one.attempt) for one in failed] == [(0, 0, 1), (0, 0, 2)]
    assert all(one.levelno == logging.ERROR and one.exc_info for one in failed)
    assert "in handle" in caplog.text
    letters = [one for one in caplog.records if getattr(one, "iggy_event", "") == "dead_lettered"]
    assert [one.levelno for one in letters] == [logging.WARNING]


async def test_log_when_retries_go_on_warns_of_the_first_and_every_tenth(caplog):
    caplog.set_level(logging.DEBUG, logger="iggy_sdk.consumer")
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 1)
        async with ConsumerBuilder.standalone(client, "c", "s", "t") as consumer:
            fake_topic.plan(PollMessages, *[StatusCode.TASK_TIMEOUT] * 9)
            await take(consumer, 1)
    retries = [one for one in caplog.records if getattr(one, "iggy_event", "") == "retry"]
    assert [one.attempt for one in retries] == [*range(1, 10)]
    assert [one.levelno == logging.WARNING for one in retries] == [True] + [False] * 8
    assert all(one.delay_s >= 0 for one in retries)


async def test_log_when_everything_goes_wrong_has_no_payload_and_no_password(caplog):
    caplog.set_level(logging.DEBUG)

    def handle(message) -> None:
        if message.offset % 2:
            raise ValueError("no")

    login = PasswordLogin("iggy", "secret-that-nobody-may-see")
    async with fake_topic_and_client(2, credentials=login) as (topic, client):
        for partition_id in range(2):
            topic.put(partition_id, *[SENTINEL] * 10)
        mode = AutoCommit.after_each(coalesce_messages=1)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=2, commit=mode)
        async with builder as consumer:
            await take(consumer, 3)
            topic.hang_up()
            topic.plan(PollMessages, None, StatusCode.TASK_TIMEOUT)
            topic.plan(StoreConsumerOffset, StatusCode.NOT_RESOLVED_CONSUMER)
            await consumer.run(handle, dead_letter=Sink(), until_end=True)
        topic.purge()
        async with builder.start_if_new("latest").replay_from("earliest") as consumer:
            topic.put(0, SENTINEL)
            await take(consumer, 1)
    texts = [str(vars(record)) + record.getMessage() for record in caplog.records]
    assert texts
    assert not [text for text in texts if "nobody-may-see" in text]


def test_latency_when_many_are_counted_is_bounded_and_about_right():
    histogram = LatencyHistogram()
    assert histogram.summary().max_s == 0.0
    for number in range(1, 10_001):
        histogram.add(number / 1e6)
    histogram.add(0.0)
    histogram.add(1e9)
    figures = histogram.summary()
    assert figures.count == 10_002
    assert figures.p50_s == pytest.approx(5e-3, rel=0.1)
    assert figures.p99_s == pytest.approx(9.9e-3, rel=0.1)
    assert figures.max_s == 1e9
    assert len(histogram._counts) == BUCKETS
