"""AES-256-GCM sealing of payloads and user headers.

A sealed payload is the nonce, the ciphertext and the tag, back to back:

    0                12                     n+12          n+28
    +----------------+----------------------+-------------+
    | nonce, 12      | ciphertext, n        | tag, 16     |
    +----------------+----------------------+-------------+

Owns this layout and the key. Has no source of randomness: the caller brings a fresh nonce for
every seal, because a nonce used twice under one key gives both payloads away.
"""

from __future__ import annotations

import base64
import binascii

from iggy_protocol.errors import DecryptionFailed, LocalProtocolError

__all__ = ["KEY_SIZE", "NONCE_SIZE", "TAG_SIZE", "PayloadCipher"]

KEY_SIZE = 32
NONCE_SIZE = 12
TAG_SIZE = 16


class PayloadCipher:
    """Seals and opens payloads with one key."""

    __slots__ = ("_aead", "_invalid_tag")

    def __init__(self, key: bytes) -> None:
        """Take the key.

        Args:
            key: 32 bytes.

        Raises:
            LocalProtocolError: the key has another length.
        """
        if len(key) != KEY_SIZE:
            raise LocalProtocolError(f"an encryption key has {KEY_SIZE} bytes, not {len(key)}")
        # Loading it takes longer than all commands together, and most programs seal nothing.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead = AESGCM(key)
        self._invalid_tag = InvalidTag

    @classmethod
    def from_base64(cls, text: str) -> PayloadCipher:
        """Take the key as standard base64, the form in which configurations hold it.

        Args:
            text: base64 of 32 bytes, with padding.

        Raises:
            LocalProtocolError: the text is not base64, or not of 32 bytes.
        """
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            # The cause would quote the key, so it is not chained.
            raise LocalProtocolError("the encryption key is not base64") from None
        return cls(key)

    def seal(self, plaintext: bytes | bytearray | memoryview, *, nonce: bytes) -> bytes:
        """Encrypt a payload.

        Args:
            plaintext: the payload.
            nonce: 12 bytes that this key has never seen.

        Returns:
            The nonce, the ciphertext and the tag.

        Raises:
            LocalProtocolError: the nonce has another length.
        """
        if len(nonce) != NONCE_SIZE:
            raise LocalProtocolError(f"a nonce has {NONCE_SIZE} bytes, not {len(nonce)}")
        return nonce + self._aead.encrypt(nonce, plaintext, None)

    def open(self, sealed: bytes | bytearray | memoryview) -> bytes:
        """Decrypt a payload.

        Args:
            sealed: what ``seal`` returned.

        Raises:
            DecryptionFailed: another key, changed bytes, or too few of them.
        """
        if len(sealed) < NONCE_SIZE + TAG_SIZE:
            raise DecryptionFailed(
                f"a sealed payload has at least {NONCE_SIZE + TAG_SIZE} bytes, not {len(sealed)}"
            )
        try:
            return self._aead.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], None)
        except self._invalid_tag:
            raise DecryptionFailed("another key sealed this payload, or it was changed") from None

    def __repr__(self) -> str:
        return "PayloadCipher(key=hidden)"
