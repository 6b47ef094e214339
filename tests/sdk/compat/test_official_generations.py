"""The official client with servers from 0.9 on: what it asks them, and what it makes of answers."""

from __future__ import annotations

import pytest

import iggy_protocol
from iggy_protocol import (
    V0_11,
    CommandCode,
    CreateStream,
    CreateTopic,
    DescribeOptions,
    GetMetadataChanges,
    GetTopic,
    HeaderKind,
    OptionDescription,
    OptionFlags,
    Options,
    OptionScope,
    OptionValue,
    StatusCode,
    UpdateStream,
    UpdateTopic,
    UpdateUser,
    decode_reply,
    encode_request,
)
from iggy_sdk import compat
from iggy_sdk.compat import (
    Durability,
    HeaderKey,
    HeaderValue,
    IggyExpiry,
    MetadataChangeStart,
    OptionError,
    OptionKey,
    PartitionResizePolicy,
    StreamOptions,
    TopicOptions,
)
from iggy_sdk.errors import InvalidRequestError, UnsupportedByServerError
from tests.sdk.compat.generations import TOPIC, client_at
from tests.sdk.compat.samples import PAGE
from tests.sdk.net.vsr_sessions import ALL, LATER

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


# Topics: settings become options.


@ALL
async def test_topic_when_created_with_settings_then_they_are_options_of_their_kind(dialect):
    async with client_at(dialect, CreateTopic=TOPIC) as (client, table):
        made = await client.create_topic(
            "shop",
            "orders",
            2,
            "gzip",
            IggyExpiry.NeverExpire(),
            segment_size=1 << 20,
            durability=Durability.PERSISTED,
            messages_required_to_save=5,
            preallocate_segments=True,
            options={"consumer_offset_durability": "persisted", "durability": "replicated"},
        )
        command = table.last(CreateTopic)

    kinds = {key: (value.kind, value.value) for key, value in command.options.items()}
    assert kinds == {
        "segment_size": (HeaderKind.UINT64, 1 << 20),
        "durability": (HeaderKind.STRING, "persisted"),
        "messages_required_to_save": (HeaderKind.UINT32, 5),
        "preallocate_segments": (HeaderKind.BOOL, True),
        "consumer_offset_durability": (HeaderKind.STRING, "persisted"),
    }
    assert (command.partitions_count, command.message_expiry_us) == (2, 2**64 - 1)
    assert made.options == {HeaderKey.String("durability"): HeaderValue.String("persisted")}


async def test_topic_when_the_server_is_of_0_9_then_a_later_option_is_refused_here():
    options = TopicOptions(partition_resize_policy=PartitionResizePolicy.Fixed)
    async with client_at(V0_11) as (client, table):
        with pytest.raises(UnsupportedByServerError, match="partition_resize_policy"):
            await client.create_topic("shop", "orders", options)

    assert table.count(CreateTopic) == 0


@ALL
async def test_topic_when_an_option_has_a_wrong_value_then_is_an_option_error(dialect):
    async with client_at(dialect) as (client, table):
        with pytest.raises(OptionError) as refused:
            await client.create_topic("shop", "orders", 1, segment_size=5)

    assert (refused.value.kind, refused.value.code) == ("invalid_option_value", 4042)
    assert table.count(CreateTopic) == 0


@ALL
async def test_topic_when_the_server_refuses_an_option_then_is_an_option_error(dialect):
    status = StatusCode.UNSUPPORTED_OPTION_KEY
    async with client_at(dialect, CreateTopic=status) as (client, _):
        with pytest.raises(OptionError) as refused:
            await client.create_topic("shop", "orders", 1, options={"later": "1"})

    assert (refused.value.kind, refused.value.code) == ("unsupported_option_key", 4041)
    assert isinstance(refused.value, RuntimeError)


@ALL
async def test_topic_when_it_is_refused_for_another_reason_then_is_that_error(dialect):
    async with client_at(dialect, CreateTopic=StatusCode.TOPIC_NAME_ALREADY_EXISTS) as (client, _):
        with pytest.raises(compat.IggyError) as refused:
            await client.create_topic("shop", "orders", 1)

    assert not isinstance(refused.value, OptionError)


@ALL
async def test_topic_when_updated_then_only_what_changes_is_sent(dialect):
    async with client_at(dialect, UpdateTopic=None) as (client, table):
        await client.update_topic(
            "shop", "orders", "renamed", message_expiry=IggyExpiry.NeverExpire()
        )
        command = table.last(UpdateTopic)

    assert (command.name, command.message_expiry_us) == ("renamed", 2**64 - 1)
    assert (command.compression, command.max_topic_size_bytes) == (None, None)
    assert table.count(GetTopic) == 0


async def test_topic_when_0_9_needs_a_name_then_it_is_asked_for():
    async with client_at(V0_11, UpdateTopic=None, GetTopic=TOPIC) as (client, table):
        await client.update_topic("shop", 1, message_expiry=IggyExpiry.NeverExpire())
        command = table.last(UpdateTopic)

    assert (command.name, command.message_expiry_us) == ("orders", 2**64 - 1)
    assert (command.compression, command.max_topic_size_bytes) == (None, None)


@LATER
async def test_topic_when_an_option_goes_back_then_its_key_is_sent(dialect):
    async with client_at(dialect, UpdateTopic=None) as (client, table):
        await client.update_topic(
            "shop", "orders", reset=[OptionKey.MessageExpiry], raw_reset=["later"]
        )
        command = table.last(UpdateTopic)

    assert command.reset | {"message_expiry"} == {"later", "message_expiry"}
    assert command.message_expiry_us == 0
    assert table.count(GetTopic) == 0


@LATER
async def test_purging_when_the_server_cannot_then_the_error_says_so(dialect):
    async with client_at(dialect) as (client, _):
        with pytest.raises(UnsupportedByServerError):
            await client.purge_topic("shop", "orders")


# Streams and users.


@LATER
async def test_stream_when_created_with_a_key_then_the_key_travels(dialect):
    made = iggy_protocol.Stream(
        *(1, 2, 0, 0, 0, "shop"),
        derived_options=Options({"encryption_key_source": "stream"}),
    )
    async with client_at(dialect, CreateStream=made) as (client, table):
        stream = await client.create_stream("shop", StreamOptions(encryption_key=b"k" * 32))
        command = table.last(CreateStream)

    assert command.options["encryption_key"].raw == b"k" * 32
    assert (stream.name, stream.encryption_key_source, stream.topics) == ("shop", "stream", [])


@LATER
async def test_updates_when_options_are_given_as_text_then_they_travel_as_text(dialect):
    async with client_at(dialect, UpdateStream=None, UpdateUser=None) as (client, table):
        await client.update_stream("shop", options={"later": "1"})
        await client.update_user("somebody", options={"later": "2"}, raw_reset=["other"])

    assert table.last(UpdateStream).options["later"] == OptionValue.string("1")
    assert table.last(UpdateUser).options["later"] == OptionValue.string("2")
    assert table.last(UpdateUser).reset == {"other"}


# Asking for options and changes.


@ALL
async def test_options_when_described_then_tell_kinds_and_defaults(dialect):
    flags = OptionFlags.UPDATABLE if dialect is not V0_11 else OptionFlags(0)
    size = OptionDescription("segment_size", HeaderKind.UINT64, bytes(8), "Bytes", flags)
    async with client_at(dialect, DescribeOptions=(size,)) as (client, table):
        (spec,) = await client.describe_options("topic")
        asked = table.last(DescribeOptions)

    assert asked.scope is OptionScope.TOPIC
    assert (spec.key, spec.kind, spec.description) == ("segment_size", "uint64", "Bytes")
    assert (spec.default_value, spec.updatable) == (
        HeaderValue.UnsignedInt64(0),
        dialect is not V0_11,
    )


@LATER
async def test_changes_when_asked_for_then_come_as_a_page(dialect):
    async with client_at(dialect, GetMetadataChanges=PAGE.own) as (client, table):
        page = await client.get_metadata_changes(MetadataChangeStart.Earliest(), limit=5)
        asked = table.last(GetMetadataChanges)

    assert asked.limit == 5
    assert page == PAGE


# Commands that are written already.


@ALL
async def test_binary_request_when_sent_then_is_in_the_layout_of_the_server(dialect):
    command = GetTopic("shop", "orders")
    payload = b"".join(map(bytes, encode_request(command, dialect)))  # type: ignore[arg-type]
    async with client_at(dialect, GetTopic=TOPIC) as (client, table):
        reply = await client.send_binary_request(CommandCode.GET_TOPIC, payload)

    assert table.last(GetTopic) == command
    assert decode_reply(CommandCode.GET_TOPIC, reply, dialect).name == "orders"


@ALL
@pytest.mark.parametrize("code", [CommandCode.REGISTER, CommandCode.LOGOUT_USER])
async def test_binary_request_when_it_is_a_login_then_is_refused(dialect, code):
    async with client_at(dialect) as (client, table):
        with pytest.raises(InvalidRequestError, match=str(int(code))):
            await client.send_binary_request(code, b"")

    assert table.all_heard() == []
