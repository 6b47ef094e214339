"""Sessions of clients from 0.9 on, on a real server: bound, lost, ended, and what repeats get."""

from __future__ import annotations

import os

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteConsumerOffset,
    DeleteStream,
    DeleteUser,
    Dialect,
    EvictionReason,
    GetConsumerOffset,
    GetMe,
    GetStream,
    LogoutUser,
    Partitioning,
    PasswordCredentials,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
    StoreConsumerOffset,
)
from tests.server.features.topic_calls import unique
from tests.server.running import RunningServer
from tests.server.vsr_client import CONTEXT_DIALECTS, VSR_DIALECTS, connections, dialect_name
from tests.server.wire_client import Refused

WITH_SESSIONS = pytest.mark.parametrize("dialect", CONTEXT_DIALECTS, ids=dialect_name)
VSR = pytest.mark.parametrize("dialect", VSR_DIALECTS, ids=dialect_name)
ONE = ConsumerIdentity.single(1)
PARTITIONS = 4


@pytest.fixture(params=[1, 2], ids=["one shard", "two shards"], scope="module")
def running(request, tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("sessions"), shards=request.param) as server:
        yield server


@pytest.fixture
def connect(running):
    with connections(running.address) as connect:
        yield connect


@pytest.fixture
def another():
    """Open further connections of a session, which end with the test."""
    opened = []

    def open_another(client):
        opened.append(client.another())
        return opened[-1]

    yield open_another
    for client in opened:
        client.close()


@pytest.fixture
def stream(running):
    """A stream with a topic of some partitions, on all shards."""
    name, root = unique("s"), running.login()
    root.ask(CreateStream(name))
    root.ask(CreateTopic(name, "t", PARTITIONS))
    return name


def send_of(stream, partition_id, *payloads):
    return SendMessages(
        stream, "t", Partitioning.partition(partition_id), list(payloads), random=os.urandom(128)
    )


def payloads_of(client, stream, partition_id):
    poll = PollMessages(ONE, stream, "t", PollingStrategy.first(), 100, partition_id)
    return client.ask(poll, client.route(stream, "t", partition_id)).messages.payloads()


# Binding


@WITH_SESSIONS
def test_session_when_bound_by_further_connections_then_is_the_same(connect, another, dialect):
    """The kernel spreads the connections over the shards."""
    client = connect(dialect)
    session = client.session.session

    for _ in range(6):
        other = another(client)
        assert other.bind().session == session
        assert other.ask(GetMe()).user_id == 0
    assert client.ask(Ping()) is None


@WITH_SESSIONS
def test_session_when_its_login_had_no_answer_then_bind_tells_its_number(connect, another, dialect):
    client = connect(dialect)
    session, client.session.session = client.session.session, 0

    other = another(client)

    assert other.bind().session == session


@WITH_SESSIONS
@pytest.mark.parametrize("wrong", ["client", "secret", "number"])
def test_session_when_bound_with_anything_wrong_then_is_refused(connect, another, dialect, wrong):
    client = connect(dialect)
    right = client.session
    other = another(client)
    saved = (right.client, right.secret, right.session)
    if wrong == "client":
        right.client = bytes(range(16))
    elif wrong == "secret":
        right.secret = bytes(32)
    else:
        right.session += 1

    assert other.refusal(right.bind()) == StatusCode.UNAUTHENTICATED
    right.client, right.secret, right.session = saved


@WITH_SESSIONS
def test_session_when_all_connections_are_lost_then_goes_on_over_the_next(
    connect, another, dialect
):
    client = connect(dialect)
    session, other = client.session.session, another(client)
    client.close()

    assert other.bind().session == session
    assert other.ask(GetMe()).user_id == 0


@VSR
def test_server_when_started_again_then_knows_no_session(tmp_path, dialect):
    with RunningServer(tmp_path, shards=2) as server:
        with connections(server.address) as connect:
            session = connect(dialect).session
        server.stop()
        server.start()
        with connections(server.address) as connect:
            other = connect(dialect, is_logged_in=False)
            if dialect.binds_sessions:
                assert other.use(session).refusal(session.bind()) == StatusCode.UNAUTHENTICATED
            number = session.session
            session.end()
            assert other.use(session).login().session > number


# Ends


def answer_to(client, request):
    """Send a request of a session that its client may know to be over; return the head."""
    client.wire.sendall(request.head.encode() + b"".join(map(bytes, request.parts)))
    head = b""
    while len(head) < 256:
        head += client.wire.recv(256 - len(head))
    return head


@WITH_SESSIONS
def test_session_when_logged_out_then_ends_on_all_its_connections(connect, another, dialect):
    client = connect(dialect)
    others = [another(client) for _ in range(5)]
    requests = []
    for other in others:
        other.bind()
        requests.append(other.prepare(CreateStream(unique("s"))))
    late = another(client)
    bind = late.prepare(late.session.bind())

    client.ask(LogoutUser())

    for other, request in zip(others, requests, strict=True):
        assert answer_to(other, request)[255] == EvictionReason.NO_SESSION
    status = answer_to(late, bind)[216:220]
    assert int.from_bytes(status, "little") == StatusCode.UNAUTHENTICATED
    assert client.login().user_id == 0


@WITH_SESSIONS
def test_session_when_its_user_is_deleted_then_ends_on_all_its_connections(
    running, connect, another, dialect
):
    root, name = running.login(), unique("u")
    root.ask(CreateUser(name, "secret"))
    client = connect(dialect, is_logged_in=False)
    client.login(PasswordCredentials(name, "secret"))
    others = [another(client) for _ in range(4)]
    for other in others:
        other.bind()
    late = another(client)

    root.ask(DeleteUser(name))

    for other in (client, *others):
        assert other.refusal(GetMe()) == StatusCode.UNAUTHENTICATED
    assert late.refusal(late.session.bind()) == StatusCode.UNAUTHENTICATED


# Repeats


@WITH_SESSIONS
def test_metadata_request_when_repeated_over_another_connection_then_has_the_same_reply(
    connect, another, dialect
):
    client, name = connect(dialect), unique("s")
    request = client.prepare(CreateStream(name))
    first = client.ask_prepared(request)

    for _ in range(4):
        other = another(client)
        other.bind()
        again = other.ask_prepared(request)
        assert bytes(again.payload) == bytes(first.payload)
        assert again.is_committed
    assert client.ask(GetStream(name)).topics_count == 0


@WITH_SESSIONS
def test_metadata_request_when_it_failed_for_good_then_a_repeat_fails_alike(
    connect, another, dialect
):
    client, name = connect(dialect), unique("s")
    request = client.prepare(DeleteStream(name))
    with pytest.raises(Refused) as caught:
        client.ask_prepared(request)
    status = caught.value.status
    client.ask(CreateStream(name))

    other = another(client)
    other.bind()
    with pytest.raises(Refused) as caught:
        other.ask_prepared(request)

    assert caught.value.status == status
    assert client.ask(GetStream(name)) is not None, "the repeat deleted nothing"


@WITH_SESSIONS
def test_metadata_request_when_older_than_the_kept_ones_then_is_too_old(connect, dialect):
    client = connect(dialect)
    request = client.prepare(CreateStream(unique("s")))
    client.ask_prepared(request)
    for _ in range(5):
        client.ask(CreateStream(unique("s")))

    with pytest.raises(Refused) as caught:
        client.ask_prepared(request)
    assert caught.value.status == StatusCode.REQUEST_TOO_OLD


def test_metadata_request_of_0_9_when_repeated_then_as_its_release_does(connect):
    client = connect(Dialect.V0_11)
    request = client.prepare(CreateStream(unique("s")))
    first = client.ask_prepared(request)
    assert bytes(client.ask_prepared(request).payload) == bytes(first.payload)
    for _ in range(5):
        client.ask(CreateStream(unique("s")))

    with pytest.raises(Refused) as caught:
        client.ask_prepared(request)
    assert caught.value.status == StatusCode.REQUEST_ALREADY_APPLIED


@VSR
def test_token_when_its_creation_is_repeated_then_is_the_same_and_works(connect, dialect):
    client = connect(dialect)
    request = client.prepare(CreatePersonalAccessToken(unique("pat")))

    first, again = (client.ask_prepared(request).decode() for _ in range(2))

    assert first == again


@VSR
def test_send_when_repeated_then_is_stored_once_and_confirmed_alike(connect, stream, dialect):
    client = connect(dialect)
    for partition_id in range(PARTITIONS):
        route = client.route(stream, "t", partition_id)
        client.ask(send_of(stream, partition_id, b"before"), route)
        request = client.prepare(send_of(stream, partition_id, b"a", b"b"), route)

        replies = [client.ask_prepared(request).decode() for _ in range(3)]

        assert {reply[0].base_offset for reply in replies} == {1}
        assert payloads_of(client, stream, partition_id) == [b"before", b"a", b"b"]


@WITH_SESSIONS
def test_send_when_repeated_over_another_connection_then_is_stored_once(
    connect, another, stream, dialect
):
    client = connect(dialect)
    for partition_id in range(PARTITIONS):
        route = client.route(stream, "t", partition_id)
        request = client.prepare(send_of(stream, partition_id, b"a"), route)
        client.send_prepared(request)
        other = another(client)
        other.bind()

        again = other.ask_prepared(request)

        assert again.is_committed
        assert again.decode() == client.receive().decode()
        assert payloads_of(client, stream, partition_id) == [b"a"]


@VSR
def test_send_when_older_than_the_newest_then_is_too_old(connect, stream, dialect):
    client = connect(dialect)
    route = client.route(stream, "t", 0)
    request = client.prepare(send_of(stream, 0, b"a"), route)
    client.ask_prepared(request)
    client.ask(send_of(stream, 0, b"b"), route)

    with pytest.raises(Refused) as caught:
        client.ask_prepared(request)

    assert caught.value.status == StatusCode.REQUEST_TOO_OLD
    assert payloads_of(client, stream, 0) == [b"a", b"b"]


@VSR
def test_balanced_send_when_repeated_then_finds_the_same_partition(connect, stream, dialect):
    """A client from 0.10 on has to name the state of the partition, so it names that as well."""
    if dialect.binds_sessions:
        return
    client = connect(dialect)
    sent = []
    for _ in range(2 * PARTITIONS):
        request = client.prepare(
            SendMessages(stream, "t", Partitioning.balanced(), [b"m"], random=os.urandom(16))
        )
        first, again = (client.ask_prepared(request).decode() for _ in range(2))
        assert first == again
        sent.append(first[0].partition_id)

    assert sorted(sent) == sorted(2 * list(range(PARTITIONS)))


@VSR
@pytest.mark.parametrize("partition_id", range(PARTITIONS))
def test_offset_when_its_write_is_repeated_then_a_newer_one_stays(
    connect, stream, dialect, partition_id
):
    client, other = connect(dialect), connect(dialect)
    route = client.route(stream, "t", partition_id)
    client.ask(send_of(stream, partition_id, b"a", b"b", b"c"), route)
    early = client.prepare(StoreConsumerOffset(ONE, stream, "t", 1, partition_id), route)
    client.ask_prepared(early)
    other.ask(StoreConsumerOffset(ONE, stream, "t", 2, partition_id), route)

    client.ask_prepared(early)

    stored = client.ask(GetConsumerOffset(ONE, stream, "t", partition_id), route)
    assert stored.stored_offset == 2
    deletion = client.prepare(DeleteConsumerOffset(ONE, stream, "t", partition_id), route)
    client.ask_prepared(deletion)
    client.ask_prepared(deletion)
    with pytest.raises(Refused) as caught:
        client.ask_prepared(early)
    assert caught.value.status == StatusCode.REQUEST_TOO_OLD
