"""Busy polling, for a short time and as long as it finds work."""

from __future__ import annotations

import pytest
import trio

from iggy_ref_server.net.busy_poll import MISSES_MAX, SPIN_S, BusyPoll


class Work:
    """Work that comes at a time, on a clock that each probe moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.probes_count = 0
        self.comes_at = float("inf")

    def is_ready(self) -> bool:
        """Tell whether there is work."""
        self.now += SPIN_S / 10
        self.probes_count += 1
        return self.now >= self.comes_at

    def clock(self) -> float:
        """Tell the time."""
        return self.now


@pytest.fixture
def work():
    """Make work that never comes."""
    return Work()


@pytest.fixture
def busy_poll(work):
    """Make a poll of it."""
    return BusyPoll(work.is_ready, clock=work.clock)


def test_poll_when_work_comes_in_time_then_finds_it_every_time(work, busy_poll):
    for _ in range(100):
        work.comes_at = work.now + SPIN_S / 2
        assert busy_poll.poll()


def test_poll_when_there_is_no_work_then_spins_for_its_time_only(work, busy_poll):
    assert not busy_poll.poll()

    assert work.now == pytest.approx(SPIN_S, rel=0.2)


def test_poll_when_there_is_never_work_then_hardly_probes(work, busy_poll):
    times = 100_000

    assert not any(busy_poll.poll() for _ in range(times))

    moments = work.probes_count / 10
    assert moments < MISSES_MAX + times / 1000 + 5


def test_poll_when_work_comes_after_misses_then_polls_again(work, busy_poll):
    for _ in range(5_000):
        busy_poll.poll()
    work.comes_at = 0.0

    paid = [busy_poll.poll() for _ in range(2_000)]

    first = paid.index(True)
    assert first < 1 << MISSES_MAX
    assert all(paid[first:])


@pytest.mark.trio
async def test_poll_with_checkpoints_when_it_polls_then_other_tasks_run_meanwhile(work, busy_poll):
    others_count = 0

    async def count() -> None:
        nonlocal others_count
        while True:
            others_count += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        work.comes_at = work.now + SPIN_S / 2
        assert await busy_poll.poll_with_checkpoints()
        paid_after = others_count
        work.comes_at = float("inf")
        assert not await busy_poll.poll_with_checkpoints()
        nursery.cancel_scope.cancel()

    assert paid_after >= 4
    assert others_count - paid_after >= 9


@pytest.mark.trio
async def test_poll_with_checkpoints_when_there_is_no_work_then_backs_off_as_long(work, busy_poll):
    times = 2_000

    paid = [await busy_poll.poll_with_checkpoints() for _ in range(times)]

    assert not any(paid)
    assert work.probes_count / 10 < MISSES_MAX + times / 1000 + 5
