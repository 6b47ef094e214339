"""Verbs that only servers from 0.9 on have, against a real server, on both engines."""

from __future__ import annotations

import pytest

from iggy_protocol import MetadataGroup, OptionScope
from iggy_sdk.client import IggyClient
from iggy_sdk.errors import UnsupportedByServerError

pytestmark = pytest.mark.anyio

GENERATIONS = ["0.9", "0.10"]


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_options_when_asked_for_then_are_those_of_topics(url, generation):
    async with IggyClient(url, protocol=generation) as client:
        described = await client.describe_options(OptionScope.TOPIC)

    assert {"durability", "message_expiry", "segment_size"} <= {one.key for one in described}


@pytest.mark.parametrize("generation", GENERATIONS)
async def test_group_when_joined_then_its_only_member_owns_all_partitions(url, name, generation):
    async with IggyClient(url, protocol=generation) as client:
        topic = f"{name}-{generation}"
        await client.create_stream(topic)
        await client.create_topic(topic, topic, 3)
        await client.create_consumer_group(topic, topic, "g")
        assert await client.sync_consumer_group(topic, topic, "g") is None

        await client.join_consumer_group(topic, topic, "g")
        assignment = await client.sync_consumer_group(topic, topic, "g")

    assert assignment is not None
    assert sorted(assignment.partitions) == [0, 1, 2]


async def test_changes_when_asked_for_then_tell_what_was_created(url, name):
    async with IggyClient(url, protocol="0.10") as client:
        await client.create_stream(name)
        page = await client.get_metadata_changes(groups=[MetadataGroup.STREAMS], limit=1000)

    assert any(name in repr(change.body) for change in page.changes)


async def test_verbs_when_the_server_speaks_0_8_then_say_so_before_anything_is_sent(url):
    async with IggyClient(url, protocol="0.8") as client:
        with pytest.raises(UnsupportedByServerError, match=r"0\.8"):
            await client.describe_options(OptionScope.TOPIC)
        with pytest.raises(UnsupportedByServerError, match=r"0\.8"):
            await client.get_metadata_changes()
