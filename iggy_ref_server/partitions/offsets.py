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
from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import ConsumerKind
from iggy_ref_server.partitions.offset_note import read_note, remove_note, write_note
from iggy_ref_server.segments.salvage import KEPT_PATH
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.paths import parent

if TYPE_CHECKING:
    from collections.abc import Hashable

    from iggy_ref_server.partitions.offset_note import OffsetNote
    from iggy_ref_server.storage.interface import Entry, File, Storage

__all__ = ["OffsetKey", "OffsetTable", "is_impossible"]

_logger = logging.getLogger(__name__)

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
        self._is_noted = False
        self._syncs = syncs
        self._offsets: dict[OffsetKey, int] = {}
        self._present: set[OffsetKey] = set()
        self._kept_back: set[OffsetKey] = set()
        self._files: dict[OffsetKey, File] = {}  # least recently written first
        self._used: set[OffsetKey] = set()  # since the open file budget asked last
        self._life = 0
        self.lock = trio.Lock()

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
        note = await read_note(self._storage, self._partition)
        self._is_noted = note is not None
        for kind, folder in FOLDERS.items():
            noted = {} if note is None else note.get(folder, {})
            found: dict[str, int] = {}
            for entry in await self._storage.entries(f"{self._directory}/{folder}"):
                offset = await self._read(f"{self._directory}/{folder}", entry)
                if offset is not None:
                    found[entry.name] = offset
            await self._restore(folder, found, noted)
            for name, stored in found.items():
                path = f"{self._directory}/{folder}/{name}"
                is_wrong = last_offset is None or is_impossible(
                    stored, last_offset, next_offset, is_loss_possible=is_loss_possible
                )
                offset = None if is_wrong or last_offset is None else min(stored, last_offset)
                if offset != stored:
                    await self._correct(path, stored, offset)
                if offset is not None:
                    key = OffsetKey(kind, int(name))
                    self._offsets[key] = offset
                    self._present.add(key)

    async def _correct(self, path: str, stored: int, offset: int | None) -> None:
        """Correct or remove an offset file, so that a wrong offset is not valid again later."""
        try:
            await self._forget_note()
            if offset is not None:
                _logger.warning(
                    "lowered the stored offset in %s from %d to %d: messages behind %d are lost",
                    path,
                    stored,
                    offset,
                    offset,
                )
                await self._storage.replace(path, OFFSET.pack(offset))
                return
            _logger.error(
                "ignored the stored offset in %s: it is %d, and there is no such message; the"
                " consumer starts from the beginning, and the file is moved to %s",
                path,
                stored,
                KEPT_PATH,
            )
            await self._storage.make_directories(parent(f"{KEPT_PATH}/{path}"))
            await self._storage.rename(path, f"{KEPT_PATH}/{path}")
        except StorageError as error:
            _logger.warning("%s is corrected at the next start: %s", path, error)

    async def _restore(self, folder: str, found: dict[str, int], noted: dict[str, int]) -> None:
        """Put right what is not as it was noted at the last stop."""
        for name, offset in noted.items():
            if found.get(name) == offset:
                continue
            path = f"{self._directory}/{folder}/{name}"
            _logger.error(
                "%s is damaged and was restored: it held %s, the checkpoint of the last stop %d",
                path,
                found.get(name, "nothing"),
                offset,
            )
            try:
                await self._storage.replace(path, OFFSET.pack(offset))
            except StorageError as error:
                _logger.warning("%s is corrected at the next start: %s", path, error)
            found[name] = offset

    async def note(self) -> None:
        """Note all offsets that are in their files, when nothing will change any more.

        An error does not stop the shutdown: the next start cannot verify the offset files then.
        """
        async with self.lock:
            if self._is_noted or not self._present:
                return
            note: OffsetNote = {folder: {} for folder in FOLDERS.values()}
            for key in self._present - self._kept_back:
                note[FOLDERS[key.kind]][str(key.id)] = self._offsets[key]
            try:
                await write_note(self._storage, self._partition, note)
            except StorageError as error:
                _logger.warning("no checkpoint of the stored offsets was written: %s", error)

    async def _forget_note(self) -> None:
        """Have the note gone before anything changes; the lock is held."""
        if self._is_noted:
            await remove_note(self._storage, self._partition)
            self._is_noted = False

    async def _read(self, folder: str, entry: Entry) -> int | None:
        path = f"{folder}/{entry.name}"
        is_number = entry.name.isascii() and entry.name.isdigit()
        if entry.is_directory or not is_number or str(int(entry.name)) != entry.name:
            _logger.warning("ignored %s: the file name is not the id of a consumer", path)
            return None
        if int(entry.name) > ID_MAX or entry.size_bytes != OFFSET.size:
            _logger.warning("ignored %s: the file does not hold the offset of a consumer", path)
            return None
        content = await self._storage.read_file(path)
        return OFFSET.unpack(content)[0] if content is not None else None

    def get(self, key: OffsetKey) -> int | None:
        """Return a stored offset, None when there is none."""
        return self._offsets.get(key)

    @property
    def kept_back_count(self) -> int:
        """How many stored offsets are in memory only."""
        return len(self._kept_back)

    def group_ids(self) -> list[int]:
        """List the groups that have an offset."""
        return [key.id for key in self._offsets if key.kind is ConsumerKind.GROUP]

    def lowest(self) -> int | None:
        """Return the smallest stored offset, None when there is none."""
        return min(self._offsets.values(), default=None)

    def store_now(self, key: OffsetKey, offset: int, *, is_written: bool) -> bool:
        """Store an offset without waiting; False when ``store`` shall be awaited.

        Args:
            key: whose it is.
            offset: what to store.
            is_written: whether the message it speaks of is in its file.

        Raises:
            StorageError: the old one stays.
        """
        if self.lock.locked():
            return False
        if is_written:
            file = self._files.get(key)
            if file is None or self._syncs or not file.write_now([OFFSET.pack(offset)], 0):
                return False
        self._set(key, offset, is_written=is_written)
        return True

    async def store(self, key: OffsetKey, offset: int, *, is_written: bool) -> None:
        """Store an offset.

        Args:
            key: whose it is.
            offset: what to store.
            is_written: whether the message it speaks of is in its file.

        Raises:
            StorageError: the old one stays.
        """
        life = self._life
        async with self.lock:
            if life != self._life:
                return  # the message is gone, and with it all offsets of that time
            if is_written:
                await self._write(key, offset)
            self._set(key, offset, is_written=is_written)

    async def save_kept_back(self, next_written: int) -> None:
        """Write the offsets that were kept back and whose messages are written by now.

        Args:
            next_written: the offset behind the last written message.

        Raises:
            StorageError: some of them are still kept back.
        """
        if not self._kept_back:
            return
        async with self.lock:
            for key in sorted(self._kept_back):
                offset = self._offsets[key]
                if offset < next_written:
                    await self._write(key, offset)
                    self._set(key, offset, is_written=True)

    async def delete(self, key: OffsetKey) -> bool:
        """Delete a stored offset; tell whether there was one.

        Raises:
            StorageError: the offset stays.
        """
        async with self.lock:
            if key not in self._offsets:
                return False
            if key in self._present:
                with trio.CancelScope(shield=True):
                    await self._forget_note()
                    await self._storage.remove(self._path(key))
                    await self._storage.sync_directory(f"{self._directory}/{FOLDERS[key.kind]}")
            del self._offsets[key]
            self._present.discard(key)
            self._kept_back.discard(key)
            self._close(key)
            return True

    def clear(self) -> None:
        """Forget all offsets; the lock is held, and the caller removes the files."""
        self._life += 1
        self._offsets.clear()
        self._present.clear()
        self._kept_back.clear()
        self._is_noted = False
        self.close()

    def close(self) -> None:
        """Let go of all files."""
        for key in tuple(self._files):
            self._close(key)

    def _close(self, key: OffsetKey) -> None:
        self._storage.open_files.forget(self, key)
        self.let_go(key)

    # ---- what the budget of open files asks

    def is_idle(self, item: Hashable) -> bool:
        """Tell whether an offset was not stored since the last time."""
        assert isinstance(item, OffsetKey)
        is_idle = item not in self._used
        self._used.discard(item)
        return is_idle

    def let_go(self, item: Hashable) -> None:
        """Keep the file of an offset open no longer."""
        assert isinstance(item, OffsetKey)
        self._files.pop(item, None)
        self._used.discard(item)

    # ---- files

    async def _write(self, key: OffsetKey, offset: int) -> None:
        """Write an offset to its file, which may have to be made."""
        with trio.CancelScope(shield=True):
            await self._forget_note()
            self._files[key] = await self._write_file(key, OFFSET.pack(offset))
        self._storage.open_files.keep(self, key, 1)
        while len(self._files) > FILES_OPEN_MAX:
            self._close(next(iter(self._files)))

    async def _write_file(self, key: OffsetKey, content: bytes) -> File:
        path = self._path(key)
        if key not in self._present:
            await self._storage.replace(path, content)
            self._present.add(key)
            return await self._storage.open(path)
        file = self._files.pop(key, None) or await self._storage.open(path)
        await file.write([content], 0, sync=self._syncs)
        return file

    def _set(self, key: OffsetKey, offset: int, *, is_written: bool) -> None:
        self._offsets[key] = offset
        self._used.add(key)
        if is_written:
            self._kept_back.discard(key)
        else:
            self._kept_back.add(key)

    def _path(self, key: OffsetKey) -> str:
        return f"{self._directory}/{FOLDERS[key.kind]}/{key.id}"


def is_impossible(
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
