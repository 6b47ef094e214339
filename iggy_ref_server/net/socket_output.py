"""Sends the output buffer of a socket connection, in turns.

Without TLS the kernel sends pieces of files by itself. With TLS a bounded piece of the replies is
read and encrypted as soon as the socket has taken the one before it.

Takes no decision about the connection: the socket server does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from iggy_ref_server.net.socket_connection import (
    SENDFILE_BYTES_MAX,
    SocketConnection,
    send_buffers,
    send_file,
)
from iggy_ref_server.net.tls_codec import PLAINTEXT_BYTES_MAX, TlsCodec

if TYPE_CHECKING:
    from iggy_ref_server.dispatch.replies import OutputBuffer
    from iggy_ref_server.storage.interface import FileSlice


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
