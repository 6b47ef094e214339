"""Throws bytes at both connections of both framings: garbage, and changed recordings.

The invariant: whatever comes and however it is cut, a connection tells events or raises a
RemoteProtocolError, the same ones as the oracle; decoding an event gives a value or raises a
RemoteProtocolError; and the memory kept stays below what the limits allow. Nothing else happens.

    python tests/protocol/fuzz_connection.py --seconds 60 --seed 1
    python tests/protocol/fuzz_connection.py --seed 1 --round 4711      that one round again
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from iggy_protocol.base_connection import Limits
from iggy_protocol.batch import MessageBatch, PolledMessages
from iggy_protocol.commands.messages import SendMessages
from iggy_protocol.commands.system import Ping
from iggy_protocol.connection import ClientConnection, ServerConnection
from iggy_protocol.errors import RemoteProtocolError
from iggy_protocol.events import NEED_DATA, RequestReceived, ResponseReceived
from iggy_protocol.receive_buffer import CHUNK_BYTES
from iggy_protocol.registry import COMMANDS, Command, decode_request
from tests.protocol.frame_oracle import (
    FEEDERS,
    RECORDING_NAMES,
    Connection,
    Told,
    random_pieces,
    recorded_connections,
    release,
    requests_in,
    responses_in,
    tell,
)
from tests.protocol.fuzz_vsr import run_vsr_round

# Small enough for garbage to reach both sides of every limit.
LIMITS = Limits(
    control_bytes_max=3_000,
    send_bytes_max=100_000,
    response_bytes_max=200_000,
    pipelined_max=100_000,
    outstanding_max=100_000,
    retained_bytes_max=80_000,
)
RESERVED_BYTES_MAX = 2 * LIMITS.response_bytes_max
WORDS = (0, 1, 3, 4, 5, 8, 101, 3_004, 3_005, 100_004, 100_005, 200_001, 2**31, 2**32 - 1)
GARBAGE_WORDS = 5_000
# How many of the rounds attack the framing from 0.9 on.
VSR_SHARE = 0.4


@dataclass(frozen=True)
class Conversation:
    """What one recorded connection carried, and the commands its replies belong to."""

    requests: bytes
    replies: bytes
    commands: tuple[Command[Any], ...]


@cache
def conversations() -> tuple[Conversation, ...]:
    """Read all recordings."""
    found = []
    for name in RECORDING_NAMES:
        for recorded in recorded_connections(name):
            requests, replies = b"".join(recorded.requests), b"".join(recorded.replies)
            commands = tuple(_commands_in(requests))
            found.append(Conversation(requests, replies, commands))
    return tuple(found)


def _commands_in(requests: bytes) -> list[Command[Any]]:
    """Decode what can be decoded; a ping stands for the rest, to keep the replies in step."""
    commands: list[Command[Any]] = []
    for kind, *rest in requests_in(requests):
        try:
            commands.append(decode_request(*rest) if kind == "request" else Ping())
        except RemoteProtocolError:
            commands.append(Ping())
    return commands


# Making bytes


def _overwrite_word(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at : at + 4] = rng.choice(WORDS).to_bytes(4, "little")


def _overwrite_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def _cut_out(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randint(1, 40)]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.randint(1, 2_000)] * rng.randint(1, 3)


def _insert_garbage(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.randint(1, 40))


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _insert_frame(data: bytearray, rng: random.Random) -> None:
    code = rng.choice([*COMMANDS, 0, 9_999])
    payload = rng.randbytes(rng.choice((0, 1, 5, 40, 3_000, 3_001)))
    head = (len(payload) + 4).to_bytes(4, "little") + code.to_bytes(4, "little")
    data[0:0] = head + payload


MUTATIONS = (
    _overwrite_word,
    _overwrite_byte,
    _cut_out,
    _repeat,
    _insert_garbage,
    _truncate,
    _insert_frame,
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Change a few things, or nothing."""
    changed = bytearray(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        if changed:
            rng.choice(MUTATIONS)(changed, rng)
    return bytes(changed)


def garbage(rng: random.Random) -> bytes:
    """Make words of which most are small, so that some of them are heads of short frames."""
    bounds = rng.choices((2, 40, 700, 2**32), (10, 10, 5, rng.choice((0, 1))), k=GARBAGE_WORDS)
    size = rng.randrange(4 * GARBAGE_WORDS)
    return b"".join(rng.randrange(bound).to_bytes(4, "little") for bound in bounds)[:size]


# Watching what happens


def decode(event: object) -> str:
    """Decode an event to the last message and say how that ended."""
    if not isinstance(event, RequestReceived | ResponseReceived):
        return "not decodable"
    try:
        value = event.decode()
        if isinstance(value, SendMessages | PolledMessages):
            assert isinstance(value.messages, MessageBatch)
            for message in value.messages:
                assert message.size == 64 + len(message.payload) + len(message.user_headers)
    except RemoteProtocolError as error:
        return f"refused: {type(error).__name__}"
    return "decoded"


def listen(connection: Connection, rng: random.Random, counter: Counter[str]) -> list[Told]:
    """Hear what there is, decode it, and release some of it."""
    told: list[Told] = []
    while True:
        try:
            event = connection.next_event()
        except RemoteProtocolError as error:
            counter["failed"] += 1
            return [*told, ("failed", type(error).__name__)]
        if event is NEED_DATA:
            return told
        counter[decode(event)] += 1
        told.append(tell(event))
        if rng.random() < 0.5:
            release(event)
        counter[told[-1][0]] += 1
        if told[-1][0] == "closed":
            return told


def converse(
    connection: Connection, data: bytes, rng: random.Random, counter: Counter[str]
) -> list[Told]:
    """Feed all of the data, cut and fed in random ways, and return what the connection told."""
    told: list[Told] = []
    for piece in random_pieces(data, rng):
        rng.choice(list(FEEDERS.values()))(connection, piece)
        if rng.random() < 0.9:
            told += listen(connection, rng, counter)
        statistics = connection.statistics()
        assert statistics.reserved_bytes <= RESERVED_BYTES_MAX + CHUNK_BYTES, statistics
        assert statistics.buffered_bytes <= RESERVED_BYTES_MAX, statistics
        if told and told[-1][0] == "failed":
            return told
    connection.receive_eof()
    return told + listen(connection, rng, counter)


def run_round(seed: int, number: int, counter: Counter[str]) -> None:
    """Attack one connection once."""
    rng = random.Random(f"{seed}/{number}")
    if rng.random() < VSR_SHARE:
        run_vsr_round(rng, LIMITS, mutated, counter)
        counter["rounds"] += 1
        return
    conversation = rng.choice(conversations())
    is_garbage = rng.random() < 0.2
    if rng.random() < 0.6:
        data = garbage(rng) if is_garbage else mutated(conversation.requests, rng)
        told = converse(ServerConnection(limits=LIMITS), data, rng, counter)
        expected = requests_in(
            data,
            send_bytes_max=LIMITS.send_bytes_max,
            control_bytes_max=LIMITS.control_bytes_max,
        )
    else:
        data = garbage(rng) if is_garbage else mutated(conversation.replies, rng)
        client = ClientConnection(limits=LIMITS)
        commands = [rng.choice((Ping(), command)) for command in conversation.commands]
        for command in commands:
            client.send(command)
        told = converse(client, data, rng, counter)
        expected = responses_in(data, commands, response_bytes_max=LIMITS.response_bytes_max)
    assert told == expected, f"{told[-3:]} instead of {expected[-3:]}"
    counter["rounds"] += 1


def main() -> None:
    """Run rounds until the time is up; the first that breaks the invariant ends the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--round", type=int, help="replay this round only")
    options = parser.parse_args()
    sys.stdout.write(f"seed {options.seed}\n")
    counter: Counter[str] = Counter()
    deadline = monotonic() + options.seconds
    next_report = monotonic() + 10
    number = options.round or 0
    while True:
        try:
            run_round(options.seed, number, counter)
        except Exception:
            sys.stdout.write(f"broken: --seed {options.seed} --round {number}\n")
            raise
        number += 1
        now = monotonic()
        is_over = now >= deadline or options.round is not None
        if is_over or now >= next_report:
            next_report = now + 10
            counts = ", ".join(f"{count} {what}" for what, count in sorted(counter.items()))
            sys.stdout.write(f"{counts}\n")
        if is_over:
            return


if __name__ == "__main__":
    main()
