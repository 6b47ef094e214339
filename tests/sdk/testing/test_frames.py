"""The walk over frames: however the bytes are cut, the pieces are the same frames."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import (
    CLASSIC_FRAMING,
    V0_12_2,
    VSR_HEAD_BYTES,
    CommandCode,
    PasswordCredentials,
    Ping,
    VsrClientConnection,
    VsrClientSession,
)
from iggy_sdk.testing.frames import CLASSIC_PROXY_FRAMING, VSR_PROXY_FRAMING, proxy_framing

FRAMES = [(1, b""), (101, b"x" * 40), (100, b"yz"), (1, b"")]


def cut(data, sizes):
    """Cut bytes into pieces of these sizes, and the rest."""
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


def walked(walker, chunks):
    """Put the pieces together again: (number, payload) for each complete frame."""
    frames, payload = [], b""
    for chunk in chunks:
        for piece in walker.feed(chunk):
            payload = b"" if piece.begins else payload + bytes(piece.data)
            if piece.ends:
                frames.append((piece.head.code, payload))
    return frames


@given(st.lists(st.integers(0, 20), max_size=30))
def test_walker_when_requests_come_in_any_pieces_then_finds_each_of_them(sizes):
    data = b"".join(CLASSIC_FRAMING.request_head(code, len(body)) + body for code, body in FRAMES)

    assert walked(CLASSIC_PROXY_FRAMING.requests(), cut(data, sizes)) == FRAMES


@given(st.lists(st.integers(0, 20), max_size=30))
def test_walker_when_replies_come_in_any_pieces_then_finds_each_of_them(sizes):
    data = b"".join(CLASSIC_FRAMING.response_head(code, len(body)) + body for code, body in FRAMES)

    found = walked(CLASSIC_PROXY_FRAMING.replies(), cut(data, sizes))
    assert [payload for _, payload in found] == [payload for _, payload in FRAMES]


def test_walker_when_a_frame_is_larger_than_any_memory_then_passes_what_is_there():
    walker = CLASSIC_PROXY_FRAMING.requests()
    head = CLASSIC_FRAMING.request_head(int(CommandCode.SEND_MESSAGES), 4_000_000_000)

    pieces = [*walker.feed(head), *walker.feed(b"a" * 1000)]

    assert [(len(piece.data), piece.begins, piece.ends) for piece in pieces] == [
        (8, True, False),
        (1000, False, False),
    ]


def test_walker_when_a_length_is_below_its_minimum_then_skips_the_head_alone():
    walker = CLASSIC_PROXY_FRAMING.requests()
    malformed = (2).to_bytes(4, "little") + (1).to_bytes(4, "little")

    pieces = list(walker.feed(malformed + CLASSIC_FRAMING.request_head(1, 0)))

    assert [piece.ends for piece in pieces] == [True, True]


# From 0.9 on.


def vsr_frames() -> list[tuple[int, bytes]]:
    session = VsrClientSession(V0_12_2, os.urandom, sdk_name="test", sdk_version="0.1.0")
    commands = [session.register(PasswordCredentials("iggy", "secret")), Ping()]
    frames = []
    for command in commands:
        connection = VsrClientConnection(session)
        parts = connection.send_prepared(connection.prepare(command))
        frames.append((int(command.CODE), b"".join(parts)))
    return frames


@given(st.lists(st.integers(0, 300), max_size=30))
def test_walker_when_newer_requests_come_in_any_pieces_then_finds_each_of_them(sizes):
    frames = vsr_frames()
    data = b"".join(frame for _, frame in frames)

    found = walked(VSR_PROXY_FRAMING.requests(), cut(data, sizes))

    assert found == [(code, frame[VSR_HEAD_BYTES:]) for code, frame in frames]


def test_framing_when_the_first_word_has_come_then_is_known():
    (_, newer), _ = vsr_frames()

    assert proxy_framing(newer[:3]) is None
    assert proxy_framing(newer[:4]) is VSR_PROXY_FRAMING
    assert proxy_framing(CLASSIC_FRAMING.request_head(1, 0)) is CLASSIC_PROXY_FRAMING
