"""The REST API as one ASGI application.

request body → counter → CORS → access token → route → operation
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from iggy_ref_server.web.auth import Bearer
from iggy_ref_server.web.cors import Cors
from iggy_ref_server.web.errors import empty_response
from iggy_ref_server.web.routes import make_route
from iggy_ref_server.web.unread import Threshold

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from iggy_ref_server.web.metrics import Metrics
    from iggy_ref_server.web.room import WebRoom

__all__ = ["make_app"]


class _Counting:
    """Counts requests."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._metrics.requests_count += 1
        await self._app(scope, receive, send)


async def _refuse(request: Request, error: Exception) -> Response:
    """Reply to an unknown path."""
    assert isinstance(error, HTTPException)
    return empty_response(error.status_code)


def make_app(room: WebRoom) -> ASGIApp:
    """Make the application."""
    route = make_route(room)
    layers = [Middleware(_Counting, metrics=room.metrics)]
    if room.config.cors.enabled:
        cors = room.config.cors
        layers.append(Middleware(Cors, config=cors, methods_of=route.methods_of))
    layers.append(Middleware(Bearer, room=room))
    app = Starlette(routes=[route], middleware=layers, exception_handlers={HTTPException: _refuse})
    app.router.redirect_slashes = False
    return Threshold(app)
