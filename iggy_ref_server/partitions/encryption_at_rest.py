"""Encryption at rest: payload and user headers of each message are encrypted before the write.

The lengths in a stored header are those of the encrypted parts, and the checksum covers them. A
delivered message has the plain lengths and a new checksum. Empty user headers stay empty.

Only here do the append and poll paths touch every message from Python: one cipher call per message
costs more than that.
"""

from __future__ import annotations

import os
from struct import Struct

from iggy_protocol import (
    Buffer,
    DecryptionFailed,
    MessageBatch,
    MessageView,
    PayloadCipher,
    StatusCode,
    checksum,
)
from iggy_ref_server.faults import ServerFault

HEADER_BYTES = 64
NONCE_BYTES = 12
CHECKSUM = Struct("<Q")
LENGTHS = Struct("<II")
LENGTHS_POSITION = 48


def encrypt_messages(messages: Buffer, cipher: PayloadCipher) -> bytearray:
    """Encrypt a batch that is about to be stamped.

    Args:
        messages: inspected messages.
        cipher: holds the key.

    Returns:
        The same messages with sealed parts; their checksums are not valid yet.
    """
    sealed = bytearray()
    source = memoryview(messages)
    at = 0
    for view in MessageBatch(messages):
        payload = cipher.seal(view.payload, nonce=os.urandom(NONCE_BYTES))
        user_headers = (
            cipher.seal(view.user_headers, nonce=os.urandom(NONCE_BYTES))
            if len(view.user_headers)
            else b""
        )
        append_message(sealed, source[at : at + HEADER_BYTES], payload, user_headers)
        at += view.size
    return sealed


def decrypt_messages(messages: Buffer, cipher: PayloadCipher) -> bytearray:
    """Decrypt messages as they are stored, for delivery.

    Args:
        messages: whole messages.
        cipher: holds the key.

    Returns:
        The messages as their producer sent them, with checksums that match.

    Raises:
        ServerFault: a message was sealed with another key, or was never sealed.
    """
    opened = bytearray()
    source = memoryview(messages)
    at = 0
    for view in MessageBatch(messages):
        payload, user_headers = decrypt_parts(view, cipher)
        start = len(opened)
        append_message(opened, source[at : at + HEADER_BYTES], payload, user_headers)
        with memoryview(opened) as memory, memory[start + CHECKSUM.size :] as covered:
            CHECKSUM.pack_into(memory, start, checksum(covered))
        at += view.size
    return opened


def decrypt_parts(view: MessageView, cipher: PayloadCipher) -> tuple[bytes, bytes]:
    """Decrypt payload and user headers of one message."""
    try:
        payload = cipher.open(view.payload)
        user_headers = cipher.open(view.user_headers) if len(view.user_headers) else b""
    except DecryptionFailed as error:
        raise ServerFault(
            StatusCode.CANNOT_DECRYPT_DATA,
            f"the message with offset {view.offset} cannot be decrypted: {error}",
        ) from error
    return payload, user_headers


def append_message(
    target: bytearray, header: memoryview, payload: bytes, user_headers: bytes
) -> None:
    """Add a message with new parts under its old header."""
    start = len(target)
    target += header
    target += payload
    target += user_headers
    LENGTHS.pack_into(target, start + LENGTHS_POSITION, len(user_headers), len(payload))
