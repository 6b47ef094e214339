"""The frame format of changes and snapshots: a checksum, and encryption if there is a key.

A file starts with a header, frames follow back to back:

    head    0 magic, 8     8 format version, u8    9 zeros, 7
    frame   0 marker, 4    4 flags, u32            8 version, u64        16 timestamp us, u64
           24 payload length, u64                 32 checksum, u64       40 payload

The version of a frame is the number of the change, or of the last change in a snapshot. The
checksum is the XXH3 of all other bytes of the frame. Flag 1: the payload is encrypted with
AES-256-GCM.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable
from typing import NamedTuple

from iggy_protocol import DecryptionFailed, PayloadCipher, checksum, record
from iggy_ref_server.metadata.damage import MetadataDamaged, MetadataLocked

__all__ = [
    "FRAME_HEAD_SIZE",
    "HEAD_SIZE",
    "MARKER",
    "STORED_NAMES",
    "Frame",
    "Seal",
    "check_head",
    "encode_frame",
    "file_head",
    "open_payload",
    "read_frame",
]

FORMAT_VERSION = 1
HEAD_SIZE = 16
MARKER = b"\xf1igm"
SEALED = 1
NONCE_SIZE = 12

# Fields of changes and snapshots that have another name in files: those keep the first one.
STORED_NAMES = {
    "generation": "incarnation",
    "last_generation": "last_incarnation",
    "doubtful_generation": "doubtful_incarnation",
}

_FRAME_HEAD = struct.Struct("<4sIQQQ")
_CHECKSUM = struct.Struct("<Q")
FRAME_HEAD_SIZE = _FRAME_HEAD.size + _CHECKSUM.size


class Frame(NamedTuple):
    """A frame whose checksum holds."""

    version: int
    timestamp_us: int
    is_sealed: bool
    payload: bytes
    position: int

    @property
    def end(self) -> int:
        """Where the next frame starts."""
        return self.position + FRAME_HEAD_SIZE + len(self.payload)


@record
class Seal:
    """A key, and where fresh nonces come from."""

    cipher: PayloadCipher
    random_bytes: Callable[[int], bytes] = secrets.token_bytes

    def close(self, payload: bytes) -> bytes:
        """Encrypt a payload."""
        return self.cipher.seal(payload, nonce=self.random_bytes(NONCE_SIZE))


def file_head(magic: bytes) -> bytes:
    """Return the first bytes of a file of this kind."""
    return (magic + bytes([FORMAT_VERSION])).ljust(HEAD_SIZE, b"\0")


def check_head(data: bytes, magic: bytes, path: str) -> None:
    """Hold the first bytes of a file to its kind and to the versions that are known.

    Raises:
        MetadataDamaged: it is another kind of file, or of a newer server.
    """
    if data[: len(magic)] != magic or len(data) < HEAD_SIZE:
        raise MetadataDamaged(path, 0, "the file does not start with the expected header")
    if data[len(magic)] != FORMAT_VERSION:
        raise MetadataDamaged(
            path,
            len(magic),
            f"format version {data[len(magic)]} is unknown, a newer server wrote it",
        )


def encode_frame(
    version: int, timestamp_us: int, payload: bytes, seal: Seal | None = None
) -> bytes:
    """Write a frame."""
    content = payload if seal is None else seal.close(payload)
    flags = 0 if seal is None else SEALED
    head = _FRAME_HEAD.pack(MARKER, flags, version, timestamp_us, len(content))
    return head + _CHECKSUM.pack(checksum(head + content)) + content


def read_frame(data: bytes, position: int) -> Frame | None:
    """Read the frame at a position; None where there is no whole and undamaged one."""
    start = position + FRAME_HEAD_SIZE
    if start > len(data):
        return None
    marker, flags, version, timestamp_us, size = _FRAME_HEAD.unpack_from(data, position)
    if marker != MARKER or size > len(data) - start:
        return None
    head = data[position : position + _FRAME_HEAD.size]
    payload = data[start : start + size]
    if _CHECKSUM.unpack_from(data, position + _FRAME_HEAD.size)[0] != checksum(head + payload):
        return None
    return Frame(version, timestamp_us, bool(flags & SEALED), payload, position)


def open_payload(frame: Frame, seal: Seal | None, path: str) -> bytes:
    """Return what a frame carries.

    Raises:
        MetadataLocked: it is sealed, and there is no key or another one.
    """
    if not frame.is_sealed:
        return frame.payload
    if seal is None:
        raise MetadataLocked(
            path, frame.position, "the file is encrypted, and no key is configured"
        )
    try:
        return seal.cipher.open(frame.payload)
    except DecryptionFailed:
        raise MetadataLocked(
            path, frame.position, "the file was encrypted with another key"
        ) from None
