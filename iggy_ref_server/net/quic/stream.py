"""One stream of a QUIC connection, with one request and one reply.

Apache Iggy treats truncated requests on a stream in its own way: an invalid length, or a request
that ends too early, gets an empty reply (the end of the stream), and a truncated batch of messages
gets a status. From 0.9 on any request that is cut gets an empty reply.

Each stream has its own pipeline; all streams of a connection share the session, its binding and the
requests that are answered out of order. So the requests of one client run concurrently, and start
in order of arrival.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Final

from iggy_protocol import (
    VSR_HEAD_BYTES,
    Limits,
    MalformedFrame,
    StatusCode,
    WireFraming,
    framing_of,
    vsr_frame_size,
)
from iggy_ref_server.dispatch.table import STAGED_CODES
from iggy_ref_server.net.pipeline import RequestPipeline
from iggy_ref_server.storage.interface import FileSlice, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import trio

    from iggy_protocol.quic import QuicServerCore
    from iggy_ref_server.client_limits import BufferAccount
    from iggy_ref_server.net.detached import DetachedRequests
    from iggy_ref_server.session import ClientSession


LOGGER = logging.getLogger(__name__)


HEAD: Final = struct.Struct("<II")
LENGTH_BYTES: Final = 4


class QuicRequestStream:
    """A request and its reply.

    Args:
        stream_id: the id of the stream.
        session: the client.
        limits: the limits of a request.
        detached: the requests of the client that are answered out of order.
        wake: called with this object when it needs processing.
        now: the time.

    Attributes:
        pipeline: its request pipeline.
        request_bytes: the size of the request; None until its head is complete.
        received_bytes: the received bytes of the request.
        started_at: when its first byte arrived.
        last_received_at: when its last bytes arrived.
        loaded: a piece of the reply that was read from a file.
        is_reading_file: whether a piece is being read.
        is_complete: whether no more of the request is needed.
        is_empty_reply: whether the reply is only the end of the stream.
        is_cancelled: whether the client has cancelled the reply.
        is_input_finished: whether the client has finished or reset its side.
        is_dispatched: whether the scheduler has processed the request.
    """

    __slots__ = (
        "_head",
        "_wake",
        "is_cancelled",
        "is_complete",
        "is_dispatched",
        "is_empty_reply",
        "is_input_finished",
        "is_reading_file",
        "last_received_at",
        "loaded",
        "pipeline",
        "received_bytes",
        "request_bytes",
        "started_at",
        "stream_id",
    )

    def __init__(
        self,
        stream_id: int,
        session: ClientSession,
        limits: Limits,
        detached: DetachedRequests,
        wake: Callable[[QuicRequestStream], None],
        now: float,
    ) -> None:
        self.stream_id = stream_id
        self.pipeline = RequestPipeline(
            session,
            self,
            limits,
            output_bytes_max=limits.response_bytes_max,
            detached=detached,
        )
        self.request_bytes: int | None = None
        self.received_bytes = 0
        self.started_at = self.last_received_at = now
        self.loaded = b""
        self.is_reading_file = False
        self.is_complete = False
        self.is_empty_reply = False
        self.is_cancelled = False
        self.is_input_finished = False
        self.is_dispatched = False
        self._head = b""
        self._wake = wake

    def wake(self, pipeline: RequestPipeline) -> None:
        """Pass a wake-up of the pipeline to the connection."""
        self._wake(self)

    def feed(self, data: bytes, now: float) -> None:
        """Add bytes of the request; bytes after the request are dropped."""
        self.last_received_at = now
        if self.is_complete:
            return
        if self.request_bytes is None:
            data = self._head = self._head + data
            self.request_bytes = self._parse_length(data)
            if self.request_bytes is None:
                return
        if len(data) > self.request_bytes - self.received_bytes:
            data = data[: self.request_bytes - self.received_bytes]
        self.received_bytes += len(data)
        self.pipeline.connection.receive_data(data)
        self.is_complete = self.received_bytes == self.request_bytes

    def _parse_length(self, head: bytes) -> int | None:
        """Return the size of the request; None if the head is incomplete or invalid."""
        if len(head) < HEAD.size:
            return None
        try:
            framing = framing_of(head)
        except MalformedFrame:
            self._reply_empty()
            return None
        if framing is WireFraming.CLASSIC:
            return LENGTH_BYTES + int.from_bytes(head[:LENGTH_BYTES], "little")
        size = vsr_frame_size(head)
        # The pipeline refuses a frame that is shorter than its head.
        return None if size is None else max(size, VSR_HEAD_BYTES)

    def finish(self) -> None:
        """Process the end of the client's side."""
        self.is_input_finished = True
        if self.is_complete:
            return
        if self._is_classic_send:
            self.is_complete = self.is_dispatched = True
            self.pipeline.output_buffer.put(HEAD.pack(StatusCode.QUIC_ERROR, 0))
        else:
            self._reply_empty()

    @property
    def _is_classic_send(self) -> bool:
        """Whether the head is that of a batch from before 0.9."""
        length, code = HEAD.unpack_from(self._head) if self.request_bytes else (0, 0)
        return length > 0 and code in STAGED_CODES

    def _reply_empty(self) -> None:
        self.is_complete = self.is_empty_reply = self.is_dispatched = True

    def note_served(self) -> None:
        """Update the state after the scheduler has processed the input."""
        pipeline = self.pipeline
        # A request above its limit gets its reply before it is complete; the remainder is ignored.
        self.is_complete = self.is_complete or pipeline.has_unsent_replies or pipeline.is_closing
        self.is_dispatched = self.is_complete

    @property
    def is_ready(self) -> bool:
        """Whether the whole reply is known."""
        pipeline = self.pipeline
        return self.is_dispatched and not (
            pipeline.is_busy or pipeline.replies or pipeline.has_detached
        )

    @property
    def unsent_bytes(self) -> int:
        """The bytes of the reply that are not written to the stream."""
        return self.pipeline.output_buffer.size_bytes + len(self.loaded)


# The queue of long requests of one QUIC connection.
#
# A client that sends many large batches side by side would have all of them half done. So those
# that came first are granted room until together they are as much as may be; the next ones keep the
# window that every stream begins with, and wait. The same goes for all clients together: a request
# is let in only where all of it fits into the budget of the shard. The first one that does not fit
# has the account wait for room; more of them need not, because those before them end some day.
#
# Owns the queue. Knows neither bytes nor datagrams.


class LongRequestQueue:
    """The requests of a connection that are longer than the initial window.

    Args:
        core: the connection, which grants room.
        window_bytes: what every stream may send unasked.
        total_bytes_max: how much those of one client may be together; one always may.
    """

    def __init__(self, core: QuicServerCore, window_bytes: int, total_bytes_max: int) -> None:
        self._core = core
        self._window_bytes = window_bytes
        self._total_bytes_max = total_bytes_max
        self._queue: dict[QuicRequestStream, int] = {}
        self._admitted: set[QuicRequestStream] = set()

    @property
    def wanted_bytes(self) -> int:
        """What is missing of those that were let in; of the first one if none was."""
        among: Iterable[QuicRequestStream] = self._admitted or tuple(self._queue)[:1]
        return sum(self._queue[stream] - stream.received_bytes for stream in among)

    @property
    def waiting_bytes(self) -> int:
        """What came of the first one if none was let in."""
        return 0 if self._admitted else sum(one.received_bytes for one in tuple(self._queue)[:1])

    def begin(self, stream: QuicRequestStream) -> None:
        """Have a request wait until it is let in."""
        request_bytes = stream.request_bytes
        if request_bytes is None or request_bytes <= self._window_bytes or stream.is_complete:
            return
        if stream not in self._queue:
            self._queue[stream] = request_bytes
            self._core.paused_streams.add(stream.stream_id)

    def end(self, stream: QuicRequestStream) -> None:
        """Remove a request that is complete or cancelled."""
        if self._queue.pop(stream, None) is not None:
            self._admitted.discard(stream)
            self._core.paused_streams.discard(stream.stream_id)

    def let_in(self, account: BufferAccount) -> None:
        """Grant room to those who came first, as many as fit.

        Args:
            account: was told what is wanted just before.
        """
        total = new_bytes = 0
        for stream, request_bytes in self._queue.items():
            if total and total + request_bytes > self._total_bytes_max:
                return
            total += request_bytes
            if stream in self._admitted:
                continue
            if self._admitted:
                new_bytes += request_bytes - stream.received_bytes
                if not account.fits(new_bytes):
                    return
            elif account.is_paused:
                return
            self._admitted.add(stream)
            self._core.paused_streams.discard(stream.stream_id)


# Writes the replies of one QUIC connection into its streams.
#
# A short reply is written as soon as it is known. Long replies share the send window, the oldest
# first. Pieces of files are read one at a time, while the piece before is being sent.


# Replies up to this size ignore the send window; the limit of streams bounds their number.
SHORT_BYTES_MAX: Final = 16 << 10
LOAD_BYTES_MAX: Final = 256 << 10
NO_ERROR: Final = 0


class ReplyWriter:
    """The replies of one connection that are not written.

    Args:
        core: the connection.
        window_bytes: the limit of unacknowledged bytes of long replies.
        mark_ready: called with a stream when a piece of its reply has been read.
    """

    def __init__(
        self,
        core: QuicServerCore,
        window_bytes: int,
        mark_ready: Callable[[QuicRequestStream], None],
    ) -> None:
        self._core = core
        self._window_bytes = window_bytes
        self._mark_ready = mark_ready
        self._long: dict[QuicRequestStream, None] = {}
        self._pending_reads: list[QuicRequestStream] = []
        self._finished: list[QuicRequestStream] = []

    @property
    def unsent_bytes(self) -> int:
        """The bytes of long replies that are not written."""
        return sum(stream.unsent_bytes for stream in self._long)

    @property
    def has_pending_reads(self) -> bool:
        """Whether pieces of files must be read."""
        return bool(self._pending_reads)

    def take_finished(self) -> list[QuicRequestStream]:
        """Return the streams that have finished since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def write_short(self, stream: QuicRequestStream) -> bool:
        """Write a reply if it is known and short; return whether anything was written."""
        if not stream.is_ready or stream.is_reading_file:
            return False
        if stream.is_cancelled:
            self._drop(stream, NO_ERROR)
        elif stream.is_empty_reply:
            self._core.send_stream_data(stream.stream_id, b"", end_stream=True)
            self._finished.append(stream)
        elif stream not in self._long:
            output_buffer = stream.pipeline.output_buffer
            output_buffer.load_small(SHORT_BYTES_MAX)
            buffers = output_buffer.head_buffers()
            if (
                output_buffer.size_bytes > SHORT_BYTES_MAX
                or sum(map(len, buffers)) < output_buffer.size_bytes
            ):
                self._long[stream] = None
                return False
            self._core.send_stream_data(stream.stream_id, b"".join(buffers), end_stream=True)
            output_buffer.clear()
            self._finished.append(stream)
        else:
            return False
        return True

    def _drop(self, stream: QuicRequestStream, error_code: int) -> None:
        """Drop a reply and reset its stream."""
        stream.pipeline.output_buffer.clear()
        stream.loaded = b""
        self._long.pop(stream, None)
        self._core.reset_stream(stream.stream_id, error_code)
        self._finished.append(stream)

    def write_long(self) -> bool:
        """Write long replies up to the send window; return whether anything was written."""
        if not self._long:
            return False
        unacknowledged = sum(self._core.undelivered_bytes(one.stream_id) for one in self._long)
        budget = self._window_bytes - unacknowledged
        has_written = False
        for stream in list(self._long):
            while budget > 0 and not stream.is_reading_file:
                piece = self._next_piece(stream, budget)
                if piece is None:
                    break
                budget -= len(piece)
                has_written = True
                self._write(stream, piece)
        return has_written

    def _write(self, stream: QuicRequestStream, piece: bytes | memoryview) -> None:
        is_last = not stream.unsent_bytes
        self._core.send_stream_data(stream.stream_id, bytes(piece), end_stream=is_last)
        if is_last:
            del self._long[stream]
            self._finished.append(stream)

    def _next_piece(self, stream: QuicRequestStream, size_max: int) -> bytes | memoryview | None:
        """Take the next bytes of a reply; None if they must be read from a file first."""
        if stream.loaded:
            loaded = stream.loaded
            stream.loaded = loaded[size_max:]
            return loaded[:size_max]
        output_buffer = stream.pipeline.output_buffer
        if not output_buffer:
            return None
        if output_buffer.head_slice() is not None:
            stream.is_reading_file = True
            self._pending_reads.append(stream)
            return None
        piece = output_buffer.head_buffers()[0][:size_max]
        output_buffer.sent(len(piece))
        return piece

    def load(self, nursery: trio.Nursery) -> None:
        """Start the reads of pieces of files that are sent next."""
        pending_reads, self._pending_reads = self._pending_reads, []
        for stream in pending_reads:
            nursery.start_soon(self._load, stream)

    async def _load(self, stream: QuicRequestStream) -> None:
        output_buffer = stream.pipeline.output_buffer
        piece = output_buffer.head_slice()
        try:
            if piece is not None:
                size = min(piece.size, LOAD_BYTES_MAX)
                content = await piece.file.read(size, piece.position)
                # The client may have gone meanwhile, and its buffer been emptied.
                if output_buffer.head_slice() is piece:
                    _check_whole(piece, content)
                    stream.loaded = bytes(content)
                    output_buffer.sent(len(content))
        except StorageError as error:
            LOGGER.error("reset a QUIC stream within its reply: %s", error)
            stream.is_cancelled = True
        stream.is_reading_file = False
        self._mark_ready(stream)


def _check_whole(piece: FileSlice, content: bytes) -> None:
    if not content:
        text = "the segment is shorter than its index says"
        raise StorageError("read", piece.file.path, text)
