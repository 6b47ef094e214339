"""The official client: its constructor, its argument order, its way to producers and consumers.

Everything that the official client does not have is that of ``iggy_sdk.IggyClient``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import iggy_protocol
from iggy_sdk.client import IggyClient as OwnClient
from iggy_sdk.compat.admin import OfficialAdmin
from iggy_sdk.compat.configs import TcpConfig
from iggy_sdk.compat.consumer import IggyConsumer
from iggy_sdk.compat.messages import ReceiveMessage
from iggy_sdk.compat.producer import IggyProducer
from iggy_sdk.consumer import ConsumerBuilder
from iggy_sdk.options import Retry
from iggy_sdk.producer import ProducerBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_sdk.consumer import AutoCommit
    from iggy_sdk.families.messages import Outgoing
    from iggy_sdk.families.topic_settings import Expiry, TopicSize
    from iggy_sdk.producer import BackgroundMode, DirectMode

__all__ = ["IggyClient"]

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
