"""The tool that cancels everywhere does so: at every checkpoint once, and at none twice."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.sdk.cancelling import cancel_at, cancelled_everywhere, tasks_at_rest

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def test_cancelled_everywhere_when_there_are_three_steps_then_stops_at_each():
    reached: list[int] = []

    async def operation() -> None:
        steps = 0
        try:
            for _ in range(3):
                await anyio.sleep(0.001)
                steps += 1
        finally:
            reached.append(steps)

    checkpoints = [number async for number in cancelled_everywhere(operation)]

    assert reached[-1] == 3
    assert set(reached) == {0, 1, 2, 3}
    assert checkpoints == list(range(1, len(checkpoints) + 1))


async def test_cancelled_everywhere_when_an_event_is_awaited_then_cancels_the_wait():
    async def operation() -> None:
        with anyio.fail_after(60):
            await anyio.Event().wait()

    assert await cancel_at(operation, 1)


async def test_cancelled_everywhere_when_an_operation_shields_itself_then_goes_on():
    finished = 0

    async def operation() -> None:
        nonlocal finished
        with anyio.CancelScope(shield=True):
            await checkpoint()
            await checkpoint()
        finished += 1

    checkpoints = [number async for number in cancelled_everywhere(operation)]

    assert finished == len(checkpoints) + 1


@pytest.mark.parametrize("children", [True, False])
async def test_cancelled_everywhere_when_there_are_children_then_stops_at_theirs_if_told(children):
    steps: list[str] = []
    seen: set[tuple[str, ...]] = set()

    async def step(name: str) -> None:
        for number in range(3):
            await checkpoint()
            steps.append(f"{name}{number}")

    async def operation() -> None:
        steps.clear()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(step, "a")
                await step("b")
                tasks.start_soon(step, "c")
        finally:
            seen.add(tuple(step for step in steps if step[0] == "c"))

    async for _ in cancelled_everywhere(operation, children=children):
        assert len(steps) < 9

    assert len(steps) == 9
    # Only whoever looks at the children can stop between the steps of the last of them.
    every = {(), ("c0",), ("c0", "c1"), ("c0", "c1", "c2")}
    assert seen == every if children else {(), ("c0", "c1", "c2")} <= seen < every


async def test_cancelled_everywhere_when_others_run_beside_it_then_does_not_count_them():
    async def other() -> None:
        while True:
            await checkpoint()

    async def operation() -> None:
        for _ in range(3):
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        alone = [number async for number in cancelled_everywhere(operation, children=True)]
        for _ in range(5):
            tasks.start_soon(other)
        among = [number async for number in cancelled_everywhere(operation, children=True)]
        tasks.cancel_scope.cancel()

    assert among == alone


async def test_tasks_at_rest_when_one_stays_then_tells_so():
    before = await tasks_at_rest()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(checkpoint)
        assert await tasks_at_rest() == before
        tasks.start_soon(anyio.sleep_forever)
        assert len(await tasks_at_rest() - before) == 1
        tasks.cancel_scope.cancel()
