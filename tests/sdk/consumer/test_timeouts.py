"""``timeout=`` of the calls of a consumer, against a server that swallows an answer."""

from __future__ import annotations

import anyio
import pytest

import iggy_sdk.blocking
from iggy_sdk import IggyClient, PollingStrategy, RequestTimeoutError
from iggy_sdk.testing import RunningServer
from iggy_sdk.testing.server import external_server_address

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def running():
    with RunningServer(address=external_server_address()) as server:
        yield server


@pytest.fixture
def stream(running, request) -> str:
    running.faults.heal()
    name = f"stream-{abs(hash(request.node.name))}"
    with iggy_sdk.blocking.IggyClient(running.url) as client:
        client.create_stream(name)
        client.create_topic(name, "orders")
        client.send_messages(name, "orders", [b"%d" % number for number in range(10)])
    return name


async def test_calls_when_they_are_given_a_timeout_then_do_what_they_do(running, stream):
    async with (
        IggyClient(running.url) as client,
        client.consumer("one", stream, "orders", auto_commit=None) as consumer,
    ):
        message = await anext(consumer)
        await message.commit(timeout=20)
        await consumer.commit(0, 3, timeout=20)
        await consumer.store_offset(5, timeout=20)
        assert sum((await consumer.lag(timeout=20)).values()) > 0
        await consumer.seek(PollingStrategy.offset(7), timeout=20)
        assert (await anext(consumer)).offset == 7
        await consumer.delete_offset(timeout=20)
        await consumer.aclose(timeout=20)


async def test_commit_when_it_is_not_answered_in_time_then_says_that_it_may_be_stored(
    running, stream
):
    async with (
        IggyClient(running.url) as client,
        client.consumer("two", stream, "orders", auto_commit=None) as consumer,
    ):
        message = await anext(consumer)
        running.faults.swallow_reply(command="store_consumer_offset")
        with anyio.fail_after(60), pytest.raises(RequestTimeoutError) as caught:
            await message.commit(timeout=0.3)
        running.faults.heal()

    assert caught.value.sent is True
    assert "may have been carried out" in str(caught.value)


async def test_commit_when_an_earlier_one_is_not_answered_then_waits_no_longer_than_told(
    running, stream
):
    async with (
        IggyClient(running.url, request_timeout=20.0) as client,
        client.consumer("four", stream, "orders", auto_commit=None) as consumer,
        anyio.create_task_group() as tasks,
    ):
        message = await anext(consumer)
        running.faults.swallow_reply(command="store_consumer_offset")
        tasks.start_soon(consumer.commit, 0, 1)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(60), pytest.raises(RequestTimeoutError, match="commit took longer"):
            await message.commit(timeout=0.2)
        tasks.cancel_scope.cancel()
        running.faults.heal()


def test_blocking_calls_when_they_are_given_a_timeout_then_do_what_they_do(running, stream):
    with iggy_sdk.blocking.IggyClient(running.url) as client:
        client.get_streams(timeout=20)
        producer = client.producer(stream, "orders", background=True).open()
        receipt = producer.send(b"more", timeout=20)
        producer.flush(timeout=20)
        receipt.delivered(timeout=20)
        producer.close(timeout=20)
        consumer = client.consumer("three", stream, "orders", auto_commit=None).open()
        message = next(consumer)
        message.commit(timeout=20)
        consumer.store_offset(4, timeout=20)
        assert consumer.lag(timeout=20)
        consumer.seek(PollingStrategy.offset(2), timeout=20)
        consumer.delete_offset(0, timeout=20)
        consumer.close(timeout=20)
        client.disconnect(timeout=20)
        client.connect(timeout=20)
    client = iggy_sdk.blocking.IggyClient(running.url)
    client.connect(timeout=20)
    client.ping()
    client.close(timeout=20)
