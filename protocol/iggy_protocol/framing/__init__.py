"""Frames of requests and replies with short heads; those of 256 bytes are in ``vsr``.

``Framing`` is the interface of the short heads: how to read one and how to write one;
``CLASSIC_FRAMING`` is that of the classic dialect. The other names help to write a frame without
copying its payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from iggy_protocol.framing.classic import CLASSIC_FRAMING
from iggy_protocol.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol.layout import Buffer

__all__ = [
    "CLASSIC_FRAMING",
    "JOINED_BYTES_MAX",
    "Framing",
    "HeadroomBuffer",
    "join_small",
    "size_of",
]

JOINED_BYTES_MAX = 4_096
"""Parts up to this size are copied together: that is cheaper than one more entry in a vectored
write. Larger parts are not copied."""


class Framing(Protocol):
    """The interface of short heads; every frame is a head of fixed size and a payload.

    Readers never fail: a head is any bytes of its size. A request whose length is too
    small for the head has a negative payload size, because the refusal needs its code, which an
    exception would hide.
    """

    @property
    def request_head_bytes(self) -> int:
        """Return the size of a request's head."""

    @property
    def response_head_bytes(self) -> int:
        """Return the size of a response's head."""

    @property
    def payload_bytes_max(self) -> int:
        """Return the largest payload that the length field of either head can announce."""

    def read_request_head(self, buffer: Buffer, position: int) -> tuple[int, int]:
        """Return the code and the payload size."""

    def read_response_head(self, buffer: Buffer, position: int) -> tuple[int, int]:
        """Return the status and the payload size."""

    def request_head(self, code: int, payload_bytes: int) -> bytes:
        """Return the head of a request."""

    def response_head(self, status: int, payload_bytes: int) -> bytes:
        """Return the head of a response."""

    def write_request_head(
        self, buffer: bytearray | memoryview, position: int, code: int, payload_bytes: int
    ) -> None:
        """Write the head of a request into ``buffer``, beginning at ``position``."""


@record
class HeadroomBuffer:
    """A request's payload in a buffer with free space in front for the head of its frame.

    With the head written into that space, a whole batch goes to the socket as one buffer and is
    never copied. Writing the head again gives the same bytes, so a buffer may be sent
    again after a failure, or by another connection.

    Attributes:
        buffer: the free space and then the payload.
        headroom: size of the free space; its bytes mean nothing and may be overwritten.
    """

    buffer: bytearray
    headroom: int


def size_of(parts: Iterable[Buffer]) -> int:
    """Return how many bytes the parts have together."""
    size = 0
    for part in parts:
        size += part.nbytes if isinstance(part, memoryview) else len(part)
    return size


def join_small(parts: Iterable[Buffer]) -> list[Buffer]:
    """Join neighbouring small parts and leave large ones uncopied."""
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) <= JOINED_BYTES_MAX:
            small.append(part)
            continue
        if small:
            joined.append(b"".join(small))
            small = []
        joined.append(part)
    if small:
        joined.append(b"".join(small))
    return joined
