"""What it costs to hold messages to their checksums before a poll hands them out.

Run it as ``python bench/bench_verification.py``. A partition of 64 MiB is filled, closed and
opened again for each size of payload. ``first`` is a poll of a range that was not read since
the start, ``again`` the same poll a second time, ``each`` with ``validate_checksum``; the bytes are
in the page cache, and none is sent. The median of the rounds counts.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

import trio  # noqa: E402  the path first

from iggy_protocol import PollingStrategy  # noqa: E402  the path first
from iggy_ref_server.partitions.poll_plan import PollParams  # noqa: E402  the path first
from iggy_ref_server.partitions.settings import PartitionSettings  # noqa: E402  the path first
from iggy_ref_server.partitions.steps import run_async  # noqa: E402  the path first
from iggy_ref_server.storage.threads import ThreadStorage  # noqa: E402  the path first
from tests.server.partitions.partition_calls import (  # noqa: E402  the path first
    create,
    reopen,
    send,
)

TOTAL_BYTES = 64 << 20
POLL_BYTES = 1 << 20
PAYLOADS_BYTES = (16, 100, 1_000, 16_000, 100_000)
BATCH_BYTES = 512 << 10


async def polled_us(
    storage: ThreadStorage, settings: PartitionSettings, count: int, rounds: int, times: int
) -> list[float]:
    """Time polls of one range after another; return the median of each time round."""
    partition = await reopen(storage, settings)
    medians = []
    for _ in range(times):
        took: list[float] = []
        for number in range(rounds):
            strategy = PollingStrategy.offset(number * count)
            request = PollParams(strategy, count, None, 1 << 40)
            began = time.perf_counter()
            await run_async(partition.poll(request))
            took.append((time.perf_counter() - began) * 1e6)
        medians.append(statistics.median(took))
    await partition.aclose()
    return medians


async def measure(payload_bytes: int, directory: str) -> tuple[float, float, float]:
    """Fill a partition and time polls of about a mebibyte."""
    storage = ThreadStorage(Path(directory))
    partition = await create(storage)
    size = 64 + payload_bytes
    batch = [bytes(payload_bytes)] * max(BATCH_BYTES // size, 1)
    for _ in range(TOTAL_BYTES // (size * len(batch))):
        await send(partition, *batch)
    await partition.aclose()
    count = max(POLL_BYTES // size, 1)
    rounds = TOTAL_BYTES // (size * (count + 1)) - 1
    first, again = await polled_us(storage, PartitionSettings(), count, rounds, 2)
    verifying = PartitionSettings(validate_checksums=True)
    _, each = await polled_us(storage, verifying, count, rounds, 2)
    await storage.aclose()
    return first, again, each


def main() -> None:
    """Print a row for each size."""
    print("payload bytes   first us/MiB   again us   each us/MiB")
    for payload_bytes in PAYLOADS_BYTES:
        with tempfile.TemporaryDirectory() as directory:
            first, again, each = trio.run(measure, payload_bytes, directory)
        print(f"{payload_bytes:>13}   {first:>12.0f}   {again:>8.1f}   {each:>11.0f}")


if __name__ == "__main__":
    main()
