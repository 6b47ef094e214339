"""Partitions: added and removed at the end of a topic."""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.model.identifier import Identifier
from iggy_protocol.primitives import IDENTIFIER, U32
from iggy_protocol.records import record
from iggy_protocol.registry import EMPTY, Command, command

__all__ = ["CreatePartitions", "DeletePartitions"]

PARTITIONS_FIELDS = ("stream" / IDENTIFIER, "topic" / IDENTIFIER, "partitions_count" / U32)


@command(CommandCode.CREATE_PARTITIONS, *PARTITIONS_FIELDS, reply=EMPTY)
@record
class CreatePartitions(Command[None]):
    """Add partitions behind the last one."""

    stream: Identifier
    topic: Identifier
    partitions_count: int


@command(CommandCode.DELETE_PARTITIONS, *PARTITIONS_FIELDS, reply=EMPTY)
@record
class DeletePartitions(Command[None]):
    """Delete the last partitions with everything in them."""

    stream: Identifier
    topic: Identifier
    partitions_count: int
