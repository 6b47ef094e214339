"""A lock that another task may release."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_ref_server.handoff_lock import HandoffLock

pytestmark = pytest.mark.trio


async def test_lock_when_released_by_another_task_then_the_first_waiter_gets_it():
    lock, order = HandoffLock(), []

    async def work(name):
        async with lock:
            order.append(name)
            await trio.testing.wait_all_tasks_blocked()

    assert lock.acquire_nowait()
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(work, name)
            await trio.testing.wait_all_tasks_blocked()
        assert not lock.acquire_nowait()
        assert order == []
        lock.release()
        assert not lock.acquire_nowait(), "it was handed on, no other task may take it"

    assert order == ["a", "b", "c"]
    assert not lock.is_locked


@pytest.mark.parametrize("way", ["take", "with"])
async def test_lock_when_a_waiter_is_cancelled_then_the_next_gets_it(way):
    lock, got = HandoffLock(), []

    async def wait(name, scope):
        with scope:
            if way == "take":
                await lock.acquire()
            else:
                await lock.__aenter__()
            got.append(name)
            lock.release()

    lock.acquire_nowait()
    scopes = [trio.CancelScope(), trio.CancelScope()]
    async with trio.open_nursery() as nursery:
        for name, scope in enumerate(scopes):
            nursery.start_soon(wait, name, scope)
            await trio.testing.wait_all_tasks_blocked()
        scopes[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        lock.release()

    assert got == [1]
    assert not lock.is_locked


async def test_take_when_cancelled_then_nothing_is_held():
    lock = HandoffLock()
    with trio.CancelScope() as scope:
        scope.cancel()
        await lock.acquire()

    assert scope.cancelled_caught
    assert not lock.is_locked


async def test_with_when_free_then_others_may_run_and_take_does_not_let_them():
    lock = HandoffLock()
    with trio.testing.assert_checkpoints():
        async with lock:
            pass
    with trio.testing.assert_no_checkpoints():
        assert lock.acquire_nowait()
        lock.release()


async def test_lock_when_free_then_it_cannot_be_released():
    with pytest.raises(AssertionError):
        HandoffLock().release()
