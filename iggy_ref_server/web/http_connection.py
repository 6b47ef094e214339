"""One HTTP connection: its timeouts, and its end.

hypercorn waits without limit for a slow reader, and as long as the keep-alive for a client that
sends a head byte by byte or has disconnected. Here each of these has a timeout.

When a client disconnects, its connection ends at once: responses are dropped and tasks that wait
for the client are cancelled. Only a started command runs to its end. A client of
HTTP/1.1 that half-closes its connection still gets its response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio
from hypercorn.events import Closed, RawData, Updated
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from iggy_ref_server.net.pipeline import DISCARD_BYTES, lingering_close
from iggy_ref_server.web.connection import enter_connection
from iggy_ref_server.web.http_protocols import (
    BYTES_PER_SECOND_MIN,
    HttpConnectionLimits,
    NegotiatedProtocol,
)

if TYPE_CHECKING:
    from hypercorn.config import Config
    from hypercorn.events import Event
    from hypercorn.trio.worker_context import WorkerContext


# The start of a response of HTTP/1.1, and of an informational one (1xx).
HEAD: Final = b"HTTP/1.1 "
INFORMATIONAL_HEAD: Final = b"HTTP/1.1 1"


class TimeoutStream(trio.abc.Stream):
    """A socket stream with timeouts for request heads and responses.

    Args:
        stream: the socket.
        stall_timeout_s: how long a head may take, and an answer in addition to the slowest speed.
        first_request_timeout_s: how long the client may say nothing at first; 0 is for ever.
        network: whose connection it is, where those of one client are bounded.

    Attributes:
        network: the same.
        idle_since: when the connection began, or its last request.
        is_authenticated: whether its client has shown a token that counts.
    """

    def __init__(
        self,
        stream: trio.SocketStream,
        *,
        stall_timeout_s: float,
        first_request_timeout_s: float = 0.0,
        network: str = "",
    ) -> None:
        self._stream = stream
        self._stall_timeout_s = stall_timeout_s
        self._is_serving = self._is_working = False
        self.network = network
        self.is_authenticated = False
        self.idle_since = trio.current_time()
        self._has_begun = False
        self._head_deadline = trio.current_time() + (first_request_timeout_s or float("inf"))
        self._reading: trio.CancelScope | None = None
        self._is_at_end = False
        self.is_closing = False

    @property
    def socket(self) -> trio.socket.SocketType:
        """The socket, for its addresses."""
        return self._stream.socket

    @property
    def stall_timeout_s(self) -> float:
        """The time for a response in addition to its time at the slowest speed."""
        return self._stall_timeout_s

    @property
    def is_serving(self) -> bool:
        """Whether a request is in progress."""
        return self._is_serving

    @property
    def can_give_way(self) -> bool:
        """Whether the connection may be closed in favour of another.

        It may while no request is in progress. Without a login it may also while the body of a
        request is awaited: a client that sends a byte now and then would keep others out.
        """
        return not self._is_serving or not (self.is_authenticated or self._is_working)

    def work(self) -> None:
        """Note that a request has come as a whole."""
        self._is_working = True

    def serve(self, is_serving: bool) -> None:
        """Record that the head of a request is complete, or that its response is sent."""
        self._is_serving, self._has_begun = is_serving, False
        self._is_working = self._is_working and is_serving
        self.idle_since = trio.current_time()
        self._head_deadline = float("inf")
        if self._reading is not None:
            self._reading.deadline = self._head_deadline

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive; a head that takes too long breaks the connection."""
        if self.is_closing:
            # The task that closes still reads, and two tasks cannot read one socket.
            raise trio.ClosedResourceError("the connection is being closed")
        with trio.CancelScope(deadline=self._head_deadline) as self._reading:
            try:
                data = bytes(await self._stream.receive_some(max_bytes))
            finally:
                self._reading = None
            if not data:
                self._is_at_end = True
            elif not self._is_serving and not self._has_begun:
                self._has_begun = True
                self._head_deadline = trio.current_time() + self._stall_timeout_s
            return data
        raise trio.BrokenResourceError("the head of a request did not arrive in time")

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send; a client that reads too slowly breaks the connection."""
        with trio.move_on_after(self._stall_timeout_s + len(data) / BYTES_PER_SECOND_MIN):
            await self._stream.send_all(data)
            return
        # hypercorn would go on with the next request of the same client.
        self._stream.socket.close()
        raise trio.BrokenResourceError("the client reads too slowly")

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the socket takes more."""
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Half-close the socket."""
        await self._stream.send_eof()

    async def aclose(self) -> None:
        """Close, but let the client read the last answer first, if it still sends."""
        self.is_closing = True
        try:
            if not self._is_at_end and self._reading is None:
                await lingering_close(self._discard)
        finally:
            await self._stream.aclose()

    async def _discard(self) -> bool:
        try:
            return bool(await self._stream.receive_some(DISCARD_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
            return False


class HttpServerConnection(TCPServer):
    """A connection on which hypercorn serves HTTP.

    Args:
        app: the application, as hypercorn wraps it.
        config: hypercorn's configuration.
        context: signals the stop of the listener.
        state: the ASGI lifespan state; empty.
        stream: the connection, encrypted or not.
        timed: the socket below it.
    """

    def __init__(
        self,
        app: Any,
        config: Config,
        context: WorkerContext,
        state: Any,
        stream: Any,
        timed: TimeoutStream,
    ) -> None:
        super().__init__(app, config, context, state, stream)
        self._timed = timed
        self._head = b""
        self._is_half_closed = False
        self._is_disconnected = False
        self._served = app
        self._in_flight_count = 0
        self.app: Any = self._serve_request
        self.protocol: Any = None

    async def run(self) -> None:
        """Serve the client to the end of the connection."""
        address, ssl = self._timed.socket, isinstance(self.stream, trio.SSLStream)
        limits = HttpConnectionLimits(self._timed.stall_timeout_s, lambda: self._in_flight_count)
        try:
            is_http2 = ssl and self.stream.selected_alpn_protocol() == "h2"
            client = parse_socket_addr(address.family, address.getpeername())
            server = parse_socket_addr(address.family, address.getsockname())
            async with TaskGroup() as self._task_group:
                self.protocol = NegotiatedProtocol(
                    limits,
                    is_http2,
                    self.app,
                    self.config,
                    self.context,
                    self._task_group,
                    ConnectionState(self.state),
                    ssl,
                    client,
                    server,
                    self.protocol_send,
                )
                await self.protocol.initiate()
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
        except OSError:
            # The client disconnected before it was served.
            return
        finally:
            await self._close()

    async def _serve_request(self, scope: Any, *arguments: Any) -> None:
        """Serve a request, and count it as long as that takes."""
        self._in_flight_count += 1
        enter_connection(scope, self)
        try:
            await self._served(scope, *arguments)
        finally:
            self._in_flight_count -= 1

    async def protocol_send(self, event: Event) -> None:
        """Send the bytes of the protocol, and track the state of the connection."""
        if isinstance(event, RawData):
            await self._send(self._coalesce_head(event.data))
        elif isinstance(event, Closed):
            await self._close()
            self._disconnect()
        elif isinstance(event, Updated):
            self._timed.serve(not event.idle)
            if event.idle and self._is_half_closed:
                self._disconnect()
            elif not self._is_disconnected:
                await super().protocol_send(event)

    def _coalesce_head(self, data: bytes) -> bytes:
        """Join the head of a response with its body, which saves half of the system calls."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(HEAD) and not data.startswith(INFORMATIONAL_HEAD):
            # Another event always follows: at least the end of an empty body.
            data, self._head = b"", data
        return data

    async def _send(self, data: bytes) -> None:
        """Send; an error means that the client has disconnected."""
        if not data or self._is_disconnected:
            return
        async with self.send_lock:
            try:
                # A partial message would corrupt the stream for those that follow.
                with trio.CancelScope(shield=True):
                    await self.stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._disconnect()

    async def _read_data(self) -> None:
        """Read until the client disconnects or half-closes the connection."""
        while not self._is_half_closed:
            try:
                data = await self.stream.receive_some(MAX_RECV)
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                if not self._timed.is_closing:
                    self._disconnect()
                return
            self._is_half_closed = not data
            await self.protocol.handle(RawData(bytes(data)))
        if self.protocol.is_http2 or not self._timed.is_serving:
            self._disconnect()
            return
        await self.idle_task.stop()
        await self.protocol.handle(Closed())

    def abort(self) -> None:
        """Close at once, with everything that is under way."""
        self._disconnect()

    def note_work(self) -> None:
        """Note that a request has come as a whole, and is worked on."""
        self._timed.work()

    def note_login(self) -> None:
        """Note that the client has shown a token that counts."""
        self._timed.is_authenticated = True

    def _disconnect(self) -> None:
        """Cancel everything that is in progress on this connection."""
        self._is_disconnected = True
        self._timed.socket.close()
        nursery = self._task_group._nursery
        if nursery is not None:
            nursery.cancel_scope.cancel()
