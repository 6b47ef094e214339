"""What the server says of a batch: where it is, from 0.9 on; and ids, which only 0.8 recognises."""

from __future__ import annotations

import pytest

from iggy_sdk.errors import SendFailedError, UnsupportedByServerError
from iggy_sdk.message import Message
from tests.sdk.producer.broker import Broker, broker_and_client, orders, producing

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_receipt_when_one_batch_was_sent_then_tells_where_it_is(every_dialect):
    async with producing(partitioning=2) as (_, producer):
        await producer.send_many([b"one", b"two"])
        receipt = await producer.send_many([b"three", b"four"])

    known = every_dialect.is_vsr
    assert receipt.partition_id == (2 if known else None)
    assert receipt.offset == (2 if known else None)
    assert len(receipt.confirmations) == known


async def test_receipt_when_in_the_background_then_tells_where_its_own_messages_are(every_dialect):
    async with producing(background={"linger_time": 0.1}, partitioning=1) as (_, producer):
        receipts = [await producer.send(b"%d" % number) for number in range(5)]
        assert receipts[3].confirmations == ()
        await producer.flush()

    offsets = [receipt.offset for receipt in receipts]
    assert offsets == (list(range(5)) if every_dialect.is_vsr else [None] * 5)


async def test_receipt_when_a_list_has_several_keys_then_confirms_each_batch(every_dialect):
    async with producing() as (broker, producer):
        receipt = await producer.send_many(
            [Message(b"%d" % number, key=f"key {number}") for number in range(20)]
        )

    confirmed = {one.partition_id for one in receipt.confirmations}
    assert confirmed == (set(broker.partitions) if every_dialect.is_vsr else set())
    assert receipt.partition_id is None
    assert receipt.offset is None


async def test_messages_when_sent_by_the_verb_then_the_confirmation_is_returned(every_dialect):
    async with broker_and_client() as (_, client):
        await client.send_messages("shop", "orders", [b"one"], partition_id=3)
        confirmation = await client.send_messages("shop", "orders", [b"two"], partition_id=3)

    if every_dialect.is_vsr:
        assert confirmation is not None
        assert (confirmation.partition_id, confirmation.base_offset) == (3, 1)
    else:
        assert confirmation is None


async def test_producer_when_no_partition_is_named_then_all_get_their_share(every_dialect):
    async with producing() as (broker, producer):
        for number in range(8):
            await producer.send(b"%d" % number)

    assert [len(broker.partitions[number]) for number in range(4)] == [2] * 4


async def test_ids_when_idempotent_then_every_attempt_carries_the_same_one():
    async with producing(idempotent_ids=True) as (broker, producer):
        broker.plan("lose")
        await producer.send_many([b"one", b"two"])
        await producer.send(Message(b"three", id=3))

    assert broker.ids[:2] == broker.ids[2:4]
    assert len(set(broker.ids[:2]) - {0}) == 2
    assert broker.ids[4] == 3


async def test_ids_when_a_send_fails_then_the_unsent_keep_theirs():
    async with producing(idempotent_ids=True, retry=None) as (broker, producer):
        broker.plan("lose")
        with pytest.raises(SendFailedError) as caught:
            await producer.send(b"one")
        await producer.send_many(caught.value.messages)

    assert len(broker.ids) == 2
    assert len(set(broker.ids)) == 1


async def test_ids_when_the_server_does_not_recognise_them_then_the_producer_says_so(
    every_dialect,
):
    broker = Broker()
    async with broker_and_client(broker) as (_, client):
        if not every_dialect.is_vsr or every_dialect.binds_sessions:
            async with orders(client, idempotent_ids=True) as producer:
                await producer.send(b"one", partition_id=0)
            assert broker.payloads == [b"one"]
            return
        with pytest.raises(UnsupportedByServerError, match=every_dialect.generation):
            async with orders(client, idempotent_ids=True):
                pass

    assert broker.requests == []


async def test_send_when_its_reply_is_lost_then_a_server_of_0_10_stores_it_once(every_dialect):
    async with producing() as (broker, producer):
        broker.plan("lose")
        await producer.send(b"one", partition_id=0)

    assert set(broker.payloads) == {b"one"}
    assert len(broker.payloads) == (1 if every_dialect.binds_sessions else 2)
