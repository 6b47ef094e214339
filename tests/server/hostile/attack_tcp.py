"""Attacks over TCP, plain and behind TLS."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from iggy_protocol import ConsumerIdentity, Ping, PollingStrategy, PollMessages
from tests.server.hostile.attack_vsr import VSR_WAVES
from tests.server.hostile.attacker import (
    TOPIC,
    Attacker,
    SocketLane,
    chosen_frames,
    close,
    connect,
    flood,
    flood_of_sends,
    frame_of,
    in_step,
    listen,
    nonsense,
    out_of_step,
    pour,
    reset,
    wrong_lengths,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tests.server.hostile.attack_vsr import Lane

DECLARED_BYTES = 100 << 20
POURED_BYTES = 8 << 20
UNREAD_POLLS = 300
BURST = 30


def _line(attacker: Attacker) -> socket.socket:
    return connect(attacker.target, tls=attacker.target.transport == "tls")


def _poured(
    name: str, make: Callable[[Attacker], list[bytes]], *, login: float = 0.4
) -> Callable[[Attacker], None]:
    def wave(attacker: Attacker) -> None:
        frames = make(attacker)
        line = _line(attacker)
        try:
            pour(line, attacker.login(likely=login) + b"".join(frames))
            attacker.thrown[name] += len(frames)
            listen(line, 0.05)
        finally:
            attacker.chance.choice([close, reset])(line)

    return wave


def half_a_frame(attacker: Attacker) -> None:
    """Begin a frame, and say nothing more."""
    line = _line(attacker)
    [frame] = chosen_frames(attacker.chance, 1) or [frame_of(Ping())]
    pour(line, attacker.login(likely=0.1) + frame[: attacker.chance.randrange(1, len(frame))])
    attacker.thrown["half a frame"] += 1
    attacker.hold(line)


def a_large_promise(attacker: Attacker) -> None:
    """Declare a send of 100 MiB, bring some of it, and stop."""
    line = _line(attacker)
    head = (DECLARED_BYTES + 4).to_bytes(4, "little") + (101).to_bytes(4, "little")
    pour(line, attacker.login(likely=0.2) + head + bytes(POURED_BYTES))
    attacker.thrown["a large promise"] += 1
    attacker.hold(line)


def never_read(attacker: Attacker) -> None:
    """Ask for much and read none of it."""
    line = _line(attacker)
    poll = PollMessages(
        ConsumerIdentity.single(7),
        attacker.target.readable,
        TOPIC,
        PollingStrategy.first(),
        1_000,
        0,
    )
    pour(line, attacker.login_as("reader") + frame_of(poll) * UNREAD_POLLS, reads=False)
    attacker.thrown["never read"] += UNREAD_POLLS
    attacker.hold(line)


def come_and_go(attacker: Attacker) -> None:
    """Connect many times, with a byte or none, and leave with a reset."""
    for _ in range(BURST):
        line = _line(attacker)
        with suppress(OSError):
            line.send(attacker.chance.randbytes(attacker.chance.randrange(1, 9)))
        reset(line)
        attacker.thrown["come and go"] += 1


def noise_for_tls(attacker: Attacker) -> None:
    """Speak no TLS, or broken TLS, where TLS is expected."""
    chance = attacker.chance
    for _ in range(BURST):
        line = connect(attacker.target)
        hello = (
            b"\x16\x03\x01" + chance.randrange(1 << 16).to_bytes(2, "big") + chance.randbytes(300)
        )
        pour(
            line, chance.choice([hello, chance.randbytes(500), b"GET / HTTP/1.1\r\n\r\n", b"\x16"])
        )
        attacker.thrown["noise for TLS"] += 1
        if chance.random() < 0.2:
            attacker.hold(line)
        else:
            chance.choice([close, reset])(line)


def _visited(wave: Callable[[Attacker, Lane], None]) -> Callable[[Attacker], None]:
    return lambda attacker: wave(attacker, SocketLane(attacker, _line(attacker)))


WAVES: tuple[Callable[[Attacker], None], ...] = (
    *[_poured("frames changed in step", in_step)] * 12,
    *[_poured("frames out of step", out_of_step)] * 4,
    *[_poured("nonsense", nonsense)] * 2,
    *[_poured("wrong lengths", wrong_lengths)] * 3,
    *[_poured("flood", flood, login=0.9)] * 4,
    *[_poured("flood of sends", flood_of_sends, login=0.0)] * 2,
    half_a_frame,
    half_a_frame,
    a_large_promise,
    never_read,
    come_and_go,
    *map(_visited, VSR_WAVES),
)
TLS_WAVES = (*WAVES, *[noise_for_tls] * 5)
