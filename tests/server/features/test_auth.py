"""Users, rights and tokens: who may do what, and for how long."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    ChangePassword,
    ConsumerIdentity,
    CreateConsumerGroup,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeletePersonalAccessToken,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    GetClients,
    GetConsumerGroups,
    GetMe,
    GetPersonalAccessTokens,
    GetSnapshot,
    GetStats,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    GetUser,
    GetUsers,
    GlobalPermissions,
    JoinConsumerGroup,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    Partitioning,
    Permissions,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
    StreamPermissions,
    TopicPermissions,
    UpdatePermissions,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    UserStatus,
)
from tests.server.features.topic_calls import frame_of, make_topic, unique
from tests.server.replay.raw_peer import Absence, RawPeer
from tests.server.replay.recording import Exchange, read_recording
from tests.server.wire_client import Refused

SERVER_SHARDS = 2
PASSWORD = "secret"
DENIED = StatusCode.UNAUTHORIZED


@pytest.fixture(scope="module")
def topic(server):
    """A topic with one message, another topic beside it, and another stream."""
    topic = make_topic(server.login())
    topic.send("a")
    topic.make_group()
    topic.client.ask(CreateTopic(topic.stream, "other", 1))
    return topic


@pytest.fixture(scope="module")
def other(server):
    """A topic in another stream."""
    return make_topic(server.login())


@pytest.fixture
def person(root, connect):
    """Create a user with some permissions, and log it in."""

    def create(permissions=None):
        name = unique("user")
        root.ask(CreateUser(name, PASSWORD, UserStatus.ACTIVE, permissions))
        return connect(name, PASSWORD)

    return create


def globally(**flags):
    return Permissions(GlobalPermissions(**flags))


def in_stream(topic, **flags):
    return Permissions(streams=(StreamPermissions(topic.stream_id, **flags),))


def in_topic(topic, **flags):
    mine = TopicPermissions(topic.topic_id, **flags)
    return Permissions(streams=(StreamPermissions(topic.stream_id, topics=(mine,)),))


def poll(topic):
    return PollMessages(
        ConsumerIdentity.single(1), topic.stream, topic.topic, PollingStrategy.first(), 10, 0
    )


def send(topic):
    return SendMessages(topic.stream, topic.topic, Partitioning.partition(0), [b"x"])


def allowed(client, *commands):
    """Tell for each command whether the client may do it."""
    return [_is_allowed(client, command) for command in commands]


def _is_allowed(client, command):
    try:
        client.ask(command)
    except Refused as refused:
        if refused.status != DENIED:
            raise
        return False
    return True


def every_request():
    """Return one sound request of every command but ping and the two logins."""
    recording = read_recording("unauthenticated-every-command")
    requests = {
        line.code: line.request
        for line in recording.lines
        if isinstance(line, Exchange) and line.connection in (0, 1) and line.reply
        if line.reply[:4] == (40).to_bytes(4, "little") and line.code is not None
    }
    assert len(requests) == 44
    return requests


@pytest.mark.parametrize("logged_out", [False, True], ids=["before login", "after logout"])
def test_every_command_when_sent_without_a_login_then_it_is_refused_and_the_stream_stays_in_step(
    server, logged_out
):
    peer = RawPeer(server.address)
    try:
        if logged_out:
            for command in (LoginUser("iggy", "iggy"), LogoutUser()):
                peer.send(frame_of(command))
                reply = peer.read_frame(5)
                assert isinstance(reply, bytes)
                assert reply[:4] == bytes(4)
        for code, request in every_request().items():
            peer.send(request)
            assert peer.read_frame(5) == bytes.fromhex("2800000000000000"), code
            peer.send(frame_of(Ping()))
            assert peer.read_frame(5) == bytes(8), code
        assert peer.read_frame(0.05) is Absence.SILENCE
    finally:
        peer.close()


def test_root_when_asked_for_then_it_is_user_0_with_all_rights_and_the_next_user_gets_1(
    start_server,
):
    client = start_server().login()

    root = client.ask(GetUser("iggy"))
    made = client.ask(CreateUser("first", PASSWORD))

    assert root is not None
    assert (root.id, root.status) == (0, UserStatus.ACTIVE)
    assert root.permissions.server == GlobalPermissions(
        **dict.fromkeys(GlobalPermissions.__dataclass_fields__, True)
    )
    assert made.id == 1


@pytest.mark.parametrize(
    ("username", "password"), [("nobody", "iggy"), ("iggy", "wrong"), ("000", "iggy")]
)
def test_login_when_name_or_password_is_wrong_then_it_is_refused(server, username, password):
    with server.connect() as client:
        refused = client.refusal(LoginUser(username, password))

        assert refused == StatusCode.INVALID_CREDENTIALS
        assert client.refusal(GetMe()) == StatusCode.UNAUTHENTICATED


def test_user_when_its_name_is_made_of_digits_then_it_can_log_in(root, connect):
    made = root.ask(CreateUser("2024", PASSWORD))

    assert connect("2024", PASSWORD).ask(GetMe()).user_id == made.id


def test_user_when_without_rights_then_it_can_only_change_its_own_password(server, root, connect):
    name = unique("user")
    root.ask(CreateUser(name, PASSWORD))
    client = connect(name, PASSWORD)

    assert client.refusal(CreateUser("more", PASSWORD)) == DENIED
    wrong = ChangePassword(name, "not-it", "new-secret")
    assert client.refusal(wrong) == StatusCode.INVALID_CREDENTIALS
    assert client.refusal(ChangePassword("iggy", "iggy", "new-secret")) == DENIED
    client.ask(ChangePassword(name, PASSWORD, "new-secret"))
    connect(name, "new-secret")
    with server.connect() as anonymous:
        refused = anonymous.refusal(LoginUser(name, PASSWORD))
    assert refused == StatusCode.INVALID_CREDENTIALS


def test_tokens_when_created_then_they_log_in_until_they_are_deleted(server, person):
    owner = person()
    user_id = owner.ask(GetMe()).user_id
    raw = owner.ask(CreatePersonalAccessToken("forever")).token
    owner.ask(CreatePersonalAccessToken("brief", 3_600_000_000))

    listed = {token.name: token.expires_at_us for token in owner.ask(GetPersonalAccessTokens())}
    assert listed["forever"] is None
    assert listed["brief"] is not None

    with server.connect() as client:
        assert client.ask(LoginWithPersonalAccessToken(raw)).user_id == user_id
    for name in listed:
        owner.ask(DeletePersonalAccessToken(name))
    assert owner.ask(GetPersonalAccessTokens()) == ()
    with server.connect() as client:
        refused = client.refusal(LoginWithPersonalAccessToken(raw))
    assert refused == StatusCode.RESOURCE_NOT_FOUND


def test_users_when_managed_then_names_status_and_rights_follow(root, connect):
    name, renamed = unique("user"), unique("renamed")
    root.ask(CreateUser(name, PASSWORD))
    assert root.refusal(CreateUser(name, PASSWORD)) == StatusCode.USER_ALREADY_EXISTS

    root.ask(UpdateUser(name, renamed))
    assert root.ask(GetUser(name)) is None
    client = connect(renamed, PASSWORD)
    assert client.refusal(GetUsers()) == DENIED
    root.ask(UpdatePermissions(renamed, globally(read_users=True)))
    assert client.ask(GetUsers())

    root.ask(UpdateUser(renamed, status=UserStatus.INACTIVE))
    with pytest.raises(Refused, match="USER_INACTIVE"):
        connect(renamed, PASSWORD)
    root.ask(DeleteUser(renamed))
    assert root.ask(GetUser(renamed)) is None


def test_root_when_deleted_deactivated_or_restricted_then_it_is_refused(root):
    assert root.refusal(DeleteUser("iggy")) == StatusCode.CANNOT_DELETE_USER
    assert root.refusal(DeleteUser(0)) == StatusCode.CANNOT_DELETE_USER
    restrict = UpdatePermissions("iggy", Permissions())
    assert root.refusal(restrict) == StatusCode.CANNOT_CHANGE_PERMISSIONS
    deactivate = UpdateUser("iggy", status=UserStatus.INACTIVE)
    assert root.refusal(deactivate) == StatusCode.CANNOT_CHANGE_PERMISSIONS


def test_user_when_without_permissions_then_everything_is_denied(person, topic):
    commands = [
        GetStats(),
        GetClients(),
        GetUsers(),
        GetStreams(),
        GetStream(topic.stream),
        GetTopics(topic.stream),
        GetTopic(topic.stream, topic.topic),
        CreateStream("no"),
        CreateTopic(topic.stream, "no", 1),
        DeleteTopic(topic.stream, topic.topic),
        GetConsumerGroups(topic.stream, topic.topic),
        poll(topic),
        send(topic),
        GetSnapshot(),
    ]

    assert allowed(person(), *commands) == [False] * len(commands)


@pytest.mark.parametrize("flag", ["read_servers", "manage_servers"])
def test_rights_on_servers_when_given_then_they_show_figures_and_nothing_else(person, flag):
    client = person(globally(**{flag: True}))

    assert allowed(client, GetStats(), GetClients(), GetUsers(), GetStreams()) == [
        True,
        True,
        False,
        False,
    ]


def test_snapshot_when_asked_for_without_the_right_to_manage_servers_then_it_is_denied(person):
    assert person(globally(read_servers=True)).refusal(GetSnapshot()) == DENIED
    assert person(globally(manage_servers=True)).ask(GetSnapshot()).archive[:2] == b"PK"


@pytest.mark.parametrize(("flag", "managing"), [("read_users", False), ("manage_users", True)])
def test_rights_on_users_when_given_then_reading_and_managing_differ(person, flag, managing):
    client = person(globally(**{flag: True}))

    verdicts = allowed(client, GetUsers(), GetUser("iggy"), CreateUser(unique("user"), PASSWORD))

    assert verdicts == [True, True, managing]


# Which of the commands below each right allows, as a text of ones and zeros.
SCOPED = (
    ("manage_streams", "globally", "1111111111"),
    ("read_streams", "globally", "1111000010"),
    ("manage_topics", "globally", "0011001111"),
    ("read_topics", "globally", "0011000010"),
    ("poll_messages", "globally", "0000000010"),
    ("send_messages", "globally", "0000000001"),
    ("manage_stream", "in stream", "0111011111"),
    ("read_stream", "in stream", "0111000010"),
    ("manage_topics", "in stream", "0011001111"),
    ("read_topics", "in stream", "0011000010"),
    ("poll_messages", "in stream", "0000000010"),
    ("send_messages", "in stream", "0000000001"),
    ("manage_topic", "in topic", "0001000111"),
    ("read_topic", "in topic", "0001000010"),
    ("poll_messages", "in topic", "0000000010"),
    ("send_messages", "in topic", "0000000001"),
)


@pytest.mark.parametrize(("flag", "scope", "expected"), SCOPED)
def test_right_when_given_then_it_allows_what_it_implies_and_no_more(
    person, root, flag, scope, expected
):
    topic = make_topic(root)
    give = {
        "globally": globally,
        "in stream": lambda **flags: in_stream(topic, **flags),
        "in topic": lambda **flags: in_topic(topic, **flags),
    }[scope]
    client = person(give(**{flag: True}))

    commands = [
        GetStreams(),
        GetStream(topic.stream),
        GetTopics(topic.stream),
        GetTopic(topic.stream, topic.topic),
        CreateStream(unique("s")),
        UpdateStream(topic.stream, topic.stream),
        CreateTopic(topic.stream, unique("t"), 1),
        UpdateTopic(topic.stream, topic.topic, topic.topic),
        poll(topic),
        send(topic),
    ]

    found = "".join(str(int(verdict)) for verdict in allowed(client, *commands))
    assert found == expected


@pytest.mark.parametrize("scope", [in_stream, in_topic])
def test_scoped_right_when_given_then_it_counts_nowhere_else(person, topic, other, scope):
    client = person(scope(topic, poll_messages=True, send_messages=True))

    assert allowed(client, poll(topic), send(topic)) == [True, True]
    assert allowed(client, poll(other), send(other), GetStreams()) == [False, False, False]


def test_group_commands_when_asked_for_then_they_need_to_read_the_topic(person, topic):
    commands = [
        GetConsumerGroups(topic.stream, topic.topic),
        CreateConsumerGroup(topic.stream, topic.topic, unique("g")),
        JoinConsumerGroup(topic.stream, topic.topic, "g"),
    ]

    assert allowed(person(in_topic(topic, poll_messages=True)), *commands) == [False] * 3
    assert allowed(person(in_topic(topic, read_topic=True)), *commands) == [True] * 3


def test_scoped_entry_when_it_says_no_then_it_takes_no_global_right_away(person, topic):
    scoped = StreamPermissions(topic.stream_id, topics=(TopicPermissions(topic.topic_id),))
    client = person(Permissions(GlobalPermissions(poll_messages=True), (scoped,)))

    assert allowed(client, poll(topic), send(topic)) == [True, False]


def test_missing_things_when_asked_for_then_no_client_gets_data(person, root):
    anonymous, reader = person(), person(globally(read_streams=True))

    for client in (anonymous, reader, root):
        assert client.ask(GetStream("missing")) is None
        assert client.ask(GetTopic("missing", "missing")) is None
    assert root.refusal(DeleteStream("missing")) == StatusCode.STREAM_ID_NOT_FOUND
    assert anonymous.refusal(GetUser(999_999)) == DENIED


def test_session_when_its_user_is_deleted_then_it_ends_and_never_acts_for_the_next_one(
    root, connect, server
):
    name = unique("user")
    old = root.ask(CreateUser(name, PASSWORD, UserStatus.ACTIVE, globally(read_streams=True)))
    session = connect(name, PASSWORD)
    token = session.ask(CreatePersonalAccessToken("token")).token
    assert session.ask(GetStreams())

    root.ask(DeleteUser(name))
    new = root.ask(CreateUser(unique("user"), PASSWORD, UserStatus.ACTIVE, globally()))

    assert new.id == old.id
    assert session.refusal(GetMe()) == StatusCode.UNAUTHENTICATED
    with server.connect() as client:
        refused = client.refusal(LoginWithPersonalAccessToken(token))
    assert refused == StatusCode.RESOURCE_NOT_FOUND


def test_session_when_its_user_is_deactivated_then_it_may_do_nothing_more(root, connect):
    name = unique("user")
    root.ask(CreateUser(name, PASSWORD, UserStatus.ACTIVE, globally(read_streams=True)))
    session = connect(name, PASSWORD)
    assert session.ask(GetStreams())

    root.ask(UpdateUser(name, status=UserStatus.INACTIVE))

    assert session.refusal(GetStreams()) == StatusCode.UNAUTHENTICATED
