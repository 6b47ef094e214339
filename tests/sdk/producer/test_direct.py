"""A direct producer: a call returns when the server has the messages, or says which it has not."""

from __future__ import annotations

import anyio
import pytest

from iggy_protocol import (
    V0_11,
    GetTopic,
    MessageBatch,
    Partitioning,
    SendMessages,
    StatusCode,
    decode_user_headers,
    partition_for_key,
)
from iggy_sdk.errors import (
    DisconnectedError,
    InvalidRequestError,
    MessageTooLargeError,
    PermissionDeniedError,
    ProducerClosedError,
    RequestTimeoutError,
    SendFailedError,
    SerdeError,
    ServerError,
    TopicNotFoundError,
)
from iggy_sdk.message import Message
from iggy_sdk.options import Reconnect, Retry
from iggy_sdk.producer.encoder import OVERHEAD_BYTES
from iggy_sdk.producer.routing import PARTITIONS_MAX_AGE_S
from iggy_sdk.serde import JsonSerde
from tests.sdk.cancelling import cancelled_everywhere, tasks_at_rest
from tests.sdk.producer.broker import Broker, broker_and_client, orders, producing

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

RETRIABLE = StatusCode.CANNOT_APPEND_MESSAGE
PERMANENT = StatusCode.TOPIC_ID_NOT_FOUND


async def test_send_when_it_returns_then_the_server_has_the_message():
    async with producing() as (broker, producer):
        receipt = await producer.send(b"one")

        assert broker.payloads == [b"one"]
        assert receipt.is_done
        await receipt.delivered()


async def test_send_many_when_list_is_long_then_divided_by_count_in_order():
    messages = [str(number).encode() for number in range(25)]
    async with producing(direct={"batch_length": 10}) as (broker, producer):
        await producer.send_many(messages)

    assert [len(request) for request in broker.requests] == [10, 10, 5]
    assert broker.payloads == messages


async def test_send_many_when_messages_are_large_then_divided_by_bytes():
    messages = [bytes([number]) * 100 for number in range(10)]
    bound = 3 * (100 + OVERHEAD_BYTES)
    async with producing(direct={"batch_size": bound}) as (broker, producer):
        await producer.send_many(messages)

    assert [len(request) for request in broker.requests] == [3, 3, 3, 1]
    assert broker.payloads == messages


async def test_send_many_when_empty_then_nothing_is_sent():
    async with producing() as (broker, producer):
        await producer.send_many([])

    assert not [command for command in broker.commands if isinstance(command, SendMessages)]


async def test_send_when_error_may_pass_then_it_is_repeated_with_growing_waits():
    async with broker_and_client() as (broker, client):
        retry = Retry(attempts=3, backoff=1.0, jitter=0.0)
        async with orders(client, retry=retry) as producer:
            broker.plan("refuse", RETRIABLE, times=3)
            begun_at = anyio.current_time()
            await producer.send(b"one")

            assert anyio.current_time() - begun_at == pytest.approx(1 + 2 + 4)
            assert producer.statistics().retries_count == 3
    assert broker.payloads == [b"one"]


async def test_send_when_error_is_permanent_then_it_is_not_repeated():
    async with producing() as (broker, producer):
        broker.plan("refuse", PERMANENT)

        with pytest.raises(SendFailedError) as caught:
            await producer.send(b"one")

    assert isinstance(caught.value.cause, TopicNotFoundError)
    assert caught.value.messages == (b"one",)
    assert broker.payloads == []
    assert producer.statistics().retries_count == 0


async def test_send_when_retries_are_used_up_then_the_last_error_is_the_cause():
    async with producing(retry=Retry(attempts=2)) as (broker, producer):
        broker.plan("refuse", RETRIABLE, times=3)

        with pytest.raises(SendFailedError) as caught:
            await producer.send(b"one")

    assert isinstance(caught.value.cause, ServerError)
    assert caught.value.retriable
    assert producer.statistics().failed_count == 1


async def test_send_when_retry_is_none_then_there_is_a_single_attempt():
    async with producing(retry=None) as (broker, producer):
        broker.plan("refuse", RETRIABLE)

        with pytest.raises(SendFailedError):
            await producer.send(b"one")


async def test_send_many_when_a_piece_fails_then_the_tail_is_named_and_can_be_sent_again():
    messages = [str(number).encode() for number in range(6)]
    async with producing(direct={"batch_length": 2}, retry=None) as (broker, producer):
        held = broker.plan("hold")
        held.release.set()
        broker.plan("refuse", RETRIABLE)

        with pytest.raises(SendFailedError) as caught:
            await producer.send_many(messages)
        assert caught.value.messages == tuple(messages[2:])
        await producer.send_many(caught.value.messages)

    assert broker.payloads == messages


@pytest.mark.parametrize(("kind", "copies"), [("drop", 1), ("lose", 2)])
async def test_send_when_connection_breaks_then_it_is_repeated_on_the_next_one(
    kind, copies, every_dialect
):
    if every_dialect.binds_sessions:
        copies = 1  # the server knows the request again
    async with producing() as (broker, producer):
        broker.plan(kind)

        await producer.send(b"one")

    assert broker.payloads == [b"one"] * copies


async def test_send_when_answer_never_comes_then_it_is_repeated_after_the_timeout():
    async with producing(client_options={"request_timeout": 1.0}) as (broker, producer):
        broker.plan("swallow")

        await producer.send(b"one", timeout=10.0)

    assert set(broker.payloads) == {b"one"}


async def test_send_when_answers_never_come_then_fails_after_the_request_timeout_in_all():
    async with producing(client_options={"request_timeout": 30.0}) as (broker, producer):
        broker.plan("swallow", times=4)
        begun_at = anyio.current_time()

        with pytest.raises(SendFailedError, match="may have been carried out") as caught:
            await producer.send(b"one")

        assert anyio.current_time() - begun_at == pytest.approx(30.0, abs=0.01)
    assert isinstance(caught.value, RequestTimeoutError)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.sent is True
    assert caught.value.messages == (b"one",)


async def test_send_when_refusals_go_on_then_the_pauses_count_for_the_deadline_too():
    retry = Retry(attempts=1_000, backoff=0.5, max_backoff=0.5, jitter=0.0)
    async with producing(retry=retry) as (broker, producer):
        broker.plan("refuse", RETRIABLE, times=1_000)
        begun_at = anyio.current_time()

        with pytest.raises(SendFailedError) as caught:
            await producer.send(b"one", timeout=10.2)

        assert 9.0 < anyio.current_time() - begun_at <= 10.2
    assert caught.value.sent is None
    assert caught.value.code == RETRIABLE


async def test_send_when_the_connection_is_away_then_the_error_says_that_nothing_was_sent():
    async with producing(client_options={"reconnect": Reconnect(delay=60.0, max_delay=60.0)}) as (
        broker,
        producer,
    ):
        broker.plan("drop", times=1)
        begun_at = anyio.current_time()
        with pytest.raises(SendFailedError) as first:
            await producer.send(b"one", timeout=5)
        assert anyio.current_time() - begun_at <= 5.01
        begun_at = anyio.current_time()
        with pytest.raises(SendFailedError, match="the request was not sent") as second:
            await producer.send(b"two", timeout=2)
        assert anyio.current_time() - begun_at == pytest.approx(2.0, abs=0.01)

    assert first.value.sent is True, "the first attempt was heard"
    assert second.value.sent is False
    assert "may have been carried out" not in str(second.value)


async def test_send_many_when_in_several_requests_then_they_share_the_deadline():
    async with producing(direct={"batch_length": 1}, retry=None) as (broker, producer):
        steps = [broker.plan("hold") for _ in range(3)]
        begun_at = anyio.current_time()

        async def release_slowly() -> None:
            for step in steps:
                await step.is_reached.wait()
                await anyio.sleep(1.0)
                step.release.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(release_slowly)
            with pytest.raises(SendFailedError) as caught:
                await producer.send_many([b"1", b"2", b"3"], timeout=2.5)
            assert anyio.current_time() - begun_at == pytest.approx(2.5, abs=0.01)

    assert caught.value.messages == (b"3",)


async def test_send_when_its_turn_comes_too_late_then_it_is_refused_at_once():
    async with producing(direct={"linger_time": 10.0}) as (broker, producer):
        await producer.send(b"one")

        with pytest.raises(RequestTimeoutError, match="linger_time 10 s") as caught:
            await producer.send(b"two", timeout=1)

    assert caught.value.sent is False
    assert broker.payloads == [b"one"]


async def test_send_when_the_server_forbids_it_then_is_caught_as_that_and_names_the_messages():
    async with producing() as (broker, producer):
        broker.plan("refuse", StatusCode.UNAUTHORIZED)

        with pytest.raises(PermissionDeniedError) as caught:
            await producer.send_many([b"one", b"two"])

    assert isinstance(caught.value, SendFailedError)
    assert isinstance(caught.value, PermissionError)
    assert caught.value.messages == (b"one", b"two")
    assert (caught.value.code, caught.value.name) == (StatusCode.UNAUTHORIZED, "Unauthorized")
    assert "(Unauthorized, code 41)" in str(caught.value)


async def test_send_when_answers_never_come_then_the_timeout_is_the_cause():
    async with producing(request_timeout=1.0, retry=None) as (broker, producer):
        broker.plan("swallow")

        with pytest.raises(SendFailedError) as caught:
            await producer.send(b"one")

    assert isinstance(caught.value.cause, RequestTimeoutError | DisconnectedError)


async def test_messages_when_serde_is_set_then_values_travel_and_failures_return_values():
    async with producing(serde=JsonSerde(), retry=None) as (broker, producer):
        await producer.send({"n": 1})
        broker.plan("refuse", PERMANENT)
        with pytest.raises(SendFailedError) as caught:
            await producer.send({"n": 2})
        with pytest.raises(SerdeError):
            await producer.send(object())

    assert broker.payloads == [b'{"n":1}']
    assert caught.value.messages == ({"n": 2},)


async def test_key_when_given_then_the_server_places_it_and_the_header_carries_it():
    async with producing() as (broker, producer):
        await producer.send(b"one", key="customer")
        await producer.send_many([b"two", b"three"], key="customer")

    place = partition_for_key(b"customer", broker.partitions_count)
    assert broker.partitions == {place: [b"one", b"two", b"three"]}


async def test_keys_when_messages_of_a_call_differ_then_each_goes_to_its_partition_in_order():
    messages = [Message(f"{n}".encode(), key=f"key {n % 5}") for n in range(50)]
    async with producing() as (broker, producer):
        await producer.send_many(messages)

    assert len(broker.requests) <= broker.partitions_count
    expected: dict[int, list[bytes]] = {}
    for message in messages:
        place = partition_for_key(str(message.key).encode(), broker.partitions_count)
        expected.setdefault(place, []).append(message.value)
    assert broker.partitions == expected


async def test_keys_when_a_request_fails_then_the_unsent_are_named_in_the_order_of_the_list():
    messages = [Message(f"{n}", key=f"key {n % 5}") for n in range(20)]
    async with producing(retry=None) as (broker, producer):
        held = broker.plan("hold")
        held.release.set()
        broker.plan("refuse", PERMANENT)

        with pytest.raises(SendFailedError) as caught:
            await producer.send_many(messages)

    assert len(broker.requests) == 1
    sent = {payload.decode() for payload in broker.payloads}
    assert caught.value.messages == tuple(one for one in messages if one.value not in sent)


async def test_keys_when_user_may_not_look_then_each_key_is_a_request_of_its_own(every_dialect):
    async with broker_and_client() as (broker, client):
        broker.refusals[GetTopic] = StatusCode.UNAUTHORIZED
        async with orders(client) as producer:
            await producer.send_many([Message(b"1", key="a"), Message(b"2", key="b")])
            await anyio.sleep(2 * PARTITIONS_MAX_AGE_S)
            await producer.send_many([Message(b"3", key="a"), Message(b"4", key="b")])

    assert broker.requests == [[b"1"], [b"2"], [b"3"], [b"4"]]
    looks = [command for command in broker.commands if isinstance(command, GetTopic)]
    # The client looks for itself as well, where it is the one to choose partitions.
    assert len(looks) == (4 if every_dialect is V0_11 else 2)


async def test_keys_when_partitions_were_deleted_then_the_server_places_them():
    messages = [Message(f"{n}".encode(), key=f"key {n}") for n in range(20)]
    async with producing() as (broker, producer):
        broker.partitions_count = 1

        await producer.send_many(messages)

    assert sorted(broker.partitions[0]) == sorted(message.value for message in messages)


@pytest.mark.parametrize(
    ("call", "place"),
    [({"partition_id": 2}, 2), ({"partitioning": Partitioning.partition(3)}, 3)],
)
async def test_partition_when_a_call_names_one_then_it_counts_more_than_the_producers(call, place):
    async with producing(partitioning=Partitioning.partition(1)) as (broker, producer):
        await producer.send(b"usual")
        await producer.send(b"one", **call)
        await producer.send_many([b"two"], key="ignored here", **call)

    assert broker.partitions == {1: [b"usual"], place: [b"one", b"two"]}


async def test_partition_when_named_twice_then_refused():
    async with producing() as (_, producer):
        with pytest.raises(InvalidRequestError):
            await producer.send(b"one", partition_id=1, partitioning=2)


async def test_partitioner_when_set_then_asked_once_for_a_call_with_what_was_handed_over():
    asked = []

    def choose(stream, topic, messages):
        asked.append((stream, topic, list(messages)))
        return 2

    async with producing(partitioner=choose) as (broker, producer):
        await producer.send_many([b"one", b"two"])
        await producer.send(b"three", key="k")
        await producer.send(b"four", partition_id=1)

    assert broker.partitions == {2: [b"one", b"two", b"three"], 1: [b"four"]}
    assert asked == [
        ("shop", "orders", [b"one", b"two"]),
        ("shop", "orders", [Message(b"three", key="k")]),
    ]


async def test_partitioner_when_it_is_the_clients_then_keys_and_partitioning_count_more():
    async with broker_and_client(partitioner=lambda *_: 3) as (broker, client):
        async with orders(client) as producer:
            await producer.send(b"by the client")
        async with orders(client, partitioning=1) as producer:
            await producer.send(b"by the producer")
        async with orders(client, partitioner=None, partitioning=Partitioning.partition(0)) as one:
            await one.send(b"by nobody")

    assert broker.partitions == {
        3: [b"by the client"],
        1: [b"by the producer"],
        0: [b"by nobody"],
    }


async def test_old_names_when_used_then_they_do_the_same():
    async with broker_and_client(Broker(topics=("orders", "other"))) as (broker, client):
        producer = await orders(client)
        await producer.send_one(b"1")
        await producer.send_with_partitioning([b"2"], Partitioning.partition(1))
        await producer.send_to("shop", "other", [b"3"], 2)
        await producer.send([Message(b"4"), Message(b"5")])
        await producer.shutdown()

        with pytest.raises(ProducerClosedError):
            await producer.send(b"6")

    assert broker.payloads == [b"1", b"2", b"3", b"4", b"5"]
    assert [send.topic for send in broker.sends] == ["orders", "orders", "other", "orders"]


async def test_send_many_when_given_a_single_payload_then_type_error():
    async with producing() as (_, producer):
        with pytest.raises(TypeError, match="send\\(\\) takes one"):
            await producer.send_many(b"not a list")


@pytest.mark.parametrize("many", [False, True])
async def test_send_when_payload_is_too_large_then_refused_before_it_travels(many):
    payload = bytes(64_000_001)
    async with producing() as (broker, producer):
        with pytest.raises(MessageTooLargeError):
            await (producer.send_many([payload]) if many else producer.send(payload))

    assert broker.requests == []


async def test_key_when_too_long_then_refused():
    async with producing(key_header=False) as (_, producer):
        with pytest.raises(InvalidRequestError, match="256"):
            await producer.send(b"one", key="k" * 256)


async def test_linger_when_set_on_a_direct_producer_then_sends_keep_that_pace():
    async with producing(direct={"linger_time": 2.0}) as (_, producer):
        begun_at = anyio.current_time()
        for _ in range(4):
            await producer.send(b"tick")

        assert anyio.current_time() - begun_at == pytest.approx(6.0)


async def test_send_when_cancelled_anywhere_then_later_sends_are_answered_as_they_should():
    async with producing() as (broker, producer):
        tasks, cancelled = await tasks_at_rest(), 0
        async for _ in cancelled_everywhere(lambda: producer.send(b"cancelled"), children=True):
            cancelled += 1
            assert await tasks_at_rest() == tasks
            broker.plan("refuse", PERMANENT)
            with pytest.raises(SendFailedError):
                await producer.send(b"refused")
            await producer.send(b"kept")

    assert cancelled
    assert broker.payloads.count(b"kept") == cancelled
    assert b"refused" not in broker.payloads


async def test_headers_when_call_and_message_have_some_then_those_of_the_message_win():
    async with producing() as (broker, producer):
        await producer.send_many(
            [b"plain", Message(b"own", headers={"kind": "own"})], headers={"kind": "call", "n": 1}
        )

    batch = broker.sends[0].messages
    assert isinstance(batch, MessageBatch)
    shown = [decode_user_headers(bytes(message.user_headers)) for message in batch]
    assert [{key.value: value.value for key, value in headers.items()} for headers in shown] == [
        {"kind": "call", "n": 1},
        {"kind": "own", "n": 1},
    ]
