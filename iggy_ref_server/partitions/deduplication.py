"""Deduplication: a window of message ids, limited by count and by age.

A message is dropped when its id is in the window or in a batch that is being stored. Id 0 asks for
a new id and is never a duplicate. An id enters the window when its message is stored; until then it
is staged, and forgotten if the write fails.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import MessageBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_ref_server.partitions.settings import DeduplicationSettings


class AdmittedBatch(NamedTuple):
    """What is left of a batch.

    Attributes:
        messages: the bytes of the messages that are new; the batch itself when all are.
        messages_count: how many they are.
        ids: those that came with an id.
    """

    messages: memoryview
    messages_count: int
    ids: tuple[int, ...]


class Deduplicator:
    """The window of one partition.

    Args:
        settings: how large it is.

    Attributes:
        settings: how large it is.
    """

    __slots__ = ("_seen_us", "_staged", "settings")

    def __init__(self, settings: DeduplicationSettings) -> None:
        self.settings = settings
        self._seen_us: dict[int, int] = {}  # oldest first
        self._staged: set[int] = set()

    def __len__(self) -> int:
        return len(self._seen_us)

    def admit(self, messages: memoryview, count: int, now_us: int) -> AdmittedBatch:
        """Drop the duplicates of a batch, and remember the rest as being on their way."""
        self._expire(now_us)
        kept: list[memoryview] = []
        ids: list[int] = []
        at = 0
        for view in MessageBatch(messages):
            message_id, size = view.id, view.size
            if message_id not in self._seen_us and message_id not in self._staged:
                kept.append(messages[at : at + size])
                if message_id:
                    ids.append(message_id)
                    self._staged.add(message_id)
            at += size
        if len(kept) < count:
            messages = memoryview(bytearray().join(kept))
        return AdmittedBatch(messages, len(kept), tuple(ids))

    def confirm(self, ids: Iterable[int], timestamp_us: int) -> None:
        """Take the ids of stored messages into the window."""
        for message_id in ids:
            self._staged.discard(message_id)
            self._seen_us.pop(message_id, None)
            self._seen_us[message_id] = timestamp_us
        excess = len(self._seen_us) - self.settings.entries_max
        if self.settings.entries_max and excess > 0:
            for message_id in list(islice(self._seen_us, excess)):
                del self._seen_us[message_id]

    def roll_back(self) -> None:
        """Forget all ids that are on their way."""
        self._staged.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._seen_us.clear()
        self._staged.clear()

    def _expire(self, now_us: int) -> None:
        if not self.settings.expiry_us:
            return
        end_us = now_us - self.settings.expiry_us
        expired = []
        for message_id, seen_us in self._seen_us.items():
            if seen_us > end_us:
                break
            expired.append(message_id)
        for message_id in expired:
            del self._seen_us[message_id]
