"""The context of a check: findings, the quarantine of a repair, and progress output.

A repair moves what it removes to the quarantine, where nothing is ever deleted:

    quarantine/0001/streams/0/topics/0/partitions/0/<what was moved, under its old name>
    quarantine/0001/<...>/00000000000000000000.log.bytes-4096-4133

Each repair has its own number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from iggy_protocol import PayloadCipher, record
from iggy_ref_server.clock import Clock
from iggy_ref_server.config.schema import ServerConfig
from iggy_ref_server.segments.recovery import copy_bytes
from iggy_ref_server.shard.settings import cipher_of, metadata_settings
from iggy_ref_server.storage.interface import File, Storage, parent_path

if TYPE_CHECKING:
    from iggy_ref_server.metadata.state import MetadataSettings


QUARANTINE_PATH = "quarantine"


class Quarantine:
    """The quarantine directory of one repair.

    Args:
        storage: the data directory.
        path: the directory of this repair, created when it is needed.

    Attributes:
        kept: the paths that were moved or copied here, in sequence.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.storage = storage
        self.path = path
        self.kept: list[str] = []

    @classmethod
    async def begin(cls, storage: Storage) -> Quarantine:
        """Start a repair with the next free number.

        Raises:
            StorageError: the directory cannot be read.
        """
        names = [entry.name for entry in await storage.entries(QUARANTINE_PATH)]
        number = max((int(name) for name in names if name.isdecimal()), default=0) + 1
        return cls(storage, f"{QUARANTINE_PATH}/{number:04}")

    async def move(self, path: str) -> None:
        """Move a file or a directory here.

        Raises:
            StorageError: it was not moved.
        """
        await self.storage.rename(path, await self._free_path(path))

    async def copy_file(self, path: str) -> None:
        """Copy a small file that is about to be overwritten.

        Raises:
            StorageError: there is no copy.
        """
        content = await self.storage.read_file(path)
        if content is not None:
            await self.storage.replace(await self._free_path(path), content)

    async def copy_range(self, file: File, start: int, end: int) -> None:
        """Copy a range of a file that is about to be cut out.

        Raises:
            StorageError: there is no complete copy.
        """
        target = await self._free_path(f"{file.path}.bytes-{start}-{end}")
        await copy_bytes(file, start, end, await self.storage.open(target, create=True))
        await self.storage.sync_directory(parent_path(target))

    async def staging_path(self, path: str) -> str:
        """Return the path of a temporary file, to be renamed when it is complete."""
        target = f"{self.path}/unfinished/{path}"
        await self.storage.make_directories(parent_path(target))
        await self.storage.remove(target)
        return target

    async def _free_path(self, path: str) -> str:
        directory, name = parent_path(f"{self.path}/{path}"), path.rpartition("/")[2]
        await self.storage.make_directories(directory)
        taken = {entry.name for entry in await self.storage.entries(directory)}
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name}.{number}"
        self.kept.append(f"{directory}/{free}")
        return self.kept[-1]


async def quarantine_path(path: str, quarantine: Quarantine) -> None:
    """Repair a finding by moving its file or directory away."""
    await quarantine.move(path)


# A finding: the problem, its severity, and the remedy.


RepairAction: TypeAlias = Callable[[Quarantine], Awaitable[None]]


class Severity(Enum):
    """What a finding means for the administrator."""

    NOTE = "note"
    REPAIRABLE = "repairable"
    FATAL = "not repairable"


@record
class Finding:
    """A problem of the data directory.

    Attributes:
        path: the file or directory, relative to the data directory.
        problem: what is wrong with it.
        remedy: what ``repair`` does about it, or what the administrator can do.
        repair_action: does the repair; None where there is none.
        is_fatal: whether a part of the data directory is unusable and no repair restores the
            missing data; with a ``repair_action`` it becomes usable without them.
    """

    path: str
    problem: str
    remedy: str
    repair_action: RepairAction | None = None
    is_fatal: bool = False

    @property
    def severity(self) -> Severity:
        """The severity."""
        if self.is_fatal:
            return Severity.FATAL
        return Severity.NOTE if self.repair_action is None else Severity.REPAIRABLE


# The data directory under check, its configuration, and the progress output.


# How much is read between two progress lines.
PROGRESS_STEP_BYTES = 256 << 20
BYTES_PER_KIB = 1024


@record(kw_only=True)
class FsckContext:
    """A data directory under check.

    Attributes:
        storage: the data directory.
        clock: the time for records that a repair writes.
        config: has the names of directories, and the key of encrypted data.
        print_line: prints a line.
        writes_survived: whether missing bytes cannot be explained by a power loss.
    """

    storage: Storage
    clock: Clock
    config: ServerConfig
    print_line: Callable[[str], None] = field(repr=False)
    writes_survived: bool = False

    @property
    def cipher(self) -> PayloadCipher | None:
        """The cipher of the metadata."""
        return cipher_of(self.config)

    @property
    def metadata_settings(self) -> MetadataSettings:
        """The defaults of topics, for metadata that are imported from Apache Iggy."""
        return metadata_settings(self.config)


class ReadProgress:
    """Prints the progress of reading messages."""

    def __init__(self, print_line: Callable[[str], None], partitions_count: int) -> None:
        self._print_line = print_line
        self._partitions_count = partitions_count
        self._number = 0
        self._size_bytes = self._read_bytes = self._reported_bytes = 0

    def start_partition(self, path: str, segments_count: int, size_bytes: int) -> None:
        """Start the next partition."""
        self._number += 1
        self._size_bytes, self._read_bytes, self._reported_bytes = size_bytes, 0, 0
        segments = "1 segment" if segments_count == 1 else f"{segments_count} segments"
        self._print_line(
            f"[{self._number}/{self._partitions_count}] {path}: {segments},"
            f" {rounded_size(size_bytes)}"
        )

    def advance(self, read_bytes: int) -> None:
        """Count bytes of the partition that were read."""
        self._read_bytes += read_bytes
        if self._read_bytes - self._reported_bytes >= PROGRESS_STEP_BYTES:
            self._reported_bytes = self._read_bytes
            self._print_line(
                f"    read {rounded_size(self._read_bytes)} of {rounded_size(self._size_bytes)}"
            )


def rounded_size(size_bytes: int) -> str:
    """Format a size, rounded."""
    if size_bytes < BYTES_PER_KIB:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= BYTES_PER_KIB
        if size < BYTES_PER_KIB:
            return f"{size:.1f} {unit}"
    return f"{size / BYTES_PER_KIB:.1f} TiB"
