"""Idempotent producers: what each one has sent to a partition, since 0.10.

Such a producer counts its messages to each partition. A batch names the producer, its epoch, and
the number of its first message, so a batch that arrives again or too early is recognised, also from
another session:

    the next number                   is accepted
    a batch that is remembered        gets its original confirmation
    any other number                  is refused as out of order
    an older epoch                    is refused: the producer has begun anew since
    a newer epoch                     is accepted from number 0 on
    an unknown producer               is accepted from number 0 on, else it is told that it is
                                      unknown, and begins a new epoch

The log has no room for these numbers, so after a restart every producer is unknown.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.partitions.write_receipts import RecordedWrite

if TYPE_CHECKING:
    from iggy_protocol import ProducerSequence
    from iggy_ref_server.completion import Completion


PRODUCERS_MAX: Final = 1024
"""Of one partition; the one that sent longest ago is forgotten first, and begins a new epoch."""
BATCHES_MAX: Final = 5
"""Remembered of each producer: as many as are in flight at most in clients of Kafka, whose scheme
this is; official clients have one in flight to a partition."""
SEQUENCE_END: Final = 1 << 31
"""The count goes on with 0 behind the last number below this."""


class _RememberedBatch(NamedTuple):
    sequence: int
    messages_count: int
    staged: RecordedWrite


class _ProducerProgress:
    """What one producer has sent in its present epoch."""

    __slots__ = ("batches", "epoch", "next_sequence")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.batches: list[_RememberedBatch] = []

    @property
    def is_settled(self) -> bool:
        return all(batch.staged.pending.is_done for batch in self.batches)

    def find(self, sequence: int, messages_count: int) -> RecordedWrite | None:
        """Return the batch that arrived once more; None if it is the next one."""
        if sequence == self.next_sequence:
            return None
        for batch in self.batches:
            if (batch.sequence, batch.messages_count) == (sequence, messages_count):
                return batch.staged
        raise ServerFault(
            StatusCode.PRODUCER_SEQUENCE_OUT_OF_ORDER,
            f"message {self.next_sequence} of the producer is next, not {sequence}",
        )

    def append(self, batch: _RememberedBatch) -> None:
        """Remember the next batch."""
        self.batches.append(batch)
        self.next_sequence = (batch.sequence + batch.messages_count) % SEQUENCE_END
        while len(self.batches) > BATCHES_MAX and self.batches[0].staged.pending.is_done:
            del self.batches[0]

    def withdraw(self, batch: _RememberedBatch) -> None:
        """Expect a batch again that was not stored; those after it are not stored either."""
        if batch in self.batches:
            del self.batches[self.batches.index(batch) :]
            self.next_sequence = batch.sequence


class ProducerTable:
    """The producers of one partition.

    Args:
        producers_max: how many are remembered.
    """

    __slots__ = ("_producers", "_producers_max")

    def __init__(self, *, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers: OrderedDict[int, _ProducerProgress] = OrderedDict()
        self._producers_max = producers_max

    def __len__(self) -> int:
        return len(self._producers)

    def find(self, producer: ProducerSequence, messages_count: int) -> RecordedWrite | None:
        """Return the batch that this one repeats; None if it is a new one.

        Raises:
            ServerFault: the producer must not send this batch.
        """
        progress = self._producers.get(producer.producer_id)
        if progress is None:
            if producer.sequence:
                raise ServerFault(
                    StatusCode.PRODUCER_UNKNOWN,
                    f"producer {producer.producer_id} is unknown, and its batch is not its first",
                )
            return None
        if producer.epoch < progress.epoch:
            raise ServerFault(
                StatusCode.PRODUCER_EPOCH_FENCED,
                f"producer {producer.producer_id} has begun epoch {progress.epoch} since",
            )
        if producer.epoch > progress.epoch:
            progress = _ProducerProgress(producer.epoch)
        return progress.find(producer.sequence, messages_count)

    def note(self, producer: ProducerSequence, messages_count: int, staged: RecordedWrite) -> None:
        """Remember a new batch, which is staged and which ``find`` has let through."""
        progress = self._producers.get(producer.producer_id)
        if progress is None or progress.epoch != producer.epoch:
            progress = self._producers[producer.producer_id] = _ProducerProgress(producer.epoch)
        self._producers.move_to_end(producer.producer_id)
        batch = _RememberedBatch(producer.sequence, messages_count, staged)
        progress.append(batch)

        def settle(done: Completion) -> None:
            if done.fault is not None:
                progress.withdraw(batch)

        staged.pending.add_done_callback(settle)
        self._forget_oldest()

    def clear(self) -> None:
        """Forget all producers, because the offsets of the partition start over."""
        self._producers.clear()

    def _forget_oldest(self) -> None:
        """Keep to the bound; who has batches in flight stays."""
        excess = max(len(self) - self._producers_max, 0)
        for producer_id in tuple(islice(self._producers, excess)):
            if self._producers[producer_id].is_settled:
                del self._producers[producer_id]
