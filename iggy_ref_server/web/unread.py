"""What is done with bodies that nobody reads.

A request may be refused before its body is read. If the body were left where it is, the connection
would have to be cut, and a client that still sends would never see the answer; so a bounded part of
it is discarded first. While the end of an answer is sent, what comes is discarded as well, because
the server behind waits for somebody to take it.

Also turns the path of a request back into what was sent, and refuses what is no HTTP request.

Owns the outermost layer. Knows no routes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Threshold"]

# A proxy may ask with the whole address, RFC 9112 section 3.2.2.
ORIGIN: Final = re.compile(rb"^https?://[^/]*", re.IGNORECASE)
DISCARDED_BYTES_MAX: Final = 1 << 23
DISCARDING_S: Final = 2.0


class _Body:
    """The body of a request, and whether all of it was taken."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.is_taken = False
        self.taken_bytes = 0

    async def receive(self) -> Message:
        """Take the next piece."""
        message = await self._receive()
        self.taken_bytes += len(message.get("body", b""))
        if not message.get("more_body", False):
            self.is_taken = True
        return message

    async def discard(self, bytes_max: float) -> None:
        """Take what is left, or as much of it as is allowed."""
        end = self.taken_bytes + bytes_max
        while not self.is_taken and self.taken_bytes < end:
            await self.receive()


class Threshold:
    """The first that a request meets, and the last that an answer does.

    Args:
        app: what is behind.
    """

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
