"""The limits of one connection, with the reasons for their numbers."""

from __future__ import annotations

from dataclasses import fields

from iggy_protocol.codes import CommandCode
from iggy_protocol.errors import LocalProtocolError
from iggy_protocol.receive_buffer import RETAINED_BYTES_MAX
from iggy_protocol.records import record

__all__ = ["DEFAULT_LIMITS", "Limits"]

SEND_MESSAGES = int(CommandCode.SEND_MESSAGES)
"""A plain number, because every frame is compared with it."""


@record(kw_only=True)
class Limits:
    """The bounds of one connection; assign ``connection.limits`` to change them later.

    Attributes:
        control_bytes_max: payload of any request but SendMessages; the number of Apache Iggy 0.8.
        send_bytes_max: payload of SendMessages, for which Apache Iggy 0.8 has no limit. One
            message may have 64,000,000 bytes and 100,000 of user headers; both fit.
        unauthenticated_bytes_max: payload of any request of a client that a server has not
            authenticated. A login is two names, a password and two short texts, a few hundred
            bytes; this leaves a margin for longer texts.
        pipelined_max: requests that a server accepts before it answers the first; enough for
            clients that pipeline single messages, and a limit for what a slow server buffers.
        outstanding_max: requests that a client sends before the first is answered.
        response_bytes_max: payload of a reply. A poll has no limit in bytes, so this limit is
            large; it protects against a peer that is no Iggy server.
        unread_bytes_max: received bytes that may be buffered while the caller does not call
            ``next_event``, or while that returns PAUSED. It counts neither the frame that
            ``next_event`` waits for nor one input of the caller, so it need not be larger than a
            few socket reads.
        retained_bytes_max: the largest receive buffer that is kept when it is empty.
    """

    control_bytes_max: int = 10_485_760
    send_bytes_max: int = 67_108_864
    unauthenticated_bytes_max: int = 16_384
    pipelined_max: int = 4_096
    outstanding_max: int = 4_096
    response_bytes_max: int = 268_435_456
    unread_bytes_max: int = 1_048_576
    retained_bytes_max: int = RETAINED_BYTES_MAX

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise LocalProtocolError("a limit is at least 1", field=field.name)

    def request_bytes_max(self, code: int) -> int:
        """Return the limit for the payload of a request."""
        return self.send_bytes_max if code == SEND_MESSAGES else self.control_bytes_max


DEFAULT_LIMITS = Limits()
