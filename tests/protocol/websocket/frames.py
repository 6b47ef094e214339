"""Both ends of a WebSocket in memory, and frames that are written byte by byte, good or bad."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.uri import parse_uri
from websockets.utils import apply_mask

from iggy_protocol.websocket import FrameDecoder, FrameReader, InPlaceFrameReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from websockets.protocol import Protocol

MASK = b"\x11\x22\x33\x44"
CUTS = st.lists(st.integers(0, 10**6), max_size=8)
FRAME_MAX, MESSAGE_MAX = 80_000, 200_000
# What both libraries may hold at once.
SIZES = (MESSAGE_MAX, FRAME_MAX)


def ws_frame(
    payload: bytes, opcode: int = Opcode.BINARY, *, fin: bool = True, mask: bytes | None = MASK
) -> bytes:
    """Write a frame, by default as a client does."""
    bit = 0x80 if mask is not None else 0
    first, size = opcode | (0x80 if fin else 0), len(payload)
    if size < 126:
        head = bytes([first, bit | size])
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    return head + (payload if mask is None else mask + apply_mask(payload, mask))


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """Split bytes at any positions."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(edges) if start < end]


def open_library(sizes: tuple[int, int] | None = None) -> tuple[ClientProtocol, ServerProtocol]:
    """Make both ends of the library, and do their handshake."""
    client = ClientProtocol(parse_uri("ws://localhost/"), max_size=sizes)
    server = ServerProtocol(max_size=sizes)
    client.send_request(client.connect())
    server.receive_data(b"".join(client.data_to_send()))
    (request,) = server.events_received()
    assert isinstance(request, Request)
    server.send_response(server.accept(request))
    client.receive_data(b"".join(server.data_to_send()))
    client.events_received()
    assert client.state is server.state is OPEN
    return client, server


def frames_of(protocol: Protocol, data: bytes) -> list[Frame]:
    """Have the library read frames."""
    if data:
        protocol.receive_data(data)
    assert protocol.parser_exc is None
    return [event for event in protocol.events_received() if isinstance(event, Frame)]


class End(ABC):
    """One end of a connection, whose peer is the library.

    Attributes:
        decoder: the object under test.
        library: the library's end on the same side, which judges frames.
        peer: the library's end on the other side.
        mask: the mask of what this end receives.
    """

    decoder: FrameDecoder
    library: Protocol
    peer: Protocol
    mask: bytes | None

    @abstractmethod
    def decode(self, pieces: Iterable[bytes]) -> bytes:
        """Decode received pieces; return the payload bytes."""

    def frame(self, payload: bytes, opcode: int = Opcode.BINARY, *, fin: bool = True) -> bytes:
        """Write a frame for this end."""
        return ws_frame(payload, opcode, fin=fin, mask=self.mask)

    def sent_close_code(self) -> int:
        """Have the peer read the close frame; return its code."""
        frames_of(self.peer, self.decoder.close_frame)
        assert self.peer.close_rcvd is not None
        return self.peer.close_rcvd.code


class ServerEnd(End):
    """The end that decodes requests."""

    def __init__(self, *, accepts_unmasked: bool = False) -> None:
        self.peer, own = open_library()
        self.library = open_library(SIZES)[1]
        self.mask = MASK
        self.reader = self.decoder = FrameReader(
            own,
            frame_bytes_max=FRAME_MAX,
            message_bytes_max=MESSAGE_MAX,
            accepts_unmasked=accepts_unmasked,
        )

    def decode(self, pieces: Iterable[bytes]) -> bytes:
        """Decode received pieces; return the payload bytes."""
        return b"".join(b"".join(self.reader.feed(piece)) for piece in pieces)


class ClientEnd(End):
    """The end that decodes replies."""

    def __init__(self) -> None:
        own, self.peer = open_library()
        self.library = open_library(SIZES)[0]
        self.mask = None
        self.reader = self.decoder = InPlaceFrameReader(
            own, frame_bytes_max=FRAME_MAX, message_bytes_max=MESSAGE_MAX
        )

    def decode(self, pieces: Iterable[bytes]) -> bytes:
        """Decode received pieces; return the payload bytes."""
        payload = b""
        for piece in pieces:
            # What lies behind the received bytes must stay as it is.
            space = memoryview(bytearray(piece + b"behind"))
            payload += space[: self.reader.decode_in_place(space, len(piece))]
            assert space[len(piece) :] == b"behind"
        return payload


ENDS = [ServerEnd, ClientEnd]
