"""Segments: the files of a partition, of which the oldest can be deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import DeleteSegments
from iggy_ref_server.handlers.table import handles

if TYPE_CHECKING:
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session


@handles(DeleteSegments)
async def delete_segments(office: Office, session: Session, command: DeleteSegments) -> None:
    """Delete the oldest closed segments that no consumer still needs."""
    topic = office.metadata().require_topic(command.stream, command.topic)
    topic.require_partition(command.partition_id)
    office.authorize(session, command.CODE, topic.stream_id, topic.id)
    await office.door(topic, command.partition_id).delete_segments(command.segments_count)
