"""What official clients said to the real server: the recordings of ``tests/golden/clients``.

Owns the format of the files: payloads without frames, many connections, ordered by a clock.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from tests.server.replay.recording import GOLDEN

# The other one needs a cluster of two nodes, and is only decoded.
CLIENTS = ("cli", "py08")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStep:
    """A request with its answer, or a connection that begins or ends.

    Attributes:
        line: where it stands in the file.
        at_us: when it began, on a clock that starts with the recording.
        event: ``connect``, ``close`` or an empty text.
        reply: the payload; None when the recording holds only its size.
        reply_size: how many bytes came.
    """

    line: int
    connection: int
    at_us: int
    event: str = ""
    code: int = 0
    request: bytes = b""
    status: int = 0
    reply: bytes | None = b""
    reply_size: int = 0


def read_client_recording(name: str) -> list[ClientStep]:
    """Read a recording in the order in which things began."""
    text = (GOLDEN / "clients" / f"{name}.jsonl").read_text()
    entries = [json.loads(line) for line in text.splitlines()]
    steps = [_step(line, entry) for line, entry in enumerate(entries[1:], start=2)]
    return sorted(steps, key=lambda step: step.at_us)


def _step(line: int, entry: dict[str, Any]) -> ClientStep:
    at_us = round(entry["t_ms"] * 1_000)
    if "event" in entry:
        return ClientStep(line=line, connection=entry["conn"], at_us=at_us, event=entry["event"])
    whole = "reply_sha256" not in entry
    return ClientStep(
        line=line,
        connection=entry["conn"],
        at_us=at_us,
        code=entry["code"],
        request=_request(entry),
        status=entry["status"],
        reply=bytes.fromhex(entry["reply"]) if whole else None,
        reply_size=entry.get("reply_length", len(entry["reply"]) // 2),
    )


def _request(entry: dict[str, Any]) -> bytes:
    """Return the request; of a large one only the beginning was kept, and its payload counts up."""
    kept = bytes.fromhex(entry["request"])
    if "request_sha256" not in entry:
        return kept
    size = entry["request_length"]
    counting = bytes(range(256)) * (size // 256 + 1)
    start = len(kept) - kept[::-1].index(0) - 1
    rebuilt = kept[:start] + counting[: size - start]
    assert hashlib.sha256(rebuilt).hexdigest() == entry["request_sha256"]
    return rebuilt
