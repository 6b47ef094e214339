"""Steps: every driver meets every kind of need, and nothing is lost when one fails or is ended."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
import trio
import trio.testing

from iggy_ref_server.handoff_lock import HandoffLock
from iggy_ref_server.partitions.steps import (
    NOT_READY,
    AcquireLock,
    Await,
    AwaitShielded,
    Need,
    ReadFile,
    Suspended,
    WriteFile,
    run_async,
    run_if_ready,
    run_in_background,
    run_now,
)
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_ref_server.partitions.steps import Steps

pytestmark = pytest.mark.trio

DISK_ERROR = StorageError("write", "a.log", "planted")

# How a need can be met: at once, by a completion that calls back, by a completion that cannot even
# begin, or by a task.
WAYS = ("now", "completion", "begin", "task")
DRIVERS = ("now", "async", "background")

# Far more than the depth of the stack that Python allows.
MANY = 10_000


class PlannedNeed(Need):
    """A need that is met, or fails, in the way that the test chose."""

    def __init__(self, way: str, result: object = None, error: Exception | None = None) -> None:
        self.way = way
        self.result = result
        self.error = error
        self.performed_count = 0

    def try_now(self) -> Any:
        """Tell the result if the way is ``now``."""
        return self._outcome() if self.way == "now" else NOT_READY

    def begin(self, done: Callable[[Any], None]) -> bool:
        """Call back from the event loop, as the completion of a disk operation does."""
        if self.way == "begin" and self.error is not None:
            raise self.error
        if self.way != "completion":
            return False
        trio.lowlevel.current_trio_token().run_sync_soon(done, self.error)
        return True

    async def perform(self) -> Any:
        """Wait for a moment."""
        self.performed_count += 1
        await trio.lowlevel.checkpoint()
        return self._outcome()

    def _outcome(self) -> object:
        if self.error is not None:
            raise self.error
        return self.result


async def drive(driver: str, steps: Steps[Any]) -> Any:
    """Run steps to their end with a driver, and return their result."""
    if driver == "async":
        return await run_async(steps)
    if driver == "now":
        outcome = run_now(steps)
        return await outcome.finish() if isinstance(outcome, Suspended) else outcome
    results: list[Any] = []
    ended = trio.Event()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            run_in_background(keep_result(steps, results, ended), nursery)
            await ended.wait()
    [result] = results
    return result


def keep_result(steps: Steps[Any], results: list[Any], ended: trio.Event) -> Steps[None]:
    """Keep the result, which is of no use to the background."""
    try:
        results.append((yield from steps))
    finally:
        ended.set()


def gather(needs: Sequence[Need]) -> Steps[list[Any]]:
    """Collect the results of needs, or their errors."""
    results: list[Any] = []
    for need in needs:
        try:
            results.append((yield need))
        except (StorageError, ValueError) as error:
            results.append(error)
    return results


def under_lock(lock: HandoffLock, *needs: Need) -> Steps[Any]:
    """Acquire a lock, and hold it until all needs are met."""
    yield AcquireLock(lock)
    try:
        yield from needs
    finally:
        lock.release()
    return "end"


async def ended_nursery() -> trio.Nursery:
    """Make a nursery that takes no more tasks."""
    async with trio.open_nursery() as nursery:
        pass
    return nursery


# ---- needs that are met


@pytest.mark.parametrize("driver", ["now", "async"])
async def test_needs_when_met_at_once_then_there_is_no_checkpoint(driver):
    with trio.CancelScope() as scope:
        scope.cancel()
        result = await drive(driver, gather([PlannedNeed("now", number) for number in range(3)]))

    assert result == [0, 1, 2]
    assert not scope.cancelled_caught


async def test_needs_when_met_at_once_in_the_background_then_there_is_no_task(nursery):
    results: list[Any] = []
    steps = gather([PlannedNeed("now", number) for number in range(3)])

    run_in_background(keep_result(steps, results, trio.Event()), nursery)

    assert results == [[0, 1, 2]]
    assert not nursery.child_tasks


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("ways", list(product(WAYS, repeat=3)), ids="-".join)
async def test_needs_when_met_in_any_mixture_then_each_result_is_sent_once(driver, ways):
    # A completion has no result.
    expected = [None if way == "completion" else number for number, way in enumerate(ways)]
    needs = [PlannedNeed(way, result) for way, result in zip(ways, expected, strict=True)]

    assert await drive(driver, gather(needs)) == expected


@pytest.mark.parametrize("way", ["completion", "begin", "task"])
async def test_steps_when_they_would_have_to_wait_then_run_if_ready_closes_them(way):
    lock, need = HandoffLock(), PlannedNeed(way)

    assert run_if_ready(under_lock(lock, PlannedNeed("now"), need)) is None

    assert not lock.is_locked
    assert not need.performed_count


async def test_steps_when_nothing_has_to_wait_then_run_if_ready_returns_their_result():
    lock = HandoffLock()

    assert run_if_ready(under_lock(lock, PlannedNeed("now"))) == "end"

    assert not lock.is_locked


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("is_slow", [False, True])
async def test_file_when_written_and_read_by_any_driver_then_has_the_bytes(driver, sync, is_slow):
    plan = FaultPlan()
    storage = SimulatedStorage(plan)
    file = await storage.open("a.log", create=True)
    if is_slow:
        plan.refuse()
        plan.uncache()

    written = WriteFile(file, [b"ab", b"c"], 0, sync=sync)
    results = await drive(driver, gather([written, ReadFile(file, 9, 1)]))

    assert results == [None, b"bc"]


# ---- errors


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("error", [DISK_ERROR, ValueError("planted")], ids=["disk", "other"])
async def test_error_when_the_body_catches_it_then_the_steps_go_on(driver, way, place, error):
    needs = [PlannedNeed("completion") for _ in range(3)]
    needs[place] = PlannedNeed(way, error=error)

    results = await drive(driver, gather(needs))

    expected: list[object] = [None] * 3
    expected[place] = error
    assert results == expected
    is_begun = driver == "background" and way in {"completion", "begin"}
    assert needs[place].performed_count == (0 if way == "now" or is_begun else 1)


async def test_error_when_the_body_catches_it_at_once_then_run_if_ready_goes_on():
    needs = [PlannedNeed("now", error=DISK_ERROR), PlannedNeed("now", 1)]

    assert run_if_ready(gather(needs)) == [DISK_ERROR, 1]


@pytest.mark.parametrize("driver", ["now", "async"])
@pytest.mark.parametrize("way", WAYS)
async def test_error_when_not_caught_then_the_caller_gets_it_and_the_lock_is_free(driver, way):
    lock = HandoffLock()

    with pytest.raises(StorageError) as caught:
        await drive(driver, under_lock(lock, PlannedNeed(way, error=DISK_ERROR)))

    assert caught.value is DISK_ERROR
    assert not lock.is_locked


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("earlier", WAYS)
async def test_error_when_not_caught_in_the_background_then_it_ends_the_nursery(earlier, way):
    lock = HandoffLock()
    steps = under_lock(lock, PlannedNeed(earlier), PlannedNeed(way, error=DISK_ERROR))

    async def run_until_it_ends() -> None:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                run_in_background(steps, nursery)
                await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await run_until_it_ends()

    assert caught.value.exceptions == (DISK_ERROR,)
    assert not lock.is_locked


@pytest.mark.parametrize("way", ["now", "completion", "begin"])
async def test_error_when_the_nursery_has_ended_then_it_is_logged(way, caplog):
    lock = HandoffLock()

    steps = under_lock(lock, PlannedNeed(way, error=DISK_ERROR))
    run_in_background(steps, await ended_nursery())
    await trio.testing.wait_all_tasks_blocked()

    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is DISK_ERROR
    assert not lock.is_locked


# ---- cancellation


class Gates:
    """Calls that wait until the test lets them go on."""

    def __init__(self) -> None:
        self.open = defaultdict[str, trio.Event](trio.Event)
        self.passed: list[str] = []

    async def wait(self, name: str) -> None:
        """Wait for one gate."""
        await self.open[name].wait()
        self.passed.append(name)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("driver", DRIVERS)
async def test_steps_when_cancelled_at_any_wait_then_the_lock_is_free(driver, place):
    names = ["lock", "read", "write", "read again"]
    lock, gates = HandoffLock(), Gates()
    lock.acquire_nowait()
    steps = under_lock(
        lock,
        Await(gates.wait, "read"),
        AwaitShielded(gates.wait, "write"),
        Await(gates.wait, "read again"),
    )

    async with trio.open_nursery() as nursery:
        if driver == "background":
            run_in_background(steps, nursery)
        else:
            nursery.start_soon(drive, driver, steps)
        for name in names[:place]:
            lock.release() if name == "lock" else gates.open[name].set()
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            if names[place] == "write":
                assert lock.is_locked, "what changes files is finished first"
                gates.open["write"].set()
                gates.open["read again"].set()
            if names[place] == "lock":
                lock.release()

    passed = names[1:place] + (["write"] if names[place] == "write" else [])
    assert gates.passed == passed
    assert not lock.is_locked


async def test_waiter_when_cancelled_then_the_next_one_gets_the_lock():
    lock, ends = HandoffLock(), list[str]()
    lock.acquire_nowait()

    def note(name: str) -> Steps[None]:
        yield from under_lock(lock)
        ends.append(name)

    async with trio.open_nursery() as outer, trio.open_nursery() as inner:
        run_in_background(note("first"), inner)
        await trio.testing.wait_all_tasks_blocked()
        run_in_background(note("second"), outer)
        await trio.testing.wait_all_tasks_blocked()
        inner.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
        lock.release()

    assert ends == ["second"]
    assert not lock.is_locked


# ---- steps that are closed


async def test_steps_when_closed_while_they_hold_a_lock_then_it_is_free():
    lock, need = HandoffLock(), PlannedNeed("task")

    suspended = run_now(under_lock(lock, need))
    assert isinstance(suspended, Suspended)
    assert not lock.acquire_nowait()
    suspended.close()

    assert not lock.is_locked
    assert not need.performed_count


async def test_steps_when_closed_while_they_need_a_lock_then_its_holder_keeps_it():
    lock = HandoffLock()
    lock.acquire_nowait()

    suspended = run_now(under_lock(lock))
    assert isinstance(suspended, Suspended)
    suspended.close()

    assert lock.is_locked
    lock.release()
    assert await run_async(under_lock(lock)) == "end"


@pytest.mark.parametrize("way", ["task", "begin"])
async def test_steps_when_the_nursery_has_ended_then_they_are_closed(way):
    lock, need = HandoffLock(), PlannedNeed(way)

    run_in_background(under_lock(lock, need), await ended_nursery())

    assert not lock.is_locked
    assert not need.performed_count


async def test_completion_when_the_nursery_has_ended_then_goes_on_up_to_the_next_task():
    lock = HandoffLock()
    needs = [PlannedNeed("completion"), PlannedNeed("now"), PlannedNeed("task")]

    run_in_background(under_lock(lock, *needs), await ended_nursery())
    assert not lock.acquire_nowait(), "what was begun is seen through"
    await trio.testing.wait_all_tasks_blocked()

    assert not lock.is_locked
    assert not needs[-1].performed_count


async def test_completions_when_the_nursery_has_ended_then_they_bring_the_steps_to_their_end():
    results: list[Any] = []
    ended = trio.Event()
    steps = gather([PlannedNeed("completion") for _ in range(3)])

    run_in_background(keep_result(steps, results, ended), await ended_nursery())
    await ended.wait()

    assert results == [[None, None, None]]


# ---- many needs


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", [None, DISK_ERROR], ids=["met", "failing"])
async def test_needs_when_there_are_thousands_then_the_stack_does_not_grow(driver, way, error):
    results = await drive(driver, gather([PlannedNeed(way, error=error)] * MANY))

    assert results == [error] * MANY
