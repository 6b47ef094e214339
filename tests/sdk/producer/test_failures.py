"""Failures in the background: who is told of messages that were given up, and that somebody is."""

from __future__ import annotations

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from iggy_protocol import StatusCode
from iggy_sdk.errors import SendFailedError, TopicNotFoundError
from iggy_sdk.producer.encoder import OVERHEAD_BYTES
from tests.sdk.producer.broker import broker_and_client, orders, producing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

PERMANENT = StatusCode.TOPIC_ID_NOT_FOUND
ONE = 10 + OVERHEAD_BYTES
"""The size of a payload of ten bytes."""


def numbered(count: int, *, start: int = 0) -> list[bytes]:
    """Make payloads of ten bytes that say their number."""
    return [f"{number:010}".encode() for number in range(start, start + count)]


async def test_failure_when_there_is_no_callback_then_the_next_call_raises_and_then_goes_on():
    async with producing(background=True, retry=None) as (broker, producer):
        broker.plan("refuse", PERMANENT)
        await producer.send_many([b"1", b"2"])
        await anyio.sleep(1)

        with pytest.raises(SendFailedError) as caught:
            await producer.send(b"3")
        assert isinstance(caught.value.cause, TopicNotFoundError)
        assert caught.value.messages == (b"1", b"2")
        await producer.send(b"4")

    assert broker.payloads == [b"4"]
    assert producer.statistics().failed_count == 2


async def test_failure_when_it_happens_in_the_last_flush_then_leaving_the_block_raises():
    async with broker_and_client() as (broker, client):
        broker.plan("refuse", PERMANENT)
        with pytest.raises(SendFailedError) as caught:
            async with orders(client, background={"linger_time": 60}) as producer:
                await producer.send(b"1")

    assert caught.value.messages == (b"1",)


async def test_failure_when_flush_waits_for_it_then_flush_raises():
    async with producing(background=True) as (broker, producer):
        broker.plan("refuse", PERMANENT)
        await producer.send(b"1")

        with pytest.raises(SendFailedError):
            await producer.flush()
        await producer.flush()


async def test_failure_when_its_receipt_is_awaited_then_is_not_reported_again():
    async with producing(background=True) as (broker, producer):
        broker.plan("refuse", PERMANENT)
        first = await producer.send(b"1")
        second = await producer.send(b"2")

        with pytest.raises(SendFailedError) as caught:
            await first.delivered()
        assert caught.value.messages == (b"1",)
        with pytest.raises(SendFailedError) as untold:
            await producer.send(b"3")
        assert untold.value.messages == (b"2",)
        assert second.error is not None
        await producer.send(b"4")

    assert broker.payloads == [b"4"]


async def test_receipt_when_many_batches_fail_then_it_names_its_own_messages():
    async with producing(background={"batch_length": 3}) as (broker, producer):
        held = broker.plan("hold")
        held.release.set()
        broker.plan("refuse", PERMANENT, times=2)
        await producer.send(b"another's")
        receipt = await producer.send_many(numbered(7))

        with pytest.raises(SendFailedError) as caught:
            await receipt.delivered()
        assert caught.value.messages == tuple(numbered(5, start=2))
        assert receipt.error is not None
        assert receipt.is_done

    assert broker.payloads == [b"another's", *numbered(2)]


async def test_receipt_when_waiting_is_cancelled_then_the_failure_is_told_by_the_next_call():
    async with producing(background={"linger_time": 5.0}) as (broker, producer):
        broker.plan("refuse", PERMANENT)
        receipt = await producer.send(b"1")
        with anyio.move_on_after(1):
            await receipt.delivered()
        await anyio.sleep(10)

        with pytest.raises(SendFailedError):
            await producer.send(b"2")


@pytest.mark.parametrize("is_async", [False, True])
async def test_callback_when_batches_fail_then_told_with_the_messages_and_calls_go_on(is_async):
    told: list[SendFailedError] = []

    async def later(error: SendFailedError) -> None:
        await anyio.sleep(1)
        told.append(error)

    on_error = later if is_async else told.append
    async with producing(background={"on_error": on_error}, retry=None) as (broker, producer):
        broker.plan("refuse", PERMANENT)
        await producer.send_many([b"1", b"2"])
        await anyio.sleep(2)
        assert [error.messages for error in told] == [(b"1", b"2")]
        await producer.send(b"3")
        await producer.flush()

    assert broker.payloads == [b"3"]


async def test_callback_when_it_raises_then_counted_and_the_producer_goes_on(caplog):
    def on_error(_: SendFailedError) -> None:
        raise KeyError("a mistake of the user")

    async with producing(background={"on_error": on_error}) as (broker, producer):
        broker.plan("refuse", PERMANENT)
        await producer.send(b"1")
        await producer.flush()
        await producer.send(b"2")
        await producer.flush()
        await wait_all_tasks_blocked()

        assert producer.statistics().callback_errors_count == 1
    assert broker.payloads == [b"2"]
    assert "on_error raised an exception" in caplog.text


async def test_callback_when_the_block_is_left_then_the_last_failures_were_told():
    told: list[SendFailedError] = []

    async def slowly(error: SendFailedError) -> None:
        await anyio.sleep(100)
        told.append(error)

    background = {"on_error": slowly, "linger_time": 60.0, "batch_length": 1}
    async with producing(background=background) as (broker, producer):
        broker.plan("refuse", PERMANENT, times=3)
        await producer.send_many([b"1", b"2", b"3"])

    assert [error.messages for error in told] == [(b"1",), (b"2",), (b"3",)]


async def test_callback_when_it_sends_again_with_a_full_buffer_then_there_is_room():
    def make(producers: list) -> object:
        async def again(error: SendFailedError) -> None:
            await producers[0].send_many(error.messages)

        return again

    producers: list = []
    background = {"on_error": make(producers), "max_buffer_size": 2 * ONE, "batch_length": 2}
    async with producing(background=background) as (broker, producer):
        producers.append(producer)
        broker.plan("refuse", PERMANENT)
        await producer.send_many(numbered(2))
        await anyio.sleep(1)

    assert broker.payloads == numbered(2)


async def test_callback_when_it_is_slow_then_failures_keep_their_bytes_of_the_buffer():
    release = anyio.Event()

    async def waits(_: SendFailedError) -> None:
        await release.wait()

    background = {"on_error": waits, "batch_length": 1, "max_buffer_size": 4 * ONE}
    async with producing(background=background) as (broker, producer):
        broker.plan("refuse", PERMANENT, times=4)
        await producer.send_many(numbered(4))
        await wait_all_tasks_blocked()

        assert producer.statistics().buffered_bytes == 3 * ONE
        release.set()
        await wait_all_tasks_blocked()
        assert producer.statistics().buffered_bytes == 0


async def test_blocked_senders_when_batches_fail_then_one_is_told_and_all_go_on():
    background = {"max_buffer_size": ONE, "batch_length": 1}
    async with producing(background=background) as (broker, producer):
        held = broker.plan("hold")
        broker.plan("refuse", PERMANENT)
        await producer.send(numbered(1)[0])
        await held.is_reached.wait()
        told = []

        async def send(payload: bytes) -> None:
            try:
                await producer.send(payload)
            except SendFailedError as error:
                told.append(error.messages)

        async with anyio.create_task_group() as tasks:
            for payload in numbered(4, start=1):
                tasks.start_soon(send, payload)
            await wait_all_tasks_blocked()
            held.release.set()

    assert len(told) == 1
    assert len(broker.payloads) == 1 + 4 - 2
    assert not set(told[0]) & set(broker.payloads)
