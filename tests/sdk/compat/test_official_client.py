"""The official client in the protocol of 0.8: its methods, and what such servers cannot."""

from __future__ import annotations

from datetime import timedelta

import pytest

from iggy_protocol import (
    CommandCode,
    CreateTopic,
    GetTopic,
    LoginUser,
    decode_reply,
)
from iggy_sdk import compat
from iggy_sdk.compat import (
    Durability,
    IggyClient,
    IggyExpiry,
    MaxTopicSize,
    MetadataChangeGroup,
    MetadataChangeStart,
    OptionKey,
    PartitionResizePolicy,
    StreamOptions,
    TopicOptions,
    UserOptions,
)
from iggy_sdk.errors import (
    ConfigurationError,
    InvalidRequestError,
    TopicNotFoundError,
    UnsupportedByServerError,
)
from iggy_sdk.hooks import Hook
from iggy_sdk.options import resolve_options
from iggy_sdk.testing.server import BlockingConnection
from tests.server.net.ws_peer import listening_address
from tests.server.running import RunningServer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

HOUR = timedelta(hours=1)


@pytest.fixture
async def client(iggy_server):
    opened = IggyClient.from_connection_string(
        "{}?protocol=0.8".format(iggy_server.url.partition("?")[0])
    )
    await opened.connect()
    await opened.create_stream("s")
    yield opened
    await opened.shutdown()


def settings_of(topic):
    return (
        topic.partitions_count,
        topic.compression_algorithm,
        topic.message_expiry,
        topic.max_topic_size,
    )


# Creating topics in the order of each version.


async def test_topic_when_created_in_each_order_then_has_the_same_settings(client):
    expiry, size = IggyExpiry.ExpireDuration(HOUR), MaxTopicSize.Custom(1 << 31)
    await client.create_topic("s", "0.8", 2, "gzip", 1, HOUR, 1 << 31)
    await client.create_topic("s", "0.9", 2, "gzip", expiry, size)
    options = TopicOptions(
        partitions_count=2,
        compression_algorithm="gzip",
        message_expiry=expiry,
        max_topic_size=size,
    )
    await client.create_topic("s", "third", options)
    await client.create_topic("s", "named", options=options)
    await client.create_topic("s", "factor", 2, "gzip", replication_factor=1, message_expiry=HOUR)

    topics = [await client.get_topic("s", name) for name in ("0.8", "0.9", "third", "named")]
    assert {settings_of(topic) for topic in topics} == {(2, "gzip", expiry, size)}
    factor = await client.get_topic("s", "factor")
    assert (factor.own.replication_factor, factor.message_expiry) == (1, expiry)


async def test_topic_when_it_has_no_settings_then_has_one_partition(client):
    made = await client.create_topic("s", "t")

    assert (made.name, made.partitions_count) == ("t", 1)


@pytest.mark.parametrize(
    "arguments", [("none", 3600), ("none", IggyExpiry.NeverExpire(), HOUR), ("none", 1, None, 5)]
)
async def test_topic_when_the_order_is_that_of_no_version_then_is_refused(client, arguments):
    with pytest.raises(TypeError):
        await client.create_topic("s", "t", 1, *arguments)

    assert await client.get_topics("s") == []


async def test_topic_when_updated_then_what_is_left_out_stays(client):
    expiry, size = IggyExpiry.ExpireDuration(HOUR), MaxTopicSize.Custom(1 << 31)
    await client.create_topic("s", "t", 3, "gzip", expiry, size)

    await client.update_topic("s", "t", "renamed")
    renamed = await client.get_topic("s", "renamed")
    await client.update_topic("s", "renamed", message_expiry=IggyExpiry.NeverExpire())
    kept = await client.get_topic("s", "renamed")
    await client.update_topic("s", "renamed", "renamed", "none", expiry, MaxTopicSize.Unlimited())
    changed = await client.get_topic("s", "renamed")

    assert settings_of(renamed) == (3, "gzip", expiry, size)
    assert settings_of(kept) == (3, "gzip", IggyExpiry.NeverExpire(), size)
    assert settings_of(changed) == (3, "none", expiry, MaxTopicSize.Unlimited())


async def test_topic_when_it_is_missing_then_the_update_says_so(client):
    with pytest.raises(TopicNotFoundError):
        await client.update_topic("s", "missing", "new")


class FasterClient(Hook):
    """Makes the topic right after another client has seen that there is none."""

    def __init__(self, server):
        self.server = server
        self.replies = []

    def after_request(self, command, *, reply=None, error=None, seconds=0.0):
        if isinstance(command, GetTopic) and reply is None:
            self.replies.append(reply)
            with BlockingConnection(self.server.address) as other:
                other.request(LoginUser("iggy", "iggy"))
                other.request(CreateTopic("s", "t", 2))


async def test_topic_when_another_client_is_faster_then_the_producer_takes_it(client, iggy_server):
    hook = FasterClient(iggy_server)
    options = resolve_options(iggy_server.url, hooks=[hook], protocol="0.8")
    async with IggyClient.from_options(options) as late:
        producer = await late.producer("s", "t")
        await producer.send_one(compat.SendMessage("x"))
        await producer.shutdown()

    assert hook.replies == [None]
    topic = await client.get_topic("s", "t")
    assert (topic.messages_count, topic.partitions_count) == (1, 2)


# What a server of 0.8 does not have: nothing is sent, and the error says why.

RAW = {"later": "1"}
OLDER = r"protocol of (the server|Apache Iggy 0\.8)"
OF_0_9 = {
    "segment size": lambda c: c.create_topic("s", "t", 1, segment_size=1 << 20),
    "durability": lambda c: c.create_topic("s", "t", 1, durability=Durability.PERSISTED),
    "offsets": lambda c: c.create_topic(
        "s", "t", 1, consumer_offset_durability=Durability.REPLICATED
    ),
    "messages": lambda c: c.create_topic("s", "t", 1, messages_required_to_save=5),
    "size": lambda c: c.create_topic("s", "t", 1, size_of_messages_required_to_save=5),
    "preallocation": lambda c: c.create_topic("s", "t", 1, preallocate_segments=True),
    "raw": lambda c: c.create_topic("s", "t", 1, options=RAW),
    "resizing": lambda c: c.create_topic(
        "s", "t", TopicOptions(partition_resize_policy=PartitionResizePolicy.Fixed)
    ),
    "producer": lambda c: c.producer("s", "t", topic_durability=Durability.PERSISTED),
    "topic": lambda c: c.update_topic("s", "kept", "new", options=RAW),
    "topic reset": lambda c: c.update_topic("s", "kept", "new", reset=[OptionKey.MessageExpiry]),
    "stream": lambda c: c.update_stream("s", "new", RAW),
    "stream reset": lambda c: c.update_stream("s", "new", raw_reset=["later"]),
    "no name": lambda c: c.update_stream("s"),
    "stream key": lambda c: c.create_stream("t", StreamOptions(encryption_key=b"k" * 32)),
    "user": lambda c: c.create_user("somebody", "secret1", options=UserOptions(raw=RAW)),
    "user update": lambda c: c.update_user("iggy", options=RAW),
    "catalog": lambda c: c.describe_options("topic"),
    "log": lambda c: c.get_metadata_changes(
        MetadataChangeStart.Earliest(), groups=[MetadataChangeGroup.Topics], limit=5
    ),
}


@pytest.mark.parametrize("what", OF_0_9)
async def test_option_when_the_server_is_older_then_the_error_says_so_and_nothing_changes(
    client, what
):
    await client.create_topic("s", "kept")

    with pytest.raises(UnsupportedByServerError, match=OLDER):
        await OF_0_9[what](client)

    assert [stream.name for stream in await client.get_streams()] == ["s"]
    assert [topic.name for topic in await client.get_topics("s")] == ["kept"]
    assert [user.username for user in await client.get_users()] == ["iggy"]


async def test_options_when_the_scope_is_unknown_then_nobody_is_asked(client):
    with pytest.raises(ConfigurationError, match="topic, stream, user"):
        await client.describe_options("cluster")


# Commands that are written already.


async def test_binary_request_when_sent_then_the_reply_comes_as_it_is_written(client):
    reply = await client.send_binary_request(CommandCode.GET_STREAMS, b"")

    (stream,) = decode_reply(CommandCode.GET_STREAMS, reply)
    assert stream.name == "s"
    assert await client.send_binary_request(CommandCode.PING, b"") == b""


@pytest.mark.parametrize(
    ("code", "payload"),
    [
        (CommandCode.LOGOUT_USER, b""),
        (CommandCode.GET_STREAM, b"\1"),
        (65_000, b""),
    ],
)
async def test_binary_request_when_it_is_none_or_a_login_then_is_refused(client, code, payload):
    with pytest.raises(InvalidRequestError, match=str(int(code))):
        await client.send_binary_request(code, payload)

    assert await client.get_streams()


# Positions.


async def test_position_when_stored_then_is_the_offset_of_the_message(client):
    await client.create_topic("s", "t")
    batch = [compat.SendMessage(text) for text in "abc"]
    await client.send_messages("s", "t", 0, batch)
    consumer = await client.consumer_group("g", "s", "t", auto_commit=compat.AutoCommit.Disabled())
    messages = consumer.iter_messages()
    await anext(messages)
    position = (await anext(messages)).position()
    await consumer.store_position(position)
    stored = consumer.get_last_stored_offset(0)
    await consumer.shutdown()
    again = await client.poll_messages(
        "s",
        "t",
        consumer=compat.Consumer.Single(1),
        polling_strategy=compat.PollingStrategy.Offset(position.offset),
        count=1,
        auto_commit=False,
        context=position.context,
    )

    assert (position.partition_id, position.offset, stored) == (0, 1, 1)
    assert position.context == compat.PartitionContext(0, 0, 0)
    assert [message.payload() for message in again] == [b"b"]


# Both spellings over one connection.


async def test_client_when_used_in_both_spellings_then_has_one_connection(client):
    made = await client.own.create_topic("s", "t", partitions_count=2, exist_ok=True)
    again = await client.own.create_topic("s", "t", exist_ok=True)
    seen = await client.get_topic("s", "t")

    assert (seen.own.id, again.partitions_count) == (made.id, 2)
    assert client.own.epoch == client.epoch == 1
    assert (await client.own.get_me()).client_id == (await client.get_me()).client_id


async def test_client_when_logged_in_by_hand_then_its_groups_log_in_as_well(iggy_server):
    host, port = iggy_server.address
    async with IggyClient(f"{host}:{port}") as client:
        identity = await client.login_user("iggy", "iggy")
        await client.create_stream("s")
        await client.create_topic("s", "t")
        await client.send_messages("s", "t", 0, [compat.SendMessage("x")])
        consumer = await client.consumer_group("g", "s", "t")
        message = await anext(consumer.iter_messages())
        await consumer.shutdown()

    assert (identity.user_id, identity.access_token) == (0, None)
    assert message.payload() == b"x"
    assert not client.is_connected


async def test_client_when_it_comes_over_http_then_updates_keep_settings(tmp_path):
    with RunningServer(tmp_path) as server:
        host, port = listening_address(server, "http")
        async with IggyClient(compat.HttpConfig(api_url=f"http://{host}:{port}")) as client:
            await client.login_user("iggy", "iggy")
            await client.create_stream("s")
            await client.create_topic("s", "t", 1, "gzip", IggyExpiry.ExpireDuration(HOUR))
            await client.update_topic("s", "t", "new")
            topic = await client.get_topic("s", "new")
            assert topic is not None
            with pytest.raises(UnsupportedByServerError):
                await client.create_topic("s", "u", 1, segment_size=1 << 20)

    assert (topic.compression_algorithm, topic.message_expiry) == (
        "gzip",
        IggyExpiry.ExpireDuration(HOUR),
    )
