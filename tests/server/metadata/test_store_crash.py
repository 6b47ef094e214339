"""Power losses and kills at every step of the store's work, and disks that fail all the time."""

from __future__ import annotations

from itertools import count

import pytest
import trio

from iggy_protocol import CreateStream, CreateTopic, DeleteStream, PurgeStream, UpdateStream
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.state import Metadata
from iggy_ref_server.metadata.store import CompactionPolicy, MetadataStore
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.disk import Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.metadata.metadata_calls import after, planned

COMMANDS = (
    CreateStream("a"),
    CreateStream("b"),
    CreateTopic("a", "t", 2),
    DeleteStream("b"),
    UpdateStream("a", "long name " * 9),
    PurgeStream(0),
    CreateStream("c"),
)
# The state after each number of commands.
STATES = [after(Metadata.EMPTY, *COMMANDS[:number]) for number in range(len(COMMANDS) + 1)]
OFTEN = CompactionPolicy(entries_max=3)


async def open_store(storage: SimulatedStorage) -> MetadataStore:
    return await MetadataStore.open(storage, SimulatedClock(), compaction=OFTEN)


async def work(storage: SimulatedStorage, answered: list[int]) -> None:
    """Make all changes, and note which were answered."""
    try:
        store = await open_store(storage)
        answered.append(0)
        for number, command in enumerate(COMMANDS, start=1):
            await store.change(planned(command))
            answered.append(number)
    except (ServerFault, StorageError):
        return


async def interrupted(
    storage: SimulatedStorage, after_s: float, survival: Survival | None
) -> tuple:
    """Work until a moment, end the machine or the process, and look what is there."""
    answered: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, storage, answered)
        await trio.sleep(after_s)
        left = storage.kill() if survival is None else storage.crash(survival)
    left.plan.heal()
    return answered, left


@pytest.mark.trio
@pytest.mark.parametrize("survival", [*Survival, None], ids=lambda it: it.value if it else "kill")
async def test_store_when_ended_at_any_step_then_keeps_every_answered_change(
    survival, autojump_clock
):
    for step in count():
        plan = FaultPlan(seed=step)
        plan.delay("*", seconds=1)
        answered, left = await interrupted(SimulatedStorage(plan), step + 0.5, survival)

        reopened = await open_store(left)
        least = answered[-1] if answered else 0
        assert reopened.current in STATES[least : least + 2]
        await reopened.change(planned(CreateStream("works")))
        assert (await open_store(left.crash())).current == reopened.current
        if least == len(COMMANDS):
            break

    assert step > 2 * len(COMMANDS)


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(10))
async def test_store_when_the_disk_keeps_failing_then_keeps_every_answered_change(seed):
    plan = FaultPlan(seed)
    storage = SimulatedStorage(plan)
    store = await open_store(storage)
    plan.shorten(probability=0.5)
    plan.fail("*", probability=0.15)
    faults = 0
    for number in range(30):
        try:
            await store.change(planned(CreateStream(f"stream {number}")))
        except ServerFault:
            faults += 1

    left = storage.crash()
    left.plan.heal()
    found = (await open_store(left)).current
    assert faults
    # A change that could not be taken back either may be there, but none that was answered is not.
    names = [stream.name for stream in found.streams]
    assert names[: len(store.current.streams)] == [entry.name for entry in store.current.streams]
    assert found.version - store.current.version in (0, 1)
