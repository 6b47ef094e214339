"""The recorded HTTP conversations, each with the route that its request meets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from iggy_protocol.rest import ROUTES, Route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOLDEN = Path(__file__).parents[1] / "golden" / "http"


class Exchange(NamedTuple):
    """A recorded request and its answer, with the route that the request meets."""

    label: str
    route: Route
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    status: int
    response: Any

    @property
    def raw_body(self) -> str:
        return self.body if isinstance(self.body, str) else json.dumps(self.body)

    @property
    def is_success(self) -> bool:
        return self.status < 300


def meets(route: Route, method: str, path: str) -> bool:
    template = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(route.path))
    return route.method == method and re.fullmatch(template, path) is not None


def recorded_exchanges() -> Iterator[Exchange]:
    """Walk all exchanges of which the method and path are in the table."""
    for file in sorted(GOLDEN.glob("*.json")):
        for entry in json.loads(file.read_text(encoding="utf-8"))["exchanges"]:
            request = entry["request"]
            path, _, query = request["path"].partition("?")
            routes = [route for route in ROUTES if meets(route, request["method"], path)]
            if routes:
                yield Exchange(
                    label=f"{file.stem}: {entry['name']}",
                    route=routes[0],
                    query=dict(part.split("=", 1) for part in query.split("&") if part),
                    headers=request["headers"] or {},
                    body=request["body"],
                    status=entry["status"],
                    response=entry["response"],
                )


EXCHANGES = list(recorded_exchanges())


def exchanges(*, least: int, when: Callable[[Exchange], Any]) -> pytest.MarkDecorator:
    """Parametrise over the exchanges that fit, and make sure that there are enough of them."""
    fitting = [one for one in EXCHANGES if when(one)]
    assert len(fitting) >= least
    return pytest.mark.parametrize("exchange", fitting, ids=lambda one: one.label)


def named(label: str) -> Exchange:
    (exchange,) = (one for one in EXCHANGES if one.label == label)
    return exchange
