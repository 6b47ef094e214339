"""The HTTP face, against the recorded conversations with a real server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import CLASSIC, commands_of
from iggy_protocol.codes import CommandCode
from iggy_protocol.errors import InvalidField, RemoteProtocolError
from iggy_protocol.rest import (
    NOT_FOUND,
    PUBLIC_PATHS,
    ROUTES,
    ROUTES_BY_COMMAND,
    AccessTokenShape,
    CacheMetricsShape,
    ChangePasswordBody,
    ClientDetailsShape,
    ClusterShape,
    ConsumerOffsetQuery,
    CreatePersonalAccessTokenBody,
    CreateStreamBody,
    CreateTopicBody,
    CreateUserBody,
    ErrorShape,
    LoginBody,
    LoginWithTokenBody,
    MessageBody,
    PartitioningBody,
    PollQuery,
    RawPersonalAccessTokenShape,
    RefreshTokenBody,
    Route,
    SendMessagesBody,
    StatsShape,
    StoreConsumerOffsetBody,
    StreamShape,
    UpdateTopicBody,
    decode_json,
    decode_query,
    encode_json,
    status_for,
)
from iggy_protocol.rest.routes import index_routes
from iggy_protocol.status_table import STATUSES, StatusCode
from tests.protocol.http_recordings import EXCHANGES, Exchange, exchanges, meets, named

if TYPE_CHECKING:
    from collections.abc import Callable


def is_json_reply(exchange: Exchange) -> bool:
    return exchange.is_success and exchange.route.reply not in (None, str, bytes)


def is_error_body(exchange: Exchange) -> bool:
    return not exchange.is_success and isinstance(exchange.response, dict)


def was_refused_for(reason: str) -> Callable[[Exchange], bool]:
    return lambda exchange: str(exchange.response).startswith(reason)


# --- recorded conversations ----------------------------------------------------------------------


def test_recordings_when_read_then_every_route_was_asked_with_success():
    asked = {exchange.route.name for exchange in EXCHANGES if exchange.is_success}

    newer = {"describe_options", "get_metadata_changes"}
    assert asked | newer == {route.name for route in ROUTES}
    assert not asked & newer
    # Of all 236, seven ask for a path or a method that is in no table, to see it refused.
    assert len(EXCHANGES) == 229


@exchanges(least=70, when=is_json_reply)
def test_reply_when_recorded_then_decodes_and_encodes_to_the_same_json(exchange):
    recorded = msgspec.json.encode(exchange.response)

    shape = decode_json(recorded, exchange.route.reply)

    # A field that the shape does not know would be lost on the way back.
    assert encode_json(shape) == recorded


@exchanges(least=110, when=lambda exchange: exchange.is_success)
def test_success_when_recorded_then_has_the_status_and_kind_of_body_of_its_route(exchange):
    assert exchange.status == exchange.route.success
    if exchange.route.reply is None:
        assert exchange.response == ""
    elif exchange.route.reply in (str, bytes):
        assert isinstance(exchange.response, str)
        assert exchange.response


@exchanges(least=60, when=is_error_body)
def test_error_when_recorded_then_is_what_its_status_gives(exchange):
    recorded = msgspec.json.encode(exchange.response)

    error = decode_json(recorded, ErrorShape)

    if error == NOT_FOUND:
        assert (exchange.status, error.status) == (404, StatusCode.RESOURCE_NOT_FOUND)
    else:
        assert error == ErrorShape.of(error.id, error.reason)
        assert (exchange.status, error.status) == (status_for(error.id), error.id)
    assert encode_json(error) == recorded


@exchanges(least=46, when=lambda exchange: exchange.is_success and exchange.body is not None)
def test_body_when_the_server_accepted_it_then_decodes(exchange):
    body = decode_json(exchange.raw_body, exchange.route.body)

    assert decode_json(encode_json(body), exchange.route.body) == body


@exchanges(least=20, when=was_refused_for("Failed to deserialize the JSON body"))
def test_body_when_the_server_found_another_shape_then_is_refused_as_such(exchange):
    assert exchange.status == 422
    with pytest.raises(InvalidField):
        decode_json(exchange.raw_body, exchange.route.body)


@exchanges(least=2, when=was_refused_for("Failed to parse the request body as JSON"))
def test_body_when_the_server_found_no_json_then_is_refused_as_such(exchange):
    assert exchange.status == 400
    with pytest.raises(RemoteProtocolError) as caught:
        decode_json(exchange.raw_body, exchange.route.body)
    assert not isinstance(caught.value, InvalidField)
    assert caught.value.status == StatusCode.INVALID_JSON_RESPONSE


@exchanges(least=20, when=lambda exchange: exchange.is_success and exchange.route.query)
def test_query_when_the_server_accepted_it_then_decodes(exchange):
    query = decode_query(exchange.query, exchange.route.query)

    for name, text in exchange.query.items():
        assert str(getattr(query, name)).lower() == text


@exchanges(least=3, when=was_refused_for("Failed to deserialize query string"))
def test_query_when_the_server_refused_it_then_is_refused(exchange):
    with pytest.raises(InvalidField):
        decode_query(exchange.query, exchange.route.query)


@exchanges(least=15, when=lambda exchange: "Authorization" not in exchange.headers)
def test_route_when_asked_without_a_token_then_only_public_ones_are_served(exchange):
    assert (exchange.status == 401 and exchange.response == "") != exchange.route.public


def test_public_paths_when_listed_then_are_the_seven_of_the_real_server():
    assert sorted(PUBLIC_PATHS) == [
        "/",
        "/metrics",
        "/personal-access-tokens/login",
        "/ping",
        "/ui",
        "/users/login",
        "/users/refresh-token",
    ]


# --- routes --------------------------------------------------------------------------------------


def test_routes_when_looked_up_by_command_then_all_but_three_commands_have_one():
    assert commands_of(CLASSIC) - ROUTES_BY_COMMAND.keys() == {
        CommandCode.GET_ME,
        CommandCode.JOIN_CONSUMER_GROUP,
        CommandCode.LEAVE_CONSUMER_GROUP,
    }
    for command, route in ROUTES_BY_COMMAND.items():
        assert route.operation is command
        assert route.name == command.name.lower()


def test_routes_when_a_literal_path_also_fits_a_template_then_comes_first():
    for index, template in enumerate(ROUTES):
        assert not [
            later.path
            for later in ROUTES[index + 1 :]
            if "{" not in later.path and meets(template, later.method, later.path)
        ]


@pytest.mark.parametrize(
    "route",
    [
        Route("GET", "/streams", "another"),
        Route("GET", "/another", CommandCode.GET_STREAMS),
    ],
)
def test_index_routes_when_a_place_or_a_command_comes_twice_then_refuses(route):
    with pytest.raises(ValueError, match="twice"):
        index_routes([*ROUTES, route])


def test_status_for_when_asked_for_every_status_then_only_these_are_not_400():
    statuses = {code: status_for(code) for code in STATUSES}

    assert {code for code, status in statuses.items() if status == 401} == {40, 53, 77, 78}
    assert {code for code, status in statuses.items() if status == 403} == {41}
    assert {code for code, status in statuses.items() if status == 404} == {
        *(20, 100, 1009, 2010, 3007, 3021, 4000, 5000, 5003, 5006)
    }
    assert set(statuses.values()) == {400, 401, 403, 404}


def test_error_shape_when_the_reason_is_not_given_then_tells_the_meaning():
    error = ErrorShape.of(StatusCode.STREAM_ID_NOT_FOUND)

    assert error.reason == STATUSES[1009].meaning
    assert (error.code, error.field) == ("stream_id_not_found", "stream_id")


# --- kinds of values -----------------------------------------------------------------------------


def test_body_when_a_number_has_more_than_64_bits_then_is_refused():
    topic = {
        "name": "t",
        "partitions_count": 1,
        "compression_algorithm": "none",
        "message_expiry": 2**64 - 1,
        "max_topic_size": 2**64 - 1,
    }

    assert decode_json(json.dumps(topic), CreateTopicBody).max_topic_size == 2**64 - 1
    for body, shape in (
        ({**topic, "message_expiry": 2**64}, CreateTopicBody),
        ({**topic, "max_topic_size": 2**64}, CreateTopicBody),
        ({"name": "tok", "expiry": 2**64}, CreatePersonalAccessTokenBody),
        ({"offset": 2**64}, StoreConsumerOffsetBody),
    ):
        with pytest.raises(InvalidField, match="64 bits"):
            decode_json(json.dumps(body), shape)
    with pytest.raises(InvalidField, match="64 bits"):
        decode_query({"value": str(2**64)}, PollQuery)


@pytest.mark.parametrize("name", ["offset", "timestamp", "first", "last", "next"])
def test_poll_query_when_the_kind_is_a_letter_then_the_strategy_is_written_out(name):
    assert decode_query({"kind": name}, PollQuery).strategy == name
    assert decode_query({"kind": name[0]}, PollQuery).strategy == name


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("05", 5), ("+5", 5), ("0" * 30 + "7", 7)])
def test_query_when_a_number_has_a_sign_or_zeros_in_front_then_is_read(text, number):
    query = decode_query({"count": text, "value": text, "partition_id": text}, PollQuery)

    assert (query.count, query.value, query.partition_id) == (number, number, number)


@pytest.mark.parametrize(
    "query",
    [
        *({"count": text} for text in ("", "1.0", "1e1", " 5", "-1", "5_0", "٣", "true", "9" * 21)),
        *({"auto_commit": text} for text in ("", "1", "TRUE", "True", "yes")),
        {"partition_id": "null"},
    ],
    ids=str,
)
def test_query_when_a_parameter_is_not_what_the_real_server_reads_then_is_refused(query):
    with pytest.raises(InvalidField):
        decode_query(query, PollQuery)


def test_query_when_a_partition_is_null_as_text_then_is_refused():
    assert decode_query({"partition_id": "3"}, ConsumerOffsetQuery).partition_id == 3
    with pytest.raises(InvalidField):
        decode_query({"partition_id": "null"}, ConsumerOffsetQuery)


@pytest.mark.parametrize("text", ["none", "None", "GZIP", "gzip"])
def test_topic_body_when_the_compression_is_in_any_case_then_is_read(text):
    topic = {"name": "t", "compression_algorithm": text, "message_expiry": 0, "max_topic_size": 0}

    assert decode_json(json.dumps(topic), UpdateTopicBody).compression == text.lower()
    for other in (f"{text}\n", f"x{text}", ""):
        with pytest.raises(InvalidField):
            decode_json(json.dumps({**topic, "compression_algorithm": other}), UpdateTopicBody)


def test_poll_query_when_empty_then_has_the_defaults_of_the_real_server():
    assert decode_query({}, PollQuery) == PollQuery(
        consumer_id="1", partition_id=0, kind="offset", value=0, count=10, auto_commit=False
    )


def test_stats_when_an_older_server_answers_then_the_new_fields_are_zero():
    stats = dict(named("system: stats").response)
    for name in ("threads_count", "free_disk_space", "total_disk_space"):
        del stats[name]

    shape = decode_json(msgspec.json.encode(stats), StatsShape)

    assert (shape.threads_count, shape.free_disk_space, shape.total_disk_space) == (0, "0 B", "0 B")


def test_stats_when_partitions_have_caches_then_each_tells_its_metrics():
    metrics = {"0-1-2": {"hits": 3, "misses": 1, "hit_ratio": 0.75}}
    stats = msgspec.json.encode({**named("system: stats").response, "cache_metrics": metrics})

    shape = decode_json(stats, StatsShape)

    assert shape.cache_metrics == {"0-1-2": CacheMetricsShape(hits=3, misses=1, hit_ratio=0.75)}
    assert encode_json(shape) == stats


def test_client_when_not_logged_in_then_has_no_user():
    client = {**named("consumer-groups: client details").response, "user_id": None}

    shape = decode_json(msgspec.json.encode(client), ClientDetailsShape)

    assert shape.user_id is None
    assert encode_json(shape) == msgspec.json.encode(client)


@pytest.mark.parametrize(
    "status", ["healthy", "starting", "stopping", "unreachable", "maintenance", "unknown"]
)
def test_cluster_when_a_node_follows_then_has_one_of_six_statuses(status):
    cluster = named("system: cluster").response
    node = {**cluster["nodes"][0], "role": "follower", "status": status}

    shape = decode_json(json.dumps({**cluster, "nodes": [node]}), ClusterShape)

    assert (shape.nodes[0].role, shape.nodes[0].status) == ("follower", status)


def test_reply_when_a_newer_server_says_more_then_still_decodes():
    recorded = {**named("system: stats").response, "news": True}

    assert decode_json(msgspec.json.encode(recorded), StatsShape).process_id == 630


def test_permissions_when_a_key_is_no_id_then_is_refused_with_the_place():
    user = json.loads(named("users-tokens: create with permissions").raw_body)
    (stream,) = user["permissions"]["streams"].values()
    user["permissions"]["streams"] = {"one": stream}

    with pytest.raises(InvalidField) as caught:
        decode_json(json.dumps(user), ROUTES_BY_COMMAND[CommandCode.CREATE_USER].body or object)
    assert caught.value.field == "permissions.streams"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"id":\xff}', b"nul", "\ud800"])
def test_decode_json_when_it_is_no_json_then_refuses(data):
    with pytest.raises(RemoteProtocolError, match="no JSON") as caught:
        decode_json(data, StreamShape)

    assert caught.value.have == len(data)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_decode_json_when_given_other_json_then_refuses_the_shape(value):
    with pytest.raises(InvalidField):
        decode_json(json.dumps(value), StreamShape)


def test_size_field_when_the_text_is_no_size_then_the_shape_is_refused():
    stream = {"id": 0, "created_at": 1, "name": "s", "messages_count": 0, "topics_count": 0}

    assert decode_json(json.dumps({**stream, "size": "1 KiB"}), StreamShape).size == "1 KiB"
    with pytest.raises(InvalidField) as caught:
        decode_json(json.dumps({**stream, "size": "one"}), StreamShape)
    assert caught.value.field == "size"


# --- what an official client sent ----------------------------------------------------------------

TOPICS = "/streams/s1/topics"
CLIENT_BODIES = [
    (
        "POST /users/login",
        '{"username":"iggy","password":"iggy","version":"0.10.0","context":""}',
        LoginBody("iggy", "iggy", version="0.10.0", context=""),
    ),
    ("POST /streams", '{"name":"s1"}', CreateStreamBody("s1")),
    (
        f"POST {TOPICS}",
        (
            '{"partitions_count":2,"compression_algorithm":"none","message_expiry":0,'
            '"max_topic_size":0,"replication_factor":null,"name":"t1"}'
        ),
        CreateTopicBody("t1", "none", 0, 0, None, partitions_count=2),
    ),
    (
        f"POST {TOPICS}/t1/messages",
        (
            '{"partitioning":{"kind":"partition_id","value":"AQAAAA=="},'
            '"messages":[{"id":0,"payload":"aGVsbG8="},{"id":0,"payload":"AP8="}]}'
        ),
        SendMessagesBody(
            PartitioningBody("partition_id", (1).to_bytes(4, "little")),
            (MessageBody(b"hello"), MessageBody(b"\0\xff")),
        ),
    ),
]
CLIENT_QUERIES = [
    ("0", "next", 0, True),
    ("0", "timestamp", 1_700_000_000_000_000, False),
]


@pytest.mark.parametrize(("line", "text", "body"), CLIENT_BODIES)
def test_body_when_an_official_client_wrote_it_then_decodes(line, text, body):
    (route,) = (route for route in ROUTES if meets(route, *line.split()))

    assert route.body is type(body)
    assert decode_json(text, route.body) == body


@pytest.mark.parametrize(("consumer", "kind", "value", "auto_commit"), CLIENT_QUERIES)
def test_query_when_an_official_client_wrote_it_then_decodes(consumer, kind, value, auto_commit):
    text = {
        "consumer_id": consumer,
        "partition_id": "1",
        "kind": kind,
        "value": str(value),
        "count": "10",
        "auto_commit": str(auto_commit).lower(),
    }

    query = decode_query(text, PollQuery)

    assert query == PollQuery(consumer, 1, kind, value, 10, auto_commit)


# --- secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "holder",
    [
        AccessTokenShape("secret", 1),
        ChangePasswordBody("secret", "secret"),
        CreateUserBody("user", "secret", "active"),
        LoginBody("user", "secret"),
        LoginWithTokenBody("secret"),
        RawPersonalAccessTokenShape("secret"),
        RefreshTokenBody("secret"),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_secret_when_its_holder_is_printed_then_does_not_show(holder):
    assert repr(holder) == f"{type(holder).__name__}(hidden)"
    assert b"secret" in encode_json(holder)
