"""The replies of one client, in the order of its requests.

An ``Answer`` is the result of a request. An ``Owed`` reserves its position while the result is not
known yet.

Owns the order. Knows neither sockets nor how a request is handled.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from iggy_protocol import Buffer, record
from iggy_ref_server.storage.interface import FileSlice

if TYPE_CHECKING:
    from iggy_protocol import ServerConnection
    from iggy_ref_server.data_plane.outbox import Outbox
    from iggy_ref_server.pending import Pending

__all__ = ["Answer", "AnswerQueue", "Owed"]


@record
class Answer:
    """The result of one request.

    Attributes:
        status: 0, or the number of an error, which carries no payload.
        parts: the payload in pieces.
        close: whether the server closes the connection after this reply.
    """

    status: int = 0
    parts: tuple[Buffer | FileSlice, ...] = ()
    close: bool = False


class Owed:
    """A reserved position for one reply, or for a run of acknowledgements."""

    __slots__ = ("answer", "count", "pending", "size_bytes")

    def __init__(self, pending: Pending | None = None, count: int = 1, size_bytes: int = 0) -> None:
        self.count = count
        self.size_bytes = size_bytes
        self.answer: Answer | None = None
        self.pending = pending


class AnswerQueue:
    """The replies that one client has not received yet.

    Args:
        connection: encodes replies and knows the order of requests.
        outbox: where frames go.

    Attributes:
        staged_bytes: the bodies of sends that are not committed yet; they occupy memory.
    """

    __slots__ = ("_connection", "_outbox", "_owed", "staged_bytes")

    def __init__(self, connection: ServerConnection, outbox: Outbox) -> None:
        self._connection = connection
        self._outbox = outbox
        self._owed: deque[Owed] = deque()
        self.staged_bytes = 0

    def __len__(self) -> int:
        return len(self._owed)

    def owe(self) -> Owed:
        """Reserve the position of the reply to the next request."""
        owed = Owed()
        self._owed.append(owed)
        return owed

    def acknowledge_with(self, pending: Pending, count: int, size_bytes: int) -> Owed | None:
        """Reserve the position of ``count`` acknowledgements that depend on one write.

        Returns:
            The new position, or None if the last position waits for the same write and was
            extended.
        """
        self.staged_bytes += size_bytes
        if self._owed:
            last = self._owed[-1]
            # A run of sends in one write shares one position: a thousand pipelined messages then
            # cost one callback.
            if last.pending is pending and last.answer is None:
                last.count += count
                last.size_bytes += size_bytes
                return None
        owed = Owed(pending, count, size_bytes)
        self._owed.append(owed)
        return owed

    def unsettled(self) -> Pending | None:
        """Return the last write that a send still waits for, if any."""
        for owed in reversed(self._owed):
            if owed.answer is None and owed.pending is not None:
                return owed.pending
        return None

    def settle(self) -> bool:
        """Encode the replies at the front of the queue whose result is known.

        Returns:
            Whether the last of them closes the connection. Nothing may follow it.
        """
        owed = self._owed
        while owed and (answer := owed[0].answer) is not None:
            settled = owed.popleft()
            self.staged_bytes -= settled.size_bytes
            self._frame(answer, settled.count)
            if answer.close:
                owed.clear()
                return True
        return False

    def _frame(self, answer: Answer, count: int) -> None:
        connection, outbox = self._connection, self._outbox
        if answer.status:
            for _ in range(count):
                outbox.extend(connection.send_error(answer.status))
        elif answer.parts:
            size = sum(_size(part) for part in answer.parts)
            outbox.put(connection.send_head(size))
            outbox.extend(answer.parts)
        else:
            outbox.put(connection.send_empty(count))


def _size(part: Buffer | FileSlice) -> int:
    size: int = part.size if isinstance(part, tuple) else memoryview(part).nbytes
    return size
