"""Attacks over QUIC: datagrams of noise, broken first packets, and hostile streams."""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamDataReceived

from iggy_protocol import Ping
from tests.server.hostile.attack_vsr import VSR_WAVES
from tests.server.hostile.attacker import Attacker, chosen_frames, frame_of, in_step

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.server.hostile.attack_vsr import Lane

BURST = 200
STREAMS = 60
HANDSHAKE_S = 3.0
LISTEN_S = 0.3
DATAGRAM_BYTES = 1_500


class Line:
    """One QUIC connection over a socket of its own, driven by hand."""

    def __init__(self, attacker: Attacker) -> None:
        self._address = attacker.target.address
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(self._address)
        configuration = QuicConfiguration(
            is_client=True, server_name="localhost", verify_mode=ssl.CERT_NONE
        )
        self.core = QuicConnection(configuration=configuration)
        self.core.connect(self._address, time.monotonic())
        self.is_ready = self.is_over = False
        self.received = bytearray()

    def drive(self, seconds: float, *, until_ready: bool = False) -> None:
        """Send and receive for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.is_over:
            self.flush()
            if until_ready and self.is_ready:
                return
            if select.select([self._socket], [], [], 0.02)[0]:
                with suppress(OSError):
                    data = self._socket.recv(DATAGRAM_BYTES * 50)
                    self.core.receive_datagram(data, self._address, time.monotonic())
            timer = self.core.get_timer()
            if timer is not None and timer <= time.monotonic():
                self.core.handle_timer(time.monotonic())
            self._note()

    def flush(self, change: Callable[[bytes], bytes] | None = None) -> int:
        """Send what is to be sent, changed if asked, and tell how many datagrams those were."""
        datagrams = self.core.datagrams_to_send(time.monotonic())
        for data, _ in datagrams:
            with suppress(OSError):
                self._socket.send(data if change is None else change(data))
        return len(datagrams)

    def throw(self, data: bytes) -> None:
        """Send a datagram as it is."""
        with suppress(OSError):
            self._socket.send(data)

    def close(self) -> None:
        """Leave without a word."""
        self._socket.close()

    def _note(self) -> None:
        while (event := self.core.next_event()) is not None:
            self.is_ready |= isinstance(event, HandshakeCompleted)
            self.is_over |= isinstance(event, ConnectionTerminated)
            if isinstance(event, StreamDataReceived):
                self.received += event.data


def first_packet(attacker: Attacker) -> bytes:
    """Write the first datagram of a client."""
    conn = Line(attacker)
    [(data, _), *_] = conn.core.datagrams_to_send(time.monotonic())
    conn.close()
    return data


def spoilt(data: bytes, chance: random.Random) -> bytes:
    """Change a few bytes, most of them in the head."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 3, 20])):
        at = chance.randrange(min(len(changed), chance.choice([8, 40, 1_200])))
        changed[at] = chance.randrange(256)
    return bytes(changed[: chance.choice([len(changed), len(changed), 20, 7, 1_199])])


def noise(attacker: Attacker) -> None:
    """Send datagrams that mean nothing."""
    conn = Line(attacker)
    for _ in range(BURST):
        data = attacker.chance.randbytes(attacker.chance.choice([1, 7, 21, 60, 1_200, 1_400]))
        conn.throw(bytes([data[0] | attacker.chance.choice([0, 0x40, 0xC0])]) + data[1:])
    attacker.thrown["noise"] += BURST
    conn.close()


def spoilt_beginnings(attacker: Attacker) -> None:
    """Send first packets with something changed in them."""
    conn, packet = Line(attacker), first_packet(attacker)
    for _ in range(BURST):
        conn.throw(spoilt(packet, attacker.chance))
    attacker.thrown["spoilt first packets"] += BURST
    conn.close()


def beginnings_only(attacker: Attacker) -> None:
    """Begin many connections, and finish none."""
    for _ in range(20):
        conn = Line(attacker)
        attacker.thrown["beginnings only"] += conn.flush()
        conn.close()


def unknown_versions(attacker: Attacker) -> None:
    """Ask for versions that nobody speaks."""
    conn, packet = Line(attacker), first_packet(attacker)
    for _ in range(BURST):
        conn.throw(packet[:1] + attacker.chance.randbytes(4) + packet[5:])
    attacker.thrown["unknown versions"] += BURST
    conn.close()


def _connected(attacker: Attacker) -> Line | None:
    conn = Line(attacker)
    conn.drive(HANDSHAKE_S, until_ready=True)
    if not conn.is_ready:
        conn.close()
        return None
    entry = attacker.login(likely=0.3)
    if entry:
        conn.core.send_stream_data(conn.core.get_next_available_stream_id(), entry, end_stream=True)
        conn.drive(LISTEN_S)
    return conn


def hostile_streams(attacker: Attacker) -> None:
    """Send requests with something changed in them, each on a stream of its own."""
    conn = _connected(attacker)
    if conn is None:
        return
    for frame in in_step(attacker)[:STREAMS]:
        stream = conn.core.get_next_available_stream_id()
        conn.core.send_stream_data(stream, frame, end_stream=attacker.chance.random() < 0.9)
        if attacker.chance.random() < 0.1:
            conn.core.reset_stream(stream, attacker.chance.randrange(100))
    attacker.thrown["hostile streams"] += STREAMS
    conn.drive(LISTEN_S)
    if attacker.chance.random() < 0.5:
        conn.core.close(error_code=attacker.chance.randrange(1 << 16), reason_phrase="bye")
        conn.flush()
    conn.close()


class StreamsLane:
    """Carries the frames of one visitor, each on a stream of its own."""

    def __init__(self, attacker: Attacker, line: Line) -> None:
        self._attacker, self._line = attacker, line

    def pour(self, frames: list[bytes]) -> None:
        """Send frames, some without an end."""
        for frame in frames[:STREAMS]:
            stream = self._line.core.get_next_available_stream_id()
            ends = len(frames) == 1 or self._attacker.chance.random() < 0.95
            self._line.core.send_stream_data(stream, frame, end_stream=ends)
        if len(frames) > 1:
            self._line.drive(LISTEN_S)

    def receive(self) -> bytes:
        """Wait a little for bytes of the server; none at the end, or if none come."""
        deadline = time.monotonic() + HANDSHAKE_S
        while not self._line.received and time.monotonic() < deadline and not self._line.is_over:
            self._line.drive(0.02)
        data = bytes(self._line.received)
        self._line.received.clear()
        return data

    def leave(self, *, holds: bool = False) -> None:
        """Leave without a word."""
        self._line.close()


def _visited(wave: Callable[[Attacker, Lane], None]) -> Callable[[Attacker], None]:
    def visit(attacker: Attacker) -> None:
        line = Line(attacker)
        line.drive(HANDSHAKE_S, until_ready=True)
        wave(attacker, StreamsLane(attacker, line))

    return visit


def half_streams(attacker: Attacker) -> None:
    """Begin requests on many streams, and end none."""
    conn = _connected(attacker)
    if conn is None:
        return
    for frame in chosen_frames(attacker.chance, STREAMS):
        stream = conn.core.get_next_available_stream_id()
        conn.core.send_stream_data(stream, frame[: max(1, len(frame) // 2)])
        attacker.thrown["half streams"] += 1
    conn.drive(LISTEN_S)
    conn.close()


def spoilt_middle(attacker: Attacker) -> None:
    """Have a good connection, and spoil what it sends from then on."""
    conn = _connected(attacker)
    if conn is None:
        return
    for _ in range(30):
        stream = conn.core.get_next_available_stream_id()
        conn.core.send_stream_data(stream, frame_of(Ping()), end_stream=True)
        attacker.thrown["spoilt middle"] += conn.flush(
            lambda data: spoilt(data, attacker.chance) if attacker.chance.random() < 0.7 else data
        )
    conn.drive(LISTEN_S)
    conn.close()


WAVES: tuple[Callable[[Attacker], None], ...] = (
    noise,
    noise,
    spoilt_beginnings,
    spoilt_beginnings,
    beginnings_only,
    unknown_versions,
    hostile_streams,
    hostile_streams,
    half_streams,
    spoilt_middle,
    *map(_visited, VSR_WAVES),
)
