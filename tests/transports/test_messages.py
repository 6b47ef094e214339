"""Sending and reading over every transport, from single requests to consumers of a group."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from iggy_protocol import (
    ConsumerIdentity,
    FlushUnsavedBuffer,
    NewMessage,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
)
from iggy_sdk import Encryptor, JsonSerde, Message
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import InvalidRequestError, PartitionNotFoundError, RequestTimeoutError
from tests.sdk.exchanges import refused_if_missing

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

SINGLE = ConsumerIdentity.single("reader")
FIRST = Partitioning.partition(0)


async def payloads(client: IggyClient, stream: str, strategy: PollingStrategy, **more):
    polled = await client.poll_messages(
        stream,
        "orders",
        **{"consumer": SINGLE, "partition_id": 0, "strategy": strategy, **more},
    )
    return [message.payload for message in polled]


async def test_messages_when_polled_by_every_strategy_then_the_right_ones_come(client, topic):
    partition = Partitioning.partition(0)
    for number in range(6):
        await client.send_messages(topic, "orders", [b"%d" % number], partitioning=partition)
    sent = [b"%d" % number for number in range(6)]
    batch = await client.poll_messages(
        topic, "orders", consumer=SINGLE, partition_id=0, strategy=PollingStrategy.first()
    )
    stamps = [message.timestamp_us for message in batch]

    assert [message.offset for message in batch] == list(range(6))
    assert await payloads(client, topic, PollingStrategy.first(), count=2) == sent[:2]
    assert await payloads(client, topic, PollingStrategy.last(), count=2) == sent[4:]
    assert await payloads(client, topic, PollingStrategy.offset(4)) == sent[4:]
    assert await payloads(client, topic, PollingStrategy.offset(6)) == []
    assert await payloads(client, topic, PollingStrategy.timestamp(stamps[0])) == sent
    following = PollingStrategy.next()
    assert await payloads(client, topic, following, count=2, auto_commit=True) == sent[:2]
    assert await payloads(client, topic, following, count=2) == sent[2:4]
    with pytest.raises(PartitionNotFoundError):
        await payloads(client, topic, following, partition_id=9)


async def test_offsets_when_stored_then_are_found_until_deleted(client, topic):
    partition = Partitioning.partition(1)
    await client.send_messages(topic, "orders", [b"x"] * 5, partitioning=partition)
    place: dict[str, Any] = {"consumer": SINGLE, "partition_id": 1}

    assert await client.get_consumer_offset(topic, "orders", **place) is None
    await client.store_consumer_offset(topic, "orders", offset=3, **place)
    found = await client.get_consumer_offset(topic, "orders", required=True, **place)
    assert (found.stored_offset, found.current_offset) == (3, 4)
    with refused_if_missing(client, FlushUnsavedBuffer):
        await client.flush_unsaved_buffer(topic, "orders", 1, fsync=True)
    await client.delete_consumer_offset(topic, "orders", **place)
    assert await client.get_consumer_offset(topic, "orders", **place) is None


async def test_partitioning_when_by_key_or_balanced_then_the_server_chooses(client, topic):
    for number in range(9):
        await client.send_messages(topic, "orders", [b"%d" % number])
    for _ in range(3):
        await client.send_messages(topic, "orders", [b"k"], partitioning=Partitioning.key("key"))
    counts = [
        len(await payloads(client, topic, PollingStrategy.first(), partition_id=number))
        for number in range(3)
    ]

    assert sum(counts) == 12
    assert min(counts) == 3
    assert sorted(counts)[-1] == 6


async def test_messages_when_they_have_ids_headers_and_any_bytes_then_come_as_they_went(
    client, topic
):
    headers: dict[str, Any] = {
        "kind": "greeting",
        "count": 2**40,
        "raw": b"\0\xff",
        "yes": True,
        "ratio": 0.5,
    }
    sent = [
        Message("Grüße 🚀".encode(), id=2**128 - 1, headers=headers),
        Message(bytes(range(256)), id=1),
        Message(b"\0"),
    ]
    async with client.producer(topic, "orders", partitioning=Partitioning.partition(2)) as producer:
        await producer.send(sent)
    batch = await client.poll_messages(
        topic, "orders", consumer=SINGLE, partition_id=2, strategy=PollingStrategy.first()
    )
    received = list(batch)

    assert [message.payload for message in received] == [message.value for message in sent]
    assert [message.id for message in received][:2] == [2**128 - 1, 1]
    assert received[2].id
    assert received[0].headers == headers
    assert all(message.checksum and message.origin_timestamp_us for message in received)


NAMES = ("größe / 100 %", "📦?#&=+", "..", "a\tb", "login")


async def test_names_when_they_have_any_characters_then_name_the_same_thing(client, name):
    for stream in NAMES:
        await client.create_stream(stream)
        await client.create_topic(stream, f"ümläut/… {stream}", 1)
        await client.send_messages(stream, f"ümläut/… {stream}", [name.encode()])
        polled = await client.poll_messages(
            stream,
            f"ümläut/… {stream}",
            consumer=ConsumerIdentity.single("Leser*in"),
            partition_id=0,
            strategy=PollingStrategy.last(),
            count=1,
        )
        assert [message.payload for message in polled] == [name.encode()]
        await client.delete_stream(stream)
        assert await client.get_stream(stream) is None


async def test_batch_when_it_has_four_megabytes_then_goes_and_comes_in_one_piece(client, topic):
    block = bytes(range(250)) * 4
    batch = SendMessages(topic, "orders", Partitioning.partition(0), [block] * 4_200)
    await client.request(batch)
    poll = PollMessages(SINGLE, topic, "orders", PollingStrategy.first(), 5_000, 0)
    polled = await client.request(poll)

    assert len(polled.messages) == 4_200
    assert polled.messages.nbytes == 4_200 * 1_064
    polled.messages.verify()
    single = SendMessages(topic, "orders", Partitioning.partition(1), [NewMessage(block * 4_000)])
    await client.request(single)
    assert await payloads(client, topic, PollingStrategy.last(), partition_id=1, count=1) == [
        block * 4_000
    ]


# Producers and consumers


@pytest.mark.parametrize("mode", ["direct", "background"])
async def test_producer_when_it_sends_then_a_consumer_reads_in_order_and_goes_on(
    client, topic, mode
):
    builder = client.producer(topic, "orders", serde=JsonSerde(), partitioning=FIRST)
    async with builder.direct() if mode == "direct" else builder.background() as producer:
        for number in range(40):
            await producer.send({"number": number})

    async def read(count: int) -> list[int]:
        async with client.consumer(
            "shelf", topic, "orders", serde=JsonSerde(), partition_id=0, until_end=True
        ) as consumer:
            numbers = []
            async for message in consumer:
                numbers.append(message.value["number"])
                if len(numbers) == count:
                    break
            return numbers

    first = await read(25)
    # The last one was handed out and not acknowledged, so it comes again.
    rest = await read(100)
    assert first == list(range(25))
    assert rest[-1] == 39
    assert rest == list(range(rest[0], 40))
    assert rest[0] in (24, 25)


async def test_group_when_two_read_then_they_share_or_are_told_why_not(client, topic, transport):
    async with client.producer(topic, "orders") as producer:
        for number in range(30):
            await producer.send(b"%d" % number)
    if transport in ("http", "https"):
        with pytest.raises(InvalidRequestError, match="iggy://") as caught:
            async with client.consumer_group("billing", topic, "orders"):
                raise AssertionError("the consumer was opened")
        assert caught.value.code == StatusCode.FEATURE_UNAVAILABLE
        return
    seen: list[bytes] = []

    async def read(tasks: anyio.abc.TaskGroup) -> None:
        async with client.consumer_group("billing", topic, "orders") as consumer:
            async for message in consumer:
                seen.append(message.payload)
                if len(set(seen)) == 30:
                    tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, tasks)
        tasks.start_soon(read, tasks)
    assert set(seen) == {b"%d" % number for number in range(30)}


async def test_encryption_when_the_client_seals_then_only_those_with_the_key_read(
    client, transport_server, transport, topic
):
    sealing = Encryptor.aes256_gcm(bytes(range(32)))
    async with (
        IggyClient(transport_server.url(transport), encryptor=sealing) as sealer,
        sealer.producer(topic, "orders", partitioning=Partitioning.partition(0)) as producer,
    ):
        await producer.send(Message(b"the secret", headers={"who": "nobody"}))
        place: dict[str, Any] = {
            "consumer": SINGLE,
            "partition_id": 0,
            "strategy": PollingStrategy.first(),
        }
        opened = list(await sealer.poll_messages(topic, "orders", **place))
        raw = await client.request(
            PollMessages(SINGLE, topic, "orders", PollingStrategy.first(), 10, 0)
        )

    assert [message.payload for message in opened] == [b"the secret"]
    assert opened[0].headers == {"who": "nobody"}
    stored = bytes(raw.messages.buffer)
    assert b"secret" not in stored
    assert b"nobody" not in stored


# Many at once, time and cancelling


async def test_requests_when_many_tasks_ask_then_each_gets_its_own_answer(client, topic):
    await client.send_messages(
        topic, "orders", [b"%d" % number for number in range(50)], partitioning=FIRST
    )

    async def ask(offset: int) -> None:
        found = await payloads(client, topic, PollingStrategy.offset(offset), count=1)
        assert found == [b"%d" % offset]

    async with anyio.create_task_group() as tasks:
        for offset in range(50):
            tasks.start_soon(ask, offset)


async def test_request_when_the_server_does_not_answer_then_ends_in_time_and_goes_on(
    client, transport_server, topic
):
    with transport_server.stopped(), pytest.raises(RequestTimeoutError, match=r"0\.1 s") as caught:
        await client.get_stream(topic, timeout=0.1)
    assert caught.value.sent
    assert "may have been carried out" in str(caught.value)
    await client.ping()
    found = await client.get_stream(topic)
    assert found is not None
    assert found.name == topic


async def test_request_when_cancelled_then_the_client_goes_on(client, topic):
    batch = [bytes(1_000)] * 1_000
    for seconds in (0.0, 0.001, 0.004):
        with anyio.move_on_after(seconds):
            await client.send_messages(topic, "orders", batch, partitioning=FIRST)
        await client.ping()
    assert await client.get_stream(topic) is not None
