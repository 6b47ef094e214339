"""The official names beyond those of the scenarios: producers, headers, configurations, admin."""

from __future__ import annotations

from datetime import timedelta

import pytest

import iggy_protocol
from iggy_sdk import compat
from iggy_sdk.compat import (
    AutoCommit,
    AutoCommitAfter,
    AutoCommitWhen,
    AutoLogin,
    BackgroundProducerConfig,
    BackpressureMode,
    Consumer,
    DirectProducerConfig,
    HeaderKey,
    HeaderValue,
    IggyClient,
    IggyExpiry,
    MaxTopicSize,
    Partitioning,
    PollingStrategy,
    ProducerSendError,
    SendMessage,
    TcpConfig,
    TcpReconnectionConfig,
)
from iggy_sdk.consumer import AutoCommit as OwnAutoCommit
from iggy_sdk.errors import BufferFullError, PartitionNotFoundError, StreamNotFoundError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

SECOND = timedelta(seconds=1)


@pytest.fixture
async def client(iggy_server):
    # Later servers cannot purge, which is tested here as well.
    opened = IggyClient.from_connection_string(
        "{}?protocol=0.8".format(iggy_server.url.partition("?")[0])
    )
    await opened.connect()
    yield opened
    await opened.shutdown()


async def read(client, stream="s", topic="t", partition_id=0):
    return await client.poll_messages(
        stream, topic, partition_id, PollingStrategy.First(), 100, False
    )


async def test_producer_when_direct_then_creates_the_topic_and_sends(client):
    producer = await client.producer(
        "s",
        "t",
        partitioning=Partitioning.partition_id(1),
        mode=DirectProducerConfig(batch_length=10, linger_time=timedelta(0)),
        topic_partitions_count=3,
        topic_message_expiry=IggyExpiry.NeverExpire(),
        topic_max_size=MaxTopicSize.Unlimited(),
        send_retries=2,
        send_retry_interval=timedelta(milliseconds=10),
    )
    await producer.send([SendMessage("one"), SendMessage(b"two", id=7)])
    await producer.send_one(SendMessage("three", user_headers={"kind": "test"}))
    await producer.send_with_partitioning([SendMessage("four")], Partitioning.partition_id(2))
    await producer.send_to("s", "t", [SendMessage("five")], Partitioning.messages_key("k"))
    await producer.shutdown()

    messages = await read(client, partition_id=1)
    assert [message.payload() for message in messages[:3]] == [b"one", b"two", b"three"]
    assert messages[1].id() == 7
    assert messages[2].user_headers().to_scalar_dict() == {"kind": "test"}
    assert messages[0].origin_timestamp() <= messages[0].timestamp()
    topic = await client.get_topic(stream_id="s", topic_id="t")
    assert (topic.partitions_count, topic.messages_count) == (3, 5)
    assert topic.message_expiry == IggyExpiry.NeverExpire()


async def test_producer_when_in_the_background_then_leaving_the_block_delivers(client):
    mode = BackgroundProducerConfig(
        linger_time=timedelta(seconds=30),
        batch_length=0,
        max_buffer_size=1 << 20,
        failure_mode=BackpressureMode.block_with_timeout(SECOND),
        max_in_flight=1,
    )
    async with await client.producer("s", "t", mode=mode) as producer:
        await producer.send([SendMessage(str(number)) for number in range(100)])

    assert len(await read(client)) == 100


async def test_producer_when_its_buffer_is_full_then_fails_as_told(client):
    mode = BackgroundProducerConfig(
        linger_time=timedelta(seconds=30),
        max_buffer_size=200,
        failure_mode=BackpressureMode.fail_immediately(),
    )
    async with await client.producer("s", "t", mode=mode) as producer:
        await producer.send_one(SendMessage("x" * 50))
        with pytest.raises(BufferFullError):
            await producer.send_one(SendMessage("x" * 100))


async def test_producer_when_a_send_fails_then_the_error_has_what_was_not_sent(client):
    producer = await client.producer("s", "t", send_retries=0)
    message = SendMessage("lost")

    with pytest.raises(ProducerSendError) as failed:
        await producer.send_with_partitioning([message], Partitioning.partition_id(9))

    assert failed.value.failed == [message]
    assert (failed.value.committed, failed.value.uncertain) == ([], 0)
    assert isinstance(failed.value.__cause__, PartitionNotFoundError)
    assert failed.value.cause == str(failed.value.__cause__)
    await producer.shutdown()


async def test_consumer_when_iterated_then_after_modes_are_honoured(client):
    await client.producer("s", "t")
    await client.send_messages("s", "t", 0, [SendMessage(str(number)) for number in range(5)])
    consumer = await client.consumer_group(
        "g",
        "s",
        "t",
        polling_strategy=PollingStrategy.First(),
        auto_commit=AutoCommit.After(AutoCommitAfter.ConsumingEachMessage()),
    )
    async for message in consumer.iter_messages():
        if message.offset() == 3:
            break

    assert (consumer.partition_id(), consumer.get_last_consumed_offset(0)) == (0, 3)
    await consumer.shutdown()
    stored = await client.get_consumer_offset("s", "t", consumer=Consumer.Group("g"))
    assert stored is not None
    assert stored.stored_offset == 2


async def test_admin_when_called_by_official_argument_names_then_works(client):
    await client.create_stream(name="s")
    await client.create_topic("s", "t", 1, "none", 1, timedelta(hours=1), 1 << 30)
    await client.update_stream(stream_id="s", name="s2")
    await client.update_topic(stream_id="s2", topic_id="t", name="t2")
    await client.create_partitions(stream_id="s2", topic_id="t2", partitions_count=2)
    await client.delete_partitions(stream_id="s2", topic_id="t2", partitions_count=1)
    await client.create_consumer_group(stream_id="s2", topic_id="t2", name="g")
    group = await client.get_consumer_group(stream_id="s2", topic_id="t2", group_id="g")
    await client.join_consumer_group(stream_id="s2", topic_id="t2", group_id="g")
    await client.leave_consumer_group(stream_id="s2", topic_id="t2", group_id="g")
    groups = await client.get_consumer_groups(stream_id="s2", topic_id="t2")
    await client.delete_consumer_group(stream_id="s2", topic_id="t2", group_id="g")
    topics = await client.get_topics(stream_id="s2")
    await client.purge_topic(stream_id="s2", topic_id="t2")
    await client.delete_topic(stream_id="s2", topic_id="t2")
    await client.purge_stream(stream_id="s2")
    await client.delete_stream(stream_id="s2")

    assert (group.name, len(groups)) == ("g", 1)
    assert [(topic.name, topic.partitions_count) for topic in topics] == [("t2", 2)]


async def test_users_when_managed_by_official_argument_names_then_works(client):
    await client.create_user("somebody", "secret1")
    await client.update_user(user_id="somebody", username="else")
    await client.change_password(user_id="else", current_password="secret1", new_password="secret2")
    await client.update_permissions(user_id="else", permissions=None)
    user = await client.get_user(user_id="else")
    await client.delete_user(user_id="else")

    assert user.username == "else"
    assert await client.get_user(user_id="else") is None


async def test_client_when_made_from_a_config_then_logs_in_by_itself(iggy_server):
    host, port = iggy_server.address
    config = TcpConfig(
        server_address=f"{host}:{port}",
        auto_login=AutoLogin.username_password("iggy", "iggy"),
        reconnection=TcpReconnectionConfig(max_retries=1, interval=SECOND),
        heartbeat_interval=SECOND,
    )
    client = IggyClient(config)
    await client.connect()

    assert await client.get_streams() == []
    await client.shutdown()


async def test_errors_when_raised_then_are_those_that_migrants_catch(client):
    with pytest.raises(RuntimeError, match="StreamIdNotFound") as error:
        await client.send_messages("missing", "t", 0, [SendMessage("x")])

    assert isinstance(error.value, StreamNotFoundError)


@pytest.mark.parametrize(
    ("official", "own"),
    [
        (AutoCommit.Disabled(), OwnAutoCommit.disabled()),
        (AutoCommit.Interval(SECOND), OwnAutoCommit.interval(1.0)),
        (
            AutoCommit.IntervalOrWhen(SECOND, AutoCommitWhen.PollingMessages()),
            OwnAutoCommit.interval(1.0, or_=OwnAutoCommit.when_polling()),
        ),
        (
            AutoCommit.IntervalOrAfter(SECOND, AutoCommitAfter.ConsumingAllMessages()),
            OwnAutoCommit.interval(1.0, or_=OwnAutoCommit.after_all()),
        ),
        (AutoCommit.When(AutoCommitWhen.ConsumingEachMessage()), OwnAutoCommit.when_each()),
        (AutoCommit.When(AutoCommitWhen.ConsumingAllMessages()), OwnAutoCommit.when_all()),
        (
            AutoCommit.When(AutoCommitWhen.ConsumingEveryNthMessage(5)),
            OwnAutoCommit.when_every_nth(5),
        ),
        (
            AutoCommit.After(AutoCommitAfter.ConsumingEveryNthMessage(5)),
            OwnAutoCommit.after_every_nth(5),
        ),
    ],
)
def test_auto_commit_when_spelled_officially_then_is_ours(official, own):
    assert official == own


def test_choices_when_spelled_officially_then_are_ours():
    assert PollingStrategy.Offset(value=4) == iggy_protocol.PollingStrategy.offset(4)
    assert PollingStrategy.next() == PollingStrategy.Next()
    assert Partitioning.messages_key("k") == iggy_protocol.Partitioning.key("k")
    assert Consumer.Single(1) == iggy_protocol.ConsumerIdentity.single(1)
    assert HeaderKey.String("a") == iggy_protocol.HeaderKey.string("a")
    assert HeaderValue.UnsignedInt32(5) == iggy_protocol.HeaderValue.uint32(5)


def test_package_when_imported_then_offers_what_the_wheel_offers():
    wheel = {
        *("AutoCommit", "AutoCommitAfter", "AutoCommitWhen", "IggyClient", "IggyConsumer"),
        *("PollingStrategy", "ReceiveMessage", "SendMessage", "StreamDetails", "TopicDetails"),
    }

    assert wheel <= set(compat.__all__)
    assert [name for name in compat.__all__ if not hasattr(compat, name)] == []
