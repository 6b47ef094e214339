"""Scans a metadata log: which frames are intact, and whether the tail is torn or damaged.

A torn tail held a change that was never acknowledged. A tail is torn when no intact frame of a
later version follows it. Anything else is damage and never skipped silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import record
from iggy_ref_server.metadata.damage import MetadataDamaged
from iggy_ref_server.metadata.frame import HEAD_SIZE, MARKER, Frame, read_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LogScan", "good_frames", "scan_log"]


@record
class LogScan:
    """What a log holds.

    Attributes:
        frames: the good ones; versions ascend by one.
        end: where the last good one ends.
        torn_size: how many bytes behind it belong to no change.
    """

    frames: tuple[Frame, ...]
    end: int
    torn_size: int


def good_frames(data: bytes, start: int) -> Iterator[Frame]:
    """Find every good frame from a position on, stepping over whatever lies between them."""
    position = start
    while 0 <= position < len(data):
        frame = read_frame(data, position)
        if frame is not None:
            yield frame
            position = frame.end
        else:
            position = data.find(MARKER, position + 1)


def scan_log(data: bytes, path: str, known_version: int = 0) -> LogScan:
    """Read a whole log behind its head.

    Args:
        data: the file.
        path: its name, for people.
        known_version: changes up to this one may be missing, because a snapshot holds them.

    Raises:
        MetadataDamaged: a change is damaged or missing, and later ones are there.
    """
    frames: list[Frame] = []
    end = HEAD_SIZE
    while (frame := read_frame(data, end)) is not None:
        if frames and frame.version != frames[-1].version + 1:
            break
        frames.append(frame)
        end = frame.end
    last = max(known_version, frames[-1].version if frames else 0)
    for frame in good_frames(data, end):
        # Older ones are what is left of a log that a snapshot made superfluous.
        if frame.version > last:
            raise MetadataDamaged(
                path, end, f"change {last + 1} is damaged, but change {frame.version} follows"
            )
    return LogScan(tuple(frames), end, len(data) - end)
