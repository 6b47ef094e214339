"""Segments: deleting the oldest messages."""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.model.identifier import Identifier
from iggy_protocol.primitives import IDENTIFIER, U32
from iggy_protocol.records import record
from iggy_protocol.registry import EMPTY, Command, command

__all__ = ["DeleteSegments"]


@command(
    CommandCode.DELETE_SEGMENTS,
    "stream" / IDENTIFIER,
    "topic" / IDENTIFIER,
    "partition_id" / U32,
    "segments_count" / U32,
    reply=EMPTY,
)
@record
class DeleteSegments(Command[None]):
    """Delete up to so many of the oldest sealed segments that no consumer needs any more."""

    stream: Identifier
    topic: Identifier
    partition_id: int
    segments_count: int
