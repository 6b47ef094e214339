"""An HTTP server that answers constants: what hypercorn and Starlette cost without an Iggy behind.

    python constant_http.py CORE

Prints its port when it serves. It says what the SDK expects to hear, and does nothing for it but
read the request: a login, sends that are accepted, polls that bring one message or a thousand.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

from iggy_protocol.rest import (  # noqa: E402  the path above comes first
    NOT_FOUND,
    AccessTokenShape,
    IdentityShape,
    MessageHeaderShape,
    MessageShape,
    PolledMessagesShape,
    encode_json,
)

if TYPE_CHECKING:
    from starlette.requests import Request

JSON = "application/json"
PAYLOAD_BYTES = 1000
IDENTITY = encode_json(IdentityShape(0, AccessTokenShape("constant", 2**33)))


def polled(count: int) -> bytes:
    """Write the answer to a poll that brings so many messages."""
    messages = tuple(
        MessageShape(
            MessageHeaderShape(0, 2**100 + offset, offset, 1, 1, 0, PAYLOAD_BYTES, 0),
            bytes(PAYLOAD_BYTES),
            (),
        )
        for offset in range(count)
    )
    return encode_json(PolledMessagesShape(0, count - 1, count, messages))


POLLED = {str(count): polled(count) for count in (1, 1000)}


async def ping(request: Request) -> Response:
    return Response("pong")


async def login(request: Request) -> Response:
    await request.body()
    return Response(IDENTITY, media_type=JSON)


async def send(request: Request) -> Response:
    await request.body()
    return Response(status_code=201)


async def poll(request: Request) -> Response:
    return Response(POLLED[request.query_params["count"]], media_type=JSON)


async def nothing(request: Request) -> Response:
    return Response(encode_json(NOT_FOUND), 404, media_type=JSON)


APP: Any = Starlette(
    routes=[
        Route("/ping", ping),
        Route("/users/login", login, methods=["POST"]),
        Route("/streams/{stream}/topics/{topic}/messages", send, methods=["POST"]),
        Route("/streams/{stream}/topics/{topic}/messages", poll, methods=["GET"]),
        Route("/{rest:path}", nothing, methods=["GET"]),
    ]
)


async def main() -> None:
    """Serve until the process ends."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.loglevel = "WARNING"
    config.keep_alive_max_requests = 1 << 62
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(partial(serve, APP, config))
        sys.stdout.write(urls[0].rpartition(":")[2] + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[1])})
    trio.run(main)
