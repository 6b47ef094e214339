"""Blocking: Commands for consumer groups: sharing the partitions of a topic.

Made from iggy_sdk.families.groups by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_sdk.blocking.calls import ClientCalls

if TYPE_CHECKING:
    from iggy_protocol import ConsumerGroup, ConsumerGroupDetails, Identifier
    from iggy_sdk.durations import Seconds

__all__ = ["ConsumerGroupsFamily"]


class ConsumerGroupsFamily(ClientCalls):
    """Commands for consumer groups."""

    def create_consumer_group(
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
        return self._run(
            self._inner.create_consumer_group(
                stream, topic, name, exist_ok=exist_ok, timeout=timeout
            )
        )

    @overload
    def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: Literal[True],
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails: ...

    @overload
    def get_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> ConsumerGroupDetails | None: ...

    def get_consumer_group(
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
        return self._run(
            self._inner.get_consumer_group(stream, topic, group, required=required, timeout=timeout)
        )

    def get_consumer_groups(
        self, stream: Identifier, topic: Identifier, *, timeout: Seconds | None = None
    ) -> list[ConsumerGroup]:
        """Ask for all groups of a topic."""
        return self._run(self._inner.get_consumer_groups(stream, topic, timeout=timeout))

    def delete_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete a group with its stored offsets."""
        self._run(self._inner.delete_consumer_group(stream, topic, group, timeout=timeout))

    def join_consumer_group(
        self,
        stream: Identifier,
        topic: Identifier,
        group: Identifier,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Make this connection a member; joining twice changes nothing."""
        self._run(self._inner.join_consumer_group(stream, topic, group, timeout=timeout))

    def leave_consumer_group(
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
        self._run(self._inner.leave_consumer_group(stream, topic, group, timeout=timeout))
