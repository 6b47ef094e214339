"""The options of topics, streams and users: set, shown, changed, taken back and refused."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import apache_iggy  # type: ignore[import-not-found]

from tests.interop.scenarios.installed import HAS_TOPIC_OPTIONS
from tests.interop.scenarios.report import quiet, step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SEGMENT_BYTES = 64 << 20
TOPIC_BYTES = 4 << 30


async def run(scene: Scene) -> None:
    """Go through the options of the installed version."""
    calls, stream = scene.calls, scene.stream
    for scope in ("topic", "stream", "user"):
        await step(f"describe the options of a {scope}", described, scene, scope)
    await step("create a topic with options", create, scene, "opted", everything())
    await step("show its options", show, scene, "opted")
    await step("create one with an unknown option", create, scene, "odd", {"unknown": "1"})
    await step("create one with a bad value", create, scene, "odd", {"segment_size": "tea"})
    if HAS_TOPIC_OPTIONS:
        await patches(scene)
    else:
        longer = apache_iggy.IggyExpiry.ExpireDuration(DAY)
        await step(
            "change an option", calls.update_topic, stream, "opted", "opted", message_expiry=longer
        )
        await step("show the changed options", show, scene, "opted")
        await step(
            "change one that stays",
            calls.update_topic,
            stream,
            "opted",
            "opted",
            options={"segment_size": "8388608"},
        )
    await step("show the options of a plain topic", show, scene, "t")


def everything() -> dict[str, Any]:
    """Return all options of a topic that both versions name alike."""
    return {
        "compression_algorithm": "gzip",
        "message_expiry": apache_iggy.IggyExpiry.ExpireDuration(HOUR),
        "max_topic_size": apache_iggy.MaxTopicSize.Custom(TOPIC_BYTES),
        "segment_size": SEGMENT_BYTES,
        "durability": apache_iggy.Durability.PERSISTED,
        "messages_required_to_save": 500,
    }


async def create(scene: Scene, topic: str, options: dict[str, Any]) -> None:
    """Create a topic with options; those that no argument names go as texts."""
    raw = {name: value for name, value in options.items() if isinstance(value, str)}
    raw.pop("compression_algorithm", None)
    named = {name: value for name, value in options.items() if name not in raw}
    if HAS_TOPIC_OPTIONS:
        given = apache_iggy.TopicOptions(partitions_count=1, raw=raw or None, **named)
        await scene.calls.create_topic(scene.stream, topic, given)
    else:
        await scene.calls.create_topic(scene.stream, topic, 1, options=raw or None, **named)


async def show(scene: Scene, topic: str) -> dict[str, Any]:
    """Return what a topic says of its options: three by themselves, and the names of all."""
    found = await scene.calls.get_topic(scene.stream, topic)
    return {
        "compression": found.compression_algorithm,
        "expiry": shown(found.message_expiry),
        "size": shown(found.max_topic_size),
        "set": {str(key): str(value) for key, value in found.options.to_scalar_dict().items()},
        "derived": sorted(str(key) for key in found.derived_options.to_scalar_dict()),
    }


def shown(value: Any) -> Any:
    """Return an expiry or a size as a number, or the name of its kind."""
    kind = type(value).__name__.rpartition("_")[2]
    if kind == "ExpireDuration":
        return value.duration.total_seconds()
    return value.bytes if kind == "Custom" else kind


async def described(scene: Scene, scope: str) -> list[list[Any]]:
    """Return name and kind of each option, and what may be done with it where the client says."""
    flags = ("updatable", "resettable", "secret", "read_only", "critical")
    return sorted(
        [spec.key, spec.kind, [flag for flag in flags if getattr(spec, flag, False)]]
        for spec in await scene.calls.describe_options(scope)
    )


async def patches(scene: Scene) -> None:
    """Change some options and leave the others alone, as versions from 0.10 on do."""
    calls, stream = scene.calls, scene.stream
    key, longer = apache_iggy.OptionKey, apache_iggy.IggyExpiry.ExpireDuration(DAY)
    await step("change an option", calls.update_topic, stream, "opted", message_expiry=longer)
    await step("show the changed options", show, scene, "opted")
    await step("take one back", calls.update_topic, stream, "opted", reset=[key.MaxTopicSize])
    await step("show what is left of them", show, scene, "opted")
    await step(
        "change one that stays",
        calls.update_topic,
        stream,
        "opted",
        options={"segment_size": "8388608"},
    )
    await step("take one back that stays", calls.update_topic, stream, "opted", raw_reset=["name"])
    await step("change an unknown one", calls.update_topic, stream, "opted", options={"x": "1"})
    await step("change nothing", calls.update_topic, stream, "opted")
    await step("fix the partitions of a topic", create_fixed, scene)
    await step("add partitions to it", calls.create_partitions, stream, "fixed", 1)
    secret = apache_iggy.StreamOptions(encryption_key=bytes(range(32)))
    await step(
        "create a stream with a key of its own", quiet, calls.create_stream, f"{stream}-key", secret
    )
    await step("show the options of a stream", show_stream, scene)


async def create_fixed(scene: Scene) -> None:
    policy = apache_iggy.PartitionResizePolicy.Fixed
    options = apache_iggy.TopicOptions(partitions_count=2, partition_resize_policy=policy)
    await scene.calls.create_topic(scene.stream, "fixed", options)


async def show_stream(scene: Scene) -> dict[str, Any]:
    found = await scene.calls.get_stream(scene.stream)
    return {
        "set": {str(key): str(value) for key, value in found.options.to_scalar_dict().items()},
        "key": found.encryption_key_source,
    }
