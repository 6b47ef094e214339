"""The admin methods with the official argument names: ``stream_id``, ``topic_id`` and the like.

The official ``stream_id`` may be a name as well, so this SDK calls it ``stream``.
Arguments are otherwise those of the official client 0.8 and 0.9, in their order. What asks a 0.9
server (``options``, ``segment_size`` and others) is not taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_sdk.client import IggyClient as OwnClient

if TYPE_CHECKING:
    from iggy_protocol import (
        ConsumerGroup,
        ConsumerGroupDetails,
        Identifier,
        Permissions,
        StreamDetails,
        Topic,
        TopicDetails,
        UserDetails,
        UserStatus,
    )
    from iggy_sdk.families.topic_settings import CompressionLabel, Expiry, TopicSize

__all__ = ["OfficialAdmin"]


class OfficialAdmin(OwnClient):
    """Methods whose official arguments differ from those of this SDK."""

    async def get_stream(  # type: ignore[override]
        self, stream_id: Identifier, **more: Any
    ) -> StreamDetails | None:
        """Ask for one stream; None if there is none."""
        found: StreamDetails | None = await super().get_stream(stream_id, **more)
        return found

    async def update_stream(  # type: ignore[override]
        self, stream_id: Identifier, name: str
    ) -> None:
        """Rename a stream."""
        await super().update_stream(stream_id, name)

    async def delete_stream(  # type: ignore[override]
        self, stream_id: Identifier
    ) -> None:
        """Delete a stream with everything in it."""
        await super().delete_stream(stream_id)

    async def purge_stream(  # type: ignore[override]
        self, stream_id: Identifier
    ) -> None:
        """Delete all messages of a stream."""
        await super().purge_stream(stream_id)

    async def create_topic(  # type: ignore[override]
        self,
        stream: Identifier,
        name: str,
        partitions_count: int,
        compression_algorithm: CompressionLabel = None,
        replication_factor: int | None = None,
        message_expiry: Expiry = None,
        max_topic_size: TopicSize = None,
    ) -> TopicDetails:
        """Create a topic."""
        return await super().create_topic(
            stream,
            name,
            partitions_count,
            compression_algorithm=compression_algorithm,
            replication_factor=replication_factor,
            message_expiry=message_expiry,
            max_topic_size=max_topic_size,
        )

    async def get_topic(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, **more: Any
    ) -> TopicDetails | None:
        """Ask for one topic; None if there is none."""
        found: TopicDetails | None = await super().get_topic(stream_id, topic_id, **more)
        return found

    async def get_topics(  # type: ignore[override]
        self, stream_id: Identifier
    ) -> list[Topic]:
        """Ask for all topics of a stream."""
        return await super().get_topics(stream_id)

    async def update_topic(  # type: ignore[override]
        self,
        stream_id: Identifier,
        topic_id: Identifier,
        name: str,
        compression_algorithm: CompressionLabel = None,
        message_expiry: Expiry = None,
        max_topic_size: TopicSize = None,
    ) -> None:
        """Overwrite the name and every setting of a topic."""
        await super().update_topic(
            stream_id,
            topic_id,
            name,
            compression_algorithm=compression_algorithm,
            message_expiry=message_expiry,
            max_topic_size=max_topic_size,
        )

    async def delete_topic(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier
    ) -> None:
        """Delete a topic with everything in it."""
        await super().delete_topic(stream_id, topic_id)

    async def purge_topic(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier
    ) -> None:
        """Delete all messages of a topic."""
        await super().purge_topic(stream_id, topic_id)

    async def create_partitions(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, partitions_count: int
    ) -> None:
        """Add partitions to a topic."""
        await super().create_partitions(stream_id, topic_id, partitions_count)

    async def delete_partitions(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, partitions_count: int
    ) -> None:
        """Take the last partitions of a topic away."""
        await super().delete_partitions(stream_id, topic_id, partitions_count)

    async def create_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, name: str
    ) -> ConsumerGroupDetails:
        """Create a consumer group."""
        return await super().create_consumer_group(stream_id, topic_id, name)

    async def get_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, group_id: Identifier, **more: Any
    ) -> ConsumerGroupDetails | None:
        """Ask for one consumer group; None if there is none."""
        found: ConsumerGroupDetails | None = await super().get_consumer_group(
            stream_id, topic_id, group_id, **more
        )
        return found

    async def get_consumer_groups(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier
    ) -> list[ConsumerGroup]:
        """Ask for all consumer groups of a topic."""
        return await super().get_consumer_groups(stream_id, topic_id)

    async def delete_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, group_id: Identifier
    ) -> None:
        """Delete a consumer group."""
        await super().delete_consumer_group(stream_id, topic_id, group_id)

    async def join_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, group_id: Identifier
    ) -> None:
        """Join a consumer group with this connection."""
        await super().join_consumer_group(stream_id, topic_id, group_id)

    async def leave_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, group_id: Identifier
    ) -> None:
        """Leave a consumer group."""
        await super().leave_consumer_group(stream_id, topic_id, group_id)

    async def get_user(  # type: ignore[override]
        self, user_id: Identifier, **more: Any
    ) -> UserDetails | None:
        """Ask for one user; None if there is none."""
        found: UserDetails | None = await super().get_user(user_id, **more)
        return found

    async def create_user(  # type: ignore[override]
        self,
        username: str,
        password: str,
        status: UserStatus | None = None,
        permissions: Permissions | None = None,
    ) -> UserDetails:
        """Create a user."""
        told: dict[str, Any] = {} if status is None else {"status": status}
        return await super().create_user(username, password, permissions=permissions, **told)

    async def update_user(  # type: ignore[override]
        self,
        user_id: Identifier,
        username: str | None = None,
        status: UserStatus | None = None,
    ) -> None:
        """Rename a user, or change whether it may log in."""
        await super().update_user(user_id, username=username, status=status)

    async def delete_user(  # type: ignore[override]
        self, user_id: Identifier
    ) -> None:
        """Delete a user."""
        await super().delete_user(user_id)

    async def update_permissions(  # type: ignore[override]
        self, user_id: Identifier, permissions: Permissions | None
    ) -> None:
        """Replace the permissions of a user."""
        await super().update_permissions(user_id, permissions)

    async def change_password(  # type: ignore[override]
        self, user_id: Identifier, current_password: str, new_password: str
    ) -> None:
        """Change a password."""
        await super().change_password(user_id, current_password, new_password)
