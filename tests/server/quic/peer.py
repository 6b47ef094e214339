"""A client of the QUIC listener for tests that sends anything, good or bad, and shows what comes.

    async with open_peer(plug, server_address) as peer:
        assert await peer.ask(frame_of(Ping())) == bytes(8)

The QUIC of it is that of ``aioquic``, unchanged unless a test asks for another core.
"""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from iggy_protocol import LoginUser
from tests.server.features.topic_calls import frame_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iggy_ref_server.net.quic.udp_socket import DatagramSocket

# Timers are sums of fractions: one that has fired may still be a hair ahead of the clock.
TICK_S = 1e-6


class Closed(Exception):
    """The server has closed the connection."""


class QuicPeer:
    """One connection.

    Attributes:
        core: the library's connection.
        replies: what came on each stream, and whether that was all of it.
        resets: streams that the server gave up, each with its code.
        stopped: streams on which the server wants to hear nothing more.
        end: why the connection ended, if it did.
    """

    def __init__(
        self,
        datagrams: DatagramSocket,
        server: Any,
        *,
        core: type[QuicConnection] = QuicConnection,
        **settings: Any,
    ) -> None:
        configuration = QuicConfiguration(
            is_client=True, server_name="localhost", verify_mode=ssl.CERT_NONE, **settings
        )
        self.core = core(configuration=configuration)
        self.datagrams = datagrams
        self.server = server
        self.replies: dict[int, tuple[bytes, bool]] = {}
        self.resets: dict[int, int] = {}
        self.stopped: set[int] = set()
        self.end: events.ConnectionTerminated | None = None
        self.is_connected = False
        self.heard_count = 0
        self._change = trio.Event()
        self._receiving = trio.CancelScope()

    async def run(self) -> None:
        """Drive the connection."""
        self.core.connect(self.server, trio.current_time())
        self.flush()
        while self.end is None:
            timer = self.core.get_timer()
            came: list[Any] = []
            soon = trio.current_time() + TICK_S
            due_at = float("inf") if timer is None else max(timer, soon)
            with trio.CancelScope(deadline=due_at) as scope:
                self._receiving = scope
                came = await self.datagrams.receive()
            now = trio.current_time()
            for data, _ in came:
                self.core.receive_datagram(data, self.server, now)
            self.heard_count += len(came)
            timer = self.core.get_timer()
            if timer is not None and timer <= now:
                self.core.handle_timer(now)
            self._note_events()
            self.flush()

    def flush(self) -> None:
        """Send what is to be sent."""
        sent = self.core.datagrams_to_send(trio.current_time())
        self.datagrams.send([(data, self.server) for data, _ in sent])
        self._receiving.deadline = self.core.get_timer() or float("inf")

    def _note_events(self) -> None:
        while (event := self.core.next_event()) is not None:
            if isinstance(event, events.StreamDataReceived):
                data, _ = self.replies.get(event.stream_id, (b"", False))
                self.replies[event.stream_id] = data + event.data, event.end_stream
            elif isinstance(event, events.StreamReset):
                self.resets[event.stream_id] = event.error_code
            elif isinstance(event, events.StopSendingReceived):
                self.stopped.add(event.stream_id)
            elif isinstance(event, events.HandshakeCompleted):
                self.is_connected = True
            elif isinstance(event, events.ConnectionTerminated):
                self.end = event
        termination = self.core._close_event
        if termination is not None:
            self.end = termination
        self._change.set()
        self._change = trio.Event()

    # Words for tests

    async def until(self, condition: Any) -> None:
        """Wait until something is true.

        Raises:
            Closed: the connection ended first.
        """
        while not condition():
            if self.end is not None:
                raise Closed(self.end.reason_phrase)
            await self._change.wait()

    async def ended(self) -> events.ConnectionTerminated:
        """Wait for the end of the connection."""
        while self.end is None:
            await self._change.wait()
        return self.end

    def send(self, data: bytes, *, stream: int | None = None, finish: bool = True) -> int:
        """Send on a stream, which may be a new one; return its number."""
        stream_id = self.core.get_next_available_stream_id() if stream is None else stream
        self.core.send_stream_data(stream_id, data, end_stream=finish)
        self.flush()
        return stream_id

    async def reply(self, stream_id: int) -> bytes:
        """Wait for all of a reply."""
        await self.until(lambda: self.replies.get(stream_id, (b"", False))[1])
        return self.replies[stream_id][0]

    async def ask(self, data: bytes) -> bytes:
        """Send a request and wait for its reply."""
        return await self.reply(self.send(data))

    async def log_in(self) -> None:
        """Log in as root."""
        reply = await self.ask(frame_of(LoginUser("iggy", "iggy")))
        assert reply[:4] == bytes(4), reply

    def close(self) -> None:
        """Close the connection."""
        self.core.close()
        self.flush()


@asynccontextmanager
async def open_peer(
    datagrams: DatagramSocket, server: Any, **settings: Any
) -> AsyncIterator[QuicPeer]:
    """Connect; the connection ends with the block.

    Raises:
        Closed: the server does not want it.
    """
    peer = QuicPeer(datagrams, server, **settings)
    refused: Closed | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.run)
        try:
            await peer.until(lambda: peer.is_connected)
        except Closed as closed:
            refused = closed
        else:
            yield peer
            peer.close()
        nursery.cancel_scope.cancel()
    if refused is not None:
        raise refused
