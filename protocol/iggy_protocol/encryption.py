"""AES-256-GCM encryption of payloads and user headers.

An encrypted payload is the nonce, the ciphertext and the tag, back to back:

    0                12                     n+12          n+28
    +----------------+----------------------+-------------+
    | nonce, 12      | ciphertext, n        | tag, 16     |
    +----------------+----------------------+-------------+

This module has no source of randomness: the caller passes a fresh nonce for every payload, because
a nonce used twice with one key reveals both payloads.
"""

from __future__ import annotations

import base64
import binascii

from iggy_protocol.errors import DecryptionFailed, LocalProtocolError

KEY_SIZE = 32
NONCE_SIZE = 12
TAG_SIZE = 16


class PayloadCipher:
    """Encrypts and decrypts payloads with one key."""

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
        # Importing it takes longer than importing all commands, and most programs encrypt nothing.
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
            # The cause would contain the key, so it is not chained.
            raise LocalProtocolError("the encryption key is not base64") from None
        return cls(key)

    def seal(self, plaintext: bytes | bytearray | memoryview, *, nonce: bytes) -> bytes:
        """Encrypt a payload.

        Args:
            plaintext: the payload.
            nonce: 12 bytes, never used before with this key.

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
                f"an encrypted payload has {NONCE_SIZE + TAG_SIZE} bytes or more, not {len(sealed)}"
            )
        try:
            return self._aead.decrypt(sealed[:NONCE_SIZE], sealed[NONCE_SIZE:], None)
        except self._invalid_tag:
            raise DecryptionFailed(
                "this payload was encrypted with another key, or changed"
            ) from None

    def __repr__(self) -> str:
        return "PayloadCipher(key=hidden)"
