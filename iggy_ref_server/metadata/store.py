"""The one writer of metadata: plan, log, sync, apply, tell the listeners. In this order.

Owns the present state and the files under ``state/``. Knows neither commands nor permissions.
A replica starts from ``snapshot_bytes`` and follows with ``replay``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from iggy_protocol import record
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import Change, encode_change
from iggy_ref_server.metadata.frame import Seal, encode_frame
from iggy_ref_server.metadata.log import LOG_PATH, MetadataLog
from iggy_ref_server.metadata.reading import read_state
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, encode_snapshot
from iggy_ref_server.metadata.state import Metadata

if TYPE_CHECKING:
    from iggy_protocol import PayloadCipher
    from iggy_ref_server.clock import Clock
    from iggy_ref_server.storage.interface import Storage

__all__ = ["CompactionPolicy", "Listener", "MetadataStore"]

logger = logging.getLogger("iggy_ref_server.metadata")

STATE_DIRECTORY = "state"

C = TypeVar("C", bound="Change | None")

Listener = Callable[[bytes, Metadata], None]


@record(kw_only=True)
class CompactionPolicy:
    """When a snapshot is written and the log starts over: whichever comes first."""

    entries_max: int = 4096
    size_max_bytes: int = 16 << 20


class MetadataStore:
    """The metadata of a data directory.

    Attributes:
        current: everything that exists now; a new value after every change.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        log: MetadataLog,
        current: Metadata,
        seal: Seal | None,
        compaction: CompactionPolicy,
    ) -> None:
        self.current = current
        self._storage = storage
        self._clock = clock
        self._log = log
        self._seal = seal
        self._compaction = compaction
        self._compactions_failed = 0
        self._lock = trio.Lock()
        self._listeners: list[Listener] = []

    @classmethod
    async def open(
        cls,
        storage: Storage,
        clock: Clock,
        *,
        encryptor: PayloadCipher | None = None,
        compaction: CompactionPolicy | None = None,
    ) -> MetadataStore:
        """Read the snapshot and the changes after it.

        Raises:
            MetadataDamaged: a file is damaged other than by a torn tail, or one of the two is
                missing; nothing was changed.
            MetadataLocked: a file is encrypted, and not with this key.
            StorageError: a file cannot be read, or a torn tail not be cut off.
        """
        seal = None if encryptor is None else Seal(encryptor)
        await storage.make_directories(STATE_DIRECTORY)
        metadata, scan = read_state(
            await storage.read_file(SNAPSHOT_PATH), await storage.read_file(LOG_PATH), seal
        )
        log = await MetadataLog.open(storage, scan)
        # Also the names that a killed server left behind.
        for directory in (STATE_DIRECTORY, ""):
            await storage.sync_directory(directory)
        return cls(storage, clock, log, metadata, seal, compaction or CompactionPolicy())

    @property
    def is_new(self) -> bool:
        """Whether nothing ever happened here, so that a real server's state may be imported."""
        return self.current.version == 0

    async def change(self, plan: Callable[[Metadata], C]) -> C:
        """Make a change that is planned on the latest state.

        Changes are made one after another. When this returns, the change is on the disk, and
        ``current`` is the state right after it until the caller awaits something else. A change
        that has been planned is not abandoned when the caller is cancelled.

        Args:
            plan: returns the change, or None when there is nothing to do; may raise ServerFault.

        Returns:
            What was planned.

        Raises:
            ServerFault: by the plan, or because the change could not be saved. Nothing happened.
        """
        async with self._lock:
            planned = plan(self.current)
            if planned is not None:
                with trio.CancelScope(shield=True):
                    await self._commit(planned)
        return planned

    async def _commit(self, change: Change) -> None:
        # Everything that could go wrong goes wrong before the change is in the log.
        after, now_us = apply(self.current, change), self._clock.now_us()
        version = after.version
        payload = encode_change(change)
        entry = encode_frame(version, now_us, payload)
        await self._log.append(
            entry if self._seal is None else encode_frame(version, now_us, payload, self._seal)
        )
        self.current = after
        for listener in self._listeners:
            listener(entry, self.current)
        if self._log_is_long():
            await self._compact()

    def _log_is_long(self) -> bool:
        # After a failure the log may grow as much again, so that not every change tries anew.
        patience = 1 + self._compactions_failed
        return (
            self._log.entries_count >= self._compaction.entries_max * patience
            or self._log.size_bytes >= self._compaction.size_max_bytes * patience
        )

    async def adopt(self, metadata: Metadata) -> None:
        """Take over a whole state, all of it or none; only a new store does.

        Raises:
            StorageError: it could not be saved. Nothing happened.
        """
        async with self._lock:
            assert self.is_new, "metadata of its own is never replaced"
            with trio.CancelScope(shield=True):
                await self._save(metadata)
            self.current = metadata

    async def compact(self) -> None:
        """Write a snapshot, and let the log start over."""
        async with self._lock:
            with trio.CancelScope(shield=True):
                await self._compact()

    async def _save(self, metadata: Metadata) -> None:
        snapshot = encode_snapshot(metadata, self._clock.now_us(), self._seal)
        await self._storage.replace(SNAPSHOT_PATH, snapshot)

    async def _compact(self) -> None:
        # The changes are safe in the log, so a snapshot that fails costs nothing but space.
        try:
            await self._save(self.current)
            await self._log.clear()
            self._compactions_failed = 0
        except Exception as error:
            self._compactions_failed += 1
            logger.warning("no metadata snapshot was written, the log goes on: %s", error)

    def subscribe(self, listener: Listener) -> None:
        """Call a function after every change with its entry, for replicas, and the new state."""
        self._listeners.append(listener)

    def snapshot_bytes(self) -> bytes:
        """Return the present state for a replica that starts now; ``decode_snapshot`` reads it."""
        return encode_snapshot(self.current, self._clock.now_us())
