"""Verifies the checksums of stored messages before a poll delivers them.

Bytes go from the file to the socket unread. So the first poll of a range since the start reads
and verifies it; bytes that this process wrote count as verified. With ``validate_checksums``
every poll verifies. A poll that reaches damage delivers the messages before it. A poll that
begins there is refused, and the log says from which offset polls work again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iggy_protocol import InvalidField, MessageBatch, StatusCode, TruncatedField
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.segments.intact import find_next
from iggy_ref_server.segments.walk import LogWalk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.partitions.poll_plan import Span
    from iggy_ref_server.segments.open_files import OpenFiles
    from iggy_ref_server.storage.interface import File

__all__ = ["Verification"]

_logger = logging.getLogger(__name__)

# Verified without a checkpoint of the event loop: takes about 0.2 ms.
AT_ONCE_BYTES_MAX = 1 << 20

# Damaged places that were logged; beyond this number they are logged again.
TOLD_MAX = 1024


class Verification:
    """Verifies stored messages before they are delivered.

    Args:
        files: opens sealed segments.
        is_repeated: whether to look each time, and not once.
    """

    def __init__(self, files: OpenFiles, *, is_repeated: bool) -> None:
        self._files = files
        self._is_repeated = is_repeated
        self._told: dict[tuple[int, int], str] = {}

    def passes_now(self, spans: Sequence[Span]) -> bool:
        """Tell whether spans are verified; False when ``passing`` must be awaited."""
        # Each poll comes this way, mostly with one span that is known.
        return all(self._passes_now(span) for span in spans)

    def _passes_now(self, span: Span) -> bool:
        segment = span.segment
        end = min(span.end, segment.written_bytes)
        if end <= span.start or (not self._is_repeated and segment.checked.covers(span.start, end)):
            return True
        if end != span.end or end - span.start > AT_ONCE_BYTES_MAX or segment.log is None:
            return False
        messages = segment.log.read_now(end - span.start, span.start)
        if messages is None or not is_good(messages, span):
            return False
        segment.checked.add(span.start, end)
        return True

    async def passing(self, spans: Sequence[Span]) -> tuple[Span, ...]:
        """Return the spans up to the first message that is not good.

        Raises:
            ServerFault: that is the first one of all.
            StorageError: a file cannot be read.
        """
        good: list[Span] = []
        for span in spans:
            kept = await self._good_part(span)
            if kept.messages_count:
                good.append(kept)
            if kept.messages_count < span.messages_count:
                await self._report(kept, is_refused=not good)
                break
        return tuple(good)

    async def _good_part(self, span: Span) -> Span:
        segment = span.segment
        end = min(span.end, segment.written_bytes)
        if end <= span.start or (not self._is_repeated and segment.checked.covers(span.start, end)):
            return span
        await self._files.open(segment)
        log = segment.log  # others may close the segment meanwhile
        assert log is not None
        walk = LogWalk(log, span.start, span.first_offset, end)
        await walk.finish()
        if walk.position > span.start:
            segment.checked.add(span.start, walk.position)
        if walk.position == end:
            return span
        count = walk.next_offset - span.first_offset
        return span._replace(end=walk.position, messages_count=count)

    async def _report(self, kept: Span, *, is_refused: bool) -> None:
        """Say where the damage is; refuse the poll if nothing good lies before it."""
        key = (kept.segment.start_offset, kept.first_offset + kept.messages_count)
        problem = self._told.get(key)
        if problem is None:
            await self._files.open(kept.segment)
            log = kept.segment.log
            assert log is not None
            problem = await describe_damage(kept, log)
            if len(self._told) >= TOLD_MAX:
                self._told.clear()
            self._told[key] = problem
            _logger.error("%s; to repair it, stop the server and run `iggy-server repair`", problem)
        if is_refused:
            raise ServerFault(StatusCode.CANNOT_READ_MESSAGE, problem)


async def describe_damage(kept: Span, log: File) -> str:
    """Say which messages behind the good part of a span cannot be read, and where one can go on."""
    segment, at = kept.segment, kept.first_offset + kept.messages_count
    behind = await find_next(log, kept.end, at, segment.written_bytes)
    resumed = segment.next_offset if behind is None else behind[1]
    return (
        f"{segment.log_path} is damaged at byte {kept.end}: the messages {at} to {resumed - 1}"
        f" cannot be read; poll from offset {resumed} to continue"
    )


def is_good(messages: Buffer, span: Span) -> bool:
    """Tell whether bytes are exactly the intact messages of a span."""
    try:
        batch = MessageBatch(messages)
        batch.verify()
    except (InvalidField, TruncatedField):
        return False
    last = span.first_offset + span.messages_count - 1
    return (
        len(batch) == span.messages_count
        and batch.first_offset == span.first_offset
        and batch.last_offset == last
    )
