"""The REST API as one ASGI application.

request body → counter → CORS → access token → route → operation
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from iggy_ref_server.web.auth import TokenMiddleware
from iggy_ref_server.web.errors import empty_response
from iggy_ref_server.web.routes import make_route

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from iggy_ref_server.config.schema import HttpCorsConfig
    from iggy_ref_server.web.context import WebContext
    from iggy_ref_server.web.metrics import Metrics

__all__ = ["CorsMiddleware", "RequestBodyMiddleware", "make_app"]


# CORS headers for browsers.
#
# Every response has them. A request with method OPTIONS gets its response here, whatever its path,
# as in Apache Iggy.


if TYPE_CHECKING:
    Header = tuple[bytes, bytes]

VARY: Final = b"origin, access-control-request-method, access-control-request-headers"
ANY: Final = "*"


class CorsMiddleware:
    """ASGI middleware that adds CORS headers.

    Args:
        app: the application.
        config: the section ``[http.cors]``.
        methods_of: returns the methods of a path, such as ``GET,HEAD``; empty for an unknown path.
    """

    def __init__(
        self, app: ASGIApp, *, config: HttpCorsConfig, methods_of: Callable[[str], str]
    ) -> None:
        self._app = app
        self._methods_of = methods_of
        origins = [origin for origin in config.allowed_origins if origin.strip()]
        self._is_any = origins[:1] == [ANY]
        self._origins = frozenset(origin.encode() for origin in origins)
        self._always: list[Header] = [(b"vary", VARY)]
        if config.allow_credentials:
            self._always.append((b"access-control-allow-credentials", b"true"))
        self._exposed = _list_header(b"access-control-expose-headers", config.exposed_headers)
        methods = tuple(method.upper() for method in config.allowed_methods)
        self._preflight = [
            *_list_header(b"access-control-allow-methods", methods),
            *_list_header(b"access-control-allow-headers", config.allowed_headers),
        ]
        self._is_private_allowed = config.allow_private_network

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = self._always + self._origin_of(scope)
        if scope["method"] == "OPTIONS":
            await self._answer_preflight(headers, scope, receive, send)
            return
        headers += self._exposed

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _origin_of(self, scope: Scope) -> list[Header]:
        if self._is_any:
            return [(b"access-control-allow-origin", b"*")]
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        return [(b"access-control-allow-origin", origin)] if origin in self._origins else []

    async def _answer_preflight(
        self, headers: list[Header], scope: Scope, receive: Receive, send: Send
    ) -> None:
        response = Response()
        response.raw_headers += headers + self._preflight
        wants_private = (b"access-control-request-private-network", b"true")
        if self._is_private_allowed and wants_private in scope["headers"]:
            response.raw_headers.append((b"access-control-allow-private-network", b"true"))
        methods = self._methods_of(scope["path"])
        if methods:
            response.raw_headers.append((b"allow", methods.encode()))
        await response(scope, receive, send)


def _list_header(name: bytes, values: tuple[str, ...]) -> list[Header]:
    joined = ",".join(value.strip() for value in values if value.strip())
    return [(name, joined.encode())] if joined else []


# The outermost middleware: discards unread request bodies.
#
# A request may be refused before its body is read. Closing the connection with an unread body would
# lose the response for a client that still sends. So a bounded part of the body is discarded first.
# While the end of the response is sent, further input is discarded too, because hypercorn waits
# until it is taken.
#
# It also restores the raw path of a request, and refuses WebSocket requests.


# A proxy may send the absolute form of the target (RFC 9112, section 3.2.2).
ORIGIN: Final = re.compile(rb"^https?://[^/]*", re.IGNORECASE)
DISCARDED_BYTES_MAX: Final = 1 << 23
DISCARDING_S: Final = 2.0


class _RequestBody:
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


class RequestBodyMiddleware:
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
        body = _RequestBody(receive)

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


async def _send_and_discard(message: Message, body: _RequestBody, send: Send) -> None:
    with trio.move_on_after(DISCARDING_S):
        await body.discard(DISCARDED_BYTES_MAX)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(body.discard, float("inf"))
        await send(message)
        nursery.cancel_scope.cancel()


class _RequestCounter:
    """Counts requests."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._metrics.requests_count += 1
        await self._app(scope, receive, send)


async def _not_routed(request: Request, error: Exception) -> Response:
    """Reply to an unknown path."""
    assert isinstance(error, HTTPException)
    return empty_response(error.status_code)


def make_app(context: WebContext) -> ASGIApp:
    """Make the application."""
    route = make_route(context)
    layers = [Middleware(_RequestCounter, metrics=context.metrics)]
    if context.config.cors.enabled:
        cors = context.config.cors
        layers.append(Middleware(CorsMiddleware, config=cors, methods_of=route.methods_of))
    layers.append(Middleware(TokenMiddleware, context=context))
    app = Starlette(
        routes=[route], middleware=layers, exception_handlers={HTTPException: _not_routed}
    )
    app.router.redirect_slashes = False
    return RequestBodyMiddleware(app)
