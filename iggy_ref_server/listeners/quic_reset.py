"""Stateless resets: the answer to packets of a QUIC connection that this server does not know.

A server that died cannot say so, and the next one knows none of its connections. Without a word
from it, their clients would wait until they time out. So each connection id comes with a token that
its client keeps (RFC 9000, section 10.3). The token is derived from the id and a key that outlives
the process, so that the next server can show it to whoever still uses the id.

Owns the key, the tokens and the bound of answers. Knows no connections.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from typing import TYPE_CHECKING, Final

from iggy_ref_server.config import write_private

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KEY_BYTES", "StatelessResets", "load_reset_key"]

LOGGER = logging.getLogger(__name__)

KEY_FILE: Final = "quic_reset_key"
KEY_BYTES: Final = 32
TOKEN_BYTES: Final = 16
# Below this nobody takes it for a reset; above, it looks as any other short packet does.
RESET_BYTES_MIN: Final = 21
RESET_BYTES_MAX: Final = 42
# Clients need one each. Whoever makes up ids needs no more answers than this.
RESETS_PER_SECOND_MAX: Final = 1000
# The first two bits of a packet with a short header: not a long one, and "fixed".
SHORT_HEADER, RANDOM_BITS = 0x40, 0x3F


def load_reset_key(directory: Path) -> bytes:
    """Read the key that tokens are derived from, or make one; only its owner can read the file.

    Without a file that can be written the key is that of this process, and clients of a server that
    died find out by their timeouts.

    Args:
        directory: where the file is.
    """
    path = directory / KEY_FILE
    try:
        if len(key := bytes.fromhex(path.read_text())) == KEY_BYTES:
            return key
        LOGGER.warning("%s does not hold %d bytes; a new key is made", path, KEY_BYTES)
    except FileNotFoundError:
        LOGGER.debug("%s does not exist; a key is made", path)
    except (OSError, ValueError) as error:
        LOGGER.warning("%s cannot be read, a new key is made: %s", path, error)
    key = os.urandom(KEY_BYTES)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_private(path, key.hex())
    except OSError as error:
        LOGGER.warning(
            "%s cannot be written: after a crash, QUIC clients notice by timeout only (%s)",
            path,
            error,
        )
    return key


class StatelessResets:
    """Makes tokens and resets.

    Args:
        key: what tokens are derived from.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._second = 0
        self._count = 0

    def token(self, connection_id: bytes) -> bytes:
        """Return the token of a connection id."""
        return hmac.digest(self._key, connection_id, hashlib.sha256)[:TOKEN_BYTES]

    def answer(self, connection_id: bytes, size_bytes: int, now: float) -> bytes | None:
        """Write the reset for a packet, or None where it is too small or there were too many.

        Args:
            connection_id: whom the packet is for.
            size_bytes: how large it is; the answer is smaller, so that two servers that reset each
                other come to an end, and nobody is sent more than somebody else has sent.
            now: the time.
        """
        size = min(size_bytes - 1, RESET_BYTES_MAX)
        if size < RESET_BYTES_MIN or not self._may_answer(int(now)):
            return None
        noise = os.urandom(size - TOKEN_BYTES)
        first = SHORT_HEADER | noise[0] & RANDOM_BITS
        return bytes([first]) + noise[1:] + self.token(connection_id)

    def _may_answer(self, second: int) -> bool:
        if second != self._second:
            self._second, self._count = second, 0
        self._count += 1
        return self._count <= RESETS_PER_SECOND_MAX
