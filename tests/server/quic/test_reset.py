"""Stateless resets: keys that last, tokens that fit, answers within bounds."""

from __future__ import annotations

import os
import stat

import pytest
from aioquic.quic.configuration import QuicConfiguration
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.quic import RESET_BYTES_MIN, QuicClientCore
from iggy_ref_server.net.quic.stateless import (
    RESETS_PER_SECOND_MAX,
    StatelessResets,
    load_reset_key,
)

KEY = bytes(range(32))


@given(st.binary(min_size=8, max_size=8), st.integers(0, 65_527))
def test_reset_when_made_then_is_smaller_than_its_packet_and_ends_with_the_token(number, size):
    resets = StatelessResets(KEY)
    build_reset = resets.build_reset(number, size, 0.0)
    if size <= RESET_BYTES_MIN:
        assert build_reset is None
    else:
        assert build_reset is not None
        assert RESET_BYTES_MIN <= len(build_reset) < size
        assert build_reset[0] & 0xC0 == 0x40
        assert build_reset.endswith(StatelessResets(KEY).token(number))
        assert StatelessResets(bytes(32)).token(number) not in build_reset


def test_resets_when_asked_for_without_end_then_are_bounded():
    resets = StatelessResets(KEY)
    replies = [
        resets.build_reset(os.urandom(8), 100, 5.5) for _ in range(RESETS_PER_SECOND_MAX + 9)
    ]
    assert sum(build_reset is not None for build_reset in replies) == RESETS_PER_SECOND_MAX
    assert resets.build_reset(bytes(8), 100, 6.5) is not None


def test_key_when_loaded_again_then_is_the_same_and_private(tmp_path):
    key = load_reset_key(tmp_path / "certificates")
    assert load_reset_key(tmp_path / "certificates") == key
    (path,) = (tmp_path / "certificates").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("damaged", [b"", b"00" * 31, b"no hex at all", b"\xff\xfe"])
def test_key_when_its_file_is_damaged_then_a_new_one_is_made_and_kept(tmp_path, damaged, caplog):
    load_reset_key(tmp_path)
    (tmp_path / "quic_reset_key").write_bytes(damaged)
    key = load_reset_key(tmp_path)
    assert len(key) == 32
    assert load_reset_key(tmp_path) == key
    assert "made a new QUIC reset key" in caplog.text


def test_key_when_it_cannot_be_written_then_the_server_goes_on_and_says_so(tmp_path, caplog):
    (tmp_path / "certificates").write_text("a file where the directory should be")
    assert len(load_reset_key(tmp_path / "certificates")) == 32
    assert "cannot write" in caplog.text


def make_client(token: bytes) -> QuicClientCore:
    core = QuicClientCore(QuicConfiguration(is_client=True))
    core.connect(("127.0.0.1", 1), now=0.0)
    core._peer_cid.stateless_reset_token = token
    return core


def test_client_when_reset_then_knows_that_the_server_has_ended_the_connection():
    resets = StatelessResets(KEY)
    core = make_client(resets.token(b"8 bytes!"))
    reset = resets.build_reset(b"8 bytes!", 1200, 0.0)
    assert reset is not None
    core.receive_datagram(reset, ("127.0.0.1", 1), now=0.0)
    assert core.termination is not None
    assert core.is_ended_by_peer


def test_client_when_reset_with_another_token_then_goes_on():
    core = make_client(StatelessResets(bytes(32)).token(b"8 bytes!"))
    reset = StatelessResets(KEY).build_reset(b"8 bytes!", 1200, 0.0)
    assert reset is not None
    core.receive_datagram(reset, ("127.0.0.1", 1), now=0.0)
    assert core.termination is None
