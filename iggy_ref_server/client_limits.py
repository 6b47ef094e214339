"""The memory budget of a shard for the buffers of its clients.

Each connection has an account. The account holds what the connection buffers now: incomplete
requests, batches that wait for their commit, and replies in memory that are not sent. Pieces of
files that the kernel sends are not counted.

    below 3/4 of the limit    every connection is read
    above 3/4                 a connection that holds more than 64 KiB is paused
    a large request           is read only if all of it fits, and waits otherwise
    above the limit           the connection that holds most is closed, with a log line
    paused for long           the largest connection that does not change is closed

Small requests always continue. The number of connections bounds what they add.

Owns the sums and the choice. The owner of the account closes or resumes its connection.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


LOGGER = logging.getLogger(__name__)


# A connection that holds no more than this is never paused.
SMALL_BYTES_MAX: Final = 1 << 16
# A reply that is read into memory takes at most this fraction of the free budget.
REPLY_DIVISOR: Final = 4
MIB: Final = 1 << 20


class BufferAccount:
    """What one connection holds.

    Args:
        budget: the sum of all accounts.
        name: the client's address, for the log.
        abort: closes the connection at once.
        wake: schedules the connection again.

    Attributes:
        size_bytes: the bytes held now.
        reserved_bytes: the bytes of a large request that have not arrived yet.
        is_paused: whether the server must not read from the client.
    """

    __slots__ = (
        "_abort",
        "_budget",
        "_checked_bytes",
        "_is_closed",
        "_wake",
        "is_paused",
        "name",
        "reserved_bytes",
        "size_bytes",
    )

    def __init__(
        self,
        budget: BufferBudget,
        name: str,
        abort: Callable[[], None],
        wake: Callable[[], None],
    ) -> None:
        self._budget = budget
        self.name = name
        self._abort = abort
        self._wake = wake
        self._checked_bytes = -1
        self._is_closed = False
        self.size_bytes = 0
        self.reserved_bytes = 0
        self.is_paused = False

    def hold(self, size_bytes: int, wanted_bytes: int = 0) -> None:
        """Set what is held now, and how much of a request is missing.

        The account takes the whole amount and no differences, so nothing is counted twice.

        Args:
            size_bytes: all that is held.
            wanted_bytes: what is missing of a request; up to the small size it does not count,
                unless it is the rest of what was let in and must not wait at its very end.
        """
        if wanted_bytes <= SMALL_BYTES_MAX and not self.reserved_bytes:
            wanted_bytes = 0
        if size_bytes == self.size_bytes and wanted_bytes == self.reserved_bytes:
            return
        if not self._is_closed:
            self._budget.change(self, size_bytes, wanted_bytes)

    def fits(self, size_bytes: int) -> bool:
        """Tell whether so much more may be let in beside what was let in already."""
        return self._budget.total_bytes + size_bytes <= self._budget.limit_bytes

    def close(self) -> None:
        """Release everything; may be called twice."""
        if not self._is_closed:
            self.hold(0)
            self._is_closed = True
            self._budget.forget(self)

    def release(self) -> None:
        """Resume reading from the client."""
        self.is_paused = False
        self._wake()

    def evict(self) -> None:
        """Close the connection."""
        self.close()
        self._abort()

    def has_moved(self) -> bool:
        """Return whether the held amount has changed since the last call."""
        has_moved = self.size_bytes != self._checked_bytes
        self._checked_bytes = self.size_bytes
        return has_moved


class BufferBudget:
    """The sum of all accounts of a shard.

    Args:
        limit_bytes: how much they may hold together.
        key: the configuration key that the log line names.

    Attributes:
        total_bytes: held and reserved bytes of all accounts.
    """

    def __init__(self, limit_bytes: int, key: str = "limits.memory_budget") -> None:
        self.limit_bytes = limit_bytes
        self.total_bytes = 0
        self._shards_bytes = 0
        self._key = key
        self._high_bytes = limit_bytes // 4 * 3
        self._accounts: dict[BufferAccount, None] = {}
        self._waiting: dict[BufferAccount, None] = {}

    @property
    def accounts_count(self) -> int:
        """How many accounts are open."""
        return len(self._accounts)

    def open(self, name: str, abort: Callable[[], None], wake: Callable[[], None]) -> BufferAccount:
        """Open the account of a connection."""
        account = BufferAccount(self, name, abort, wake)
        self._accounts[account] = None
        return account

    @property
    def is_over(self) -> bool:
        """Whether the accounts hold more than the limit."""
        return self.total_bytes > self.limit_bytes

    def reply_allowance(self, size_max_bytes: int) -> int:
        """Return how much memory the next reply may use that is read into memory."""
        left_bytes = max(0, self._high_bytes - self.total_bytes)
        return min(size_max_bytes, max(left_bytes // REPLY_DIVISOR, SMALL_BYTES_MAX))

    def change(self, account: BufferAccount, size_bytes: int, wanted_bytes: int) -> None:
        """Update the sums for an account; called by accounts only."""
        others = self.total_bytes - account.size_bytes - account.reserved_bytes
        reserved, is_refused = wanted_bytes, False
        if wanted_bytes and not account.reserved_bytes:
            is_refused = others + size_bytes + wanted_bytes > self.limit_bytes
            reserved = 0 if is_refused else wanted_bytes
        before = self.total_bytes
        self.total_bytes = others + size_bytes + reserved
        account.size_bytes, account.reserved_bytes = size_bytes, reserved
        is_above_mark = self.total_bytes > self._high_bytes and size_bytes > SMALL_BYTES_MAX
        if is_refused or (is_above_mark and not reserved):
            account.is_paused = True
            self._waiting[account] = None
        elif account.is_paused:
            self._waiting.pop(account, None)
            account.release()
        if self._waiting and self.total_bytes < before and self.total_bytes <= self._high_bytes:
            self._release_all(besides=account)

    def hold_for_shards(self, change_bytes: int) -> None:
        """Count more or less of what is held for other shards, which cannot be closed or paused."""
        self._shards_bytes += change_bytes
        self.total_bytes += change_bytes
        if change_bytes < 0 and self._waiting and self.total_bytes <= self._high_bytes:
            self._release_all()

    def forget(self, account: BufferAccount) -> None:
        """Remove an account; called by accounts only."""
        self._accounts.pop(account, None)
        self._waiting.pop(account, None)

    def evict_over_limit(self) -> None:
        """Close the connections that hold most until the total is below the limit."""
        while self.is_over and self._accounts:
            largest = max(self._accounts, key=lambda account: account.size_bytes)
            if not largest.size_bytes:
                return
            if self._shards_bytes and largest.size_bytes <= SMALL_BYTES_MAX:
                # No client is to blame for what other shards have to be told.
                return
            self._evict(largest, "more is buffered than may be")

    def check(self) -> None:
        """Close the largest unchanged connection if others are paused; call periodically."""
        self.evict_over_limit()
        unchanged = [account for account in self._accounts if not account.has_moved()]
        if self._waiting and unchanged:
            largest = max(
                unchanged, key=lambda account: account.size_bytes + account.reserved_bytes
            )
            if largest.size_bytes > SMALL_BYTES_MAX:
                self._evict(largest, "other clients wait for memory, and it made no progress")
        self._release_all()

    def _release_all(self, besides: BufferAccount | None = None) -> None:
        """Have those who wait ask again, besides one that was refused just now."""
        waiting, self._waiting = self._waiting, {}
        for account in waiting:
            if account is besides:
                self._waiting[account] = None
            else:
                account.release()

    def _evict(self, largest: BufferAccount, reason: str) -> None:
        LOGGER.error(
            "closed the connection of %s, which held %.1f MiB of buffers: %s (%.1f of %.1f MiB in"
            " use); raise %s if clients need more",
            largest.name,
            largest.size_bytes / MIB,
            reason,
            self.total_bytes / MIB,
            self.limit_bytes / MIB,
            self._key,
        )
        largest.evict()


# The minimum progress of an incomplete request.
#
# An incomplete request occupies memory. Within ``limits.stall_timeout`` it must be complete or have
# grown by a minimum; otherwise the transport closes the connection.


# With the default of 30 s this is 2 KiB/s, which the slowest mobile networks exceed.
PROGRESS_BYTES_MIN: Final = 1 << 16
NEVER: Final = float("inf")


class RequestProgress:
    """Tracks the progress of the requests of one connection.

    Args:
        stall_timeout_s: how long a request may take to be complete or to grow by the minimum.

    Attributes:
        due_at: the deadline; infinite while no request is incomplete.
    """

    __slots__ = ("_received_bytes", "_request", "_stall_timeout_s", "due_at")

    def __init__(self, stall_timeout_s: float) -> None:
        self._stall_timeout_s = stall_timeout_s
        self._request = 0
        self._received_bytes = 0
        self.due_at = NEVER

    def reset(self) -> None:
        """Clear the deadline: no request is incomplete, or the server itself delays it."""
        self.due_at = NEVER

    def note(self, now: float, request: int, received_bytes: int) -> None:
        """Record that a request is incomplete.

        Args:
            now: the time.
            request: identifies the request, such as the number of complete ones before it.
            received_bytes: the total that the connection has received.
        """
        if (
            self.due_at == NEVER
            or request != self._request
            or received_bytes - self._received_bytes >= PROGRESS_BYTES_MIN
        ):
            self._request, self._received_bytes = request, received_bytes
            self.due_at = now + self._stall_timeout_s
