"""Clients of 0.9 and 0.10 on the port of a real server, beside classic ones."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product

import pytest

from iggy_protocol import (
    NO_CONTEXT,
    ConsumerIdentity,
    ConsumerOffset,
    CreateStream,
    CreateTopic,
    DeleteConsumerOffset,
    DeleteStream,
    DeleteTopic,
    Dialect,
    FlushUnsavedBuffer,
    GetConsumerOffset,
    GetPartitionRoute,
    GetStreams,
    GetTopic,
    LogoutUser,
    NewMessage,
    PartitionContext,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    ProducerSequence,
    PurgeTopic,
    SendConfirmation,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
    encode_user_headers,
)
from iggy_protocol.vsr.heads import RequestHead
from tests.server.features.topic_calls import unique
from tests.server.running import RunningServer
from tests.server.vsr_client import (
    CONTEXT_DIALECTS,
    VSR_DIALECTS,
    VsrClient,
    connections,
    dialect_name,
)

PARTITIONS = 4
ONE = ConsumerIdentity.single(1)
HEADERS = encode_user_headers({"k": "v"})


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"], scope="module")
def running(request, tmp_path_factory):
    """One server for the tests that leave each other's streams alone."""
    with RunningServer(tmp_path_factory.mktemp("dialects"), shards=request.param) as server:
        yield server


@pytest.fixture
def connect(running):
    """Open connections of any dialect, which end with the test."""
    with connections(running.address) as connect:
        yield connect


@pytest.fixture
def stream(running):
    """A stream with a topic of some partitions, on all shards."""
    name, root = unique("s"), running.login()
    root.ask(CreateStream(name))
    root.ask(CreateTopic(name, "t", PARTITIONS))
    return name


def send_of(stream, partitioning, *payloads):
    return SendMessages(stream, "t", partitioning, list(payloads), random=os.urandom(16 * 8))


def poll_of(stream, partition_id, count=100, **options):
    strategy = options.pop("strategy", PollingStrategy.first())
    return PollMessages(ONE, stream, "t", strategy, count, partition_id, **options)


def payloads_of(polled):
    return polled.messages.payloads()


# Streams, sends and polls


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_client_when_it_works_with_a_topic_then_all_shards_see_it(running, connect, dialect):
    client, name = connect(dialect), unique("s")

    assert client.ask(CreateStream(name)).name == name
    assert client.ask(CreateTopic(name, "t", PARTITIONS)).partitions_count == PARTITIONS
    assert connect(dialect).ask(GetTopic(name, "t")).partitions_count == PARTITIONS
    assert name in [stream.name for stream in client.ask(GetStreams())]
    assert client.refusal(CreateStream(name)) == StatusCode.STREAM_NAME_ALREADY_EXISTS
    assert client.ask(DeleteTopic(name, "t")) is None
    assert client.ask(DeleteStream(name)) is None
    assert client.refusal(DeleteStream(name)) == StatusCode.STREAM_ID_NOT_FOUND


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
@pytest.mark.parametrize("partition_id", range(PARTITIONS))
def test_send_when_confirmed_then_tells_where_its_messages_are(
    running, connect, stream, dialect, partition_id
):
    client, root = connect(dialect), running.login()
    context = client.route(stream, "t", partition_id)
    partition = Partitioning.partition(partition_id)
    root.ask(send_of(stream, partition, b"classic", b"before"))

    (first,) = client.ask(send_of(stream, partition, b"a", b"b", b"c"), context)
    (second,) = client.ask(send_of(stream, partition, b"d"), context)

    assert (first.partition_id, first.base_offset) == (partition_id, 2)
    assert second == first.__class__(first.stream_id, first.topic_id, partition_id, 5)
    polled = root.ask(poll_of(stream, partition_id))
    assert [message.offset for message in polled.messages] == list(range(6))
    assert payloads_of(polled)[2:] == [b"a", b"b", b"c", b"d"]
    polled.messages.verify()


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_send_when_the_server_chooses_the_partition_then_the_confirmation_tells_it(
    running, connect, stream, dialect
):
    client, root = connect(dialect), running.login()
    # All partitions of a topic are made together, so one of them tells the context of all.
    context = client.route(stream, "t", 0)
    places: list[SendConfirmation] = []
    for partitioning in (Partitioning.balanced(), Partitioning.key(b"key")):
        for number in range(PARTITIONS):
            places += client.ask(send_of(stream, partitioning, b"%d" % number), context)

    balanced, keyed = places[:PARTITIONS], places[PARTITIONS:]
    assert sorted(place.partition_id for place in balanced) == list(range(PARTITIONS))
    assert len({place.partition_id for place in keyed}) == 1
    for place in places:
        polled = root.ask(
            poll_of(
                stream, place.partition_id, 1, strategy=PollingStrategy.offset(place.base_offset)
            )
        )
        assert len(payloads_of(polled)) == 1


@pytest.mark.parametrize(("writer", "reader"), list(product(Dialect, Dialect)), ids=dialect_name)
def test_messages_when_sent_in_one_dialect_then_are_read_in_any(
    running, connect, stream, writer, reader
):
    messages = [
        NewMessage(b"one", 7, HEADERS, origin_timestamp_us=1000),
        NewMessage(b"", 8, origin_timestamp_us=2000),
        NewMessage(bytes(5000), 9),
    ]
    sending = SendMessages(stream, "t", Partitioning.partition(1), messages, 3000)
    polling = poll_of(stream, 1)

    def ask(dialect, command):
        if dialect is Dialect.CLASSIC:
            return running.login().ask(command)
        client = connect(dialect)
        return client.ask(command, client.route(stream, "t", 1))

    ask(writer, sending)
    polled = ask(reader, polling)

    assert (polled.partition_id, polled.current_offset) == (1, 2)
    assert [message.id for message in polled.messages] == [7, 8, 9]
    assert [message.offset for message in polled.messages] == [0, 1, 2]
    assert [message.origin_timestamp_us for message in polled.messages] == [1000, 2000, 3000]
    assert payloads_of(polled) == [b"one", b"", bytes(5000)]
    assert bytes(next(iter(polled.messages)).user_headers) == HEADERS


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_poll_when_it_commits_then_the_next_one_goes_on_from_there(connect, stream, dialect):
    client = connect(dialect)
    for partition_id in range(PARTITIONS):
        context = client.route(stream, "t", partition_id)
        client.ask(send_of(stream, Partitioning.partition(partition_id), b"a", b"b", b"c"), context)
        next_two = poll_of(
            stream, partition_id, 2, strategy=PollingStrategy.next(), auto_commit=True
        )

        assert payloads_of(client.ask(next_two, context)) == [b"a", b"b"]
        stored = client.ask(GetConsumerOffset(ONE, stream, "t", partition_id), context)
        assert stored == ConsumerOffset(partition_id, 2, 1)
        assert payloads_of(client.ask(next_two, context)) == [b"c"]
        empty = client.ask(next_two, context)
        assert (empty.partition_id, empty.current_offset, empty.messages_count) == (
            partition_id,
            2,
            0,
        )


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_offsets_when_stored_and_deleted_then_are_those_of_all_dialects(
    running, connect, stream, dialect
):
    client, root = connect(dialect), running.login()
    context = client.route(stream, "t", 2)
    read = GetConsumerOffset(ONE, stream, "t", 2)
    client.ask(send_of(stream, Partitioning.partition(2), b"a", b"b"), context)

    assert client.ask(StoreConsumerOffset(ONE, stream, "t", 1, 2), context) is None
    assert root.ask(read) == client.ask(read, context) == ConsumerOffset(2, 1, 1)
    beyond = StoreConsumerOffset(ONE, stream, "t", 9, 2)
    assert client.refusal(beyond, context) == StatusCode.INVALID_OFFSET
    assert client.ask(DeleteConsumerOffset(ONE, stream, "t", 2), context) is None
    assert root.ask(read) is None
    again = DeleteConsumerOffset(ONE, stream, "t", 2)
    assert client.refusal(again, context) == StatusCode.CONSUMER_OFFSET_NOT_FOUND


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_send_when_it_cannot_be_stored_then_is_refused_and_the_next_is_stored(
    connect, stream, dialect
):
    client = connect(dialect)
    context = client.route(stream, "t", 0)

    def status_of(command):
        return client.refusal(command, context)

    partition = Partitioning.partition
    assert status_of(send_of(stream, partition(99), b"m")) == StatusCode.PARTITION_NOT_FOUND
    absent = SendMessages("absent", "t", partition(0), [b"m"], random=bytes(16))
    assert status_of(absent) == StatusCode.STREAM_ID_NOT_FOUND
    assert client.ask(send_of(stream, partition(0), b"m"), context)[0].base_offset == 0


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_send_when_its_bytes_are_damaged_then_is_refused_by_its_checksum(connect, stream, dialect):
    client = connect(dialect)
    context = client.route(stream, "t", 0)
    request = client.connection.prepare(
        send_of(stream, Partitioning.partition(0), b"payload"), context=context
    )
    damaged = bytearray(b"".join(bytes(one) for one in client.connection.send_prepared(request)))
    damaged[-1] ^= 1
    client.socket.sendall(damaged)

    assert client.next_event().status == StatusCode.INVALID_MESSAGE_CHECKSUM
    assert client.ask(poll_of(stream, 0), context).messages_count == 0


@pytest.mark.parametrize("dialect", CONTEXT_DIALECTS, ids=dialect_name)
def test_sends_when_many_are_in_flight_then_each_is_answered_in_its_place(connect, stream, dialect):
    client = connect(dialect)
    contexts = [client.route(stream, "t", number) for number in range(PARTITIONS)]
    offsets = [0] * PARTITIONS
    for number in range(100):
        partition_id = number % PARTITIONS
        client.send(
            send_of(stream, Partitioning.partition(partition_id), b"%d" % number),
            contexts[partition_id],
        )
    for _ in range(100):
        (place,) = client.receive().decode()
        assert place.base_offset == offsets[place.partition_id]
        offsets[place.partition_id] += 1

    assert offsets == [25] * PARTITIONS
    for partition_id in range(PARTITIONS):
        polled = client.ask(poll_of(stream, partition_id), contexts[partition_id])
        assert payloads_of(polled) == [b"%d" % n for n in range(partition_id, 100, PARTITIONS)]


# The state of a partition, from 0.10 on


@pytest.mark.parametrize("dialect", CONTEXT_DIALECTS, ids=dialect_name)
def test_route_when_asked_for_then_names_the_state_that_polls_name(connect, stream, dialect):
    client = connect(dialect)
    route = client.ask(GetPartitionRoute(stream, "t", 3))

    assert (route.view, route.partitions_count, route.primary_replica_id) == (0, PARTITIONS, 0)
    assert route.metadata_position >= client.session.watermark > 0
    context = PartitionContext(route.incarnation)
    polled = client.ask(poll_of(stream, 3), context)
    assert (polled.context.incarnation, polled.context.owner_generation) == (route.incarnation, 0)
    assert polled.context.metadata_position >= route.metadata_position


@pytest.mark.parametrize("dialect", CONTEXT_DIALECTS, ids=dialect_name)
def test_route_when_there_is_no_such_partition_then_says_what_is_missing(connect, stream, dialect):
    client = connect(dialect)

    assert client.refusal(GetPartitionRoute("absent", "t", 0)) == StatusCode.STREAM_ID_NOT_FOUND
    assert client.refusal(GetPartitionRoute(stream, "absent", 0)) == StatusCode.TOPIC_ID_NOT_FOUND
    assert client.refusal(GetPartitionRoute(stream, "t", 9)) == StatusCode.PARTITION_NOT_FOUND


@pytest.mark.parametrize("dialect", CONTEXT_DIALECTS, ids=dialect_name)
@pytest.mark.parametrize("is_purged", [False, True], ids=["no context", "purged since"])
def test_request_when_it_means_another_state_of_the_partition_then_is_refused(
    running, connect, stream, dialect, is_purged
):
    client, context = connect(dialect), NO_CONTEXT
    if is_purged:
        context = client.route(stream, "t", 1)
        client.ask(send_of(stream, Partitioning.partition(1), b"m"), context)
        running.login().ask(PurgeTopic(stream, "t"))
    refused = [
        send_of(stream, Partitioning.partition(1), b"m"),
        poll_of(stream, 1),
        GetConsumerOffset(ONE, stream, "t", 1),
        StoreConsumerOffset(ONE, stream, "t", 0, 1),
        DeleteConsumerOffset(ONE, stream, "t", 1),
    ]

    for command in refused:
        assert client.refusal(command, context) == StatusCode.PARTITION_HISTORY_UNAVAILABLE
    current = client.route(stream, "t", 1)
    assert client.ask(refused[0], current)[0].base_offset == 0
    assert payloads_of(client.ask(refused[1], current)) == [b"m"]


@pytest.mark.parametrize("dialect", CONTEXT_DIALECTS, ids=dialect_name)
def test_poll_of_a_single_consumer_when_it_names_an_owner_then_is_refused(connect, stream, dialect):
    client = connect(dialect)
    context = client.route(stream, "t", 0)
    owned = PartitionContext(context.incarnation, 17)

    assert client.refusal(poll_of(stream, 0), owned) == 5009


@pytest.mark.parametrize("dialect", CONTEXT_DIALECTS, ids=dialect_name)
def test_write_when_it_fails_for_good_then_is_told_to_be_committed(connect, stream, dialect):
    client = connect(dialect)

    def outcome_of(command, context=NO_CONTEXT):
        client.send(command, context)
        event = client.next_event()
        return getattr(event, "status", 0), event.is_committed

    context = client.route(stream, "t", 0)
    send = send_of(stream, Partitioning.partition(0), b"m")
    exists = StatusCode.STREAM_NAME_ALREADY_EXISTS
    assert outcome_of(CreateStream(unique("s"))) == (0, True)
    assert outcome_of(CreateStream(stream)) == (exists, True)
    assert outcome_of(send, context) == (0, True)
    assert outcome_of(send) == (StatusCode.PARTITION_HISTORY_UNAVAILABLE, False)
    assert outcome_of(StoreConsumerOffset(ONE, stream, "t", 0, 0), context) == (0, True)
    beyond = StoreConsumerOffset(ONE, stream, "t", 9, 0)
    assert outcome_of(beyond, context) == (StatusCode.INVALID_OFFSET, True)
    assert outcome_of(GetStreams()) == (0, False)
    assert outcome_of(GetPartitionRoute(stream, "t", 9)) == (3007, False)
    assert outcome_of(LogoutUser()) == (0, True)


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_position_when_metadata_change_then_goes_up_with_each_change(connect, dialect):
    client, seen = connect(dialect), []
    for _ in range(5):
        client.ask(CreateStream(unique("s")))
        seen.append(client.session.watermark)

    assert seen == sorted(set(seen))
    assert client.session.session < seen[0]


# Commands that are not served


def ask_code(client, code, body=b""):
    """Ask for any code, and return the status."""
    session = client.session
    number = session.take_number(2)
    head = RequestHead(
        size=256 + len(body),
        client=session.client,
        number=number,
        operation=2,
        session=session.session,
        code=code,
    )
    client.socket.sendall(head.encode() + body)
    reply = b""
    while len(reply) < 256:
        reply += client.socket.recv(256 - len(reply))
    return int.from_bytes(reply[216:220], "little")


@pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
def test_command_when_the_dialect_does_not_have_it_then_is_none(connect, dialect):
    client = connect(dialect)

    assert ask_code(client, 9999) == StatusCode.INVALID_COMMAND
    assert ask_code(client, 38) == StatusCode.INVALID_COMMAND
    if dialect.binds_sessions:
        assert ask_code(client, 103) == StatusCode.INVALID_COMMAND
        assert ask_code(client, 102) == StatusCode.INVALID_COMMAND
    else:
        assert ask_code(client, 105) == StatusCode.INVALID_COMMAND
    assert client.ask(Ping()) is None


def test_flush_when_a_client_of_0_9_asks_for_it_then_is_not_available(connect, stream):
    client = connect(Dialect.V0_11)

    refusal = client.refusal(FlushUnsavedBuffer(stream, "t", 0))
    assert refusal == StatusCode.FEATURE_UNAVAILABLE


# Producers that number their messages, from 0.12.2 on


@pytest.mark.parametrize("partition_id", range(PARTITIONS))
def test_batch_when_its_producer_numbers_it_then_is_stored_once(connect, stream, partition_id):
    client = connect(Dialect.V0_12_2)
    context, number = client.route(stream, "t", partition_id), client.session.session << 20

    def numbered(sequence, *payloads, epoch=0, partitioning=None):
        where = partitioning or Partitioning.partition(partition_id)
        sending = send_of(stream, where, *payloads)
        return replace(sending, producer=ProducerSequence(number, epoch, sequence))

    first = client.ask(numbered(0, b"a", b"b"), context)
    assert client.ask(numbered(2, b"c"), context)[0].base_offset == 2
    assert client.ask(numbered(2, b"c"), context)[0].base_offset == 2
    assert first[0].base_offset == 0
    out_of_order = StatusCode.PRODUCER_SEQUENCE_OUT_OF_ORDER
    anywhere = numbered(3, b"x", partitioning=Partitioning.balanced())
    assert client.refusal(numbered(9, b"x"), context) == out_of_order
    assert client.refusal(numbered(3, b"x", epoch=1), context) == out_of_order
    assert client.refusal(anywhere, context) == StatusCode.PRODUCER_PARTITION_REQUIRED
    assert client.ask(numbered(0, b"d", epoch=1), context)[0].base_offset == 3
    assert client.refusal(numbered(3, b"x"), context) == StatusCode.PRODUCER_EPOCH_FENCED
    assert client.ask(poll_of(stream, partition_id), context).messages.payloads() == [
        b"a",
        b"b",
        b"c",
        b"d",
    ]


def test_producer_when_the_server_has_forgotten_it_then_begins_a_new_epoch(start_server):
    server = start_server()
    server.login().ask(CreateStream("s"))
    server.login().ask(CreateTopic("s", "t", 1))

    def send(client, epoch, sequence):
        sending = send_of("s", Partitioning.partition(0), b"m")
        numbered = replace(sending, producer=ProducerSequence(5, epoch, sequence))
        client.send(numbered, client.route("s", "t", 0))
        return client.next_event()

    with VsrClient.connect(server.address, Dialect.V0_12_2) as client:
        client.login()
        assert send(client, 0, 0).decode()[0].base_offset == 0
    server.restart()
    with VsrClient.connect(server.address, Dialect.V0_12_2) as client:
        client.login()
        assert send(client, 0, 1).status == StatusCode.PRODUCER_UNKNOWN
        assert send(client, 1, 0).decode()[0].base_offset == 1
    server.stop()
