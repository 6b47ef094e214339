"""Receives from a socket connection and sends to it, in bounded turns.

With a codec the received bytes are decoded before the scheduler handles the requests in them. What
becomes of the connection is decided by the socket server.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import trio

from iggy_ref_server.net.socket_connection import (
    SENDFILE_BYTES_MAX,
    SocketConnection,
    TransportCodec,
    copy_into_connection,
    request_quick_ack,
    send_buffers,
    send_file,
)
from iggy_ref_server.net.tls_codec import PLAINTEXT_BYTES_MAX, TlsCodec

if TYPE_CHECKING:
    from iggy_ref_server.dispatch.replies import OutputBuffer
    from iggy_ref_server.net.scheduler import RequestScheduler
    from iggy_ref_server.storage.interface import FileSlice


# The bounds of SO_RCVLOWAT. A wake-up costs about as much as receiving 64 KiB; with a higher upper
# bound the core would idle.
LOW_MARK_MIN: Final = 1 << 16
LOW_MARK_MAX: Final = 1 << 18
# How often a socket with a large frame is read in one round: bytes that arrive during a read then
# cost no wake-up. Enough for a batch of 1 MB, and a short wait for other clients.
READS_MAX: Final = 8
# How much is read at once from a client whose small requests fill all the space that is offered.
# Such a client does not wait for replies, and the work of a round, such as its commit, is shared by
# all requests in it. Measured with sends of 1000 B: 256 KiB 1.5 million a second, 512 KiB 2.1, and
# 1 MiB no more. A round of this size takes a third of a millisecond; more would delay others.
SATURATED_READ_BYTES: Final = 3 << 18


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
    for _ in range(READS_MAX):
        connection = pipeline.connection
        try:
            space = connection.get_buffer(conn.space_hint)
            size = conn.source.recv_into(space)
        except BlockingIOError:
            break
        if size == len(space) and not missing_bytes and connection.is_authenticated:
            conn.space_hint = SATURATED_READ_BYTES
        elif size < SATURATED_READ_BYTES // 4:
            conn.space_hint = -1
        del space
        connection.buffer_updated(size)
        conn.note_received(size)
        conn.has_eof = not size
        # The missing size of a frame is known only after the scheduler has parsed its head.
        if not size or not missing_bytes or not connection.missing_bytes:
            scheduler.serve(pipeline)
            connection = pipeline.connection  # the first bytes have chosen another one
        missing_bytes = connection.missing_bytes
        if missing_bytes < LOW_MARK_MIN and (tls is None or not tls.has_input):
            break
        pipeline.update_account()
        if not pipeline.can_read:
            break
    return pipeline.connection.missing_bytes


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


# Sending the output buffer.
#
# Without TLS the kernel sends pieces of files by itself. With TLS a bounded piece of the replies is
# read and encrypted as soon as the socket has taken the one before it.

# What one socket is sent in a round: a client that reads as fast as the server writes would block
# the others. Enough for four batches of 1 MB; the remainder makes the epoll ready again.
SENT_BYTES_MAX: Final = 4 << 20
# Up to this size reading a piece of a file costs less than a separate sendfile call.
LOADED_BYTES_MAX: Final = 1 << 14


def send_output(conn: SocketConnection) -> FileSlice | None:
    """Send until the socket is full or the turn is over, and note whether it has stalled.

    Returns:
        The piece of a file at the head of the buffer that a task has to read first, if any.

    Raises:
        OSError: the connection is lost.
        StorageError: a file cannot be read.
    """
    output_buffer = conn.pipeline.output_buffer
    unsent_bytes = output_buffer.size_bytes
    try:
        if unsent_bytes <= LOADED_BYTES_MAX:
            output_buffer.load_small(LOADED_BYTES_MAX)
        if conn.tls is None:
            piece = _send_plain(conn, output_buffer, unsent_bytes)
        else:
            piece = _send_encrypted(conn, conn.tls, output_buffer)
    except BlockingIOError:
        if conn.stalled_since is None or output_buffer.size_bytes < unsent_bytes:
            conn.stalled_since = trio.current_time()
        return None
    if piece is None:
        conn.stalled_since = None
    return piece


def _send_plain(
    conn: SocketConnection, output_buffer: OutputBuffer, unsent_bytes: int
) -> FileSlice | None:
    while output_buffer and unsent_bytes - output_buffer.size_bytes < SENT_BYTES_MAX:
        piece = output_buffer.head_slice()
        if piece is None:
            size = send_buffers(conn.socket, output_buffer.head_buffers())
        elif piece.file.descriptor is None or not piece.file.is_cached(
            min(piece.size, SENDFILE_BYTES_MAX), piece.position
        ):
            return output_buffer.cut_head(SENDFILE_BYTES_MAX)
        else:
            size = send_file(conn.socket, piece)
        output_buffer.sent(size)
    return None


def _send_encrypted(
    conn: SocketConnection, tls: TlsCodec, output_buffer: OutputBuffer
) -> FileSlice | None:
    sent_bytes = 0
    while output_buffer and sent_bytes < SENT_BYTES_MAX:
        piece = None
        if not output_buffer.encoded:
            piece = _encrypt_next(tls, output_buffer)
            output_buffer.put_encoded(tls.take_ciphertext())
        if output_buffer.encoded:
            size = conn.socket.send(output_buffer.encoded)
            output_buffer.sent_encoded(size)
            sent_bytes += size
        if piece is not None:
            return piece
    return None


def _encrypt_next(tls: TlsCodec, output_buffer: OutputBuffer) -> FileSlice | None:
    """Encrypt as much as is sent in one call; return a piece of a file that must be read first."""
    left = PLAINTEXT_BYTES_MAX
    while left > 0 and not output_buffer.is_encoded:
        piece = output_buffer.head_slice()
        if piece is None:
            size = tls.encrypt(_first_bytes(output_buffer.head_buffers(), left))
        else:
            content = piece.file.read_nowait(min(piece.size, left), piece.position)
            if not content:
                return output_buffer.cut_head(SENDFILE_BYTES_MAX)
            size = tls.encrypt(content)
        output_buffer.sent(size)
        left -= size
    return None


def _first_bytes(buffers: list[memoryview], size: int) -> memoryview | bytes:
    """Return the first bytes of some buffers: small replies share a record."""
    if len(buffers) == 1 or len(buffers[0]) >= size:
        return buffers[0][:size]
    parts = []
    for buffer in buffers:
        parts.append(buffer[:size])
        size -= len(parts[-1])
        if not size:
            break
    return b"".join(parts)
