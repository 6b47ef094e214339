"""A background producer: accepted means delivered or reported, in order, within its bounds."""

from __future__ import annotations

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from iggy_protocol import GetTopic, StatusCode, partition_for_key
from iggy_sdk.errors import (
    BufferFullError,
    ProducerClosedError,
    SendFailedError,
    SerdeError,
)
from iggy_sdk.message import Message
from iggy_sdk.options import Retry
from iggy_sdk.producer import Backpressure
from iggy_sdk.producer.encoder import OVERHEAD_BYTES
from iggy_sdk.producer.routing import PARTITIONS_MAX_AGE_S
from iggy_sdk.serde import JsonSerde
from tests.sdk.producer.broker import Broker, broker_and_client, orders, producing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

RETRIABLE = StatusCode.CANNOT_APPEND_MESSAGE
PERMANENT = StatusCode.TOPIC_ID_NOT_FOUND
ONE = 10 + OVERHEAD_BYTES
"""The size of a payload of ten bytes."""


def numbered(count: int, *, start: int = 0) -> list[bytes]:
    """Make payloads of ten bytes that say their number."""
    return [f"{number:010}".encode() for number in range(start, start + count)]


async def test_send_when_it_returns_then_the_message_is_accepted_and_delivered_later():
    async with producing(background={"linger_time": 1.0}) as (broker, producer):
        receipt = await producer.send(b"one")
        assert (receipt.is_done, broker.payloads) == (False, [])

        await receipt.delivered()
        assert (receipt.is_done, broker.payloads) == (True, [b"one"])


async def test_linger_when_oldest_message_has_waited_then_the_batch_leaves():
    async with producing(background={"linger_time": 1.0}) as (broker, producer):
        await anyio.sleep(10)
        begun_at = anyio.current_time()
        first = await producer.send(b"1")
        await anyio.sleep(0.9)
        await producer.send(b"2")
        await first.delivered()

        assert anyio.current_time() - begun_at == pytest.approx(1.0)
    assert broker.requests == [[b"1", b"2"]]


async def test_batch_length_when_reached_then_messages_count_and_not_calls():
    async with producing(background={"linger_time": 60.0, "batch_length": 4}) as (broker, producer):
        await producer.send_many(numbered(3))
        await producer.send(b"last of the first")
        await producer.send_many(numbered(2))
        await wait_all_tasks_blocked()

        assert broker.requests == [[*numbered(3), b"last of the first"]]


async def test_batch_size_when_reached_then_the_batch_leaves():
    background = {"linger_time": 60.0, "batch_size": 3 * ONE}
    async with producing(background=background) as (broker, producer):
        await producer.send_many(numbered(4))
        await wait_all_tasks_blocked()

        assert broker.requests == [numbered(3)]


async def test_flush_when_it_returns_then_everything_before_it_was_delivered():
    async with producing(background={"linger_time": 3600.0}) as (broker, producer):
        await producer.send_many(numbered(5))
        begun_at = anyio.current_time()
        await producer.flush()

        assert broker.payloads == numbered(5)
        assert anyio.current_time() - begun_at < 1
        assert producer.statistics().buffered_bytes == 0


async def test_block_when_left_then_the_buffer_was_delivered():
    async with producing(background={"linger_time": 3600.0}) as (broker, producer):
        receipt = await producer.send_many(numbered(2_500))

    assert broker.payloads == numbered(2_500)
    assert receipt.is_done
    with pytest.raises(ProducerClosedError):
        await producer.send(b"late")


async def test_block_when_left_by_an_error_then_the_buffer_was_delivered_all_the_same():
    broker = Broker()

    async def fail_inside(client) -> None:
        async with orders(client, background={"linger_time": 3600.0}) as producer:
            await producer.send(b"one")
            raise KeyError

    async with broker_and_client(broker) as (_, client):
        with pytest.raises(KeyError):
            await fail_inside(client)

    assert broker.payloads == [b"one"]


async def test_buffer_when_full_and_failing_then_buffer_full_error_and_nothing_is_accepted():
    background = {"max_buffer_size": 2 * ONE, "backpressure": Backpressure.fail()}
    async with producing(background=background) as (broker, producer):
        held = broker.plan("hold")
        await producer.send_many(numbered(2))
        await held.is_reached.wait()

        with pytest.raises(BufferFullError) as caught:
            await producer.send(numbered(1)[0])
        assert caught.value.code == StatusCode.BACKGROUND_SEND_BUFFER_OVERFLOW
        held.release.set()
        await producer.flush()
        await producer.send(numbered(1)[0])

    assert broker.payloads == [*numbered(2), *numbered(1)]


async def test_buffer_when_batch_is_on_its_way_then_its_bytes_are_held_until_acknowledged():
    async with producing(background={"max_buffer_size": 3 * ONE}) as (broker, producer):
        held = broker.plan("hold")
        await producer.send_many(numbered(3))
        await held.is_reached.wait()
        assert producer.statistics().buffered_bytes == 3 * ONE

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(producer.send, b"fourth")
            await wait_all_tasks_blocked()
            assert producer.statistics().blocked_count == 1
            held.release.set()

    assert broker.payloads == [*numbered(3), b"fourth"]


async def test_buffer_when_full_for_longer_than_the_timeout_then_buffer_full_error():
    background = {"max_buffer_size": ONE, "backpressure": Backpressure.block(timeout=2.0)}
    async with producing(background=background) as (broker, producer):
        held = broker.plan("hold")
        await producer.send(numbered(1)[0])
        await held.is_reached.wait()
        begun_at = anyio.current_time()

        with pytest.raises(BufferFullError) as caught:
            await producer.send(b"late")
        assert caught.value.code == StatusCode.BACKGROUND_SEND_TIMEOUT
        assert anyio.current_time() - begun_at == pytest.approx(2.0)
        held.release.set()


async def test_buffer_when_message_never_fits_then_refused_whatever_the_mode():
    async with producing(background={"max_buffer_size": ONE}) as (_, producer):
        with pytest.raises(BufferFullError, match="do not fit"):
            await producer.send(bytes(11))


async def test_buffer_when_unlimited_then_no_send_waits():
    async with producing(background={"max_buffer_size": None}) as (broker, producer):
        held = broker.plan("hold")
        await producer.send_many([bytes(1 << 20)] * 40)
        held.release.set()

    assert len(broker.payloads) == 40


async def test_send_many_when_list_is_larger_than_the_buffer_then_accepted_piece_by_piece():
    background = {"max_buffer_size": 10 * ONE, "batch_length": 4}
    async with producing(background=background) as (broker, producer):
        receipt = await producer.send_many(numbered(100))
        await receipt.delivered()

    assert broker.payloads == numbered(100)


async def test_send_many_when_buffer_fills_midway_then_the_unaccepted_tail_is_named():
    background = {
        "max_buffer_size": 8 * ONE,
        "batch_length": 4,
        "backpressure": Backpressure.fail(),
    }
    async with producing(background=background) as (broker, producer):
        with pytest.raises(SendFailedError) as caught:
            await producer.send_many(numbered(12))
        assert isinstance(caught.value.cause, BufferFullError)
        assert caught.value.messages == tuple(numbered(4, start=8))

    assert broker.payloads == numbered(8)


async def test_order_when_requests_fail_and_many_may_be_in_flight_then_kept_per_partition():
    background = {"linger_time": 0.0, "batch_length": 3, "max_in_flight": 8}
    retry = Retry(attempts=100)
    async with producing(background=background, partitioning=0, retry=retry) as (broker, producer):
        for number in range(20):
            broker.plan("refuse", RETRIABLE)
            await producer.send_many(numbered(5, start=5 * number))
            await checkpoint()

    assert broker.payloads == numbered(100)


async def test_order_when_keys_share_partitions_and_requests_fail_then_kept_per_key():
    background = {"linger_time": 0.01, "batch_length": 7, "max_in_flight": None}
    keys = [f"key {number}" for number in range(9)]
    retry = Retry(attempts=100)
    async with producing(background=background, retry=retry) as (broker, producer):
        broker.plan("refuse", RETRIABLE, times=10)
        for number in range(30):
            for key in keys:
                await producer.send(f"{key}:{number}", key=key)

    for key in keys:
        place = partition_for_key(key.encode(), broker.partitions_count)
        mine = [text for text in broker.partitions[place] if text.startswith(key.encode() + b":")]
        assert mine == [f"{key}:{number}".encode() for number in range(30)]
    assert len(broker.requests) < 270, "keys of one partition travel together"


async def test_in_flight_when_destinations_differ_then_as_many_as_allowed_and_no_more():
    async with producing(background={"max_in_flight": 2, "linger_time": 0.0}) as (broker, producer):
        steps = [broker.plan("hold") for _ in range(3)]
        for partition in range(3):
            await producer.send(b"x", partition_id=partition)
        await wait_all_tasks_blocked()

        # The connection is answered in order, so the broker sees only the first of the two.
        assert producer.statistics().in_flight_count == 2
        for step in steps:
            step.release.set()


async def test_sender_when_blocked_and_the_producer_closes_then_producer_closed_error():
    async with producing(background={"max_buffer_size": ONE}) as (broker, producer):
        held = broker.plan("hold")
        await producer.send(numbered(1)[0])
        await held.is_reached.wait()

        is_told = anyio.Event()

        async def blocked() -> None:
            with pytest.raises(ProducerClosedError):
                await producer.send(b"x")
            is_told.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(blocked)
            await wait_all_tasks_blocked()
            tasks.start_soon(producer.aclose)
            await is_told.wait()
            held.release.set()

    assert broker.payloads == numbered(1)


async def test_payload_when_changed_after_send_then_what_was_accepted_travels():
    async with producing(background={"linger_time": 1.0}) as (broker, producer):
        payload = bytearray(b"before")
        await producer.send(payload)
        await producer.send_many([payload, Message(memoryview(payload), id=5)])
        payload[:] = b"AFTER!"

    assert broker.payloads == [b"before"] * 3


async def test_send_when_value_cannot_be_written_then_the_caller_is_told_at_once():
    async with producing(background=True, serde=JsonSerde()) as (broker, producer):
        await producer.send({"n": 1})
        with pytest.raises(SerdeError):
            await producer.send(object())
        with pytest.raises(SerdeError):
            await producer.send_many([{"n": 2}, object()])

    assert broker.payloads == [b'{"n":1}']


async def test_keys_when_partitions_are_added_then_noticed_and_used():
    async with producing(Broker(partitions_count=1), background=True) as (broker, producer):
        await producer.send(b"before", key="another key")
        await producer.flush()
        broker.partitions_count = 64
        await anyio.sleep(2 * PARTITIONS_MAX_AGE_S)
        await producer.send(b"after", key="another key")

    place = partition_for_key(b"another key", 64)
    assert place != 0
    assert broker.partitions == {0: [b"before"], place: [b"after"]}


async def test_keys_when_partition_is_gone_then_the_server_places_what_was_for_it():
    async with producing(background={"linger_time": 5.0}) as (broker, producer):
        for number in range(20):
            await producer.send(f"{number}", key=f"key {number}")
        broker.partitions_count = 1

    assert sorted(map(int, broker.partitions[0])) == list(range(20))


async def test_keys_when_sent_to_another_topic_then_its_partitions_are_counted_once():
    async with producing(Broker(topics=("orders", "other")), background=True) as (broker, producer):
        for number in range(5):
            await producer.send_to("shop", "other", [Message(str(number), key=f"{number}")])

    looks = [command for command in broker.commands if isinstance(command, GetTopic)]
    assert [refresh_partitions.topic for refresh_partitions in looks] == ["orders", "other"]


async def test_producer_when_awaited_without_a_block_then_shutdown_flushes_and_ends_it():
    async with broker_and_client() as (broker, client):
        producer = await orders(client, background={"linger_time": 60.0})
        await producer.send(b"one")
        await producer.shutdown()

        assert broker.payloads == [b"one"]
        with pytest.raises(ProducerClosedError):
            await producer.send(b"two")


async def test_builder_when_entered_several_times_then_each_block_has_its_own_producer():
    async with broker_and_client() as (broker, client):
        builder = orders(client, background={"linger_time": 60.0})

        async def use(name: bytes) -> None:
            async with builder as producer, builder as inner:
                assert producer is not inner
                await producer.send(name)
                await inner.send(name)

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(use, f"{number}".encode())

    assert sorted(broker.payloads) == sorted(f"{n}".encode() for n in range(5) for _ in range(2))


async def test_turns_when_one_task_sends_without_end_then_others_run():
    async with producing(background={"max_buffer_size": None}) as (broker, producer):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def stop_when_delivered() -> None:
                    while not broker.payloads:
                        await checkpoint()
                    scope.cancel()

                tasks.start_soon(stop_when_delivered)
                while True:
                    await producer.send(b"again")

    assert broker.payloads


async def test_statistics_when_all_is_done_then_the_numbers_add_up():
    async with producing(background={"batch_length": 2}, retry=Retry(attempts=1)) as (broker, one):
        broker.plan("refuse", RETRIABLE)
        await one.send_many(numbered(5))
        await one.flush()
        statistics = one.statistics()

    assert statistics.accepted_count == statistics.delivered_count == 5
    assert (statistics.batches_count, statistics.retries_count) == (3, 1)
    assert (statistics.failed_count, statistics.in_flight_count) == (0, 0)


async def test_calls_when_the_producer_was_not_entered_then_refused_and_closing_is_harmless():
    async with broker_and_client() as (_, client):
        producer = orders(client, background=True).make()
        with pytest.raises(ProducerClosedError):
            await producer.send(b"one")
        await producer.flush()
        await producer.aclose()
