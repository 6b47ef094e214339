"""The statistics of the machine and of the server's processes.

Reads ``/proc``, which never waits for a disk. On systems without it the values are 0.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import HostResources, OpenFiles, Stats
from iggy_ref_server.clock import Clock
from iggy_ref_server.descriptor_limit import descriptor_limit
from iggy_ref_server.storage.interface import Storage

if TYPE_CHECKING:
    from iggy_ref_server.metadata.views import ServerTotals


# The version in replies: that of the Apache Iggy server whose behaviour this one has.
SERVER_VERSION = "0.8.0"
PROC = Path("/proc")
PAGE_BYTES = resource.getpagesize()
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MICROSECONDS = 1_000_000
F32 = struct.Struct("<f")
# With so many digits every 32-bit float can be written.
F32_DIGITS_MAX = 9


def semver_number(version: str) -> int:
    """Return a version as one number, as in 8000 for 0.8.0."""
    major, minor, patch = (int(part) for part in version.split("."))
    return major * 1_000_000 + minor * 1_000 + patch


class Ports(NamedTuple):
    """The ports of the listeners; a disabled listener keeps its configured port."""

    tcp: int = 8090
    quic: int = 8080
    http: int = 3000
    websocket: int = 8092


class _Usage(NamedTuple):
    """What the processes of the server have used."""

    cpu_ticks: int
    resident_bytes: int
    read_bytes: int
    written_bytes: int
    threads: int


@dataclass(slots=True)
class Host:
    """Statistics of the machine and of all processes of the server.

    Attributes:
        clock: the time of day.
        storage: knows how much space is left.
        ports: the ports of the listeners.
        ip: the address of the TCP listener.
        is_follower: whether the server presents itself as a follower of a cluster.
        started_at_us: when the server started.
    """

    clock: Clock
    storage: Storage
    ports: Ports
    ip: str
    is_follower: bool
    started_at_us: int
    _last: tuple[int, int, int, int] = (0, 0, 0, 0)

    async def stats(
        self,
        totals: ServerTotals,
        *,
        clients_count: int,
        counts_open_files: bool = False,
    ) -> Stats:
        """Collect the reply to a request for statistics."""
        free_bytes, disk_bytes = await self.storage.free_bytes()
        processes_found = _server_processes()
        usage = _total_usage(processes_found.shards)
        own_share, total_share = self._cpu_shares(usage.cpu_ticks)
        memory = _memory()
        system = read_os_release()
        now_us = self.clock.now_us()
        return Stats(
            process_id=processes_found.supervisor,
            cpu_usage=own_share,
            total_cpu_usage=total_share,
            memory_usage_bytes=usage.resident_bytes,
            total_memory_bytes=memory.get("MemTotal", 0),
            available_memory_bytes=memory.get("MemAvailable", 0),
            run_time_us=_whole_seconds(max(0, now_us - self.started_at_us)),
            start_time_us=_whole_seconds(self.started_at_us),
            read_bytes=usage.read_bytes,
            written_bytes=usage.written_bytes,
            messages_size_bytes=totals.messages_size_bytes,
            streams_count=totals.streams_count,
            topics_count=totals.topics_count,
            partitions_count=totals.partitions_count,
            segments_count=totals.segments_count,
            messages_count=totals.messages_count,
            clients_count=clients_count,
            consumer_groups_count=totals.consumer_groups_count,
            hostname=socket.gethostname(),
            os_name=system.name,
            os_version=system.version,
            kernel_version=platform.release(),
            server_version=SERVER_VERSION,
            server_semver=semver_number(SERVER_VERSION),
            host=HostResources(usage.threads, free_bytes, disk_bytes),
            open_files=_open_files(processes_found.shards) if counts_open_files else None,
        )

    def _cpu_shares(self, cpu_ticks: int) -> tuple[float, float]:
        """Return the CPU usage of the server and of the machine since the last call, in percent."""
        busy, total = _machine_ticks()
        now_us = self.clock.now_us()
        then_us, then_own, then_busy, then_total = self._last
        self._last = (now_us, cpu_ticks, busy, total)
        seconds = (now_us - then_us) / 1e6
        if not then_us or seconds <= 0:
            return 0.0, 0.0
        own = (cpu_ticks - then_own) / TICKS_PER_SECOND / seconds * 100
        share = 100 * (busy - then_busy) / max(1, total - then_total)
        return shortest_f32(max(0.0, own)), shortest_f32(share)


class OsRelease(NamedTuple):
    """The name and the version of the operating system."""

    name: str
    version: str


def read_os_release() -> OsRelease:
    """Read the names in Apache Iggy's form: ``Debian GNU/Linux``, ``Linux (... 12)``."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return OsRelease(platform.system(), platform.release())
    name, version = release.get("NAME", platform.system()), release.get("VERSION_ID", "rolling")
    return OsRelease(name, f"{platform.system()} ({name} {version})")


def shortest_f32(value: float) -> float:
    """Return the number with the fewest digits that equals ``value`` as a 32-bit float.

    Apache Iggy uses 32 bits. In JSON, 64 bits would show meaningless digits, and some readers
    reject so many.
    """
    packed = F32.pack(value)
    (value,) = F32.unpack(packed)
    for digits in range(1, F32_DIGITS_MAX):
        shorter = float(f"{value:.{digits}g}")
        if F32.pack(shorter) == packed:
            return shorter
    return float(f"{value:.{F32_DIGITS_MAX}g}")


def _whole_seconds(time_us: int) -> int:
    return time_us - time_us % MICROSECONDS


class _ServerProcesses(NamedTuple):
    """The processes of the server: the supervisor and the shards."""

    supervisor: int
    shards: list[int]


def _server_processes() -> _ServerProcesses:
    """Find the processes: the children of the parent, if this process is a shard."""
    own, parent = os.getpid(), os.getppid()
    try:
        if (PROC / str(parent) / "comm").read_text() != (PROC / "self" / "comm").read_text():
            return _ServerProcesses(own, [own])
        children = (PROC / str(parent) / "task" / str(parent) / "children").read_text().split()
    except OSError:
        return _ServerProcesses(own, [own])
    return (
        _ServerProcesses(parent, [int(child) for child in children])
        if children
        else _ServerProcesses(own, [own])
    )


def _total_usage(processes: list[int]) -> _Usage:
    sums = [0, 0, 0, 0, 0]
    for process in processes:
        for field_index, value in enumerate(_process_usage(PROC / str(process))):
            sums[field_index] += value
    return _Usage(*sums)


def _process_usage(directory: Path) -> _Usage:
    try:
        stat = (directory / "stat").read_text().rpartition(")")[2].split()
        resident = int((directory / "statm").read_text().split()[1]) * PAGE_BYTES
        files = dict(
            line.split(": ") for line in (directory / "io").read_text().splitlines() if ": " in line
        )
    except OSError:
        return _Usage(0, 0, 0, 0, 0)
    return _Usage(
        cpu_ticks=int(stat[11]) + int(stat[12]),
        resident_bytes=resident,
        read_bytes=int(files.get("rchar", 0)),
        written_bytes=int(files.get("wchar", 0)),
        threads=int(stat[17]),
    )


def _open_files(processes: list[int]) -> OpenFiles:
    """Count the open files of all shards; each of them may have as many as the limit says."""
    count = 0
    for process in processes:
        with suppress(OSError):
            count += len(os.listdir(PROC / str(process) / "fd"))
    return OpenFiles(count, descriptor_limit() * len(processes))


def _memory() -> dict[str, int]:
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
    except OSError:
        return {}
    return {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in lines)
    }


def _machine_ticks() -> tuple[int, int]:
    try:
        ticks = [int(part) for part in (PROC / "stat").read_text().splitlines()[0].split()[1:9]]
    except OSError:
        return 0, 0
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
