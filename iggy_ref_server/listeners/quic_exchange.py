"""One stream of a QUIC connection, with one request and one reply.

Apache Iggy treats truncated requests on a stream in its own way: an invalid length, or a request
that ends too early, gets an empty reply (the end of the stream), and a truncated batch of messages
gets a status.

Each stream has its own pipeline; all streams of a connection share the session. So the requests of
one client run concurrently, and start in order of arrival.
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
        stream_id: the id of the stream.
        session: the client.
        limits: the limits of a request.
        wake: called with this object when it needs processing.
        now: the time.

    Attributes:
        link: its request pipeline.
        need_bytes: the size of the request; None until its head is complete.
        heard_bytes: the received bytes of the request.
        begun_at: when its first byte arrived.
        heard_at: when its last bytes arrived.
        loaded: a piece of the reply that was read from a file.
        is_loading: whether a piece is being read.
        is_heard: whether no more of the request is needed.
        is_void: whether the reply is only the end of the stream.
        is_unwanted: whether the client has cancelled the reply.
        is_sent_off: whether the client has finished or reset its side.
        was_taken: whether the scheduler has processed the request.
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
        """Pass a wake-up of the pipeline to the connection."""
        self._wake(self)

    def feed(self, data: bytes, now: float) -> None:
        """Add bytes of the request; bytes after the request are dropped."""
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
        """Return the size of the request; None if the head is incomplete or invalid."""
        if len(head) < HEAD.size:
            return None
        length, _ = HEAD.unpack_from(head)
        if length >= LENGTH_MIN:
            return LENGTH_BYTES + int(length)
        if not begins_vsr_request(head):
            self._end_void()
        elif len(head) >= VSR_HEAD_BYTES:
            # A client with an unsupported protocol: its head is enough to refuse it.
            return VSR_HEAD_BYTES
        return None

    def finish(self) -> None:
        """Process the end of the client's side."""
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
        """Update the state after the scheduler has processed the input."""
        link = self.link
        # A request above its limit gets its reply before it is complete; the remainder is ignored.
        self.is_heard = self.is_heard or link.owes or link.is_ending
        self.was_taken = self.is_heard

    @property
    def is_ready(self) -> bool:
        """Whether the whole reply is known."""
        return self.was_taken and not (self.link.is_busy or self.link.answers)

    @property
    def owed_bytes(self) -> int:
        """The bytes of the reply that are not written to the stream."""
        return self.link.outbox.size_bytes + len(self.loaded)
