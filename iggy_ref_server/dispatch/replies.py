"""The replies of one client, in the order of its requests.

An ``CommandReply`` is the result of a request. An ``PendingReply`` reserves its position while the
result is not known yet.

Owns the order. Knows neither sockets nor how a request is handled.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, cast

from iggy_protocol import Buffer, record
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import ServerConnection, UnansweredRequest, VsrServerConnection
    from iggy_ref_server.completion import Completion


@record
class CommandReply:
    """The result of one request.

    Attributes:
        status: 0, or the number of an error, which carries no payload.
        parts: the payload in pieces.
        close: whether the server closes the connection after this reply.
        position: where the metadata stood after a write of a client from 0.9 on; 0 for a refusal,
            for reads, and in the classic dialect.
    """

    status: int = 0
    parts: tuple[Buffer | FileSlice, ...] = ()
    close: bool = False
    position: int = 0


class PendingReply:
    """A reserved position for one reply, or for those to a run of sends."""

    __slots__ = ("count", "pending", "reply", "size_bytes")

    def __init__(
        self, pending: Completion | None = None, count: int = 1, size_bytes: int = 0
    ) -> None:
        self.count = count
        self.size_bytes = size_bytes
        self.reply: CommandReply | None = None
        self.pending = pending


class ReplyQueue:
    """The replies that one client has not received yet.

    Args:
        output_buffer: where frames go.

    Attributes:
        connection: encodes replies and knows the order of requests; set before the first request.
        uncommitted_bytes: the bodies of sends that are not committed yet; they occupy memory.
    """

    __slots__ = ("_output_buffer", "_queue", "connection", "uncommitted_bytes")

    connection: ServerConnection | VsrServerConnection

    def __init__(self, output_buffer: OutputBuffer) -> None:
        self._output_buffer = output_buffer
        self._queue: deque[PendingReply] = deque()
        self.uncommitted_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def reserve_reply(self) -> PendingReply:
        """Reserve the position of the reply to the next request."""
        pending_reply = PendingReply()
        self._queue.append(pending_reply)
        return pending_reply

    def reserve_acknowledgements(
        self, pending: Completion, count: int, size_bytes: int
    ) -> PendingReply | None:
        """Reserve the position of ``count`` acknowledgements that depend on one write.

        Returns:
            The new position, or None if the last position waits for the same write and was
            extended.
        """
        self.uncommitted_bytes += size_bytes
        if self._queue:
            last = self._queue[-1]
            # A run of sends in one write shares one position: a thousand pipelined messages then
            # cost one callback.
            if last.pending is pending and last.reply is None:
                last.count += count
                last.size_bytes += size_bytes
                return None
        pending_reply = PendingReply(pending, count, size_bytes)
        self._queue.append(pending_reply)
        return pending_reply

    def reserve_confirmations(
        self, pending: Completion, count: int, size_bytes: int
    ) -> PendingReply:
        """Reserve the position of the replies to sends that tell where their messages are.

        Args:
            pending: the write that they depend on.
            count: 1, or the requests of a run that the connection has taken as one.
            size_bytes: their bytes.
        """
        self.uncommitted_bytes += size_bytes
        pending_reply = PendingReply(pending, count, size_bytes)
        self._queue.append(pending_reply)
        return pending_reply

    def last_uncommitted(self) -> Completion | None:
        """Return the last write that a send still waits for, if any."""
        for pending_reply in reversed(self._queue):
            if pending_reply.reply is None and pending_reply.pending is not None:
                return pending_reply.pending
        return None

    def encode_ready(self) -> bool:
        """Encode the replies at the front of the queue whose result is known.

        Returns:
            Whether the last of them closes the connection. Nothing may follow it.
        """
        pending_reply = self._queue
        while pending_reply and (reply := pending_reply[0].reply) is not None:
            settled = pending_reply.popleft()
            self.uncommitted_bytes -= settled.size_bytes
            self._encode(reply, settled.count)
            if reply.close:
                pending_reply.clear()
                return True
        return False

    def _encode(self, reply: CommandReply, count: int) -> None:
        connection, output_buffer = self.connection, self._output_buffer
        if reply.status:
            for _ in range(count):
                output_buffer.extend(connection.send_error(reply.status, position=reply.position))
        elif count > 1 and reply.parts:
            # Only the confirmations of a run are so many and not empty.
            (payload,) = reply.parts
            assert isinstance(payload, bytes)
            connection = cast("VsrServerConnection", connection)
            output_buffer.put(connection.send_confirmations(payload, position=reply.position))
        elif reply.parts:
            size = sum(_size(part) for part in reply.parts)
            output_buffer.put(connection.send_head(size, position=reply.position))
            output_buffer.extend(reply.parts)
        else:
            output_buffer.put(connection.send_empty(count, position=reply.position))

    def encode_detached(self, request: UnansweredRequest, reply: CommandReply) -> None:
        """Encode the reply to a request that was taken out of the order of replies."""
        connection = cast("VsrServerConnection", self.connection)
        if reply.status:
            frames = connection.send_detached_error(request, reply.status)
            self._output_buffer.extend(frames)
            return
        size = sum(_size(part) for part in reply.parts)
        head = connection.send_detached_head(request, size, position=reply.position)
        self._output_buffer.put(head)
        self._output_buffer.extend(reply.parts)


def _size(part: Buffer | FileSlice) -> int:
    size: int = part.size if isinstance(part, tuple) else memoryview(part).nbytes
    return size


# The output buffer of one client: byte buffers, and pieces of files that are not read yet.


BUFFERS_PER_SENDMSG = 64
NOTHING = memoryview(b"")


class OutputBuffer:
    """A queue of bytes for one client.

    Where replies are encrypted, ``encoded`` is what was made of those at the front; it is sent
    before anything else.

    Attributes:
        encoded: the encoded bytes that are not sent.
        size_bytes: the bytes that are not sent.
        held_bytes: the memory they use; pieces of files use none, and a buffer stays in memory as a
            whole until its last byte is sent.
    """

    __slots__ = ("_head_sent_bytes", "_items", "encoded", "held_bytes", "size_bytes")

    def __init__(self) -> None:
        self._items: deque[memoryview | FileSlice] = deque()
        self.encoded = NOTHING
        self.size_bytes = 0
        self.held_bytes = 0
        self._head_sent_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._items or self.encoded)

    @property
    def is_encoded(self) -> bool:
        """Whether nothing is left to encode."""
        return not self._items

    def use_vsr_frames(self) -> None:
        """Note that the replies are frames of 0.9 or later; they have their heads already."""

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
        for item in islice(self._items, BUFFERS_PER_SENDMSG):
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
                content = (
                    item.file.read_nowait(item.size, item.position) if size <= size_max else None
                )
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
                items[0] = _without_first(head, size)
                self._head_sent_bytes += size if is_held else 0
                return
            if is_held:
                self.held_bytes -= length + self._head_sent_bytes
                self._head_sent_bytes = 0
            size -= length
            items.popleft()

    def put_encoded(self, data: bytes) -> None:
        """Append to the encoded bytes; what they were made of is dropped by ``sent``."""
        # Hardly ever both: the next replies are encoded when these bytes are sent.
        self.encoded = memoryview(b"".join((self.encoded, data)) if self.encoded else data)
        self.size_bytes += len(data)
        self.held_bytes += len(data)

    def sent_encoded(self, size: int) -> None:
        """Drop the first ``size`` encoded bytes."""
        self.encoded = self.encoded[size:]
        self.size_bytes -= size
        self.held_bytes -= size

    def clear(self) -> None:
        """Drop everything, as after a disconnect."""
        self._items.clear()
        self.encoded = NOTHING
        self.size_bytes = self.held_bytes = self._head_sent_bytes = 0


def _without_first(item: memoryview | FileSlice, size: int) -> memoryview | FileSlice:
    """Return the item without its first bytes."""
    if isinstance(item, FileSlice):
        return FileSlice(item.file, item.position + size, item.size - size)
    return item[size:]
