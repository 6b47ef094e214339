"""Many hands: order, retries, dead letters, and commits that never pass a gap."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import anyio
import pytest
from anyio.lowlevel import checkpoint

from iggy_protocol import SendMessages, StatusCode, StoreConsumerOffset
from iggy_sdk.compression import Compression
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import ConfigurationError, PermissionDeniedError, SerdeError
from iggy_sdk.message import Message
from iggy_sdk.options import Retry
from iggy_sdk.pipeline import Pipeline
from iggy_sdk.producer import ProducerBuilder
from iggy_sdk.serde import JsonSerde
from tests.sdk.consumer.fake_topic import fake_topic_and_client, places, take

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]


def keyed(key: str, payload: bytes):
    """Make a message as a producer with keys sends it."""
    return Pipeline().encode_message(Message(payload, key=key))


async def test_run_when_several_hands_work_takes_a_fraction_of_the_time():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 80)
        running = peak = 0

        async def handle(message) -> None:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await anyio.sleep(1)
            running -= 1

        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=10) as consumer:
            began = anyio.current_time()
            await consumer.run(handle, concurrency=8, until_end=True)
            assert anyio.current_time() - began == pytest.approx(10, abs=0.5)
        assert peak == 8
        assert fake_topic.offset() == 79


@pytest.mark.parametrize("order_by", ["partition", "key", lambda message: message.payload[:1]])
async def test_run_when_ordered_lets_none_overtake_and_others_go_on(order_by):
    async with fake_topic_and_client(3) as (fake_topic, client):
        for number in range(30):
            fake_topic.put(
                number % 3, keyed("abc"[number % 3], b"abc"[number % 3 :][:1] + b"%d" % number)
            )
        spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
        began = anyio.current_time()

        async def handle(message) -> None:
            start = anyio.current_time()
            await anyio.sleep(1)
            spans[message.partition_id].append((start, anyio.current_time()))

        async with ConsumerBuilder.group(client, "g", "s", "t", batch_length=4) as consumer:
            await consumer.run(handle, concurrency=3, order_by=order_by, until_end=True)
        assert all(
            earlier[1] <= later[0] for own in spans.values() for earlier, later in pairwise(own)
        )
        assert {key: len(own) for key, own in spans.items()} == {0: 10, 1: 10, 2: 10}
        assert anyio.current_time() - began < 14


@pytest.mark.parametrize("is_group", [True, False])
async def test_partition_when_its_queue_is_full_is_not_polled_and_others_are(is_group):
    async with fake_topic_and_client(2) as (fake_topic, client):
        fake_topic.fill(0, 100)
        peak, seen = 0, Counter[int]()

        async def handle(message) -> None:
            nonlocal peak
            peak = max(peak, consumer.statistics().in_progress)
            if message.offset == 20 and message.partition_id == 0:
                fake_topic.fill(1, 50)
            await anyio.sleep(1)
            seen[message.partition_id] += 1
            if seen[1] == 50:
                assert seen[0] < 80
                consumer.stop()

        make = ConsumerBuilder.group if is_group else ConsumerBuilder.standalone
        builder = make(client, "g", "s", "t", partition_id=None if is_group else "all")
        async with builder.batch_length(5) as consumer:
            await consumer.run(handle, concurrency=4, order_by="partition")
        assert seen[1] == 50
        assert peak <= 4 * 5


async def test_run_when_only_one_order_key_is_there_comes_to_its_end():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 50)
        builder = ConsumerBuilder.standalone(client, "c", "s", "t", batch_length=5)
        async with builder as consumer:
            with anyio.fail_after(60):
                await consumer.run(
                    lambda message: anyio.sleep(0.5),
                    concurrency=4,
                    order_by="partition",
                    until_end=True,
                )
        assert fake_topic.offset(name="c") == 49


async def test_mode_when_it_counts_messages_stores_at_each_mark_while_it_runs():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        mode = AutoCommit.after_every_nth(3)
        async with ConsumerBuilder.group(client, "g", "s", "t", commit=mode) as consumer:
            await consumer.run(lambda message: None, until_end=True)
        assert fake_topic.stores() == [(0, 2), (0, 5), (0, 8)]


async def test_commit_when_an_old_message_takes_long_waits_for_it():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 20)
        release = anyio.Event()

        async def handle(message) -> None:
            if message.offset == 3:
                await release.wait()

        async with (
            ConsumerBuilder.group(client, "g", "s", "t") as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: consumer.run(handle, concurrency=4, until_end=True))
            await anyio.sleep(5)
            assert fake_topic.offset() == 2
            assert consumer.statistics().in_progress == 1
            release.set()
        assert fake_topic.offset() == 19


async def test_handler_when_it_fails_is_called_again_with_growing_waits():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        attempts: list[tuple[int, float]] = []

        async def handle(message) -> None:
            attempts.append((message.offset, anyio.current_time()))
            if message.offset == 1 and len(attempts) < 5:
                raise OSError("not yet")

        retry = Retry(attempts=5, backoff=1.0, jitter=0.0)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await consumer.run(handle, retry=retry, until_end=True)
            numbers = consumer.statistics()
        assert [offset for offset, _ in attempts] == [0, 1, 1, 1, 1, 2]
        moments = [moment for offset, moment in attempts if offset == 1]
        waits = [later - moment for moment, later in pairwise(moments)]
        assert waits == pytest.approx([1, 2, 4])
        assert (numbers.handler_failures, numbers.handler_retries) == (3, 3)
        assert fake_topic.offset() == 2


async def test_handler_when_it_fails_for_good_is_raised_and_its_message_comes_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)

        async def handle(message) -> None:
            await checkpoint()
            if message.offset == 4:
                raise ValueError(message.offset)

        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            with pytest.raises(ValueError, match="4"):
                await consumer.run(handle, retry=Retry(attempts=1, backoff=0.0))
            assert fake_topic.offset() == 3
            assert places(await take(consumer, 2)) == [(0, 4), (0, 5)]


async def test_failure_when_others_are_at_work_lets_them_end_but_not_for_ever():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 4)
        ended: list[int] = []

        async def handle(message) -> None:
            await anyio.sleep({0: 1, 1: 2, 2: 3600, 3: 0.5}[message.offset])
            if message.offset == 3:
                raise ValueError("poison")
            ended.append(message.offset)

        builder = ConsumerBuilder.group(client, "g", "s", "t", close_timeout=5.0)
        async with builder as consumer:
            began = anyio.current_time()
            with pytest.raises(ValueError, match="poison"):
                await consumer.run(handle, concurrency=4)
            assert anyio.current_time() - began == pytest.approx(5.5, abs=0.2)
            assert ended == [0, 1]
            assert fake_topic.offset() == 1


async def test_dead_letter_when_a_message_cannot_be_handled_carries_it_and_its_story():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.put(0, b"good", keyed("k", b"bad"), b"fine")

        async def handle(message) -> None:
            if message.payload == b"bad":
                raise ValueError("no good ö" * 100)

        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await consumer.run(
                handle,
                retry=Retry(attempts=2, backoff=0.1),
                dead_letter=ProducerBuilder(client, "s", "dlq"),
                until_end=True,
            )
            assert consumer.statistics().dead_letters == 1
        assert fake_topic.offset() == 2
        (topic, batch), *others = fake_topic.sent
        assert (topic, others) == ("dlq", [])
        polled = [Pipeline().decode_message(view, partition_id=0) for view in batch]
        assert [message.payload for message in polled] == [b"bad"]
        assert polled[0].key == "k"
        headers = polled[0].headers
        assert headers["iggy-dead-letter-topic"] == "t"
        assert headers["iggy-dead-letter-offset"] == 1
        assert headers["iggy-dead-letter-attempts"] == 3
        assert headers["iggy-dead-letter-error"] == "ValueError"
        assert str(headers["iggy-dead-letter-reason"]).startswith("no good ö")


async def test_dead_letter_when_it_cannot_be_sent_keeps_the_message_uncommitted():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        fake_topic.plan(SendMessages, StatusCode.UNAUTHORIZED)

        async def handle(message) -> None:
            if message.offset == 1:
                raise ValueError("poison")

        producer: ProducerBuilder = ProducerBuilder(client, "s", "dlq").retry(None)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            with pytest.raises(Exception, match="not sent"):
                await consumer.run(handle, dead_letter=producer)
        assert fake_topic.offset() == 0


async def test_dead_letter_when_its_producer_works_in_the_background_is_waited_for():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 3)
        fake_topic.plan(SendMessages, *[StatusCode.UNAUTHORIZED] * 3)

        async def handle(message) -> None:
            assert message.offset != 1

        producer: ProducerBuilder = ProducerBuilder(client, "s", "dlq").background(on_error=print)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            with pytest.raises(Exception, match="not sent"):
                await consumer.run(handle, dead_letter=producer)
        assert fake_topic.offset() == 0


async def test_dead_letter_when_the_message_was_compressed_travels_unpacked():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.put(0, Pipeline(compression=Compression("gzip")).encode_message(b"text" * 1_000))

        async def handle(message) -> None:
            assert message.payload == b""

        letters: ProducerBuilder = ProducerBuilder(client, "s", "dlq")
        async with (
            letters as producer,
            ConsumerBuilder.group(client, "g", "s", "t") as consumer,
        ):
            await consumer.run(handle, dead_letter=producer, until_end=True)
            assert not producer.is_closed
        letter = next(
            Pipeline().decode_message(view, partition_id=0) for view in fake_topic.sent[0][1]
        )
        assert letter.error is None
        assert letter.payload == b"text" * 1_000
        assert "content-encoding" not in letter.headers


async def test_message_when_it_cannot_be_read_is_not_tried_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.put(0, b"[1]", b"{broken", b"[3]")
        calls = []

        async def handle(message) -> None:
            calls.append(message.offset)
            assert message.value

        builder = ConsumerBuilder.group(client, "g", "s", "t").serde(JsonSerde())
        async with builder as consumer:
            with pytest.raises(SerdeError):
                await consumer.run(handle, retry=Retry(attempts=9))
            assert calls == [0, 1]
            await consumer.run(
                handle, dead_letter=ProducerBuilder(client, "s", "dlq"), until_end=True
            )
        assert calls == [0, 1, 1, 2]
        assert fake_topic.offset() == 2
        assert fake_topic.sent[0][1].payloads() == [b"{broken"]


async def test_message_when_it_was_sealed_with_another_key_fails_alone():
    async with fake_topic_and_client() as (fake_topic, client):
        ours, theirs = (Encryptor.aes256_gcm(key=bytes([n]) * 32) for n in (1, 2))
        for encryptor, payload in ((ours, b"a"), (theirs, b"b"), (ours, b"c")):
            fake_topic.put(0, Pipeline(encryptor=encryptor).encode_message(payload))
        builder = ConsumerBuilder.group(client, "g", "s", "t", until_end=True)
        async with builder.encryptor(ours) as consumer:
            seen = [
                message.value if message.error is None else type(message.error).__name__
                async for message in consumer
            ]
        assert seen == [b"a", "DecryptionError", b"c"]
        assert fake_topic.offset() == 2


async def test_stop_when_handlers_run_lets_them_end_and_takes_no_more():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 100)
        handled = []

        async def handle(message) -> None:
            await anyio.sleep(1)
            handled.append(message.offset)
            if message.offset == 5:
                consumer.stop()

        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await consumer.run(handle, concurrency=2)
            assert max(handled) <= 7
        assert fake_topic.offset() == max(handled)


async def test_consume_messages_when_the_event_is_set_returns_and_can_be_called_again():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        event = anyio.Event()
        seen = []

        async def callback(message) -> None:
            seen.append(message.offset)
            if len(seen) == 3:
                event.set()
                await anyio.sleep(0.5)

        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await consumer.consume_messages(callback, event)
            assert seen == [0, 1, 2]
            assert fake_topic.offset() == 2
            event = anyio.Event()
            await consumer.run(callback, until_end=True)
        assert seen == list(range(10))


async def test_plain_function_when_given_as_handler_is_called():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        seen: list[int] = []
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            await consumer.run(lambda message: seen.append(message.offset), until_end=True)
            with pytest.raises(ConfigurationError):
                await consumer.run(lambda message: None, concurrency=0)
        assert seen == [0, 1, 2, 3, 4]


async def test_order_when_the_function_fails_is_raised_before_anything_else_runs():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            with pytest.raises(ZeroDivisionError):
                await consumer.run(lambda message: None, order_by=lambda message: 1 // 0)
        assert fake_topic.offset() is None


@pytest.mark.parametrize(
    ("mode", "stored"),
    [(AutoCommit.when_each(), 2), (AutoCommit.when_polling(), 4), (AutoCommit.disabled(), None)],
)
async def test_mode_when_a_handler_fails_stores_what_it_says(mode, stored):
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)

        async def handle(message) -> None:
            await checkpoint()
            assert message.offset < 2

        async with ConsumerBuilder.group(client, "g", "s", "t", commit=mode) as consumer:
            with pytest.raises(AssertionError):
                await consumer.run(handle)
        assert fake_topic.offset() == stored


async def test_run_when_storing_is_forbidden_says_so():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 5)
        fake_topic.plan(StoreConsumerOffset, *[StatusCode.UNAUTHORIZED] * 3)
        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            with pytest.raises(PermissionDeniedError):
                await consumer.run(lambda message: None)


async def test_run_when_the_partition_is_lost_skips_what_waits_of_it():
    async with fake_topic_and_client() as (fake_topic, client):
        fake_topic.fill(0, 10)
        handled = []

        async def handle(message) -> None:
            await anyio.sleep(0.3)
            handled.append(message.offset)
            if message.offset == 2:
                fake_topic.plan(StoreConsumerOffset, StatusCode.NOT_RESOLVED_CONSUMER)
                fake_topic.stored[2, "g", 0] = 7

        async with ConsumerBuilder.group(client, "g", "s", "t") as consumer:
            with anyio.move_on_after(20):
                await consumer.run(handle)
            assert consumer.statistics().commits_dropped == 1
        assert handled == [0, 1, 2, 3, 8, 9] or handled == [0, 1, 2, 8, 9]
