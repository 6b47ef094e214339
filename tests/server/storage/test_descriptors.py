"""Descriptors close with the last reference, also those of removed files."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest
import trio

from iggy_ref_server.storage.interface import FileSlice
from iggy_ref_server.storage.posix import Descriptor
from iggy_ref_server.storage.threads import ThreadStorage


def is_open(number):
    """Tell whether a number belongs to an open file."""
    try:
        os.fstat(number)
    except OSError as error:
        return error.errno != errno.EBADF
    return True


def test_descriptor_when_unreferenced_then_is_closed(tmp_path):
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    descriptor = Descriptor(number)
    assert is_open(number)

    del descriptor

    assert not is_open(number)


def test_descriptor_when_its_file_was_removed_then_is_closed_elsewhere(tmp_path):
    path = tmp_path / "file"
    number = os.open(path, os.O_RDWR | os.O_CREAT)
    other = os.open(path, os.O_RDWR)
    fcntl.flock(number, fcntl.LOCK_EX)
    path.unlink()
    descriptor = Descriptor(number)

    del descriptor

    fcntl.flock(other, fcntl.LOCK_EX)  # waits until the lock goes with its descriptor
    os.close(other)


def test_descriptor_when_closed_elsewhere_then_no_error(tmp_path):
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    descriptor = Descriptor(number)
    os.close(number)

    del descriptor


@pytest.mark.trio
async def test_file_when_a_slice_refers_to_it_then_stays_open(tmp_path):
    storage = ThreadStorage(tmp_path)
    file = await storage.open("file", create=True)
    assert file.descriptor is not None
    number = file.descriptor
    piece = FileSlice(file, 0, 1)

    del file
    assert is_open(number)
    del piece

    assert not is_open(number)


@pytest.mark.trio
async def test_file_when_a_read_is_under_way_then_stays_open(tmp_path):
    (tmp_path / "file").write_bytes(b"0123456789")
    storage = ThreadStorage(tmp_path)
    results = []

    async def read(file):
        results.append(await file.read(10, 0))

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(read, await storage.open("file"))

    assert results == [b"0123456789"] * 10
