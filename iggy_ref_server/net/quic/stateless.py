"""Stateless resets: the reply to packets of an unknown QUIC connection.

After a crash the new server process knows none of the old connections, and their clients would wait
for a timeout. So each connection id has a token that its client keeps (RFC 9000, section 10.3). The
token is derived from the id and a key on disk, so that the new process can send it to a client that
still uses the id.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from typing import TYPE_CHECKING, Final

from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE
from aioquic.quic.connection import TRANSPORT_CLOSE_FRAME_CAPACITY
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicFrameType, QuicHeader, QuicPacketType
from aioquic.quic.packet_builder import QuicPacketBuilder

from iggy_protocol.quic import RESET_BYTES_MIN, RESET_TOKEN_BYTES
from iggy_ref_server.config.sources import write_private

if TYPE_CHECKING:
    from pathlib import Path


LOGGER = logging.getLogger(__name__)


KEY_FILE: Final = "quic_reset_key"
KEY_BYTES: Final = 32
# The largest reset sent here; clients recognise those from ``RESET_BYTES_MIN`` on.
RESET_BYTES_MAX: Final = 42
# One reset per client is enough; the limit is for senders of forged ids.
RESETS_PER_SECOND_MAX: Final = 1000
# The first two bits of a packet with a short header: not a long one, and "fixed".
SHORT_HEADER, RANDOM_BITS = 0x40, 0x3F


def load_reset_key(directory: Path) -> bytes:
    """Read the key of the tokens, or make one in a file that only its owner can read.

    If the file cannot be written, the key lasts only as long as this process, and after a crash
    clients detect the loss by timeout.
    """
    path = directory / KEY_FILE
    try:
        if len(key := bytes.fromhex(path.read_text())) == KEY_BYTES:
            return key
        LOGGER.warning("%s does not hold %d bytes; made a new QUIC reset key", path, KEY_BYTES)
    except FileNotFoundError:
        LOGGER.debug("%s does not exist; made a QUIC reset key", path)
    except (OSError, ValueError) as error:
        LOGGER.warning("cannot read %s, made a new QUIC reset key: %s", path, error)
    key = os.urandom(KEY_BYTES)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_private(path, key.hex())
    except OSError as error:
        LOGGER.warning(
            "cannot write %s: after a crash QUIC clients detect it only by timeout: %s",
            path,
            error,
        )
    return key


class StatelessResets:
    """Makes tokens and resets.

    Args:
        key: the secret from which tokens are derived.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._second = 0
        self._count = 0

    def token(self, connection_id: bytes) -> bytes:
        """Return the token of a connection id."""
        return hmac.digest(self._key, connection_id, hashlib.sha256)[:RESET_TOKEN_BYTES]

    def build_reset(self, connection_id: bytes, size_bytes: int, now: float) -> bytes | None:
        """Build the reset for a packet; None if the packet is too small or the rate too high.

        Args:
            connection_id: the destination id of the packet.
            size_bytes: the size of the packet.
            now: the time.
        """
        # Smaller than the packet: two servers that reset each other then stop, and a forged source
        # address gets no amplification.
        size = min(size_bytes - 1, RESET_BYTES_MAX)
        if size < RESET_BYTES_MIN or not self._may_reset(int(now)):
            return None
        noise = os.urandom(size - RESET_TOKEN_BYTES)
        first = SHORT_HEADER | noise[0] & RANDOM_BITS
        return bytes([first]) + noise[1:] + self.token(connection_id)

    def _may_reset(self, second: int) -> bool:
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        return self._count <= RESETS_PER_SECOND_MAX


# The refusal of a first QUIC packet: one CONNECTION_CLOSE packet, for which no state is kept.


def build_refusal(header: QuicHeader, error_code: int) -> bytes:
    """Build the packet that refuses a connection."""
    assert header.version is not None
    crypto = CryptoPair()
    crypto.setup_initial(cid=header.destination_cid, is_client=False, version=header.version)
    builder = QuicPacketBuilder(
        host_cid=header.destination_cid,
        is_client=False,
        max_datagram_size=SMALLEST_MAX_DATAGRAM_SIZE,
        peer_cid=header.source_cid,
        version=header.version,
    )
    builder.start_packet(QuicPacketType.INITIAL, crypto)
    frame = builder.start_frame(
        QuicFrameType.TRANSPORT_CLOSE, capacity=TRANSPORT_CLOSE_FRAME_CAPACITY
    )
    frame.push_uint_var(error_code)
    frame.push_uint_var(QuicFrameType.PADDING)
    frame.push_uint_var(0)
    datagrams, _ = builder.flush()
    return bytes(datagrams[0])
