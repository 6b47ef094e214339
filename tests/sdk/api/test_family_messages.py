"""The verbs about messages: how a batch is made, where it goes, what a poll becomes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    NewMessage,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    encode_user_headers,
)
from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import InvalidRequestError
from iggy_sdk.message import Message
from tests.sdk.api.polling import polled
from tests.sdk.api.recording_client import RecordingClient

pytestmark = pytest.mark.anyio


async def test_send_messages_when_payloads_are_plain_then_sends_the_very_list():
    recording_client = RecordingClient()
    payloads = [b"one", b"two"]
    before = time.time_ns() // 1000

    await recording_client.send_messages("shop", "orders", payloads)

    (command,) = recording_client.asked
    assert isinstance(command, SendMessages)
    assert command.messages is payloads
    assert command.partitioning == Partitioning.balanced()
    assert before <= command.origin_timestamp_us <= time.time_ns() // 1000


@pytest.mark.parametrize(
    ("way", "partitioning"),
    [
        ({"partition_id": 3}, Partitioning.partition(3)),
        ({"partition_id": 0}, Partitioning.partition(0)),
        ({"key": "k1"}, Partitioning.key("k1")),
        ({"key": b"k1"}, Partitioning.key(b"k1")),
        ({"partitioning": Partitioning.partition(1)}, Partitioning.partition(1)),
        ({"partitioning": Partitioning.balanced()}, Partitioning.balanced()),
        ({}, Partitioning.balanced()),
    ],
)
async def test_send_messages_when_a_way_is_given_then_partitions_so(way, partitioning):
    recording_client = RecordingClient()

    await recording_client.send_messages("shop", "orders", [b"x"], **way)

    assert recording_client.asked[0].partitioning == partitioning


async def test_send_messages_when_messages_have_headers_ids_and_keys_then_carries_them():
    recording_client = RecordingClient()

    await recording_client.send_messages(
        "shop", "orders", ["text", b"bytes", Message(b"raw", headers={"kind": "test"}, id=7)]
    )
    await recording_client.send_messages(
        "shop", "orders", [Message(b"a", key="k"), Message(b"b", key="k")]
    )

    plain, keyed = recording_client.asked
    assert isinstance(plain, SendMessages)
    assert isinstance(keyed, SendMessages)
    assert plain.messages == [
        b"text",
        b"bytes",
        NewMessage(b"raw", 7, encode_user_headers({"kind": "test"})),
    ]
    assert keyed.partitioning == Partitioning.key("k")


async def test_send_messages_when_there_are_none_then_asks_nothing():
    recording_client = RecordingClient()

    await recording_client.send_messages("shop", "orders", [])
    await recording_client.send_messages("shop", "orders", iter(()))

    assert recording_client.asked == []


@pytest.mark.parametrize(
    ("messages", "way", "kind"),
    [
        (b"one", {}, TypeError),
        ("one", {}, TypeError),
        (Message(b"one"), {}, TypeError),
        ([b"x"], {"partition_id": 1, "key": "k"}, InvalidRequestError),
        ([b"x"], {"partition_id": 1, "partitioning": Partitioning.balanced()}, InvalidRequestError),
        ([b"x"], {"partition_id": -1}, InvalidRequestError),
        ([b"x"], {"key": ""}, InvalidRequestError),
        ([b"x"], {"key": "k" * 256}, InvalidRequestError),
        ([Message(b"x", key="a"), Message(b"y", key="b")], {}, InvalidRequestError),
        ([Message(b"x", key="a"), b"y"], {}, InvalidRequestError),
        ([b"y", Message(b"x", key="a")], {}, InvalidRequestError),
    ],
)
async def test_send_messages_when_arguments_contradict_then_refuses(messages, way, kind):
    recording_client = RecordingClient()

    with pytest.raises(kind):
        await recording_client.send_messages("shop", "orders", messages, **way)

    assert recording_client.asked == []


async def test_send_messages_when_the_client_has_a_partitioner_then_asks_it_last():
    seen: list[Any] = []

    def choose(stream: Any, topic: Any, messages: Any) -> int:
        seen.append((stream, topic, list(messages)))
        return 5

    recording_client = RecordingClient(partitioner=choose)
    await recording_client.send_messages("shop", "orders", [b"x"])
    await recording_client.send_messages("shop", "orders", [b"x"], key="k")

    assert seen == [("shop", "orders", [b"x"])]
    assert [command.partitioning for command in recording_client.asked] == [
        Partitioning.partition(5),
        Partitioning.key("k"),
    ]


async def test_messages_when_the_client_has_an_encryptor_then_are_sealed_and_opened():
    recording_client = RecordingClient(encryptor=Encryptor.aes256_gcm(bytes(32)))
    await recording_client.send_messages("shop", "orders", [b"secret"])
    (sent,) = recording_client.asked
    assert isinstance(sent, SendMessages)
    sealed: list[Any] = list(sent.messages)
    assert b"secret" not in sealed

    recording_client.answers[PollMessages] = polled(sealed)
    batch = await recording_client.poll_messages(
        "shop", "orders", consumer=ConsumerIdentity.single(1)
    )

    assert batch.payloads() == [b"secret"]


async def test_poll_messages_when_called_then_asks_for_what_was_said():
    recording_client = RecordingClient({PollMessages: polled([b"a", b"b"])})

    batch = await recording_client.poll_messages(
        "shop",
        7,
        consumer=ConsumerIdentity.group("billing"),
        partition_id=2,
        strategy=PollingStrategy.offset(40),
        count=5,
        auto_commit=True,
    )
    await recording_client.poll_messages("shop", 7, consumer=ConsumerIdentity.single("me"))

    assert recording_client.asked == [
        PollMessages(
            ConsumerIdentity.group("billing"), "shop", 7, PollingStrategy.offset(40), 5, 2, True
        ),
        PollMessages(
            ConsumerIdentity.single("me"), "shop", 7, PollingStrategy.next(), 100, None, False
        ),
    ]
    assert (batch.stream, batch.topic, batch.partition_id) == ("shop", 7, 3)
    assert batch.payloads() == [b"a", b"b"]
