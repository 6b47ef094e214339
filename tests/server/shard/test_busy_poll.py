"""Looking around for a moment, as long as that pays."""

from __future__ import annotations

import pytest
import trio

from iggy_ref_server.net.busy_poll import MISSES_MAX, SPIN_S, BusyPoll


class Street:
    """Something to look at, with a clock that moves when somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks_count = 0
        self.comes_at = float("inf")

    def is_ready(self) -> bool:
        """See whether somebody comes."""
        self.now += SPIN_S / 10
        self.looks_count += 1
        return self.now >= self.comes_at

    def clock(self) -> float:
        """Tell the time."""
        return self.now


@pytest.fixture
def street():
    """Make an empty street."""
    return Street()


@pytest.fixture
def patience(street):
    """Make somebody who looks at it."""
    return BusyPoll(street.is_ready, clock=street.clock)


def test_poll_when_work_comes_in_time_then_finds_it_every_time(street, patience):
    for _ in range(100):
        street.comes_at = street.now + SPIN_S / 2
        assert patience.poll()


def test_poll_when_there_is_no_work_then_spins_for_its_time_only(street, patience):
    assert not patience.poll()

    assert street.now == pytest.approx(SPIN_S, rel=0.2)


def test_poll_when_there_is_never_work_then_hardly_probes(street, patience):
    times = 100_000

    assert not any(patience.poll() for _ in range(times))

    moments = street.looks_count / 10
    assert moments < MISSES_MAX + times / 1000 + 5


def test_poll_when_work_comes_after_misses_then_polls_again(street, patience):
    for _ in range(5_000):
        patience.poll()
    street.comes_at = 0.0

    paid = [patience.poll() for _ in range(2_000)]

    first = paid.index(True)
    assert first < 1 << MISSES_MAX
    assert all(paid[first:])


@pytest.mark.trio
async def test_poll_with_checkpoints_when_it_polls_then_other_tasks_run_meanwhile(street, patience):
    others_count = 0

    async def work() -> None:
        nonlocal others_count
        while True:
            others_count += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        street.comes_at = street.now + SPIN_S / 2
        assert await patience.poll_with_checkpoints()
        paid_after = others_count
        street.comes_at = float("inf")
        assert not await patience.poll_with_checkpoints()
        nursery.cancel_scope.cancel()

    assert paid_after >= 4
    assert others_count - paid_after >= 9


@pytest.mark.trio
async def test_poll_with_checkpoints_when_there_is_no_work_then_backs_off_as_long(street, patience):
    times = 2_000

    paid = [await patience.poll_with_checkpoints() for _ in range(times)]

    assert not any(paid)
    assert street.looks_count / 10 < MISSES_MAX + times / 1000 + 5
