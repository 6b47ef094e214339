"""The outermost middleware: discards unread request bodies.

A request may be refused before its body is read. Closing the connection with an unread body would
lose the response for a client that still sends. So a bounded part of the body is discarded first.
While the end of the response is sent, further input is discarded too, because hypercorn waits until
it is taken.

It also restores the raw path of a request, and refuses WebSocket requests.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Threshold"]

# A proxy may send the absolute form of the target (RFC 9112, section 3.2.2).
ORIGIN: Final = re.compile(rb"^https?://[^/]*", re.IGNORECASE)
DISCARDED_BYTES_MAX: Final = 1 << 23
DISCARDING_S: Final = 2.0


class _Body:
    """The body of a request, and whether all of it was read."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_taken = False
        self.taken_bytes = 0

    async def receive(self) -> Message:
        """Read the next piece."""
        message = await self._receive()
        self.taken_bytes += len(message.get("body", b""))
        if not message.get("more_body", False):
            self.is_taken = True
        return message

    async def discard(self, bytes_max: float) -> None:
        """Discard the remaining body, at most ``bytes_max``."""
        end = self.taken_bytes + bytes_max
        while not self.is_taken and self.taken_bytes < end:
            await self.receive()


class Threshold:
    """ASGI middleware that discards unread request bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = ORIGIN.sub(b"", scope["raw_path"]).decode("latin-1") or "/"
        body = _Body(receive)

        async def send_last(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body")
            if is_last and not body.is_taken and _has_body(scope):
                await _send_and_discard(message, body, send)
            else:
                await send(message)

        await self._app(scope, body.receive, send_last)


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )


async def _send_and_discard(message: Message, body: _Body, send: Send) -> None:
    with trio.move_on_after(DISCARDING_S):
        await body.discard(DISCARDED_BYTES_MAX)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(body.discard, float("inf"))
        await send(message)
        nursery.cancel_scope.cancel()
