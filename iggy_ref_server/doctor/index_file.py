"""Hold an index to the messages of its log, entry by entry.

Owns the verdict. Changes nothing.
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
    """The comparison of one index, made while its log is read.

    Args:
        index: the open index; None where there is none.
        size_bytes: how long it is.
    """

    def __init__(self, index: File | None, size_bytes: int) -> None:
        self._index = index
        self._size_bytes = size_bytes
        self._count = 0
        self._wrong_from: int | None = None

    async def see(self, stretch: Stretch) -> None:
        """Compare the entries of messages that come next in the log.

        Raises:
            StorageError: the index cannot be read.
        """
        if self._index is not None and self._wrong_from is None:
            entries = index_entries(
                stretch.messages, relative_offset=self._count, position=stretch.position
            )
            found = await self._index.read(len(entries), self._count * ENTRY_BYTES)
            # What is missing at the end is another matter than what is wrong.
            if found != entries[: len(found)]:
                self._wrong_from = self._count + first_difference(found, entries) // ENTRY_BYTES
        self._count += stretch.messages_count

    @property
    def is_right(self) -> bool:
        """Whether what is there agrees with the log, however far it goes."""
        return self._wrong_from is None and self._size_bytes <= self._count * ENTRY_BYTES

    def verdict(self) -> str:
        """Tell what is wrong; empty when nothing is."""
        if self._index is None:
            return "is missing"
        if self._wrong_from is not None:
            return f"does not agree with the log from entry {self._wrong_from} on"
        count, rest = divmod(self._size_bytes, ENTRY_BYTES)
        if count < self._count:
            torn = f", and ends in {rest} bytes of an entry" if rest else ""
            return f"lacks the last {self._count - count} of {self._count} entries{torn}"
        surplus_bytes = self._size_bytes - self._count * ENTRY_BYTES
        return f"is {surplus_bytes} bytes too long" if surplus_bytes else ""


def first_difference(left: Buffer, right: Buffer) -> int:
    """Find the first byte in which two texts differ, the shorter one deciding how far to look."""
    left, right = memoryview(left), memoryview(right)
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high) // 2
        if left[low : middle + 1] == right[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low
