"""Methods of a blocking consumer, besides iteration.

Made from iggy_sdk.consumer.consumer by ``python -m tools.blocking_facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_sdk.blocking.wrapper import BlockingConsumerBase, T, in_loop

if TYPE_CHECKING:
    from iggy_protocol import Identifier
    from iggy_sdk.durations import Seconds
    from iggy_sdk.statistics import ConsumerStatistics


class ConsumerOperations(BlockingConsumerBase[T]):
    """Reads messages; made by ``client.consumer()`` and ``client.consumer_group()``."""

    @property
    def name(self) -> Identifier:
        """The name of the consumer or of its group."""
        return self._inner.name

    @property
    def stream(self) -> Identifier:
        """The stream that is read."""
        return self._inner.stream

    @property
    def topic(self) -> Identifier:
        """The topic that is read."""
        return self._inner.topic

    def assignment(self) -> frozenset[int]:
        """Tell which partitions this consumer reads at the moment.

        A member of a group is told by the server from 0.9 on, at the first poll and every second
        from then on. A server of 0.8 tells nothing: there it is what the last round of polls has
        shown, without a partition 0 that is empty. It is empty before the first poll.
        """
        return self._inner.assignment()

    def statistics(self) -> ConsumerStatistics:
        """Return what the consumer has done so far."""
        return self._inner.statistics()

    def stop(self) -> None:
        """Stop: ``run`` returns when its handlers have, iteration ends."""
        self._run(in_loop(self._inner.stop))

    def commit(self, partition_id: int, offset: int, *, timeout: Seconds | None = None) -> None:
        """Store that everything up to this offset is done, as ``message.commit()`` does.

        Args:
            partition_id: the partition.
            offset: the last offset that is done.
            timeout: how long it may take, joining the group again included; None takes the
                ``request_timeout``.

        Raises:
            PartitionNotOwnedError: the group gave the partition to another member.
            RequestTimeoutError: the offset may have been stored.
            IggyError: the server refuses.
        """
        self._run(self._inner.commit(partition_id, offset, timeout=timeout))

    def get_last_stored_offset(self, partition_id: int) -> int | None:
        """Tell the offset of a partition that this consumer stored last."""
        return self._inner.get_last_stored_offset(partition_id)

    def pause(self, *partition_ids: int) -> None:
        """Poll some partitions no more; without any, none at all. Membership is kept."""
        self._run(in_loop(self._inner.pause, *partition_ids))

    def resume(self, *partition_ids: int) -> None:
        """Poll partitions again; without any, all of them."""
        self._run(in_loop(self._inner.resume, *partition_ids))

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._inner.is_closed
