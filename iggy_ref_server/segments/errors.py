"""Errors of damaged segments that recovery cannot handle on its own."""

from __future__ import annotations


class CorruptPartition(Exception):
    """Stored messages are damaged or missing in the middle; nothing was changed because of it.

    Attributes:
        path: the partition's directory.
        reason: what is wrong and where, for people.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class IndexDamaged(Exception):
    """An index contradicts its log; it can be rebuilt from the log.

    Attributes:
        start_offset: which segment's index it is.
    """

    def __init__(self, start_offset: int, reason: str) -> None:
        super().__init__(f"index of segment {start_offset}: {reason}")
        self.start_offset = start_offset


class SegmentSplit(Exception):
    """A segment was split meanwhile; the walk over the segments begins again."""


class SearchTooLong(Exception):
    """The search behind damage was given up: too much there looks like messages and is none."""
