"""Commands for consumer groups: sharing the partitions of a topic.

A member is a connection, so joining and leaving act on the connection of this client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import (
    ConsumerGroup,
    ConsumerGroupDetails,
    CreateConsumerGroup,
    DeleteConsumerGroup,
    GetConsumerGroup,
    GetConsumerGroups,
    GetStream,
    GetTopic,
    Identifier,
    JoinConsumerGroup,
    LeaveConsumerGroup,
)
from iggy_sdk.errors import (
    ConsumerGroupExists,
    ConsumerGroupNotFound,
    NotFoundError,
    StreamNotFound,
    TopicNotFound,
)
from iggy_sdk.families.asking import Asking

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds

__all__ = ["ConsumerGroupsFamily"]


class ConsumerGroupsFamily(Asking):
    """Commands for consumer groups."""

    async def create_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        name: str,
        *,
        exist_ok: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails:
        """Create a group; ``join_consumer_group`` joins it.

        Args:
            stream: name or id.
            topic: name or id.
            name: 1 to 255 bytes.
            exist_ok: return the group as it is when the name is taken.
            timeout: how long it may take.

        Raises:
            ConsumerGroupExists: the name is taken.
            StreamNotFound: there is no such stream.
            TopicNotFound: there is no such topic.
        """
        try:
            new = await self.request(CreateConsumerGroup(stream, topic, name), timeout=timeout)
        except ConsumerGroupExists:
            found = None
            if exist_ok:
                found = await self.get_consumer_group(stream, topic, name, timeout=timeout)
            if found is None:
                raise
            return found
        return ConsumerGroupDetails(new.id, new.partitions_count, new.members_count, new.name)

    @overload
    async def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: Literal[True],
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails: ...
    @overload
    async def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails | None: ...
    async def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails | None:
        """Ask for one group and its members.

        Args:
            stream: name or id.
            topic: name or id.
            group: name or id.
            required: raise ``StreamNotFound``, ``TopicNotFound`` or ``ConsumerGroupNotFound``
                rather than return None.
            timeout: how long it may take.
        """
        details = await self.request(GetConsumerGroup(stream, topic, group), timeout=timeout)
        if details is None and required:
            raise await self._missing(stream, topic, group, timeout)
        return details

    async def get_consumer_groups(
        self, stream: Identifier, topic: Identifier, *, timeout: Seconds | None = None
    ) -> list[ConsumerGroup]:
        """Ask for all groups of a topic."""
        return list(await self.request(GetConsumerGroups(stream, topic), timeout=timeout))

    async def delete_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete a group with its stored offsets."""
        await self.request(DeleteConsumerGroup(stream, topic, group), timeout=timeout)

    async def join_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Make this connection a member; joining twice changes nothing."""
        await self.request(JoinConsumerGroup(stream, topic, group), timeout=timeout)

    async def leave_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Leave the group with this connection.

        Raises:
            NotAMember: this connection has not joined the group.
        """
        await self.request(LeaveConsumerGroup(stream, topic, group), timeout=timeout)

    async def _missing(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        timeout: Seconds | None,
    ) -> NotFoundError:
        """Find out what is missing, which the server does not tell."""
        if await self.request(GetStream(stream), timeout=timeout) is None:
            return StreamNotFound(f"there is no stream {stream!r}")
        if await self.request(GetTopic(stream, topic), timeout=timeout) is None:
            return TopicNotFound(f"stream {stream!r} has no topic {topic!r}")
        return ConsumerGroupNotFound(f"topic {topic!r} has no consumer group {group!r}")
