"""Blocking: Commands for topics.

Made from iggy_sdk.families.topics by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_sdk.blocking.calls import ClientCalls

if TYPE_CHECKING:
    from iggy_protocol import Identifier, Topic, TopicDetails
    from iggy_sdk.durations import Seconds
    from iggy_sdk.families.topic_settings import CompressionLabel, Expiry, TopicSize

__all__ = ["TopicsFamily"]


class TopicsFamily(ClientCalls):
    """Commands for topics."""

    def create_topic(
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
        return self._run(
            self._inner.create_topic(
                stream,
                name,
                partitions_count,
                compression_algorithm=compression_algorithm,
                message_expiry=message_expiry,
                max_topic_size=max_topic_size,
                replication_factor=replication_factor,
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
            required: raise ``StreamNotFound`` or ``TopicNotFound`` rather than return None.
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
        """Delete all messages and stored offsets of a topic."""
        self._run(self._inner.purge_topic(stream, topic, timeout=timeout))
