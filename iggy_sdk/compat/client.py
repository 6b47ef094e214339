"""The official client: its constructor, its argument order, its way to producers and consumers.

Everything that the official client does not have is that of ``iggy_sdk.IggyClient``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import iggy_protocol
from iggy_sdk.client import IggyClient as OwnClient
from iggy_sdk.compat.messaging import IggyConsumer, IggyProducer, ReceiveMessage
from iggy_sdk.compat.models import TcpConfig
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.options import Retry
from iggy_sdk.producer import BackgroundMode, DirectMode, ProducerBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    from iggy_sdk.families.messages import Outgoing
    from iggy_sdk.families.topic_settings import CompressionLabel, Expiry, TopicSize


# The admin methods with the official argument names: ``stream_id``, ``topic_id`` and the like.
#
# The official ``stream_id`` may be a name as well, so this SDK calls it ``stream``.
# Arguments are otherwise those of the official client 0.8 and 0.9, in their order. What asks a 0.9
# server (``options``, ``segment_size`` and others) is not taken.


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
        extra: dict[str, Any] = {} if status is None else {"status": status}
        return await super().create_user(username, password, permissions=permissions, **extra)

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


DEFAULT_CONSUMER: Final = iggy_protocol.Consumer.single(0)
"""The consumer of a poll that names none, as with the official client."""

RETRY_SECONDS: Final = timedelta(seconds=1)


class IggyClient(OfficialAdmin):
    """A client with the interface of the official one."""

    def __init__(self, conn: TcpConfig | str | None = None) -> None:
        """Take an address ``host:port``, a ``TcpConfig``, or nothing for the usual port here."""
        if isinstance(conn, TcpConfig):
            super().__init__(None, **conn.settings())
        else:
            super().__init__(conn)

    async def send_messages(  # type: ignore[override]
        self,
        stream: iggy_protocol.Identifier,
        topic: iggy_protocol.Identifier,
        partitioning: iggy_protocol.Partitioning | int,
        messages: Sequence[Outgoing],
    ) -> None:
        """Append a batch to a partition, whose number may stand for the partitioning."""
        where = partitioning
        if isinstance(where, int):
            where = iggy_protocol.Partitioning.partition(where)
        await super().send_messages(stream, topic, messages, partitioning=where)

    async def poll_messages(  # type: ignore[override]
        self,
        stream: iggy_protocol.Identifier,
        topic: iggy_protocol.Identifier,
        partition_id: int | None = None,
        polling_strategy: iggy_protocol.PollingStrategy | None = None,
        count: int = 100,
        auto_commit: bool = False,
        *,
        consumer: iggy_protocol.Consumer = DEFAULT_CONSUMER,
    ) -> list[ReceiveMessage]:
        """Ask for messages of one partition."""
        batch = await super().poll_messages(
            stream,
            topic,
            consumer=consumer,
            partition_id=partition_id,
            strategy=polling_strategy or iggy_protocol.PollingStrategy.next(),
            count=count,
            auto_commit=auto_commit,
        )
        return [ReceiveMessage(message) for message in batch]

    async def consumer_group(  # type: ignore[override]
        self,
        name: str,
        stream: str,
        topic: str,
        partition_id: int | None = None,
        polling_strategy: iggy_protocol.PollingStrategy | None = None,
        batch_length: int | None = None,
        auto_commit: AutoCommit | None = None,
        create_consumer_group_if_not_exists: bool = True,
        auto_join_consumer_group: bool = True,
        poll_interval: timedelta | None = None,
        polling_retry_interval: timedelta | None = None,
        init_retries: int | None = None,
        init_retry_interval: timedelta | None = None,
        allow_replay: bool = False,
    ) -> IggyConsumer:
        """Join a consumer group, on a connection of its own; ``shutdown()`` leaves it.

        Without ``auto_commit`` a message is committed after it was processed: at least once.
        """
        builder = ConsumerBuilder.group(
            self,
            name,
            stream,
            topic,
            partition_id=partition_id,
            polling_strategy=polling_strategy,
            batch_length=batch_length,
            auto_commit=auto_commit,
            create_consumer_group_if_not_exists=create_consumer_group_if_not_exists,
            auto_join_consumer_group=auto_join_consumer_group,
            poll_interval=poll_interval,
            polling_retry_interval=polling_retry_interval,
            init_retries=init_retries,
            init_retry_interval=init_retry_interval,
            allow_replay=allow_replay,
        )
        return IggyConsumer(await builder)

    async def producer(  # type: ignore[override]
        self,
        stream: str,
        topic: str,
        partitioning: iggy_protocol.Partitioning | None = None,
        mode: DirectMode | BackgroundMode | None = None,
        create_stream_if_not_exists: bool = True,
        create_topic_if_not_exists: bool = True,
        topic_partitions_count: int = 1,
        topic_message_expiry: Expiry = None,
        topic_max_size: TopicSize = None,
        send_retries: int | None = 3,
        send_retry_interval: timedelta | None = RETRY_SECONDS,
    ) -> IggyProducer:
        """Make a producer, with the stream and the topic if they are missing."""
        if create_stream_if_not_exists:
            await self.create_stream(stream, exist_ok=True)
        if create_topic_if_not_exists:
            await OwnClient.create_topic(
                self,
                stream,
                topic,
                topic_partitions_count,
                message_expiry=topic_message_expiry,
                max_topic_size=topic_max_size,
                exist_ok=True,
            )
        builder: ProducerBuilder[Any] = ProducerBuilder(
            self,
            stream,
            topic,
            partitioning=partitioning,
            mode=mode,
            retry=Retry(attempts=send_retries or 0, backoff=send_retry_interval or RETRY_SECONDS),
        )
        return IggyProducer(await builder)
