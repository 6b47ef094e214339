"""Batches of 0.9 for tests: a plain builder without code of the package, and strategies."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from iggy_protocol.batch_vsr import ProducerSequence
from tests.protocol.batch_strategies import (
    PAYLOADS,
    U64,
    U128,
    USER_HEADERS,
    damaged,
    make_message,
    make_metadata,
)

HEAD = struct.Struct("<QQQQQQI")
FRAME_HEADER = struct.Struct("<16sIIIIQ")
SECTION = struct.Struct("<B3xQH2xI")

# Computed by hand and accepted by official clients or by the official codec.
RECORD = bytes.fromhex(
    "2bb4996eb2c39e88 05000000000000000000000000000000 0700000000000000 d007000000000000"
    "e803000000000000 00000000 05000000 0000000000000000 68656c6c6f"
)
FRAME = bytes.fromhex(
    "27c5156055233ad8 05000000000000000000000000000000 00000000 00000000 00000000 05000000"
    "0000000000000000 68656c6c6f"
)
SECOND_RECORD = bytes.fromhex(
    "3a57f539d1817d1f 06000000000000000000000000000000 0800000000000000 d007000000000000"
    "e204000000000000 0c000000 03000000 0000000000000000 616263 02010000006b020100000076"
)
SECOND_FRAME = bytes.fromhex(
    "1eb12def5d33d7c1 06000000000000000000000000000000 01000000 fa000000 0c000000 03000000"
    "0000000000000000 616263 02010000006b020100000076"
)
BATCH_OF_BOTH = bytes.fromhex(
    "0300000000000000 0700000000000000 d007000000000000 e803000000000000 7401000000000000"
    "1409487ddc6a589e 02000000"
)
PRODUCER = ProducerSequence(4097, 0, 17)


def make_frame(
    payload: bytes = b"",
    *,
    id_number: int = 1,
    user_headers: bytes = b"",
    offset_delta: int = 0,
    origin_delta: int = 0,
    reserved: int = 0,
    checksum: int | None = None,
    payload_length: int | None = None,
    user_headers_length: int | None = None,
) -> bytes:
    """Write one frame; the lengths and the checksum can be made to lie."""
    rest = (
        FRAME_HEADER.pack(
            id_number.to_bytes(16, "little"),
            offset_delta,
            origin_delta,
            len(user_headers) if user_headers_length is None else user_headers_length,
            len(payload) if payload_length is None else payload_length,
            reserved,
        )
        + payload
        + user_headers
    )
    return struct.pack("<Q", xxh3_64_intdigest(rest) if checksum is None else checksum) + rest


def make_batch(
    frames: list[bytes],
    *,
    partition_id: int = 0,
    base_offset: int = 0,
    timestamp_us: int = 0,
    origin_us: int = 0,
    count: int | None = None,
    length: int | None = None,
    checksum: int | None = None,
    producer: tuple[int, int, int] | None = None,
    tail: bytes | None = None,
) -> bytes:
    """Write a batch; every field can be replaced by a bad one."""
    blob = b"".join(frames)
    size = 256 + len(blob) if length is None else length
    number = len(frames) if count is None else count
    section = bytes(20) if producer is None else SECTION.pack(1, *producer)
    fields = (partition_id, base_offset, timestamp_us, origin_us, size)
    sealed = struct.pack("<QQQQQI", *fields, number)
    if producer is not None:
        sealed += struct.pack("<BQHI", 1, *producer)
    sealed += b"".join(frame[:8] for frame in frames)
    right = xxh3_64_intdigest(sealed) if checksum is None else checksum
    return (
        HEAD.pack(*fields, right, number) + (section + bytes(184) if tail is None else tail) + blob
    )


def make_send(frames: list[bytes], *, metadata: bytes | None = None, **batch: Any) -> bytes:
    """Write the body of a send."""
    head = make_metadata(len(frames)) if metadata is None else metadata
    return head + make_batch(frames, **batch)


def make_stored(payload: bytes = b"", **fields: Any) -> bytes:
    """Write one stored message with its checksum."""
    message = make_message(payload, **fields)
    return struct.pack("<Q", xxh3_64_intdigest(message[8:])) + message[8:]


class Content(NamedTuple):
    """What a message says, in either form."""

    payload: bytes
    id_number: int
    user_headers: bytes
    origin_delta: int


CONTENTS = st.builds(
    Content, PAYLOADS, U128, USER_HEADERS, st.sampled_from([0, 1, 2**32 - 1]) | st.integers(0, 9)
)
CONTENT_LISTS = st.lists(CONTENTS, min_size=1, max_size=5)
ORIGINS = st.integers(0, 2**64 - 2**32)
PRODUCERS = st.none() | st.tuples(
    st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)
)


def frames_of(contents: list[Content], first_delta: int = 0) -> list[bytes]:
    """Write the frames of a batch."""
    return [
        make_frame(
            content.payload,
            id_number=content.id_number,
            user_headers=content.user_headers,
            offset_delta=index,
            origin_delta=content.origin_delta,
        )
        for index, content in enumerate(contents, start=first_delta)
    ]


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    """Bodies of sends that are right in every respect."""
    return make_send(
        frames_of(draw(CONTENT_LISTS)), origin_us=draw(ORIGINS), producer=draw(PRODUCERS)
    )


@st.composite
def hostile_sends(draw: st.DrawFn) -> bytes:
    """Bodies that are nearly right: some parts lie about others."""
    lies = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "count": st.integers(0, 6),
                "length": st.integers(0, 2000) | U64,
                "checksum": U64,
                "origin_us": U64,
                "base_offset": U64,
                "tail": st.binary(min_size=204, max_size=204),
            },
        )
    )
    frames = frames_of(draw(st.lists(CONTENTS, max_size=3)), draw(st.sampled_from([0, 0, 0, 1])))
    body = make_send(frames, metadata=make_metadata(draw(st.integers(0, 3))), **lies)
    return draw(st.just(body) | damaged(body) | damaged(draw(sends())))


@st.composite
def polled(draw: st.DrawFn) -> bytes:
    """Batches of a poll, slices of stored ones among them."""
    return b"".join(
        make_batch(
            frames_of(contents, draw(st.sampled_from([0, 0, 3]))),
            partition_id=draw(U64),
            base_offset=draw(st.integers(0, 2**64 - 10)),
            timestamp_us=draw(U64),
            origin_us=draw(ORIGINS),
            producer=draw(PRODUCERS),
        )
        for contents in draw(st.lists(st.lists(CONTENTS, max_size=3), max_size=3))
    )


@st.composite
def hostile_polled(draw: st.DrawFn) -> bytes:
    """Batches of a poll, of which some may be broken or cut."""
    return draw(st.binary(max_size=400) | damaged(draw(polled())))


# Few different times, so that runs form, and gaps that end them.
_STORED_TIMES = st.sampled_from([5, 5, 5, 6, 2**64 - 1])
_STORED_ORIGINS = st.sampled_from([0, 1, 7, 2**32 - 1, 2**32, 2**64 - 1])
_STORED_OFFSETS = st.sampled_from([0, 1, 1, 1, 2, 2**32 - 1, 2**32])


@st.composite
def stored(draw: st.DrawFn) -> list[bytes]:
    """Lists of stored messages with right checksums."""
    offset, made = draw(st.sampled_from([0, 7, 2**63])), []
    for content in draw(st.lists(CONTENTS, max_size=6)):
        made.append(
            make_stored(
                content.payload,
                id_number=content.id_number,
                user_headers=content.user_headers,
                offset=offset,
                timestamp_us=draw(_STORED_TIMES),
                origin_us=draw(_STORED_ORIGINS),
            )
        )
        offset += draw(_STORED_OFFSETS)
    return made
