"""Encrypting payloads and headers on the client, so that the server never sees them.

The format is that of Apache Iggy: AES-256-GCM, nonce before and tag after the ciphertext, payload
and header block encrypted separately. The cipher is that of ``iggy_protocol``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Final

from iggy_protocol import Buffer, DecryptionFailed, LocalProtocolError, PayloadCipher, StatusCode
from iggy_sdk.errors import ConfigurationError, DecryptionError

NONCE_BYTES: Final = 12
"""As AES-GCM wants it. Random nonces are safe for some four thousand million messages per key."""


class Encryptor(ABC):
    """Whatever seals and opens bytes; ``aes256_gcm`` and ``from_base64`` make the usual one."""

    __slots__ = ()

    @abstractmethod
    def seal(self, plain: Buffer) -> bytes:
        """Encrypt."""

    @abstractmethod
    def open(self, sealed: Buffer) -> bytes:
        """Decrypt, or raise ``DecryptionError``."""

    @staticmethod
    def aes256_gcm(key: bytes) -> AesGcmEncryptor:
        """Make an encryptor that understands, and is understood by, the other SDKs.

        Args:
            key: 32 bytes, for example from ``os.urandom(32)``.

        Raises:
            ConfigurationError: the key has another length.
        """
        try:
            return AesGcmEncryptor(PayloadCipher(key))
        except LocalProtocolError as error:
            raise _unusable(error) from None

    @staticmethod
    def from_base64(text: str) -> AesGcmEncryptor:
        """Make one from a key in base64, as configurations hold it.

        Raises:
            ConfigurationError: the text is not base64 of 32 bytes.
        """
        try:
            return AesGcmEncryptor(PayloadCipher.from_base64(text))
        except LocalProtocolError as error:
            raise _unusable(error) from None


class AesGcmEncryptor(Encryptor):
    """AES-256-GCM with one key; its text shows no part of the key."""

    __slots__ = ("_cipher",)

    def __init__(self, cipher: PayloadCipher) -> None:
        """Take the cipher that holds the key."""
        self._cipher = cipher

    def seal(self, plain: Buffer) -> bytes:
        """Encrypt under a fresh nonce."""
        return self._cipher.seal(memoryview(plain), nonce=os.urandom(NONCE_BYTES))

    def open(self, sealed: Buffer) -> bytes:
        """Decrypt.

        Raises:
            DecryptionError: another key sealed it, or it was changed.
        """
        try:
            return self._cipher.open(memoryview(sealed))
        except DecryptionFailed as error:
            raise DecryptionError(str(error)) from error

    def __repr__(self) -> str:
        return "Encryptor.aes256_gcm(key=hidden)"


def _unusable(error: LocalProtocolError) -> ConfigurationError:
    return ConfigurationError(str(error), code=StatusCode.INVALID_ENCRYPTION_KEY)
