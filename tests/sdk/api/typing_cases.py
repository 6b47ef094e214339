"""Calls that type checkers accept with the types they shall have, and calls that they refuse.

Nothing here is run. The gate's mypy reads it, and so does ``make pyright``. Each line that
is wrong on purpose says so in a comment, and both complain about a comment that nothing needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import iggy_sdk
from iggy_sdk import (
    AutoCommit,
    ConsumerBuilder,
    ConsumerIdentity,
    ConsumerSettings,
    IggyClient,
    IggyConsumer,
    JsonSerde,
    Message,
    MsgspecSerde,
    Payload,
    Producer,
    ProducerBuilder,
    ProducerSettings,
    RawSerde,
    ReceivedBatch,
    ReceivedMessage,
    Retry,
    StrSerde,
    TlsOptions,
    blocking,
)


@dataclass
class Order:
    """What a payload holds."""

    id: int


ORDERS = MsgspecSerde(Order)
IDENTITY = ConsumerIdentity.single("me")


async def values_have_the_type_of_the_serde(client: IggyClient) -> None:
    assert_type(client.consumer("me", "shop", "orders"), ConsumerBuilder[bytes])
    assert_type(client.consumer("me", "shop", "orders", serde=None), ConsumerBuilder[bytes])
    assert_type(client.consumer("me", "shop", "orders", serde=ORDERS), ConsumerBuilder[Order])
    assert_type(client.consumer_group("us", "shop", 7, serde=StrSerde()), ConsumerBuilder[str])
    assert_type(client.consumer_group("us", "shop", 7, serde=RawSerde()), ConsumerBuilder[bytes])
    assert_type(client.consumer_group("us", "shop", 7, serde=JsonSerde()), ConsumerBuilder[Any])
    assert_type(client.consumer_group("us", "shop", 7).serde(ORDERS), ConsumerBuilder[Order])
    assert_type(client.producer("shop", "orders"), ProducerBuilder[Payload])
    assert_type(client.producer("shop", "orders", serde=ORDERS), ProducerBuilder[Order])
    assert_type(client.producer("shop", "orders").serde(ORDERS), ProducerBuilder[Order])
    assert_type(
        client.producer("shop", "orders", serde=ORDERS).serde(None), ProducerBuilder[Payload]
    )
    assert_type(await client.producer("shop", "orders", serde=ORDERS), Producer[Order])


async def consumers_give_values(client: IggyClient) -> None:
    async with client.consumer_group("us", "shop", "orders", serde=ORDERS) as consumer:
        assert_type(consumer, IggyConsumer[Order])
        async for message in consumer:
            assert_type(message, ReceivedMessage[Order])
            assert_type(message.value.id, int)
            use(message.value.prize)  # type: ignore[attr-defined]
        async for batch in consumer.batches():
            assert_type(batch.values(), list[Order])
        await consumer.run(handle_order)
        await consumer.run(handle_text)  # type: ignore[arg-type]
    polled = await client.poll_messages("shop", "orders", consumer=IDENTITY, partition_id=0)
    assert_type(polled, ReceivedBatch[bytes])


async def producers_take_values(client: IggyClient) -> None:
    async with client.producer("shop", "orders", serde=ORDERS) as producer:
        await producer.send(Order(1), key="ada")
        await producer.send(Message(Order(1), headers={"city": "Paris"}))
        await producer.send_many(Order(number) for number in range(3))
        await producer.send(b"{}")  # type: ignore[arg-type]
        await producer.send_many(["text"])  # type: ignore[list-item]
        await producer.send(Order(1), partition=3)  # type: ignore[call-arg]
    async with client.producer("shop", "orders") as plain:
        await plain.send(b"bytes")
        await plain.send("text")
        message = Message(b"made before")
        await plain.send(message)
        await plain.send(3)  # type: ignore[arg-type]
        await send_bytes(plain)


async def send_bytes(producer: Producer[bytes]) -> None:
    await producer.send(b"a producer that takes more will do")


async def options_are_known(client: IggyClient) -> None:
    client.consumer("me", "shop", "orders", partition_id=[0, 2], batch_length=10)
    client.consumer_group("us", "shop", "orders", commit=AutoCommit.after_all())
    client.producer("shop", "orders", background={"linger_time": 0.5}, retry=Retry(attempts=1))
    client.producer("shop", "orders").background(linger_time=0.5).create_topic_if_not_exists()
    reading: ConsumerSettings = {"until_end": True}
    writing: ProducerSettings = {"compression": "zstd"}
    client.consumer("me", "shop", "orders", serde=ORDERS, **reading)
    client.producer("shop", "orders", **writing)


async def wrong_options_are_errors(client: IggyClient) -> None:
    client.consumer("me", "shop", "orders", batchlength=10)  # type: ignore[call-arg]
    client.consumer_group("us", "shop", "orders", comit=None)  # type: ignore[call-arg]
    client.producer("shop", "orders", backgruond=True)  # type: ignore[call-arg]
    client.producer("shop", "orders").background(lingr_time=1)  # type: ignore[call-arg]
    client.consumer("me", "shop", "orders", batch_length="10")  # type: ignore[arg-type]
    client.consumer("me", "shop", "orders", commit="manual")  # type: ignore[arg-type]
    client.consumer("me", "shop", "orders", connection="mine")  # type: ignore[arg-type]
    client.consumer("me", "shop", "orders", serde=JsonSerde)  # type: ignore[arg-type]
    client.consumer("me", "shop")  # type: ignore[call-arg]
    client.consumer("me", "shop", "orders").batch_length("10")  # type: ignore[arg-type]
    client.producer("shop", "orders", retry=3)  # type: ignore[arg-type]
    client.producer("shop", "orders", compression="rar")  # type: ignore[arg-type]
    client.producer("shop", "orders", background={"lingr_time": 1})  # type: ignore[arg-type]
    client.producer("shop", 3.5)  # type: ignore[arg-type]


def names_are_known() -> None:
    use(iggy_sdk.IggyClient)
    use(iggy_sdk.IggyCleint)  # type: ignore[attr-defined]


def clients_know_their_options() -> None:
    IggyClient("host:1", request_timeout=3, tls=TlsOptions(ca_file="ca.pem"), hooks=[])
    blocking.IggyClient("host:1", request_timeout=3, tls=True)
    IggyClient("host:1", request_timout=3)  # type: ignore[call-arg]
    IggyClient("host:1", tls="yes")  # type: ignore[arg-type]
    blocking.IggyClient("host:1", reconnect="no")  # type: ignore[arg-type]
    blocking.IggyClient("host:1", hook=[])  # type: ignore[call-arg]


def blocking_ones_are_typed_as_well(client: blocking.IggyClient) -> None:
    assert_type(client.consumer("me", "shop", 7), blocking.ConsumerBuilder[bytes])
    assert_type(
        client.consumer_group("us", "shop", 7, serde=ORDERS), blocking.ConsumerBuilder[Order]
    )
    assert_type(client.consumer("me", "shop", 7).serde(ORDERS), blocking.ConsumerBuilder[Order])
    assert_type(client.producer("shop", "orders"), blocking.ProducerBuilder[Payload])
    assert_type(client.producer("shop", 7, serde=ORDERS), blocking.ProducerBuilder[Order])
    assert_type(
        client.producer("shop", 7).serde(ORDERS).background(), blocking.ProducerBuilder[Order]
    )
    with client.consumer_group("us", "shop", "orders", serde=ORDERS) as consumer:
        assert_type(consumer, blocking.IggyConsumer[Order])
        for message in consumer:
            assert_type(message.value, Order)
    with client.producer("shop", "orders", serde=ORDERS) as producer:
        producer.send(Order(1))
        producer.send("text")  # type: ignore[arg-type]
    client.consumer("me", "shop", "orders", batchlength=10)  # type: ignore[call-arg]
    client.consumer_group("us", "shop", "orders", batch_length="1")  # type: ignore[arg-type]
    client.producer("shop", "orders", idempotent=True)  # type: ignore[call-arg]
    client.producer("shop", "orders").retry(3)  # type: ignore[arg-type]


async def handle_order(message: ReceivedMessage[Order]) -> None:
    assert_type(message.value, Order)


async def handle_text(message: ReceivedMessage[str]) -> None:
    assert_type(message.value, str)


def use(value: object) -> None:
    """Take what is read for its type alone."""
