"""Compressing payloads on the client, marked by the header ``content-encoding``.

``gzip`` needs nothing; ``zstd`` and ``lz4`` (frames) need the extra ``compression``. Sending is off
unless a producer enables it; reading follows the header of each message.
"""

from __future__ import annotations

import gzip
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from iggy_protocol import Buffer, record
from iggy_sdk.errors import ConfigurationError, SerdeError
from iggy_sdk.option_checks import check_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


CONTENT_ENCODING: Final = "content-encoding"
"""The key of the header that names how a payload is compressed."""

CompressionName: TypeAlias = Literal["gzip", "zstd", "lz4"]

UNPACKED_BYTES_MAX: Final = 256 << 20
"""The decompressed size limit: four times the largest payload on the wire, so that a decompression
bomb cannot exhaust the memory."""

_FIRST_GUESS_BYTES: Final = 64 << 10
_GROWTH: Final = 8

_GZIP_WITH_HEADER: Final = 31
"""zlib's way of saying that a gzip header is expected."""


@record
class Compression:
    """How a producer compresses.

    Attributes:
        name: the algorithm.
        threshold: payloads of fewer bytes are left as they are.
        level: how hard to try; None takes the usual level of the algorithm.
    """

    name: CompressionName = "gzip"
    threshold: int = 1024
    level: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.name != "gzip":
            _library(self.name)

    def compress(self, payload: Buffer) -> bytes | None:
        """Compress a payload; None when it is small or does not get smaller."""
        size = memoryview(payload).nbytes
        if size < self.threshold:
            return None
        packed = _PACKERS[self.name](payload, self.level)
        return packed if len(packed) < size else None


def decompress(payload: bytes, *, encoding: str) -> bytes:
    """Undo a compression.

    Args:
        payload: what was received.
        encoding: the value of the header.

    Raises:
        SerdeError: the encoding is not known, or the payload is not of it, or too large.
    """
    if encoding not in _UNPACKERS:
        raise SerdeError(
            f"the content-encoding {encoding!r} is not known",
            advice="Read message.payload and decode it yourself.",
        )
    try:
        return _UNPACKERS[encoding](payload)
    except (ConfigurationError, ValueError, zlib.error, EOFError) as error:
        raise SerdeError(f"the payload is not valid {encoding}: {error}") from error


def _pack_gzip(payload: Buffer, level: int | None) -> bytes:
    # With mtime=0 equal payloads compress to equal bytes.
    return gzip.compress(payload, 6 if level is None else level, mtime=0)


def _pack_zstd(payload: Buffer, level: int | None) -> bytes:
    return bytes(_library("zstd").compress(payload, level))


def _pack_lz4(payload: Buffer, level: int | None) -> bytes:
    return bytes(_library("lz4").compress(payload, level))


def _unpack_gzip(payload: bytes) -> bytes:
    parts, left = [], UNPACKED_BYTES_MAX
    rest = payload
    while rest:
        member = zlib.decompressobj(wbits=_GZIP_WITH_HEADER)
        parts.append(member.decompress(rest, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise ValueError(f"it unpacks to more than {UNPACKED_BYTES_MAX} bytes")
        if not member.eof:
            raise EOFError("it ends too early")
        rest = member.unused_data
    return b"".join(parts)


def _unpack_framed(name: str) -> Callable[[bytes], bytes]:
    def unpack(payload: bytes) -> bytes:
        """Unpack into a buffer that grows until it is large enough, or as large as may be."""
        library = _library(name)
        size = max(_FIRST_GUESS_BYTES, _GROWTH * len(payload))
        while True:
            space = bytearray(min(size, UNPACKED_BYTES_MAX))
            try:
                return bytes(memoryview(space)[: library.decompress_into(payload, space)])
            except _framed_error() as error:
                # The library raises the same error for damage and for a buffer that is too small.
                if len(space) == UNPACKED_BYTES_MAX:
                    raise ValueError(str(error)) from error
            size *= _GROWTH

    return unpack


def _library(name: str) -> Any:
    try:
        return getattr(import_module("cramjam"), name)
    except ModuleNotFoundError:
        raise ConfigurationError(
            f"{name} needs the package cramjam",
            advice="Install it with pip install 'iggy-python[compression]'.",
        ) from None


def _framed_error() -> type[Exception]:
    error: type[Exception] = import_module("cramjam").DecompressionError
    return error


_PACKERS: Final[Mapping[str, Callable[[Buffer, int | None], bytes]]] = {
    "gzip": _pack_gzip,
    "zstd": _pack_zstd,
    "lz4": _pack_lz4,
}
_UNPACKERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "gzip": _unpack_gzip,
    "zstd": _unpack_framed("zstd"),
    "lz4": _unpack_framed("lz4"),
}
