"""The polls that are made ahead, while the application works on messages of earlier ones.

Their messages are not delivered: nothing of them is stored, and when the position changes or a
partition goes they are dropped and polled again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iggy_sdk.consumer.options import ConsumerOptions
    from iggy_sdk.consumer.poller import FetchedMessages


class PrefetchedPolls:
    """The replies of polls that were made ahead, in their order.

    Args:
        options: bound how many messages and bytes there are.
    """

    def __init__(self, options: ConsumerOptions) -> None:
        self.messages_count: int = 0
        self._batch_length = min(options.batch_length, options.prefetch_messages)
        self._messages_max = options.prefetch_messages
        self._bytes_max = options.prefetch_bytes
        self._bytes = 0
        self._message_bytes = 0
        self._polls: deque[FetchedMessages] = deque()

    def __bool__(self) -> bool:
        return bool(self._polls)

    @property
    def is_possible(self) -> bool:
        """Whether anything may be held at all."""
        return self._batch_length > 0 and self._bytes_max > 0

    def note_size(self, fetched: FetchedMessages) -> None:
        """Remember how large messages are, to tell how many of the next ones fit."""
        if fetched.batch is not None and len(fetched.batch):
            self._message_bytes = -(-fetched.batch.nbytes // len(fetched.batch))

    def room(self) -> int:
        """Return how many messages the next poll may bring; 0 when it has to wait."""
        count = self._messages_max - self.messages_count
        if self._message_bytes:
            count = min(count, (self._bytes_max - self._bytes) // self._message_bytes)
        if self.messages_count:
            # A poll for the few that still fit would be a request for little.
            return self._batch_length if count >= self._batch_length else 0
        return max(1, min(count, self._batch_length))

    def add(self, fetched: FetchedMessages) -> None:
        """Hold the reply of a poll."""
        self._polls.append(fetched)
        self._count(fetched, 1)
        self.note_size(fetched)

    def take(self, held: frozenset[int]) -> FetchedMessages | None:
        """Take the oldest reply that is not of a partition which is held; None if there is none."""
        for place, fetched in enumerate(self._polls):
            if fetched.partition_id not in held:
                del self._polls[place]
                self._count(fetched, -1)
                return fetched
        return None

    def firsts(self) -> dict[int, int]:
        """Tell the offset of the first new message of each partition."""
        firsts: dict[int, int] = {}
        for fetched in self._polls:
            if fetched.batch is not None:
                first = max(fetched.batch.first_offset or 0, fetched.skip_before)
                firsts.setdefault(fetched.partition_id, first)
        return firsts

    def drop(self) -> dict[int, int]:
        """Drop all replies, and return the first offsets of what is dropped.

        The others would not do without those of one partition: their order tells which partitions
        make a round.
        """
        firsts = self.firsts()
        self._polls.clear()
        self.messages_count = self._bytes = 0
        return firsts

    def _count(self, fetched: FetchedMessages, sign: int) -> None:
        if fetched.batch is not None:
            self.messages_count += sign * len(fetched.batch)
            self._bytes += sign * fetched.batch.nbytes
