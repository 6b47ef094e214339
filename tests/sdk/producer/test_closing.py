"""Cancellation and closing: what was accepted is delivered or reported, and no task stays."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from iggy_protocol import StatusCode
from iggy_sdk.errors import ProducerClosedError, ProducerError, SendFailedError
from iggy_sdk.options import Retry
from iggy_sdk.producer.background import BackgroundProducer
from iggy_sdk.producer.encoder import OVERHEAD_BYTES
from tests.sdk.cancelling import cancel_at, tasks_at_rest
from tests.sdk.producer.broker import Broker, broker_and_client, orders, producing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_sdk.client import IggyClient
    from iggy_sdk.producer import Producer, ProducerBuilder

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

CHECKPOINTS_MAX = 200
"""No call under test has so many; a test that gets there does not end."""

CLOSE_TIMEOUT = 5.0


class Trial:
    """What one cancelled call left behind."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.accepted: list[bytes] = []
        self.reported: list[bytes] = []

    async def send(self, producer: Producer[Any], *payloads: bytes) -> None:
        """Send, and note what was accepted."""
        for payload in payloads:
            await producer.send(payload)
            self.accepted.append(payload)

    def report(self, error: SendFailedError) -> None:
        """Note what was given up."""
        self.reported += error.messages

    def check(self) -> None:
        """Every accepted message was delivered or reported."""
        assert set(self.accepted) <= set(self.broker.payloads) | set(self.reported)


async def try_everywhere(
    operation: Callable[[Trial, Producer[Any]], Awaitable[None]], **background: Any
) -> int:
    """Run an operation in a block of its own, cancelled at its first, second, … checkpoint.

    Returns:
        At how many checkpoints it was cancelled.
    """
    for checkpoint in range(1, CHECKPOINTS_MAX):
        trial = Trial()
        async with broker_and_client(trial.broker) as (_, client):
            options = {"on_error": trial.report, **background}
            async with orders(client, background=options, retry=None) as producer:
                tasks = await tasks_at_rest()
                is_reached = await cancel_at(
                    partial(operation, trial, producer), checkpoint, children=True
                )
                assert await tasks_at_rest() == tasks
                await producer.send(b"afterwards")
                trial.accepted.append(b"afterwards")
        trial.check()
        assert b"afterwards" in trial.broker.payloads
        assert producer.statistics().buffered_bytes == 0
        if not is_reached:
            return checkpoint - 1
    raise AssertionError("the operation does not end")


def payloads(count: int) -> list[bytes]:
    """Make different payloads of four bytes."""
    return [f"{number:04}".encode() for number in range(count)]


async def test_send_when_cancelled_at_every_checkpoint_then_nothing_accepted_is_lost():
    room = 3 * (4 + OVERHEAD_BYTES)

    async def many(trial: Trial, producer: Producer[Any]) -> None:
        await trial.send(producer, *payloads(80))

    async def few(trial: Trial, producer: Producer[Any]) -> None:
        await trial.send(producer, *payloads(20))

    assert await try_everywhere(many, max_buffer_size=None, linger_time=0.0)
    assert await try_everywhere(few, max_buffer_size=room, linger_time=0.0, batch_length=1)


async def test_send_many_when_cancelled_at_every_checkpoint_then_nothing_accepted_is_lost():
    async def operation(trial: Trial, producer: Producer[Any]) -> None:
        await producer.send_many(payloads(70))
        trial.accepted += payloads(70)
        await producer.send_many(payloads(70))

    room = 20 * (4 + OVERHEAD_BYTES)
    assert await try_everywhere(operation, linger_time=0.0)
    assert await try_everywhere(operation, max_buffer_size=room, batch_length=10)


async def test_flush_when_cancelled_at_every_checkpoint_then_it_is_only_the_waiting_that_ends():
    async def operation(trial: Trial, producer: Producer[Any]) -> None:
        await trial.send(producer, *payloads(5))
        trial.broker.plan("refuse", StatusCode.TOPIC_ID_NOT_FOUND)
        await producer.flush()
        assert trial.broker.payloads == payloads(5)[2:]

    assert await try_everywhere(operation, linger_time=60.0, batch_length=2)


async def test_delivered_when_cancelled_at_every_checkpoint_then_nothing_is_lost():
    async def operation(trial: Trial, producer: Producer[Any]) -> None:
        receipt = await producer.send(b"0000")
        trial.accepted.append(b"0000")
        await receipt.delivered()

    assert await try_everywhere(operation, linger_time=1.0)


async def send_in_block(trial: Trial, builder: ProducerBuilder[Any]) -> None:
    """Send a few messages in a block, and leave it."""
    async with builder as producer:
        await trial.send(producer, *payloads(8))


@pytest.mark.parametrize("fault", [None, "drop", "lose", "refuse"])
async def test_block_when_cancelled_at_every_checkpoint_then_all_accepted_is_told(fault):
    reached = 0
    for checkpoint in range(1, CHECKPOINTS_MAX):
        trial = Trial()
        if fault is not None:
            trial.broker.plan(fault, StatusCode.CANNOT_APPEND_MESSAGE)
        async with broker_and_client(trial.broker) as (_, client):
            builder = orders(
                client,
                background={"on_error": trial.report, "batch_length": 3, "linger_time": 60.0},
                retry=Retry(attempts=2),
            )

            is_reached = await cancel_at(partial(send_in_block, trial, builder), checkpoint)
        trial.check()
        if not is_reached:
            break
        reached += 1
    else:
        raise AssertionError("the block does not end")

    assert reached > 3
    assert sorted(set(trial.broker.payloads)) == payloads(8)


async def test_block_when_cancelled_while_the_server_is_silent_then_left_within_close_timeout():
    trial = Trial()
    async with broker_and_client(trial.broker, close_timeout=CLOSE_TIMEOUT) as (_, client):
        step = trial.broker.plan("swallow")
        with anyio.CancelScope() as scope:
            background = {"on_error": trial.report, "batch_length": 2}
            async with orders(client, background=background) as producer:
                await trial.send(producer, *payloads(5))
                await step.is_reached.wait()
                cancelled_at = anyio.current_time()
                scope.cancel()
        left_at = anyio.current_time()

    assert left_at - cancelled_at == pytest.approx(CLOSE_TIMEOUT)
    assert sorted(trial.reported) == payloads(5)
    assert producer.statistics().in_flight_count == 0


async def test_block_when_cancelled_and_given_up_then_the_reason_is_that_it_closed(caplog):
    async with broker_and_client(close_timeout=CLOSE_TIMEOUT) as (broker, client):
        step = broker.plan("swallow")
        with anyio.CancelScope() as scope:
            async with orders(client, background=True) as producer:
                receipt = await producer.send(b"one")
                await step.is_reached.wait()
                scope.cancel()

        with pytest.raises(SendFailedError) as caught:
            await receipt.delivered()

    assert isinstance(caught.value.cause, ProducerClosedError)
    assert "1 message was not sent" in caplog.text, "nobody could be told, so it is logged"


async def test_block_when_cancelled_then_callbacks_have_their_time_and_no_more(caplog):
    told = []

    async def slow(error: SendFailedError) -> None:
        await anyio.sleep(3)
        told.append(error.messages)

    async with broker_and_client(close_timeout=CLOSE_TIMEOUT) as (broker, client):
        broker.plan("refuse", StatusCode.TOPIC_ID_NOT_FOUND, times=9)
        with anyio.CancelScope() as scope:
            async with orders(client, background={"on_error": slow, "batch_length": 1}) as producer:
                await producer.send_many(payloads(9))
                await wait_all_tasks_blocked()
                scope.cancel()

    assert told == [(payload,) for payload in payloads(3)]
    assert "on_error was not called before" in caplog.text


async def test_close_when_cancelled_at_every_checkpoint_then_it_is_closed_all_the_same():
    for checkpoint in range(1, CHECKPOINTS_MAX):
        trial = Trial()
        async with broker_and_client(trial.broker) as (_, client):
            background = {"on_error": trial.report, "linger_time": 60.0, "batch_length": 2}
            async with orders(client, background=background) as producer:
                await trial.send(producer, *payloads(5))
                is_reached = await cancel_at(producer.aclose, checkpoint)
                assert producer.is_closed
                assert trial.broker.payloads == payloads(5)
        trial.check()
        if not is_reached:
            assert checkpoint > 1
            return
    raise AssertionError("closing does not end")


async def test_close_when_called_again_then_nothing_happens():
    async with producing(background=True) as (broker, producer):
        await producer.send(b"one")
        await producer.aclose()
        await producer.aclose()
        await producer.shutdown()

    assert broker.payloads == [b"one"]


async def test_client_when_closed_first_then_what_is_left_is_reported():
    trial = Trial()
    async with broker_and_client(trial.broker) as (_, client):
        background = {"on_error": trial.report, "linger_time": 60.0}
        async with orders(client, background=background) as producer:
            await trial.send(producer, *payloads(3))
            await client.aclose()

    assert trial.reported == payloads(3)


async def test_server_when_gone_now_and_then_then_everything_arrives_in_order(every_dialect):
    options: Any = {
        "background": {"batch_length": 5},
        "partitioning": 1,
        "retry": Retry(attempts=20),
    }
    async with producing(**options) as (broker, producer):
        for number, payload in enumerate(payloads(200)):
            if number % 20 == 0:
                broker.plan("drop")
            await producer.send(payload)
            await anyio.sleep(0.01)

    assert broker.payloads == payloads(200)
    # From 0.10 on the session repeats a request that was on its way, without the producer.
    assert producer.statistics().retries_count >= (1 if every_dialect.binds_sessions else 10)


async def test_task_when_it_breaks_by_our_own_mistake_then_the_next_calls_say_so(monkeypatch):
    async def misuse(client: IggyClient) -> None:
        async with orders(client, background={"linger_time": 1.0}) as producer:
            receipt = await producer.send(b"one")
            assert isinstance(producer, BackgroundProducer)
            monkeypatch.setattr(producer._sender._accumulator, "take", lambda: 1 / 0)
            with pytest.raises(SendFailedError) as given_up:
                await receipt.delivered()
            assert isinstance(given_up.value.cause, ProducerError)
            for _ in range(2):
                with pytest.raises(
                    ProducerError, match="an internal error stopped the producer"
                ) as caught:
                    await producer.send(b"two")
                assert isinstance(caught.value.__cause__, ZeroDivisionError)

    async with broker_and_client() as (broker, client):
        with pytest.raises(ProducerError, match="an internal error stopped the producer"):
            await misuse(client)

    assert broker.payloads == []
