"""How long a control-plane command takes from bytes to dataclass and back.

Run with ``make bench`` or ``python bench/bench_commands.py``. The layouts run compiled; the
interpreted form, which explains what is wrong with a bad payload, is printed beside it.
"""

from __future__ import annotations

import timeit

from iggy_protocol import (
    CLASSIC,
    Command,
    ConsumerIdentity,
    CreateTopic,
    CreateUser,
    LoginUser,
    Permissions,
    PollingStrategy,
    PollMessages,
    StreamPermissions,
    TopicPermissions,
    decode_request,
    encode_request,
)
from iggy_protocol.registry import COMMANDS, RecordCodec

TARGET_US = 50
SAMPLES: list[Command[object]] = [
    LoginUser("iggy", "iggy", version="0.10.0"),
    CreateTopic("stream-1", "topic-1", 3),
    PollMessages(
        ConsumerIdentity.group("group-1"), "stream-1", "topic-1", PollingStrategy.next(), 1000
    ),
    CreateUser(
        "user-1",
        "secret",
        permissions=Permissions(
            streams=(StreamPermissions(1, topics=(TopicPermissions(1), TopicPermissions(2))),)
        ),
    ),
]


def microseconds(call) -> float:
    """Return the best time of one call."""
    call()
    timer = timeit.Timer(call)
    number, _ = timer.autorange()
    return min(timer.repeat(repeat=5, number=number)) / number * 1e6


def row(sample: Command[object]) -> str:
    """Measure one command."""
    [wire] = encode_request(sample)
    codec = COMMANDS[sample.CODE].request[CLASSIC]
    assert isinstance(wire, bytes)
    assert isinstance(codec, RecordCodec)
    decode = microseconds(lambda: decode_request(sample.CODE, wire))
    encode = microseconds(lambda: encode_request(sample))
    slow = microseconds(lambda: codec.layout._decode_explaining(wire))
    verdict = "met" if decode < TARGET_US else "MISSED"
    name = type(sample).__name__
    return f"{name:<16}{len(wire):>7}{decode:>9.1f}{encode:>9.1f}{slow:>13.1f}  {verdict}"


def main() -> None:
    """Print one line per command."""
    print(f"\nControl-plane commands, microseconds (target: decode below {TARGET_US})\n")
    print(f"{'command':<16}{'bytes':>7}{'decode':>9}{'encode':>9}{'interpreted':>13}  target")
    for sample in SAMPLES:
        print(row(sample))


if __name__ == "__main__":
    main()
