"""Build logs and their indexes byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import MessageBatch, index_entries, stamp
from iggy_ref_server.segments.file_names import index_path, log_path
from iggy_ref_server.segments.segment import Segment
from tests.server.partitions.partition_calls import body_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_ref_server.storage.interface import Storage

DIRECTORY = "streams/0/topics/0/partitions/0"


def log_of(payloads: Sequence[bytes], *, start_offset: int = 0, timestamp_us: int = 1_000) -> bytes:
    """Make a log; every message is a microsecond younger than the one before it."""
    log = bytearray()
    for number, payload in enumerate(payloads):
        body, shape = body_of([payload])
        messages = memoryview(body)[shape.messages_at :]
        stamp(
            messages,
            base_offset=start_offset + number,
            timestamp_us=timestamp_us + number,
            random=bytes(16),
        )
        log += messages
    return bytes(log)


def index_of(log: bytes) -> bytes:
    """Make the index that belongs to a log."""
    return bytes(index_entries(log, relative_offset=0, position=0))


def sizes_of(log: bytes) -> list[int]:
    """Measure every message."""
    return [view.size for view in MessageBatch(log)]


async def put(
    storage: Storage, log: bytes, index: bytes | None, *, start_offset: int = 0
) -> Segment:
    """Write a segment's files as they are."""
    await storage.make_directories(DIRECTORY)
    await storage.replace(log_path(DIRECTORY, start_offset), log)
    if index is not None:
        await storage.replace(index_path(DIRECTORY, start_offset), index)
    return Segment(DIRECTORY, start_offset)


async def contents(storage: Storage, *, start_offset: int = 0) -> tuple[bytes | None, bytes | None]:
    """Read a segment's files."""
    return (
        await storage.read_file(log_path(DIRECTORY, start_offset)),
        await storage.read_file(index_path(DIRECTORY, start_offset)),
    )
