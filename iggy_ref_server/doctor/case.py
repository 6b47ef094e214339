"""The data directory under check, its configuration, and the progress output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING

from iggy_protocol import record
from iggy_ref_server.clock import Clock
from iggy_ref_server.config import ServerConfig
from iggy_ref_server.shard.settings import cipher_of, metadata_settings
from iggy_ref_server.storage.interface import Storage

if TYPE_CHECKING:
    from iggy_protocol import PayloadCipher
    from iggy_ref_server.metadata.plan_context import MetadataSettings

__all__ = ["Case", "Progress", "size_text"]

# How much is read between two progress lines.
PROGRESS_STEP_BYTES = 256 << 20
KIBI = 1024


@record(kw_only=True)
class Case:
    """A data directory under check.

    Attributes:
        storage: the data directory.
        clock: the time for records that a repair writes.
        config: has the names of directories, and the key of encrypted data.
        say: prints a line.
        writes_survived: whether missing bytes cannot be explained by a power loss.
    """

    storage: Storage
    clock: Clock
    config: ServerConfig
    say: Callable[[str], None] = field(repr=False)
    writes_survived: bool = False

    @property
    def cipher(self) -> PayloadCipher | None:
        """The cipher of the metadata."""
        return cipher_of(self.config)

    @property
    def metadata_settings(self) -> MetadataSettings:
        """The defaults of topics, for metadata that are imported from Apache Iggy."""
        return metadata_settings(self.config)


class Progress:
    """Prints the progress of reading messages."""

    def __init__(self, say: Callable[[str], None], partitions_count: int) -> None:
        self._say = say
        self._partitions_count = partitions_count
        self._number = 0
        self._size_bytes = self._read_bytes = self._told_bytes = 0

    def begin(self, path: str, segments_count: int, size_bytes: int) -> None:
        """Start the next partition."""
        self._number += 1
        self._size_bytes, self._read_bytes, self._told_bytes = size_bytes, 0, 0
        segments = "1 segment" if segments_count == 1 else f"{segments_count} segments"
        self._say(
            f"[{self._number}/{self._partitions_count}] {path}: {segments}, {size_text(size_bytes)}"
        )

    def advance(self, read_bytes: int) -> None:
        """Count bytes of the partition that were read."""
        self._read_bytes += read_bytes
        if self._read_bytes - self._told_bytes >= PROGRESS_STEP_BYTES:
            self._told_bytes = self._read_bytes
            self._say(f"    read {size_text(self._read_bytes)} of {size_text(self._size_bytes)}")


def size_text(size_bytes: int) -> str:
    """Format a size, rounded."""
    if size_bytes < KIBI:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= KIBI
        if size < KIBI:
            return f"{size:.1f} {unit}"
    return f"{size / KIBI:.1f} TiB"
