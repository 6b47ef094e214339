"""Checks the segments of a partition: each index against its log, each log, and the sequence.

Nothing is changed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import index_entries
from iggy_ref_server.segments.index import ENTRY_BYTES

if TYPE_CHECKING:
    from iggy_protocol import Buffer
    from iggy_ref_server.segments.walk import Stretch
    from iggy_ref_server.storage.interface import File

__all__ = ["IndexComparison"]


class IndexComparison:
    """Compares an index with its log, while the log is read.

    Args:
        index: the open index; None where there is none.
        size_bytes: the size of the index.
    """

    def __init__(self, index: File | None, size_bytes: int) -> None:
        self._index = index
        self._size_bytes = size_bytes
        self._count = 0
        self._wrong_from: int | None = None

    async def see(self, stretch: Stretch) -> None:
        """Compare the entries of the next messages of the log.

        Raises:
            StorageError: the index cannot be read.
        """
        if self._index is not None and self._wrong_from is None:
            entries = index_entries(
                stretch.messages, relative_offset=self._count, position=stretch.position
            )
            found = await self._index.read(len(entries), self._count * ENTRY_BYTES)
            # Missing entries at the end are a different problem than wrong entries.
            if found != entries[: len(found)]:
                self._wrong_from = self._count + first_difference(found, entries) // ENTRY_BYTES
        self._count += stretch.messages_count

    @property
    def is_right(self) -> bool:
        """Whether the existing entries agree with the log."""
        return self._wrong_from is None and self._size_bytes <= self._count * ENTRY_BYTES

    def verdict(self) -> str:
        """Describe what is wrong; empty if the index is complete."""
        if self._index is None:
            return "is missing"
        if self._wrong_from is not None:
            return f"does not agree with the log from entry {self._wrong_from} on"
        count, rest = divmod(self._size_bytes, ENTRY_BYTES)
        if count < self._count:
            torn = f", and ends in {rest} bytes of a partial entry" if rest else ""
            return f"lacks the last {self._count - count} of {self._count} entries{torn}"
        surplus_bytes = self._size_bytes - self._count * ENTRY_BYTES
        return f"is {surplus_bytes} bytes too long" if surplus_bytes else ""


def first_difference(left: Buffer, right: Buffer) -> int:
    """Return the position of the first different byte, up to the length of the shorter one."""
    left, right = memoryview(left), memoryview(right)
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high) // 2
        if left[low : middle + 1] == right[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low
