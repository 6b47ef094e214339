"""The official client with servers from 0.9 on: where sends went, and what polls bring."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

import iggy_protocol
from iggy_protocol import (
    V0_11,
    ConsumerGroupAssignment,
    GetTopic,
    PollMessages,
    SendConfirmation,
    SendMessages,
    StatusCode,
    SyncConsumerGroup,
)
from iggy_sdk import compat
from iggy_sdk.compat import (
    BackgroundProducerConfig,
    Consumer,
    DirectProducerConfig,
    IggyClient,
    Partitioning,
    PollingStrategy,
    ProducerSendError,
    SendMessage,
)
from iggy_sdk.connection_string import ServerProtocol
from iggy_sdk.errors import NotAMemberError
from tests.sdk.api.polling import polled
from tests.sdk.compat.generations import TOPIC, Table, client_at, client_with
from tests.sdk.net.vsr_sessions import ALL, LATER
from tests.sdk.scripted_peer import PeerGone, scripted_server
from tests.sdk.scripted_peer import options as client_options
from tests.sdk.vsr_peer import vsr_peers

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

# Sends: where they went.


@ALL
async def test_send_when_the_server_confirms_then_tells_where_it_went(dialect):
    async with client_at(dialect, SendMessages=(SendConfirmation(1, 2, 0, 40),)) as (client, _):
        response = await client.send_messages("shop", "orders", 0, [SendMessage("x")])

    (confirmation,) = response.confirmations
    assert (confirmation.stream_id, confirmation.topic_id) == (1, 2)
    assert (confirmation.partition_id, confirmation.base_offset) == (0, 40)


@ALL
async def test_send_when_the_server_has_no_offset_to_tell_then_has_no_confirmation(dialect):
    async with client_at(dialect, SendMessages=()) as (client, _):
        response = await client.send_messages("shop", "orders", 0, [SendMessage("x")])

    assert response.confirmations == []


class Flood(Table):
    """Confirms the first batches and refuses all that follow."""

    def __init__(self, count: int, refusal: Any) -> None:
        super().__init__({GetTopic: TOPIC})
        self.left = count
        self.refusal = refusal

    async def answer(self, peer: Any, command: Any) -> None:
        if isinstance(command, SendMessages) and not self.left:
            if self.refusal is None:
                raise PeerGone
            await peer.reply(self.refusal)
        else:
            self.left -= isinstance(command, SendMessages)
            await super().answer(peer, command)


@asynccontextmanager
async def producer_at(dialect, script, **options):
    """Run a server with a script, and a producer of its client."""
    async with scripted_server(script, peers=vsr_peers(dialect)) as server:
        settings = client_options(protocol=ServerProtocol.AUTO, request_timeout=2.0)
        async with IggyClient.from_options(settings, dial=server.dial) as client:
            producer = await client.producer(
                "shop",
                "orders",
                partitioning=Partitioning.partition_id(0),
                create_stream_if_not_exists=False,
                create_topic_if_not_exists=False,
                **options,
            )
            async with producer:
                yield producer


@ALL
async def test_producer_when_its_requests_are_confirmed_then_tells_of_each(dialect):
    mode = DirectProducerConfig(batch_length=2)
    async with producer_at(dialect, Table({GetTopic: TOPIC}), mode=mode) as producer:
        many = await producer.send([SendMessage(text) for text in "abcde"])
        one = await producer.send_one(SendMessage("f"))
        other = await producer.send_to("shop", "other", [SendMessage("g")], 0)
        none = await producer.send([])

    counts = [len(response.confirmations) for response in (many, one, other, none)]
    assert counts == [3, 1, 1, 0]
    assert many.confirmations[0].base_offset == 7


@ALL
async def test_producer_when_it_sends_in_the_background_then_tells_nothing(dialect):
    async with producer_at(
        dialect, Table({GetTopic: TOPIC}), mode=BackgroundProducerConfig()
    ) as producer:
        response = await producer.send([SendMessage(text) for text in "abc"])
        await producer.flush()

    assert response.confirmations == []


@ALL
async def test_producer_when_a_later_request_fails_then_the_error_tells_what_was_committed(dialect):
    script = Flood(2, StatusCode.TOPIC_FULL)
    mode = DirectProducerConfig(batch_length=2)
    messages = [SendMessage(text) for text in "abcdefg"]
    async with producer_at(dialect, script, mode=mode, send_retries=0) as producer:
        with pytest.raises(ProducerSendError) as failed:
            await producer.send(messages)

    assert [one.base_offset for one in failed.value.committed] == [7, 7]
    assert (failed.value.failed, failed.value.uncertain) == (messages[4:], 0)
    assert str(failed.value).startswith("3 messages were not sent")
    assert failed.value.cause == str(failed.value.__cause__)


async def test_producer_when_the_answer_is_lost_then_the_error_tells_what_is_uncertain():
    script = Flood(1, None)
    mode = DirectProducerConfig(batch_length=2)
    messages = [SendMessage(text) for text in "abcdefg"]
    async with producer_at(V0_11, script, mode=mode, send_retries=0) as producer:
        with pytest.raises(ProducerSendError) as failed:
            await producer.send(messages)

    assert len(failed.value.committed) == 1
    assert (failed.value.failed, failed.value.uncertain) == (messages[2:], 2)


# Polls.

CONTEXT = iggy_protocol.PartitionContext(11, 22, 33)


class Partitions(Table):
    """Has messages in partition 2 alone, and assigns partitions to a member."""

    def __init__(self, assigned: tuple[int, ...] | None = (0, 1, 2)) -> None:
        assignment = None if assigned is None else ConsumerGroupAssignment(5, assigned)
        super().__init__({SyncConsumerGroup: assignment})
        self.contexts: list[Any] = []

    async def answer(self, peer: Any, command: Any) -> None:
        if not isinstance(command, PollMessages):
            await super().answer(peer, command)
            return
        self.contexts.append(peer.context)
        messages = [b"tea"] if command.partition_id == 2 else []
        found = polled(messages, partition_id=command.partition_id or 0)
        await peer.reply(replace(found, context=CONTEXT))

    def polled_partitions(self) -> list[int | None]:
        polls = [command for command in self.all_heard() if isinstance(command, PollMessages)]
        return [command.partition_id for command in polls]


async def poll_as_member(client):
    messages = await client.poll_messages(
        "shop",
        "orders",
        consumer=Consumer.Group("readers"),
        polling_strategy=PollingStrategy.Next(),
        count=5,
        auto_commit=False,
    )
    return [(message.partition_id(), message.payload()) for message in messages]


@ALL
async def test_poll_when_a_member_names_no_partition_then_its_own_are_polled_in_turn(dialect):
    async with client_with(dialect, Partitions()) as (client, script):
        first = await poll_as_member(client)
        again = await poll_as_member(client)

    assert first == again == [(2, b"tea")]
    assert script.polled_partitions() == [0, 1, 2, 0, 1, 2]


@ALL
@pytest.mark.parametrize("assigned", [(), (0, 1)])
async def test_poll_when_the_partitions_of_a_member_are_empty_then_is_empty(dialect, assigned):
    async with client_with(dialect, Partitions(assigned)) as (client, script):
        assert await poll_as_member(client) == []

    assert script.polled_partitions() == list(assigned)


@ALL
async def test_poll_when_the_client_is_no_member_then_says_so(dialect):
    async with client_with(dialect, Partitions(None)) as (client, script):
        with pytest.raises(NotAMemberError, match="readers"):
            await poll_as_member(client)

    assert script.polled_partitions() == []


@LATER
async def test_poll_when_it_goes_on_from_a_message_then_names_the_state_of_the_partition(dialect):
    async def poll(client, context=None):
        return await client.poll_messages(
            "shop", "orders", 2, PollingStrategy.Offset(0), context=context
        )

    async with client_with(dialect, Partitions()) as (client, script):
        (message,) = await poll(client)
        await poll(client, message.context())

    assert message.context() == compat.PartitionContext(11, 22, 33)
    assert message.position() == compat.ConsumerPosition(2, 40, message.context())
    assert script.contexts[-1] == CONTEXT


async def test_poll_when_the_server_is_of_0_9_then_the_state_of_the_partition_is_not_told():
    async with client_with(V0_11, Partitions()) as (client, _):
        (message,) = await client.poll_messages("shop", "orders", 2, PollingStrategy.First())

    assert message.context() == compat.PartitionContext(0, 0, 0)
