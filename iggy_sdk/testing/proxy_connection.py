"""One connection through the proxy: a task for each direction, and the queue of pending requests.

Replies match requests by their order alone. So a reply that the proxy makes waits behind those of
the server, and after a swallowed reply no later one may pass: the client would match it to the
wrong request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import anyio

from iggy_protocol import CLASSIC
from iggy_sdk.testing.faults import FaultAction, FaultEffect

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from anyio.abc import SocketStream


READ_BYTES = 262_144
"""One read: large enough that a batch of a megabyte is not cut into hundreds of pieces."""

PENDING_REQUESTS_MAX = 8_192
"""Requests without a reply; twice what a server accepts, so the proxy is never the limit."""

STREAM_ENDS = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class ProxyConnection:
    """A pair of sockets.

    Args:
        decide: returns the effect of the faults on a command, by its code.
        hold: waits the given seconds, or less when the faults are healed.
    """

    def __init__(
        self,
        client: SocketStream,
        server: SocketStream,
        *,
        decide: Callable[[int], FaultEffect],
        hold: Callable[[float], Awaitable[None]],
    ) -> None:
        self._client = client
        self._server = server
        self._decide_effect = decide
        self._hold = hold
        self._request_splitter = requests()
        self._reply_splitter = replies()
        self._is_forwarding = True
        self._is_cutting = False
        self._waiting: deque[FaultEffect] = deque()
        self._capacity = anyio.Semaphore(PENDING_REQUESTS_MAX)
        self._writing = anyio.Lock()
        self._scope = anyio.CancelScope()
        self.gone = anyio.Event()
        self.is_silenced = False

    async def run(self) -> None:
        """Forward bytes both ways until one end closes or the connection is cut."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._pump, self._client, self._carry_requests)
                    tasks.start_soon(self._pump, self._server, self._carry_replies)
        finally:
            await anyio.aclose_forcefully(self._server)
            await anyio.aclose_forcefully(self._client)
            self.gone.set()

    def cut(self) -> None:
        """End the connection at once, for both ends."""
        self._scope.cancel()

    async def _pump(self, source: SocketStream, carry: Callable[[bytes], Awaitable[None]]) -> None:
        try:
            while True:
                await carry(await source.receive(READ_BYTES))
        except STREAM_ENDS:
            self.cut()

    # From the client

    async def _carry_requests(self, data: bytes) -> None:
        outgoing = bytearray()
        for piece in self._request_splitter.feed(data):
            if piece.begins:
                await self._decide(piece.number, outgoing)
            if self._is_forwarding:
                outgoing += piece.data
        await self._send(self._server, outgoing)

    async def _decide(self, code: int, outgoing: bytearray) -> None:
        if self._is_cutting:
            # Read and drop: a close with unread bytes sends a reset, which discards replies.
            return
        effect = self._decide_effect(code)
        if effect.delay_s or effect.action is FaultAction.CUT:
            # Earlier commands are not affected: they are forwarded first.
            await self._send(self._server, outgoing)
            outgoing.clear()
            await self._hold(effect.delay_s)
        await self._capacity.acquire()
        self._waiting.append(effect)
        self._is_cutting = effect.action is FaultAction.CUT
        self._is_forwarding = not self._is_cutting and effect.action is not FaultAction.ANSWER
        if not self._is_forwarding:
            async with self._writing:
                await self._send(self._client, b"" if self.is_silenced else self._due_answers())
                self._cut_if_due()

    # From the server

    async def _carry_replies(self, data: bytes) -> None:
        if self.is_silenced:
            return
        async with self._writing:
            outgoing, lost = bytearray(), FaultAction.PASS
            for piece in self._reply_splitter.feed(data):
                if piece.begins and (lost := self._reply_action()) is not FaultAction.PASS:
                    break
                outgoing += piece.data
                if piece.ends:
                    self._finish(outgoing)
            await self._send(self._client, outgoing)
            self.is_silenced = lost is FaultAction.SWALLOW
            if lost is FaultAction.CUT_AT_REPLY:
                self.cut()
            self._cut_if_due()

    def _reply_action(self) -> FaultAction:
        """Return the action for the reply that begins; PASS for one without a request."""
        return self._waiting[0].action if self._waiting else FaultAction.PASS

    def _finish(self, outgoing: bytearray) -> None:
        """Finish a reply; the next one may have to come from the proxy."""
        if self._waiting:
            self._waiting.popleft()
            self._capacity.release()
        outgoing += self._due_answers()

    def _due_answers(self) -> bytes:
        """Return the replies of the proxy that have no older pending request."""
        frames = b""
        while self._waiting and self._waiting[0].action is FaultAction.ANSWER:
            frames += CLASSIC.response_head(self._waiting.popleft().status, 0)
            self._capacity.release()
        return frames

    def _cut_if_due(self) -> None:
        """Cut the connection if its fault is next and all earlier commands have replies."""
        if self._waiting and self._waiting[0].action is FaultAction.CUT:
            self.cut()

    @staticmethod
    async def _send(target: SocketStream, data: bytes | bytearray) -> None:
        if data:
            await target.send(bytes(data))


# Splitting a byte stream into frames without buffering them; only a header of eight bytes is kept.
#
# A large frame passes piece by piece, each as soon as it has arrived.


ReadHead = Callable[[bytes, int], tuple[int, int]]


class FramePiece(NamedTuple):
    """A part of a frame, in the order of the stream.

    Attributes:
        data: the bytes.
        number: the command's code of a request, or the status of a reply.
        begins: whether ``data`` is the head of the frame.
        ends: whether the frame is complete with it.
    """

    data: memoryview
    number: int
    begins: bool
    ends: bool


class FrameSplitter:
    """Splits the frames of one direction.

    Args:
        head_bytes: the size of a head.
        read_head: returns a head's number and the size of the payload behind it.
    """

    def __init__(self, head_bytes: int, read_head: ReadHead) -> None:
        self._head_bytes = head_bytes
        self._read_head = read_head
        self._head = b""
        self._number = 0
        self._payload_left = 0

    def feed(self, data: bytes) -> Iterator[FramePiece]:
        """Yield the pieces of frames in ``data``."""
        view = memoryview(data)
        while view:
            if self._payload_left:
                taken = min(self._payload_left, len(view))
                self._payload_left -= taken
                yield FramePiece(view[:taken], self._number, False, not self._payload_left)
            else:
                taken = min(self._head_bytes - len(self._head), len(view))
                self._head += view[:taken]
                if len(self._head) == self._head_bytes:
                    yield self._begin()
            view = view[taken:]

    def _begin(self) -> FramePiece:
        head, self._head = self._head, b""
        self._number, size = self._read_head(head, 0)
        # A length below its minimum is negative here; the server skips such a header as well.
        self._payload_left = max(0, size)
        return FramePiece(memoryview(head), self._number, True, not self._payload_left)


def requests() -> FrameSplitter:
    """Make a splitter for what a client sends."""
    return FrameSplitter(CLASSIC.request_head_bytes, CLASSIC.read_request_head)


def replies() -> FrameSplitter:
    """Make a splitter for what a server sends."""
    return FrameSplitter(CLASSIC.response_head_bytes, CLASSIC.read_response_head)
