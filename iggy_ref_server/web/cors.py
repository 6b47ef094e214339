"""CORS headers for browsers.

Every response has them. A request with method OPTIONS gets its response here, whatever its path, as
in Apache Iggy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from iggy_ref_server.config.schema_doors import HttpCors

    Header = tuple[bytes, bytes]

__all__ = ["Cors"]

VARY: Final = b"origin, access-control-request-method, access-control-request-headers"
ANY: Final = "*"


class Cors:
    """ASGI middleware that adds CORS headers.

    Args:
        app: the application.
        config: the section ``[http.cors]``.
        methods_of: returns the methods of a path, such as ``GET,HEAD``; empty for an unknown path.
    """

    def __init__(self, app: ASGIApp, *, config: HttpCors, methods_of: Callable[[str], str]) -> None:
        self._app = app
        self._methods_of = methods_of
        origins = [origin for origin in config.allowed_origins if origin.strip()]
        self._is_any = origins[:1] == [ANY]
        self._origins = frozenset(origin.encode() for origin in origins)
        self._always: list[Header] = [(b"vary", VARY)]
        if config.allow_credentials:
            self._always.append((b"access-control-allow-credentials", b"true"))
        self._exposed = _list(b"access-control-expose-headers", config.exposed_headers)
        methods = tuple(method.upper() for method in config.allowed_methods)
        self._preflight = [
            *_list(b"access-control-allow-methods", methods),
            *_list(b"access-control-allow-headers", config.allowed_headers),
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


def _list(name: bytes, values: tuple[str, ...]) -> list[Header]:
    joined = ",".join(value.strip() for value in values if value.strip())
    return [(name, joined.encode())] if joined else []
