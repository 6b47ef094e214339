"""Deadlines in the background: of waiting for room, of a delivery, of flushing and closing."""

from __future__ import annotations

import anyio
import pytest

from iggy_protocol import StatusCode
from iggy_sdk.errors import (
    BufferFullError,
    ConfigurationError,
    RequestTimeoutError,
    SendFailedError,
)
from iggy_sdk.options import Retry
from iggy_sdk.producer.encoder import OVERHEAD_BYTES
from iggy_sdk.producer.options import BackgroundMode, delivery_seconds_max
from tests.sdk.producer.broker import broker_and_client, orders, producing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

RETRIABLE = StatusCode.CANNOT_APPEND_MESSAGE
ROOM_FOR_ONE = {"linger_time": 0.0, "max_buffer_size": 10 + OVERHEAD_BYTES}


async def test_send_when_there_is_no_room_in_time_then_says_so_and_accepts_nothing():
    async with producing(background=ROOM_FOR_ONE) as (broker, producer):
        held = broker.plan("hold")
        await producer.send(b"0123456789")
        begun_at = anyio.current_time()

        with pytest.raises(BufferFullError, match="within 3 s; nothing was accepted"):
            await producer.send(b"9876543210", timeout=3)
        assert anyio.current_time() - begun_at == pytest.approx(3.0, abs=0.01)
        with pytest.raises(BufferFullError, match="within 1 s"):
            await producer.send_many([b"9876543210"], timeout=1)
        held.release.set()
        await producer.flush()

    assert broker.payloads == [b"0123456789"]


async def test_flush_when_it_takes_too_long_then_raises_and_loses_nothing():
    async with producing(background=True) as (broker, producer):
        held = broker.plan("hold")
        receipt = await producer.send(b"one")
        begun_at = anyio.current_time()

        with pytest.raises(RequestTimeoutError, match="flush: not all was delivered") as caught:
            await producer.flush(timeout=2)
        assert anyio.current_time() - begun_at == pytest.approx(2.0, abs=0.01)
        with pytest.raises(RequestTimeoutError, match="not delivered within 1 s"):
            await receipt.delivered(timeout=1)
        assert caught.value.sent is True
        held.release.set()
        await receipt.delivered(timeout=1)
        await producer.flush(timeout=1)

    assert broker.payloads == [b"one"]


async def test_delivery_when_it_takes_longer_than_allowed_then_counts_as_not_sent():
    background = {"delivery_timeout": 5.0, "linger_time": 0.0}
    async with producing(background=background, retry=Retry(attempts=10_000)) as (broker, producer):
        broker.plan("refuse", RETRIABLE, times=10_000)
        begun_at = anyio.current_time()
        receipt = await producer.send(b"one")

        with pytest.raises(SendFailedError) as caught:
            await receipt.delivered()
        assert anyio.current_time() - begun_at <= 5.01

    assert caught.value.messages == (b"one",)


async def test_delivery_when_one_attempt_is_not_answered_then_the_next_one_is():
    shorter = {"request_timeout": 2.0}
    async with producing(background=True, client_options=shorter) as (broker, producer):
        broker.plan("swallow")
        receipt = await producer.send(b"one")
        await receipt.delivered(timeout=10)

    assert b"one" in broker.payloads


async def test_delivery_when_it_waited_too_long_behind_another_then_is_not_even_tried():
    background = {"delivery_timeout": 5.0, "linger_time": 0.0}
    async with producing(background=background, partitioning=0, retry=None) as (broker, producer):
        held = broker.plan("swallow")
        first = await producer.send(b"one")
        await held.is_reached.wait()
        second = await producer.send(b"two")

        with pytest.raises(SendFailedError) as sent:
            await first.delivered()
        with pytest.raises(SendFailedError, match="the request was not sent") as unsent:
            await second.delivered()

    assert sent.value.sent is True
    assert unsent.value.sent is False
    assert broker.payloads == [b"one"]


async def test_close_when_it_takes_too_long_then_gives_the_rest_up_and_says_what_may_be_stored():
    async with broker_and_client() as (broker, client):
        producer = await orders(client, background={"linger_time": 0.0}, partitioning=0)
        broker.plan("hold")
        await producer.send(b"one")
        await anyio.sleep(1)
        await producer.send(b"two")
        begun_at = anyio.current_time()

        with pytest.raises(SendFailedError) as caught:
            await producer.shutdown(timeout=3)

        assert anyio.current_time() - begun_at == pytest.approx(3.0, abs=0.01)
    assert isinstance(caught.value, RequestTimeoutError)
    assert set(caught.value.messages) == {b"one", b"two"}


@pytest.mark.parametrize(
    ("mode", "retry", "seconds"),
    [
        (BackgroundMode(), Retry(), 150.001),
        (BackgroundMode(), Retry(attempts=0), 120.0),
        (BackgroundMode(linger_time=100), Retry(attempts=0), 130.0),
        (BackgroundMode(delivery_timeout=7), Retry(attempts=100), 7.0),
    ],
)
async def test_delivery_timeout_when_not_set_then_all_attempts_fit(mode, retry, seconds):
    assert delivery_seconds_max(mode, retry, attempt_seconds=30.0) == pytest.approx(seconds)


async def test_delivery_timeout_when_zero_then_refused():
    with pytest.raises(ConfigurationError, match="delivery_timeout"):
        BackgroundMode(delivery_timeout=0)
