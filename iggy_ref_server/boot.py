"""Files of the data directory that belong to a run: the boot id, and the runtime directory.

The boot id tells whether the machine has rebooted since a server last used the data directory.
Without a reboot, everything that a server has written is in its files, even if the server was
killed: the page cache holds what is not on the disk yet. Only a reboot or a power loss can lose it.
So a hole in a file is damage in the first case and may be a lost write in the second.

The file ``.boot`` of the data directory holds the kernel's boot id. It is written when all shards
have opened their partitions. Where it is missing, a power loss is assumed.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["note_boot", "writes_survived"]

BOOT_NAME = ".boot"
BOOT_ID_PATH = Path("/proc/sys/kernel/random/boot_id")


def writes_survived(directory: Path, boot_id_path: Path = BOOT_ID_PATH) -> bool:
    """Return whether the machine has run without a reboot since the last server was ready."""
    try:
        noted = (directory / BOOT_NAME).read_text().strip()
        return bool(noted) and noted == boot_id_path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return False


def note_boot(directory: Path, boot_id_path: Path = BOOT_ID_PATH) -> None:
    """Write the kernel's boot id to the data directory."""
    # A full disk must not prevent a start; the next one then assumes a power loss.
    with suppress(OSError):
        (directory / BOOT_NAME).write_text(boot_id_path.read_text())
