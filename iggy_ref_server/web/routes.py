"""The router: from a path and a method to an operation.

Paths are matched before percent-decoding, so that a name may contain a slash.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.routing import BaseRoute, Match

from iggy_protocol.rest import ROUTES
from iggy_ref_server.web.errors import empty_response
from iggy_ref_server.web.openapi import DocsPageEndpoint, OpenApiEndpoint
from iggy_ref_server.web.operations import RestOperation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from iggy_protocol.rest import Route
    from iggy_ref_server.web.context import WebContext

__all__ = ["PathRouter", "make_route"]

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
