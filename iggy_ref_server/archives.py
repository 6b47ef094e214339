"""ZIP archives with every compression that the protocol knows.

The standard library writes four of the six; XZ and Zstandard are in the ZIP specification too. The
format for small files is short, so this module writes all six in one way.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import SnapshotCompression, StatusCode
from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["pack"]

LOCAL_HEAD = struct.Struct("<4sHHHHHIIIHH")
CENTRAL_HEAD = struct.Struct("<4sHHHHHHIIIHHHHHII")
END = struct.Struct("<4sHHHHIIH")
VERSION_NEEDED, VERSION_MADE_BY = 63, 3 << 8 | 63
UTF8_NAMES, END_MARKER = 1 << 11, 1 << 1
MIDNIGHT_1980 = 0x21
LZMA_FILTER = {"id": lzma.FILTER_LZMA1, "dict_size": 1 << 20}


def _deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def _lzma(data: bytes) -> bytes:
    properties = lzma._encode_filter_properties(LZMA_FILTER)  # type: ignore[attr-defined]
    head = struct.pack("<BBH", 9, 4, len(properties)) + properties
    packed: bytes = head + lzma.compress(data, format=lzma.FORMAT_RAW, filters=[LZMA_FILTER])
    return packed


def _zstandard(data: bytes) -> bytes:
    try:
        import cramjam
    except ImportError:
        raise ServerFault(
            StatusCode.FEATURE_UNAVAILABLE, "Zstandard needs the extra 'compression' on the server"
        ) from None
    return bytes(cramjam.zstd.compress(data))


class _Method(NamedTuple):
    """A compression: its number in the ZIP specification and its function."""

    number: int
    compress: Callable[[bytes], bytes]


METHODS = {
    SnapshotCompression.STORED: _Method(0, bytes),
    SnapshotCompression.DEFLATED: _Method(8, _deflate),
    SnapshotCompression.BZIP2: _Method(12, bz2.compress),
    SnapshotCompression.LZMA: _Method(14, _lzma),
    SnapshotCompression.ZSTD: _Method(93, _zstandard),
    SnapshotCompression.XZ: _Method(95, lzma.compress),
}


def pack(files: Sequence[tuple[str, bytes]], compression: SnapshotCompression) -> bytes:
    """Make an archive of small files.

    Raises:
        ServerFault: the compression is not available on this server.
    """
    method = METHODS[compression]
    flags = UTF8_NAMES | (END_MARKER if compression is SnapshotCompression.LZMA else 0)
    body, directory = bytearray(), bytearray()
    for name, content in files:
        packed, encoded = method.compress(content), name.encode()
        facts = (
            *(flags, method.number, 0, MIDNIGHT_1980),
            *(zlib.crc32(content), len(packed), len(content), len(encoded), 0),
        )
        directory += CENTRAL_HEAD.pack(
            b"PK\x01\x02", VERSION_MADE_BY, VERSION_NEEDED, *facts, 0, 0, 0, 0, len(body)
        )
        directory += encoded
        body += LOCAL_HEAD.pack(b"PK\x03\x04", VERSION_NEEDED, *facts) + encoded + packed
    count = len(files)
    end = END.pack(b"PK\x05\x06", 0, 0, count, count, len(directory), len(body), 0)
    return bytes(body + directory + end)
