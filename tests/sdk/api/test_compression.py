"""Compression by header: round trips, thresholds, damage and bombs."""

from __future__ import annotations

import gzip
import os
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_sdk import compression
from iggy_sdk.compression import Compression, decompress
from iggy_sdk.errors import ConfigurationError, SerdeError

NAMES = ["gzip", "zstd", "lz4"]


@given(name=st.sampled_from(NAMES), seed=st.binary(max_size=50), times=st.integers(0, 3000))
def test_compress_when_it_pays_then_is_smaller_and_can_be_undone(name, seed, times):
    payload = seed * times

    packed = Compression(name, threshold=0).compress(payload)

    if packed is not None:
        assert len(packed) < len(payload)
        assert decompress(packed, encoding=name) == payload


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", [None, 1])
def test_compress_when_payload_repeats_then_shrinks(name, level):
    payload = b"iggy" * 1000

    packed = Compression(name, threshold=4000, level=level).compress(memoryview(payload))

    assert packed is not None
    assert len(packed) < 200
    assert decompress(packed, encoding=name) == payload


@pytest.mark.parametrize("name", NAMES)
def test_compress_when_payload_is_small_or_random_then_leaves_it(name):
    assert Compression(name, threshold=10).compress(b"a" * 9) is None
    assert Compression(name, threshold=0).compress(os.urandom(64)) is None


@pytest.mark.parametrize("name", NAMES)
def test_decompress_when_payload_is_larger_than_first_guessed_then_grows(name):
    payload = bytes(5 << 20)
    packed = Compression(name).compress(payload)

    assert packed is not None
    assert decompress(packed, encoding=name) == payload


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"\xff" + data[1:]])
def test_decompress_when_payload_is_damaged_then_refuses(name, damage, monkeypatch):
    monkeypatch.setattr(compression, "UNPACKED_BYTES_MAX", 1 << 20)
    packed = Compression(name, 0).compress(b"iggy" * 100)
    assert packed is not None

    with pytest.raises(SerdeError, match=f"not valid {name}"):
        decompress(damage(packed), encoding=name)


@pytest.mark.parametrize("name", NAMES)
def test_decompress_when_payload_is_a_bomb_then_refuses(name, monkeypatch):
    packed = Compression(name).compress(bytes(300_000))
    assert packed is not None
    monkeypatch.setattr(compression, "UNPACKED_BYTES_MAX", 200_000)

    with pytest.raises(SerdeError, match="more than 200000 bytes" if name == "gzip" else None):
        decompress(packed, encoding=name)


def test_decompress_when_gzip_has_several_members_then_joins_them():
    packed = gzip.compress(b"one") + gzip.compress(b"two")

    assert decompress(packed, encoding="gzip") == b"onetwo"


def test_decompress_when_encoding_is_unknown_then_points_to_the_payload():
    with pytest.raises(SerdeError, match=r"'br' is not known.*message\.payload"):
        decompress(b"x", encoding="br")


def test_decompress_when_data_is_zlib_then_is_no_gzip():
    with pytest.raises(SerdeError):
        decompress(zlib.compress(b"x"), encoding="gzip")


def test_compression_when_name_is_unknown_then_lists_the_known_ones():
    with pytest.raises(ConfigurationError, match="'gzip', 'zstd' or 'lz4'"):
        Compression("brotli")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["zstd", "lz4"])
def test_compression_when_the_library_is_missing_then_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)

    with pytest.raises(ConfigurationError, match=r"iggy-python\[compression\]"):
        Compression(name)
    with pytest.raises(SerdeError, match=r"cramjam"):
        decompress(b"x", encoding=name)
    assert Compression("gzip", 0).compress(b"a" * 100)
