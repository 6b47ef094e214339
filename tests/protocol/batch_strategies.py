"""Batches for tests: a plain builder that shares no code with the package, and strategies."""

from __future__ import annotations

import ctypes
import importlib
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from iggy_protocol import batch_python
from iggy_protocol.message_view import NewMessage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

GOLDEN = Path(__file__).parents[1] / "golden"
RAW_FILES = sorted(path.name for path in (GOLDEN / "raw").glob("*.jsonl"))
POLL_MESSAGES, SEND_MESSAGES = 100, 101

HEADER = struct.Struct("<Q16sQQQIIQ")
ENTRY = struct.Struct("<IIQ")
TWINS = ("c", "python")


def load_twin(name: str) -> ModuleType:
    """Bring one of the two implementations; skip the test where the extension is not built."""
    if name == "python":
        return batch_python
    try:
        return importlib.import_module("iggy_protocol._batch")
    except ImportError:
        pytest.skip("the C extension is not built")


def recorded(name: str) -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """Read a recording: line number, entry, payload of the request."""
    lines = (GOLDEN / "raw" / name).read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        entry = json.loads(line)
        if isinstance(entry.get("request"), str) and "patch" not in entry:
            yield number, entry, bytes.fromhex(entry["request"])[8:]


def make_message(
    payload: bytes = b"",
    *,
    id_number: int = 1,
    user_headers: bytes = b"",
    origin_us: int = 0,
    offset: int = 0,
    timestamp_us: int = 0,
    checksum: int = 0,
    payload_length: int | None = None,
    user_headers_length: int | None = None,
) -> bytes:
    """Write one message; the lengths can be made to lie."""
    return (
        HEADER.pack(
            checksum,
            id_number.to_bytes(16, "little"),
            offset,
            timestamp_us,
            origin_us,
            len(user_headers) if user_headers_length is None else user_headers_length,
            len(payload) if payload_length is None else payload_length,
            0,
        )
        + payload
        + user_headers
    )


def make_metadata(
    count: int,
    *,
    stream: bytes = b"\x02\x01s",
    topic: bytes = b"\x02\x01t",
    partitioning: bytes = b"\x02\x04\x00\x00\x00\x00",
    surplus: bytes = b"",
) -> bytes:
    """Write everything in front of the index table, its length included."""
    fields = stream + topic + partitioning + struct.pack("<I", count) + surplus
    return struct.pack("<I", len(fields)) + fields


def make_ends(messages: list[bytes]) -> list[int]:
    """Add up where each message ends."""
    return [sum(map(len, messages[: index + 1])) for index in range(len(messages))]


def make_body(
    messages: list[bytes],
    *,
    ends: list[int] | None = None,
    metadata: bytes | None = None,
    entries: bytes | None = None,
) -> bytes:
    """Write a SendMessages body; every part can be replaced by a bad one."""
    if entries is None:
        ends = make_ends(messages) if ends is None else ends
        entries = b"".join(ENTRY.pack(0, end, 0) for end in ends)
    head = make_metadata(len(messages)) if metadata is None else metadata
    return head + entries + b"".join(messages)


def exact(data: bytes) -> ctypes.Array[ctypes.c_char]:
    """Copy bytes to memory that ends where they end, unlike that of bytes and bytearrays.

    Whoever reads a single byte too far is then caught by a sanitizer.
    """
    return (ctypes.c_char * len(data)).from_buffer_copy(data)


def outcome(function: Any, *arguments: Any) -> tuple[str, Any]:
    """Call and tell what came of it, so that two implementations can be compared."""
    try:
        return "returned", function(*arguments)
    except (TypeError, OverflowError, ValueError, BufferError) as error:
        return "raised", type(error)


U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
U128 = st.integers(0, 2**128 - 1)

# Long enough to reach every branch of the checksum, short enough to stay quick.
PAYLOADS = st.one_of(st.binary(max_size=40), st.binary(max_size=1500))
USER_HEADERS = st.one_of(st.just(b""), st.binary(max_size=60))

NEW_MESSAGES = st.builds(
    NewMessage, PAYLOADS, st.one_of(st.just(0), U128), USER_HEADERS, st.none() | U64
)
BUFFERS = st.one_of(
    PAYLOADS,
    PAYLOADS.map(bytearray),
    PAYLOADS.map(lambda payload: memoryview(payload)),
    PAYLOADS.map(lambda payload: payload * 2),
)
ITEMS = st.one_of(PAYLOADS, BUFFERS, NEW_MESSAGES)

STORED_MESSAGES = st.builds(
    lambda payload, id_number, user_headers, offset, timestamp_us: make_message(
        payload,
        id_number=id_number,
        user_headers=user_headers,
        offset=offset,
        timestamp_us=timestamp_us,
    ),
    PAYLOADS,
    st.one_of(st.just(0), U128),
    USER_HEADERS,
    U64,
    U64,
)
MESSAGE_LISTS = st.lists(STORED_MESSAGES, max_size=6)

_TELLING = (0, 1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 100_000, 100_001, 64_000_000, 64_000_001)
TELLING_U32 = st.one_of(
    st.sampled_from((*_TELLING, 2**31 - 1, 2**31, 2**32 - 65, 2**32 - 64, 2**32 - 1)),
    st.integers(0, 300),
    U32,
)


@st.composite
def damaged(draw: st.DrawFn, original: bytes) -> bytes:
    """Change some bytes, preferably to numbers that matter, and perhaps cut or extend."""
    data = bytearray(original)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + 4] = struct.pack("<I", draw(TELLING_U32))[: len(data) - at]
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data) + draw(st.sampled_from((b"", b"", b"\x00", bytes(64), bytes(80))))


@st.composite
def hostile_bodies(draw: st.DrawFn) -> bytes:
    """Bodies that are nearly right: some parts lie about others."""
    messages = draw(MESSAGE_LISTS)
    ends = make_ends(messages)
    for index in range(len(ends)):
        if draw(st.integers(0, 5)) == 0:
            ends[index] = draw(st.sampled_from(ends) | TELLING_U32)
    count = draw(st.sampled_from([len(messages)] * 6 + [0, 1, 2, 2**32 - 1]))
    surplus = draw(st.sampled_from([b""] * 4 + [b"\x00", bytes(16)]))
    body = make_body(messages, ends=ends, metadata=make_metadata(count, surplus=surplus))
    return draw(st.just(body) | damaged(body))


@st.composite
def hostile_messages(draw: st.DrawFn) -> bytes:
    """Messages back to back, of which some may be broken or cut."""
    return draw(st.binary(max_size=200) | damaged(b"".join(draw(MESSAGE_LISTS))))


NOT_CONTIGUOUS = memoryview(bytes(64))[::2]
HOSTILE_ITEMS = st.one_of(
    ITEMS,
    st.sampled_from([1, None, "text", 1.5, NOT_CONTIGUOUS, (), (b"x",), (b"x", 1, b"", 1, 1)]),
    st.tuples(
        st.sampled_from([b"x", bytearray(b"y"), "text", 1, None, NOT_CONTIGUOUS]),
        st.sampled_from([0, 2**128 - 1, 2**128, -1, True, "1", 1.0, None]),
        st.sampled_from(
            [b"", b"h", memoryview(b"m"), "text", None, NOT_CONTIGUOUS, bytes(100_001)]
        ),
        st.sampled_from([None, 0, 2**64 - 1, 2**64, -1, "1", 1.0]),
    ),
)
