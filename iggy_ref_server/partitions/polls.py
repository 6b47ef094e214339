"""The parameters and the result of a poll."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from iggy_protocol import Buffer, PollingStrategy, record
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.storage.interface import FileSlice

__all__ = ["PollRequest", "Polled"]

UNBOUNDED: Final = 2**64


@record
class PollRequest:
    """What a poll asks for.

    Attributes:
        strategy: where to begin.
        count: the most messages.
        consumer: whose stored offset counts, for the strategy ``NEXT``.
        size_max_bytes: the most bytes; one message is delivered however large it is.
        memory_max_bytes: the most bytes that may be read into memory for it, as sealed messages
            have to be; pieces of files that are handed on as such cost none.
    """

    strategy: PollingStrategy
    count: int
    consumer: OffsetKey | None
    size_max_bytes: int
    memory_max_bytes: int = UNBOUNDED

    @property
    def in_memory(self) -> PollRequest:
        """The same where all that is delivered has to be read into memory."""
        if self.size_max_bytes <= self.memory_max_bytes:
            return self
        return replace(self, size_max_bytes=self.memory_max_bytes)


class Polled(NamedTuple):
    """What a poll brings.

    Attributes:
        current_offset: the highest offset of the partition, 0 while it is empty.
        messages_count: how many messages the parts hold.
        size_bytes: their bytes.
        parts: whole messages back to back: bytes in memory and slices of files.
        last_offset: offset of the last message in the parts, None when there is none.
    """

    current_offset: int
    messages_count: int
    size_bytes: int
    parts: tuple[Buffer | FileSlice, ...]
    last_offset: int | None
