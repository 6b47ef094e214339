"""Encryptors: sealed as upstream seals, with a fresh nonce each time, and no key in sight."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk.encryption import Encryptor
from iggy_sdk.errors import ConfigurationError, DecryptionError

KEY = bytes(range(32))


@given(plain=st.binary(max_size=300), key=st.binary(min_size=32, max_size=32))
def test_seal_when_opened_by_another_implementation_then_gives_the_plaintext(plain, key):
    sealed = Encryptor.aes256_gcm(key).seal(plain)

    assert len(sealed) == 12 + len(plain) + 16
    assert AESGCM(key).decrypt(sealed[:12], sealed[12:], None) == plain


@given(plain=st.binary(max_size=300), nonce=st.binary(min_size=12, max_size=12))
def test_open_when_another_implementation_sealed_then_gives_the_plaintext(plain, nonce):
    sealed = nonce + AESGCM(KEY).encrypt(nonce, plain, None)

    assert Encryptor.aes256_gcm(KEY).open(memoryview(sealed)) == plain


def test_seal_when_called_again_then_uses_another_nonce():
    encryptor = Encryptor.aes256_gcm(KEY)

    assert len({encryptor.seal(b"same")[:12] for _ in range(100)}) == 100


@pytest.mark.parametrize("change", [0, 11, 12, 20, -1])
def test_open_when_a_byte_was_changed_then_refuses(change):
    sealed = bytearray(Encryptor.aes256_gcm(KEY).seal(b"payload of some length"))
    sealed[change] ^= 1

    with pytest.raises(DecryptionError, match="same encryption key"):
        Encryptor.aes256_gcm(KEY).open(sealed)


@pytest.mark.parametrize("sealed", [b"", b"short", bytes(27)])
def test_open_when_nothing_was_sealed_then_refuses(sealed):
    with pytest.raises(DecryptionError):
        Encryptor.aes256_gcm(KEY).open(sealed)


def test_from_base64_when_given_the_key_then_is_the_same_encryptor():
    encryptor = Encryptor.from_base64(base64.b64encode(KEY).decode())

    assert encryptor.open(Encryptor.aes256_gcm(KEY).seal(b"x")) == b"x"


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(33)])
def test_aes256_gcm_when_key_has_another_length_then_asks_for_32_bytes(key):
    with pytest.raises(ConfigurationError, match="32 bytes") as caught:
        Encryptor.aes256_gcm(key)

    assert caught.value.code == 70


@pytest.mark.parametrize("text", ["not base64!", "c2hvcnQ="])
def test_from_base64_when_text_is_no_key_then_refuses_without_quoting_it(text):
    with pytest.raises(ConfigurationError) as caught:
        Encryptor.from_base64(text)

    assert text not in str(caught.value)


def test_encryptor_when_shown_then_hides_the_key():
    assert repr(Encryptor.aes256_gcm(b"k" * 32)) == "Encryptor.aes256_gcm(key=hidden)"
