"""An open file: the operations that never wait, common to all engines for real files.

All changes of the file hold its lock in the order of their calls, so that an inline write never
overtakes a write that waits.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iggy_ref_server.baton import Baton
from iggy_ref_server.storage.os_errors import storage_error
from iggy_ref_server.storage.residence import NOWAIT, is_resident
from iggy_ref_server.storage.vectors import total_size, write_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.storage.descriptors import Descriptor
    from iggy_ref_server.storage.gate import Gate
    from iggy_ref_server.storage.pressure import Pressure

__all__ = ["InlineFile"]


class InlineFile:
    """An open file of the page cache.

    Args:
        path: relative to the data directory.
        descriptor: the open file; it closes with the last reference to this object.
        gate: refuses once the storage is closed.
        pressure: says when to write inline; shared by all files of one disk.

    Attributes:
        turn: held by what changes the file in a way that may wait.
    """

    def __init__(self, path: str, descriptor: Descriptor, gate: Gate, pressure: Pressure) -> None:
        self.turn = Baton()
        self._path = path
        self._owner = descriptor
        self._gate = gate
        self._pressure = pressure

    @property
    def path(self) -> str:
        """Its name when it was opened, relative to the data directory."""
        return self._path

    @property
    def descriptor(self) -> int:
        """The number for ``sendfile``, valid while this object is referred to."""
        return self._owner.number

    def size(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self._owner.number).st_size

    def write_now(self, buffers: Sequence[Buffer], position: int) -> bool:
        """Write all buffers into the page cache, unless writeback is slow at the moment."""
        self._gate.check("write", self._path)
        if self.turn.is_held or not self._pressure.allows(total_size(buffers)):
            return False
        began_s = self._pressure.begin()
        try:
            write_all(self._owner.number, buffers, position)
        except OSError as error:
            raise storage_error("write", self._path, error) from error
        finally:
            self._pressure.end(began_s)
        return True

    def read_now(self, size: int, position: int) -> bytes | None:
        """Read from memory if all of it is there; None when a disk would have to be asked."""
        self._gate.check("read", self._path)
        size = self._size_inside(size, position)
        if not size:
            return b""
        if NOWAIT is None:
            return None
        target = bytearray(size)
        try:
            count = os.preadv(self._owner.number, [target], position, NOWAIT)
        except OSError:  # not in memory, not on this file system; `read` will find out
            return None
        return bytes(target) if count == size else None

    def is_cached(self, size: int, position: int) -> bool:
        """Tell whether these bytes can be sent without waiting for a disk."""
        inside = self._size_inside(size, position)
        return is_resident(self._owner.number, position, inside)

    def _size_inside(self, size: int, position: int) -> int:
        return max(0, min(size, self.size() - position))
