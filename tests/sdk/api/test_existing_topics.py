"""``exist_ok`` where the topic exists and differs: a warning, or an error with ``"same"``."""

from __future__ import annotations

import logging
import warnings
from datetime import timedelta
from pathlib import Path

import pytest

import iggy_sdk.blocking
from iggy_sdk import IggyClient, TopicDiffersError, TopicDiffersWarning, TopicExistsError
from iggy_sdk.producer import NewTopic
from iggy_sdk.testing.server import in_test_protocol

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]


@pytest.fixture
def url(server) -> str:
    host, port = server.address
    return in_test_protocol(f"iggy://iggy:iggy@{host}:{port}")


@pytest.fixture
async def client(url):
    async with IggyClient(url) as connected:
        yield connected


@pytest.fixture
async def stream(client, request):
    name = f"stream-{abs(hash(request.node.name))}"
    await client.create_stream(name, exist_ok=True)
    await client.create_topic(name, "orders", 3, max_topic_size="100 GB")
    yield name
    await client.delete_stream(name)


@pytest.mark.parametrize("asked", [1, 2, 7])
async def test_create_topic_when_it_has_another_number_of_partitions_then_warns_with_both(
    client, stream, caplog, asked
):
    with pytest.warns(TopicDiffersWarning) as caught:
        found = await client.create_topic(stream, "orders", asked, exist_ok=True)

    assert found.partitions_count == 3
    text = str(caught[0].message)
    assert f"3 partitions instead of {asked}" in text
    assert ("create_partitions()" in text) is (asked > 3)
    assert Path(caught[0].filename) == Path(__file__), "the warning points at the caller"
    [record] = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert record.name == "iggy_sdk.topics"
    assert record.iggy_event == "topic_differs"
    assert record.differences == {"partitions_count": (asked, 3)}


async def test_create_topic_when_it_must_be_the_same_then_raises_with_both_numbers(client, stream):
    with pytest.raises(TopicDiffersError, match="3 partitions instead of 7") as caught:
        await client.create_topic(stream, "orders", 7, exist_ok="same")

    assert isinstance(caught.value, TopicExistsError)
    assert caught.value.differences == {"partitions_count": (7, 3)}
    assert "Add 4 with create_partitions()" in caught.value.advice


@pytest.mark.parametrize("exist_ok", [True, "same"])
async def test_create_topic_when_it_is_as_asked_for_then_says_nothing(client, stream, exist_ok):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await client.create_topic(stream, "orders", 3, exist_ok=exist_ok)
        await client.create_topic(stream, "orders", exist_ok=exist_ok)
        await client.create_topic(stream, "orders", max_topic_size="100 GB", exist_ok=exist_ok)


async def test_create_topic_when_other_settings_differ_then_they_are_named(client, stream):
    with pytest.raises(TopicDiffersError, match="update_topic") as caught:
        await client.create_topic(
            stream,
            "orders",
            message_expiry=timedelta(hours=1),
            max_topic_size="50 GB",
            compression_algorithm="gzip",
            exist_ok="same",
        )

    assert set(caught.value.differences) == {
        "message_expiry_us",
        "max_topic_size_bytes",
        "compression",
    }


async def test_create_topic_when_it_may_not_exist_then_raises_as_before(client, stream):
    with pytest.raises(TopicExistsError) as caught:
        await client.create_topic(stream, "orders", 7)

    assert not isinstance(caught.value, TopicDiffersError)


async def test_producer_when_the_topic_has_another_number_then_warns(client, stream):
    with pytest.warns(TopicDiffersWarning, match="3 partitions instead of 5"):
        async with client.producer(
            stream, "orders", create_topic_if_not_exists=NewTopic(partitions_count=5)
        ) as producer:
            await producer.send(b"one")


async def test_producer_when_no_number_was_asked_for_then_takes_any(client, stream):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with client.producer(stream, "orders", create_topic_if_not_exists=True) as producer:
            await producer.send(b"one")


def test_blocking_create_topic_when_it_differs_then_warns_and_raises(url):
    with iggy_sdk.blocking.IggyClient(url) as client:
        client.create_stream("blocking-differs", exist_ok=True)
        client.create_topic("blocking-differs", "orders", 2)
        with pytest.warns(TopicDiffersWarning, match="2 partitions instead of 4"):
            client.create_topic("blocking-differs", "orders", 4, exist_ok=True)
        with pytest.raises(TopicDiffersError):
            client.create_topic("blocking-differs", "orders", 4, exist_ok="same")
        client.delete_stream("blocking-differs")
