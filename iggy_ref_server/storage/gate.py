"""Coordinates storage operations: counts those in flight, so that closing can wait for them."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from iggy_ref_server.storage.interface import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Gate"]


class Gate:
    """Admits operations while it is open, and knows when the last one has ended."""

    __slots__ = ("_emptied", "_inside_count", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        self._inside_count = 0
        self._emptied = trio.Event()

    def check(self, action: str, path: str) -> None:
        """Refuse when the gate is shut.

        Raises:
            StorageError: with errno EBADF.
        """
        if not self.is_open:
            raise StorageError(action, path, "the storage is closed", errno=errno.EBADF)

    @contextmanager
    def passing(self, action: str, path: str) -> Iterator[None]:
        """Count one operation as under way.

        Raises:
            StorageError: the gate is shut.
        """
        self.enter(action, path)
        try:
            yield
        finally:
            self.leave()

    def enter(self, action: str, path: str) -> None:
        """Begin an operation that ends with ``leave``, in whatever task.

        Raises:
            StorageError: the gate is shut.
        """
        self.check(action, path)
        self._inside_count += 1

    def leave(self) -> None:
        """End an operation."""
        self._inside_count -= 1
        if not self._inside_count and not self.is_open:
            self._emptied.set()

    def shut(self) -> None:
        """Refuse new operations, without waiting for those in flight."""
        self.is_open = False

    async def close(self) -> None:
        """Refuse new operations, and wait for those in flight even when cancelled."""
        self.shut()
        with trio.CancelScope(shield=True):
            if self._inside_count:
                await self._emptied.wait()
        await trio.lowlevel.checkpoint()
