"""Reads the recorded conversations in ``tests/golden``, whatever their format."""

from __future__ import annotations

import json
import tomllib
from collections import deque
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parents[1] / "golden"
RECORDINGS = sorted(
    str(path.relative_to(GOLDEN))
    for folder in ("raw", "clients", "disk")
    for path in (GOLDEN / folder).glob("*.jsonl")
)


@dataclass(frozen=True)
class Exchange:
    """One request frame and what the real server answered to it.

    Attributes:
        line: where the last byte of the request stands in the file.
        payload: the request; ``None`` when its frame was never sent, or not recorded, whole.
        status: ``None`` when no answer came.
        reply: the payload of the answer; ``None`` when it was not recorded whole.
    """

    line: int
    code: int
    payload: bytes | None
    status: int | None = None
    reply: bytes | None = None


@dataclass
class Conversation:
    """The state of one recorded connection: bytes of a frame begun, frames not yet answered."""

    begun: bytes = b""
    unanswered: deque[Exchange] = field(default_factory=deque)

    def send(self, data: bytes, line: int) -> None:
        """Cut what was sent into frames."""
        self.begun += data
        while len(self.begun) >= 8:
            length = int.from_bytes(self.begun[:4], "little")
            if length < 4 or len(self.begun) < 4 + length:
                return
            code = int.from_bytes(self.begun[4:8], "little")
            self.unanswered.append(Exchange(line, code, self.begun[8 : 4 + length]))
            self.begun = self.begun[4 + length :]

    def answer(self, line: int, status: int, reply: bytes | None) -> Exchange | None:
        """Give an answer to the oldest frame; one that is incomplete will never be completed."""
        if self.unanswered:
            return replace(self.unanswered.popleft(), status=status, reply=reply)
        if len(self.begun) >= 8:
            code, self.begun = int.from_bytes(self.begun[4:8], "little"), b""
            return Exchange(line, code, None, status)
        return None


def _raw(entries: list[tuple[int, dict[str, Any]]]) -> Iterator[Exchange]:
    conversations: dict[int, Conversation] = {}
    for line, entry in entries:
        if "request" not in entry and entry.get("cmd") != "unsolicited":
            continue
        conversation = conversations.setdefault(entry["conn"], Conversation())
        conversation.send(bytes.fromhex(entry.get("request") or ""), line)
        if not entry.get("reply"):
            continue
        reply = bytes.fromhex(entry["reply"])
        whole = not {"reply_length", "partial"} & entry.keys()
        exchange = conversation.answer(
            line, int.from_bytes(reply[:4], "little"), reply[8:] if whole else None
        )
        if exchange is not None:
            yield exchange
    for conversation in conversations.values():
        yield from conversation.unanswered


def _clients(entries: list[tuple[int, dict[str, Any]]]) -> Iterator[Exchange]:
    for line, entry in entries:
        if "code" in entry:
            request = None if "request_sha256" in entry else bytes.fromhex(entry["request"])
            reply = None if "reply_sha256" in entry else bytes.fromhex(entry["reply"])
            yield Exchange(line, entry["code"], request, entry["status"], reply)


@cache
def exchanges(file: str) -> tuple[Exchange, ...]:
    """Read all exchanges of one recording, numbered by the lines of the file."""
    lines = (GOLDEN / file).read_text().splitlines()
    entries = [(number, json.loads(line)) for number, line in enumerate(lines, start=1)]
    read = _clients if file.startswith("clients/") else _raw
    return tuple(read(entries))


EXCEPTIONS: list[dict[str, Any]] = tomllib.loads((GOLDEN / "exceptions.toml").read_text())[
    "exception"
]


@cache
def exceptions(file: str) -> dict[int, str]:
    """Read which lines of a recording are out of the ordinary, and in which way."""
    listed: dict[int, str] = {}
    for entry in EXCEPTIONS:
        for line in entry["lines"] if entry["file"] == file else ():
            assert line not in listed, f"line {line} of {file} is listed twice"
            listed[line] = entry["kind"]
    return listed
