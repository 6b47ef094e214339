"""The metadata log ``state/metadata.log``: every change is written and synced before it applies."""

from __future__ import annotations

import logging
import secrets
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import DecryptionFailed, PayloadCipher, StatusCode, checksum, record
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.errors import MetadataDamaged, MetadataKeyMismatch
from iggy_ref_server.storage.interface import DiskFull, File, Storage, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


LOGGER = logging.getLogger("iggy_ref_server.metadata")


# The frame format of changes and snapshots: a checksum, and encryption if there is a key.
#
# A file starts with a header, frames follow back to back:
#
#     head    0 magic, 8     8 format version, u8    9 zeros, 7
#     frame   0 marker, 4    4 flags, u32            8 version, u64        16 timestamp us, u64
#            24 payload length, u64                 32 checksum, u64       40 payload
#
# The version of a frame is the number of the change, or of the last change in a snapshot. The
# checksum is the XXH3 of all other bytes of the frame. Flag 1: the payload is encrypted with
# AES-256-GCM.


FORMAT_VERSION = 1
HEADER_SIZE = 16
MARKER = b"\xf1igm"
ENCRYPTED = 1
NONCE_SIZE = 12

# Fields of changes and snapshots that have another name in files: those keep the first one.
STORED_NAMES = {
    "generation": "incarnation",
    "last_generation": "last_incarnation",
    "doubtful_generation": "doubtful_incarnation",
}

_FRAME_HEADER = struct.Struct("<4sIQQQ")
_CHECKSUM = struct.Struct("<Q")
FRAME_HEADER_SIZE = _FRAME_HEADER.size + _CHECKSUM.size


class Frame(NamedTuple):
    """A frame whose checksum holds."""

    version: int
    timestamp_us: int
    is_encrypted: bool
    payload: bytes
    position: int

    @property
    def end(self) -> int:
        """Where the next frame starts."""
        return self.position + FRAME_HEADER_SIZE + len(self.payload)


@record
class FrameCipher:
    """A key, and where fresh nonces come from."""

    cipher: PayloadCipher
    random_bytes: Callable[[int], bytes] = secrets.token_bytes

    def close(self, payload: bytes) -> bytes:
        """Encrypt a payload."""
        return self.cipher.seal(payload, nonce=self.random_bytes(NONCE_SIZE))


def file_header(magic: bytes) -> bytes:
    """Return the first bytes of a file of this kind."""
    return (magic + bytes([FORMAT_VERSION])).ljust(HEADER_SIZE, b"\0")


def check_header(data: bytes, magic: bytes, path: str) -> None:
    """Hold the first bytes of a file to its kind and to the versions that are known.

    Raises:
        MetadataDamaged: it is another kind of file, or of a newer server.
    """
    if data[: len(magic)] != magic or len(data) < HEADER_SIZE:
        raise MetadataDamaged(path, 0, "the file does not start with the expected header")
    if data[len(magic)] != FORMAT_VERSION:
        raise MetadataDamaged(
            path,
            len(magic),
            f"format version {data[len(magic)]} is unknown, a newer server wrote it",
        )


def encode_frame(
    version: int, timestamp_us: int, payload: bytes, seal: FrameCipher | None = None
) -> bytes:
    """Write a frame."""
    content = payload if seal is None else seal.close(payload)
    flags = 0 if seal is None else ENCRYPTED
    head = _FRAME_HEADER.pack(MARKER, flags, version, timestamp_us, len(content))
    return head + _CHECKSUM.pack(checksum(head + content)) + content


def read_frame(data: bytes, position: int) -> Frame | None:
    """Read the frame at a position; None where there is no whole and undamaged one."""
    start = position + FRAME_HEADER_SIZE
    if start > len(data):
        return None
    marker, flags, version, timestamp_us, size = _FRAME_HEADER.unpack_from(data, position)
    if marker != MARKER or size > len(data) - start:
        return None
    head = data[position : position + _FRAME_HEADER.size]
    payload = data[start : start + size]
    if _CHECKSUM.unpack_from(data, position + _FRAME_HEADER.size)[0] != checksum(head + payload):
        return None
    return Frame(version, timestamp_us, bool(flags & ENCRYPTED), payload, position)


def decrypt_payload(frame: Frame, seal: FrameCipher | None, path: str) -> bytes:
    """Return what a frame carries.

    Raises:
        MetadataKeyMismatch: it is sealed, and there is no key or another one.
    """
    if not frame.is_encrypted:
        return frame.payload
    if seal is None:
        raise MetadataKeyMismatch(
            path, frame.position, "the file is encrypted, and no key is configured"
        )
    try:
        return seal.cipher.open(frame.payload)
    except DecryptionFailed:
        raise MetadataKeyMismatch(
            path, frame.position, "the file was encrypted with another key"
        ) from None


# Scans a metadata log: which frames are intact, and whether the tail is torn or damaged.
#
# A torn tail held a change that was never acknowledged. A tail is torn when no intact frame of a
# later version follows it. Anything else is damage and never skipped silently.


@record
class MetadataLogScan:
    """What a log holds.

    Attributes:
        frames: the good ones; versions ascend by one.
        end: where the last good one ends.
        torn_size: how many bytes behind it belong to no change.
    """

    frames: tuple[Frame, ...]
    end: int
    torn_size: int


def intact_frames(data: bytes, start: int) -> Iterator[Frame]:
    """Find every good frame from a position on, stepping over whatever lies between them."""
    position = start
    while 0 <= position < len(data):
        frame = read_frame(data, position)
        if frame is not None:
            yield frame
            position = frame.end
        else:
            position = data.find(MARKER, position + 1)


def scan_log(data: bytes, path: str, known_version: int = 0) -> MetadataLogScan:
    """Read a whole log behind its head.

    Args:
        data: the file.
        path: its name, for people.
        known_version: changes up to this one may be missing, because a snapshot holds them.

    Raises:
        MetadataDamaged: a change is damaged or missing, and later ones are there.
    """
    frames: list[Frame] = []
    end = HEADER_SIZE
    while (frame := read_frame(data, end)) is not None:
        if frames and frame.version != frames[-1].version + 1:
            break
        frames.append(frame)
        end = frame.end
    last = max(known_version, frames[-1].version if frames else 0)
    for frame in intact_frames(data, end):
        # Older ones are what is left of a log that a snapshot made superfluous.
        if frame.version > last:
            raise MetadataDamaged(
                path, end, f"change {last + 1} is damaged, but change {frame.version} follows"
            )
    return MetadataLogScan(tuple(frames), end, len(data) - end)


LOG_PATH = "state/metadata.log"
LOG_MAGIC = b"iggymeta"
# Thousands of deletes and purges; a few blocks of any disk.
RESERVE_BYTES = 256 << 10


def _status_of(error: Exception) -> StatusCode:
    if isinstance(error, DiskFull):
        return StatusCode.CANNOT_WRITE_TO_FILE
    if isinstance(error, StorageError) and error.action == "sync":
        return StatusCode.CANNOT_SYNC_FILE
    return StatusCode.CANNOT_APPEND_TO_FILE


class MetadataLog:
    """An open log.

    Attributes:
        entries_count: how many changes it holds.
        size_bytes: where the next one goes.
    """

    def __init__(self, file: File, size_bytes: int, entries_count: int) -> None:
        self._file = file
        self._refusal = ""
        self._is_dirty = False
        self._reserved_bytes = 0
        self.size_bytes = size_bytes
        self.entries_count = entries_count

    @classmethod
    async def open(cls, storage: Storage, scan: MetadataLogScan | None) -> MetadataLog:
        """Open the log, making one where there is none; a torn tail is cut off.

        Args:
            storage: the data directory.
            scan: what was found in the log; None where there is none.

        Raises:
            StorageError: it cannot be opened, or not be cut.
        """
        if scan is None:
            # All of it or none: a log without its whole head has lost what it held.
            await storage.replace(LOG_PATH, file_header(LOG_MAGIC))
            scan = MetadataLogScan((), HEADER_SIZE, 0)
        file = await storage.open(LOG_PATH)
        if scan.torn_size:
            LOGGER.warning(
                "%s: truncated the last %d bytes: an incomplete change that was never acknowledged",
                LOG_PATH,
                scan.torn_size,
            )
            await file.truncate(scan.end)
        # A killed server may have left changes that are written but not synced. Clients see them
        # from now on, so they must not get lost any more.
        await file.sync()
        log = cls(file, scan.end, len(scan.frames))
        await log._reserve()
        return log

    async def _reserve(self) -> None:
        """Preallocate space, so that deletes can be logged when the disk is full."""
        if self._reserved_bytes - self.size_bytes >= RESERVE_BYTES // 2:
            return
        wanted = self.size_bytes + RESERVE_BYTES
        try:
            await self._file.preallocate(wanted)
        except Exception as error:
            # Preallocation is optional: the changes before are already made.
            LOGGER.debug("no disk space was preallocated for %s: %s", LOG_PATH, error)
        else:
            self._reserved_bytes = wanted

    async def append(self, frames: Sequence[bytes]) -> None:
        """Write changes and bring them to the disk, all together.

        Raises:
            ServerFault: none is there; the log is as it was, or takes no more changes.
        """
        if self._is_dirty:
            await self._roll_back()
        if self._refusal:
            raise ServerFault(StatusCode.CANNOT_APPEND_TO_FILE, self._refusal)
        try:
            await self._file.write(frames, self.size_bytes, sync=True)
        except Exception as error:
            # Not only disks fail: a process that is given no thread cannot write either.
            LOGGER.error("%s: a metadata change was not written: %s", LOG_PATH, error)
            await self._roll_back()
            raise ServerFault(
                _status_of(error), f"the change could not be saved: {error}"
            ) from error
        self.size_bytes += sum(map(len, frames))
        self.entries_count += len(frames)
        await self._reserve()

    async def _roll_back(self) -> None:
        self._is_dirty, self._refusal = True, ""
        try:
            await self._file.truncate(self.size_bytes)
            self._reserved_bytes = 0
            await self._file.sync()
            self._is_dirty = False
        except Exception as error:
            # A sync that failed once may well succeed the next time, without having done anything.
            is_over = isinstance(error, StorageError) and error.action == "sync"
            self._is_dirty = not is_over
            until = "until the server is restarted" if is_over else "until that succeeds"
            self._refusal = (
                f"metadata changes are refused {until}: {LOG_PATH} could not be truncated after a"
                f" failed write: {error}"
            )
            LOGGER.critical("%s", self._refusal)

    async def clear(self) -> None:
        """Start over, because a snapshot holds all that is in here.

        Raises:
            StorageError: some or all of it may still be there, which does no harm.
        """
        try:
            await self._file.truncate(HEADER_SIZE)
            self._reserved_bytes = 0
            await self._file.sync()
        finally:
            if self._file.size() == HEADER_SIZE:
                self.size_bytes = HEADER_SIZE
                self.entries_count = 0
