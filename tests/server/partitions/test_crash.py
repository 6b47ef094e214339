"""Many lives of one partition, each ended in the middle of its work, against a simple model.

Producers, a consumer, a saver and a failing disk run together until the process is killed or the
power fails. What the next life finds has to agree with everything that anybody was told before.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from iggy_protocol import PollingStrategy
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.settings import AckLevel, IndexCache, PartitionSettings
from iggy_ref_server.partitions.steps import run_async
from iggy_ref_server.segments.errors import CorruptPartition
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.simulated.disk import Survival
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.fix_seeds import RUN_SEED, plant
from tests.server.partitions.partition_calls import (
    CONSUMER,
    commit,
    create,
    poll,
    reopen,
    request,
    stage,
)

if TYPE_CHECKING:
    from iggy_ref_server.partitions.partition import PartitionLog


class End(Enum):
    """How a life ends. A disk that syncs nothing still writes each file from front to back."""

    KILL = "kill"
    POWER_LOSS = None
    ORDERLY_POWER_LOSS = Survival.PREFIX


PRODUCERS = 3
LIVES = 4
MANY_SEEDS = 200


@dataclass
class History:
    """What clients were told, over all lives.

    Attributes:
        sent: every batch that was handed over, by producer, oldest first.
        acknowledged: payloads whose batch was acknowledged.
        seen: what was polled under each offset.
        stored: the last offset whose storing was acknowledged.
        storing: the offset that was being stored when the life ended.
    """

    sent: list[list[tuple[bytes, ...]]] = field(default_factory=lambda: [[] for _ in range(3)])
    acknowledged: set[bytes] = field(default_factory=set)
    seen: dict[int, bytes] = field(default_factory=dict)
    stored: int | None = None
    storing: int | None = None
    is_over: bool = False

    def note_seen(self, offset: int, payload: bytes) -> None:
        """No offset may ever stand for two messages."""
        assert self.seen.setdefault(offset, payload) == payload, f"offset {offset} was reissued"


async def produce(partition: PartitionLog, history: History, number: int, chance: Random) -> None:
    """Send batches, one after another."""
    while True:
        await trio.sleep(chance.uniform(0, 0.05))
        count = len(history.sent[number])
        batch = tuple(
            b"%d/%d/%d:" % (number, count, place) + bytes(chance.randrange(60))
            for place in range(chance.randint(1, 4))
        )
        history.sent[number].append(batch)
        with suppress(ServerFault):
            group = stage(partition, batch)
            await commit(partition)
            await group.wait()
            if not history.is_over:
                history.acknowledged.update(batch)


async def consume(partition: PartitionLog, history: History, chance: Random) -> None:
    """Poll and commit."""
    wanted = request(PollingStrategy.next(), 5, consumer=CONSUMER)
    while True:
        await trio.sleep(chance.uniform(0, 0.1))
        with suppress(ServerFault, StorageError):
            for message in await poll(partition, wanted):
                if history.is_over:
                    return
                history.note_seen(message.offset, message.payload)
                history.storing = message.offset
                await run_async(partition.store_offset(CONSUMER, message.offset))
                if not history.is_over:
                    history.stored = message.offset


async def save(partition: PartitionLog, chance: Random) -> None:
    """Save from time to time."""
    while True:
        await trio.sleep(chance.uniform(0, 0.3))
        await partition.save()


async def live(
    storage: SimulatedStorage, partition: PartitionLog, history: History, end: End, chance: Random
) -> SimulatedStorage:
    """Run everything until the end comes."""
    history.is_over = False
    plan = storage.plan
    plan.delay("*", seconds=(0, 0.02), probability=0.5)
    plan.shorten(probability=0.2)
    plan.refuse(probability=0.3)
    plan.uncache(probability=0.2)
    plan.fail("write", probability=0.03)
    plan.fail("open", probability=0.02)
    plan.fail("truncate", probability=0.1)
    if chance.random() < 0.3:
        plan.fail("sync", path="*.log", probability=0.02)
    async with trio.open_nursery() as nursery:
        for number in range(PRODUCERS):
            nursery.start_soon(produce, partition, history, number, chance)
        nursery.start_soon(consume, partition, history, chance)
        nursery.start_soon(save, partition, chance)
        await trio.sleep(chance.uniform(0, 1.5))
        history.is_over = True
        left = storage.kill() if end is End.KILL else storage.crash(end.value)
        nursery.cancel_scope.cancel()
    plan.heal()
    return left


async def check(
    partition: PartitionLog,
    history: History,
    *,
    is_promised: bool,
    is_reissuing: bool,
    is_dense: bool,
) -> None:
    """Hold what is found against what was told."""
    found = await poll(partition)
    payloads = [message.payload for message in found]
    if is_reissuing:
        # Nobody insured against this: what a failed write left may even be back.
        history.seen.clear()
    assert len(set(payloads)) == len(payloads), "no message appears twice"
    for message in found:
        history.note_seen(message.offset, message.payload)
    for number, batches in enumerate(history.sent):
        sent = [payload for batch in batches for payload in batch]
        places = {payload: place for place, payload in enumerate(sent)}
        own = [places[payload] for payload in payloads if payload.startswith(b"%d/" % number)]
        assert own == sorted(own), "messages of a producer keep their order"
    if is_promised:
        assert history.acknowledged <= set(payloads), "what was acknowledged is there"
        at = [message.offset for message in found]
        # A power loss may leave a hole in a write that nobody was told of, and more behind it.
        assert at == (list(range(len(found))) if is_dense else sorted(set(at)))
        assert partition.stored_offset(CONSUMER) in {history.stored, history.storing}
    stored = partition.stored_offset(CONSUMER)
    assert stored is None or stored <= partition.statistics().current_offset
    # What was lost stays lost: from here on only what is there counts.
    history.acknowledged = set(payloads)
    history.stored = history.storing = stored


async def simulate(ack: AckLevel, end: End, seed: int) -> int:
    """Live several lives; return how many messages were left at the end."""
    chance = Random(seed)
    settings = PartitionSettings(
        ack=ack,
        segment_size_bytes=chance.choice([300, 2_000, 1 << 30]),
        messages_required_to_save=chance.choice([1, 7, 1024]),
        index_cache=chance.choice(list(IndexCache)),
        writes_survived=end is End.KILL,
    )
    storage = SimulatedStorage(FaultPlan(seed))
    history = History()
    is_promised = ack is not AckLevel.MEMORY and end is not End.ORDERLY_POWER_LOSS
    is_reissuing = ack is AckLevel.WRITTEN and end is not End.KILL
    partition = await create(storage, settings)
    for _ in range(LIVES):
        storage = await live(storage, partition, history, end, chance)
        partition = await reopen(storage, settings)
        await check(
            partition,
            history,
            is_promised=is_promised,
            is_reissuing=is_reissuing,
            is_dense=end is End.KILL,
        )
    return partition.statistics().messages_count


def replay(ack: AckLevel, end: End, seed: int) -> int:
    """Simulate with nothing left to chance but the seed; return how many messages were left."""
    plant(seed)
    return trio.run(simulate, ack, end, seed, clock=MockClock(autojump_threshold=0))


PROMISES = pytest.mark.parametrize(
    ("ack", "end"),
    [
        (AckLevel.WRITTEN, End.KILL),
        (AckLevel.FSYNC, End.KILL),
        (AckLevel.FSYNC, End.POWER_LOSS),
        (AckLevel.MEMORY, End.KILL),
    ],
    ids=["written, kill", "fsync, kill", "fsync, power loss", "memory, kill"],
)


@pytest.mark.parametrize("seed", range(5))
@PROMISES
def test_partition_when_it_lives_and_dies_then_keeps_what_it_promised(ack, end, seed):
    replay(ack, end, seed)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ack", [AckLevel.WRITTEN, AckLevel.MEMORY])
def test_partition_when_the_power_fails_and_nothing_was_promised_then_still_opens(ack, seed):
    """Messages may be lost then, also from the middle, but what is there is right."""
    replay(ack, End.ORDERLY_POWER_LOSS, seed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@PROMISES
def test_partition_when_it_dies_from_many_seeds_then_keeps_what_it_promised(ack, end):
    for seed in range(RUN_SEED, RUN_SEED + MANY_SEEDS):
        try:
            replay(ack, end, seed)
        except AssertionError as error:
            error.add_note(f"IGGY_SIM_SEED={seed} plays it again")
            raise


@PROMISES
def test_simulation_when_the_seed_is_the_same_then_all_happens_alike(ack, end):
    assert replay(ack, end, 3) == replay(ack, end, 3)


def test_simulation_when_run_then_does_something():
    """A simulation in which nothing happens proves nothing."""
    assert replay(AckLevel.WRITTEN, End.KILL, 3) > 50


def test_power_loss_when_only_written_then_opens_or_says_what_is_missing():
    """Nothing is promised then, but nobody is told nonsense: what is there is right."""

    async def scenario(seed: int) -> None:
        storage = SimulatedStorage(FaultPlan(seed))
        settings = PartitionSettings(segment_size_bytes=500)
        partition = await create(storage, settings)
        for number in range(30):
            stage(partition, [b"%d" % number])
            await commit(partition)
        left = storage.crash()
        with suppress(CorruptPartition):
            partition = await reopen(left, PartitionSettings(validate_checksums=True))
            found = [int(message.payload) for message in await poll(partition)]
            assert found == sorted(set(found))
            assert found == [message.offset for message in await poll(partition)]

    for seed in range(15):
        trio.run(scenario, seed)
