"""What the machine says about itself while something is measured: time on cores, memory, noise.

Reads ``/proc`` and compiles the C programs.
"""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LOAD_CORE",
    "ROOT",
    "SERVER_CORE",
    "Clock",
    "Memory",
    "Noise",
    "compile_c",
    "core_for_load",
    "cpu_seconds",
    "descendants",
    "memory_of",
    "touch_memory",
]

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
HEADERS = ROOT / "protocol" / "iggy_protocol"
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, LOAD_CORE = CORES[0], CORES[min(1, len(CORES) - 1)]
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def core_for_load(shards: int) -> int:
    """Return a core that no shard is pinned to, or -1 when the load has to share."""
    return CORES[shards] if shards < len(CORES) else -1


def compile_c(source: Path, folder: Path) -> Path:
    """Compile one of the programs, which may include headers of the protocol; return it.

    Raises:
        CalledProcessError: there is no compiler, or it complained.
    """
    program = folder / source.stem
    subprocess.run(
        ["gcc", "-O3", f"-I{HEADERS}", "-o", str(program), str(source)], check=True, text=True
    )
    return program


def descendants(process_id: int) -> list[int]:
    """List a process and all that came from it, oldest first."""
    found = [process_id]
    for parent in found:
        try:
            text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += sorted(int(child) for child in text.split())
    return found


def cpu_seconds(process_id: int) -> dict[str, float]:
    """Return how long each thread of a process has been on a core."""
    seconds: dict[str, float] = {}
    for thread in Path(f"/proc/{process_id}/task").iterdir():
        try:
            seconds[thread.name] = int((thread / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has ended meanwhile
            continue
    return seconds


def _since(before: dict[str, float], after: dict[str, float]) -> float:
    """Add up what threads have used since; what those used that have ended is not known."""
    return sum(seconds - before.get(thread, 0.0) for thread, seconds in after.items())


class Memory(NamedTuple):
    """What a process occupies, in MB.

    Attributes:
        resident: all pages in memory, shared ones in full.
        proportional: shared pages counted by share.
        private: what would be free if the process ended.
    """

    resident: float
    proportional: float
    private: float


def memory_of(process_id: int) -> Memory:
    """Measure the memory of a process."""
    sizes: dict[str, int] = {}
    for line in Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) * 1024
    private = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return Memory(sizes["Rss"] / 1e6, sizes["Pss"] / 1e6, private / 1e6)


def touch_memory(size_bytes: int) -> None:
    """Have the machine find pages for the page cache before they are needed.

    The first use of a page is slow on a virtual machine, and would be measured instead of a server.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, size_bytes, flags=flags).close()


class Noise(NamedTuple):
    """What else happened on the cores, as shares of one core.

    Attributes:
        stolen: taken by the host.
        foreign: used by processes that do not belong to the measurement.
    """

    stolen: float
    foreign: float


class Clock:
    """Notes where time went between two moments.

    Args:
        processes: those that are measured.
        helpers: those that make the load.
    """

    def __init__(self, processes: Iterable[int], helpers: Iterable[int]) -> None:
        self._processes = list(processes)
        self._helpers = list(helpers)
        self._began = self._read()

    def _read(self) -> tuple[dict[int, dict[str, float]], int, int]:
        used = {process: cpu_seconds(process) for process in self._processes + self._helpers}
        user, nice, system, _, _, irq, softirq, stolen = _cpu_ticks()
        return used, user + nice + system + irq + softirq, stolen

    def stop(self, seconds: float) -> tuple[dict[int, float], Noise]:
        """Return the CPU seconds of each measured process, and the noise."""
        before, busy_before, stolen_before = self._began
        after, busy, stolen = self._read()
        spent = {process: _since(before[process], after[process]) for process in after}
        busy_s = (busy - busy_before) / TICKS_PER_SECOND
        stolen_s = (stolen - stolen_before) / TICKS_PER_SECOND
        foreign_s = max(busy_s - sum(spent.values()), 0.0)
        measured = {process: spent[process] for process in self._processes}
        return measured, Noise(stolen_s / seconds, foreign_s / seconds)


def _cpu_ticks() -> list[int]:
    with Path("/proc/stat").open() as file:
        return [int(field) for field in file.readline().split()[1:9]]
