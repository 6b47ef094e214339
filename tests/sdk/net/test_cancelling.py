"""The tool that cancels everywhere does so: at every checkpoint once, and at none twice."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from tests.sdk.cancelling import cancel_at, cancelled_everywhere

pytestmark = pytest.mark.anyio


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
