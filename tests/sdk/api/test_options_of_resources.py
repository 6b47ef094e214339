"""Options of streams and topics, and updates that keep something: what is sent by generation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from iggy_protocol import (
    CLASSIC,
    SERVER_DEFAULT,
    V0_11,
    V0_12_0,
    V0_12_2,
    ChangesStart,
    CompressionAlgorithm,
    CreateTopic,
    HeaderKind,
    MetadataCursor,
    MetadataGroup,
    NotInDialect,
    OptionValue,
    UpdateTopic,
    encode_request,
)
from iggy_sdk.errors import InvalidRequestError, UnsupportedByServerError, error_from_protocol
from iggy_sdk.families.topic_settings import TopicOptions
from tests.sdk.api.recording_client import RecordingClient

pytestmark = pytest.mark.anyio

LATER = pytest.mark.parametrize("dialect", [V0_11, V0_12_0, V0_12_2], ids=str)


def client_of(dialect: Any, answer: Any = None) -> RecordingClient:
    client = RecordingClient({CreateTopic: answer})
    client.spoken = dialect
    return client


@LATER
async def test_topic_when_created_with_options_then_they_have_the_kinds_of_the_table(dialect):
    client = client_of(dialect)
    options = TopicOptions(
        durability="persisted", segment_size="128 MiB", preallocate_segments=True
    )

    await client.create_topic("shop", "orders", options=options)

    (command,) = client.asked
    assert {key: value.kind for key, value in command.options.items()} == {
        "durability": HeaderKind.STRING,
        "segment_size": HeaderKind.UINT64,
        "preallocate_segments": HeaderKind.BOOL,
    }
    assert command.options["segment_size"].value == 128 * 2**20
    assert encode_request(command, dialect)


@pytest.mark.parametrize(
    ("dialect", "given"),
    [
        (CLASSIC, TopicOptions(durability="replicated")),
        (CLASSIC, {"segment_size": 2**20}),
        (V0_11, TopicOptions(partition_resize_policy="fixed")),
        (V0_12_0, {"replication_factor": 3}),
    ],
)
async def test_topic_when_the_server_lacks_an_option_then_nothing_is_sent(dialect, given):
    client = client_of(dialect)

    with pytest.raises(UnsupportedByServerError, match=dialect.generation):
        await client.create_topic("shop", "orders", options=given)

    assert client.asked == []


@LATER
async def test_topic_when_an_option_cannot_have_its_value_then_nothing_is_sent(dialect):
    client = client_of(dialect)

    with pytest.raises(InvalidRequestError, match="segment_size"):
        await client.create_topic("shop", "orders", options=TopicOptions(segment_size=1000))

    assert client.asked == []


@LATER
async def test_topic_when_an_option_is_newer_than_this_client_then_it_is_sent_as_given(dialect):
    client = client_of(dialect)

    await client.create_topic("shop", "orders", options={"colour": "blue"})

    (command,) = client.asked
    assert command.options["colour"] == OptionValue.string("blue")


@pytest.mark.parametrize("dialect", [CLASSIC, V0_11, V0_12_0, V0_12_2], ids=str)
async def test_topic_when_created_without_options_then_has_none(dialect):
    client = client_of(dialect)

    await client.create_topic("shop", "orders", options=TopicOptions())

    assert not client.asked[0].options


@LATER
async def test_update_when_settings_are_kept_then_they_are_left_out(dialect):
    client = client_of(dialect)

    await client.update_topic("shop", "orders", "o", message_expiry="keep", max_topic_size="keep")

    (command,) = client.asked
    assert (command.message_expiry_us, command.max_topic_size_bytes) == (None, None)
    assert encode_request(command, dialect)


async def test_update_when_a_server_of_0_8_is_to_keep_something_then_it_cannot():
    client = client_of(CLASSIC)
    await client.update_topic("shop", "orders", "o", message_expiry="keep")

    with pytest.raises(NotInDialect, match="leave this field") as caught:
        encode_request(client.asked[0], CLASSIC)
    assert isinstance(error_from_protocol(caught.value), UnsupportedByServerError)


@pytest.mark.parametrize(
    ("dialect", "sent"),
    [
        (CLASSIC, CompressionAlgorithm.NONE),
        (V0_11, CompressionAlgorithm.NONE),
        (V0_12_0, None),
        (V0_12_2, None),
    ],
)
async def test_update_when_compression_is_left_out_then_it_is_overwritten_where_it_can_be(
    dialect, sent
):
    client = client_of(dialect)

    await client.update_topic("shop", "orders", "o")

    assert client.asked == [
        UpdateTopic("shop", "orders", "o", sent, SERVER_DEFAULT, SERVER_DEFAULT, SERVER_DEFAULT)
    ]


async def test_stream_when_created_with_options_then_they_are_sent():
    client = client_of(V0_12_2)
    with pytest.raises(AttributeError):  # the recording client has no answer
        await client.create_stream("shop", options={"encryption_key": bytes(32)})

    assert client.asked[0].options["encryption_key"].raw == bytes(32)


async def test_changes_when_asked_after_a_cursor_then_the_start_follows_from_it():
    client = client_of(V0_12_2)
    cursor = MetadataCursor(op=7)
    since = datetime(2026, 1, 1, tzinfo=UTC)

    await client.get_metadata_changes(
        cursor=cursor, since=since, groups=[MetadataGroup.TOPICS], limit=5
    )

    (command,) = client.asked
    assert command.start is ChangesStart.AFTER_CURSOR
    assert command.cursor == cursor
    assert command.since_us == int(since.timestamp()) * 1_000_000
    assert (command.groups, command.limit) == ((MetadataGroup.TOPICS,), 5)
