"""What tests of io_uring share: marks that skip them where there is none, and what they count."""

from __future__ import annotations

import os
import select
import sys

import pytest

from iggy_ref_server.storage.files import WritebackLimit

__all__ = [
    "NEEDS_RING",
    "RingFixtures",
    "finish",
    "is_resizable",
    "make_storage",
    "open_files_count",
    "reference_counts",
    "ring_descriptors",
]


def reason_against() -> str:
    """Say why there can be no ring here; nothing if there can."""
    try:
        from iggy_ref_server._uring import Ring
    except ImportError as error:
        return f"needs the C extension: {error}"
    if not hasattr(Ring, "inject"):
        return "needs a ring that can be told to fail, which `make setup` builds"
    try:
        Ring(2).close()
    except OSError as error:
        return f"needs io_uring from the kernel: cannot {error.filename}: {error.strerror}"
    return ""


REASON = reason_against()
NEEDS_RING = [pytest.mark.uring, pytest.mark.skipif(bool(REASON), reason=REASON or "none")]


def make_storage(root, entries=256):
    """Make a storage on a disk that is never slow."""
    from iggy_ref_server.storage.uring import UringStorage

    return UringStorage(root, writeback_limit=WritebackLimit(clock=lambda: 0.0), entries=entries)


def reference_counts(things):
    """Count who refers to each of some things."""
    return [sys.getrefcount(thing) for thing in things]


def is_resizable(buffer):
    """Tell whether nobody holds a buffer, by making it longer."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    return True


def open_files_count():
    """Count the open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def ring_descriptors():
    """List the descriptors of all rings in this process."""
    return [number for number in map(int, os.listdir("/proc/self/fd")) if is_ring(number)]


def is_ring(number):
    """Tell whether a descriptor, perhaps gone already, is a ring."""
    try:
        return "io_uring" in os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return False


def finish(ring, count):
    """Submit, and reap until so many operations have completed."""
    completions: list[tuple[object, int]] = []
    ring.submit()
    while len(completions) < count:
        readable, _, _ = select.select([ring.eventfd], [], [], 10)
        assert readable, "nothing completes"
        completions += ring.reap()
        ring.submit()
    return dict(completions)


class RingFixtures:
    """Rings and files for tests that do without a loop."""

    @pytest.fixture
    def make_ring(self):
        """Make rings that are closed at the end."""
        from iggy_ref_server._uring import Ring

        made = []

        def make(entries=8):
            made.append(Ring(entries))
            return made[-1]

        yield make
        for ring in made:
            ring.close()

    @pytest.fixture
    def ring(self, make_ring):
        """Make a ring of ordinary size."""
        return make_ring()

    @pytest.fixture
    def file(self, tmp_path):
        """Open an empty file."""
        descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        yield descriptor
        os.close(descriptor)

    @pytest.fixture
    def pipe(self):
        """Make a pipe, whose reading end makes a reader wait for ever."""
        ends = os.pipe()
        yield ends
        for end in ends:
            os.close(end)

    @pytest.fixture
    def zeros(self):
        """Open a file whose reads are done before their submission returns."""
        descriptor = os.open("/dev/zero", os.O_RDONLY)
        yield descriptor
        os.close(descriptor)
