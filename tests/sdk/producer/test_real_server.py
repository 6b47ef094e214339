"""Producers against a real server: upstream's scenarios, faults on the way, restarts."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from iggy_protocol import (
    V0_11,
    ConsumerIdentity,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    CreateUser,
    GetStream,
    Permissions,
    PollingStrategy,
    PollMessages,
    StreamPermissions,
    TopicPermissions,
    UserStatus,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import (
    BufferFullError,
    PartitionNotFoundError,
    SendFailedError,
    TopicNotFoundError,
)
from iggy_sdk.message import Message
from iggy_sdk.options import Retry
from iggy_sdk.pipeline import Pipeline
from iggy_sdk.producer import Backpressure, ProducerBuilder
from iggy_sdk.serde import JsonSerde
from iggy_sdk.testing import RunningServer
from iggy_sdk.testing.server import external_server_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from iggy_sdk.producer.receipts import Receipt

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

TOPIC = "orders"
PARTITIONS = 3

deduplicating = pytest.mark.skipif(
    external_server_address() is not None,
    reason="the original deduplicates no partition that was made while it runs",
)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningServer]:
    """Run one server for the tests that leave it as it is; it deduplicates."""
    settings = {"IGGY_SYSTEM_MESSAGE_DEDUPLICATION_ENABLED": "true"}
    with RunningServer(settings=settings, address=external_server_address()) as server:
        yield server


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """Name a stream of this test alone."""
    name: str = request.node.name
    return name[:120] + str(abs(hash(name)) % 10_000)


@asynccontextmanager
async def connected(
    server: RunningServer, stream: str, **options: Any
) -> AsyncIterator[IggyClient]:
    """Connect a client, and create the stream and a topic."""
    server.faults.heal()
    async with IggyClient(server.url, **options) as client:
        await client.request(CreateStream(stream))
        await client.request(CreateTopic(stream, TOPIC, PARTITIONS))
        yield client


def to_topic(
    client: IggyClient, stream: str, *, topic: Any = TOPIC, **options: Any
) -> ProducerBuilder[Any]:
    """Make the builder of a producer to the topic of a test."""
    return client.producer(stream, topic, **options)


async def read(client: IggyClient, stream: str) -> dict[int, list[bytes]]:
    """Read all payloads, by partition."""
    found: dict[int, list[bytes]] = {}
    for partition in range(PARTITIONS):
        payloads: list[bytes] = []
        while True:
            polled = await client.request(
                PollMessages(
                    ConsumerIdentity.single("reader"),
                    stream,
                    TOPIC,
                    PollingStrategy.offset(len(payloads)),
                    10_000,
                    partition_id=partition,
                )
            )
            if not len(polled.messages):
                break
            payloads += polled.messages.payloads()
        found[partition] = payloads
    return found


def numbered(count: int, name: str = "") -> list[bytes]:
    return [f"{name}{number:06}".encode() for number in range(count)]


@pytest.mark.parametrize("mode", ["direct", "background"])
async def test_messages_when_sent_then_received_in_order(running, stream, mode):
    async with connected(running, stream) as client:
        async with to_topic(client, stream, **{mode: True}) as producer:
            await producer.send_many(numbered(2_500), partition_id=1)
            for payload in numbered(100, "single "):
                await producer.send(payload, partition_id=1)

        assert (await read(client, stream))[1] == numbered(2_500) + numbered(100, "single ")


async def test_balanced_when_batches_are_sent_then_the_server_goes_round(running, stream):
    async with connected(running, stream) as client:
        async with to_topic(client, stream, direct={"batch_length": 10}) as producer:
            await producer.send_many(numbered(90))
        found = await read(client, stream)

    assert [len(payloads) for payloads in found.values()] == [30, 30, 30]


@pytest.mark.parametrize("mode", ["direct", "background"])
async def test_keys_when_sent_then_all_messages_of_one_are_in_one_partition_in_order(
    running, stream, mode
):
    keys = [f"customer {number}" for number in range(20)]
    messages = [Message(f"{key}/{number:03}", key=key) for number in range(50) for key in keys]
    async with connected(running, stream) as client:
        async with to_topic(client, stream, **{mode: True}) as producer:
            await producer.send_many(messages[:500])
            for message in messages[500:]:
                await producer.send(message.value, key=message.key)
        found = await read(client, stream)

    for key in keys:
        places = [
            [payload for payload in payloads if payload.startswith(f"{key}/".encode())]
            for payloads in found.values()
        ]
        assert [place for place in places if place] == [
            [f"{key}/{number:03}".encode() for number in range(50)]
        ]


async def test_keys_when_computed_here_then_they_are_where_the_server_puts_them(running, stream):
    keys = [f"key {number}" for number in range(40)]
    async with connected(running, stream) as client:
        async with to_topic(client, stream, background=True) as here:
            for key in keys:
                await here.send(key, key=key)
        first = await read(client, stream)
        async with to_topic(client, stream) as by_server:
            for key in keys:
                await by_server.send(key, key=key)
        second = await read(client, stream)

    assert {place: Counter(rows * 2) for place, rows in first.items()} == {
        place: Counter(rows) for place, rows in second.items()
    }


async def test_buffer_when_too_small_then_overflow_at_once(running, stream):
    background = {"max_buffer_size": 10_000, "backpressure": Backpressure.fail()}
    async with (
        connected(running, stream) as client,
        to_topic(client, stream, background=background) as producer,
    ):
        with pytest.raises(BufferFullError):
            await producer.send(bytes(20_000))
        running.faults.delay(0.2, command="send_messages", times=1)
        await producer.send(bytes(8_000))
        with pytest.raises(BufferFullError):
            await producer.send(bytes(8_000))


async def test_buffer_when_full_for_a_while_then_senders_block_and_succeed(running, stream):
    background = {"max_buffer_size": 10_000, "linger_time": 0.0}
    async with connected(running, stream) as client:
        running.faults.delay(0.05, command="send_messages", times=3)
        async with to_topic(client, stream, background=background) as producer:
            for number in range(20):
                await producer.send(bytes([number]) * 4_000, partition_id=0)
        found = await read(client, stream)

    assert found[0] == [bytes([number]) * 4_000 for number in range(20)]


async def test_producers_when_ten_run_at_the_same_time_then_nothing_is_lost(running, stream):
    async with connected(running, stream) as client:

        async def produce(name: str) -> None:
            async with to_topic(client, stream, background=True) as producer:
                for payload in numbered(300, name):
                    await producer.send(payload)

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(produce, f"{number}:")
        found = await read(client, stream)

    expected = Counter(one for number in range(10) for one in numbered(300, f"{number}:"))
    assert Counter(payload for rows in found.values() for payload in rows) == expected


async def test_linger_when_the_producer_was_idle_then_still_respected(running, stream):
    async with connected(running, stream) as client:
        background = {"linger_time": 0.2}
        async with to_topic(client, stream, background=background) as producer:
            await (await producer.send(b"first")).delivered()
            begun_at = anyio.current_time()
            receipt = await producer.send(b"second")
            await receipt.delivered()

            assert anyio.current_time() - begun_at >= 0.19


async def test_order_when_two_shards_serve_then_kept(iggy_server_of_two, stream):
    async with connected(iggy_server_of_two, stream) as client:
        background = {"batch_length": 10, "max_in_flight": 8}
        async with to_topic(client, stream, background=background) as producer:
            for number in range(600):
                await producer.send(f"{number:06}", partition_id=number % PARTITIONS)
        found = await read(client, stream)

    assert found == {
        place: [f"{number:06}".encode() for number in range(place, 600, PARTITIONS)]
        for place in range(PARTITIONS)
    }


@pytest.fixture(scope="module")
def iggy_server_of_two() -> Iterator[RunningServer]:
    """Run a server with two shards."""
    with RunningServer(shards=2) as server:
        yield server


def skip_without_ids(client: IggyClient) -> None:
    """Leave a test about messages that are stored once, if there is no way to say so."""
    if client.dialect is V0_11:
        pytest.skip("a client of 0.9 cannot have a message stored once")


@deduplicating
@pytest.mark.parametrize("mode", ["direct", "background"])
@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
async def test_reply_when_lost_then_deduplicated_only_with_ids(
    running, stream, mode, idempotent, copies
):
    async with connected(running, stream) as client:
        if idempotent:
            skip_without_ids(client)
        options = {mode: True, "idempotent_ids": idempotent, "partitioning": 0}
        async with to_topic(client, stream, **options) as producer:
            running.faults.drop_connection(command="send_messages", executed=True)
            await producer.send_many([b"one", b"two"])
            await producer.flush()
            # From 0.10 on the connection repeats the request, and the server knows it again.
            is_known = client.dialect.binds_sessions
            assert producer.statistics().retries_count == (0 if is_known else 1)
            assert client.statistics().resends == (1 if is_known else 0)
        found = await read(client, stream)

    if is_known:
        copies = 1
    assert Counter(found[0]) == {b"one": copies, b"two": copies}


@deduplicating
async def test_reply_when_swallowed_then_repeated_after_the_timeout(running, stream):
    async with connected(running, stream, request_timeout=1.0) as client:
        skip_without_ids(client)
        options = {"idempotent_ids": True, "partitioning": 0}
        async with to_topic(client, stream, **options) as producer:
            running.faults.swallow_reply(command="send_messages")
            await producer.send(b"one", timeout=10.0)
        found = await read(client, stream)

    assert found[0] == [b"one"]


async def test_server_when_restarted_under_a_producer_then_every_delivered_message_is_there(
    stream, tmp_path
):
    is_back = anyio.Event()

    async def bounce() -> None:
        await anyio.to_thread.run_sync(server.kill)
        await anyio.to_thread.run_sync(server.start)
        is_back.set()

    settings = {"IGGY_SYSTEM_PARTITION_ENFORCE_FSYNC": "true"}
    settings |= {"IGGY_SYSTEM_PARTITION_MESSAGES_REQUIRED_TO_SAVE": "1"}
    with RunningServer(tmp_path, settings=settings) as server:
        async with connected(server, stream) as client:
            receipts: list[Receipt] = []
            builder = to_topic(client, stream, retry=Retry(attempts=50), partitioning=0)
            # With little room, senders wait for the server and are there when it goes and comes.
            async with builder.background(batch_length=20, max_buffer_size=20_000) as producer:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(bounce)
                    while len(receipts) < 1_000 or not is_back.is_set():
                        payload = b"%06d" % len(receipts)
                        receipts.append(await producer.send(payload))
                for receipt in receipts:
                    await receipt.delivered()
            found = (await read(client, stream))[0]

    # A repeated batch may be there twice, but the first of each is in order.
    assert list(dict.fromkeys(found)) == numbered(len(receipts))


async def test_values_when_sealed_and_packed_then_readable_with_the_key_alone(running, stream):
    encryptor = Encryptor.aes256_gcm(key=bytes(range(32)))
    value = {"text": "x" * 5_000}
    async with connected(running, stream) as client:
        builder = to_topic(client, stream, partitioning=0).background()
        async with builder.serde(JsonSerde()).encryptor(encryptor).compression("gzip") as producer:
            await producer.send(value, key="k", headers={"kind": "test"}, partition_id=0)
        polled = await client.request(
            PollMessages(
                ConsumerIdentity.single(1),
                stream,
                TOPIC,
                PollingStrategy.first(),
                10,
                partition_id=0,
            )
        )

    opened = Pipeline(JsonSerde(), encryptor=encryptor).batch(polled)[0]
    assert opened.value == value
    assert (opened.key, opened.headers["kind"]) == ("k", "test")
    assert len(opened.raw_payload) < 1_000


async def test_encryptor_when_it_is_the_clients_then_inherited_unless_switched_off(running, stream):
    encryptor = Encryptor.aes256_gcm(key=bytes(range(32)))
    async with connected(running, stream, encryptor=encryptor) as client:
        async with to_topic(client, stream, partitioning=0) as sealed:
            await sealed.send(b"plain")
        async with to_topic(client, stream, partitioning=0, encryptor=None) as open_:
            await open_.send(b"plain")
        found = (await read(client, stream))[0]

    assert encryptor.open(found[0]) == b"plain"
    assert found[1] == b"plain"


async def test_topic_when_created_by_many_producers_at_once_then_there_is_one(running, stream):
    running.faults.heal()
    async with IggyClient(running.url) as client:
        builder = (
            to_topic(client, stream)
            .create_stream_if_not_exists()
            .create_topic_if_not_exists(partitions_count=PARTITIONS)
        )

        async def produce(number: int) -> None:
            async with builder as producer:
                await producer.send(f"{number}")

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(produce, number)
        found = await read(client, stream)

    assert sum(len(payloads) for payloads in found.values()) == 8


async def test_partition_when_it_does_not_exist_then_the_cause_says_so(running, stream):
    async with (
        connected(running, stream) as client,
        to_topic(client, stream) as producer,
    ):
        with pytest.raises(SendFailedError) as caught:
            await producer.send(b"one", partition_id=99)

    assert isinstance(caught.value.cause, PartitionNotFoundError)


async def test_topic_when_missing_then_entering_says_so(running, stream):
    async with connected(running, stream) as client:
        with pytest.raises(TopicNotFoundError):
            await to_topic(client, stream, topic="typo")


async def test_keys_when_partitions_were_added_then_a_new_producer_uses_them(running, stream):
    async with connected(running, stream) as client:
        await client.request(CreatePartitions(stream, TOPIC, 5))
        async with to_topic(client, stream, background=True) as producer:
            await producer.send(b"x", key="a")
            await producer.send_many([Message(b"y", key="a"), Message(b"z", key="b")])


async def test_user_when_allowed_to_send_only_then_keys_are_placed_by_the_server(running, stream):
    async with connected(running, stream) as client:
        details = await client.request(GetStream(stream))
        assert details is not None
        name = f"sender {details.id}"
        topic = TopicPermissions(0, send_messages=True)
        permissions = Permissions(streams=(StreamPermissions(details.id, topics=(topic,)),))
        await client.request(CreateUser(name, "secret", UserStatus.ACTIVE, permissions))
        host, port = running.address
        async with (
            IggyClient(f"{host}:{port}", username=name, password="secret") as sending,
            to_topic(sending, stream, background=True) as producer,
        ):
            for number in range(30):
                await producer.send(f"{number % 3}/{number:02}", key=f"{number % 3}")
        found = await read(client, stream)

    for key in range(3):
        mine = [[one for one in rows if one.startswith(b"%d/" % key)] for rows in found.values()]
        assert [rows for rows in mine if rows] == [
            [f"{key}/{number:02}".encode() for number in range(key, 30, 3)]
        ]
