"""The client's half of the HTTP face against the server's: what one writes the other reads."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from iggy_protocol import (
    CLASSIC,
    COMMANDS,
    CacheMetrics,
    CommandCode,
    ConsumerIdentity,
    ConsumerKind,
    CreateUser,
    DeleteConsumerOffset,
    DeleteStream,
    GetClient,
    GetMe,
    GetSnapshot,
    GetStream,
    GetUser,
    HostResources,
    JoinConsumerGroup,
    LeaveConsumerGroup,
    LocalProtocolError,
    LoginUser,
    MessageBatch,
    NewMessage,
    Partitioning,
    Permissions,
    PollingStrategy,
    PollMessages,
    RemoteProtocolError,
    RuleViolation,
    SendMessages,
    SnapshotCompression,
    SnapshotType,
    Stats,
    StatusCode,
    StoreConsumerOffset,
    UpdateUser,
    UserStatus,
    commands_of,
)
from iggy_protocol.registry import CommandSpec, RecordCodec
from iggy_protocol.rest import (
    ABSENT,
    NOT_FOUND,
    ROUTES,
    ROUTES_BY_COMMAND,
    ErrorShape,
    decode_json,
    decode_rest_error,
    decode_rest_reply,
    encode_json,
    encode_refresh,
    encode_rest_request,
    permissions_from_shape,
    permissions_to_shape,
)
from iggy_ref_server.web.commands import RequestParts, build_command
from iggy_ref_server.web.replies import shape_reply
from iggy_ref_server.web.requests import read_query, read_values
from tests.protocol.http_recordings import EXCHANGES, exchanges, meets, named
from tests.protocol.strategies import NAMES, PARTITIONINGS, values_of

some_examples = settings(max_examples=settings().max_examples // 2)

NOW_US = 1_700_000_000_000_000
UNAVAILABLE = {GetMe, JoinConsumerGroup, LeaveConsumerGroup}
SPECS = [
    spec
    for spec in map(COMMANDS.__getitem__, sorted(commands_of(CLASSIC)))
    if spec.command not in UNAVAILABLE
]
WRITTEN = [spec for spec in SPECS if spec.command is not SendMessages]
READ = [spec for spec in SPECS if isinstance(spec.reply[CLASSIC], RecordCodec)]


def by_name(spec: CommandSpec) -> str:
    return spec.command.__name__


def understood(request: Any) -> Any:
    """Read a request as the reference server does: find its route, and make a command of it."""
    path, _, query = request.target.partition("?")
    (route, *_) = (one for one in ROUTES if meets(one, request.route.method, path))
    assert route is request.route
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    places = [at for at, part in enumerate(route.path.split("/")) if part.startswith("{")]
    raw = dict(zip(names, (path.split("/")[at] for at in places), strict=True))
    assert isinstance(route.operation, CommandCode)
    body = None if route.body is None else decode_json(request.body, route.body)
    assert (route.body is None) == (request.body == b"")
    asked = read_query({"query_string": query.encode()}, route.query)
    return build_command(route.operation, RequestParts(read_values(raw), body, asked, NOW_US))


def plain(permissions: Permissions | None) -> Permissions | None:
    """Leave of several entries for one stream or topic the one that counts, in the order of ids."""
    if permissions is None:
        return None
    streams = {stream.stream_id: stream for stream in permissions.streams}
    return dataclasses.replace(
        permissions,
        streams=tuple(
            dataclasses.replace(
                streams[stream_id],
                topics=tuple(
                    topic
                    for _, topic in sorted(
                        {topic.topic_id: topic for topic in streams[stream_id].topics}.items()
                    )
                ),
            )
            for stream_id in sorted(streams)
        ),
    )


def is_taken_for_a_number(value: object) -> bool:
    digits = value.removeprefix("+") if isinstance(value, str) else ""
    return digits.isascii() and digits.isdigit() and int(digits) < 2**32


def names_in(command: Any) -> list[object]:
    fields = ("stream", "topic", "group", "user")
    names = [getattr(command, field) for field in fields if hasattr(command, field)]
    consumer = getattr(command, "consumer", None)
    return [*names, consumer.id] if isinstance(consumer, ConsumerIdentity) else names


def as_http_says_it(command: Any) -> Any:
    """Say a command as it arrives: what HTTP does not tell apart is one."""
    if isinstance(command, PollMessages) and command.partition_id is None:
        return dataclasses.replace(command, partition_id=0)
    if hasattr(command, "permissions"):
        return dataclasses.replace(command, permissions=plain(command.permissions))
    return command


# --- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", WRITTEN, ids=by_name)
@some_examples
@given(data=st.data())
def test_command_when_written_for_http_then_the_server_reads_the_same(spec, data):
    assert isinstance(spec.request[CLASSIC], RecordCodec)
    command = data.draw(values_of(spec.request[CLASSIC].layout.construct))
    consumer = getattr(command, "consumer", None)
    if any(map(is_taken_for_a_number, names_in(command))) or (
        consumer is not None and consumer.kind is ConsumerKind.GROUP
    ):
        with pytest.raises(RuleViolation) as caught:
            encode_rest_request(command)
        assert caught.value.status == StatusCode.FEATURE_UNAVAILABLE
        return

    assert understood(encode_rest_request(command)) == as_http_says_it(command)


MESSAGES = st.builds(
    NewMessage,
    payload=st.binary(min_size=1, max_size=40),
    id=st.integers(0, 2**128 - 1),
    user_headers=st.binary(max_size=20),
    # HTTP has no place for it; the server's clock stands there.
    origin_timestamp_us=st.none(),
)


def whole(message):
    return message if isinstance(message, NewMessage) else NewMessage(message)


@given(
    messages=st.lists(MESSAGES | st.binary(min_size=1, max_size=40), min_size=1, max_size=5),
    partitioning=PARTITIONINGS,
    stream=NAMES.filter(lambda name: not is_taken_for_a_number(name)),
)
def test_send_when_written_for_http_then_the_server_reads_the_same(messages, partitioning, stream):
    assume(partitioning != Partitioning.key(b""))
    command = SendMessages(stream, 7, partitioning, messages)

    read = understood(encode_rest_request(command))

    assert (read.stream, read.topic, read.partitioning) == (stream, 7, partitioning)
    # A payload alone means the same as a message with nothing else in it.
    assert [whole(message) for message in read.messages] == [whole(message) for message in messages]


def test_send_when_the_messages_are_encoded_already_then_goes_as_they_are():
    (polled,) = (
        exchange.response["messages"]
        for exchange in [named("messages: poll kind=offset&value=0&count=100")]
    )
    batch: MessageBatch = decode_rest_reply(
        CommandCode.POLL_MESSAGES,
        msgspec.json.encode(named("messages: poll kind=offset&value=0&count=100").response),
    ).messages

    read = understood(encode_rest_request(SendMessages("s", "t", Partitioning.balanced(), batch)))

    assert [message.id for message in read.messages] == [
        message["header"]["id"] for message in polled
    ]


def test_send_when_a_message_is_empty_then_is_refused_with_the_status_for_it():
    with pytest.raises(RuleViolation) as caught:
        encode_rest_request(SendMessages("s", "t", Partitioning.balanced(), [b"one", b""]))

    assert caught.value.status == StatusCode.EMPTY_MESSAGE_PAYLOAD


@pytest.mark.parametrize("name", [".", "..", "login", "logout", "refresh-token", "a/b", "ü ?#%"])
def test_path_when_a_name_could_mean_something_else_there_then_it_is_escaped(name):
    request = encode_rest_request(GetUser(name))

    segment = request.target.removeprefix("/users/")
    assert segment.isascii()
    assert segment not in {"", ".", "..", "login", "logout", "refresh-token"}
    assert not set(segment) & set("/?# ")
    assert understood(request) == GetUser(name)


def test_path_when_a_send_names_bytes_that_are_no_text_then_they_are_escaped():
    request = encode_rest_request(
        SendMessages("\udcff", "t", Partitioning.balanced(), [b"payload"])
    )

    assert request.target == "/streams/%FF/topics/t/messages"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (GetMe(), "no client"),
        (JoinConsumerGroup("s", "t", "g"), "no members"),
        (LeaveConsumerGroup("s", "t", "g"), "no members"),
        (
            PollMessages(ConsumerIdentity.group("g"), "s", "t", PollingStrategy.next(), 1),
            "only single consumers",
        ),
        (StoreConsumerOffset(ConsumerIdentity.group(1), "s", "t", 1), "only single consumers"),
        (GetStream("007"), "'007' would be taken for a number"),
        (DeleteConsumerOffset(ConsumerIdentity.single("+5"), "s", "t"), "taken for a number"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else None,
)
def test_command_when_http_cannot_say_it_then_is_refused_with_the_reason(command, why):
    with pytest.raises(RuleViolation, match=why) as caught:
        encode_rest_request(command)

    assert caught.value.status == StatusCode.FEATURE_UNAVAILABLE


@pytest.mark.parametrize(
    "command",
    [
        GetStream(""),
        DeleteStream("x" * 256),
        GetClient(2**32),
        SendMessages("", "t", Partitioning.balanced(), [b"x"]),
        GetSnapshot(types=(SnapshotType.ALL, SnapshotType.TEST)),
    ],
    ids=lambda command: type(command).__name__,
)
def test_command_when_no_wire_can_say_it_then_is_refused_as_on_any(command):
    with pytest.raises(LocalProtocolError):
        encode_rest_request(command)


def test_snapshot_when_written_then_has_the_names_of_the_real_server():
    request = encode_rest_request(
        GetSnapshot(
            SnapshotCompression.BZIP2, (SnapshotType.FILESYSTEM_OVERVIEW, SnapshotType.TEST)
        )
    )

    assert request.body == (
        b'{"compression":"Bzip2","snapshot_types":["FilesystemOverview","Test"]}'
    )


def test_request_when_it_holds_a_secret_then_does_not_show_it():
    requests = [
        encode_rest_request(LoginUser("iggy", "hidden-password")),
        encode_rest_request(CreateUser("ann", "hidden-password")),
        encode_refresh("hidden-token"),
    ]

    assert all(b"hidden" in request.body and "hidden" not in repr(request) for request in requests)
    assert repr(requests[0]) == "<RestRequest POST /users/login>"


def test_refresh_when_written_then_is_what_the_route_wants():
    request = encode_refresh("token")

    assert (request.route.name, request.target) == ("refresh_token", "/users/refresh-token")
    assert decode_json(request.body, request.route.body or object).token == "token"


@pytest.mark.parametrize("status", [None, UserStatus.INACTIVE])
def test_user_when_a_field_stays_as_it_is_then_nothing_is_said_of_it(status):
    command = UpdateUser(1, None, status)

    assert understood(encode_rest_request(command)) == command


# --- answers -------------------------------------------------------------------------------------


def as_http_shows_it(reply: Any) -> Any:
    """Say a reply as it comes over HTTP, which does not tell everything apart."""
    if isinstance(reply, Stats):
        floats = [reply.cpu_usage, reply.total_cpu_usage]
        floats += [cache.hit_ratio for cache in reply.cache_metrics]
        assume(all(map(math.isfinite, floats)))
        places = {
            (cache.stream_id, cache.topic_id, cache.partition_id): cache
            for cache in reply.cache_metrics
        }
        assume(len(places) == len(reply.cache_metrics))
        if reply.host is not None and not reply.host.threads_count:
            return dataclasses.replace(reply, host=None)
    if hasattr(reply, "permissions"):
        return dataclasses.replace(reply, permissions=plain(reply.permissions))
    return reply


@pytest.mark.parametrize("spec", READ, ids=by_name)
@some_examples
@given(data=st.data())
def test_reply_when_the_server_shapes_it_then_the_client_reads_the_same(spec, data):
    assert isinstance(spec.reply[CLASSIC], RecordCodec)
    reply = data.draw(values_of(spec.reply[CLASSIC].layout.construct))
    if spec.code in (CommandCode.LOGIN_USER, CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN):
        access = {"token": "hidden", "expiry": 1}
        body = msgspec.json.encode({"user_id": reply.user_id, "access_token": access})
    elif spec.code in (CommandCode.CREATE_STREAM, CommandCode.CREATE_CONSUMER_GROUP):
        # These say more over HTTP than the binary protocol does.
        more = "topics" if spec.code is CommandCode.CREATE_STREAM else "members"
        shape: Any = shape_reply(reply)
        body = msgspec.json.encode({**msgspec.to_builtins(shape), more: []})
    else:
        body = encode_json(shape_reply(reply))

    expected = as_http_shows_it(reply)
    assert decode_rest_reply(spec.code, body) == expected


@exchanges(
    least=70,
    when=lambda one: (
        one.is_success
        and one.route.operation in ROUTES_BY_COMMAND
        and one.route.reply not in (None, str, bytes)
    ),
)
def test_reply_when_a_real_server_gave_it_then_is_understood(exchange):
    reply = decode_rest_reply(exchange.route.operation, msgspec.json.encode(exchange.response))

    if exchange.route.name == "poll_messages":
        assert len(reply.messages) == reply.messages_count == len(exchange.response["messages"])
    elif isinstance(exchange.response, list):
        assert len(reply) == len(exchange.response)
    else:
        assert reply is not None


def test_polled_when_a_real_server_gave_it_then_the_checksums_hold():
    intact = 0
    for exchange in EXCHANGES:
        if exchange.route.name == "poll_messages" and exchange.is_success:
            body = msgspec.json.encode(exchange.response)
            polled = decode_rest_reply(CommandCode.POLL_MESSAGES, body)
            # Bytes 8 to the end of every message are what the real server has hashed.
            polled.messages.verify()
            intact += len(polled.messages)

    assert intact == 20


def test_ping_when_the_answer_is_no_pong_then_is_refused():
    assert decode_rest_reply(CommandCode.PING, b"pong") is None
    with pytest.raises(RemoteProtocolError, match="no reply to a ping"):
        decode_rest_reply(CommandCode.PING, b"<html>")


def test_empty_reply_when_there_is_a_body_then_is_refused():
    assert decode_rest_reply(CommandCode.DELETE_STREAM, b"") is None
    with pytest.raises(RemoteProtocolError, match="none is expected"):
        decode_rest_reply(CommandCode.DELETE_STREAM, b"<html>")


def test_snapshot_when_answered_then_is_the_archive():
    assert decode_rest_reply(CommandCode.GET_SNAPSHOT, b"PK").archive == b"PK"


@pytest.mark.parametrize("place", ["", "1-2", "1-2-3-4", "a-b-c", "1-2-³", "--"])
def test_stats_when_a_cache_has_no_place_then_are_refused(place):
    stats = named("system: stats").response
    metrics = {place: {"hits": 1, "misses": 1, "hit_ratio": 0.5}}

    with pytest.raises(RemoteProtocolError, match="no partition"):
        decode_rest_reply(
            CommandCode.GET_STATS, msgspec.json.encode({**stats, "cache_metrics": metrics})
        )


def test_stats_when_a_partition_has_a_cache_then_tell_of_it():
    stats = named("system: stats").response
    metrics = {"1-2-3": {"hits": 1, "misses": 3, "hit_ratio": 0.25}}

    read = decode_rest_reply(
        CommandCode.GET_STATS, msgspec.json.encode({**stats, "cache_metrics": metrics})
    )

    assert read.cache_metrics == (CacheMetrics(1, 2, 3, 1, 3, 0.25),)
    assert isinstance(read.host, HostResources)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"payload": "AAAAAAAAAAAA"}, "payload"),
        ({"user_headers": "AAAA"}, "user_headers"),
        ({"header": {"offset": 2**64}}, "header"),
        ({"header": {"reserved": 2**64}}, "header"),
        ({"header": {"id": 2**128}}, "header"),
    ],
    ids=str,
)
def test_polled_when_a_message_contradicts_itself_then_is_refused(change, place):
    polled = named("messages: poll kind=offset&value=0&count=100").response
    first = {**polled["messages"][0], **change}
    if "header" in change:
        first["header"] = {**polled["messages"][0]["header"], **change["header"]}

    with pytest.raises(RemoteProtocolError) as caught:
        decode_rest_reply(
            CommandCode.POLL_MESSAGES, msgspec.json.encode({**polled, "messages": [first]})
        )
    assert caught.value.field == f"messages.0.{place}"


def test_permissions_when_there_are_none_then_stay_none():
    assert permissions_to_shape(None) is None
    assert permissions_from_shape(None) is None


# --- refusals ------------------------------------------------------------------------------------


@exchanges(least=60, when=lambda one: not one.is_success and isinstance(one.response, dict))
def test_refusal_when_a_real_server_gave_it_then_has_a_status_or_stands_for_nothing(exchange):
    if not isinstance(exchange.route.operation, CommandCode):
        return
    status = decode_rest_error(exchange.route.operation, msgspec.json.encode(exchange.response))

    if exchange.response["id"] == 404:
        assert status in {ABSENT, 20, 1009}
    else:
        assert status in {ABSENT, exchange.response["id"]}


@pytest.mark.parametrize(
    ("code", "error", "expected"),
    [
        (CommandCode.GET_STREAM, NOT_FOUND, ABSENT),
        (CommandCode.GET_CONSUMER_GROUP, ErrorShape.of(5000), ABSENT),
        (CommandCode.GET_CONSUMER_GROUPS, ErrorShape.of(2010), ABSENT),
        (CommandCode.GET_TOPICS, NOT_FOUND, ABSENT),
        (CommandCode.GET_CONSUMER_OFFSET, ErrorShape.of(2010), ABSENT),
        (CommandCode.CREATE_TOPIC, NOT_FOUND, StatusCode.STREAM_ID_NOT_FOUND),
        (CommandCode.DELETE_STREAM, NOT_FOUND, StatusCode.RESOURCE_NOT_FOUND),
        (CommandCode.DELETE_STREAM, ErrorShape.of(1009), 1009),
        (CommandCode.GET_STREAM, ErrorShape.of(41), 41),
        (CommandCode.GET_STREAM, ErrorShape(id=99_999, code="new", reason="", field=None), 99_999),
    ],
)
def test_refusal_when_read_then_means_what_the_binary_protocol_says(code, error, expected):
    assert decode_rest_error(code, encode_json(error)) is expected or (
        decode_rest_error(code, encode_json(error)) == expected
    )


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'"text"'])
def test_refusal_when_no_iggy_server_wrote_it_then_is_not_understood(body):
    with pytest.raises(RemoteProtocolError):
        decode_rest_error(CommandCode.GET_STREAM, body)
