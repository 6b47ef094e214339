"""What a client can ask about the server itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apache_iggy  # type: ignore[import-not-found]

from tests.interop.scenarios.installed import HAS_TOPIC_OPTIONS
from tests.interop.scenarios.report import step

if TYPE_CHECKING:
    from tests.interop.scenarios.verbs.everything import Scene

GET_CLUSTER_METADATA, FLUSH, UNKNOWN = 12, 102, 9999


async def run(scene: Scene) -> None:
    """Ask for statistics and for the nodes, and for something that nobody knows."""
    await step("ask for statistics", stats, scene)
    await step("ask for the nodes", nodes, scene)
    await step("ask in an unknown way", scene.calls.send_binary_request, UNKNOWN, b"")
    await step("ask for a flush", flush, scene)
    if HAS_TOPIC_OPTIONS:
        await step("ask for changes of metadata", changes, scene)


async def stats(scene: Scene) -> dict[str, Any]:
    """Return what must hold of the numbers while others use the server as well."""
    found = await scene.calls.get_stats()
    return {
        "counted": min(found.streams_count, found.topics_count, found.messages_count) > 0,
        "more partitions than topics": found.partitions_count > found.topics_count,
        "has a process": found.process_id > 1,
        "has started": found.start_time > 0,
        "has a host": bool(found.hostname),
        "has a version": bool(found.iggy_server_version),
        "has memory": 0 < found.memory_usage < found.total_memory,
        "files": getattr(found, "open_files_count", 1) > 0,
    }


async def nodes(scene: Scene) -> int:
    """Return how many nodes the server names; from 0.10 on each begins with its number."""
    reply = await scene.calls.send_binary_request(GET_CLUSTER_METADATA, b"")
    size = int.from_bytes(reply[:4], "little")
    return int.from_bytes(reply[4 + size : 8 + size], "little")


async def flush(scene: Scene) -> int:
    """Ask for what only the clients up to 0.8 may ask for."""
    stream, topic = (bytes([2, len(name)]) + name.encode() for name in (scene.stream, "t"))
    reply: bytes = await scene.calls.send_binary_request(FLUSH, stream + topic + bytes(5))
    return len(reply)


async def changes(scene: Scene) -> list[bool]:
    """Tell which kinds of changes the server has kept from the beginning."""
    earliest = apache_iggy.MetadataChangeStart.Earliest()
    found = await scene.calls.get_metadata_changes(earliest, limit=1000)
    kinds = {str(record.kind) for record in found.records}
    return [any(name in kind for kind in kinds) for name in ("stream", "topic")]
