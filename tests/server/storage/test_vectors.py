"""Many buffers as one run of bytes, on real files and with the kernel's own short writes."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.storage.posix import (
    BUFFERS_MAX,
    locate_byte,
    total_size,
    write_all,
    write_from,
)

BUFFERS = st.lists(
    st.one_of(
        st.binary(max_size=9),
        st.binary(max_size=9).map(bytearray),
        st.binary(max_size=9).map(lambda content: memoryview(content)),
        st.integers(0, 3).map(lambda count: memoryview(bytes(range(8 * count))).cast("Q")),
    ),
    max_size=12,
)


@contextmanager
def size_limit(size):
    """Make the kernel write no file beyond a size; the output of the tests may be such a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@given(BUFFERS, st.integers(0, 5))
def test_write_all_when_given_any_buffers_then_writes_them_in_order(buffers, position):
    with tempfile.TemporaryFile() as file:
        write_all(file.fileno(), buffers, position)
        content = file.read()

    joined = b"".join(buffers)
    assert content == (bytes(position) + joined if joined else b"")
    assert total_size(buffers) == len(joined)


@given(BUFFERS, st.data())
def test_locate_when_bytes_are_skipped_then_the_rest_begins_there(buffers, data):
    skip = data.draw(st.integers(0, total_size(buffers)))

    index, inside = locate_byte(buffers, 0, skip)

    rest = b"".join(buffers[index:])[inside:]
    assert rest == b"".join(buffers)[skip:]
    assert index == len(buffers) or inside < total_size(buffers[index : index + 1])


def test_write_all_when_more_buffers_than_one_call_takes_then_all_are_written(tmp_path):
    buffers = [b"%04d" % number for number in range(3 * BUFFERS_MAX + 1)]
    path = tmp_path / "file"
    path.touch()
    descriptor = os.open(path, os.O_RDWR)

    write_all(descriptor, buffers, 0)

    os.close(descriptor)
    assert path.read_bytes() == b"".join(buffers)


def test_write_from_when_begun_inside_a_buffer_then_writes_the_rest(tmp_path):
    path = tmp_path / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    written = write_from(descriptor, [b"0123", memoryview(b"abcdefgh").cast("I"), b"xyz"], 1, 3, 0)

    os.close(descriptor)
    assert written == 8
    assert path.read_bytes() == b"defghxyz"


def test_write_all_when_the_kernel_stops_inside_a_buffer_then_what_fits_is_written(tmp_path):
    path = tmp_path / "file"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    buffers = [bytearray(b"0123456789"), bytearray(b""), bytearray(b"abcdefghij")]

    with pytest.raises(OSError) as caught, size_limit(15):
        write_all(descriptor, buffers, 0)

    os.close(descriptor)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"0123456789abcde"
    for buffer in buffers:  # nobody holds them, not even the traceback
        buffer.extend(b"more")
