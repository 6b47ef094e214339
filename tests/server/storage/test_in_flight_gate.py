"""Closing waits for those inside."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.locks import InFlightGate

pytestmark = pytest.mark.trio


async def stay(gate, leave):
    """Be inside until told to leave."""
    with gate.track("write", "file"), trio.CancelScope(shield=True):
        await leave.wait()


async def test_close_when_an_operation_is_in_flight_then_waits_even_when_cancelled():
    gate, leave, closed = InFlightGate(), trio.Event(), trio.Event()

    async def close():
        try:
            await gate.close()
        finally:
            closed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stay, gate, leave)
        nursery.start_soon(stay, gate, leave)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(close)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            assert not closed.is_set()
            leave.set()
            await closed.wait()


async def test_passing_when_shut_then_is_refused():
    gate = InFlightGate()
    with gate.track("write", "file"):
        gate.shut()

    with pytest.raises(StorageError) as caught, gate.track("sync", "file"):
        pass

    assert (caught.value.action, caught.value.errno) == ("sync", errno.EBADF)
    await gate.close()


async def test_passing_when_the_work_fails_then_it_counts_as_left():
    gate = InFlightGate()
    with pytest.raises(ValueError), gate.track("write", "file"):
        raise ValueError

    await gate.close()
