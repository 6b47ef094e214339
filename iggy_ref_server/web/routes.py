"""The router: from a path and a method to an operation.

Paths are matched before percent-decoding, so that a name may contain a slash.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from starlette.routing import BaseRoute, Match

from iggy_protocol.rest import ROUTES
from iggy_ref_server.web.documents import Document, Page
from iggy_ref_server.web.errors import empty_response
from iggy_ref_server.web.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from iggy_protocol.rest import Route
    from iggy_ref_server.web.room import WebRoom

__all__ = ["PlaceRoute", "make_route"]

PARAMETER: Final = re.compile(r"\{(\w+)\}")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")


class _Place:
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


def _served(room: WebRoom) -> Iterator[Route]:
    """Yield the served routes; the metrics may have another path or be disabled."""
    metrics = room.config.metrics
    for route in ROUTES:
        if route.operation != "metrics":
            yield route
        elif metrics.enabled:
            yield replace(route, path=metrics.endpoint)


class PlaceRoute(BaseRoute):
    """All paths as one route of Starlette: a tree of path segments.

    A lookup takes as many steps as the path has segments, not as there are paths.

    Args:
        places: by path, with parameters in braces.
    """

    def __init__(self, places: Mapping[str, _Place]) -> None:
        self._root = _Node()
        for path, place in places.items():
            node, names = self._root, []
            for segment in path.split("/")[1:]:
                parameter = PARAMETER.fullmatch(segment)
                if parameter is None:
                    node = node.children.setdefault(segment, _Node())
                else:
                    names.append(parameter[1])
                    node.below = node = node.below or _Node()
            assert node.place is None, f"{path} is taken"
            node.place, node.names = place, tuple(names)

    def find(self, path: str) -> tuple[_Place, dict[str, str]] | None:
        """Return the match of a path and its raw parameters."""
        found = self._root.find(path.split("/"), 1)
        if found is None:
            return None
        node, values = found
        assert node.place is not None
        # Values are collected on the way back from the leaf, so they are in reverse order.
        return node.place, dict(zip(node.names, reversed(values), strict=True))

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


class _Node:
    """A node of the tree with its children."""

    __slots__ = ("below", "children", "names", "place")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.below: _Node | None = None
        self.place: _Place | None = None
        self.names: tuple[str, ...] = ()

    def find(self, segments: list[str], at: int) -> tuple[_Node, list[str]] | None:
        """Find the leaf of a path, and the segments that are parameters, the last one first."""
        if at == len(segments):
            return None if self.place is None else (self, [])
        segment = segments[at]
        child = self.children.get(segment)
        # A literal segment is preferred, but a user may have the name of a literal segment.
        if child is not None and (found := child.find(segments, at + 1)) is not None:
            return found
        # An empty parameter is rejected later as an identifier; at the end of a path there is none.
        is_missing = not segment and at == len(segments) - 1
        if self.below is None or is_missing:
            return None
        found = self.below.find(segments, at + 1)
        if found is not None:
            found[1].append(segment)
        return found


def make_route(room: WebRoom) -> PlaceRoute:
    """Make the router of all operations."""
    operations: dict[str, dict[str, ASGIApp]] = {}
    served = tuple(_served(room))
    for route in served:
        operations.setdefault(route.path, {})[route.method] = Operation(room, route)
    document = Document(served)
    operations["/openapi.json"] = {"GET": document}
    operations["/docs"] = {"GET": Page(document)}
    return PlaceRoute({path: _Place(asked) for path, asked in operations.items()})
