"""Attacks in the framing from 0.9 on, over whatever carries bytes.

A visitor knows one dialect and writes frames, right ones and spoilt ones. What carries them, a
``Lane``, is that of the transport. Before a login there are floods of logins and of bindings; after
it there are requests of users with few rights, changed in every way, and polls that wait.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from iggy_protocol import (
    NEED_DATA,
    BindSession,
    CancelDeferred,
    ConnectionClosed,
    ConsumerIdentity,
    CreateStream,
    DeleteStream,
    Dialect,
    FetchMessages,
    FetchTarget,
    GetConsumerOffset,
    GetMetadataChanges,
    GetPartitionRoute,
    GetStreams,
    HeadroomBuffer,
    JoinConsumerGroup,
    NotInDialect,
    Partitioning,
    PasswordCredentials,
    Ping,
    PollDeferred,
    PollingStrategy,
    PollMessages,
    ProtocolError,
    SendMessages,
    StoreConsumerOffset,
    SyncConsumerGroup,
    TokenCredentials,
    UpdateTopic,
    VsrClientConnection,
    WaitForMessages,
    WaitTarget,
    encode_request,
)
from iggy_protocol.vsr.heads import REQUEST_HEAD, VSR_HEAD_BYTES, RequestHead, offset_of
from iggy_protocol.vsr.operations import NON_REPLICATED, OPERATIONS
from tests.protocol.fuzz_connection import mutated
from tests.server.hostile.attacker import FLOOD_REQUESTS, SANDBOX, TOPIC, Attacker
from tests.server.vsr_client import VSR_DIALECTS, new_session

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from iggy_protocol import Command

ANSWER_S = 5.0
FRAMES_IN_A_WAVE = 150
FLOOD_BINDINGS = 400
WAITING_POLLS = 1_000
LONG_US = 20_000_000
SIZES = (0, 1, 255, 256, 257, 1 << 16, 10 << 20, 100 << 20, 1 << 31, (1 << 32) - 1)
NUMBERS = (0, 1, 2, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)
FIELDS = {
    "size": 4,
    "release": 4,
    "command": 1,
    "client": 16,
    "identifier": 16,
    "number": 8,
    "operation": 1,
    "session": 8,
    "code": 4,
    "incarnation": 8,
    "owner_generation": 8,
    "metadata_position": 8,
}


class Lane(Protocol):
    """What carries the frames of one visitor."""

    def pour(self, frames: list[bytes]) -> None:
        """Send frames, and take what comes back."""

    def receive(self) -> bytes:
        """Wait a little for bytes of the server; none at the end, or if none come."""

    def leave(self, *, holds: bool = False) -> None:
        """Hang up in some way, or leave everything open without a word."""


class Visitor:
    """One client of one dialect, and what it may write.

    Args:
        attacker: decides everything.
        lane: carries its bytes.
    """

    def __init__(self, attacker: Attacker, lane: Lane) -> None:
        self.attacker, self.lane, self.chance = attacker, lane, attacker.chance
        self.dialect: Dialect = self.chance.choice(VSR_DIALECTS)
        self._operations = {code: op for op, code in OPERATIONS[self.dialect].items()}
        self.session = new_session(self.dialect)
        self.connection = VsrClientConnection(self.session)
        self._number = 1_000
        self.incarnation = 0

    def log_in(self, *names: str) -> bool:
        """Log in as one of some users; tell whether the server has answered."""
        users = [user for user in self.attacker.target.users if user[0] in names or not names]
        register = self.session.register(PasswordCredentials(*self.chance.choice(users)))
        self.lane.pour([b"".join(map(bytes, self.connection.send(register)))])
        self._await_answer()
        return self.session.session > 0

    def _await_answer(self) -> None:
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            event = self.connection.next_event()
            if event is NEED_DATA:
                data = self.lane.receive()
                if not data:
                    return
                self.connection.receive_data(data)
            else:
                with suppress(ProtocolError, AttributeError):
                    if not isinstance(event, ConnectionClosed):
                        event.decode()  # type: ignore[union-attr]
                return

    def frame(self, command: Command[Any], **fields: Any) -> bytes:
        """Write the frame of a command with the next number, whatever the session allows."""
        body = b"".join(
            bytes(part.buffer[part.headroom :] if isinstance(part, HeadroomBuffer) else part)
            for part in encode_request(command, self.dialect)
        )
        self._number += 1
        operation = self._operations.get(command.CODE, NON_REPLICATED)
        head = {
            "size": VSR_HEAD_BYTES + len(body),
            "client": self.session.client,
            "session": self.session.session,
            "number": self._number,
            "operation": operation,
            "code": command.CODE if operation == NON_REPLICATED else 0,
            "incarnation": self.incarnation,
            **fields,
        }
        return RequestHead(**head).encode() + body

    def commands(self) -> list[Command[Any]]:
        """Return one command of each kind that a user with few rights may try."""
        chance, readable = self.chance, self.attacker.target.readable
        one, group = (
            ConsumerIdentity.single(chance.randrange(5)),
            ConsumerIdentity.group("nobody's"),
        )
        stream = chance.choice([SANDBOX, readable])
        count = chance.choice([1, 10, (1 << 32) - 1])
        targets = tuple(FetchTarget(n, PollingStrategy.next(), 1 << 31) for n in range(2))
        waits = tuple(WaitTarget(n, PollingStrategy.next()) for n in range(2))
        timeout_us = 2 * LONG_US
        random = chance.randbytes(48)
        messages = [b"x" * chance.choice([0, 1, 500])] * 3
        return [
            Ping(),
            GetStreams(),
            CreateStream(f"stream-{chance.randrange(100)}"),
            DeleteStream(readable),
            UpdateTopic(readable, TOPIC, "stolen"),
            GetPartitionRoute(stream, TOPIC, chance.randrange(3)),
            GetMetadataChanges(limit=1_000),
            SendMessages(SANDBOX, TOPIC, Partitioning.partition(0), messages, random=random),
            PollMessages(one, stream, TOPIC, PollingStrategy.first(), count, 0, auto_commit=True),
            PollMessages(group, stream, TOPIC, PollingStrategy.next(), count),
            PollDeferred(
                one, stream, TOPIC, PollingStrategy.next(), count, LONG_US, timeout_us,
                partition_id=0, messages_min=min(count, 1_000),
            ),
            FetchMessages(one, stream, TOPIC, LONG_US, timeout_us, targets, count),
            WaitForMessages(one, stream, TOPIC, LONG_US, timeout_us, waits),
            JoinConsumerGroup(stream, TOPIC, "nobody's"),
            SyncConsumerGroup(stream, TOPIC, "nobody's"),
            StoreConsumerOffset(one, stream, TOPIC, chance.choice(NUMBERS), 0),
            GetConsumerOffset(one, stream, TOPIC, 0),
        ]  # fmt: skip

    def frames(self, count: int) -> list[bytes]:
        """Write frames of many commands, as far as the dialect has them."""
        written: list[bytes] = []
        while len(written) < count:
            with suppress(NotInDialect):
                written.append(self.frame(self.chance.choice(self.commands())))
        return written

    def look_up_route(self) -> None:
        """Learn what requests to a partition have to name, so that they are taken seriously."""
        if not self.dialect.binds_sessions or not self.session.session:
            return
        request = self.connection.prepare(GetPartitionRoute(SANDBOX, TOPIC, 0))
        self.lane.pour([b"".join(map(bytes, self.connection.send_prepared(request)))])
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline and not self.incarnation:
            event = self.connection.next_event()
            if event is NEED_DATA:
                data = self.lane.receive()
                if not data:
                    return
                self.connection.receive_data(data)
            else:
                with suppress(ProtocolError, AttributeError):
                    self.incarnation = event.decode().incarnation  # type: ignore[union-attr]
                return


# ---- spoiling


def spoilt_body(frame: bytes, chance: random.Random) -> bytes:
    """Change the body of a frame, and say its size rightly."""
    body = mutated(frame[VSR_HEAD_BYTES:], chance) if len(frame) > VSR_HEAD_BYTES else b""
    at = offset_of(REQUEST_HEAD, "size")
    size = (VSR_HEAD_BYTES + len(body)).to_bytes(4, "little")
    return frame[:at] + size + frame[at + 4 : VSR_HEAD_BYTES] + body


def huge_counts(frame: bytes, chance: random.Random) -> bytes:
    """Put a huge number somewhere into the body; lengths, counts and checksums are there."""
    changed = bytearray(frame)
    if len(frame) >= VSR_HEAD_BYTES + 8:
        at = chance.randrange(VSR_HEAD_BYTES, len(frame) - 7)
        width = chance.choice([1, 2, 4, 8])
        changed[at : at + width] = (chance.choice(NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(
            width, "little"
        )
    return bytes(changed)


def spoilt_field(frame: bytes, chance: random.Random) -> bytes:
    """Set one field of the head to a number that is not its own."""
    name = chance.choice([name for name in FIELDS if name != "size"])
    return _with_field(frame, name, chance.choice([*NUMBERS, chance.randrange(256)]))


def spoilt_size(frame: bytes, chance: random.Random) -> bytes:
    """Say a size that is not that of the frame."""
    return _with_field(frame, "size", chance.choice([*SIZES, len(frame) - 1, len(frame) + 1]))


def _with_field(frame: bytes, name: str, value: int) -> bytes:
    at, width = offset_of(REQUEST_HEAD, name), FIELDS[name]
    told = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return frame[:at] + told + frame[at + width :]


def spoilt_byte(frame: bytes, chance: random.Random) -> bytes:
    """Change a byte anywhere, most often one that has to be zero."""
    at = chance.randrange(len(frame))
    return frame[:at] + chance.randbytes(1) + frame[at + 1 :]


IN_STEP = (spoilt_body, spoilt_body, huge_counts, huge_counts, spoilt_field)


# ---- waves


def _in_step(visitor: Visitor) -> list[bytes]:
    chance = visitor.chance
    frames = visitor.frames(FRAMES_IN_A_WAVE)
    return [chance.choice(IN_STEP)(frame, chance) for frame in frames]


def _out_of_step(visitor: Visitor) -> list[bytes]:
    chance = visitor.chance
    frames = visitor.frames(chance.randrange(1, 20))
    return [
        *frames[:-1],
        chance.choice([spoilt_size, spoilt_byte])(frames[-1], chance),
        chance.randbytes(chance.randrange(600)),
    ]


def _requests(visitor: Visitor) -> list[bytes]:
    """Write right requests, of which many are refused."""
    return visitor.frames(FRAMES_IN_A_WAVE)


def _flood_of_sends(visitor: Visitor) -> list[bytes]:
    random = visitor.chance.randbytes(16)
    send = SendMessages(SANDBOX, TOPIC, Partitioning.partition(0), [b"flood"], random=random)
    return [visitor.frame(send) for _ in range(FLOOD_REQUESTS)]


def _flood_of_waiting_polls(visitor: Visitor) -> list[bytes]:
    """Write polls that wait, more than a session may have; cancel some of them, and others."""
    frames: list[bytes] = []
    for _ in range(WAITING_POLLS):
        poll = PollDeferred(
            ConsumerIdentity.single(visitor.chance.randrange(1_000)), SANDBOX, TOPIC,
            PollingStrategy.offset(1 << 60), 10, LONG_US, 2 * LONG_US, partition_id=0,
        )  # fmt: skip
        with suppress(NotInDialect):
            frames.append(visitor.frame(poll))
        if frames and visitor.chance.random() < 0.5:
            number = max(visitor._number - visitor.chance.choice([0, 0, 1, 5, 2_000]), 1)
            with suppress(NotInDialect):
                frames.append(visitor.frame(CancelDeferred(), number=number))
    return frames or _requests(visitor)


def _flood_of_logins(visitor: Visitor) -> list[bytes]:
    """Write logins and bindings of nobody; none of them costs the server a hash."""
    chance, frames = visitor.chance, list[bytes]()
    version = visitor.dialect.version
    for _ in range(FLOOD_BINDINGS):
        other = new_session(visitor.dialect)
        register = other.register(TokenCredentials("no-such-token"))
        command: Command[Any] = chance.choice(
            [
                register,
                BindSession(
                    version, "sdk", "1", other.client, chance.choice(NUMBERS[:4]), 0,
                    chance.randbytes(32),
                ),
            ]
        )  # fmt: skip
        with suppress(NotInDialect):
            frames.append(visitor.frame(command, client=other.client, number=0, session=0))
    return frames


def _wave(
    name: str,
    make: Callable[[Visitor], list[bytes]],
    users: tuple[str, ...] | None = (),
    *,
    holds: bool = False,
) -> Callable[[Attacker, Lane], None]:
    """Make a wave of frames: of one of some users, of any for no names, of nobody for None."""

    def wave(attacker: Attacker, lane: Lane) -> None:
        visitor = Visitor(attacker, lane)
        try:
            if users is not None and visitor.log_in(*users):
                visitor.look_up_route()
            frames = make(visitor)
            lane.pour(frames)
            attacker.thrown[f"{name}, from 0.9 on"] += len(frames)
        finally:
            lane.leave(holds=holds)

    return wave


def _unused(visitor: Visitor) -> list[bytes]:
    return [visitor.frame(Ping())]


def _half(visitor: Visitor) -> list[bytes]:
    [frame] = visitor.frames(1)
    return [frame[: visitor.chance.randrange(1, len(frame))]]


def _large_promise(visitor: Visitor) -> list[bytes]:
    [frame] = visitor.frames(1)
    return [_with_field(frame, "size", visitor.chance.choice([9 << 20, 60 << 20])) + bytes(1 << 20)]


VSR_WAVES: tuple[Callable[[Attacker, Lane], None], ...] = (
    *[_wave("frames changed in step", _in_step)] * 5,
    *[_wave("frames changed in step, no login", _in_step, None)] * 2,
    *[_wave("frames out of step", _out_of_step)] * 3,
    *[_wave("requests", _requests)] * 2,
    _wave("flood of sends", _flood_of_sends, ("sender",)),
    _wave("flood of waiting polls", _flood_of_waiting_polls, ("sender",)),
    _wave("flood of waiting polls, held", _flood_of_waiting_polls, ("sender",), holds=True),
    _wave("flood of logins", _flood_of_logins, None),
    _wave("session never used", _unused, (), holds=True),
    _wave("half a frame", _half, (), holds=True),
    _wave("a large promise", _large_promise, (), holds=True),
)
