"""One connection through the proxy: a task for each direction, and the queue of pending requests.

Replies match requests by their order alone. So a reply that the proxy makes waits behind those of
the server, and after a swallowed reply no later one may pass: the client would match it to the
wrong request.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio

from iggy_protocol import CLASSIC
from iggy_sdk.testing.frames import replies, requests
from iggy_sdk.testing.rules import Action, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import SocketStream

__all__ = ["Link"]

READ_BYTES = 262_144
"""One read: large enough that a batch of a megabyte is not cut into hundreds of pieces."""

OUTSTANDING_MAX = 8_192
"""Requests without a reply; twice what a server accepts, so the proxy is never the limit."""

STREAM_ENDS = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Link:
    """A pair of sockets.

    Args:
        judge: returns the effect of the faults on a command, by its code.
        hold: waits the given seconds, or less when the faults are healed.
    """

    def __init__(
        self,
        client: SocketStream,
        server: SocketStream,
        *,
        judge: Callable[[int], Verdict],
        hold: Callable[[float], Awaitable[None]],
    ) -> None:
        self._client = client
        self._server = server
        self._judge = judge
        self._hold = hold
        self._request_walker = requests()
        self._reply_walker = replies()
        self._is_forwarding = True
        self._is_falling = False
        self._waiting: deque[Verdict] = deque()
        self._room = anyio.Semaphore(OUTSTANDING_MAX)
        self._writing = anyio.Lock()
        self._scope = anyio.CancelScope()
        self.gone = anyio.Event()
        self.is_mute = False

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
        for piece in self._request_walker.feed(data):
            if piece.begins:
                await self._decide(piece.number, outgoing)
            if self._is_forwarding:
                outgoing += piece.data
        await self._send(self._server, outgoing)

    async def _decide(self, code: int, outgoing: bytearray) -> None:
        if self._is_falling:
            # Read and drop: a close with unread bytes sends a reset, which discards replies.
            return
        verdict = self._judge(code)
        if verdict.delay_s or verdict.action is Action.CUT:
            # Earlier commands are not affected: they are forwarded first.
            await self._send(self._server, outgoing)
            outgoing.clear()
            await self._hold(verdict.delay_s)
        await self._room.acquire()
        self._waiting.append(verdict)
        self._is_falling = verdict.action is Action.CUT
        self._is_forwarding = not self._is_falling and verdict.action is not Action.ANSWER
        if not self._is_forwarding:
            async with self._writing:
                await self._send(self._client, b"" if self.is_mute else self._due_answers())
                self._fall_if_due()

    # From the server

    async def _carry_replies(self, data: bytes) -> None:
        if self.is_mute:
            return
        async with self._writing:
            outgoing, lost = bytearray(), Action.PASS
            for piece in self._reply_walker.feed(data):
                if piece.begins and (lost := self._fate()) is not Action.PASS:
                    break
                outgoing += piece.data
                if piece.ends:
                    self._finish(outgoing)
            await self._send(self._client, outgoing)
            self.is_mute = lost is Action.SWALLOW
            if lost is Action.CUT_AT_REPLY:
                self.cut()
            self._fall_if_due()

    def _fate(self) -> Action:
        """Return the action for the reply that begins; PASS for one without a request."""
        return self._waiting[0].action if self._waiting else Action.PASS

    def _finish(self, outgoing: bytearray) -> None:
        """Finish a reply; the next one may have to come from the proxy."""
        if self._waiting:
            self._waiting.popleft()
            self._room.release()
        outgoing += self._due_answers()

    def _due_answers(self) -> bytes:
        """Return the replies of the proxy that have no older pending request."""
        frames = b""
        while self._waiting and self._waiting[0].action is Action.ANSWER:
            frames += CLASSIC.response_head(self._waiting.popleft().status, 0)
            self._room.release()
        return frames

    def _fall_if_due(self) -> None:
        """Cut the connection if its fault is next and all earlier commands have replies."""
        if self._waiting and self._waiting[0].action is Action.CUT:
            self.cut()

    @staticmethod
    async def _send(target: SocketStream, data: bytes | bytearray) -> None:
        if data:
            await target.send(bytes(data))
