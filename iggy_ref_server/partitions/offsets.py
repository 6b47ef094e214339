"""Stored offsets: one small file for each consumer and each group that reads a partition.

    offsets/consumers/<id>      8 bytes, the offset of the last message that was processed
    offsets/groups/<id>

A file is created whole and then changed in place, eight bytes at once. An offset is written only
after its message: the offset of a message in memory is deferred until that is written. An invalid
file is ignored with a warning. A file that differs from the checkpoint of a clean stop is restored.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
import trio

from iggy_protocol import ConsumerKind
from iggy_ref_server.handoff_lock import HandoffLock
from iggy_ref_server.partitions.reservation import checksum_line
from iggy_ref_server.partitions.steps import AcquireLock, AwaitShielded, Steps, WriteFile
from iggy_ref_server.segments.recovery import SALVAGE_PATH
from iggy_ref_server.storage.interface import (
    DirectoryEntry,
    File,
    Storage,
    StorageError,
    parent_path,
)

if TYPE_CHECKING:
    from collections.abc import Hashable


LOGGER = logging.getLogger(__name__)


# The checkpoint of a partition's stored offsets, written by a clean stop.
#
# The offset files have eight bytes each, as in Apache Iggy, and no checksum: one flipped bit makes
# a consumer miss messages. So a clean stop writes all offsets to one file with a checksum, and the
# next start compares the offset files with it. The checkpoint is removed before an offset changes.
#
#     {"consumers": {"1": 20}, "groups": {}}
#     5f0c2a9be1d34c77
#
# On disk the file is named ``offsets.noted``.


OFFSET_CHECKPOINT_FILE = "offsets.noted"
OFFSET_CHECKPOINT_BYTES_MAX = 64 << 20

OffsetCheckpoint: TypeAlias = "dict[str, dict[str, int]]"
"""Offsets by the names of their folders and files."""


async def read_offset_checkpoint(storage: Storage, directory: str) -> OffsetCheckpoint | None:
    """Read the note; None where there is none, or where it cannot be believed.

    Raises:
        StorageError: it cannot be read.
    """
    path = f"{directory}/{OFFSET_CHECKPOINT_FILE}"
    content = await storage.read_file(path, size_max=OFFSET_CHECKPOINT_BYTES_MAX)
    if content is None:
        return None
    text, _, check = content.partition(b"\n")
    if check == checksum_line(text, directory):
        return msgspec.json.decode(text, type=dict[str, dict[str, int]])
    LOGGER.warning("ignored %s: the checksum does not match", path)
    return None


async def write_offset_checkpoint(
    storage: Storage, directory: str, checkpoint: OffsetCheckpoint
) -> None:
    """Note all offsets.

    Raises:
        StorageError: they are not noted.
    """
    text = msgspec.json.encode(checkpoint)
    await storage.replace(
        f"{directory}/{OFFSET_CHECKPOINT_FILE}", text + b"\n" + checksum_line(text, directory)
    )


async def remove_offset_checkpoint(storage: Storage, directory: str) -> None:
    """Have the note gone, for good.

    Raises:
        StorageError: it may still be there.
    """
    await storage.remove(f"{directory}/{OFFSET_CHECKPOINT_FILE}")
    await storage.sync_directory(directory)


OFFSET = Struct("<Q")
ID_MAX = 2**32 - 1
FOLDERS = {ConsumerKind.SINGLE: "consumers", ConsumerKind.GROUP: "groups"}

# The most messages that a power loss may lose of one partition: the kernel writes dirty pages back
# within half a minute. A stored offset further beyond the last message is damage, such as a
# flipped bit.
LOST_MESSAGES_MAX = 1 << 20

# Consumers come and go; those that commit often stay among these.
FILES_OPEN_MAX = 16


class OffsetKey(NamedTuple):
    """Whose offset it is: a consumer's or a group's."""

    kind: ConsumerKind
    id: int


class OffsetTable:
    """The stored offsets of one partition.

    Args:
        storage: where the files lie.
        directory: the partition's directory.
        syncs: whether a store is done only when the disk has it.

    Attributes:
        lock: held while files change in a way that may wait.
    """

    def __init__(self, storage: Storage, directory: str, *, syncs: bool) -> None:
        self._storage = storage
        self._partition = directory
        self._directory = f"{directory}/offsets"
        self._has_checkpoint = False
        self._syncs = syncs
        self._offsets: dict[OffsetKey, int] = {}
        self._on_disk: set[OffsetKey] = set()
        self._deferred: set[OffsetKey] = set()
        self._files: dict[OffsetKey, File] = {}  # least recently written first
        self._used: set[OffsetKey] = set()  # since the open file budget asked last
        self._generation = 0
        self.lock = HandoffLock()

    async def make_directories(self) -> None:
        """Make the folders.

        Raises:
            StorageError: they cannot be made.
        """
        for folder in FOLDERS.values():
            await self._storage.make_directories(f"{self._directory}/{folder}")

    async def load(
        self, last_offset: int | None, next_offset: int = 0, *, is_loss_possible: bool = True
    ) -> None:
        """Read all files.

        Args:
            last_offset: the partition's highest offset; None where no message was ever stored, and
                then no stored offset counts.
            next_offset: what the next message gets; all below was given once.
            is_loss_possible: whether messages may be lost whose offsets were stored. Then, and
                where an offset was given once, one beyond the last message is taken as the last.
                Otherwise, and where it is too far beyond, it is damage, and its consumer starts
                over rather than miss messages.

        Raises:
            StorageError: a folder or file cannot be read.
        """
        checkpoint = await read_offset_checkpoint(self._storage, self._partition)
        self._has_checkpoint = checkpoint is not None
        for kind, folder in FOLDERS.items():
            checkpointed = {} if checkpoint is None else checkpoint.get(folder, {})
            found: dict[str, int] = {}
            for entry in await self._storage.entries(f"{self._directory}/{folder}"):
                offset = await self._read(f"{self._directory}/{folder}", entry)
                if offset is not None:
                    found[entry.name] = offset
            await self._restore(folder, found, checkpointed)
            for name, stored in found.items():
                path = f"{self._directory}/{folder}/{name}"
                is_wrong = last_offset is None or is_impossible_offset(
                    stored, last_offset, next_offset, is_loss_possible=is_loss_possible
                )
                offset = None if is_wrong or last_offset is None else min(stored, last_offset)
                if offset != stored:
                    await self._correct(path, stored, offset)
                if offset is not None:
                    key = OffsetKey(kind, int(name))
                    self._offsets[key] = offset
                    self._on_disk.add(key)

    async def _correct(self, path: str, stored: int, offset: int | None) -> None:
        """Correct or remove an offset file, so that a wrong offset is not valid again later."""
        try:
            await self._remove_checkpoint()
            if offset is not None:
                LOGGER.warning(
                    "lowered the stored offset in %s from %d to %d: messages behind %d are lost",
                    path,
                    stored,
                    offset,
                    offset,
                )
                await self._storage.replace(path, OFFSET.pack(offset))
                return
            LOGGER.error(
                "ignored the stored offset in %s: it is %d, and there is no such message; the"
                " consumer starts from the beginning, and the file is moved to %s",
                path,
                stored,
                SALVAGE_PATH,
            )
            await self._storage.make_directories(parent_path(f"{SALVAGE_PATH}/{path}"))
            await self._storage.rename(path, f"{SALVAGE_PATH}/{path}")
        except StorageError as error:
            LOGGER.warning("%s is corrected at the next start: %s", path, error)

    async def _restore(
        self, folder: str, found: dict[str, int], checkpointed: dict[str, int]
    ) -> None:
        """Put right what is not as it was noted at the last stop."""
        for name, offset in checkpointed.items():
            if found.get(name) == offset:
                continue
            path = f"{self._directory}/{folder}/{name}"
            LOGGER.error(
                "%s is damaged and was restored: it held %s, the checkpoint of the last stop %d",
                path,
                found.get(name, "nothing"),
                offset,
            )
            try:
                await self._storage.replace(path, OFFSET.pack(offset))
            except StorageError as error:
                LOGGER.warning("%s is corrected at the next start: %s", path, error)
            found[name] = offset

    async def checkpoint(self) -> None:
        """Note all offsets that are in their files, when nothing will change any more.

        An error does not stop the shutdown: the next start cannot verify the offset files then.
        """
        async with self.lock:
            if self._has_checkpoint or not self._on_disk:
                return
            checkpoint: OffsetCheckpoint = {folder: {} for folder in FOLDERS.values()}
            for key in self._on_disk - self._deferred:
                checkpoint[FOLDERS[key.kind]][str(key.id)] = self._offsets[key]
            try:
                await write_offset_checkpoint(self._storage, self._partition, checkpoint)
            except StorageError as error:
                LOGGER.warning("no checkpoint of the stored offsets was written: %s", error)

    async def _remove_checkpoint(self) -> None:
        """Have the note gone before anything changes; the lock is held."""
        if self._has_checkpoint:
            await remove_offset_checkpoint(self._storage, self._partition)
            self._has_checkpoint = False

    async def _read(self, folder: str, entry: DirectoryEntry) -> int | None:
        path = f"{folder}/{entry.name}"
        is_number = entry.name.isascii() and entry.name.isdigit()
        if entry.is_directory or not is_number or str(int(entry.name)) != entry.name:
            LOGGER.warning("ignored %s: the file name is not the id of a consumer", path)
            return None
        if int(entry.name) > ID_MAX or entry.size_bytes != OFFSET.size:
            LOGGER.warning("ignored %s: the file does not hold the offset of a consumer", path)
            return None
        content = await self._storage.read_file(path)
        return OFFSET.unpack(content)[0] if content is not None else None

    def get(self, key: OffsetKey) -> int | None:
        """Return a stored offset, None when there is none."""
        return self._offsets.get(key)

    @property
    def deferred_count(self) -> int:
        """How many stored offsets are in memory only."""
        return len(self._deferred)

    def group_ids(self) -> list[int]:
        """List the groups that have an offset."""
        return [key.id for key in self._offsets if key.kind is ConsumerKind.GROUP]

    def lowest(self) -> int | None:
        """Return the smallest stored offset, None when there is none."""
        return min(self._offsets.values(), default=None)

    def store(self, key: OffsetKey, offset: int, *, is_written: bool) -> Steps[None]:
        """Store an offset.

        Args:
            key: whose it is.
            offset: what to store.
            is_written: whether the message it speaks of is in its file.

        Raises:
            StorageError: the old one stays.
        """
        generation = self._generation
        if not self.lock.acquire_nowait():
            yield AcquireLock(self.lock)
        try:
            if generation != self._generation:
                return  # the message is gone, and with it all offsets of that time
            if is_written:
                yield from self._write(key, offset)
            self._set(key, offset, is_written=is_written)
        finally:
            self.lock.release()

    def save_deferred(self, next_written: int) -> Steps[None]:
        """Write the offsets that were kept back and whose messages are written by now.

        Args:
            next_written: the offset behind the last written message.

        Raises:
            StorageError: some of them are still kept back.
        """
        if not self._deferred:
            return
        if not self.lock.acquire_nowait():
            yield AcquireLock(self.lock)
        try:
            for key in sorted(self._deferred):
                offset = self._offsets[key]
                if offset < next_written:
                    yield from self._write(key, offset)
                    self._set(key, offset, is_written=True)
        finally:
            self.lock.release()

    async def delete(self, key: OffsetKey) -> bool:
        """Delete a stored offset; tell whether there was one.

        Raises:
            StorageError: the offset stays.
        """
        async with self.lock:
            if key not in self._offsets:
                return False
            if key in self._on_disk:
                with trio.CancelScope(shield=True):
                    await self._remove_checkpoint()
                    await self._storage.remove(self._path(key))
                    await self._storage.sync_directory(f"{self._directory}/{FOLDERS[key.kind]}")
            del self._offsets[key]
            self._on_disk.discard(key)
            self._deferred.discard(key)
            self._close(key)
            return True

    def clear(self) -> None:
        """Forget all offsets; the lock is held, and the caller removes the files."""
        self._generation += 1
        self._offsets.clear()
        self._on_disk.clear()
        self._deferred.clear()
        self._has_checkpoint = False
        self.close()

    def close(self) -> None:
        """Let go of all files."""
        for key in tuple(self._files):
            self._close(key)

    def _close(self, key: OffsetKey) -> None:
        self._storage.open_files.forget(self, key)
        self.close_item(key)

    # ---- what the budget of open files asks

    def is_idle(self, item: Hashable) -> bool:
        """Tell whether an offset was not stored since the last time."""
        assert isinstance(item, OffsetKey)
        is_idle = item not in self._used
        self._used.discard(item)
        return is_idle

    def close_item(self, item: Hashable) -> None:
        """Keep the file of an offset open no longer."""
        assert isinstance(item, OffsetKey)
        self._files.pop(item, None)
        self._used.discard(item)

    # ---- files

    def _write(self, key: OffsetKey, offset: int) -> Steps[None]:
        """Write an offset to its file, which may have to be made; the lock is held."""
        content = OFFSET.pack(offset)
        if self._has_checkpoint:
            yield AwaitShielded(self._remove_checkpoint)
        if key not in self._on_disk:
            yield AwaitShielded(self._create_file, key, content)
            return
        if key not in self._files:
            yield AwaitShielded(self._open_file, key)
        file = self._files[key] = self._files.pop(key)  # the last one is the one used last
        try:
            yield WriteFile(file, (content,), 0, sync=self._syncs)
        except StorageError:
            self._close(key)
            raise

    async def _create_file(self, key: OffsetKey, content: bytes) -> None:
        await self._storage.replace(self._path(key), content)
        self._on_disk.add(key)
        await self._open_file(key)

    async def _open_file(self, key: OffsetKey) -> None:
        self._files[key] = await self._storage.open(self._path(key))
        self._storage.open_files.keep(self, key, 1)
        while len(self._files) > FILES_OPEN_MAX:
            self._close(next(iter(self._files)))

    def _set(self, key: OffsetKey, offset: int, *, is_written: bool) -> None:
        self._offsets[key] = offset
        self._used.add(key)
        if is_written:
            self._deferred.discard(key)
        else:
            self._deferred.add(key)

    def _path(self, key: OffsetKey) -> str:
        return f"{self._directory}/{FOLDERS[key.kind]}/{key.id}"


def is_impossible_offset(
    offset: int, last_offset: int, next_offset: int, *, is_loss_possible: bool
) -> bool:
    """Tell whether no consumer can have stored an offset, so that its file is damaged.

    Args:
        offset: what the file says.
        last_offset: the partition's highest offset.
        next_offset: what the next message gets; all below was given once.
        is_loss_possible: whether messages may be lost whose offsets were stored.
    """
    if offset <= last_offset or offset < next_offset:
        return False
    return not is_loss_possible or offset - last_offset > LOST_MESSAGES_MAX
