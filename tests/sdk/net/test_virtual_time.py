"""The virtual clocks of both engines: hours pass at once, and in order."""

from __future__ import annotations

import socket
import time

import anyio
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

HOUR = 3_600.0


async def test_clock_when_all_tasks_sleep_then_jumps():
    begun_at, really = anyio.current_time(), time.monotonic()

    await anyio.sleep(100 * HOUR)

    assert anyio.current_time() - begun_at == pytest.approx(100 * HOUR)
    assert time.monotonic() - really < 5


async def test_clock_when_several_sleep_then_wakes_them_in_the_order_of_their_time():
    woken: list[float] = []

    async def sleep(hours: float) -> None:
        await anyio.sleep(hours * HOUR)
        woken.append(hours)

    async with anyio.create_task_group() as tasks:
        for hours in (3, 1, 2):
            tasks.start_soon(sleep, hours)

    assert woken == [1, 2, 3]


async def test_clock_when_a_task_is_ready_then_does_not_move():
    begun_at = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep, HOUR)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        elapsed = anyio.current_time() - begun_at
        tasks.cancel_scope.cancel()

    assert elapsed == 0


async def test_deadline_when_it_passes_virtually_then_cancels():
    begun_at = anyio.current_time()

    with pytest.raises(TimeoutError):
        with anyio.fail_after(HOUR):
            await anyio.sleep(2 * HOUR)

    assert anyio.current_time() - begun_at == pytest.approx(HOUR)


async def test_socket_when_it_is_ready_then_is_heard_before_the_clock_jumps():
    near, far = socket.socketpair()
    with near, far:
        begun_at = anyio.current_time()
        far.send(b"x")
        with anyio.fail_after(HOUR):
            await anyio.wait_readable(near)

    assert anyio.current_time() == begun_at
