"""Whether the machine has run ever since a server last used the data directory.

As long as it has, all that a server ever wrote is in its files, whether it was killed or not: the
system holds what is not on the disk yet. Only a restart of the machine, or a loss of power, can
take that away. So a hole in a file is damage in the one case, and may be explained in the other.

The number of the machine's present run is noted in the file ``.boot`` of the data directory when
all shards have opened their partitions. Where that is not known, a loss of power is assumed.

Owns that file.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["note_boot", "writes_survived"]

BOOT_NAME = ".boot"
BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def writes_survived(directory: Path, boot_id_path: Path = BOOT_ID_PATH) -> bool:
    """Tell whether nothing that was written can have been lost since the last server was ready."""
    try:
        noted = (directory / BOOT_NAME).read_text().strip()
        return bool(noted) and noted == boot_id_path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False


def note_boot(directory: Path, boot_id_path: Path = BOOT_ID_PATH) -> None:
    """Note in which run of the machine a server has opened the data directory."""
    # A disk that is full keeps nobody from starting: the next start knows less.
    with suppress(OSError):
        (directory / BOOT_NAME).write_text(boot_id_path.read_text())
