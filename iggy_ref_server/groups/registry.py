"""All consumer groups of the server, and which of them a client is in.

Groups are added and removed as the metadata change. A membership and the client's own list of
groups change in one step, so that no group keeps a member whose client has disconnected. The end
of a connection calls ``client_gone`` after the last request of that client.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, NamedTuple

from iggy_protocol import StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.groups.group import ConsumerGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["GroupKey", "GroupRegistry"]

logger = logging.getLogger(__name__)

REBALANCING_TIMEOUT_US = 30_000_000


class GroupKey(NamedTuple):
    """Where a group is."""

    stream_id: int
    topic_id: int
    group_id: int


class GroupRegistry:
    """The consumer groups of a server.

    Args:
        rebalancing_timeout_us: see ``ConsumerGroup``.
    """

    def __init__(self, *, rebalancing_timeout_us: int = REBALANCING_TIMEOUT_US) -> None:
        self._timeout_us = rebalancing_timeout_us
        # One count for all groups: a grant of a deleted group is worth nothing in the next one
        # of the same id.
        self._epochs = itertools.count()
        self._groups: dict[GroupKey, ConsumerGroup] = {}
        # The inner dictionaries serve as sets that keep the order of joining.
        self._memberships: dict[int, dict[GroupKey, None]] = {}

    # --- groups ---

    def add_group(self, key: GroupKey, partitions_count: int) -> ConsumerGroup:
        """Make a group without members."""
        self.forget_group(key)
        group = ConsumerGroup(
            partitions_count, rebalancing_timeout_us=self._timeout_us, epochs=self._epochs
        )
        self._groups[key] = group
        return group

    def find(self, key: GroupKey) -> ConsumerGroup | None:
        """Look a group up."""
        return self._groups.get(key)

    def require(self, key: GroupKey) -> ConsumerGroup:
        """Look a group up that should be there.

        Raises:
            ServerFault: it is not.
        """
        group = self._groups.get(key)
        if group is None:
            raise ServerFault(
                StatusCode.CONSUMER_GROUP_ID_NOT_FOUND, f"consumer group {key} does not exist"
            )
        return group

    def forget_group(self, key: GroupKey) -> None:
        """Drop a group with its members; no error where there is none."""
        group = self._groups.pop(key, None)
        if group is not None:
            for client_id in group.client_ids():
                self._end_membership(client_id, key)

    def forget_topic(self, stream_id: int, topic_id: int) -> None:
        """Drop all groups of a topic."""
        for key in self._keys(lambda key: key[:2] == (stream_id, topic_id)):
            self.forget_group(key)

    def forget_stream(self, stream_id: int) -> None:
        """Drop all groups of a stream."""
        for key in self._keys(lambda key: key.stream_id == stream_id):
            self.forget_group(key)

    def set_partitions(self, stream_id: int, topic_id: int, partitions_count: int) -> None:
        """Let all groups of a topic follow its number of partitions."""
        for key in self._keys(lambda key: key[:2] == (stream_id, topic_id)):
            self._groups[key].set_partitions(partitions_count)

    def reset_progress(self, stream_id: int, topic_id: int) -> None:
        """Let all groups of a topic follow its purge."""
        for key in self._keys(lambda key: key[:2] == (stream_id, topic_id)):
            self._groups[key].reset_progress()

    # --- members ---

    def join(self, key: GroupKey, client_id: int, now_us: int) -> None:
        """Make a client a member.

        Raises:
            ServerFault: there is no such group.
        """
        self.require(key).join(client_id, now_us)
        self._memberships.setdefault(client_id, {})[key] = None

    def leave(self, key: GroupKey, client_id: int) -> None:
        """End a membership.

        Raises:
            ServerFault: there is no such group, or the client is no member.
        """
        self.require(key).leave(client_id)
        self._end_membership(client_id, key)

    def client_gone(self, client_id: int) -> None:
        """End all memberships of a client that disconnected or was evicted."""
        for key in self._memberships.pop(client_id, {}):
            self._groups[key].leave(client_id)

    def memberships(self, client_id: int) -> tuple[GroupKey, ...]:
        """List the groups a client is in, in the order of joining."""
        return tuple(self._memberships.get(client_id, ()))

    # --- hand-overs ---

    def next_deadline_us(self) -> int | None:
        """Return when ``expire`` will have something to do; None while nothing is pending."""
        deadlines = (group.next_deadline_us() for group in self._groups.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def expire(self, now_us: int) -> None:
        """Hand over, in all groups, what old owners did not commit in time."""
        for key, group in self._groups.items():
            partitions = group.expire(now_us)
            if partitions:
                logger.warning(
                    "group %s: partitions %s moved to other members after the rebalancing timeout,"
                    " although their last messages are not committed",
                    key,
                    partitions,
                )

    def _keys(self, wanted: Callable[[GroupKey], bool]) -> Iterator[GroupKey]:
        return iter([key for key in self._groups if wanted(key)])

    def _end_membership(self, client_id: int, key: GroupKey) -> None:
        keys = self._memberships[client_id]
        del keys[key]
        if not keys:
            del self._memberships[client_id]
