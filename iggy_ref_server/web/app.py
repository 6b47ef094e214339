"""The REST API as one ASGI application.

request body → counter → CORS → access token → route → operation
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from iggy_protocol.rest import ROUTES, Route
from iggy_ref_server.web.auth import TokenMiddleware
from iggy_ref_server.web.errors import empty_response
from iggy_ref_server.web.openapi import DocsPageEndpoint, OpenApiEndpoint
from iggy_ref_server.web.operations import RestOperation

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from iggy_ref_server.config.schema import HttpCorsConfig
    from iggy_ref_server.web.context import Metrics, WebContext

    Header = tuple[bytes, bytes]
    from collections.abc import Iterator, Mapping


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


# The router: from a path and a method to an operation.
#
# Paths are matched before percent-decoding, so that a name may contain a slash.

PARAMETER: Final = re.compile(r"\{(\w+)\}")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")


class _PathEndpoint:
    """A path and its operations by method."""

    def __init__(self, operations: Mapping[str, ASGIApp]) -> None:
        self._operations = dict(operations)
        if "GET" in operations:
            self._operations["HEAD"] = operations["GET"]
        self.methods = ",".join(name for name in METHODS if name in self._operations)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = self._operations.get(scope["method"])
        if operation is None:
            operation = empty_response(405, {"allow": self.methods})
        await operation(scope, receive, send)


def _served(context: WebContext) -> Iterator[Route]:
    """Yield the served routes; the metrics may have another path or be disabled."""
    metrics = context.config.metrics
    for route in ROUTES:
        if route.operation != "metrics":
            yield route
        elif metrics.enabled:
            yield replace(route, path=metrics.endpoint)


class PathRouter(BaseRoute):
    """All paths as one route of Starlette: a tree of path segments.

    A lookup takes as many steps as the path has segments, not as there are paths.

    Args:
        endpoints: by path, with parameters in braces.
    """

    def __init__(self, endpoints: Mapping[str, _PathEndpoint]) -> None:
        self._root = _PathNode()
        for path, endpoint in endpoints.items():
            node, names = self._root, []
            for segment in path.split("/")[1:]:
                parameter = PARAMETER.fullmatch(segment)
                if parameter is None:
                    node = node.children.setdefault(segment, _PathNode())
                else:
                    names.append(parameter[1])
                    node.parameter_child = node = node.parameter_child or _PathNode()
            assert node.endpoint is None, f"{path} is taken"
            node.endpoint, node.names = endpoint, tuple(names)

    def find(self, path: str) -> tuple[_PathEndpoint, dict[str, str]] | None:
        """Return the match of a path and its raw parameters."""
        found = self._root.find(path.split("/"), 1)
        if found is None:
            return None
        node, values = found
        assert node.endpoint is not None
        # Values are collected on the way back from the leaf, so they are in reverse order.
        return node.endpoint, dict(zip(node.names, reversed(values), strict=True))

    def methods_of(self, path: str) -> str:
        """Return the methods of a path; empty for an unknown path."""
        found = self.find(path)
        return found[0].methods if found else ""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Tell Starlette whether the path of a request is known."""
        found = self.find(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            return Match.NONE, {}
        return Match.FULL, {"endpoint": found[0], "path_params": found[1]}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with a known path."""
        await scope["endpoint"](scope, receive, send)


class _PathNode:
    """A node of the tree with its children."""

    __slots__ = ("children", "endpoint", "names", "parameter_child")

    def __init__(self) -> None:
        self.children: dict[str, _PathNode] = {}
        self.parameter_child: _PathNode | None = None
        self.endpoint: _PathEndpoint | None = None
        self.names: tuple[str, ...] = ()

    def find(self, segments: list[str], at: int) -> tuple[_PathNode, list[str]] | None:
        """Find the leaf of a path, and the segments that are parameters, the last one first."""
        if at == len(segments):
            return None if self.endpoint is None else (self, [])
        segment = segments[at]
        child = self.children.get(segment)
        # A literal segment is preferred, but a user may have the name of a literal segment.
        if child is not None and (found := child.find(segments, at + 1)) is not None:
            return found
        # An empty parameter is rejected later as an identifier; at the end of a path there is none.
        is_missing = not segment and at == len(segments) - 1
        if self.parameter_child is None or is_missing:
            return None
        found = self.parameter_child.find(segments, at + 1)
        if found is not None:
            found[1].append(segment)
        return found


def make_route(context: WebContext) -> PathRouter:
    """Make the router of all operations."""
    operations: dict[str, dict[str, ASGIApp]] = {}
    served = tuple(_served(context))
    for route in served:
        operations.setdefault(route.path, {})[route.method] = RestOperation(context, route)
    document = OpenApiEndpoint(served)
    operations["/openapi.json"] = {"GET": document}
    operations["/docs"] = {"GET": DocsPageEndpoint(document)}
    return PathRouter({path: _PathEndpoint(asked) for path, asked in operations.items()})
