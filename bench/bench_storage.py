"""How long files take: io_uring, worker threads, and writing on the loop itself.

Run it as ``python bench/bench_storage.py [DIRECTORY]``; the directory says which disk is
measured. The engines take turns in every round and the median counts, so read the figures as
ratios. ``late`` is by how much the worst hundredth of a one-millisecond timer was late: what other
clients of the loop feel meanwhile.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

import trio  # noqa: E402  the path first

from iggy_ref_server.process.shard_process import open_storage  # noqa: E402  the path first
from iggy_ref_server.storage.files import WritebackLimit  # noqa: E402  the path first

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_ref_server.process.shard_process import Engine
    from iggy_ref_server.storage.interface import File, Storage

    Step = Callable[[File, int], Awaitable[None]]

ROUNDS = 5
KIB, MIB = 1 << 10, 1 << 20
SMALL, LARGE = bytes(4 * KIB), bytes(MIB)


class Work(NamedTuple):
    """What is measured: so many steps on each of so many files at once."""

    name: str
    files_count: int
    steps_count: int
    step: Step
    is_read: bool = False


class Figure(NamedTuple):
    """What came out, per step."""

    time_us: float
    late_us: float


async def append_inline(content: bytes, file: File, number: int) -> None:
    """Write on the loop itself."""
    if not file.write_nowait([content], number * len(content)):
        raise RuntimeError("the engine did not write at once")
    await trio.lowlevel.checkpoint()


async def append(content: bytes, file: File, number: int, *, sync: bool = False) -> None:
    """Write through the engine."""
    await file.write([content], number * len(content), sync=sync)


async def append_group(file: File, number: int) -> None:
    """Write what many clients have sent, and sync once for all of them."""
    await file.write([SMALL] * 64, number * 64 * len(SMALL), sync=True)


async def read(file: File, number: int) -> None:
    """Read a piece that is far from the one before, so that nothing is read ahead."""
    piece = 64 * KIB
    place = number * 37 % (file.size() // piece)
    if len(await file.read(piece, place * piece)) != piece:
        raise RuntimeError("the file is too short")


WORKS = (
    Work("4 KiB append, 1 file", 1, 400, partial(append, SMALL)),
    Work("4 KiB append, 16 files", 16, 50, partial(append, SMALL)),
    Work("1 MiB append, 1 file", 1, 50, partial(append, LARGE)),
    Work("1 MiB append, 4 files", 4, 15, partial(append, LARGE)),
    Work("4 KiB append + sync, 1 file", 1, 20, partial(append, SMALL, sync=True)),
    Work("4 KiB append + sync, 16 files", 16, 5, partial(append, SMALL, sync=True)),
    Work("64 x 4 KiB + one sync", 1, 20, append_group),
    Work("64 KiB cold read, 1 file", 1, 100, read, is_read=True),
    Work("64 KiB cold read, 16 files", 16, 12, read, is_read=True),
)
INLINE = {
    "4 KiB append, 1 file": partial(append_inline, SMALL),
    "4 KiB append, 16 files": partial(append_inline, SMALL),
    "1 MiB append, 1 file": partial(append_inline, LARGE),
    "1 MiB append, 4 files": partial(append_inline, LARGE),
}


def make_cold(file: File) -> None:
    """Fill a file, and make the kernel forget it."""
    descriptor = file.descriptor
    assert descriptor is not None
    for number in range(16):
        os.pwrite(descriptor, LARGE, number * len(LARGE))
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


async def watch(late_us: list[float]) -> None:
    """Note how late a timer is."""
    while True:
        due = time.perf_counter() + 0.001
        await trio.sleep(0.001)
        late_us.append((time.perf_counter() - due) * 1e6)


async def repeat(step: Step, file: File, count: int) -> None:
    """Do a step so many times."""
    for number in range(count):
        await step(file, number)


async def measure(storage: Storage, work: Work, step: Step) -> Figure:
    """Do all of the work once, on new files."""
    files = [await storage.open(f"{n}", create=True) for n in range(work.files_count)]
    if work.is_read:
        for file in files:
            await trio.to_thread.run_sync(make_cold, file)
    late_us: list[float] = []
    async with trio.open_nursery() as watching:
        watching.start_soon(watch, late_us)
        began = time.perf_counter()
        async with trio.open_nursery() as nursery:
            for file in files:
                nursery.start_soon(repeat, step, file, work.steps_count)
        took_us = (time.perf_counter() - began) * 1e6
        watching.cancel_scope.cancel()
    for number in range(work.files_count):
        await storage.remove(f"{number}")
    late = statistics.quantiles([0.0, 0.0, *late_us], n=100)[-1]
    return Figure(took_us / work.files_count / work.steps_count, late)


async def run_once(root: str, engine: Engine, work: Work, step: Step) -> Figure:
    """Measure on an engine of its own."""
    writeback_limit = WritebackLimit(slow_s=60)
    storage = await open_storage(root, engine, writeback_limit=writeback_limit)
    try:
        return await measure(storage, work, step)
    finally:
        await storage.aclose()


async def has_ring(root: str) -> bool:
    """Tell whether io_uring can be had here."""
    storage = await open_storage(root)
    await storage.aclose()
    return storage.engine == "io_uring"


def measure_all(root: str, work: Work) -> dict[str, Figure]:
    """Let the engines take turns; return the median of each."""
    runs: dict[str, list[Figure]] = {"threads": []}
    if trio.run(has_ring, root):
        runs["io_uring"] = []
    if work.name in INLINE:
        runs["inline"] = []
    for _ in range(ROUNDS):
        for name, figures in runs.items():
            engine: Engine = "io_uring" if name == "io_uring" else "threads"
            step = INLINE[work.name] if name == "inline" else work.step
            figures.append(trio.run(run_once, root, engine, work, step))
    return {
        name: Figure(*(statistics.median(column) for column in zip(*figures, strict=True)))
        for name, figures in runs.items()
    }


def main(parent: str | None) -> None:
    """Print a line per kind of work."""
    print(f"{'work':<32}{'engine':<10}{'us each':>10}{'late us':>10}{'of threads':>12}")
    with tempfile.TemporaryDirectory(dir=parent) as root:
        for work in WORKS:
            figures = measure_all(root, work)
            for engine, figure in figures.items():
                ratio = figure.time_us / figures["threads"].time_us
                print(
                    f"{work.name:<32}{engine:<10}{figure.time_us:>10.1f}{figure.late_us:>10.0f}"
                    f"{ratio:>12.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
