"""Splitting a byte stream into frames without buffering them; only a header of eight bytes is kept.

A large frame passes piece by piece, each as soon as it has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from iggy_protocol import CLASSIC

__all__ = ["FrameWalker", "Piece", "replies", "requests"]

ReadHead = Callable[[bytes, int], tuple[int, int]]


class Piece(NamedTuple):
    """A part of a frame, in the order of the stream.

    Attributes:
        data: the bytes.
        number: the command's code of a request, or the status of a reply.
        begins: whether ``data`` is the head of the frame.
        ends: whether the frame is complete with it.
    """

    data: memoryview
    number: int
    begins: bool
    ends: bool


class FrameWalker:
    """Splits the frames of one direction.

    Args:
        head_bytes: the size of a head.
        read_head: returns a head's number and the size of the payload behind it.
    """

    def __init__(self, head_bytes: int, read_head: ReadHead) -> None:
        self._head_bytes = head_bytes
        self._read_head = read_head
        self._head = b""
        self._number = 0
        self._payload_left = 0

    def feed(self, data: bytes) -> Iterator[Piece]:
        """Yield the pieces of frames in ``data``."""
        view = memoryview(data)
        while view:
            if self._payload_left:
                taken = min(self._payload_left, len(view))
                self._payload_left -= taken
                yield Piece(view[:taken], self._number, False, not self._payload_left)
            else:
                taken = min(self._head_bytes - len(self._head), len(view))
                self._head += view[:taken]
                if len(self._head) == self._head_bytes:
                    yield self._begin()
            view = view[taken:]

    def _begin(self) -> Piece:
        head, self._head = self._head, b""
        self._number, size = self._read_head(head, 0)
        # A length below its minimum is negative here; the server skips such a header as well.
        self._payload_left = max(0, size)
        return Piece(memoryview(head), self._number, True, not self._payload_left)


def requests() -> FrameWalker:
    """Make a splitter for what a client sends."""
    return FrameWalker(CLASSIC.request_head_bytes, CLASSIC.read_request_head)


def replies() -> FrameWalker:
    """Make a splitter for what a server sends."""
    return FrameWalker(CLASSIC.response_head_bytes, CLASSIC.read_response_head)
