"""What is on its way to one client: buffers, and pieces of files that were not read yet.

Owns the order and the count of bytes. How they are written is the wire's affair.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import Buffer

__all__ = ["Outbox"]

BUFFERS_PER_CALL = 64


class Outbox:
    """A queue of bytes for one client.

    Attributes:
        size_bytes: how many bytes wait.
        held_bytes: how much memory that takes; pieces of files take none, and a buffer is there as
            a whole until the last byte of it is sent.
    """

    __slots__ = ("_head_sent_bytes", "_items", "held_bytes", "size_bytes")

    def __init__(self) -> None:
        self._items: deque[memoryview | FileSlice] = deque()
        self.size_bytes = 0
        self.held_bytes = 0
        self._head_sent_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    def put(self, item: Buffer | FileSlice) -> None:
        """Append something to be sent."""
        if isinstance(item, FileSlice):
            size = item.size
        else:
            item = memoryview(item)
            size = item.nbytes
            self.held_bytes += size
        if size:
            self._items.append(item)
            self.size_bytes += size

    def extend(self, items: Iterable[Buffer | FileSlice]) -> None:
        """Append several things in their order."""
        for item in items:
            self.put(item)

    def head_slice(self) -> FileSlice | None:
        """Return the first item if there is one and it is a piece of a file."""
        head = self._items[0] if self._items else None
        return head if isinstance(head, FileSlice) else None

    def head_buffers(self) -> list[memoryview]:
        """Return the buffers up to the next piece of a file, as many as one call may take."""
        buffers = []
        for item in islice(self._items, BUFFERS_PER_CALL):
            if isinstance(item, FileSlice):
                break
            buffers.append(item)
        return buffers

    def load_small(self, size_max: int) -> None:
        """Read the first pieces of files, up to a size, that can be read without waiting.

        A small answer leaves in one go then, and with fewer calls than by ``sendfile``.
        """
        items, size = self._items, 0
        for number, item in enumerate(items):
            if isinstance(item, FileSlice):
                size += item.size
                content = item.file.read_now(item.size, item.position) if size <= size_max else None
                if content is None or len(content) < item.size:
                    return
                items[number] = memoryview(content)
                self.held_bytes += len(content)

    def cut_head(self, size: int) -> FileSlice:
        """Cut the piece of a file at the head, so that it has at most so many bytes."""
        head = self._items[0]
        assert isinstance(head, FileSlice)
        if head.size > size:
            self._items[0] = FileSlice(head.file, head.position + size, head.size - size)
            head = FileSlice(head.file, head.position, size)
            self._items.appendleft(head)
        return head

    def load_head(self, content: bytes) -> None:
        """Put what was read in the place of the piece of a file at the head."""
        head = self._items[0]
        assert isinstance(head, FileSlice)
        assert len(content) == head.size, "a segment ended before its index said so"
        self._items[0] = memoryview(content)
        self.held_bytes += len(content)

    def sent(self, size: int) -> None:
        """Forget the first ``size`` bytes."""
        self.size_bytes -= size
        items = self._items
        while size:
            head = items[0]
            is_held = isinstance(head, memoryview)
            length = head.nbytes if isinstance(head, memoryview) else head.size
            if size < length:
                items[0] = _cut(head, size)
                self._head_sent_bytes += size if is_held else 0
                return
            if is_held:
                self.held_bytes -= length + self._head_sent_bytes
                self._head_sent_bytes = 0
            size -= length
            items.popleft()

    def clear(self) -> None:
        """Drop everything, as when the client is gone."""
        self._items.clear()
        self.size_bytes = self.held_bytes = self._head_sent_bytes = 0


def _cut(item: memoryview | FileSlice, size: int) -> memoryview | FileSlice:
    """Return the item without its first bytes."""
    if isinstance(item, FileSlice):
        return FileSlice(item.file, item.position + size, item.size - size)
    return item[size:]
