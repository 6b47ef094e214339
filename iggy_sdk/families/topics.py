"""Commands for topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import (
    SERVER_DEFAULT,
    CreateTopic,
    DeleteTopic,
    GetStream,
    GetTopic,
    GetTopics,
    Identifier,
    PurgeTopic,
    Topic,
    TopicDetails,
    UpdateTopic,
)
from iggy_sdk.errors import StreamNotFound, TopicExists, TopicNotFound
from iggy_sdk.families.asking import Asking
from iggy_sdk.families.topic_settings import (
    CompressionLabel,
    Expiry,
    TopicSize,
    compression_of,
    expiry_us,
    size_bytes,
)

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds

__all__ = ["TopicsFamily"]


class TopicsFamily(Asking):
    """Commands for topics."""

    async def create_topic(
        self,
        stream: Identifier,
        name: str,
        partitions_count: int = 1,
        *,
        compression_algorithm: CompressionLabel = None,
        message_expiry: Expiry = None,
        max_topic_size: TopicSize = None,
        replication_factor: int | None = None,
        exist_ok: bool = False,
        timeout: Seconds | None = None,
    ) -> TopicDetails:
        """Create a topic.

        Args:
            stream: name or id.
            name: 1 to 255 bytes.
            partitions_count: up to 1000; ``create_partitions`` adds more.
            compression_algorithm: a label for clients; the server does not compress.
            message_expiry: seconds, a timedelta, ``"never"``, or None for the server's default.
            max_topic_size: bytes, ``"1 GB"``, ``"unlimited"``, or None for the server's default.
            replication_factor: a label as well, in this version.
            exist_ok: return the topic as it is when the name is taken; nothing of it changes.
            timeout: how long it may take.

        Returns:
            The topic, with the settings that the server chose.

        Raises:
            TopicExists: the name is taken.
            StreamNotFound: there is no such stream.
        """
        command = CreateTopic(
            stream,
            name,
            partitions_count,
            compression_of(compression_algorithm),
            expiry_us(message_expiry),
            size_bytes(max_topic_size),
            SERVER_DEFAULT if replication_factor is None else replication_factor,
        )
        try:
            return await self.request(command, timeout=timeout)
        except TopicExists:
            found = await self.get_topic(stream, name, timeout=timeout) if exist_ok else None
            if found is None:
                raise
            return found

    @overload
    async def get_topic(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        required: Literal[True],
        timeout: Seconds | None = None,
    ) -> TopicDetails: ...
    @overload
    async def get_topic(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> TopicDetails | None: ...
    async def get_topic(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> TopicDetails | None:
        """Ask for one topic and its partitions.

        Args:
            stream: name or id.
            topic: name or id.
            required: raise ``StreamNotFound`` or ``TopicNotFound`` rather than return None.
            timeout: how long it may take.
        """
        details = await self.request(GetTopic(stream, topic), timeout=timeout)
        if details is None and required:
            # The server tells no difference between a missing topic and a missing stream.
            if await self.request(GetStream(stream), timeout=timeout) is None:
                raise StreamNotFound(f"there is no stream {stream!r}")
            raise TopicNotFound(f"stream {stream!r} has no topic {topic!r}")
        return details

    async def get_topics(
        self, stream: Identifier, *, timeout: Seconds | None = None
    ) -> list[Topic]:
        """Ask for all topics of a stream, by ascending id."""
        return list(await self.request(GetTopics(stream), timeout=timeout))

    async def update_topic(
        self,
        stream: Identifier,
        topic: Identifier,
        name: str,
        *,
        compression_algorithm: CompressionLabel = None,
        message_expiry: Expiry = None,
        max_topic_size: TopicSize = None,
        replication_factor: int | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Overwrite the name and every setting of a topic.

        A setting that is left out becomes the server's default; it does not stay as it is.

        Args:
            stream: name or id.
            topic: name or id.
            name: the new name, or the old one.
            compression_algorithm: a label for clients; the server does not compress.
            message_expiry: seconds, a timedelta, ``"never"``, or None for the server's default.
            max_topic_size: bytes, ``"1 GB"``, ``"unlimited"``, or None for the server's default.
            replication_factor: a label as well, in this version.
            timeout: how long it may take.
        """
        command = UpdateTopic(
            stream,
            topic,
            name,
            compression_of(compression_algorithm),
            expiry_us(message_expiry),
            size_bytes(max_topic_size),
            SERVER_DEFAULT if replication_factor is None else replication_factor,
        )
        await self.request(command, timeout=timeout)

    async def delete_topic(
        self, stream: Identifier, topic: Identifier, *, timeout: Seconds | None = None
    ) -> None:
        """Delete a topic with everything in it."""
        await self.request(DeleteTopic(stream, topic), timeout=timeout)

    async def purge_topic(
        self, stream: Identifier, topic: Identifier, *, timeout: Seconds | None = None
    ) -> None:
        """Delete all messages and stored offsets of a topic."""
        await self.request(PurgeTopic(stream, topic), timeout=timeout)
