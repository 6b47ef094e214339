"""Writes of clients that repeat them: each is done once, and a repeat gets the original result.

These functions stand beside the methods of a partition with the same names. Classic clients repeat
nothing, and use the methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.partitions.steps import Await, Steps
from iggy_ref_server.partitions.write_receipts import (
    NEVER_REPEATED,
    RecordedWrite,
    WriteId,
    WriteKind,
)

if TYPE_CHECKING:
    from iggy_protocol import BatchShape, ProducerSequence, SendRun
    from iggy_ref_server.partitions.offsets import OffsetKey
    from iggy_ref_server.partitions.partition import PartitionLog


def stage_once(
    partition: PartitionLog,
    body: memoryview,
    shape: BatchShape,
    write: WriteId,
    producer: ProducerSequence | None = None,
) -> RecordedWrite:
    """Add a batch, unless it repeats one that has not failed.

    Args:
        partition: takes the batch.
        body: as in ``stage`` of the partition.
        shape: as in ``stage`` of the partition.
        write: identifies the send.
        producer: the position of the batch in what an idempotent producer sends.

    Raises:
        ServerFault: the partition takes no messages, or not this batch any more.
    """
    if write == NEVER_REPEATED:
        return RecordedWrite(partition.stage(body, shape), partition.staged_offset)
    staged = partition.receipts.find(WriteKind.SEND, write)
    if staged is None and producer is not None:
        staged = partition.producers.find(producer, shape.messages_count)
    if staged is not None:
        return staged._replace(is_repeat=True)
    group = partition.stage(body, shape)
    staged = RecordedWrite(group, partition.staged_offset)
    partition.receipts.note(WriteKind.SEND, write, staged)
    if producer is not None:
        partition.producers.note(producer, shape.messages_count, staged)
    return staged


def stage_run(
    partition: PartitionLog, messages: memoryview, run: SendRun, session: int
) -> RecordedWrite:
    """Add the batches of sends that follow each other on a connection, as one.

    None of them repeats an earlier write, because their numbers rise. Of a run only the newest is
    remembered: a client that waits for each write repeats no other.

    Args:
        partition: takes the messages.
        messages: those of all sends of the run.
        run: tells the number and the count of messages of each.
        session: the number of the client's session.

    Raises:
        ServerFault: the partition takes no messages, or the session has made newer writes.
    """
    first_number, last_number, last_count = run.ends
    partition.receipts.require_new(WriteKind.SEND, WriteId(session, first_number))
    group = partition.stage(messages, run.shape)
    base_offset = partition.staged_offset
    assert base_offset is not None, "runs are taken only where nothing is dropped as a duplicate"
    last_offset = base_offset + run.messages_count - last_count
    last = WriteId(session, last_number)
    partition.receipts.note(WriteKind.SEND, last, RecordedWrite(group, last_offset))
    return RecordedWrite(group, base_offset)


def store_offset_once(
    partition: PartitionLog, key: OffsetKey, offset: int, write: WriteId
) -> Steps[None]:
    """Store an offset, unless this repeats a write that did.

    Raises:
        ServerFault: as in ``store_offset``, or the session has written offsets since.
    """
    repeated = partition.receipts.find(WriteKind.OFFSET, write)
    if repeated is not None:
        yield Await(repeated.pending.wait)
        return
    with partition.receipts.writing_offset(write):
        yield from partition.store_offset(key, offset)


async def delete_offset_once(partition: PartitionLog, key: OffsetKey, write: WriteId) -> None:
    """Delete a stored offset, unless this repeats a write that did.

    Raises:
        ServerFault: as in ``delete_offset``, or the session has written offsets since.
    """
    repeated = partition.receipts.find(WriteKind.OFFSET, write)
    if repeated is not None:
        await repeated.pending.wait()
        return
    with partition.receipts.writing_offset(write):
        await partition.delete_offset(key)
