"""Groups by hand: made, joined, polled, left and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apache_iggy  # type: ignore[import-not-found]
from apache_iggy import PollingStrategy

from tests.interop.scenarios.installed import Client
from tests.interop.scenarios.report import quiet, step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

PARTITIONS, MESSAGES = 3, 4
TOPIC, GROUP = "shared", "by hand"
POLLS_MAX = 30


async def run(scene: Scene) -> None:
    """Go through the life of a group."""
    calls, client, where = scene.calls, scene.client, (scene.stream, TOPIC)
    await client.create_topic(scene.stream, TOPIC, PARTITIONS)
    await step("create a group", quiet, calls.create_consumer_group, *where, GROUP)
    await step("create the group again", quiet, calls.create_consumer_group, *where, GROUP)
    await step("list groups", listed, scene)
    await step("show the group", show, scene)
    await step("show a missing group", calls.get_consumer_group, *where, "missing")
    await step("join a missing group", calls.join_consumer_group, *where, "missing")
    await step("poll without having joined", poll, client, scene.stream)
    await step("join the group", calls.join_consumer_group, *where, GROUP)
    await step("join it again", calls.join_consumer_group, *where, GROUP)
    await step("show its member", show, scene)
    for partition in range(PARTITIONS):
        texts = [f"{partition}:{number}" for number in range(MESSAGES)]
        await client.send(scene.stream, TOPIC, partition, texts)
    await step("poll as a member", drain, client, scene.stream)
    await step("join it from elsewhere", join_from_elsewhere, scene)
    await step("leave the group", calls.leave_consumer_group, *where, GROUP)
    await step("leave it again", calls.leave_consumer_group, *where, GROUP)
    await step("poll after leaving", poll, client, scene.stream)
    await step("delete the group", calls.delete_consumer_group, *where, GROUP)
    await step("delete the group again", calls.delete_consumer_group, *where, GROUP)
    await step("show the deleted group", calls.get_consumer_group, *where, GROUP)


async def listed(scene: Scene) -> list[list[Any]]:
    found = await scene.calls.get_consumer_groups(scene.stream, TOPIC)
    return [[group.name, group.partitions_count, group.members_count] for group in found]


async def show(scene: Scene) -> list[Any]:
    """Return name, count of partitions, and the partitions of each member."""
    found = await scene.calls.get_consumer_group(scene.stream, TOPIC, GROUP)
    shares = sorted(sorted(member.partitions) for member in found.members)
    return [found.name, found.partitions_count, shares]


async def poll(client: Client, stream: str) -> list[Any]:
    """Poll once as a member of the group."""
    return await client.calls.poll_messages(
        stream,
        TOPIC,
        consumer=apache_iggy.Consumer.Group(GROUP),
        polling_strategy=PollingStrategy.Next(),
        count=2,
        auto_commit=True,
    )


async def drain(client: Client, stream: str) -> dict[str, Any]:
    """Poll as a member until all that was sent came, and tell whether it came once."""
    places: list[tuple[int, int]] = []
    for _ in range(POLLS_MAX):
        places += [
            (message.partition_id(), message.offset()) for message in await poll(client, stream)
        ]
        if len(places) >= PARTITIONS * MESSAGES:
            break
    return {"taken": len(places), "different": len(set(places))}


async def join_from_elsewhere(scene: Scene) -> list[Any]:
    """Join with another client, return the shares of both, and leave with the other."""
    client = await Client.connected(scene.url_as("iggy:iggy"))
    await client.calls.join_consumer_group(scene.stream, TOPIC, GROUP)
    shares = sorted(len(share) for share in (await show(scene))[2])
    await client.calls.leave_consumer_group(scene.stream, TOPIC, GROUP)
    return [shares, await show(scene)]
