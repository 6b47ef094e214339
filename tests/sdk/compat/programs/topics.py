"""Makes streams and topics with the settings of the official client 0.9, and changes them.

Run with an interpreter that has the wheel: ``topics.py HOST:PORT``. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

from apache_iggy import (  # type: ignore[import-not-found]
    Durability,
    IggyClient,
    IggyExpiry,
    MaxTopicSize,
)

HOUR = timedelta(hours=1)


async def outcome(awaitable):
    """Return what a call gives, or what it raises."""
    try:
        return await awaitable
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"


def kept(topic):
    """Show how long and how much a topic keeps."""
    expiry = size = None
    match topic.message_expiry:
        case IggyExpiry.NeverExpire():
            expiry = "never"
        case IggyExpiry.ExpireDuration(duration):
            expiry = duration.total_seconds()
    match topic.max_topic_size:
        case MaxTopicSize.Unlimited():
            size = "unlimited"
        case MaxTopicSize.Custom(count):
            size = count
    return [topic.name, topic.compression_algorithm, expiry, size, topic.partitions_count]


async def settings(client):
    """Make topics and change one setting after the other."""
    await client.create_topic(
        "shop", "kept", 1, "none", IggyExpiry.ExpireDuration(HOUR), MaxTopicSize.Custom(1 << 31)
    )
    await client.create_topic(
        stream="shop",
        name="all",
        partitions_count=2,
        compression_algorithm="gzip",
        message_expiry=IggyExpiry.NeverExpire(),
        max_topic_size=MaxTopicSize.Unlimited(),
    )
    seen = [kept(await client.get_topic("shop", name)) for name in ("kept", "all")]
    await client.update_topic("shop", "kept", "kept", message_expiry=IggyExpiry.NeverExpire())
    seen.append(kept(await client.get_topic("shop", "kept")))
    await client.update_topic("shop", "kept", "renamed", max_topic_size=MaxTopicSize.Unlimited())
    seen.append(kept(await client.get_topic("shop", "renamed")))
    return seen


async def options(client):
    """Use what servers from 0.9 on have."""
    made = await outcome(
        client.create_topic(
            "shop",
            "options",
            1,
            segment_size=1 << 20,
            durability=Durability.PERSISTED,
            options={"preallocate_segments": "false"},
        )
    )
    topic = await client.get_topic("shop", "options")
    described = await outcome(client.describe_options("topic"))
    if isinstance(described, str):
        return {"made": str(made), "topic": topic, "described": described}
    return {
        "set": sorted(topic.options.to_scalar_dict()),
        "durability": topic.options.to_scalar_dict()["durability"],
        "described": sorted(spec.key for spec in described),
        "kinds": {spec.key: spec.kind for spec in described}["segment_size"],
        "default": {spec.key: spec.default_value for spec in described}["segment_size"].value,
    }


async def main():
    client = IggyClient(sys.argv[1])
    await client.connect()
    await client.login_user("iggy", "iggy")
    await client.create_stream("shop")
    stream = await client.get_stream("shop")
    report = {
        "stream": [stream.name, stream.topics_count, stream.size, stream.created_at > 0],
        "settings": await settings(client),
        "options": await options(client),
    }
    await client.create_partitions("shop", "all", 2)
    await client.delete_partitions("shop", "all", 1)
    details = await client.get_topic("shop", "all")
    report["partitions"] = [
        [one.id, one.messages_count, one.size, one.segments_count] for one in details.partitions
    ]
    await client.update_stream("shop", "market")
    report["purged"] = [await outcome(client.purge_topic("market", "all")) in (None, ())]
    await client.delete_topic("market", "all")
    names = [topic.name for topic in (await client.get_stream("market")).topics]
    report["left"] = "all" not in names and "renamed" in names
    report["topics"] = "renamed" in {topic.name for topic in await client.get_topics("market")}
    report["purged"].append(await outcome(client.purge_stream("market")) in (None, ()))
    await client.delete_stream("market")
    report["gone"] = [await client.get_stream("market"), await client.get_streams()]
    stats = await client.get_stats()
    report["stats"] = [
        stats.streams_count,
        stats.memory_usage > 0,
        stats.run_time >= timedelta(0),
        stats.cache_metrics,
        type(stats.iggy_server_semver).__name__,
    ]
    sys.stdout.write(json.dumps(report))


asyncio.run(main())
