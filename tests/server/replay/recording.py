"""The recorded conversations of ``tests/golden/raw``, line by line.

Owns the format of the files. How a line is played is the player's affair.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[2] / "golden"
RAW = sorted(path.stem for path in (GOLDEN / "raw").glob("*.jsonl"))

UNASKED = "unsolicited"


@dataclass(frozen=True, slots=True)
class Mask:
    """Bytes of a reply that differ from run to run, and why."""

    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes of a request that come from a reply of this run."""

    start: int
    end: int
    from_line: int
    from_start: int
    from_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """What was sent on a connection, and what came back.

    Attributes:
        line: where it stands in the file, counted from 1.
        connection: the number of the connection.
        code: the command's number; None for bytes that are no command.
        request: all bytes sent; none at all for a reply that came without a request of its own.
        reply: the whole frame, or None when there was none.
        is_unasked: whether it has no request of its own.
        is_send_only: whether the recorder did not wait for the reply.
        is_silent: whether the recorder waited, and nothing came.
        compare: which bytes count: ``exact``, ``prefix:N``, ``status`` or ``any``.
        note: what to look at.
    """

    line: int
    connection: int
    code: int | None
    request: bytes
    reply: bytes | None
    is_unasked: bool
    is_send_only: bool
    is_silent: bool
    compare: str
    masks: tuple[Mask, ...]
    patches: tuple[Patch, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something that is not an exchange: a connection, a pause, the server's own life."""

    line: int
    connection: int | None
    name: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Recording:
    """One scenario."""

    name: str
    shards: int
    settings: Mapping[str, str]
    rules: tuple[str, ...]
    lines: tuple[Exchange | Event, ...]


def read_recording(name: str) -> Recording:
    """Read a scenario of ``tests/golden/raw`` by its name."""
    path = GOLDEN / "raw" / f"{name}.jsonl"
    header, *entries = [json.loads(line) for line in path.read_text().splitlines()]
    return Recording(
        name=name,
        shards=header["shards"],
        settings=header["config"],
        rules=tuple(header["rules"]),
        lines=tuple(_line(number, entry) for number, entry in enumerate(entries, start=2)),
    )


def _line(number: int, entry: dict[str, Any]) -> Exchange | Event:
    if "event" in entry:
        return Event(number, entry["conn"], entry["event"], entry.get("seconds", 0.0))
    reply = entry["reply"]
    return Exchange(
        line=number,
        connection=entry["conn"],
        code=entry["code"],
        request=bytes.fromhex(entry["request"]),
        reply=None if reply is None else bytes.fromhex(reply),
        is_unasked=entry["cmd"] == UNASKED,
        is_send_only="send_only" in entry,
        is_silent="no_reply" in entry,
        compare=entry.get("compare", "exact"),
        masks=tuple(Mask(*mask) for mask in entry.get("mask", ())),
        patches=tuple(_patch(patch) for patch in entry.get("patch", ())),
        note=entry.get("note", ""),
    )


def _patch(entry: dict[str, Any]) -> Patch:
    (start, end), (from_start, from_end) = entry["at"], entry["bytes"]
    return Patch(start, end, entry["from_line"], from_start, from_end)
