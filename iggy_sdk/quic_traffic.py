"""Counters of one QUIC connection, finished streams included."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import ConnectionStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import ClientConnection

__all__ = ["Traffic"]


class Traffic:
    """Counters of one connection.

    Attributes:
        frames_in: replies and errors that the server gave.
        frames_out: requests that were given a stream.
        bytes_in: bytes of replies.
        bytes_out: bytes of requests.
        timeouts_count: requests whose reply did not arrive in time.
        abandoned_count: requests that were cancelled or timed out before the reply.
    """

    __slots__ = (
        "abandoned_count",
        "bytes_in",
        "bytes_out",
        "frames_in",
        "frames_out",
        "timeouts_count",
    )

    def __init__(self) -> None:
        self.frames_in = 0
        self.frames_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.timeouts_count = 0
        self.abandoned_count = 0

    def statistics(self, under_way: Iterable[ClientConnection]) -> ConnectionStatistics:
        """Return the counters, and the memory that open streams hold."""
        told = [one.statistics() for one in under_way]
        return ConnectionStatistics(
            frames_in=self.frames_in,
            frames_out=self.frames_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            outstanding=sum(one.outstanding for one in told),
            buffered_bytes=sum(one.buffered_bytes for one in told),
            reserved_bytes=sum(one.reserved_bytes for one in told),
            chunk_allocations=sum(one.chunk_allocations for one in told),
            copied_bytes=sum(one.copied_bytes for one in told),
        )
