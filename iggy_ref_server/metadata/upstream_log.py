"""Reads the state log of Apache Iggy 0.8, entry by entry.

    0 index, u64           8 term, u64         16 leader, u32      20 server version, u32
    24 flags, u64         32 timestamp us, u64 40 user id, u32     44 checksum, u64
    52 context length, u32, context            then code, u32, command length, u32, command

The checksum is the XXH3 of all other bytes, with the decrypted command and its length.
"""

from __future__ import annotations

import logging
import struct

from iggy_protocol import DecryptionFailed, PayloadCipher, checksum, record
from iggy_ref_server.metadata.errors import MetadataError, MetadataKeyMismatch

LOGGER = logging.getLogger("iggy_ref_server.metadata")

UPSTREAM_LOG_PATH = "state/log"

_HEAD = struct.Struct("<QQIIQQIQI")
_CHECKSUM = slice(44, 52)
_COMMAND_HEAD = struct.Struct("<II")

# The start of an entry, whose term and leader are always 0.
_START = struct.Struct("<QQI")

# Apache Iggy numbers its first two entries irregularly and does not check them either.
UNCHECKED_INDEXES = 2

# How many entries in a row may be unreadable before damage is taken for the end of the log.
UNREADABLE_ENTRIES_MAX = 64


class ImportRefused(MetadataError):
    """The state log of Apache Iggy is damaged, so it is not imported."""

    advice = (
        "nothing was changed. Restore the file from a backup, or start Apache Iggy on it once;"
        " without it, the server would start empty"
    )


@record
class UpstreamEntry:
    """One command that Apache Iggy has executed."""

    position: int
    index: int
    timestamp_us: int
    user_id: int
    code: int
    command: bytes


def _extent(data: bytes, position: int) -> tuple[int, int] | None:
    """Find where the command of an entry starts and ends; None where the file ends before it."""
    if position + _HEAD.size > len(data):
        return None
    context_size: int = _HEAD.unpack_from(data, position)[-1]
    start = position + _HEAD.size + context_size + _COMMAND_HEAD.size
    if start > len(data):
        return None
    end = start + _COMMAND_HEAD.unpack_from(data, start - _COMMAND_HEAD.size)[1]
    return (start, end) if end <= len(data) else None


def _decrypted(command: bytes, cipher: PayloadCipher | None, position: int) -> bytes:
    if cipher is None:
        return command
    try:
        return cipher.open(command)
    except DecryptionFailed as error:
        raise MetadataKeyMismatch(UPSTREAM_LOG_PATH, position, error.message) from None


def _read_entry(
    data: bytes, position: int, start: int, end: int, cipher: PayloadCipher | None
) -> UpstreamEntry:
    index, _, _, _, _, timestamp_us, user_id, expected, _ = _HEAD.unpack_from(data, position)
    head = data[position : start - _COMMAND_HEAD.size]
    code, _ = _COMMAND_HEAD.unpack_from(data, start - _COMMAND_HEAD.size)
    command = _decrypted(data[start:end], cipher, position)
    covered = head[: _CHECKSUM.start] + head[_CHECKSUM.stop :]
    if checksum(covered + _COMMAND_HEAD.pack(code, len(command)) + command) != expected:
        hint = "" if cipher else " (or it is encrypted, and no key is configured)"
        raise ImportRefused(
            UPSTREAM_LOG_PATH, position, f"entry {index} does not match its checksum{hint}"
        )
    return UpstreamEntry(position, index, timestamp_us, user_id, code, command)


def _find_later(
    data: bytes, position: int, index: int, cipher: PayloadCipher | None
) -> UpstreamEntry | None:
    """Find a good entry behind one that cannot be read, which would have had this index."""
    for later in range(index + 1, index + 1 + UNREADABLE_ENTRIES_MAX):
        start = data.find(_START.pack(later, 0, 0), position + 1)
        extent = None if start < 0 else _extent(data, start)
        if extent is not None:
            try:
                return _read_entry(data, start, *extent, cipher)
            except MetadataError:
                continue
    return None


def _skip_torn_tail(data: bytes, position: int, index: int, cipher: PayloadCipher | None) -> None:
    later = _find_later(data, position, index, cipher)
    if later is not None:
        raise ImportRefused(
            UPSTREAM_LOG_PATH,
            position,
            f"entry {index} is damaged, but entry {later.index} follows",
        )
    LOGGER.warning(
        "%s: ignored an incomplete entry at its end (%d bytes)",
        UPSTREAM_LOG_PATH,
        len(data) - position,
    )


def read_upstream_log(data: bytes, cipher: PayloadCipher | None = None) -> list[UpstreamEntry]:
    """Read all entries; one that is cut by the end of the file is left out with a warning.

    Raises:
        ImportRefused: an entry is damaged, or one is missing.
        MetadataKeyMismatch: the entries are encrypted with another key.
    """
    entries: list[UpstreamEntry] = []
    position = 0
    while position < len(data):
        extent = _extent(data, position)
        if extent is None:
            _skip_torn_tail(data, position, entries[-1].index + 1 if entries else 0, cipher)
            break
        entry = _read_entry(data, position, *extent, cipher)
        if len(entries) >= UNCHECKED_INDEXES and entry.index != entries[-1].index + 1:
            raise ImportRefused(
                UPSTREAM_LOG_PATH,
                position,
                f"entry {entry.index} follows entry {entries[-1].index}",
            )
        entries.append(entry)
        position = extent[1]
    return entries
