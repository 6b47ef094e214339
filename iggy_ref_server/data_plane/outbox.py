"""The output buffer of one client: byte buffers, and pieces of files that are not read yet."""

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
        size_bytes: the bytes that are not sent.
        held_bytes: the memory they use; pieces of files use none, and a buffer stays in memory as a
            whole until its last byte is sent.
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
        """Append a buffer or a piece of a file."""
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
        """Append several items in order."""
        for item in items:
            self.put(item)

    def head_slice(self) -> FileSlice | None:
        """Return the first item if there is one and it is a piece of a file."""
        head = self._items[0] if self._items else None
        return head if isinstance(head, FileSlice) else None

    def head_buffers(self) -> list[memoryview]:
        """Return the buffers before the next piece of a file, as many as one call may take."""
        buffers = []
        for item in islice(self._items, BUFFERS_PER_CALL):
            if isinstance(item, FileSlice):
                break
            buffers.append(item)
        return buffers

    def load_small(self, size_max: int) -> None:
        """Read leading pieces of files, up to a size, that can be read without waiting.

        A small reply is then sent in one call instead of one per ``sendfile``.
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
        """Split the piece of a file at the head after ``size`` bytes, and return the first part."""
        head = self._items[0]
        assert isinstance(head, FileSlice)
        if head.size > size:
            self._items[0] = FileSlice(head.file, head.position + size, head.size - size)
            head = FileSlice(head.file, head.position, size)
            self._items.appendleft(head)
        return head

    def load_head(self, content: bytes) -> None:
        """Replace the piece of a file at the head by its content."""
        head = self._items[0]
        assert isinstance(head, FileSlice)
        assert len(content) == head.size, "a segment ended before its index said so"
        self._items[0] = memoryview(content)
        self.held_bytes += len(content)

    def sent(self, size: int) -> None:
        """Drop the first ``size`` bytes."""
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
        """Drop everything, as after a disconnect."""
        self._items.clear()
        self.size_bytes = self.held_bytes = self._head_sent_bytes = 0


def _cut(item: memoryview | FileSlice, size: int) -> memoryview | FileSlice:
    """Return the item without its first bytes."""
    if isinstance(item, FileSlice):
        return FileSlice(item.file, item.position + size, item.size - size)
    return item[size:]
