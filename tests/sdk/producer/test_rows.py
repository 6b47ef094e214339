"""Rows in columns: sent as they lie, in pieces, and told apart from messages only by speed."""

from __future__ import annotations

import pytest
from anyio import wait_all_tasks_blocked

from iggy_protocol import BytesColumn, MessageRows, NewMessage, StatusCode
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import BufferFullError, MessageTooLargeError, SendFailedError
from iggy_sdk.producer import BackgroundMode, Backpressure, DirectMode
from iggy_sdk.producer.encoder import OVERHEAD_BYTES
from tests.sdk.producer.broker import broker_and_client, orders, producing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

MODES = [DirectMode(batch_length=4), BackgroundMode(batch_length=4)]
WIDTH = 4


def rows_of(count):
    """Make rows of payloads that say their numbers, with ids from 1 on."""
    data = b"".join(payloads(count))
    ids = b"".join(number.to_bytes(16, "little") for number in range(1, count + 1))
    return MessageRows(BytesColumn(count, 0, None, WIDTH, None, data), ids=ids)


def payloads(count):
    return [b"%0*d" % (WIDTH, number) for number in range(count)]


@pytest.mark.parametrize("mode", MODES)
async def test_rows_when_sent_then_arrive_in_order_in_requests_that_are_not_too_long(mode):
    async with producing(mode=mode) as (broker, producer):
        receipt = await producer.send_many(rows_of(10), partition_id=1)
        await receipt.delivered()
        empty = await producer.send_many(rows_of(0), partition_id=1)
        await empty.delivered()

    assert broker.requests == [payloads(10)[at : at + 4] for at in (0, 4, 8)]
    assert broker.ids == list(range(1, 11))
    assert broker.partitions[1] == payloads(10)
    assert producer.statistics().delivered_count == 10


@pytest.mark.parametrize("mode", MODES)
async def test_rows_when_they_are_to_be_sealed_then_go_as_messages(mode):
    encryptor = Encryptor.aes256_gcm(bytes(32))
    async with producing(mode=mode, encryptor=encryptor) as (broker, producer):
        await producer.send_many(rows_of(3), partition_id=1)
        await producer.flush()

    assert [encryptor.open(payload) for payload in broker.payloads] == payloads(3)
    assert broker.ids == [1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
async def test_rows_when_no_partition_is_named_then_go_as_messages(mode):
    async with producing(mode=mode) as (broker, producer):
        await producer.send_many(rows_of(2))
        await producer.flush()

    assert broker.payloads == payloads(2)


@pytest.mark.parametrize("mode", MODES)
async def test_rows_when_sent_to_another_topic_then_arrive_there(mode):
    async with producing(mode=mode) as (broker, producer):
        await producer.send_to("shop", "orders", rows_of(2), partition_id=2)
        await producer.flush()

    assert broker.partitions[2] == payloads(2)


async def test_rows_when_a_request_fails_then_the_error_has_all_that_were_not_sent():
    async with producing(mode=MODES[0], retry=None) as (broker, producer):
        broker.plan("refuse", StatusCode.TOPIC_ID_NOT_FOUND)
        with pytest.raises(SendFailedError) as caught:
            await producer.send_many(rows_of(6), partition_id=1)

    assert [message.payload for message in caught.value.messages] == payloads(6)
    assert isinstance(caught.value.messages[0], NewMessage)


async def test_rows_when_a_request_fails_in_the_background_then_the_next_call_has_its_rows():
    async with producing(mode=MODES[1], retry=None) as (broker, producer):
        broker.plan("refuse", StatusCode.TOPIC_ID_NOT_FOUND)
        await producer.send_many(rows_of(6), partition_id=1)
        with pytest.raises(SendFailedError) as caught:
            await producer.flush()

    assert [message.payload for message in caught.value.messages] == payloads(4)
    assert broker.payloads == payloads(6)[4:]


@pytest.mark.parametrize("mode", MODES)
async def test_rows_when_an_answer_is_lost_then_are_sent_again_with_the_same_ids(mode):
    async with producing(mode=mode) as (broker, producer):
        broker.plan("lose")
        await producer.send_many(rows_of(3), partition_id=1)
        await producer.flush()

    assert set(broker.ids) == {1, 2, 3}


async def test_rows_when_the_buffer_is_full_then_the_error_has_those_that_were_not_accepted():
    size = 4 * (WIDTH + OVERHEAD_BYTES)
    mode = BackgroundMode(batch_length=4, max_buffer_size=size, backpressure=Backpressure.fail())
    async with broker_and_client() as (broker, client):
        step = broker.plan("hold")
        async with orders(client, mode=mode) as producer:
            with pytest.raises(SendFailedError) as caught:
                await producer.send_many(rows_of(10), partition_id=1)
            await wait_all_tasks_blocked()
            with pytest.raises(BufferFullError):
                await producer.send_many(rows_of(1), partition_id=1)
            step.release.set()

    assert [message.payload for message in caught.value.messages] == payloads(10)[4:]
    assert broker.payloads == payloads(4)


async def test_rows_when_messages_wait_already_then_come_behind_them():
    mode = BackgroundMode(batch_length=4, linger_time=60)
    async with producing(mode=mode) as (broker, producer):
        await producer.send_many([b"first"], partition_id=1)
        await producer.send_many(rows_of(2), partition_id=1)
        await producer.send_many([b"last"], partition_id=1)

    assert broker.requests == [[b"first"], payloads(2), [b"last"]]


@pytest.mark.parametrize("mode", MODES)
async def test_rows_when_one_is_too_large_then_nothing_is_sent(mode):
    size = 64_000_001
    large = MessageRows(BytesColumn(1, 0, None, size, None, bytes(size)))
    async with producing(mode=mode) as (broker, producer):
        with pytest.raises(MessageTooLargeError, match="payload of 64000001 bytes"):
            await producer.send_many(large, partition_id=1)

    assert broker.payloads == []
