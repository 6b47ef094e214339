"""Attacks over WebSocket: broken handshakes, frames that break the rules, and hostile requests."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tests.protocol.websocket.frames import ws_frame
from tests.server.hostile.attack_vsr import VSR_WAVES
from tests.server.hostile.attacker import (
    Attacker,
    SocketLane,
    close,
    connect,
    flood,
    flood_of_sends,
    in_step,
    listen,
    nonsense,
    out_of_step,
    pour,
    reset,
    wrong_lengths,
)
from tests.server.net.ws_peer import REQUEST

if TYPE_CHECKING:
    import random
    import socket
    from collections.abc import Callable

    from tests.server.hostile.attack_vsr import Lane

BURST = 20
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
HEADS = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    REQUEST.replace(b"Version: 13", b"Version: 7"),
    REQUEST.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"short"),
    REQUEST.replace(b"\r\n", b"\n"),
    REQUEST[:-2] + b"Content-Length: 100000\r\n\r\n",
    REQUEST[:-2] + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    REQUEST[:-2] + b"X: y\r\n" * 5_000 + b"\r\n",
    b"POST" + REQUEST[3:],
    b"\x16\x03\x01\x02\x00\x01",
)


def _open(attacker: Attacker) -> socket.socket:
    line = connect(attacker.target)
    line.sendall(REQUEST)
    while not line.recv(4_096).endswith(b"\r\n\r\n"):
        continue
    return line


def _carried(
    name: str, make: Callable[[Attacker], list[bytes]], *, login: float = 0.3
) -> Callable[[Attacker], None]:
    def wave(attacker: Attacker) -> None:
        frames = make(attacker)
        line = _open(attacker)
        try:
            entry = attacker.login(likely=login)
            head = ws_frame(entry) if entry else b""
            pour(line, head + b"".join(ws_frame(frame) for frame in frames))
            attacker.thrown[name] += len(frames)
            listen(line, 0.05)
        finally:
            attacker.chance.choice([close, reset])(line)

    return wave


def _cut_anyhow(attacker: Attacker) -> None:
    """Carry good frames in messages and fragments that are cut anywhere."""
    data, pieces = b"".join(in_step(attacker)), []
    while data:
        size = attacker.chance.choice([1, 3, 50, 5_000])
        piece, data = data[:size], data[size:]
        if len(piece) > 2 and attacker.chance.random() < 0.3:
            pieces += [ws_frame(piece[:1], fin=False), ws_frame(piece[1:], 0)]
        else:
            pieces.append(ws_frame(piece))
    line = _open(attacker)
    pour(line, b"".join(pieces))
    attacker.thrown["cut anyhow"] += len(pieces)
    close(line)


def violation(chance: random.Random) -> bytes:
    """Write a frame that breaks a rule of the protocol."""
    noise = chance.randbytes(chance.randrange(1, 60))
    return chance.choice(
        [
            ws_frame(noise, mask=None),
            ws_frame(noise, chance.choice([3, 4, 7, 11, 15])),
            ws_frame(noise, 0),
            ws_frame(bytes(200), PING),
            ws_frame(noise, CLOSE, fin=False),
            ws_frame(struct.pack("!H", chance.randrange(1 << 16)) + noise, CLOSE),
            ws_frame(b"\xff\xfe", TEXT),
            ws_frame(noise, BINARY, fin=False) + ws_frame(noise, BINARY),
            bytes([0x80 | 0x70 | BINARY, 0x80]) + bytes(4),
            struct.pack("!BBQ", 0x82, 0xFF, chance.choice([1 << 63, 1 << 40, 20 << 20])) + bytes(4),
            struct.pack("!BBH", 0x82, 0xFE, 5) + bytes(9),
            chance.randbytes(200),
        ]
    )


def break_the_rules(attacker: Attacker) -> None:
    """Send a few good frames and one that breaks a rule."""
    for _ in range(BURST):
        line = _open(attacker)
        entry = attacker.login(likely=0.05)
        pour(line, (ws_frame(entry) if entry else b"") + violation(attacker.chance))
        attacker.thrown["broken rules"] += 1
        if attacker.chance.random() < 0.2:
            attacker.hold(line)
        else:
            attacker.chance.choice([close, reset])(line)


def pings(attacker: Attacker) -> None:
    """Send many pings and unasked pongs, and read nothing."""
    line = _open(attacker)
    pour(line, (ws_frame(b"x" * 125, PING) + ws_frame(b"", PONG)) * 1_000, reads=False)
    attacker.thrown["pings"] += 2_000
    attacker.hold(line)


def shake_badly(attacker: Attacker) -> None:
    """Ask for a WebSocket in wrong ways, or in half."""
    for _ in range(BURST):
        line = connect(attacker.target)
        head = attacker.chance.choice(HEADS)
        is_half = attacker.chance.random() < 0.3
        pour(line, head[: attacker.chance.randrange(1, len(head))] if is_half else head)
        attacker.thrown["bad handshakes"] += 1
        if is_half:
            attacker.hold(line)
        else:
            attacker.chance.choice([close, reset])(line)


def unwrapped(received: bytearray) -> bytes:
    """Take the content of the whole messages that have come; those of a server are not masked."""
    content = bytearray()
    while len(received) >= 2:
        size, at = received[1], 2
        if size == 126:
            size, at = int.from_bytes(received[2:4], "big"), 4
        elif size == 127:
            size, at = int.from_bytes(received[2:10], "big"), 10
        if len(received) < at + size:
            break
        if received[0] & 15 in (0, BINARY):
            content += received[at : at + size]
        del received[: at + size]
    return bytes(content)


def _visited(wave: Callable[[Attacker, Lane], None]) -> Callable[[Attacker], None]:
    def visit(attacker: Attacker) -> None:
        wave(attacker, SocketLane(attacker, _open(attacker), ws_frame, unwrapped))

    return visit


WAVES: tuple[Callable[[Attacker], None], ...] = (
    *[_carried("frames changed in step", in_step)] * 8,
    *[_carried("frames out of step", out_of_step)] * 3,
    *[_carried("nonsense", nonsense)] * 2,
    *[_carried("wrong lengths", wrong_lengths)] * 2,
    *[_carried("flood", flood, login=0.9)] * 3,
    *[_carried("flood of sends", flood_of_sends, login=0.0)] * 2,
    *[_cut_anyhow] * 3,
    break_the_rules,
    break_the_rules,
    pings,
    shake_badly,
    *map(_visited, VSR_WAVES),
)
