"""The endpoints of the OpenAPI document and of the page that renders it; both are made once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from iggy_protocol.rest import encode_json
from iggy_ref_server.web.errors import json_response
from iggy_ref_server.web.openapi import describe
from iggy_ref_server.web.page import render

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive, Scope, Send

    from iggy_protocol.rest import Route

__all__ = ["Document", "Page"]


class Document:
    """Serves the OpenAPI document.

    Args:
        routes: the served routes.
    """

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes

    @cached_property
    def content(self) -> dict[str, Any]:
        """The document."""
        return describe(self._routes)

    @cached_property
    def _encoded(self) -> bytes:
        return encode_json(self.content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await json_response(self._encoded)(scope, receive, send)


class Page:
    """Serves a page that renders the document."""

    def __init__(self, document: Document) -> None:
        self._document = document

    @cached_property
    def _rendered(self) -> str:
        return render(self._document.content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        response = Response(self._rendered, headers=headers, media_type="text/html")
        await response(scope, receive, send)
