"""Frames and logs as bytes: what is good, what is torn, what is damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import PayloadCipher
from iggy_ref_server.metadata.errors import MetadataDamaged, MetadataKeyMismatch
from iggy_ref_server.metadata.log import (
    FRAME_HEADER_SIZE,
    HEADER_SIZE,
    FrameCipher,
    check_header,
    decrypt_payload,
    encode_frame,
    file_header,
    intact_frames,
    read_frame,
    scan_log,
)

MAGIC = b"iggymeta"
KEY = FrameCipher(PayloadCipher(bytes(range(32))))
OTHER_KEY = FrameCipher(PayloadCipher(bytes(32)))


def log_of(*versions: int) -> bytes:
    """Write a log with one small frame for each version."""
    return file_header(MAGIC) + b"".join(frame_of(version) for version in versions)


def frame_of(version: int) -> bytes:
    return encode_frame(version, 1, b"change %d" % version)


FRAME_SIZE = len(frame_of(1))


@given(version=st.integers(0, 2**64 - 1), payload=st.binary(max_size=50), before=st.binary())
def test_frame_when_read_anywhere_then_is_what_was_written(version, payload, before):
    frame = read_frame(before + encode_frame(version, 7, payload) + b"after", len(before))

    assert frame is not None
    assert (frame.version, frame.timestamp_us, frame.payload) == (version, 7, payload)
    assert frame.end == len(before) + FRAME_HEADER_SIZE + len(payload)


@given(bit=st.integers(0, FRAME_SIZE * 8 - 1))
def test_frame_when_any_bit_is_flipped_then_is_no_frame(bit):
    data = bytearray(frame_of(5))
    data[bit // 8] ^= 1 << bit % 8

    assert read_frame(bytes(data), 0) is None


@pytest.mark.parametrize("size", range(FRAME_SIZE))
def test_frame_when_cut_then_is_no_frame(size):
    assert read_frame(frame_of(5)[:size], 0) is None


def test_frame_when_sealed_then_shows_nothing_and_opens_with_the_key_alone():
    data = encode_frame(1, 1, b"secret", KEY)
    frame = read_frame(data, 0)

    assert frame is not None
    assert b"secret" not in data
    assert decrypt_payload(frame, KEY, "log") == b"secret"
    for frame_cipher in (None, OTHER_KEY):
        with pytest.raises(MetadataKeyMismatch, match=r"system\.encryption\.key"):
            decrypt_payload(frame, frame_cipher, "log")


def test_frame_when_sealed_twice_then_the_bytes_differ():
    assert encode_frame(1, 1, b"secret", KEY) != encode_frame(1, 1, b"secret", KEY)


def test_frame_when_plain_then_needs_no_key():
    frame = read_frame(frame_of(1), 0)

    assert frame is not None
    assert decrypt_payload(frame, KEY, "log") == b"change 1"


@pytest.mark.parametrize("data", [b"", MAGIC, b"iggysnap".ljust(HEADER_SIZE, b"\0"), bytes(99)])
def test_head_when_of_another_kind_then_is_refused(data):
    with pytest.raises(MetadataDamaged, match="does not start"):
        check_header(data, MAGIC, "log")


def test_head_when_of_a_newer_server_then_says_so():
    with pytest.raises(MetadataDamaged, match="newer server"):
        check_header(MAGIC + b"\x02" + bytes(7), MAGIC, "log")


def test_scan_when_all_is_well_then_reads_every_frame():
    scan = scan_log(log_of(4, 5, 6), "log")

    assert [frame.version for frame in scan.frames] == [4, 5, 6]
    assert (scan.end, scan.torn_size) == (HEADER_SIZE + 3 * FRAME_SIZE, 0)


@pytest.mark.parametrize("size", range(1, FRAME_SIZE))
def test_scan_when_the_last_frame_is_cut_then_leaves_it_out(size):
    scan = scan_log(log_of(1, 2) + frame_of(3)[:size], "log")

    assert [frame.version for frame in scan.frames] == [1, 2]
    assert scan.torn_size == size


@given(tail=st.binary(min_size=1, max_size=120))
def test_scan_when_followed_by_anything_then_leaves_it_out(tail):
    scan = scan_log(log_of(1, 2) + tail, "log")

    assert [frame.version for frame in scan.frames] == [1, 2]
    assert scan.torn_size == len(tail)


@given(bit=st.integers(0, 2 * FRAME_SIZE * 8 - 1))
def test_scan_when_a_bit_in_the_middle_is_flipped_then_refuses(bit):
    data = bytearray(log_of(1, 2, 3))
    data[HEADER_SIZE + bit // 8] ^= 1 << bit % 8

    with pytest.raises(MetadataDamaged, match="iggy-server repair") as damage:
        scan_log(bytes(data), "log")

    assert damage.value.position == HEADER_SIZE + bit // 8 // FRAME_SIZE * FRAME_SIZE


def test_scan_when_a_change_is_missing_then_refuses():
    with pytest.raises(MetadataDamaged, match="change 2 is damaged, but change 3 follows"):
        scan_log(log_of(1, 3), "log")


def test_scan_when_older_changes_follow_then_they_are_remains_and_left_out():
    scan = scan_log(log_of(7) + frame_of(3)[5:] + frame_of(4) + frame_of(5), "log")

    assert [frame.version for frame in scan.frames] == [7]
    assert scan.torn_size == 3 * FRAME_SIZE - 5


def test_scan_when_a_torn_change_hides_remains_that_a_snapshot_holds_then_leaves_all_out():
    data = file_header(MAGIC) + frame_of(6)[:9] + frame_of(1)[9:] + frame_of(2)

    assert scan_log(data, "log", known_version=5).frames == ()
    with pytest.raises(MetadataDamaged):
        scan_log(data, "log", known_version=1)


def test_good_frames_when_damage_lies_between_then_finds_all_others():
    data = log_of(1) + b"damage" + frame_of(3) + frame_of(4)[:-1] + frame_of(5)

    assert [frame.version for frame in intact_frames(data, HEADER_SIZE)] == [1, 3, 5]
