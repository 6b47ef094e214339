"""Reads the recorded conversations of official clients from 0.9 on, in ``tests/golden/vsr``.

The official clients 0.9.0 and 0.9.1.dev5 wrote the requests; a broker made for the recordings wrote
the replies, and the clients accepted them. The offsets and the operations are written here once
more, so that the recordings check the codec and not the other way round.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from iggy_protocol import V0_11, V0_12_0, Dialect

FOLDER = Path(__file__).parents[1] / "golden" / "vsr"
RECORDINGS = sorted(path.name for path in FOLDER.glob("*.jsonl"))
DIALECTS = {"0.9.0": V0_11, "0.9.1.dev5": V0_12_0}
"""The dialect of each client."""

HEAD_BYTES = 256
REQUEST, REPLY, EVICTION = 5, 8, 13
REGISTER, NON_REPLICATED, UPDATE_RESOURCE = 1, 2, 150
UPDATED_BY_SCOPE = {1: 304, 2: 204, 3: 35}
"""The commands that one operation stands for, by the first byte of its body."""

CODES = {
    1: 40,
    3: 39,
    **dict(zip(range(128, 132), (202, 204, 203, 205), strict=True)),
    **dict(zip(range(132, 136), (302, 304, 303, 305), strict=True)),
    **dict(zip(range(136, 141), (402, 403, 503, 602, 603), strict=True)),
    **dict(zip(range(141, 148), (33, 35, 34, 37, 36, 42, 43), strict=True)),
    **dict(zip(range(148, 150), (604, 605), strict=True)),
    **dict(zip(range(160, 163), (101, 121, 122), strict=True)),
}
"""The command of each replicated operation."""

RESULT_FRAMED = {*range(64, 138), *range(139, 151), 161, 162}
"""The operations of replies whose body begins with a result section."""


@dataclass(frozen=True)
class VsrRequest:
    """A frame that a client wrote.

    Attributes:
        line: where it stands in the file.
        name: what the recording calls it.
        head: the 256 bytes before the body.
        code: the command, whether the head names it or the operation stands for it.
    """

    line: int
    name: str
    dialect: Dialect
    connection: int
    head: bytes
    body: bytes

    @property
    def client(self) -> bytes:
        return self.head[128:144]

    @property
    def number(self) -> int:
        return u64(self.head, 168)

    @property
    def operation(self) -> int:
        return self.head[176]

    @property
    def session(self) -> int:
        return u64(self.head, 184)

    @property
    def context(self) -> tuple[int, int, int]:
        """Return incarnation, owner generation and least metadata position; 0.9 has none."""
        return u64(self.head, 200), u64(self.head, 208), u64(self.head, 216)

    @property
    def code(self) -> int:
        if self.operation == NON_REPLICATED:
            return u32(self.head, 196)
        if self.operation == UPDATE_RESOURCE:
            return UPDATED_BY_SCOPE[self.body[0]]
        return CODES[self.operation]


@dataclass(frozen=True)
class VsrReply:
    """A frame that answers a request.

    Attributes:
        status: what the request failed with, in the head or in the result section; 0 is success.
        payload: the body behind its result section; no bytes where the request failed.
        eviction: the reason for the end of the session; 0 where the frame is a reply.
    """

    line: int
    name: str
    head: bytes
    status: int = 0
    payload: bytes = b""
    eviction: int = 0


@dataclass(frozen=True)
class VsrExchange:
    """A request and its reply; ``None`` where the recording has none."""

    request: VsrRequest
    reply: VsrReply | None


def u32(data: bytes, offset: int) -> int:
    """Read a number of four bytes."""
    (number,) = struct.unpack_from("<I", data, offset)
    assert isinstance(number, int)
    return number


def u64(data: bytes, offset: int) -> int:
    """Read a number of eight bytes."""
    return u32(data, offset) | u32(data, offset + 4) << 32


def result_of(operation: int, body: bytes) -> tuple[int, bytes]:
    """Return the status in the result section of a reply and the payload behind the section."""
    if operation not in RESULT_FRAMED and (operation != REGISTER or not body):
        return 0, body
    count = u32(body, 0)
    return (u32(body, 8), b"") if count else (0, body[4:])


def read_reply(line: int, name: str, frame: bytes) -> VsrReply:
    """Read a frame that a server wrote."""
    head, body = frame[:HEAD_BYTES], frame[HEAD_BYTES:]
    assert u32(head, 48) == len(frame)
    if head[60] == EVICTION:
        return VsrReply(line, name, head, eviction=head[255])
    assert head[60] == REPLY
    status, payload = u32(head, 216), body
    if status:
        assert not body
    else:
        status, payload = result_of(head[208], body)
    return VsrReply(line, name, head, status, payload)


@cache
def exchanges(file: str) -> tuple[VsrExchange, ...]:
    """Read all requests of one recording, each with its reply, in the order of the requests.

    Replies name the number of their request. Numbers repeat, so of several open requests the oldest
    gets the reply. An eviction names none and ends the oldest of its connection.
    """
    first, *lines = [json.loads(line) for line in (FOLDER / file).read_text().splitlines()]
    requests: list[VsrRequest] = []
    replies: dict[int, VsrReply] = {}
    for line, entry in enumerate(lines, start=2):
        if "frame" not in entry:
            continue
        frame = bytes.fromhex(entry["frame"])
        if entry["dir"] == ">":
            assert frame[60] == REQUEST
            assert u32(frame, 48) == len(frame)
            head, body = frame[:HEAD_BYTES], frame[HEAD_BYTES:]
            dialect = DIALECTS[first["version"]]
            request = VsrRequest(line, entry["name"], dialect, entry["conn"], head, body)
            requests.append(request)
            continue
        reply = read_reply(line, entry["name"], frame)
        answered = next(
            request
            for request in requests
            if request.line not in replies
            and request.connection == entry["conn"]
            and (reply.eviction or request.number == u64(frame, 200))
        )
        replies[answered.line] = reply
    return tuple(VsrExchange(request, replies.get(request.line)) for request in requests)


def every_exchange() -> list[VsrExchange]:
    """Read all recordings."""
    return [exchange for file in RECORDINGS for exchange in exchanges(file)]
