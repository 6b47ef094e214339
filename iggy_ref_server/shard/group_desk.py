"""Consumer groups for polls and offset commands, on any shard.

The groups live on shard 0. ``LocalGroups`` uses them directly there; ``RemoteGroups`` has the same
methods and calls shard 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_ref_server.groups.group import Grant
from iggy_ref_server.groups.registry import GroupKey
from iggy_ref_server.shard import letters

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_ref_server.groups.registry import GroupRegistry
    from iggy_ref_server.shard.wall import Hatch

__all__ = ["GroupsHere", "GroupsThere"]


class GroupsHere:
    """The consumer groups, on shard 0."""

    def __init__(self, registry: GroupRegistry) -> None:
        self._registry = registry

    async def resolve_poll(
        self, key: GroupKey, client_id: int, partition_id: int | None
    ) -> Grant | None:
        return self._registry.require(key).resolve_poll(client_id, partition_id)

    async def deliver(self, key: GroupKey, client_id: int, grant: Grant, last_offset: int) -> bool:
        group = self._registry.find(key)
        if group is None or not group.confirm(grant):
            return False
        group.note_polled(client_id, grant.partition, last_offset)
        return True

    async def resolve_commit(self, key: GroupKey, client_id: int, partition_id: int | None) -> int:
        return self._registry.require(key).resolve_commit(client_id, partition_id)

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        group = self._registry.find(key)
        if group is not None:
            group.note_committed(partition_id, offset)

    async def memberships(self, client_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        return {client_id: self._registry.memberships(client_id) for client_id in client_ids}


class GroupsThere:
    """The consumer groups, from every other shard."""

    def __init__(self, hatch: Hatch) -> None:
        self._hatch = hatch

    async def resolve_poll(
        self, key: GroupKey, client_id: int, partition_id: int | None
    ) -> Grant | None:
        question = letters.Resolve(*key, client_id, partition_id, purpose="poll")
        answer, _ = await self._hatch.ask(question)
        assert isinstance(answer, letters.Confirm)
        return None if answer.partition_id is None else Grant(answer.partition_id, answer.epoch)

    async def deliver(self, key: GroupKey, client_id: int, grant: Grant, last_offset: int) -> bool:
        answer, _ = await self._hatch.ask(
            letters.NotePolled(*key, client_id, *grant, polled_offset=last_offset)
        )
        assert isinstance(answer, letters.Confirm)
        return answer.partition_id is not None

    async def resolve_commit(self, key: GroupKey, client_id: int, partition_id: int | None) -> int:
        question = letters.Resolve(*key, client_id, partition_id, purpose="commit")
        answer, _ = await self._hatch.ask(question)
        assert isinstance(answer, letters.Confirm)
        assert answer.partition_id is not None
        return answer.partition_id

    async def committed(self, key: GroupKey, partition_id: int, offset: int | None) -> None:
        await self._hatch.ask(letters.Committed(*key, partition_id, offset))

    async def memberships(self, client_ids: Iterable[int]) -> Mapping[int, tuple[GroupKey, ...]]:
        answer, _ = await self._hatch.ask(letters.Groups(client_ids=tuple(client_ids)))
        assert isinstance(answer, letters.Groups)
        found: dict[int, tuple[GroupKey, ...]] = {}
        for client_id, *key in answer.memberships:
            found[client_id] = (*found.get(client_id, ()), GroupKey(*key))
        return found
