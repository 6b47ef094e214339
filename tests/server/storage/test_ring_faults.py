"""The ring in trouble: planted faults, a kernel that refuses, closing under load, forks."""

from __future__ import annotations

import errno
import gc
import os
import select
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from tests.server.storage.ring_support import (
    NEEDS_RING,
    RingFixtures,
    finish,
    is_resizable,
    open_files_count,
    ring_descriptors,
)

pytestmark = NEEDS_RING


class Token:
    """Something that can be watched, and may refer to anything."""

    ring: object = None


class CuriousBuffer(bytearray):
    """A buffer that uses the ring when it goes."""

    def watch(self, ring, seen):
        """Remember what to use, and where to note what came of it."""
        self.ring, self.seen = ring, seen

    def __del__(self):
        try:
            self.ring.reap()
        except RuntimeError as error:
            self.seen.append(str(error))


class TestRingFaults(RingFixtures):
    """What a ring does when something goes wrong."""

    def test_inject_when_an_error_then_nothing_is_done_and_the_chain_breaks(self, ring, file):
        ring.inject("write", 2, -errno.EIO)
        ring.write("first", file, [b"first"], 0, True)
        ring.fsync("first sync", file, True)
        ring.write("second", file, [b"second"], 0, True)
        ring.fsync("second sync", file, True)

        assert finish(ring, 4) == {
            "first": 5,
            "first sync": 0,
            "second": -errno.EIO,
            "second sync": -errno.ECANCELED,
        }
        assert os.pread(file, 99, 0) == b"first"

    def test_inject_when_each_then_lasts_until_healed(self, ring, file):
        ring.inject("fsync", 0, -errno.EIO)
        for token in range(3):
            ring.fsync(token, file, True)
        assert finish(ring, 3) == dict.fromkeys(range(3), -errno.EIO)

        ring.heal()
        ring.fsync("healed", file, True)

        assert finish(ring, 1) == {"healed": 0}

    def test_inject_when_short_then_really_does_less(self, ring, file):
        ring.inject("write", 0, 7)
        ring.inject("read", 1, 3)
        target = bytearray(b"........")
        ring.write("alone", file, [b"0123456789"], 0, False)
        ring.write("many", file, [b"abcd", b"efgh", b"ijkl"], 7, False)
        results = finish(ring, 2)
        ring.read("read", file, target, 0, 0)

        assert results == {"alone": 7, "many": 7}
        assert os.pread(file, 99, 0) == b"0123456abcdefg"
        assert finish(ring, 1) == {"read": 3}
        assert target == b"012....."

    def test_inject_when_too_many_then_refuses(self, ring):
        for _ in range(16):
            ring.inject("write", 1, -errno.EIO)

        with pytest.raises(ValueError, match="faults"):
            ring.inject("write", 1, -errno.EIO)

    def test_hold_when_released_then_completion_arrives(self, ring, zeros):
        ring.hold("read", 1)
        ring.read("held", zeros, bytearray(8), 0, 0)
        ring.read("free", zeros, bytearray(8), 0, 0)
        ring.submit()

        assert ring.reap() == [("free", 8)]
        assert ring.reap() == []
        assert ring.in_flight == 1
        ring.release()
        assert finish(ring, 1) == {"held": 8}

    def test_submit_when_the_kernel_stops_inside_a_chain_then_the_sync_does_not_overtake(
        self, ring, file
    ):
        ring.inject("submit", 1, 1)
        ring.inject("submit", 2, 0)
        ring.write("write", file, [b"0123456789"], 0, True)
        ring.fsync("sync", file, True)
        ring.fsync("other", file, True)

        assert ring.submit() == 1
        assert ring.prepared == 2
        assert finish(ring, 3) == {"write": 10, "sync": -errno.ECANCELED, "other": 0}

    def test_submit_when_the_kernel_is_busy_then_keeps_all_and_wakes(self, ring, zeros):
        ring.inject("submit", 1, -errno.EAGAIN)
        ring.read("read", zeros, bytearray(8), 0, 0)

        assert ring.submit() == 0
        assert ring.prepared == 1
        assert select.select([ring.eventfd], [], [], 0)[0]
        assert ring.reap() == []
        assert finish(ring, 1) == {"read": 8}

    def test_submit_when_the_kernel_refuses_then_operations_end_with_its_error(self, ring, zeros):
        ring.inject("submit", 1, -errno.EFAULT)
        target = bytearray(8)
        ring.read("read", zeros, target, 0, 0)
        ring.cancel("read")
        ring.fsync("sync", zeros, True)
        ring.submit()

        assert select.select([ring.eventfd], [], [], 0)[0]
        assert dict(ring.reap()) == {"read": -errno.EFAULT, "sync": -errno.EFAULT}
        assert is_resizable(target)
        assert (ring.prepared, ring.in_flight) == (0, 0)

    def test_close_when_writes_are_under_way_then_waits_for_them(self, make_ring, file):
        ring = make_ring()
        content = os.urandom(4 << 20)
        for index in range(4):
            ring.write(
                index,
                file,
                [memoryview(content)[index << 20 : (index + 1) << 20]],
                index << 20,
                False,
            )
        ring.submit()

        ring.close()

        assert os.pread(file, len(content), 0) == content

    def test_close_when_all_kinds_are_under_way_then_lets_go_of_everything(
        self, make_ring, pipe, file
    ):
        count = open_files_count()
        ring = make_ring(4)
        buffers = [bytearray(100) for _ in range(7)]
        token = Token()
        gone = weakref.ref(token)
        ring.hold("write", 1)
        ring.write(token, file, [buffers[0]], 0, False)
        for index in range(1, 6):
            ring.submit()
            ring.read(index, pipe[0], buffers[index], 0, 0)
        ring.submit()
        ring.write("never submitted", file, [buffers[6]], 1 << 20, False)
        del token

        ring.close()
        ring.close()

        assert all(is_resizable(buffer) for buffer in buffers)
        assert gone() is None
        assert open_files_count() == count
        assert os.fstat(file).st_size == 100

    def test_verbs_when_closed_then_are_refused(self, ring):
        ring.close()

        for use in (ring.submit, ring.reap, ring.release, ring.heal, lambda: ring.eventfd):
            with pytest.raises(ValueError, match="closed"):
                use()
        with pytest.raises(ValueError, match="closed"):
            ring.fsync("token", 0, True)
        assert ring.in_flight == 0

    def test_ring_when_forgotten_with_itself_as_a_token_then_is_collected(self, pipe):
        from iggy_ref_server._uring import Ring

        count = open_files_count()
        ring, token, buffer = Ring(4), Token(), bytearray(8)
        token.ring = ring
        gone = weakref.ref(token)
        ring.read(token, pipe[0], buffer, 0, 0)
        ring.submit()

        del ring, token
        gc.collect()

        assert gone() is None
        assert is_resizable(buffer)
        assert open_files_count() == count

    def test_ring_when_its_descriptor_is_closed_by_others_then_leaks_rather_than_frees(self, pipe):
        from iggy_ref_server._uring import Ring

        ring, buffer = Ring(4), bytearray(8)
        [descriptor] = ring_descriptors()
        ring.read("read", pipe[0], buffer, 0, 0)
        ring.submit()
        os.close(descriptor)

        ring.close()

        assert not is_resizable(buffer)

    def test_ring_when_a_destructor_uses_it_meanwhile_then_refuses(self, ring, zeros):
        buffer, seen = CuriousBuffer(8), list[str]()
        buffer.watch(ring, seen)
        ring.read("read", zeros, buffer, 0, 0)
        ring.submit()
        del buffer

        assert ring.reap() == [("read", 8)]
        assert len(seen) == 1
        assert "in use" in seen[0]
        assert ring.room == 8

    def test_ring_when_forked_then_the_child_is_refused_and_the_parent_goes_on(self, tmp_path):
        script = Path(__file__).with_name("forked_ring.py")

        result = subprocess.run(
            [sys.executable, script, tmp_path / "file"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )

        assert (result.returncode, result.stderr) == (0, "")
