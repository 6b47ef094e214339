"""Splitting a byte stream into frames without buffering them; only a head is kept.

A large frame passes piece by piece, each as soon as it has arrived. The first bytes of a client
tell which framing its connection has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import (
    CLASSIC_FRAMING,
    VSR_HEAD_BYTES,
    CommandCode,
    record,
    summarise_vsr_reply,
    summarise_vsr_request,
    vsr_error_reply,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class FrameHead(NamedTuple):
    """What a head tells.

    Attributes:
        code: the command's code of a request; 0 in a reply.
        number: what a request shares with its reply; None for what is no answer. Where replies come
            in the order of requests it is always 0.
        payload_bytes: the size of what follows.
    """

    code: int
    number: int | None
    payload_bytes: int


class FramePiece(NamedTuple):
    """A part of a frame, in the order of the stream.

    Attributes:
        data: the bytes.
        head: what the head of the frame tells.
        begins: whether ``data`` is the head of the frame.
        ends: whether the frame is complete with it.
    """

    data: memoryview
    head: FrameHead
    begins: bool
    ends: bool


class FrameSplitter:
    """Splits the frames of one direction.

    Args:
        head_bytes: the size of a head.
        read_head: reads one.
    """

    def __init__(self, head_bytes: int, read_head: Callable[[bytes], FrameHead]) -> None:
        self._head_bytes = head_bytes
        self._read_head = read_head
        self._first = b""
        self._head = FrameHead(0, None, 0)
        self._payload_left = 0

    def feed(self, data: bytes) -> Iterator[FramePiece]:
        """Yield the pieces of frames in ``data``."""
        view = memoryview(data)
        while view:
            if self._payload_left:
                taken = min(self._payload_left, len(view))
                self._payload_left -= taken
                yield FramePiece(view[:taken], self._head, False, not self._payload_left)
            else:
                taken = min(self._head_bytes - len(self._first), len(view))
                self._first += view[:taken]
                if len(self._first) == self._head_bytes:
                    yield self._begin()
            view = view[taken:]

    def _begin(self) -> FramePiece:
        first, self._first = self._first, b""
        self._head = self._read_head(first)
        # A length below its minimum is negative here; the server skips such a header as well.
        self._payload_left = max(0, self._head.payload_bytes)
        return FramePiece(memoryview(first), self._head, True, not self._payload_left)


@record
class ProxyFraming:
    """How the frames of one connection are told apart and answered.

    Attributes:
        request_head_bytes: the size of a request's head.
        read_request: reads one.
        reply_head_bytes: the size of a reply's head.
        read_reply: reads one.
        refuse: makes the reply that refuses a request, from its head and a status.
        is_ordered: whether replies come in the order of their requests.
    """

    request_head_bytes: int
    read_request: Callable[[bytes], FrameHead]
    reply_head_bytes: int
    read_reply: Callable[[bytes], FrameHead]
    refuse: Callable[[bytes, int], bytes]
    is_ordered: bool

    def requests(self) -> FrameSplitter:
        """Make a splitter for what a client sends."""
        return FrameSplitter(self.request_head_bytes, self.read_request)

    def replies(self) -> FrameSplitter:
        """Make a splitter for what a server sends."""
        return FrameSplitter(self.reply_head_bytes, self.read_reply)


def _read_classic_request(head: bytes) -> FrameHead:
    code, payload_bytes = CLASSIC_FRAMING.read_request_head(head, 0)
    return FrameHead(code, 0, payload_bytes)


def _read_classic_reply(head: bytes) -> FrameHead:
    _, payload_bytes = CLASSIC_FRAMING.read_response_head(head, 0)
    return FrameHead(0, 0, payload_bytes)


def _refuse_classic(_head: bytes, status: int) -> bytes:
    return CLASSIC_FRAMING.response_head(status, 0)


CLASSIC_PROXY_FRAMING: Final = ProxyFraming(
    CLASSIC_FRAMING.request_head_bytes,
    _read_classic_request,
    CLASSIC_FRAMING.response_head_bytes,
    _read_classic_reply,
    _refuse_classic,
    is_ordered=True,
)

UNANSWERED_CODES: Final = frozenset(
    {
        CommandCode.POLL_DEFERRED,
        CommandCode.WAIT_FOR_MESSAGES,
        CommandCode.FETCH_MESSAGES,
        CommandCode.CANCEL_DEFERRED,
    }
)
"""Requests that may wait for long, or for ever, so that nobody waits for their replies."""


def _read_vsr_request(head: bytes) -> FrameHead:
    code, number, payload_bytes = summarise_vsr_request(head)
    return FrameHead(code, number, payload_bytes)


def _read_vsr_reply(head: bytes) -> FrameHead:
    number, payload_bytes = summarise_vsr_reply(head)
    return FrameHead(0, number, payload_bytes)


VSR_PROXY_FRAMING: Final = ProxyFraming(
    VSR_HEAD_BYTES,
    _read_vsr_request,
    VSR_HEAD_BYTES,
    _read_vsr_reply,
    vsr_error_reply,
    is_ordered=False,
)

WORD_BYTES: Final = 4


def proxy_framing(first: bytes) -> ProxyFraming | None:
    """Tell the framing of a connection from the first bytes of its client; None for too few."""
    if len(first) < WORD_BYTES:
        return None
    return CLASSIC_PROXY_FRAMING if any(first[:WORD_BYTES]) else VSR_PROXY_FRAMING
