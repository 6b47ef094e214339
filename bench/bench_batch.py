"""How long the batch work takes: the C extension, its Python twin, and plain copying.

Run it as ``python bench/bench_batch.py``. All figures of a table come from one run in which
the candidates take turns; each is the best of many rounds, so read them as ratios. A turn begins
with calls that are not counted, so that no candidate profits from the data that the one before it
left in the cache.

A copy is shown twice: into a buffer that exists (``copy``), and into a new object (``new copy``),
which is what encoding has to make as well. The last lines say for each target whether it is met.

The tables of batches of 0.9 show nanoseconds per message and bytes of classic messages per second;
``--vsr`` prints these tables alone.
"""

from __future__ import annotations

import gc
import random
import sys
from pathlib import Path
from timeit import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT / "protocol")]

from xxhash import xxh3_64_intdigest  # noqa: E402  the path above comes first

from iggy_protocol import batch_python  # noqa: E402  the path above comes first
from iggy_protocol.message_view import NewMessage  # noqa: E402  the path above comes first

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 1000
ROUNDS = 80
CALLS = 5
METADATA = bytes.fromhex("10000000 020173 020174 020400000000 e8030000")
LARGE_BYTES = 1 << 20
UNLIMITED = 2**64 - 1
SHORT_PAYLOADS = (185, 400, 1000)  # the first makes the shortest input that runs in lanes

Work = dict[str, "Callable[[], object]"]
Times = dict[str, float]


class Row(NamedTuple):
    """A line of a table: what is measured, against what, and the target if there is one."""

    work: str
    reference: str
    limit: float | None = None
    target: str = ""


class Verdict(NamedTuple):
    """What came of a target."""

    target: str
    ratio: float
    limit: float

    def __str__(self) -> str:
        word = "PASS" if self.ratio <= self.limit else "MISS"
        return f"{word}  {self.ratio:5.2f} <= {self.limit:<4}  {self.target}"


def measure(work: Work) -> Times:
    """Let all candidates take turns; return the best time of each in microseconds per call."""
    timers = {name: Timer(function) for name, function in work.items()}
    best = dict.fromkeys(timers, float("inf"))
    gc.disable()
    for _ in range(ROUNDS):
        for name, timer in timers.items():
            calls = 1 if name.startswith("python") else CALLS
            timer.timeit(calls)
            best[name] = min(best[name], timer.timeit(calls) / calls * 1e6)
    gc.enable()
    return best


def show(title: str, rows: list[Row], times: Times) -> list[Verdict]:
    """Print a table; return what came of its targets."""
    print(title)
    print(f"  {'work':<32}{'us':>9}  {'compared with':<28}{'us':>9}{'ratio':>9}")
    verdicts = []
    for row in rows:
        ours, theirs = times[row.work], times[row.reference]
        ratio = ours / theirs
        print(f"  {row.work:<32}{ours:>9.1f}  {row.reference:<28}{theirs:>9.1f}{ratio:>9.2f}")
        if row.limit is not None:
            verdicts.append(Verdict(row.target, ratio, row.limit))
    print()
    return verdicts


def make_payloads(size: int) -> list[bytes]:
    """Make as many payloads of one size as a batch here has."""
    noise = random.Random(size)
    return [noise.randbytes(size) for _ in range(MESSAGES)]


def with_ids(payloads: list[bytes]) -> list[NewMessage]:
    """Give each payload an id."""
    noise = random.Random(1)
    return [NewMessage(payload, noise.getrandbits(128)) for payload in payloads]


def make_body(extension: Any, payloads: list[bytes]) -> bytearray:
    """Encode a batch in which every message has an id."""
    body: bytearray = extension.encode(METADATA, with_ids(payloads), 9, 0)
    return body


def twin_work(twin: Any, name: str, payloads: list[bytes], body: bytearray) -> Work:
    """List what one implementation is asked to do with a batch."""
    named = with_ids(payloads)
    messages = memoryview(body)[twin.inspect(body)[6] :]

    def inspect_and_stamp() -> None:
        twin.inspect(body)
        twin.stamp(messages, 7, 8, b"")

    def walk_payloads() -> None:
        for message in twin.walk(messages):
            message.payload  # noqa: B018  reading it is the work

    def walk_only() -> None:
        for _ in twin.walk(messages):
            pass

    work: Work = {
        "encode": lambda: twin.encode(METADATA, payloads, 9, 8),
        "encode with ids": lambda: twin.encode(METADATA, named, 9, 8),
        "inspect and stamp": inspect_and_stamp,
        "verify": lambda: twin.verify(messages),
        "walk": walk_only,
        "walk and read payloads": walk_payloads,
        "copy all payloads": lambda: twin.payloads(messages),
        "index entries": lambda: twin.index_entries(messages, 0, 0),
    }
    return {f"{name}: {title}": function for title, function in work.items()}


def copy_work(body: bytearray) -> Work:
    """List the two ways of copying the bytes of a batch."""
    target = memoryview(bytearray(body))

    def copy() -> None:
        target[:] = body

    return {"copy": copy, "new copy": lambda: bytearray(body)}


def bench_batch(extension: Any, payload_bytes: int, encode_limit: float) -> list[Verdict]:
    """Measure one size of messages."""
    payloads = make_payloads(payload_bytes)
    body = make_body(extension, payloads)
    work = {
        **twin_work(extension, "C", payloads, body),
        **twin_work(batch_python, "python", payloads, body),
        **copy_work(body),
    }
    encoding = f"encode {MESSAGES} x {payload_bytes} bytes, compared with a copy"
    storing = f"inspect and stamp {MESSAGES} x {payload_bytes} bytes, compared with the checksums"
    rows = [
        Row("C: encode", "new copy", encode_limit, encoding),
        Row("C: encode", "copy"),
        Row("C: encode with ids", "new copy"),
        Row("C: inspect and stamp", "C: verify", 1.5, storing),
        Row("C: inspect and stamp", "copy"),
        Row("C: walk", "copy"),
        Row("C: walk and read payloads", "copy"),
        Row("C: copy all payloads", "copy"),
    ]
    rows += [Row(name, "C" + name.removeprefix("python")) for name in work if name[0] == "p"]
    title = f"{MESSAGES} messages of {payload_bytes} bytes, {len(body)} bytes in all"
    return show(title, rows, measure(work))


def vsr_work(twin: Any, name: str, payloads: list[bytes], body: bytearray) -> Work:
    """List the conversions between classic messages and batches of 0.9."""
    named, random_ids = with_ids(payloads), random.Random(3).randbytes(16 * MESSAGES)
    messages = memoryview(body)[twin.inspect(body)[6] :]
    twin.stamp(messages, 7, 8, b"")
    send = twin.encode_vsr(METADATA, named, 9, 0, b"", None)
    batches = twin.vsr_batches(messages, 1, UNLIMITED, True)[0]
    work: Work = {
        "stamp": lambda: twin.stamp(messages, 7, 8, b""),
        "send to classic body": lambda: twin.classic_send(send, False),
        "records to batches": lambda: twin.vsr_batches(messages, 1, UNLIMITED, True),
        "records to batches, unverified": lambda: twin.vsr_batches(messages, 1, UNLIMITED, False),
        "batches to records": lambda: twin.classic_records(batches, False, True),
        "batches to records, unverified": lambda: twin.classic_records(batches, False, False),
        "encode classic send": lambda: twin.encode(METADATA, named, 9, 8),
        "encode send": lambda: twin.encode_vsr(METADATA, named, 9, 256, b"", None),
        "encode send, new ids": lambda: twin.encode_vsr(
            METADATA, payloads, 9, 256, random_ids, None
        ),
    }
    return {f"{name}: {title}": function for title, function in work.items()}


def bench_vsr(extension: Any, payload_bytes: int) -> None:
    """Measure the conversions for one size of messages."""
    payloads = make_payloads(payload_bytes)
    body = make_body(extension, payloads)
    work = {
        **copy_work(body),
        **vsr_work(extension, "C", payloads, body),
        **vsr_work(batch_python, "python", payloads, body),
    }
    print(f"batches of 0.9: {MESSAGES} messages of {payload_bytes} bytes")
    print(f"  {'work':<40}{'ns/message':>12}{'GB/s':>9}")
    for name, best_us in measure(work).items():
        speed = len(body) / best_us / 1e3
        print(f"  {name:<40}{best_us * 1e3 / MESSAGES:>12.1f}{speed:>9.2f}")
    print()


def on_levels(extension: Any, function: Callable[[], object]) -> Work:
    """List one piece of work as each level of this processor does it."""

    def on(level: str) -> Callable[[], object]:
        def run() -> None:
            extension._use(level)
            function()

        return run

    return {f"C: {level}": on(level) for level in extension.available_levels()}


def bench_large_checksum(extension: Any) -> list[Verdict]:
    """Measure XXH3 on one large buffer, on every level of this processor."""
    data = random.Random(2).randbytes(LARGE_BYTES)
    levels = on_levels(extension, lambda: extension.checksum(data))
    times = measure({"xxhash package": lambda: xxh3_64_intdigest(data), **levels})
    *slower, fastest = levels
    target = f"XXH3 of {LARGE_BYTES} bytes, compared with the xxhash package"
    rows = [Row(level, "xxhash package") for level in slower]
    rows.append(Row(fastest, "xxhash package", 1.2, target))
    return show(f"XXH3-64 of {LARGE_BYTES} bytes in cache", rows, times)


def bench_short_checksum(extension: Any, payload_bytes: int) -> None:
    """Measure XXH3 on short inputs, where a level must not lose what it gains on long ones."""
    body = make_body(extension, make_payloads(payload_bytes))
    messages = memoryview(body)[extension.inspect(body)[6] :]
    extension.stamp(messages, 0, 0, b"")
    levels = on_levels(extension, lambda: extension.verify(messages))
    first, *faster = levels
    rows = [Row(level, first) for level in faster]
    input_bytes = len(messages) // MESSAGES - 8
    show(f"XXH3-64 of {MESSAGES} times {input_bytes} bytes", rows, measure(levels))


def main() -> None:
    """Print all tables, then the verdicts."""
    try:
        from iggy_protocol import _batch
    except ImportError:
        sys.exit("The C extension is not built, and there is nothing to compare without it.")
    for payload_bytes in (1000, 100):
        bench_vsr(_batch, payload_bytes)
    if "--vsr" in sys.argv[1:]:
        return
    verdicts = [
        *bench_batch(_batch, 1000, encode_limit=2.0),
        *bench_batch(_batch, 100, encode_limit=4.0),
    ]
    for payload_bytes in SHORT_PAYLOADS:
        bench_short_checksum(_batch, payload_bytes)
    verdicts += bench_large_checksum(_batch)
    _batch._use(_batch.available_levels()[-1])
    print("Targets")
    for verdict in verdicts:
        print(f"  {verdict}")


if __name__ == "__main__":
    main()
