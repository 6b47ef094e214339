"""Poll replies out of thin air: what was sent, stamped as a server stamps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    Buffer,
    MessageBatch,
    NewMessage,
    PolledMessages,
    encode_messages,
    inspect_send,
    stamp,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# No identifiers and no partitioning would be refused, so this is the smallest valid head.
HEAD = bytes([1, 4, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 1, 0])


def polled(
    messages: Sequence[Buffer | NewMessage],
    *,
    partition_id: int = 3,
    base_offset: int = 40,
    timestamp_us: int = 1_700_000_000_000_000,
) -> PolledMessages:
    """Answer a poll with these messages, as if they had been sent and stored."""
    if not messages:
        return PolledMessages(partition_id, 0, 0, MessageBatch(b""))
    head = HEAD + len(messages).to_bytes(4, "little")
    body = encode_messages(
        len(head).to_bytes(4, "little") + head, messages, origin_timestamp_us=1_600_000_000_000_000
    )
    shape = inspect_send(body)
    stored = body[shape.messages_at :]
    stamp(
        stored,
        base_offset=base_offset,
        timestamp_us=timestamp_us,
        random=bytes(range(1, 17)) * shape.missing_ids,
    )
    last = base_offset + len(messages) - 1
    return PolledMessages(partition_id, last, len(messages), MessageBatch(bytes(stored)))
