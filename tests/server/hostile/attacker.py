"""What all attacks share: material to throw, lines to throw it over, and a count of it.

Material is recorded requests of real clients, changed in step (each frame keeps a right length, so
the server reads all of them) or out of step, and words that make no sense.
"""

from __future__ import annotations

import random
import select
import socket
import ssl
import struct
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from iggy_protocol import (
    ClientConnection,
    ConsumerIdentity,
    GetStreams,
    LoginUser,
    LoginWithPersonalAccessToken,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
)
from tests.protocol.fuzz_connection import conversations, garbage, mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iggy_protocol import Command

POUR_SECONDS_MAX = 5.0
"""How long an attack waits for a server that does not take what it sends."""
HELD_MAX = 40
"""Connections that are left silent or unread at a time; more would only test the limit of them."""
READ_BYTES = 1 << 16
WRITE_BYTES = 1 << 20
"""A flood leaves at once, so that the server finds all of it in its socket."""
FRAMES_IN_A_WAVE = 400
FLOOD_REQUESTS = 1_500
"""More than a server takes of one connection at a time, which is 1,024 by default."""
LOGIN_CODES = frozenset({38, 44})
LOGIN_SHARE = 0.002
"""How many of the logins in the recordings are thrown: a password costs a server 50 ms."""
RESET = struct.pack("ii", 1, 0)
SANDBOX = "sandbox"
TOPIC = "t"


@dataclass(frozen=True)
class Target:
    """Where the server is and who may knock.

    Attributes:
        transport: how it is reached.
        address: host and port.
        users: name and password of users with few rights.
        readable: the name of a stream that the user ``reader`` may poll.
    """

    transport: str
    address: tuple[str, int]
    users: tuple[tuple[str, str], ...]
    readable: str


@dataclass
class Attacker:
    """One series of attacks.

    Attributes:
        target: whom.
        chance: decides everything.
        until: when it is over.
        thrown: how many frames of each kind of attack.
        held: connections that are left open without a word.
    """

    target: Target
    chance: random.Random
    until: float = 0.0
    thrown: Counter[str] = field(default_factory=Counter)
    held: deque[socket.socket] = field(default_factory=deque)

    @property
    def frames(self) -> int:
        """How many frames were thrown in all."""
        return sum(self.thrown.values())

    def hold(self, line: socket.socket) -> None:
        """Leave a connection as it is, and let go of the oldest when there are many."""
        self.held.append(line)
        while len(self.held) > HELD_MAX:
            close(self.held.popleft())

    def release(self) -> None:
        """Let go of everything."""
        while self.held:
            close(self.held.popleft())

    def login(self, *, likely: float = 0.4) -> bytes:
        """Write a login of a user with few rights, or nothing."""
        if self.chance.random() >= likely:
            return b""
        return frame_of(LoginUser(*self.chance.choice(self.target.users)))

    def login_as(self, name: str) -> bytes:
        """Write the login of one user."""
        return next(frame_of(LoginUser(*user)) for user in self.target.users if user[0] == name)


def frame_of(command: Command[object]) -> bytes:
    """Write the request frame of a command."""
    return b"".join(bytes(buffer) for buffer in ClientConnection().send(command))


# ---- material


@cache
def recorded_frames() -> tuple[bytes, ...]:
    """Cut all recorded requests into frames, and keep the whole ones."""
    return tuple(frame for each in conversations() for frame in frames_in(each.requests))


def frames_in(data: bytes) -> Iterator[bytes]:
    """Cut a stream of requests into frames as far as that goes."""
    at = 0
    while at + 8 <= len(data):
        size = 4 + int.from_bytes(data[at : at + 4], "little")
        if size < 8 or at + size > len(data):
            return
        yield data[at : at + size]
        at += size


def chosen_frames(chance: random.Random, count: int) -> list[bytes]:
    """Choose recorded frames, few logins among them."""
    return [
        frame
        for frame in chance.choices(recorded_frames(), k=count)
        if int.from_bytes(frame[4:8], "little") not in LOGIN_CODES or chance.random() < LOGIN_SHARE
    ]


def changed_in_step(frame: bytes, chance: random.Random) -> bytes:
    """Change the body of a frame, and say its length rightly."""
    body = bytearray(mutated(frame[8:], chance)) if len(frame) > 8 else bytearray()
    code = frame[4:8] if chance.random() < 0.95 else chance.randrange(1 << 16).to_bytes(4, "little")
    return (len(body) + 4).to_bytes(4, "little") + code + bytes(body)


def in_step(attacker: Attacker) -> list[bytes]:
    """Make frames that the server reads one by one, each wrong in some way."""
    chance = attacker.chance
    return [changed_in_step(frame, chance) for frame in chosen_frames(chance, FRAMES_IN_A_WAVE)]


def out_of_step(attacker: Attacker) -> list[bytes]:
    """Make frames after which nobody knows where the next one begins."""
    frames = chosen_frames(attacker.chance, FRAMES_IN_A_WAVE // 4)
    return [mutated(frame, attacker.chance) for frame in frames]


def nonsense(attacker: Attacker) -> list[bytes]:
    """Make words of which some are heads of short frames."""
    return [garbage(attacker.chance)]


def wrong_lengths(attacker: Attacker) -> list[bytes]:
    """Make a few good frames, and one that says a length which is not its own."""
    chance = attacker.chance
    frames = [frame_of(Ping())] * chance.randrange(20)
    size = chance.choice(
        [0, 1, 3, 4, 1_000, 1 << 20, 10_485_760, 10_485_761, 1 << 31, (1 << 32) - 1]
    )
    code = chance.choice([1, 38, 44, 100, 101, 202, 9_999])
    wrong = size.to_bytes(4, "little") + code.to_bytes(4, "little")
    return [*frames, wrong + chance.randbytes(chance.randrange(200))]


def flood_of_sends(attacker: Attacker) -> list[bytes]:
    """Make more sends than a server takes at a time, by somebody who may send."""
    where = attacker.chance.choice([Partitioning.partition(0), Partitioning.balanced()])
    send = frame_of(SendMessages(SANDBOX, TOPIC, where, [b"flood"]))
    return [attacker.login_as("sender"), *[send] * FLOOD_REQUESTS]


def flood(attacker: Attacker) -> list[bytes]:
    """Make more requests of one kind than a server takes at a time."""
    chance, target = attacker.chance, attacker.target
    place = (SANDBOX, TOPIC)
    command = chance.choice(
        [
            Ping(),
            GetStreams(),
            LoginWithPersonalAccessToken("no-such-token"),
            SendMessages(*place, Partitioning.partition(0), [b"flood"]),
            SendMessages(*place, Partitioning.balanced(), [b"flood"] * 3),
            PollMessages(ConsumerIdentity.single(7), *place, PollingStrategy.first(), 3, 0),
            PollMessages(
                ConsumerIdentity.single(7), target.readable, TOPIC, PollingStrategy.last(), 1, 0
            ),
        ]
    )
    return [frame_of(command)] * FLOOD_REQUESTS


# ---- lines


def connect(target: Target, *, tls: bool = False) -> socket.socket:
    """Open a connection; raises OSError when the server does not want one."""
    raw = socket.create_connection(target.address, timeout=POUR_SECONDS_MAX)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return unverified().wrap_socket(raw) if tls else raw


@cache
def unverified() -> ssl.SSLContext:
    """Make a context that trusts everybody."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def close(line: socket.socket) -> None:
    """Hang up."""
    with suppress(OSError):
        line.close()


def reset(line: socket.socket) -> None:
    """Hang up with a reset, whatever is under way."""
    with suppress(OSError):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        line.close()


def pour(line: socket.socket, data: bytes, *, reads: bool = True) -> bool:
    """Send all of it, taking whatever comes back; tell whether the server took it to the end."""
    deadline = time.monotonic() + POUR_SECONDS_MAX
    view = memoryview(data)
    line.setblocking(False)
    try:
        while view and time.monotonic() < deadline:
            readable, writable, _ = select.select([line] if reads else [], [line], [], 0.5)
            if readable and not _drain(line):
                return False
            if writable:
                with suppress(BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    view = view[line.send(view[:WRITE_BYTES]) :]
    except OSError:
        return False
    return not view


def listen(line: socket.socket, seconds: float) -> None:
    """Take what comes for a while, or until the server hangs up."""
    deadline = time.monotonic() + seconds
    with suppress(OSError):
        line.setblocking(False)
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([line], [], [], left)[0] or not _drain(line):
                return


def _drain(line: socket.socket) -> bool:
    try:
        return bool(line.recv(READ_BYTES))
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return True


class SocketLane:
    """Carries the frames of one visitor over a socket.

    Args:
        attacker: holds what is left open.
        line: the socket, connected.
        wrap: makes of a frame what is sent.
        unwrap: takes the bytes of the server out of what has come, and leaves the rest.
    """

    def __init__(
        self,
        attacker: Attacker,
        line: socket.socket,
        wrap: Callable[[bytes], bytes] = bytes,
        unwrap: Callable[[bytearray], bytes] | None = None,
    ) -> None:
        self._attacker, self._line, self._wrap, self._unwrap = attacker, line, wrap, unwrap
        self._received = bytearray()

    def pour(self, frames: list[bytes]) -> None:
        """Send frames; what comes back is kept as far as somebody waits for it."""
        reads = len(frames) > 1
        pour(self._line, b"".join(map(self._wrap, frames)), reads=reads)
        if reads:
            listen(self._line, 0.05)

    def receive(self) -> bytes:
        """Wait a little for bytes of the server; none at the end, or if none come."""
        while select.select([self._line], [], [], POUR_SECONDS_MAX)[0]:
            try:
                data = self._line.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            except OSError:
                return b""
            if not data or self._unwrap is None:
                return data
            self._received += data
            content = self._unwrap(self._received)
            if content:
                return content
        return b""

    def leave(self, *, holds: bool = False) -> None:
        """Hang up in some way, or leave everything open without a word."""
        if holds:
            self._attacker.hold(self._line)
        else:
            self._attacker.chance.choice([close, reset])(self._line)


def throw(attacker: Attacker, waves: tuple[Callable[[Attacker], None], ...], frames: int) -> None:
    """Let wave after wave go until so many frames were thrown, or time is up."""
    while attacker.frames < frames and time.monotonic() < attacker.until:
        # A server that refuses or hangs up is well within its rights.
        with suppress(OSError):
            attacker.chance.choice(waves)(attacker)
    attacker.release()
