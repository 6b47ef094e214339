"""Plays a recorded conversation to a server under test and collects what differs.

One thing at a time, across all connections, as it was recorded. The player goes on after a
difference, so that one run finds them all.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tests.server.replay.comparing import describe, difference
from tests.server.replay.plausibility import Run, nonsense
from tests.server.replay.raw_peer import Absence, RawPeer
from tests.server.replay.recording import Event, Exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.server.replay.recording import Recording

REPLY_SECONDS_MAX = 30.0
# The recorder waited longer for nothing; a server that has something to say says it at once.
SILENCE_SECONDS = 0.15


class Server(Protocol):
    """What the player needs of a server."""

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""

    def start(self) -> None:
        """Start on the same data."""

    def stop(self) -> None:
        """Stop in good order."""

    def kill(self) -> None:
        """Stop without any order."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A line whose replay is not what was recorded."""

    line: int
    what: str
    note: str = ""

    def __str__(self) -> str:
        return f"line {self.line}{f' ({self.note})' if self.note else ''}:\n{self.what}"


class Player:
    """Plays one recording.

    Args:
        server: a running server on an empty data directory.
        expected: lines that are known to differ; the player waits less for replies there.
        started_us: when the run began.
    """

    def __init__(self, server: Server, expected: Collection[int], started_us: int) -> None:
        self._server = server
        self._expected = expected
        self._started_us = started_us
        self._peers: dict[int, RawPeer] = {}
        self._replies: dict[int, bytes] = {}
        self._found: dict[int, Difference] = {}

    def play(self, recording: Recording) -> list[Difference]:
        """Play all lines and return those that differ."""
        try:
            for line in recording.lines:
                if isinstance(line, Event):
                    self._live(line)
                else:
                    self._exchange(line)
        finally:
            for peer in self._peers.values():
                peer.close()
        return list(self._found.values())

    def _exchange(self, exchange: Exchange) -> None:
        peer = self._peers[exchange.connection]
        if not exchange.is_unasked:
            self._check_unasked(exchange.line, peer)
            peer.send(self._patched(exchange))
        if exchange.is_send_only:
            return
        got = peer.read_frame(self._timeout_s(exchange))
        what = difference(exchange, got)
        if isinstance(got, bytes):
            self._replies[exchange.line] = got
            if what is None:
                run = Run(self._started_us, peer.local_address)
                what = "; ".join(nonsense(exchange, got, run)) or None
        if what is not None:
            self._note(exchange.line, what, exchange.note)

    def _timeout_s(self, exchange: Exchange) -> float:
        if exchange.reply is None or (exchange.is_unasked and exchange.line in self._expected):
            return SILENCE_SECONDS
        return REPLY_SECONDS_MAX

    def _patched(self, exchange: Exchange) -> bytes:
        request = bytearray(exchange.request)
        for patch in exchange.patches:
            source = self._replies.get(patch.from_line, b"")[patch.from_start : patch.from_end]
            if len(source) == patch.end - patch.start:
                request[patch.start : patch.end] = source
            else:
                self._note(exchange.line, f"line {patch.from_line} brought nothing to send here")
        return bytes(request)

    def _check_unasked(self, line: int, peer: RawPeer) -> None:
        while (frame := peer.read_unasked()) is not None:
            self._note(line, f"before it came, unasked, {describe(None, frame)}")

    def _live(self, event: Event) -> None:
        acts: dict[str, Callable[[], None]] = {
            "server_stop": self._server.stop,
            "server_kill": self._server.kill,
            "server_start": self._server.start,
        }
        if event.name in acts:
            acts[event.name]()
        elif event.name == "sleep":
            threading.Event().wait(event.seconds)
        elif event.name != "note":
            assert event.connection is not None
            self._connection(event, event.connection)

    def _connection(self, event: Event, number: int) -> None:
        if event.name == "connect":
            self._peers[number] = RawPeer(self._server.address)
            return
        peer = self._peers[number]
        if event.name == "close":
            self._check_unasked(event.line, peer)
            self._peers.pop(number).close()
            return
        assert event.name == "server_closed", event
        got = peer.read_frame(REPLY_SECONDS_MAX)
        if got is not Absence.CLOSED:
            self._note(event.line, f"recorded {Absence.CLOSED.value}, got {describe(None, got)}")

    def _note(self, line: int, what: str, note: str = "") -> None:
        known = self._found.get(line)
        self._found[line] = Difference(line, f"{known.what}\n{what}" if known else what, note)
