"""Verbs about messages and offsets against a real server, on both engines."""

from __future__ import annotations

import inspect
import re
import time
from pathlib import Path
from uuid import uuid4

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    FlushUnsavedBuffer,
    HeaderKey,
    HeaderValue,
    Partitioning,
    PollingStrategy,
    partition_for_key,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import (
    DecryptionError,
    InvalidOffsetError,
    InvalidRequestError,
    NotAMemberError,
    NotFoundError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
    TopicNotFoundError,
)
from iggy_sdk.families import AllFamilies
from iggy_sdk.message import Message
from iggy_sdk.otel import OpenTelemetryHook
from tests.sdk.api.recording_telemetry import RecordingMeterProvider, RecordingTracerProvider
from tests.sdk.exchanges import refused_if_missing

pytestmark = pytest.mark.anyio

ME = ConsumerIdentity.single("me")
FIRST = PollingStrategy.first()


@pytest.fixture
async def topic(client, name):
    """Make a stream with a topic of three partitions; both have the test's name."""
    await client.create_stream(name)
    await client.create_topic(name, name, 3)
    return name


async def test_messages_when_sent_then_can_be_polled_with_all_their_fields(client, topic):
    uuid = uuid4()
    # From 0.9 on the times of one batch lie within 71 minutes.
    minute_ago = time.time_ns() // 1_000 - 60_000_000
    origin_us = minute_ago if client.dialect.is_vsr else 1_234_567
    await client.send_messages(
        topic,
        topic,
        [
            b"plain",
            "text",
            Message(
                b"full",
                headers={
                    "kind": "test",
                    "typed": HeaderValue.uint8(7),
                    "flag": True,
                    "ratio": 0.5,
                    "big": 2**100,
                    "raw": b"\x00\xff",
                },
                id=uuid,
                origin_timestamp_us=origin_us,
            ),
        ],
        partition_id=1,
    )

    batch = await client.poll_messages(
        topic, topic, consumer=ME, partition_id=1, strategy=FIRST, count=10
    )

    assert batch.payloads() == [b"plain", b"text", b"full"]
    assert (batch.partition_id, batch.current_offset) == (1, 2)
    plain, _, full = batch
    assert plain.headers == {}
    assert plain.id
    assert plain.timestamp_us > 1_600_000_000_000_000
    assert abs(plain.timestamp_us - plain.origin_timestamp_us) < 60_000_000
    assert full.headers == {
        "kind": "test",
        "typed": 7,
        "flag": True,
        "ratio": 0.5,
        "big": 2**100,
        "raw": b"\x00\xff",
    }
    assert full.typed_headers[HeaderKey.string("typed")] == HeaderValue.uint8(7)
    assert (full.uuid, full.origin_timestamp_us, full.offset) == (uuid, origin_us, 2)


async def test_messages_when_keyed_then_land_where_the_key_says(client, topic):
    await client.send_messages(topic, topic, [b"x"], key="customer-1")
    await client.send_messages(topic, topic, [Message(b"y", key="customer-1")])
    await client.send_messages(topic, topic, [b"z"], partitioning=Partitioning.key("customer-1"))

    home = partition_for_key(b"customer-1", 3)
    batch = await client.poll_messages(
        topic, topic, consumer=ME, partition_id=home, strategy=FIRST, count=10
    )

    assert batch.payloads() == [b"x", b"y", b"z"]
    assert [message.key for message in batch] == [None, "customer-1", None]


async def test_messages_when_balanced_then_go_round(client, topic):
    for number in range(3):
        await client.send_messages(topic, topic, [b"%d" % number])

    counts = [
        len(await client.poll_messages(topic, topic, consumer=ME, partition_id=n, strategy=FIRST))
        for n in range(3)
    ]

    assert counts == [1, 1, 1]


async def test_messages_when_polled_by_each_strategy_then_start_there(client, topic):
    await client.send_messages(topic, topic, [b"%d" % n for n in range(10)], partition_id=0)

    async def poll(strategy: PollingStrategy, *, count: int = 3) -> list[bytes]:
        batch = await client.poll_messages(
            topic, topic, consumer=ME, partition_id=0, strategy=strategy, count=count
        )
        return batch.payloads()

    assert await poll(PollingStrategy.first()) == [b"0", b"1", b"2"]
    assert await poll(PollingStrategy.last()) == [b"7", b"8", b"9"]
    assert await poll(PollingStrategy.offset(4)) == [b"4", b"5", b"6"]
    assert await poll(PollingStrategy.timestamp(0), count=1) == [b"0"]
    assert await poll(PollingStrategy.next()) == [b"0", b"1", b"2"]


async def test_poll_when_auto_commit_is_on_then_goes_on_behind(client, topic):
    await client.send_messages(topic, topic, [b"a", b"b", b"c"], partition_id=0)

    polls = [
        await client.poll_messages(
            topic, topic, consumer=ME, partition_id=0, count=2, auto_commit=True
        )
        for _ in range(3)
    ]

    assert [batch.payloads() for batch in polls] == [[b"a", b"b"], [b"c"], []]


async def test_offsets_when_stored_then_are_kept_until_deleted(client, topic):
    await client.send_messages(topic, topic, [b"a", b"b", b"c"], partition_id=2)
    place = {"consumer": ME, "partition_id": 2}

    assert await client.get_consumer_offset(topic, topic, **place) is None
    with pytest.raises(NotFoundError):
        await client.get_consumer_offset(topic, topic, **place, required=True)
    await client.store_consumer_offset(topic, topic, 1, **place)
    stored = await client.get_consumer_offset(topic, topic, **place, required=True)
    assert (stored.partition_id, stored.current_offset, stored.stored_offset) == (2, 2, 1)
    assert (await client.poll_messages(topic, topic, **place)).payloads() == [b"c"]
    with pytest.raises(InvalidOffsetError):
        await client.store_consumer_offset(topic, topic, 3, **place)

    await client.delete_consumer_offset(topic, topic, **place)
    assert await client.get_consumer_offset(topic, topic, **place) is None
    with pytest.raises(NotFoundError):
        await client.delete_consumer_offset(topic, topic, **place)


async def shares_of(other: IggyClient, client: IggyClient, topic: str) -> tuple[int, int]:
    """Return a partition of each of two members of a group."""
    if client.dialect.is_vsr:
        # What became of a partition that changes hands is settled when both have asked.
        for member in (client, other):
            await member.sync_consumer_group(topic, topic, "billing")
        assigned = [
            await member.sync_consumer_group(topic, topic, "billing") for member in (other, client)
        ]
        theirs, mine = (one.partitions[0] for one in assigned if one is not None)
        return theirs, mine
    details = await client.get_consumer_group(topic, topic, "billing", required=True)
    shares = sorted((member.partitions for member in details.members), key=len)
    return shares[0][0], shares[1][0]


async def test_group_offsets_when_not_a_member_or_not_the_owner_then_are_refused(
    client, topic, url
):
    for partition_id in range(3):
        await client.send_messages(topic, topic, [b"a"], partition_id=partition_id)
    await client.create_consumer_group(topic, topic, "billing")
    group = ConsumerIdentity.group("billing")

    with pytest.raises(PartitionNotOwnedError if client.dialect.is_vsr else NotAMemberError):
        await client.store_consumer_offset(topic, topic, 0, consumer=group, partition_id=0)
    await client.join_consumer_group(topic, topic, "billing")
    async with IggyClient(url) as other:
        await other.join_consumer_group(topic, topic, "billing")
        theirs, mine = await shares_of(other, client, topic)
        await client.store_consumer_offset(topic, topic, 0, consumer=group, partition_id=mine)
        with pytest.raises(PartitionNotOwnedError):
            await client.store_consumer_offset(topic, topic, 0, consumer=group, partition_id=theirs)


async def test_messages_when_flushed_then_are_saved(client, topic):
    await client.send_messages(topic, topic, [b"a"], partition_id=0)

    with refused_if_missing(client, FlushUnsavedBuffer):
        await client.flush_unsaved_buffer(topic, topic, 0)
    with refused_if_missing(client, FlushUnsavedBuffer):
        await client.flush_unsaved_buffer(topic, topic, 0, fsync=True)


async def test_messages_when_the_place_is_missing_then_says_which(client, topic):
    with pytest.raises(TopicNotFoundError):
        await client.send_messages(topic, "no", [b"a"])
    with pytest.raises(PartitionNotFoundError):
        await client.send_messages(topic, topic, [b"a"], partition_id=9)
    with pytest.raises(InvalidRequestError):
        await client.send_messages(topic, topic, [bytes(64_000_001)], partition_id=0)


async def test_messages_when_encrypted_then_only_the_key_opens_them(client, topic, url):
    encryptor = Encryptor.aes256_gcm(bytes(range(32)))
    async with IggyClient(url, encryptor=encryptor) as sealed:
        await sealed.send_messages(
            topic, topic, [Message(b"secret", headers={"a": 1})], partition_id=0
        )
        (opened,) = await sealed.poll_messages(topic, topic, consumer=ME, strategy=FIRST)
    (raw,) = await client.poll_messages(topic, topic, consumer=ME, strategy=FIRST)

    assert (opened.value, opened.headers) == (b"secret", {"a": 1})
    assert b"secret" not in raw.payload
    async with IggyClient(url, encryptor=Encryptor.aes256_gcm(bytes(32))) as other:
        (shut,) = await other.poll_messages(topic, topic, consumer=ME, strategy=FIRST)
        with pytest.raises(DecryptionError):
            _ = shut.value


async def test_hook_when_traced_then_follows_a_message_through_the_server(topic, url):
    tracers = RecordingTracerProvider()
    hook = OpenTelemetryHook(tracer_provider=tracers, meter_provider=RecordingMeterProvider())
    async with IggyClient(url, hooks=[hook]) as client:
        await client.send_messages(topic, topic, [b"x"], partition_id=0)
        (message,) = await client.poll_messages(topic, topic, consumer=ME, strategy=FIRST)
        with hook.process(message):
            pass

    spans = {span.name: span for span in tracers.spans}
    assert {f"create {topic}", f"send {topic}", f"poll {topic}"} <= set(spans)
    parent = spans[f"process {topic}"].parent
    assert parent.span_id == spans[f"create {topic}"].context.span_id


async def test_verbs_when_counted_then_each_is_proven_against_a_server():
    folder = Path(__file__).parent
    sources = "".join(path.read_text() for path in folder.glob("test_verbs_*.py"))
    called = set(re.findall(r"await \w+\.(\w+)\(", sources))
    verbs = {
        name
        for name, _ in inspect.getmembers(AllFamilies, inspect.iscoroutinefunction)
        if not name.startswith("_") and name != "request"
    }

    assert verbs <= called
