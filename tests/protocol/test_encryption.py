"""Sealed payloads, against the files of a server that ran with encryption on."""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.encryption import PayloadCipher
from iggy_protocol.errors import DecryptionFailed, LocalProtocolError
from iggy_protocol.user_headers import HeaderKey, HeaderValue, decode_user_headers
from tests.protocol.stored_files import DISK, state_entries

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = bytes(range(32))
CIPHER = PayloadCipher(KEY)
RECORD = struct.Struct("<Q16sQQQIIQ")

KEYS = st.binary(min_size=32, max_size=32)
NONCES = st.binary(min_size=12, max_size=12)


def stored_records(partition: str) -> Iterator[tuple[bytes, bytes]]:
    """Walk the payloads and user headers of a segment, as they lie on disk."""
    path = DISK / "encrypted/streams/1/topics/0/partitions" / partition / f"{0:020}.log"
    data = path.read_bytes()
    offset = 0
    while offset < len(data):
        headers_size, payload_size = RECORD.unpack_from(data, offset)[5:7]
        start = offset + RECORD.size
        middle = start + payload_size
        offset = middle + headers_size
        yield data[start:middle], data[middle:offset]


def sent_records(partition: int) -> Iterator[tuple[bytes, bytes]]:
    """Walk the payloads and user headers that the recorded client sent to a partition."""
    lines = (DISK / "encrypted.jsonl").read_text(encoding="utf-8").splitlines()
    for line in map(json.loads, lines):
        if line.get("cmd") != "send_messages":
            continue
        payload = bytes.fromhex(line["request"])[8:]
        metadata_size = int.from_bytes(payload[:4], "little")
        metadata, rest = payload[4 : 4 + metadata_size], payload[4 + metadata_size :]
        target, count = struct.unpack("<II", metadata[-8:])
        offset = 16 * count
        while target == partition and offset < len(rest):
            headers_size, payload_size = RECORD.unpack_from(rest, offset)[5:7]
            start = offset + RECORD.size
            middle = start + payload_size
            offset = middle + headers_size
            yield rest[start:middle], rest[middle:offset]


@pytest.mark.parametrize("partition", [0, 1])
def test_open_when_a_real_server_sealed_payloads_then_finds_what_was_sent(partition):
    stored = list(stored_records(str(partition)))

    opened = [
        (CIPHER.open(payload), CIPHER.open(headers) if headers else b"")
        for payload, headers in stored
    ]

    assert opened == list(sent_records(partition))
    assert len(opened) == (5, 1)[partition]


def test_open_when_a_real_server_sealed_user_headers_then_they_decode():
    (headers,) = (headers for _, headers in stored_records("0") if headers)

    assert decode_user_headers(CIPHER.open(headers)) == {
        HeaderKey.string("k"): HeaderValue.string("v"),
        HeaderKey.uint32(7): HeaderValue.boolean(True),
    }


def test_open_when_a_stream_was_created_then_the_command_is_its_id_and_request():
    bodies = [
        CIPHER.open(entry.command) for entry in state_entries("encrypted") if entry.code == 202
    ]

    assert bodies == [
        struct.pack("<II", 0, 5) + b"\x04gone",
        struct.pack("<II", 1, 2) + b"\x01s",
    ]


@pytest.mark.parametrize("partition", ["0", "1"])
def test_seal_when_given_the_recorded_nonce_then_writes_the_recorded_bytes(partition):
    for payload, _ in stored_records(partition):
        assert CIPHER.seal(CIPHER.open(payload), nonce=payload[:12]) == payload


@given(KEYS, NONCES, st.binary(max_size=300))
def test_open_when_sealed_with_the_same_key_then_gives_the_payload_back(key, nonce, plaintext):
    sealed = PayloadCipher(key).seal(plaintext, nonce=nonce)

    assert sealed[:12] == nonce
    assert len(sealed) == len(plaintext) + 28
    assert PayloadCipher(key).open(sealed) == plaintext


@given(NONCES, st.binary(max_size=100))
def test_seal_when_given_another_kind_of_buffer_then_agrees(nonce, plaintext):
    sealed = CIPHER.seal(plaintext, nonce=nonce)

    assert CIPHER.seal(memoryview(plaintext), nonce=nonce) == sealed
    assert CIPHER.open(memoryview(sealed)) == CIPHER.open(bytearray(sealed)) == plaintext


@given(KEYS.filter(lambda key: key != KEY), NONCES, st.binary(max_size=50))
def test_open_when_sealed_with_another_key_then_fails(key, nonce, plaintext):
    sealed = PayloadCipher(key).seal(plaintext, nonce=nonce)

    with pytest.raises(DecryptionFailed):
        CIPHER.open(sealed)


@given(NONCES, st.binary(max_size=50), st.data())
def test_open_when_any_bit_changed_then_fails(nonce, plaintext, data):
    sealed = bytearray(CIPHER.seal(plaintext, nonce=nonce))
    position = data.draw(st.integers(min_value=0, max_value=8 * len(sealed) - 1))
    sealed[position // 8] ^= 1 << position % 8

    with pytest.raises(DecryptionFailed):
        CIPHER.open(sealed)


@given(st.binary(max_size=27))
def test_open_when_shorter_than_nonce_and_tag_then_fails(sealed):
    with pytest.raises(DecryptionFailed, match="28 bytes or more"):
        CIPHER.open(sealed)


@pytest.mark.parametrize("size", [0, 11, 13, 16])
def test_seal_when_the_nonce_has_another_length_then_refuses(size):
    with pytest.raises(LocalProtocolError):
        CIPHER.seal(b"payload", nonce=bytes(size))


@pytest.mark.parametrize("size", [0, 16, 24, 31, 33])
def test_cipher_when_the_key_has_another_length_then_refuses(size):
    with pytest.raises(LocalProtocolError):
        PayloadCipher(bytes(size))


def test_from_base64_when_given_the_recorded_key_then_opens_the_recorded_payloads():
    cipher = PayloadCipher.from_base64("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")

    assert [cipher.open(payload) for payload, _ in stored_records("1")] == [b"m020"]


@pytest.mark.parametrize(
    "text",
    ["", "not base64!", "AAEC", base64.b64encode(bytes(33)).decode(), "AAECAwQ", "ключ"],
)
def test_from_base64_when_the_text_is_no_key_then_refuses_without_quoting_it(text):
    with pytest.raises(LocalProtocolError) as caught:
        PayloadCipher.from_base64(text)

    assert caught.value.__cause__ is None
    assert not text or text not in str(caught.value)


def test_repr_when_printed_then_hides_the_key():
    assert repr(CIPHER) == "PayloadCipher(key=hidden)"
    assert not hasattr(CIPHER, "__dict__")
