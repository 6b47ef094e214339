"""Say things to a partition in few words: send payloads, read messages, look at its files."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from iggy_protocol import (
    BatchShape,
    ConsumerKind,
    MessageBatch,
    NewMessage,
    PollingStrategy,
    encode_messages,
    inspect_send,
)
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.offsets import OffsetKey
from iggy_ref_server.partitions.partition import PartitionLog
from iggy_ref_server.partitions.poll_plan import PollParams
from iggy_ref_server.partitions.settings import PartitionSettings
from iggy_ref_server.partitions.steps import Suspended, run_async, run_in_background, run_now
from iggy_ref_server.storage.interface import FileSlice, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.clock import Clock
    from iggy_ref_server.partitions.journal import CommitGroup
    from iggy_ref_server.partitions.poll_plan import PollResult
    from iggy_ref_server.partitions.steps import Steps
    from iggy_ref_server.storage.interface import Storage
    from iggy_ref_server.storage.simulated.storage import SimulatedStorage

PATH = "streams/0/topics/0/partitions/0"
GENERATION = 7
UNLIMITED = 1 << 60

CONSUMER = OffsetKey(ConsumerKind.SINGLE, 1)
GROUP = OffsetKey(ConsumerKind.GROUP, 1)

# Stream 0, topic 0, balanced.
TARGET = b"\x01\x04\0\0\0\0" + b"\x01\x04\0\0\0\0" + b"\x01\x00"


class Message(NamedTuple):
    """What a consumer sees."""

    offset: int
    id: int
    timestamp_us: int
    payload: bytes
    user_headers: bytes


def body_of(messages: Sequence[Buffer | NewMessage]) -> tuple[bytearray, BatchShape]:
    """Build the body of a SendMessages request and inspect it."""
    metadata = struct.pack("<I", len(TARGET) + 4) + TARGET + struct.pack("<I", len(messages))
    body = encode_messages(metadata, messages, origin_timestamp_us=1)
    return body, inspect_send(body)


def stage(partition: PartitionLog, messages: Sequence[Buffer | NewMessage]) -> CommitGroup:
    """Stage a batch, in a buffer of its own."""
    body, shape = body_of(messages)
    return partition.stage(memoryview(body), shape)


async def commit(partition: PartitionLog) -> None:
    """Bring everything staged to its end, the way the request scheduler does."""
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        run_in_background(notify(ended, partition.commit()), nursery)
        await ended.wait()


def notify(ended: trio.Event, steps: Steps[None]) -> Steps[None]:
    """Set an event when steps have come to their end, in whatever way."""
    try:
        yield from steps
    finally:
        ended.set()


def commit_at_once(partition: PartitionLog) -> bool:
    """Commit if that needs no waiting; tell whether it came to its end."""
    return is_at_once(partition.commit())


def store_at_once(partition: PartitionLog, key: OffsetKey, offset: int) -> bool:
    """Store an offset if that needs no waiting; tell whether it is stored."""
    return is_at_once(partition.store_offset(key, offset))


def is_at_once(steps: Steps[None]) -> bool:
    """Run steps if they need no waiting, else close them; tell which."""
    outcome = run_now(steps)
    if isinstance(outcome, Suspended):
        outcome.close()
        return False
    return True


async def send(partition: PartitionLog, *messages: Buffer | NewMessage) -> None:
    """Send one batch and wait until it is acknowledged."""
    group = stage(partition, messages)
    await commit(partition)
    await group.wait()


async def create(
    storage: Storage, settings: PartitionSettings | None = None, clock: Clock | None = None
) -> PartitionLog:
    """Make a partition."""
    return await PartitionLog.create(
        storage,
        clock or SimulatedClock(),
        settings or PartitionSettings(),
        PATH,
        generation=GENERATION,
    )


async def reopen(
    storage: Storage, settings: PartitionSettings | None = None, clock: Clock | None = None
) -> PartitionLog:
    """Open the partition again, as after a start."""
    return await PartitionLog.open(
        storage,
        clock or SimulatedClock(),
        settings or PartitionSettings(),
        PATH,
        generation=GENERATION,
    )


def request(
    strategy: PollingStrategy,
    count: int = 1_000_000,
    *,
    consumer: OffsetKey | None = None,
    size_max_bytes: int = UNLIMITED,
) -> PollParams:
    """Ask for messages."""
    return PollParams(strategy, count, consumer, size_max_bytes)


FROM_START = request(PollingStrategy.offset(0))


async def fetch(polled: PollResult) -> bytes:
    """Read all parts of a reply."""
    parts = [
        await part.file.read(part.size, part.position) if isinstance(part, FileSlice) else part
        for part in polled.parts
    ]
    content = b"".join(parts)
    assert len(content) == polled.size_bytes
    return content


async def unpack(polled: PollResult) -> list[Message]:
    """Take a reply apart, and hold it to its own numbers."""
    batch = MessageBatch(await fetch(polled))
    batch.verify()
    messages = [
        Message(
            view.offset,
            view.id,
            view.timestamp_us,
            bytes(view.payload),
            bytes(view.user_headers),
        )
        for view in batch
    ]
    assert len(messages) == polled.messages_count
    assert polled.last_offset == (messages[-1].offset if messages else None)
    return messages


async def poll(partition: PartitionLog, wanted: PollParams = FROM_START) -> list[Message]:
    """Poll, without waiting where that is possible."""
    return await unpack(await run_async(partition.poll(wanted)))


async def payloads(partition: PartitionLog, wanted: PollParams = FROM_START) -> list[bytes]:
    """Poll payloads."""
    return [message.payload for message in await poll(partition, wanted)]


async def offsets(partition: PartitionLog, wanted: PollParams = FROM_START) -> list[int]:
    """Poll offsets."""
    return [message.offset for message in await poll(partition, wanted)]


async def file_sizes(storage: Storage, path: str = PATH) -> dict[str, int]:
    """List the files of segments with their sizes, names shortened to their numbers."""
    return {
        entry.name.lstrip("0") if not entry.name.startswith("0" * 20) else "0" + entry.name[20:]: (
            entry.size_bytes
        )
        for entry in await storage.entries(path)
        if entry.name.endswith((".log", ".index"))
    }


async def interrupt(
    storage: SimulatedStorage, work: Callable[[], Awaitable[object]], *, after_s: float, power: bool
) -> SimulatedStorage:
    """Begin some work and end the process, or the machine, in the middle of it.

    Returns:
        What the next process finds; its disk is healthy and quick.
    """

    async def until_the_end() -> None:
        with suppress(ServerFault, StorageError):
            await work()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(until_the_end)
        await trio.sleep(after_s)
        left = storage.crash() if power else storage.kill()
        nursery.cancel_scope.cancel()
    left.plan.heal()
    return left
