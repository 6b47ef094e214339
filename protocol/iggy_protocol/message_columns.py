"""Messages as columns, in pure Python: one array per field, as column stores want them.

A part of ``batch_python``; import from there. Value i of a variable column lies between its
bounds i and i + 1.
"""

from __future__ import annotations

import struct
from array import array
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol.message_view import HEADER, as_bytes_view, extents_of, header_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from iggy_protocol.layout import Buffer


_BOUND_BYTES = 4
_COLUMN_BYTES_MAX = 2**31 - 1  # bounds are signed numbers of 32 bits
KEY_OR_VALUE_HEAD = struct.Struct("<BI")
_KEY_OR_VALUE_BYTES_MAX = 255
# Bytes of each kind of header; 0 for those of any size. Kinds begin with 1.
KIND_BYTES = bytes([0, 0, 0, 1, 1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 4, 8])


class _Pair(NamedTuple):
    """One user header as it lies in its block."""

    key_kind: int
    key: memoryview
    value_kind: int
    value: memoryview


def columns(
    messages: Buffer, payloads: bool, user_headers: bool, /
) -> tuple[bytearray | None, ...]:
    """Copy the messages into one array per field; ValueError at a cut tail.

    Offsets, timestamps, origins, ids and checksums come first; then bounds and bytes of the
    payloads and of the user headers, or None where not requested. Numbers are in the
    order of this machine.
    """
    memory = as_bytes_view(messages)
    extents = list(extents_of(memory))
    headers = [header_at(memory, at) for at, _, _ in extents]
    bodies = [memory[at + HEADER.size : at + end] for at, end, _ in extents] if payloads else None
    blocks = [memory[at + end : at + size] for at, end, size in extents] if user_headers else None
    return (
        _numbers(header.offset for header in headers),
        _numbers(header.timestamp_us for header in headers),
        _numbers(header.origin_timestamp_us for header in headers),
        bytearray().join(header.id for header in headers),
        _numbers(header.checksum for header in headers),
        *_variable(bodies, "bytes of payloads"),
        *_variable(blocks, "bytes of user headers"),
    )


def header_pairs(bounds: Buffer, blocks: Buffer, /) -> tuple[bytearray, ...]:
    """Split blocks of user headers into columns of keys and values.

    Returns:
        Bounds of each message's pairs, and whether its block could be read; a block that cannot
        has no pairs. Then kinds, bounds and bytes of all keys, and the same of all values.
    """
    found: list[list[_Pair] | None] = [
        _pairs(block) for block in _bounded(bounds, as_bytes_view(blocks))
    ]
    pairs = [pair for block in found if block is not None for pair in block]
    return (
        _bounds_of((len(block or ()) for block in found), "pairs"),
        bytearray(block is not None for block in found),
        bytearray(pair.key_kind for pair in pairs),
        *_column([pair.key for pair in pairs], "bytes of header keys"),
        bytearray(pair.value_kind for pair in pairs),
        *_column([pair.value for pair in pairs], "bytes of header values"),
    )


def _numbers(values: Iterable[int]) -> bytearray:
    return bytearray(array("Q", values).tobytes())


def _variable(
    values: Sequence[memoryview] | None, what: str
) -> tuple[bytearray | None, bytearray | None]:
    return (None, None) if values is None else _column(values, what)


def _column(values: Sequence[memoryview], what: str) -> tuple[bytearray, bytearray]:
    return _bounds_of(map(len, values), what), bytearray().join(values)


def _bounds_of(sizes: Iterable[int], what: str) -> bytearray:
    bounds = list(accumulate(sizes, initial=0))
    if bounds[-1] > _COLUMN_BYTES_MAX:
        raise ValueError(f"{what} do not fit into one column: {bounds[-1]} of them")
    return bytearray(array("i", bounds).tobytes())


def _bounded(bounds: Buffer, memory: memoryview) -> Iterator[memoryview]:
    """Cut memory where bounds say."""
    raw = as_bytes_view(bounds)
    if len(raw) < _BOUND_BYTES or len(raw) % _BOUND_BYTES:
        raise ValueError("the bounds are not whole numbers of 32 bits")
    for index, (start, end) in enumerate(pairwise(array("i", raw.tobytes()))):
        if not 0 <= start <= end <= len(memory):
            raise ValueError(f"bounds {index} are not those of a block")
        yield memory[start:end]


def _pairs(block: memoryview) -> list[_Pair] | None:
    """Read the pairs of one block; None if the block is invalid."""
    pairs: list[_Pair] = []
    at = 0
    while at < len(block):
        key, value_at = _key_or_value_at(block, at)
        value, at = _key_or_value_at(block, value_at)
        if key is None or value is None:
            return None
        pairs.append(_Pair(*key, *value))
    return pairs


def _key_or_value_at(block: memoryview, at: int) -> tuple[tuple[int, memoryview] | None, int]:
    """Read a kind, a length and as many bytes; return them and their end."""
    start = at + KEY_OR_VALUE_HEAD.size
    if start > len(block):
        return None, start
    kind, size = KEY_OR_VALUE_HEAD.unpack_from(block, at)
    is_known = 0 < kind < len(KIND_BYTES) and 0 < size <= _KEY_OR_VALUE_BYTES_MAX
    if not is_known or KIND_BYTES[kind] not in (0, size) or start + size > len(block):
        return None, start
    return (kind, block[start : start + size]), start + size
