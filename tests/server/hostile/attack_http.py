"""Attacks over HTTP: shapes that smuggle, bodies that lie, floods, requests with wrong words."""

from __future__ import annotations

import json
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.protocol.fuzz_connection import mutated
from tests.server.hostile.attacker import Attacker, close, connect, listen, pour, reset

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

RECORDED = Path(__file__).resolve().parents[2] / "golden" / "http"
BURST = 10
PIPELINED = 150
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HOST = b"Host: localhost\r\n"
JSON_TYPE = b"Content-Type: application/json\r\n"

SHAPES = (
    b"GET /ping HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /ping HTTP/1.1\r\n" + HOST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    b"POST /streams HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /streams HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"POST /streams HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx",
    b"POST /streams HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
    b"POST /streams HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
    b"POST /streams HTTP/1.1\r\n" + HOST + b"Content-Length: +3\r\n\r\nabc",
    b"POST /streams HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\nabc",
    b"GET /ping HTTP/1.1\n" + HOST.replace(b"\r", b"") + b"\n",
    b"GET /ping HTTP/9.9\r\n" + HOST + b"\r\n",
    b"GET /ping HTTP/1.1\r\n" + HOST + b"X: a\r\n folded\r\n\r\n",
    b"GET /ping HTTP/1.1\r\n\r\n",
    b"GET /ping HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    b"GET http://other/ping HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /%00%ff%2e%2e HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /ping HTTP/1.1\r\n" + HOST + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    b"GET /ping HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 5_000 + b"\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    b"CONNECT x:1 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"\x00\xff GET\r\n\r\n",
    b"GET /ping HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    b"GET /ping HTTP/1.1\r\n" + HOST + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"HTTP2-Settings: AAAA\r\n\r\n",
)
TOKENS = (
    b"",
    b"Authorization: Bearer x\r\n",
    b"Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiIwIn0.\r\n",
    b"Authorization: Bearer eyJhbGciOlsiSFMyNTYiXX0.eyJzdWIiOiIwIn0.x\r\n",
    b"Authorization: Basic aWdneTppZ2d5\r\n",
)


@cache
def recorded_requests() -> tuple[tuple[bytes, bytes, bytes], ...]:
    """Read method, path and body of all recorded exchanges, logins left out."""
    found = []
    for path in sorted(RECORDED.glob("*.json")):
        for exchange in json.loads(path.read_text())["exchanges"]:
            asked: dict[str, Any] = exchange.get("request") or {}
            target = str(asked.get("path", "/ping"))
            if "login" in target:
                continue
            body = asked.get("body")
            content = b"" if body is None else json.dumps(body).encode()
            found.append((str(asked.get("method", "GET")).encode(), target.encode(), content))
    return tuple(found)


def request(chance: random.Random) -> bytes:
    """Write a request with something changed in its path or body."""
    method, target, body = chance.choice(recorded_requests())
    if chance.random() < 0.3:
        target = b"/" + bytes(byte for byte in mutated(target[1:], chance) if 32 < byte < 127)
    if body and chance.random() < 0.7:
        body = mutated(body, chance)
    head = method + b" " + target + b" HTTP/1.1\r\n" + HOST + chance.choice(TOKENS)
    return head + JSON_TYPE + b"Content-Length: %d\r\n\r\n" % len(body) + body


def changed_requests(attacker: Attacker) -> None:
    """Send many requests one after another without waiting."""
    line = connect(attacker.target)
    pour(line, b"".join(request(attacker.chance) for _ in range(PIPELINED)))
    attacker.thrown["changed requests"] += PIPELINED
    listen(line, 0.2)
    attacker.chance.choice([close, reset])(line)


def shapes(attacker: Attacker) -> None:
    """Send requests of which two programs may think differently."""
    for _ in range(BURST):
        line = connect(attacker.target)
        shape = attacker.chance.choice(SHAPES)
        pour(line, shape + b"GET /ping HTTP/1.1\r\n" + HOST + b"\r\n")
        attacker.thrown["shapes"] += 1
        listen(line, 0.02)
        attacker.chance.choice([close, reset])(line)


def halves(attacker: Attacker) -> None:
    """Begin a head or a body, and say nothing more."""
    for _ in range(BURST):
        line = connect(attacker.target)
        whole = request(attacker.chance)
        promise = b"POST /streams HTTP/1.1\r\n" + HOST + b"Content-Length: 1000000\r\n\r\n{"
        cut = whole[: attacker.chance.randrange(1, len(whole))]
        pour(line, attacker.chance.choice([cut, promise]))
        attacker.thrown["halves"] += 1
        attacker.hold(line)


def leave_early(attacker: Attacker) -> None:
    """Ask, and be gone before the answer."""
    for _ in range(BURST):
        line = connect(attacker.target)
        pour(
            line,
            b"GET /stats HTTP/1.1\r\n" + HOST + b"\r\n" + b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
        )
        attacker.thrown["leave early"] += 2
        reset(line)


def second_version(attacker: Attacker) -> None:
    """Speak HTTP/2 in ways that nobody should."""
    chance = attacker.chance
    line = connect(attacker.target)
    frames = [h2_frame(chance) for _ in range(PIPELINED)]
    pour(line, H2_PREFACE + b"\0\0\0\4\0\0\0\0\0" + b"".join(frames))
    attacker.thrown["HTTP/2"] += len(frames)
    listen(line, 0.1)
    chance.choice([close, reset])(line)


def h2_frame(chance: random.Random) -> bytes:
    """Write a frame of HTTP/2 that may be anything."""
    kind, stream = chance.randrange(11), chance.choice([0, 1, 3, 5, 2, 1 << 30])
    payload = chance.randbytes(chance.choice([0, 4, 5, 8, 8, 30]))
    if chance.random() < 0.1:
        return chance.randbytes(20)
    head = struct.pack("!I", len(payload))[1:] + bytes([kind, chance.randrange(64)])
    return head + struct.pack("!I", stream) + payload


WAVES: tuple[Callable[[Attacker], None], ...] = (
    *[changed_requests] * 5,
    shapes,
    shapes,
    halves,
    leave_early,
    second_version,
)
