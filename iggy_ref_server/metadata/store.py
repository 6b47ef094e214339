"""The metadata store, the only writer: plan, log, sync, apply, call the listeners, in this order.

A replica starts from ``snapshot_bytes`` and follows with ``replay``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import trio

from iggy_protocol import PayloadCipher, record
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.apply import apply
from iggy_ref_server.metadata.changes import Change, encode_change
from iggy_ref_server.metadata.log import LOG_PATH, FrameCipher, MetadataLog, encode_frame
from iggy_ref_server.metadata.recovery import load_state
from iggy_ref_server.metadata.snapshot import SNAPSHOT_PATH, encode_snapshot
from iggy_ref_server.metadata.state import Metadata

if TYPE_CHECKING:
    from iggy_ref_server.clock import Clock
    from iggy_ref_server.storage.interface import Storage


LOGGER = logging.getLogger("iggy_ref_server.metadata")

STATE_DIRECTORY = "state"

C = TypeVar("C", bound="Change | None")

ChangeListener = Callable[[bytes, Metadata], None]

# At most so many changes share one sync.
GROUP_MAX = 64


class CommittedChange(NamedTuple, Generic[C]):
    """A change that was made, or None, and the version of the state that it led to or rests on."""

    change: C
    version: int


class _PlannedChange(NamedTuple):
    """A change that is planned and not yet saved: for replicas, for the file, and what follows."""

    entry: bytes
    stored: bytes
    after: Metadata


@dataclass(slots=True, eq=False)
class _PendingChange(Generic[C]):
    """A change that a task waits for."""

    plan: Callable[[Metadata], C]
    change: C | None = None
    version: int = 0
    error: Exception | None = None
    over: trio.Event = field(default_factory=trio.Event)


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
        frame_cipher: FrameCipher | None,
        compaction: CompactionPolicy,
    ) -> None:
        self.current = current
        self._storage = storage
        self._clock = clock
        self._log = log
        self._frame_cipher = frame_cipher
        self._compaction = compaction
        self._compactions_failed = 0
        self._lock = trio.Lock()
        self._requests: deque[_PendingChange[Any]] = deque()
        self._listeners: list[ChangeListener] = []

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
        frame_cipher = None if encryptor is None else FrameCipher(encryptor)
        await storage.make_directories(STATE_DIRECTORY)
        metadata, scan = load_state(
            await storage.read_file(SNAPSHOT_PATH), await storage.read_file(LOG_PATH), frame_cipher
        )
        log = await MetadataLog.open(storage, scan)
        # Also the names that a killed server left behind.
        for directory in (STATE_DIRECTORY, ""):
            await storage.sync_directory(directory)
        return cls(storage, clock, log, metadata, frame_cipher, compaction or CompactionPolicy())

    @property
    def is_new(self) -> bool:
        """Whether nothing ever happened here, so that the state of Apache Iggy may be imported."""
        return self.current.version == 0

    async def change(self, plan: Callable[[Metadata], C]) -> C:
        """Make a change that is planned on the latest state; as ``change_at``."""
        return (await self.change_at(plan)).change

    async def change_at(self, plan: Callable[[Metadata], C]) -> CommittedChange[C]:
        """Make a change that is planned on the latest state.

        Changes are planned and made one after another. Those that come while the disk is busy
        share its next write and its sync; where these fail, all of them are refused. When this
        returns, the change is on the disk and part of ``current``. A change that has been planned
        is not abandoned when the caller is cancelled, and nothing is awaited after its end.

        Args:
            plan: returns the change, or None when there is nothing to do; may raise ServerFault.

        Returns:
            What was planned, and the version of the state that it led to or rests on.

        Raises:
            ServerFault: by the plan, or because the change could not be saved. Nothing happened.
        """
        request: _PendingChange[C] = _PendingChange(plan)
        self._requests.append(request)
        try:
            async with self._lock:
                if not request.over.is_set():
                    with trio.CancelScope(shield=True):
                        await self._commit_group()
        except trio.Cancelled:
            if request in self._requests:
                self._requests.remove(request)
                raise
            # Another task is saving it already, so wait for the result. The cancellation stays
            # pending until the caller's next await.
            with trio.CancelScope(shield=True):
                await request.over.wait()
        if request.error is not None:
            raise request.error
        return CommittedChange(cast("C", request.change), request.version)

    async def _commit_group(self) -> None:
        """Plan all changes that wait, one on top of the other, and save them together."""
        count = min(len(self._requests), GROUP_MAX)
        group = [self._requests.popleft() for _ in range(count)]
        now_us, state = self._clock.now_us(), self.current
        steps: list[_PlannedChange] = []
        try:
            for request in group:
                step = self._plan(request, state, now_us)
                if step is not None:
                    steps.append(step)
                    state = step.after
            if steps:
                await self._save_group(group, steps)
        finally:
            for request in group:
                request.over.set()
        if steps and self._log_is_long():
            await self._compact()

    def _plan(
        self, request: _PendingChange[Any], state: Metadata, now_us: int
    ) -> _PlannedChange | None:
        """Plan one change. Everything that could go wrong goes wrong before it is in the log."""
        try:
            request.change = change = request.plan(state)
            request.version = state.version
            if change is None:
                return None
            after = apply(state, change)
            payload = encode_change(change)
            entry = encode_frame(after.version, now_us, payload)
            stored = (
                entry
                if self._frame_cipher is None
                else encode_frame(after.version, now_us, payload, self._frame_cipher)
            )
        except Exception as error:
            request.error = error
            request.version = state.version
            return None
        request.version = after.version
        return _PlannedChange(entry, stored, after)

    async def _save_group(
        self, group: list[_PendingChange[Any]], steps: list[_PlannedChange]
    ) -> None:
        before = self.current.version
        try:
            await self._log.append([step.stored for step in steps])
        except ServerFault as fault:
            # Also those who were refused because of a change that is not there now.
            for request in group:
                if request.version > before:
                    request.error = fault
            return
        for step in steps:
            self.current = step.after
            for listener in self._listeners:
                listener(step.entry, step.after)

    def _log_is_long(self) -> bool:
        # After a failure the log may grow as much again, so that not every change tries anew.
        allowance = 1 + self._compactions_failed
        return (
            self._log.entries_count >= self._compaction.entries_max * allowance
            or self._log.size_bytes >= self._compaction.size_max_bytes * allowance
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
        snapshot = encode_snapshot(metadata, self._clock.now_us(), self._frame_cipher)
        await self._storage.replace(SNAPSHOT_PATH, snapshot)

    async def _compact(self) -> None:
        # The changes are safe in the log, so a snapshot that fails costs nothing but space.
        try:
            await self._save(self.current)
            await self._log.clear()
            self._compactions_failed = 0
        except Exception as error:
            self._compactions_failed += 1
            LOGGER.warning(
                "the metadata snapshot was not written, the log keeps growing: %s", error
            )

    def subscribe(self, listener: ChangeListener) -> None:
        """Call a function after every change with its entry, for replicas, and the new state."""
        self._listeners.append(listener)

    def snapshot_bytes(self) -> bytes:
        """Return the present state for a replica that starts now; ``decode_snapshot`` reads it."""
        return encode_snapshot(self.current, self._clock.now_us())
