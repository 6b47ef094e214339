"""Writes stored messages as the batches of clients from 0.9 on, without holding up the loop.

A poll may bring 64 MiB, which take tens of milliseconds to read, verify and write anew. That is
done in slices of whole messages, and the slices of all polls of a shard take turns: the loop runs
one of them and then everything else. A poll that fits into one slice is written at once.

What is written counts in the memory budget until the reply is queued.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from iggy_protocol import first_message_bytes, whole_prefix
from iggy_ref_server.partitions.poll import read_parts
from iggy_ref_server.partitions.steps import Await, Steps
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from iggy_protocol import Buffer, PolledBatches, PolledWriter


SLICE_BYTES_MAX: Final = 2 << 20
"""A thousand messages of 1000 bytes fit, and it takes less than a millisecond. A larger message is
a slice of its own."""


class Conversions:
    """The conversions of one shard, which take turns.

    Args:
        hold: counts more or less in the memory budget.
    """

    def __init__(self, hold: Callable[[int], Any] = int) -> None:
        self._hold = hold
        self._turns = trio.Lock()

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Count so much during the block."""
        self._hold(size_bytes)
        try:
            yield
        finally:
            self._hold(-size_bytes)

    def write(
        self, writer: PolledWriter, parts: Sequence[Buffer | FileSlice], bytes_max: int
    ) -> Steps[PolledBatches]:
        """Write what was polled as far as the writer takes it.

        Args:
            writer: writes the reply.
            parts: the messages, whole ones in each part.
            bytes_max: how large the reply may be.

        Raises:
            StorageError: a file cannot be read, or ends inside a part.
        """
        total_bytes = sum(map(_size_of, parts))
        if total_bytes <= SLICE_BYTES_MAX:
            for content in (yield from read_parts(parts, None)):
                if not writer.add(content):
                    break
            return writer.finish()
        with self.holding(min(total_bytes, bytes_max)):
            yield from self._write_slices(writer, parts)
        return writer.finish()

    def _write_slices(
        self, writer: PolledWriter, parts: Sequence[Buffer | FileSlice]
    ) -> Steps[None]:
        left_bytes = 0  # of the turn
        for part in parts:
            at, end = 0, _size_of(part)
            while at < end:
                wanted = min(end - at, SLICE_BYTES_MAX)
                if wanted > left_bytes:
                    yield Await(self.next_turn)
                    left_bytes = SLICE_BYTES_MAX
                messages = yield from _read_messages(part, at, end, wanted)
                if not writer.add(messages):
                    return
                at += len(messages)
                left_bytes -= len(messages)

    async def next_turn(self) -> None:
        """Let everything else run first; the turns are given in the order of the requests."""
        async with self._turns:
            await trio.lowlevel.checkpoint()


def _size_of(part: Buffer | FileSlice) -> int:
    return part.size if isinstance(part, FileSlice) else memoryview(part).nbytes


def _read_messages(
    part: Buffer | FileSlice, at: int, end: int, size_bytes: int
) -> Steps[memoryview]:
    """Read whole messages from byte ``at`` of a part on: so many bytes, but at least one message.

    The end of the part, or bytes that are no message, come as they are.
    """
    content = yield from _read(part, at, size_bytes)
    if at + size_bytes == end:
        return content
    whole = whole_prefix(content)
    if len(whole):
        return whole
    larger = yield from _read(part, at, min(first_message_bytes(content), end - at))
    return larger


def _read(part: Buffer | FileSlice, at: int, size_bytes: int) -> Steps[memoryview]:
    if not isinstance(part, FileSlice):
        return memoryview(part)[at : at + size_bytes]
    (content,) = yield from read_parts([FileSlice(part.file, part.position + at, size_bytes)], None)
    return memoryview(content)
