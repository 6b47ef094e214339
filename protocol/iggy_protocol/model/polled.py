"""What a poll brings back."""

from __future__ import annotations

from dataclasses import field

from iggy_protocol.batch import MessageBatch
from iggy_protocol.errors import TruncatedField
from iggy_protocol.records import record

__all__ = ["PolledMessages"]


@record
class PolledMessages:
    """A stretch of one partition.

    Attributes:
        partition_id: where the messages come from.
        current_offset: the highest offset of the partition; 0 also when it is empty.
        messages_count: how many messages the server announced. In rare states a real server
            announces another number than it sends, so walk ``messages`` and do not count on this.
        messages: the messages, still as bytes of the receive buffer.
        fault: why they are fewer than the server sent, when the reply cannot be read to its end;
            None when all is well. The next poll from there on brings nothing but the fault.
    """

    partition_id: int
    current_offset: int
    messages_count: int
    messages: MessageBatch
    fault: TruncatedField | None = field(default=None, repr=False)
