"""What the engines offer for waiting: the same behaviour, whatever it is made of."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import current_token

from iggy_sdk.event_loop import event_loop_call_soon, event_loop_clock, wake_event_factory

pytestmark = pytest.mark.anyio


async def test_wake_when_set_then_the_sleeper_goes_on():
    wake = wake_event_factory()()
    woken = []

    async def sleep() -> None:
        await wake.wait()
        woken.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep)
        await anyio.wait_all_tasks_blocked()
        assert not woken
        wake.set()

    assert woken


async def test_wake_when_set_twice_then_the_second_time_says_nothing_new():
    wake = wake_event_factory()()

    wake.set()
    wake.set()

    await wake.wait()


async def test_wake_when_the_sleeper_was_cancelled_then_may_be_set_all_the_same():
    wake = wake_event_factory()()

    async def sleep() -> None:
        await wake.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    wake.set()


async def test_wakes_when_several_are_made_then_each_is_its_own():
    new_wake = wake_event_factory()
    first, second = new_wake(), new_wake()

    first.set()

    with anyio.move_on_after(0) as scope:
        await second.wait()
    assert scope.cancelled_caught


async def test_clock_when_asked_then_tells_the_time_of_the_engine():
    earlier = anyio.current_time()
    now = event_loop_clock()()

    assert earlier <= now <= anyio.current_time()


async def test_function_when_called_soon_then_those_woken_before_have_gone_on():
    soon = event_loop_call_soon()
    if soon is None:
        assert not hasattr(current_token().native_token, "call_soon")
        return
    wake, seen, is_over = wake_event_factory()(), list[str](), anyio.Event()

    async def sleep() -> None:
        await wake.wait()
        seen.append("woken")

    def end() -> None:
        seen.append("called")
        is_over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sleep)
        await anyio.wait_all_tasks_blocked()
        wake.set()
        soon(end)
        await is_over.wait()

    assert seen == ["woken", "called"]
