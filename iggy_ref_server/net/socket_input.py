"""Receives from a socket connection, in turns, and has its requests handled.

With a codec the received bytes are decoded first. Takes no decision about the connection: the
socket server does that.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from iggy_ref_server.net.socket_connection import (
    SocketConnection,
    TransportCodec,
    copy_into_connection,
    request_quick_ack,
)

if TYPE_CHECKING:
    from iggy_ref_server.net.scheduler import RequestScheduler


# The bounds of SO_RCVLOWAT. A wake-up costs about as much as receiving 64 KiB; with a higher upper
# bound the core would idle.
LOW_MARK_MIN: Final = 1 << 16
LOW_MARK_MAX: Final = 1 << 18
# How often a socket with a large frame is read in one round: bytes that arrive during a read then
# cost no wake-up. Enough for a batch of 1 MB, and a short wait for other clients.
READS_MAX: Final = 8


def receive_input(conn: SocketConnection, scheduler: RequestScheduler) -> None:
    """Receive what has arrived, at most one turn's worth, and have the requests handled.

    Raises:
        OSError: the connection is lost.
    """
    if conn.codec is None:
        missing_bytes = _receive_requests(conn, scheduler)
    else:
        missing_bytes = _receive_encoded(conn, conn.codec, scheduler)
    set_low_mark(conn, missing_bytes)


def _receive_requests(conn: SocketConnection, scheduler: RequestScheduler) -> int:
    pipeline, tls, missing_bytes = conn.pipeline, conn.tls, 0
    connection = pipeline.connection
    for _ in range(READS_MAX):
        try:
            size = conn.source.recv_into(connection.get_buffer())
        except BlockingIOError:
            break
        connection.buffer_updated(size)
        conn.note_received(size)
        conn.has_eof = not size
        # The missing size of a frame is known only after the scheduler has parsed its head.
        if not size or not missing_bytes or not connection.missing_bytes:
            scheduler.serve(pipeline)
        missing_bytes = connection.missing_bytes
        if missing_bytes < LOW_MARK_MIN and (tls is None or not tls.has_input):
            break
        pipeline.update_account()
        if not pipeline.can_read:
            break
    return connection.missing_bytes


def _receive_encoded(
    conn: SocketConnection, codec: TransportCodec, scheduler: RequestScheduler
) -> int:
    """Receive and decode the bytes of a connection with a codec."""
    pipeline, tls = conn.pipeline, conn.tls
    for _ in range(READS_MAX):
        if not pipeline.can_read:
            break
        try:
            data = conn.source.recv(codec.receive_bytes)
        except BlockingIOError:
            break
        conn.note_received(len(data))
        conn.has_eof = not data
        pass_on(conn, data)
        scheduler.serve(pipeline)
        if codec.missing_bytes < LOW_MARK_MIN and (tls is None or not tls.has_input):
            break
        pipeline.update_account()
    return codec.missing_bytes


def pass_on(conn: SocketConnection, data: bytes) -> None:
    """Pass received bytes, or the end of the input, to the protocol."""
    connection, codec = conn.pipeline.connection, conn.codec
    if codec is None:
        connection.receive_data(data)
        return
    content = codec.decode(data)
    if content:
        copy_into_connection(connection, content)
    if codec.is_ended or conn.has_eof:
        connection.receive_eof()


def set_low_mark(conn: SocketConnection, missing_bytes: int) -> None:
    """Be woken once for much of a large frame, not for every packet of it."""
    conn.pipeline.update_account()
    tls, awaited_bytes = conn.tls, missing_bytes
    if tls is not None:
        awaited_bytes = missing_bytes or int(tls.is_mid_record)
        # What TLS holds already does not arrive again.
        missing_bytes -= tls.held_bytes
    if awaited_bytes and not conn.pipeline.has_unsent_replies:
        request_quick_ack(conn.socket, awaited_bytes)
    low_mark = min(missing_bytes, LOW_MARK_MAX) if missing_bytes >= LOW_MARK_MIN else 1
    # The scheduler may have closed the connection.
    if low_mark != conn.low_mark and conn.socket.fileno() >= 0:
        conn.low_mark = low_mark
        conn.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_mark)
