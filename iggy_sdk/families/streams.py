"""Commands for streams, the outermost containers, with their topics and partitions."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import (
    SERVER_DEFAULT,
    CreatePartitions,
    CreateStream,
    CreateTopic,
    DeletePartitions,
    DeleteSegments,
    DeleteStream,
    DeleteTopic,
    GetStream,
    GetStreams,
    GetTopic,
    GetTopics,
    Identifier,
    OptionScope,
    PurgeStream,
    PurgeTopic,
    Stream,
    StreamDetails,
    Topic,
    TopicDetails,
    UpdateStream,
    UpdateTopic,
)
from iggy_sdk.client_interface import RequestSender
from iggy_sdk.errors import (
    StreamExistsError,
    StreamNotFoundError,
    TopicExistsError,
    TopicNotFoundError,
)
from iggy_sdk.families.topic_settings import (
    CompressionLabel,
    Expiry,
    GivenOptions,
    KeptExpiry,
    KeptTopicSize,
    TopicOptions,
    TopicSize,
    compression_of,
    expiry_us,
    options_for,
    size_bytes,
)
from iggy_sdk.topic_difference import check_same_topic

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds


class StreamsFamily(RequestSender):
    """Commands for streams."""

    async def create_stream(
        self,
        name: str,
        *,
        options: GivenOptions | None = None,
        exist_ok: bool = False,
        timeout: Seconds | None = None,
    ) -> StreamDetails:
        """Create a stream.

        Args:
            name: 1 to 255 bytes.
            options: settings that servers have from 0.9 on; ``describe_options`` tells which.
            exist_ok: return the stream as it is when the name is taken.
            timeout: how long it may take.

        Raises:
            StreamExistsError: the name is taken.
        """
        command = CreateStream(name, options=options_for(OptionScope.STREAM, options, self.dialect))
        deadline = self._deadline(timeout)
        try:
            new = await self.request(command, timeout=timeout)
        except StreamExistsError:
            found = None
            if exist_ok:
                found = await self._request_by(deadline, GetStream(name))
            if found is None:
                raise
            return found
        return StreamDetails(**{field.name: getattr(new, field.name) for field in fields(Stream)})

    @overload
    async def get_stream(
        self, stream: Identifier, *, required: Literal[True], timeout: Seconds | None = None
    ) -> StreamDetails: ...
    @overload
    async def get_stream(
        self, stream: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails | None: ...
    async def get_stream(
        self, stream: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails | None:
        """Ask for one stream and its topics.

        Args:
            stream: name or id.
            required: raise ``StreamNotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        details = await self.request(GetStream(stream), timeout=timeout)
        if details is None and required:
            raise StreamNotFoundError(f"there is no stream {stream!r}")
        return details

    async def get_streams(self, *, timeout: Seconds | None = None) -> list[Stream]:
        """Ask for all streams, by ascending id."""
        return list(await self.request(GetStreams(), timeout=timeout))

    async def update_stream(
        self, stream: Identifier, name: str, *, timeout: Seconds | None = None
    ) -> None:
        """Rename a stream."""
        await self.request(UpdateStream(stream, name), timeout=timeout)

    async def delete_stream(self, stream: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete a stream with everything in it."""
        await self.request(DeleteStream(stream), timeout=timeout)

    async def purge_stream(self, stream: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete all messages and stored offsets of a stream.

        Raises:
            UnsupportedByServerError: the server speaks 0.10 and nothing older.
        """
        await self.request(PurgeStream(stream), timeout=timeout)


# Commands for topics.


class TopicsFamily(RequestSender):
    """Commands for topics."""

    async def create_topic(
        self,
        stream: Identifier,
        name: str,
        partitions_count: int | None = None,
        *,
        compression_algorithm: CompressionLabel = None,
        message_expiry: Expiry = None,
        max_topic_size: TopicSize = None,
        replication_factor: int | None = None,
        options: TopicOptions | GivenOptions | None = None,
        exist_ok: bool | Literal["same"] = False,
        timeout: Seconds | None = None,
    ) -> TopicDetails:
        """Create a topic.

        Args:
            stream: name or id.
            name: 1 to 255 bytes.
            partitions_count: up to 1000; ``create_partitions`` adds more. None makes one, and takes
                any number where the topic exists.
            compression_algorithm: a label for clients; the server does not compress.
            message_expiry: seconds, a timedelta, ``"never"``, or None for the server's default.
            max_topic_size: bytes, ``"1 GB"``, ``"unlimited"``, or None for the server's default.
            replication_factor: how many nodes hold each partition; a label before 0.10.
            options: further settings, which servers have from 0.9 on.
            exist_ok: return the topic as it is when the name is taken; nothing of it changes. Where
                it differs from what is asked for in its partitions, expiry, size or compression,
                True warns with ``TopicDiffersWarning``, and ``"same"`` raises.
            timeout: how long it may take.

        Returns:
            The topic, with the settings that the server chose.

        Raises:
            TopicExistsError: the name is taken.
            TopicDiffersError: it is, by a topic that differs, and ``exist_ok`` is ``"same"``.
            StreamNotFoundError: there is no such stream.
        """
        command = CreateTopic(
            stream,
            name,
            1 if partitions_count is None else partitions_count,
            compression_of(compression_algorithm),
            expiry_us(message_expiry),
            size_bytes(max_topic_size),
            SERVER_DEFAULT if replication_factor is None else replication_factor,
            options=options_for(OptionScope.TOPIC, options, self.dialect),
        )
        deadline = self._deadline(timeout)
        try:
            return await self.request(command, timeout=timeout)
        except TopicExistsError:
            found = None
            if exist_ok:
                found = await self._request_by(deadline, GetTopic(stream, name))
            if found is None:
                raise
        asked = {} if partitions_count is None else {"partitions_count": partitions_count}
        if message_expiry is not None:
            asked["message_expiry_us"] = command.message_expiry_us
        if max_topic_size is not None:
            asked["max_topic_size_bytes"] = command.max_topic_size_bytes
        if compression_algorithm is not None:
            asked["compression"] = command.compression
        check_same_topic(stream, found, asked, must_be_same=exist_ok == "same")
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
            required: raise ``StreamNotFoundError`` or ``TopicNotFoundError`` rather than return
                None.
            timeout: how long it may take.
        """
        deadline = self._deadline(timeout)
        details = await self.request(GetTopic(stream, topic), timeout=timeout)
        if details is None and required:
            # The server tells no difference between a missing topic and a missing stream.
            if await self._request_by(deadline, GetStream(stream)) is None:
                raise StreamNotFoundError(f"there is no stream {stream!r}")
            raise TopicNotFoundError(f"stream {stream!r} has no topic {topic!r}")
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
        message_expiry: KeptExpiry = None,
        max_topic_size: KeptTopicSize = None,
        replication_factor: int | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Overwrite the name and the settings of a topic.

        A setting that is left out becomes the server's default; servers from 0.9 on leave one as
        it is that is ``"keep"``. From 0.10 on compression stays what it was at the creation.

        Args:
            stream: name or id.
            topic: name or id.
            name: the new name, or the old one.
            compression_algorithm: a label for clients; the server does not compress.
            message_expiry: seconds, a timedelta, ``"never"``, ``"keep"``, or None for the
                server's default.
            max_topic_size: bytes, ``"1 GB"``, ``"unlimited"``, ``"keep"``, or None for the
                server's default.
            replication_factor: a label before 0.9, and not to be changed since.
            timeout: how long it may take.
        """
        keeps_compression = compression_algorithm is None and self.dialect.binds_sessions
        command = UpdateTopic(
            stream,
            topic,
            name,
            None if keeps_compression else compression_of(compression_algorithm),
            None if message_expiry == "keep" else expiry_us(message_expiry),
            None if max_topic_size == "keep" else size_bytes(max_topic_size),
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
        """Delete all messages and stored offsets of a topic.

        Raises:
            UnsupportedByServerError: the server speaks 0.10 and nothing older.
        """
        await self.request(PurgeTopic(stream, topic), timeout=timeout)


# Commands for partitions and their segments.


class PartitionsFamily(RequestSender):
    """Commands for partitions and their segments."""

    async def create_partitions(
        self,
        stream: Identifier,
        topic: Identifier,
        partitions_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Add partitions behind the last one."""
        await self.request(CreatePartitions(stream, topic, partitions_count), timeout=timeout)

    async def delete_partitions(
        self,
        stream: Identifier,
        topic: Identifier,
        partitions_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete the last partitions with everything in them."""
        await self.request(DeletePartitions(stream, topic, partitions_count), timeout=timeout)

    async def delete_segments(
        self,
        stream: Identifier,
        topic: Identifier,
        partition_id: int,
        segments_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete up to so many of the oldest sealed segments that no consumer needs any more."""
        command = DeleteSegments(stream, topic, partition_id, segments_count)
        await self.request(command, timeout=timeout)
