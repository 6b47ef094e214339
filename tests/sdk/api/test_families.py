"""The verbs: one for each command, with the arguments where the wire wants them."""

from __future__ import annotations

import inspect
import math
import re
from datetime import timedelta
from typing import Any

import pytest

from iggy_protocol import (
    CLASSIC,
    COMMANDS,
    NEVER_EXPIRES,
    SERVER_DEFAULT,
    UNLIMITED,
    ClientDetails,
    Command,
    CompressionAlgorithm,
    ConsumerGroup,
    ConsumerGroupDetails,
    ConsumerIdentity,
    CreateConsumerGroup,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DescribeOptions,
    GetClient,
    GetConsumerGroup,
    GetConsumerOffset,
    GetMetadataChanges,
    GetStream,
    GetTopic,
    GetUser,
    OptionScope,
    RawPersonalAccessToken,
    Stream,
    StreamDetails,
    SyncConsumerGroup,
    TopicDetails,
    Transport,
    UpdateTopic,
    commands_of,
)
from iggy_sdk.errors import (
    AlreadyExistsError,
    ConfigurationError,
    ConsumerGroupExistsError,
    ConsumerGroupNotFoundError,
    InvalidRequestError,
    NotFoundError,
    StreamExistsError,
    StreamNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
    error_for_status,
)
from iggy_sdk.families import AllFamilies
from tests.sdk.api.polling import polled
from tests.sdk.api.recording_client import RecordingClient

pytestmark = pytest.mark.anyio

CLASSIC_SPECS = [COMMANDS[code] for code in sorted(commands_of(CLASSIC))]
LATER_SPECS = [
    COMMANDS[command.CODE] for command in (DescribeOptions, GetMetadataChanges, SyncConsumerGroup)
]
SPECS = [*CLASSIC_SPECS, *LATER_SPECS]
VERB = re.compile(r"(?<!^)(?=[A-Z])")
STREAM = Stream(1, 2, 0, 0, 0, "shop")
STREAM_DETAILS = StreamDetails(1, 2, 0, 0, 0, "shop")
TOPIC = TopicDetails(1, 2, 0, 3, CompressionAlgorithm.NONE, 4, 1, 0, 0, "orders")
GROUP = ConsumerGroupDetails(1, 3, 0, "billing")


def verb_of(command: type[Command[Any]]) -> str:
    """Name the verb of a command: CreateStream is create_stream."""
    return VERB.sub("_", command.__name__).lower()


async def test_verbs_when_compared_with_the_commands_then_are_complete():
    verbs = {verb_of(spec.command) for spec in SPECS}
    methods = {
        name
        for name, member in inspect.getmembers(AllFamilies, inspect.iscoroutinefunction)
        if not name.startswith("_") and name != "request"
    }

    assert methods == verbs
    assert len(methods) == 50


@pytest.mark.parametrize("verb", sorted(verb_of(spec.command) for spec in SPECS))
async def test_verb_when_looked_at_then_takes_a_timeout_and_is_documented(verb):
    method = getattr(AllFamilies, verb)
    parameters = inspect.signature(method).parameters

    assert parameters["timeout"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["timeout"].default is None
    assert method.__doc__


EXAMPLES: dict[str, Any] = {
    "consumer": ConsumerIdentity.single(1),
    "messages": [b"x"],
    "offset": 1,
    "count": 1,
    "client_id": 1,
    "partition_id": 0,
    "partitions_count": 1,
    "segments_count": 1,
    "permissions": None,
    "scope": OptionScope.TOPIC,
}
REPLIES: dict[str, Any] = {
    "get_streams": (),
    "get_topics": (),
    "get_users": (),
    "get_clients": (),
    "get_consumer_groups": (),
    "get_personal_access_tokens": (),
    "describe_options": (),
    "create_stream": STREAM,
    "create_consumer_group": ConsumerGroup(1, 3, 0, "billing"),
    "poll_messages": polled([b"x"]),
}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.command.__name__)
async def test_verb_when_called_then_asks_with_its_own_command_and_timeout(spec):
    verb = verb_of(spec.command)
    recording_client = RecordingClient({spec.command: REPLIES.get(verb)})
    method = getattr(recording_client, verb)
    arguments = {
        name: EXAMPLES.get(name, "name")
        for name, parameter in inspect.signature(method).parameters.items()
        if parameter.default is inspect.Parameter.empty
    }

    await method(**arguments, timeout=4)

    assert [type(command) for command in recording_client.asked] == [spec.command]
    assert recording_client.timeouts == [4]


@pytest.mark.parametrize(
    ("call", "command", "error", "kind"),
    [
        (
            lambda recording_client, **way: recording_client.get_stream("x", **way),
            GetStream,
            None,
            StreamNotFoundError,
        ),
        (
            lambda recording_client, **way: recording_client.get_user("x", **way),
            GetUser,
            None,
            NotFoundError,
        ),
        (
            lambda recording_client, **way: recording_client.get_client(7, **way),
            GetClient,
            None,
            NotFoundError,
        ),
        (
            lambda recording_client, **way: recording_client.get_client(7, **way),
            GetClient,
            error_for_status(100),
            NotFoundError,
        ),
        (
            lambda recording_client, **way: recording_client.get_consumer_offset(
                "x", "y", consumer=ConsumerIdentity.group("g"), **way
            ),
            GetConsumerOffset,
            None,
            NotFoundError,
        ),
        (
            lambda recording_client, **way: recording_client.get_topic("x", "y", **way),
            GetTopic,
            None,
            StreamNotFoundError,
        ),
        (
            lambda recording_client, **way: recording_client.get_consumer_group(
                "x", "y", "z", **way
            ),
            GetConsumerGroup,
            None,
            StreamNotFoundError,
        ),
    ],
)
async def test_get_when_it_is_missing_then_returns_none_or_raises_if_required(
    call, command, error, kind
):
    recording_client = RecordingClient({command: error})

    assert await call(recording_client) is None
    with pytest.raises(kind) as caught:
        await call(recording_client, required=True)
    assert type(caught.value) is kind


async def test_get_when_the_stream_is_there_then_blames_what_is_really_missing():
    recording_client = RecordingClient({GetStream: STREAM_DETAILS})
    with pytest.raises(TopicNotFoundError):
        await recording_client.get_topic("shop", "x", required=True)
    with pytest.raises(TopicNotFoundError):
        await recording_client.get_consumer_group("shop", "x", "y", required=True)

    recording_client.answers[GetTopic] = TOPIC
    with pytest.raises(ConsumerGroupNotFoundError):
        await recording_client.get_consumer_group("shop", "orders", "y", required=True)


async def test_get_client_when_found_then_returns_it():
    details = ClientDetails(7, 0, Transport.TCP, "host:1", 0)

    assert await RecordingClient({GetClient: details}).get_client(7) is details


@pytest.mark.parametrize(
    ("call", "create", "error", "get", "details"),
    [
        (
            lambda recording_client, **way: recording_client.create_stream("shop", **way),
            CreateStream,
            StreamExistsError(),
            GetStream,
            STREAM_DETAILS,
        ),
        (
            lambda recording_client, **way: recording_client.create_topic("shop", "orders", **way),
            CreateTopic,
            TopicExistsError(),
            GetTopic,
            TOPIC,
        ),
        (
            lambda recording_client, **way: recording_client.create_consumer_group(
                "shop", "orders", "billing", **way
            ),
            CreateConsumerGroup,
            ConsumerGroupExistsError(),
            GetConsumerGroup,
            GROUP,
        ),
        (
            lambda recording_client, **way: recording_client.create_user("user", "password", **way),
            CreateUser,
            AlreadyExistsError(),
            GetUser,
            "the user",
        ),
    ],
)
async def test_create_when_it_exists_then_returns_it_only_if_that_is_ok(
    call, create, error, get, details
):
    recording_client = RecordingClient({create: error, get: details})

    assert await call(recording_client, exist_ok=True) is details
    with pytest.raises(type(error)):
        await call(recording_client)

    # Deleted between the two requests: the first error still says it best.
    recording_client.answers[get] = None
    with pytest.raises(type(error)):
        await call(recording_client, exist_ok=True)


async def test_create_when_new_then_returns_details():
    recording_client = RecordingClient(
        {CreateStream: STREAM, CreateConsumerGroup: ConsumerGroup(1, 3, 0, "billing")}
    )

    assert await recording_client.create_stream("shop") == STREAM_DETAILS
    assert await recording_client.create_consumer_group("shop", "orders", "billing") == GROUP


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        (None, SERVER_DEFAULT),
        (1.5, 1_500_000),
        (60, 60_000_000),
        (timedelta(minutes=1), 60_000_000),
        ("never", NEVER_EXPIRES),
        (math.inf, NEVER_EXPIRES),
    ],
)
async def test_topic_when_an_expiry_is_given_then_writes_microseconds(given, micros):
    recording_client = RecordingClient({CreateTopic: TOPIC})

    await recording_client.create_topic("shop", "orders", message_expiry=given)
    await recording_client.update_topic("shop", "orders", "orders", message_expiry=given)

    assert [command.message_expiry_us for command in recording_client.asked] == [micros, micros]


@pytest.mark.parametrize(
    ("given", "count"),
    [
        (None, SERVER_DEFAULT),
        (1000, 1000),
        ("1 GB", 10**9),
        ("1GiB", 1 << 30),
        ("unlimited", UNLIMITED),
    ],
)
async def test_topic_when_a_size_is_given_then_writes_bytes(given, count):
    recording_client = RecordingClient({CreateTopic: TOPIC})

    await recording_client.create_topic("shop", "orders", max_topic_size=given)

    assert [command.max_topic_size_bytes for command in recording_client.asked] == [count]


async def test_topic_when_all_settings_are_given_then_they_are_in_their_places():
    recording_client = RecordingClient({CreateTopic: TOPIC})

    await recording_client.create_topic(
        "shop", "orders", 3, compression_algorithm="gzip", replication_factor=2
    )
    await recording_client.update_topic(
        1, 2, "new", compression_algorithm=CompressionAlgorithm.NONE
    )

    assert recording_client.asked == [
        CreateTopic("shop", "orders", 3, CompressionAlgorithm.GZIP, replication_factor=2),
        UpdateTopic(1, 2, "new"),
    ]


@pytest.mark.parametrize(
    "setting",
    [
        {"message_expiry": 0},
        {"message_expiry": timedelta(0)},
        {"message_expiry": -1},
        {"message_expiry": "soon"},
        {"max_topic_size": 0},
        {"max_topic_size": -5},
        {"max_topic_size": "huge"},
        {"max_topic_size": True},
        {"max_topic_size": 2**64},
        {"compression_algorithm": "zstd"},
    ],
)
async def test_topic_when_a_setting_is_unusable_then_refuses_before_asking(setting):
    recording_client = RecordingClient()

    with pytest.raises((InvalidRequestError, ConfigurationError)) as caught:
        await recording_client.create_topic("shop", "orders", **setting)

    assert isinstance(caught.value, ValueError)
    assert recording_client.asked == []


@pytest.mark.parametrize(
    ("given", "micros"), [(None, NEVER_EXPIRES), ("never", NEVER_EXPIRES), (60, 60_000_000)]
)
async def test_token_when_an_expiry_is_given_then_writes_microseconds(given, micros):
    recording_client = RecordingClient(
        {CreatePersonalAccessToken: RawPersonalAccessToken("secret")}
    )

    await recording_client.create_personal_access_token("token", expiry=given)

    assert recording_client.asked == [CreatePersonalAccessToken("token", micros)]
