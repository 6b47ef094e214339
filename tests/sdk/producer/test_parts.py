"""The pure and small parts: sizes, pieces, budgets, routes, and the topic made on entry."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    CreateStream,
    CreateTopic,
    GetTopic,
    NewMessage,
    Partitioning,
    StatusCode,
    encode_messages,
    partition_for_key,
)
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import (
    BufferFullError,
    ProducerClosedError,
    StreamNotFoundError,
    TopicNotFoundError,
)
from iggy_sdk.message import Message
from iggy_sdk.pipeline import Pipeline
from iggy_sdk.producer import Backpressure, NewTopic, ProducerBuilder
from iggy_sdk.producer.accumulator import Accumulator, ByteBudget
from iggy_sdk.producer.encoder import MessageEncoder, split_batches, with_overrides
from iggy_sdk.producer.routing import Destination, TopicRoute
from tests.sdk.producer.broker import Broker, broker_and_client, orders

LARGE = 1 << 40


def outbound(*, has_ids: bool = False, copies_buffers: bool = False) -> MessageEncoder:
    return MessageEncoder(Pipeline(), has_ids=has_ids, copies_buffers=copies_buffers)


# Sizes and pieces


@given(
    messages=st.lists(
        st.binary(max_size=40)
        | st.builds(Message, st.binary(max_size=40), headers=st.just({"name": "value"})),
        min_size=1,
        max_size=10,
    ),
    has_ids=st.booleans(),
)
def test_sizes_when_messages_are_encoded_then_they_are_the_bytes_of_the_request(messages, has_ids):
    wires, sizes = outbound(has_ids=has_ids).encode_many(messages, stream="s", topic="t")

    assert sum(sizes) == len(encode_messages(b"", wires, origin_timestamp_us=0))


@given(
    sizes=st.lists(st.integers(1, 60), max_size=50),
    length=st.none() | st.integers(1, 8),
    size_bytes=st.none() | st.integers(1, 120),
)
def test_cut_when_compared_with_an_accumulator_then_pieces_are_its_batches(
    sizes, length, size_bytes
):
    box: Accumulator[str, None] = Accumulator(
        batch_length=length,
        batch_size=size_bytes,
        linger=1.0,
        bytes_max=50,
        make_outcome=lambda: None,
    )
    for number, size in enumerate(sizes):
        box.add("destination", number, original=number, size_bytes=size, now=0.0)

    pieces = split_batches(sizes, length=length, size_bytes=size_bytes, bytes_max=50)

    assert [list(range(*piece)) for piece in pieces] == [batch.messages for batch in box.waiting()]


def test_ids_when_given_then_all_differ_and_none_is_zero():
    wires, _ = outbound(has_ids=True).encode_many([b"x"] * 1_000, stream="s", topic="t")
    more, _ = outbound(has_ids=True).encode_many([b"x"] * 1_000, stream="s", topic="t")

    ids = {wire.id for wire in [*wires, *more] if isinstance(wire, NewMessage)}
    assert len(ids) == 2_000
    assert all(0 < one < 2**128 for one in ids)


def test_plain_bytes_when_prepared_then_the_very_list_travels():
    messages = [b"one", b"two"]

    assert outbound(copies_buffers=True).encode_many(messages, stream="s", topic="t")[0] is messages


def test_overrides_when_message_has_its_own_then_those_stay():
    message = Message("v", headers={"a": 1}, key="own", id=7)

    merged = with_overrides(message, key="call", headers={"a": 2, "b": 3})

    assert merged == Message("v", headers={"a": 1, "b": 3}, key="own", id=7)
    assert message.headers == {"a": 1}


def test_overrides_when_message_is_written_already_then_headers_are_refused():
    written = NewMessage(b"x")

    assert with_overrides(written, key="k", headers=None) is written
    with pytest.raises(TypeError, match="use a Message"):
        with_overrides(written, key=None, headers={"a": 1})


# Budgets


def test_budget_when_taken_then_room_shrinks_until_it_is_given_back():
    budget = ByteBudget(10, Backpressure.block())

    assert budget.try_acquire(6)
    assert not budget.try_acquire(5)
    budget.release(6)
    assert budget.try_acquire(10)


@pytest.mark.anyio
async def test_budget_when_a_large_one_waits_then_small_ones_do_not_pass_it():
    budget = ByteBudget(10, Backpressure.block())
    order = []

    async def take(size: int) -> None:
        await budget.take(size)
        order.append(size)

    assert budget.try_acquire(8)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take, 9)
        await wait_all_tasks_blocked()
        tasks.start_soon(take, 2)
        await wait_all_tasks_blocked()
        assert order == []
        budget.release(8)
        await wait_all_tasks_blocked()
        assert order == [9]
        budget.release(9)

    assert order == [9, 2]
    assert budget.taken_bytes == 2


@pytest.mark.anyio
async def test_budget_when_first_in_line_leaves_then_the_next_is_let_in():
    budget = ByteBudget(10, Backpressure.block())
    assert budget.try_acquire(8)
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(budget.take, 9)
                await wait_all_tasks_blocked()
                tasks.start_soon(budget.take, 2)
                await wait_all_tasks_blocked()
                scope.cancel()

    assert budget.taken_bytes == 10


@pytest.mark.anyio
async def test_budget_when_granted_and_cancelled_at_once_then_the_bytes_go_on():
    budget = ByteBudget(10, Backpressure.block())
    assert budget.try_acquire(10)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(budget.take, 10)
        await wait_all_tasks_blocked()
        budget.release(10)
        tasks.cancel_scope.cancel()

    # The engines differ in whether the waiter still got it; nothing may be left over if not.
    assert budget.taken_bytes in (0, 10)
    budget.release(budget.taken_bytes)
    assert budget.try_acquire(10)


@pytest.mark.anyio
async def test_budget_when_closed_then_every_waiter_is_refused():
    budget = ByteBudget(1, Backpressure.block())
    assert budget.try_acquire(1)

    async def blocked() -> None:
        with pytest.raises(ProducerClosedError):
            await budget.take(1)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(blocked)
        await wait_all_tasks_blocked()
        budget.close(ProducerClosedError())

    assert (budget.taken_bytes, budget.waiters_count) == (1, 0)


@pytest.mark.anyio
async def test_budget_when_size_is_above_the_limit_then_refused_even_when_empty():
    with pytest.raises(BufferFullError, match="do not fit"):
        await ByteBudget(10, Backpressure.block()).take(11)


# Routes


@given(key=st.binary(min_size=1, max_size=255), count=st.integers(1, 64))
def test_route_when_partitions_are_counted_then_keys_go_where_the_server_puts_them(key, count):
    route = TopicRoute(IggyClient(), "s", "t")
    route.set_partitions_count(count, now=0.0)

    destination = route.to_key(key)

    assert destination.partitioning == Partitioning.partition(partition_for_key(key, count))
    assert destination is route.to_key(key)


def test_route_when_partitions_are_unknown_then_every_key_is_a_destination():
    route = TopicRoute(IggyClient(), "s", "t")

    assert route.to_key(b"a") == route.to_key(b"a")
    assert route.to_key(b"a") != route.to_key(b"b")
    assert route.to_key(b"a").partitioning == Partitioning.key(b"a")


def test_destination_when_parts_are_equal_then_equal_and_of_one_hash():
    one = Destination("s", "t", Partitioning.partition(1))
    same = Destination("s", "t", Partitioning.partition(1))

    assert one == same
    assert hash(one) == hash(same)
    assert one != Destination("s", "t", Partitioning.partition(2))
    assert one != Destination("s", "u", Partitioning.partition(1))
    assert one != "elsewhere"


# The topic on entry


@pytest.mark.anyio
async def test_entry_when_topic_is_missing_then_not_found_says_how_to_create_it():
    async with broker_and_client(Broker(topics=())) as (_, client):
        with pytest.raises(TopicNotFoundError, match="create_topic_if_not_exists"):
            await orders(client)


@pytest.mark.anyio
async def test_entry_when_stream_is_missing_then_not_found_says_how_to_create_it():
    async with broker_and_client(Broker(topics=())) as (broker, client):
        broker.streams.clear()
        with pytest.raises(StreamNotFoundError, match="create_stream_if_not_exists"):
            await orders(client, create_topic_if_not_exists=True)


@pytest.mark.anyio
async def test_entry_when_both_may_be_created_then_they_are():
    async with broker_and_client(Broker(topics=())) as (broker, client):
        broker.streams.clear()
        new = NewTopic(partitions_count=3, message_expiry=60, max_topic_size=1 << 31)
        builder = orders(client).create_stream_if_not_exists().create_topic_if_not_exists(new)
        async with builder as producer:
            await producer.send(b"one")

    created = [one for one in broker.commands if isinstance(one, CreateStream | CreateTopic)]
    assert created == [
        CreateStream("shop"),
        CreateTopic(
            "shop", "orders", 3, message_expiry_us=60_000_000, max_topic_size_bytes=1 << 31
        ),
    ]
    assert broker.payloads == [b"one"]


@pytest.mark.anyio
async def test_entry_when_another_creates_them_at_the_same_time_then_theirs_are_taken():
    class Racing(Broker):
        """Creates what is asked for just before it is created."""

        def _manage(self, command):
            if isinstance(command, CreateStream):
                self.streams.add(command.name)
            if isinstance(command, CreateTopic):
                self.topics.add((str(command.stream), command.name))
            return super()._manage(command)

    async with broker_and_client(Racing(topics=(), partitions_count=7)) as (broker, client):
        broker.streams.clear()
        builder = orders(client).create_stream_if_not_exists().create_topic_if_not_exists()
        async with builder as producer:
            await producer.send(b"one")

    assert broker.partitions_count == 7
    assert broker.payloads == [b"one"]


@pytest.mark.anyio
@pytest.mark.parametrize(("stream", "topic"), [(1, "orders"), ("shop", 5)])
async def test_entry_when_numbers_name_what_is_missing_then_nothing_is_created(stream, topic):
    async with broker_and_client(Broker(topics=())) as (broker, client):
        builder: ProducerBuilder[Any] = ProducerBuilder(client, stream, topic)
        with pytest.raises((StreamNotFoundError, TopicNotFoundError)):
            await builder.create_stream_if_not_exists().create_topic_if_not_exists()

    assert not [one for one in broker.commands if isinstance(one, CreateStream | CreateTopic)]


@pytest.mark.anyio
async def test_entry_when_user_may_only_send_then_it_goes_on_without_looking():
    async with broker_and_client() as (broker, client):
        broker.refusals[GetTopic] = StatusCode.UNAUTHORIZED
        async with orders(client) as producer:
            await producer.send(b"one")

    assert broker.payloads == [b"one"]
