"""Requests over QUIC: one request on one stream, a pool of codecs, and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from iggy_protocol import (
    ClientConnection,
    ErrorReceived,
    LocalProtocolError,
    RemoteProtocolError,
    ResponseReceived,
)
from iggy_sdk.errors import IggyError, ProtocolError, describe_command, error_from_protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol import Buffer, Limits
    from iggy_sdk.session_waiter import Waiter

__all__ = ["Exchange", "Exchanges"]

Outcome: TypeAlias = ResponseReceived[Any] | ErrorReceived | IggyError

KEPT_MAX: Final = 4
"""How many codecs are pooled; each may hold the memory of a large reply."""


class Exchange:
    """A request, its stream once it is open, and the task that waits for the reply."""

    __slots__ = ("connection", "parts", "size_bytes", "stream_id", "waiter")

    def __init__(
        self, waiter: Waiter, connection: ClientConnection, parts: Sequence[Buffer]
    ) -> None:
        self.waiter = waiter
        self.connection = connection
        self.parts = parts
        self.size_bytes = sum(map(len, parts))
        self.stream_id: int | None = None

    def hear(self, data: bytes, *, is_last: bool, peer: str) -> Outcome | None:
        """Decode bytes of the reply; return the outcome once it is complete.

        Args:
            data: the bytes.
            is_last: whether the server has finished the stream.
            peer: the name of the server, for errors.
        """
        command = self.waiter.command
        try:
            if data:
                self.connection.receive_data(data)
            heard = self.connection.next_event()
        except RemoteProtocolError as error:
            told = error_from_protocol(error, command=command)
            told.__cause__ = error
            return told
        if isinstance(heard, ResponseReceived | ErrorReceived):
            return heard
        if not is_last:
            return None
        text = f"{describe_command(command)}: {peer} ended the stream without a reply"
        return ProtocolError(text)

    def tell(self, outcome: Outcome) -> None:
        """Set the outcome and wake the task of the request; the first outcome counts."""
        waiter = self.waiter
        if waiter.outcome is None:
            waiter.outcome = outcome
            if waiter.wake is not None:
                waiter.wake.set()


class Exchanges:
    """Encodes requests, with codecs that are used again."""

    __slots__ = ("_kept", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: list[ClientConnection] = []

    def begin(self, waiter: Waiter) -> Exchange:
        """Encode a request; nothing is sent yet.

        Raises:
            InvalidRequestError: a field does not fit the wire, or the request is too large.
        """
        connection = self._kept.pop() if self._kept else ClientConnection(limits=self._limits)
        try:
            return Exchange(waiter, connection, connection.send(waiter.command))
        except LocalProtocolError as error:
            raise error_from_protocol(error, command=waiter.command) from error

    def end(self, exchange: Exchange) -> None:
        """Pool the codec of a finished request, if it holds no rest of a reply."""
        if exchange.connection.is_at_rest and len(self._kept) < KEPT_MAX:
            self._kept.append(exchange.connection)
