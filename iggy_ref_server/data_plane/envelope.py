"""What the bytes of a connection are wrapped in on their way, such as the frames of WebSocket.

A plain connection has no envelope. Of one that has, the socket room receives wrapped bytes and
passes on what was in them; answers are wrapped as they are put into the envelope's outbox.

Owns the words between the socket room and whoever knows a kind of wrapping. Knows none itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from iggy_ref_server.data_plane.outbox import Outbox
    from iggy_ref_server.data_plane.seat import SocketLimits

__all__ = ["Envelope"]


class Envelope(Protocol):
    """The wrapping of one connection, in both directions."""

    @property
    def limits(self) -> SocketLimits:
        """The bounds of the connection."""

    @property
    def outbox(self) -> Outbox:
        """Wraps all that is put into it."""

    @property
    def receive_bytes(self) -> int:
        """How much to receive at once."""

    @property
    def missing_bytes(self) -> int:
        """How much is sure to follow, as far as one receipt may hold it; 0 when nothing is."""

    @property
    def is_mid_frame(self) -> bool:
        """Whether the rest of a frame of its own is still to come."""

    @property
    def is_ended(self) -> bool:
        """Whether nothing that follows will be looked at."""

    def unwrap(self, data: bytes) -> bytes:
        """Take what was received, cut in any way, and return what was in it.

        What has to be answered by the envelope itself goes into the outbox.
        """

    def seal(self) -> None:
        """Put a last word into the outbox, behind which nothing follows; may be said twice."""
