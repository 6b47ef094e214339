"""Blocking: Commands for streams, the outermost containers, with their topics and partitions.

Made from iggy_sdk.families.streams by ``python -m tools.blocking_facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_sdk.blocking.wrapper import BlockingClientBase

if TYPE_CHECKING:
    from iggy_protocol import Identifier, Stream, StreamDetails, Topic, TopicDetails
    from iggy_sdk.durations import Seconds
    from iggy_sdk.families.topic_settings import (
        CompressionLabel,
        Expiry,
        GivenOptions,
        KeptExpiry,
        KeptTopicSize,
        TopicOptions,
        TopicSize,
    )


class StreamsFamily(BlockingClientBase):
    """Commands for streams."""

    def create_stream(
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
        return self._run(
            self._inner.create_stream(name, options=options, exist_ok=exist_ok, timeout=timeout)
        )

    @overload
    def get_stream(
        self, stream: Identifier, *, required: Literal[True], timeout: Seconds | None = None
    ) -> StreamDetails: ...

    @overload
    def get_stream(
        self, stream: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails | None: ...

    def get_stream(
        self, stream: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> StreamDetails | None:
        """Ask for one stream and its topics.

        Args:
            stream: name or id.
            required: raise ``StreamNotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        return self._run(self._inner.get_stream(stream, required=required, timeout=timeout))

    def get_streams(self, *, timeout: Seconds | None = None) -> list[Stream]:
        """Ask for all streams, by ascending id."""
        return self._run(self._inner.get_streams(timeout=timeout))

    def update_stream(
        self, stream: Identifier, name: str, *, timeout: Seconds | None = None
    ) -> None:
        """Rename a stream."""
        self._run(self._inner.update_stream(stream, name, timeout=timeout))

    def delete_stream(self, stream: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete a stream with everything in it."""
        self._run(self._inner.delete_stream(stream, timeout=timeout))

    def purge_stream(self, stream: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete all messages and stored offsets of a stream.

        Raises:
            UnsupportedByServerError: the server speaks 0.10 and nothing older.
        """
        self._run(self._inner.purge_stream(stream, timeout=timeout))


class TopicsFamily(BlockingClientBase):
    """Commands for topics."""

    def create_topic(
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
        return self._run(
            self._inner.create_topic(
                stream,
                name,
                partitions_count,
                compression_algorithm=compression_algorithm,
                message_expiry=message_expiry,
                max_topic_size=max_topic_size,
                replication_factor=replication_factor,
                options=options,
                exist_ok=exist_ok,
                timeout=timeout,
            )
        )

    @overload
    def get_topic(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        required: Literal[True],
        timeout: Seconds | None = None,
    ) -> TopicDetails: ...

    @overload
    def get_topic(
        self,
        stream: Identifier,
        topic: Identifier,
        *,
        required: bool = False,
        timeout: Seconds | None = None,
    ) -> TopicDetails | None: ...

    def get_topic(
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
        return self._run(self._inner.get_topic(stream, topic, required=required, timeout=timeout))

    def get_topics(self, stream: Identifier, *, timeout: Seconds | None = None) -> list[Topic]:
        """Ask for all topics of a stream, by ascending id."""
        return self._run(self._inner.get_topics(stream, timeout=timeout))

    def update_topic(
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
        self._run(
            self._inner.update_topic(
                stream,
                topic,
                name,
                compression_algorithm=compression_algorithm,
                message_expiry=message_expiry,
                max_topic_size=max_topic_size,
                replication_factor=replication_factor,
                timeout=timeout,
            )
        )

    def delete_topic(
        self, stream: Identifier, topic: Identifier, *, timeout: Seconds | None = None
    ) -> None:
        """Delete a topic with everything in it."""
        self._run(self._inner.delete_topic(stream, topic, timeout=timeout))

    def purge_topic(
        self, stream: Identifier, topic: Identifier, *, timeout: Seconds | None = None
    ) -> None:
        """Delete all messages and stored offsets of a topic.

        Raises:
            UnsupportedByServerError: the server speaks 0.10 and nothing older.
        """
        self._run(self._inner.purge_topic(stream, topic, timeout=timeout))


class PartitionsFamily(BlockingClientBase):
    """Commands for partitions and their segments."""

    def create_partitions(
        self,
        stream: Identifier,
        topic: Identifier,
        partitions_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Add partitions behind the last one."""
        self._run(self._inner.create_partitions(stream, topic, partitions_count, timeout=timeout))

    def delete_partitions(
        self,
        stream: Identifier,
        topic: Identifier,
        partitions_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete the last partitions with everything in them."""
        self._run(self._inner.delete_partitions(stream, topic, partitions_count, timeout=timeout))

    def delete_segments(
        self,
        stream: Identifier,
        topic: Identifier,
        partition_id: int,
        segments_count: int,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Delete up to so many of the oldest sealed segments that no consumer needs any more."""
        self._run(
            self._inner.delete_segments(
                stream, topic, partition_id, segments_count, timeout=timeout
            )
        )
