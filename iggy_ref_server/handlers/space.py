"""The check of free disk space before partitions are created."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from iggy_ref_server.handlers.office import Office

__all__ = ["require_space"]

# An empty partition: four directories and a file of a few bytes, a block each.
PARTITION_BYTES = 5 * 4096


async def require_space(office: Office, partitions_count: int) -> None:
    """Refuse partitions that the disk cannot hold even while they are empty.

    Raises:
        ServerFault: there is too little space.
    """
    try:
        free_bytes, _ = await office.host.storage.free_bytes()
    except StorageError:  # unknown: creation is retried until it succeeds
        return
    wanted_bytes = partitions_count * PARTITION_BYTES
    if free_bytes < wanted_bytes:
        raise ServerFault(
            StatusCode.CANNOT_WRITE_TO_FILE,
            f"{partitions_count} empty partitions need {wanted_bytes} bytes, and {free_bytes} are"
            " free on the disk",
        )
