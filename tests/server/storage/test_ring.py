"""The ring itself, without a loop: operations prepared, submitted and reaped."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from tests.server.storage.ring_support import (
    NEEDS_RING,
    RingFixtures,
    finish,
    is_resizable,
    reference_counts,
)

pytestmark = NEEDS_RING


class TestRing(RingFixtures):
    """What a ring does when all is well, and what it refuses."""

    def test_write_when_finished_then_content_and_counts_are_right(self, ring, file):
        assert ring.write("one", file, [b"0123456789"], 0, False) == 10
        assert (
            ring.write("many", file, [b"a", bytearray(b"bc"), b"", memoryview(b"def")], 12, False)
            == 6
        )

        assert finish(ring, 2) == {"one": 10, "many": 6}
        assert os.pread(file, 99, 0) == b"0123456789\0\0abcdef"

    def test_write_when_linked_then_sync_follows(self, ring, file):
        ring.write("write", file, [b"0123456789"], 0, True)
        ring.fsync("sync", file, True)
        ring.fsync("sync all", file, False)

        assert finish(ring, 3) == {"write": 10, "sync": 0, "sync all": 0}

    def test_write_when_cut_short_by_the_kernel_then_the_linked_sync_is_left_out(self, ring, file):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (6, hard))
        try:
            ring.write("write", file, [b"0123456789"], 0, True)
            ring.fsync("sync", file, True)
            results = finish(ring, 2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

        assert results == {"write": 6, "sync": -errno.ECANCELED}
        assert os.pread(file, 99, 0) == b"012345"

    def test_read_when_finished_then_target_is_filled_from_its_start(self, ring, file):
        from iggy_ref_server._uring import blank

        os.pwrite(file, b"0123456789", 0)
        target, fresh = bytearray(b"......"), blank(4)
        assert ring.read("inside", file, target, 2, 5) == 4
        assert ring.read("fresh", file, fresh, 0, 0) == 4
        assert ring.read("beyond", file, bytearray(4), 0, 10) == 4
        assert ring.read("short", file, bytearray(4), 0, 8) == 4

        assert finish(ring, 4) == {"inside": 4, "fresh": 4, "beyond": 0, "short": 2}
        assert target == b"..5678"
        assert fresh == b"0123"

    def test_operation_when_the_kernel_fails_then_result_is_the_error_number(self, ring, pipe):
        ring.write("write", pipe[0], [b"abc"], 0, False)
        ring.fsync("sync", pipe[0], True)

        assert finish(ring, 2) == {"write": -errno.EBADF, "sync": -errno.EINVAL}

    @pytest.mark.parametrize(
        ("verb", "arguments", "error"),
        [
            ("write", ("t", 0, [], 0, False), ValueError),
            ("write", ("t", 0, [b""] * 1025, 0, False), ValueError),
            ("write", ("t", 0, [b"", "text"], 0, False), TypeError),
            ("write", ("t", 0, 5, 0, False), TypeError),
            ("write", ("t", 0, [b""], -1, False), ValueError),
            ("write", ("t", -1, [b""], 0, False), ValueError),
            ("write", ("t", "0", [b""], 0, False), TypeError),
            ("write", ("t", 0, [b""], 1 << 64, False), OverflowError),
            ("write", ("t", 0, [b""], 0), TypeError),
            ("write", ("t", 0, [memoryview(b"abcd")[::2]], 0, False), BufferError),
            ("read", ("t", 0, memoryview(b"read only"), 0, 0), BufferError),
            ("read", ("t", 0, bytearray(4), 4, 0), ValueError),
            ("read", ("t", 0, bytearray(4), -1, 0), ValueError),
            ("read", ("t", 0, bytearray(4), "0", 0), TypeError),
            ("read", ("t", 0, bytearray(4), 0, -1), ValueError),
            ("read", ("t", 0, bytearray(4), 0), TypeError),
            ("fsync", ("t", -5, True), ValueError),
            ("fsync", ("t", 0), TypeError),
            ("inject", ("rename", 1, -5), ValueError),
            ("inject", ("fsync", 1, 5), ValueError),
            ("hold", ("submit", 1), ValueError),
        ],
    )
    def test_verb_when_arguments_are_wrong_then_refuses_and_keeps_nothing(
        self, ring, verb, arguments, error
    ):
        with pytest.raises(error):
            getattr(ring, verb)(*arguments)

        assert (ring.room, ring.prepared, ring.in_flight) == (8, 0, 0)

    @pytest.mark.parametrize("entries", [0, -1, 1 << 20])
    def test_ring_when_its_size_is_impossible_then_refuses(self, make_ring, entries):
        with pytest.raises(ValueError, match="entries"):
            make_ring(entries)

    def test_ring_when_descriptors_are_exhausted_then_says_which_step_failed(self, make_ring):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(OSError, match="set up io_uring") as caught:
                make_ring()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        assert caught.value.errno == errno.EMFILE

    def test_blank_when_asked_for_nothing_then_refuses(self):
        from iggy_ref_server._uring import blank

        with pytest.raises(ValueError, match="0 bytes"):
            blank(0)

    def test_buffers_when_under_way_then_are_held_and_afterwards_free(self, ring, file):
        things = [bytearray(b"abc"), bytearray(b"def"), bytearray(6), object()]
        counts = reference_counts(things)
        ring.hold("write", 1)
        ring.hold("read", 1)
        ring.write(things[3], file, things[:2], 0, False)
        ring.read(things[3], file, things[2], 0, 0)
        ring.submit()
        assert not any(is_resizable(buffer) for buffer in things[:3])
        ring.release()

        finish(ring, 2)

        assert all(is_resizable(buffer) for buffer in things[:3])
        assert reference_counts(things) == counts

    def test_submission_queue_when_full_then_refuses_until_submitted(self, make_ring, zeros):
        ring = make_ring(2)
        targets = [bytearray(8) for _ in range(8)]
        for round_number in range(4):
            assert ring.room == 2
            for index in (0, 1):
                ring.read(2 * round_number + index, zeros, targets[2 * round_number + index], 0, 0)
            with pytest.raises(BlockingIOError):
                ring.read("more", zeros, bytearray(8), 0, 0)
            ring.submit()

        assert (ring.room, ring.in_flight) == (0, 8)
        with pytest.raises(BlockingIOError):
            ring.fsync("more", zeros, True)
        assert finish(ring, 8) == dict.fromkeys(range(8), 8)
        assert ring.room == 2

    def test_completions_when_more_than_the_queue_holds_then_none_is_lost(self, make_ring, zeros):
        ring = make_ring(1)  # whose completion queue has two entries
        for token in range(4):
            ring.read(token, zeros, bytearray(8), 0, 0)
            ring.submit()

        assert dict(ring.reap()) == dict.fromkeys(range(4), 8)
        assert ring.reap() == []

    def test_submit_when_many_are_prepared_then_the_kernel_is_entered_once(self, ring, zeros):
        for token in range(8):
            ring.read(token, zeros, bytearray(8), 0, 0)

        assert ring.submit() == 8
        assert ring.submissions == 1
        assert ring.submit() == 0
        assert ring.submissions == 1

    def test_cancel_when_a_read_waits_for_ever_then_it_ends(self, ring, pipe):
        token, other = object(), object()
        ring.read(token, pipe[0], bytearray(8), 0, 0)
        ring.read(other, pipe[0], bytearray(8), 0, 0)
        ring.submit()

        assert ring.cancel(token) is True
        assert finish(ring, 1) == {token: -errno.ECANCELED}
        assert ring.cancel(token) is False
        os.write(pipe[1], b"abc")
        assert finish(ring, 1) == {other: 3}

    def test_cancel_when_there_is_no_room_then_says_so(self, make_ring, pipe):
        ring = make_ring(1)
        ring.read("wait", pipe[0], bytearray(8), 0, 0)

        assert ring.cancel("wait") is False
