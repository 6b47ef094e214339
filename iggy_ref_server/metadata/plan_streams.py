"""Plans for streams: a command and the present state give a change, or a fault.

Pure. Fields of commands have passed ``iggy_protocol.validate`` and the user's permissions are
checked elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.changes import (
    StreamCreated,
    StreamDeleted,
    StreamPurged,
    StreamRenamed,
)
from iggy_ref_server.metadata.plan_context import STREAMS_MAX

if TYPE_CHECKING:
    from iggy_protocol import CreateStream, DeleteStream, PurgeStream, UpdateStream
    from iggy_ref_server.metadata.plan_context import PlanContext
    from iggy_ref_server.metadata.state import Metadata

__all__ = [
    "plan_create_stream",
    "plan_delete_stream",
    "plan_purge_stream",
    "plan_update_stream",
]


def _taken(name: str) -> ServerFault:
    return ServerFault(
        StatusCode.STREAM_NAME_ALREADY_EXISTS, f"a stream named {name!r} exists already"
    )


def plan_create_stream(
    metadata: Metadata, command: CreateStream, context: PlanContext
) -> StreamCreated:
    """Plan a new stream under the next free id."""
    if command.name in metadata.streams.id_by_name:
        raise _taken(command.name)
    if len(metadata.streams) >= STREAMS_MAX:
        raise ServerFault(
            StatusCode.CANNOT_CREATE_STREAM, f"a server holds at most {STREAMS_MAX} streams"
        )
    return StreamCreated(
        id=metadata.streams.next_id, name=command.name, created_at_us=context.now_us
    )


def plan_update_stream(
    metadata: Metadata, command: UpdateStream, context: PlanContext
) -> StreamRenamed:
    """Plan another name for a stream; its present name will do."""
    stream = metadata.require_stream(command.stream)
    if metadata.streams.id_by_name.get(command.name, stream.id) != stream.id:
        raise _taken(command.name)
    return StreamRenamed(id=stream.id, name=command.name)


def plan_delete_stream(
    metadata: Metadata, command: DeleteStream, context: PlanContext
) -> StreamDeleted:
    """Plan the end of a stream."""
    return StreamDeleted(id=metadata.require_stream(command.stream).id)


def plan_purge_stream(
    metadata: Metadata, command: PurgeStream, context: PlanContext
) -> StreamPurged:
    """Plan to empty a stream: all its partitions start again as another incarnation."""
    stream = metadata.require_stream(command.stream)
    return StreamPurged(id=stream.id, incarnation=metadata.next_incarnation(context.now_us))
