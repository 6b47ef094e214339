"""One stream of a QUIC connection: a request comes in, its reply goes out, and that was all.

A stream carries one frame in each direction. What is special about frames here is what the original
does with those that are cut: a length that cannot be, or a request that ends too soon, is answered
by the end of the stream alone, and messages that end too soon by a status.

Each exchange is a link of its own for the data plane, with the session that all exchanges of a
connection share. So requests of one client are served side by side, in the order of their arrival
as far as they need not wait.

Owns the frame that is under way. When it is fed and what becomes of the reply's bytes is the line's
affair, what the request means the data plane's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from iggy_protocol import VSR_HEAD_BYTES, CommandCode, StatusCode, begins_vsr_request
from iggy_ref_server.data_plane.link import Link

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import Limits
    from iggy_ref_server.session import Session

__all__ = ["Exchange"]

HEAD: Final = struct.Struct("<II")
LENGTH_MIN: Final = 4
LENGTH_BYTES: Final = 4
SEND_MESSAGES: Final = int(CommandCode.SEND_MESSAGES)


class Exchange:
    """A request and its reply.

    Args:
        stream_id: the stream that carries them.
        session: the client.
        limits: the bounds of a request.
        wake: told of this exchange whenever there is something to do for it.
        now: the time.

    Attributes:
        link: what the data plane sees of it.
        need_bytes: how long the request is in all; None while nobody knows.
        heard_bytes: how much of it has come.
        begun_at: when it began to come.
        heard_at: when something of it came last.
        loaded: a piece of the reply that was read from a file.
        is_loading: whether a piece is being read.
        is_heard: whether the request is complete, or as much of it as anybody wants.
        is_void: whether nothing is to be answered but the end of the stream.
        is_unwanted: whether the client does not want the reply any more.
        is_sent_off: whether the client has finished its side, or given it up.
        was_taken: whether the data plane has seen all of the request that it wants.
    """

    __slots__ = (
        "_head",
        "_wake",
        "begun_at",
        "heard_at",
        "heard_bytes",
        "is_heard",
        "is_loading",
        "is_sent_off",
        "is_unwanted",
        "is_void",
        "link",
        "loaded",
        "need_bytes",
        "stream_id",
        "was_taken",
    )

    def __init__(
        self,
        stream_id: int,
        session: Session,
        limits: Limits,
        wake: Callable[[Exchange], None],
        now: float,
    ) -> None:
        self.stream_id = stream_id
        self.link = Link(session, self, limits, outbox_bytes_max=limits.response_bytes_max)
        self.need_bytes: int | None = None
        self.heard_bytes = 0
        self.begun_at = self.heard_at = now
        self.loaded = b""
        self.is_loading = False
        self.is_heard = False
        self.is_void = False
        self.is_unwanted = False
        self.is_sent_off = False
        self.was_taken = False
        self._head = b""
        self._wake = wake

    def wake(self, link: Link) -> None:
        """Pass on what the data plane says about the link."""
        self._wake(self)

    def feed(self, data: bytes, now: float) -> None:
        """Take bytes of the request; what follows the request is dropped."""
        self.heard_at = now
        if self.is_heard:
            return
        if self.need_bytes is None:
            data = self._head = self._head + data
            self.need_bytes = self._measure(data)
            if self.need_bytes is None:
                return
        if len(data) > self.need_bytes - self.heard_bytes:
            data = data[: self.need_bytes - self.heard_bytes]
        self.heard_bytes += len(data)
        self.link.connection.receive_data(data)
        self.is_heard = self.heard_bytes == self.need_bytes

    def _measure(self, head: bytes) -> int | None:
        """Tell how long the request is in all; None while nobody knows, or where it is none."""
        if len(head) < HEAD.size:
            return None
        length, _ = HEAD.unpack_from(head)
        if length >= LENGTH_MIN:
            return LENGTH_BYTES + int(length)
        if not begins_vsr_request(head):
            self._end_void()
        elif len(head) >= VSR_HEAD_BYTES:
            # A client of another protocol: its head is enough for the connection to refuse it.
            return VSR_HEAD_BYTES
        return None

    def finish(self) -> None:
        """Note that the client has finished its side."""
        self.is_sent_off = True
        if self.is_heard:
            return
        if self.need_bytes is not None and HEAD.unpack_from(self._head)[1] == SEND_MESSAGES:
            self.is_heard = self.was_taken = True
            self.link.outbox.put(HEAD.pack(StatusCode.QUIC_ERROR, 0))
        else:
            self._end_void()

    def _end_void(self) -> None:
        self.is_heard = self.is_void = self.was_taken = True

    def note_served(self) -> None:
        """Take note that the data plane has looked at what has come."""
        link = self.link
        # A request above its limit is answered before it is complete; the rest is not wanted.
        self.is_heard = self.is_heard or link.owes or link.is_ending
        self.was_taken = self.is_heard

    @property
    def is_ready(self) -> bool:
        """Whether all of the reply is known."""
        return self.was_taken and not (self.link.is_busy or self.link.answers)

    @property
    def owed_bytes(self) -> int:
        """How much of the reply has not been written."""
        return self.link.outbox.size_bytes + len(self.loaded)
