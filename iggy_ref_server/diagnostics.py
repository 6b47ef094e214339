"""The diagnostic snapshot: text files about the server and the machine, in a ZIP archive.

The process reads everything itself and starts no other program. Secrets of the configuration are
redacted. Runs in a worker thread, because it walks directories.
"""

from __future__ import annotations

import bz2
import logging
import lzma
import os
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import SnapshotCompression, SnapshotType, StatusCode
from iggy_ref_server.config.load import dump_config
from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iggy_ref_server.config.schema import ServerConfig


LOGGER = logging.getLogger(__name__)


FILES_LISTED_MAX = 10_000
LOG_TAIL_BYTES = 1 << 20
PROC = Path("/proc")


def _filesystem(config: ServerConfig) -> Iterator[str]:
    root = Path(config.system.path)
    listed = 0
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(directory) / name
            listed += 1
            if listed > FILES_LISTED_MAX:
                yield f"... more than {FILES_LISTED_MAX} files"
                return
            try:
                yield f"{path.stat().st_size:>14} {path.relative_to(root)}"
            except OSError:
                continue


def _processes(config: ServerConfig) -> Iterator[str]:
    for directory in sorted(PROC.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            name = (directory / "comm").read_text().strip()
            memory = int((directory / "statm").read_text().split()[1]) * resource.getpagesize()
        except OSError:
            continue
        yield f"{directory.name:>8} {memory:>14} {name}"


def _resources(config: ServerConfig) -> Iterator[str]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield f"user seconds       {usage.ru_utime:.3f}"
    yield f"system seconds     {usage.ru_stime:.3f}"
    yield f"resident KiB max   {usage.ru_maxrss}"
    yield f"load average       {os.getloadavg()}"
    for name in ("meminfo", "pressure/io", "pressure/memory", "pressure/cpu"):
        try:
            yield from (PROC / name).read_text().splitlines()
        except OSError:
            continue


def _test(config: ServerConfig) -> Iterator[str]:
    yield "test"


def _logs(config: ServerConfig) -> Iterator[str]:
    directory = Path(config.system.path) / config.system.logging.path
    for path in sorted(directory.glob("iggy-server.log*")):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            yield from file.read().decode(errors="replace").splitlines()


def _config(config: ServerConfig) -> Iterator[str]:
    yield from dump_config(config, show_secrets=False).splitlines()


PARTS: dict[SnapshotType, tuple[str, Callable[[ServerConfig], Iterator[str]]]] = {
    SnapshotType.FILESYSTEM_OVERVIEW: ("filesystem_overview.txt", _filesystem),
    SnapshotType.PROCESS_LIST: ("process_list.txt", _processes),
    SnapshotType.RESOURCE_USAGE: ("resource_usage.txt", _resources),
    SnapshotType.TEST: ("test.txt", _test),
    SnapshotType.SERVER_LOGS: ("server_logs.txt", _logs),
    SnapshotType.SERVER_CONFIG: ("server_config.txt", _config),
}


def make_snapshot(
    config: ServerConfig, types: tuple[SnapshotType, ...], compression: SnapshotCompression
) -> bytes:
    """Pack the requested parts, each once and in this order; unreadable parts are left out.

    Raises:
        ServerFault: the compression is not available on this server.
    """
    chosen = tuple(PARTS) if SnapshotType.ALL in types else types
    files = []
    for part in dict.fromkeys(chosen):
        name, write = PARTS[part]
        try:
            files.append((name, "\n".join(write(config)).encode() + b"\n"))
        except OSError as error:
            LOGGER.warning("left %s out of the snapshot, it cannot be read: %s", name, error)
    return pack_zip(files, compression)


# ZIP archives with every compression that the protocol knows.
#
# The standard library writes four of the six; XZ and Zstandard are in the ZIP specification too.
# The format for small files is short, so this module writes all six in one way.


LOCAL_HEAD = struct.Struct("<4sHHHHHIIIHH")
CENTRAL_HEAD = struct.Struct("<4sHHHHHHIIIHHHHHII")
END_RECORD = struct.Struct("<4sHHHHIIH")
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


def pack_zip(files: Sequence[tuple[str, bytes]], compression: SnapshotCompression) -> bytes:
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
    end = END_RECORD.pack(b"PK\x05\x06", 0, 0, count, count, len(directory), len(body), 0)
    return bytes(body + directory + end)
