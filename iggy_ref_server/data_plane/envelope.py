"""The interface of a transport codec, such as WebSocket framing, on a socket connection.

A plain connection has no codec. With a codec the socket server decodes what it receives, and
replies are encoded as they are put into the codec's output buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from iggy_ref_server.data_plane.outbox import Outbox
    from iggy_ref_server.data_plane.seat import SocketLimits

__all__ = ["Envelope"]


class Envelope(Protocol):
    """The codec of one connection, for both directions."""

    @property
    def limits(self) -> SocketLimits:
        """The limits of the connection."""

    @property
    def outbox(self) -> Outbox:
        """Encodes everything that is put into it."""

    @property
    def receive_bytes(self) -> int:
        """How much to receive per call."""

    @property
    def missing_bytes(self) -> int:
        """How many bytes must follow, at most one receive call's worth; 0 when none are known."""

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame of the codec is incomplete."""

    @property
    def is_ended(self) -> bool:
        """Whether further input is ignored."""

    def unwrap(self, data: bytes) -> bytes:
        """Decode received bytes, split at any position, and return the payload.

        Replies of the codec itself, such as a pong, go into its output buffer.
        """

    def seal(self) -> None:
        """Put the closing frame into the output buffer; may be called twice."""
