"""The members of one consumer group: their slots, their numbers, and where each one reads.

A new member takes the slot that was freed last, or a new one at the end. Members are listed in
the order of their slots. The number that clients see is the highest one in use plus one, so it
may be reused once its holder has left. A ``Member`` object is never reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Member", "Members"]


class Member:
    """A client in a group.

    Attributes:
        client_id: the connection that joined.
        number: what clients see as the id of the member.
        slot: its place in the list of members.
        partitions: what it owns, in the order in which it reads them.
        share: how many partitions it will own when no hand-over is pending any more.
        cursor: how many polls without a partition it has made, modulo what it owned.
        delivered: the partition that it was given messages from last.
    """

    __slots__ = ("client_id", "cursor", "delivered", "number", "partitions", "share", "slot")

    def __init__(self, client_id: int, number: int, slot: int) -> None:
        self.client_id = client_id
        self.number = number
        self.slot = slot
        self.partitions: list[int] = []
        self.share = 0
        self.cursor = 0
        self.delivered: int | None = None


class Members:
    """The list of members, in slots that are used again."""

    def __init__(self) -> None:
        self._slots: list[Member | None] = []
        self._free_slots: list[int] = []
        self._by_client: dict[int, Member] = {}

    def __len__(self) -> int:
        return len(self._by_client)

    def __iter__(self) -> Iterator[Member]:
        """Walk over the members in the order of their slots."""
        return (member for member in self._slots if member is not None)

    def find(self, client_id: int) -> Member | None:
        """Look a member up by its connection."""
        return self._by_client.get(client_id)

    def add(self, client_id: int) -> Member:
        """Take in a client that is no member yet."""
        number = max((member.number for member in self), default=-1) + 1
        if self._free_slots:
            member = Member(client_id, number, self._free_slots.pop())
            self._slots[member.slot] = member
        else:
            member = Member(client_id, number, len(self._slots))
            self._slots.append(member)
        self._by_client[client_id] = member
        return member

    def remove(self, member: Member) -> None:
        """Free the slot of a member."""
        del self._by_client[member.client_id]
        self._slots[member.slot] = None
        self._free_slots.append(member.slot)
