"""The official methods for streams, topics and partitions.

Arguments have the official names and order: ``stream_id`` may be a name as well, which is why this
SDK calls it ``stream``. Results are the official classes.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import iggy_protocol
from iggy_protocol import (
    SERVER_DEFAULT,
    CreateStream,
    CreateTopic,
    Identifier,
    OptionScope,
    UpdateStream,
    UpdateTopic,
)
from iggy_sdk.compat.config_parts import either
from iggy_sdk.compat.errors import option_errors
from iggy_sdk.compat.records import OptionSpec, Stream, StreamDetails, Topic, TopicDetails
from iggy_sdk.compat.settings import TopicOptions, own_expiry, own_size
from iggy_sdk.compat.shared_client import SharedClient
from iggy_sdk.errors import ConfigurationError, UnsupportedByServerError
from iggy_sdk.families.topic_settings import (
    compression_of,
    expiry_us,
    options_for,
    size_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_sdk.compat.settings import (
        AnyExpiry,
        AnySize,
        Durability,
        OptionKey,
        StreamOptions,
    )
    from iggy_sdk.families.topic_settings import CompressionLabel


class StreamsMethods(SharedClient):
    """Methods for streams."""

    async def create_stream(  # type: ignore[override]
        self, name: str, options: StreamOptions | None = None
    ) -> StreamDetails:
        """Create a stream.

        Raises:
            StreamExistsError: the name is taken.
            OptionError: the server refuses an option.
        """
        if options is None:
            return StreamDetails(await self.own.create_stream(name))
        with option_errors():
            given = options_for(OptionScope.STREAM, options.options(), self.dialect)
            new = await self.request(CreateStream(name, options=given))
        return StreamDetails(
            iggy_protocol.StreamDetails(
                new.id,
                new.created_at_us,
                new.topics_count,
                new.size_bytes,
                new.messages_count,
                new.name,
                options=new.options,
                derived_options=new.derived_options,
            )
        )

    async def get_stream(  # type: ignore[override]
        self, stream_id: Identifier
    ) -> StreamDetails | None:
        """Ask for one stream and its topics; None if there is none."""
        found = await self.own.get_stream(stream_id)
        return None if found is None else StreamDetails(found)

    async def get_streams(self) -> list[Stream]:  # type: ignore[override]
        """Ask for all streams, by ascending id."""
        return [Stream(stream) for stream in await self.own.get_streams()]

    async def update_stream(  # type: ignore[override]
        self,
        stream_id: Identifier,
        name: str | None = None,
        options: Mapping[str, str] | None = None,
        *,
        reset: Iterable[OptionKey] | None = None,
        raw_reset: Iterable[str] | None = None,
    ) -> None:
        """Rename a stream, or change its options.

        Args:
            stream_id: name or id.
            name: the new name; servers from 0.10 on leave it as it is without one.
            options: options to set, as texts; from 0.9 on.
            reset: options that go back to their defaults; from 0.10 on.
            raw_reset: the same by name.

        Raises:
            OptionError: the server refuses an option.
        """
        keys = reset_keys(reset, raw_reset)
        with option_errors():
            given = options_for(OptionScope.STREAM, options, self.dialect)
            await self.request(UpdateStream(stream_id, name, options=given, reset=keys))

    async def delete_stream(self, stream_id: Identifier) -> None:  # type: ignore[override]
        """Delete a stream with everything in it."""
        await self.own.delete_stream(stream_id)

    async def purge_stream(self, stream_id: Identifier) -> None:  # type: ignore[override]
        """Delete all messages of a stream; servers from 0.10 on cannot."""
        await self.own.purge_stream(stream_id)

    async def describe_options(self, scope: str) -> list[OptionSpec]:  # type: ignore[override]
        """Ask a server from 0.9 on which options there are.

        Args:
            scope: ``topic``, ``stream`` or ``user``.

        Raises:
            ConfigurationError: there is no such scope.
            UnsupportedByServerError: the server is older, and has no options.
        """
        scopes = {one.name.lower(): one for one in OptionScope}
        if scope not in scopes:
            raise ConfigurationError(
                f"scope is {scope!r}", advice=f"Use one of {', '.join(scopes)}."
            )
        return [OptionSpec(option) for option in await self.own.describe_options(scopes[scope])]


class TopicsMethods(SharedClient):
    """Methods for topics and partitions."""

    async def create_topic(  # type: ignore[override]
        self,
        stream: Identifier,
        name: str,
        partitions_count: int | TopicOptions = 1,
        compression_algorithm: CompressionLabel = None,
        message_expiry: AnyExpiry | int = None,
        max_topic_size: AnySize | timedelta = None,
        segment_size: int | None = None,
        durability: Durability | None = None,
        consumer_offset_durability: Durability | None = None,
        messages_required_to_save: int | None = None,
        size_of_messages_required_to_save: int | None = None,
        preallocate_segments: bool | None = None,
        options: Mapping[str, str] | TopicOptions | None = None,
        *,
        replication_factor: int | None = None,
    ) -> TopicDetails:
        """Create a topic.

        ``TopicOptions`` may stand in place of all settings, as the third argument or by name. The
        order of ``apache-iggy`` 0.8 is understood as well, with the replication factor before the
        expiry, if the expiry is a timedelta.

        Args:
            stream: name or id.
            name: 1 to 255 bytes.
            partitions_count: how many partitions it gets.
            compression_algorithm: a label for clients; the server does not compress.
            message_expiry: how long messages are kept.
            max_topic_size: how large it may get.
            segment_size: bytes of a segment; this and what follows ask for a server from 0.9 on.
            durability: when a send is answered.
            consumer_offset_durability: when a stored offset is answered.
            messages_required_to_save: how many messages may wait in memory.
            size_of_messages_required_to_save: how many bytes may wait in memory.
            preallocate_segments: whether a segment takes its full size on disk at once.
            options: further options by name, as texts.
            replication_factor: a label, in 0.8.

        Raises:
            TopicExistsError: the name is taken.
            UnsupportedByServerError: the server is older than 0.9, and has no such setting.
            OptionError: the server refuses an option.
        """
        if isinstance(max_topic_size, timedelta):
            replication_factor, message_expiry = _factor(message_expiry), max_topic_size
            max_topic_size, segment_size = segment_size, None
        if isinstance(message_expiry, int):
            raise TypeError(
                f"message_expiry is {message_expiry}: give an IggyExpiry or a timedelta, and the "
                "replication factor, which was the fifth argument in 0.8, by name"
            )
        if isinstance(partitions_count, TopicOptions):
            return await self._create_topic(stream, name, partitions_count)
        if isinstance(options, TopicOptions):
            return await self._create_topic(stream, name, options)
        settings = TopicOptions(
            partitions_count=partitions_count,
            compression_algorithm=compression_algorithm,
            message_expiry=message_expiry,
            max_topic_size=max_topic_size,
            segment_size=segment_size,
            durability=durability,
            consumer_offset_durability=consumer_offset_durability,
            messages_required_to_save=messages_required_to_save,
            size_of_messages_required_to_save=size_of_messages_required_to_save,
            preallocate_segments=preallocate_segments,
            raw=options,
        )
        return await self._create_topic(stream, name, settings, replication_factor)

    async def _create_topic(
        self,
        stream: Identifier,
        name: str,
        options: TopicOptions,
        replication_factor: int | None = None,
    ) -> TopicDetails:
        with option_errors():
            command = CreateTopic(
                stream,
                name,
                options.partitions_count,
                compression_of(options.compression_algorithm),
                expiry_us(own_expiry(options.message_expiry)),
                size_bytes(own_size(options.max_topic_size)),
                SERVER_DEFAULT if replication_factor is None else replication_factor,
                options=options_for(OptionScope.TOPIC, options.options(), self.dialect),
            )
            return TopicDetails(await self.request(command))

    async def get_topic(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier
    ) -> TopicDetails | None:
        """Ask for one topic and its partitions; None if there is none."""
        found = await self.own.get_topic(stream_id, topic_id)
        return None if found is None else TopicDetails(found)

    async def get_topics(self, stream_id: Identifier) -> list[Topic]:  # type: ignore[override]
        """Ask for all topics of a stream, by ascending id."""
        return [Topic(topic) for topic in await self.own.get_topics(stream_id)]

    async def update_topic(  # type: ignore[override]
        self,
        stream_id: Identifier,
        topic_id: Identifier,
        name: str | None = None,
        compression_algorithm: CompressionLabel = None,
        message_expiry: AnyExpiry = None,
        max_topic_size: AnySize = None,
        options: Mapping[str, str] | None = None,
        *,
        reset: Iterable[OptionKey] | None = None,
        raw_reset: Iterable[str] | None = None,
    ) -> None:
        """Change the name or settings of a topic; what is None stays as it is.

        A server of 0.8 overwrites everything, so for such a server the client reads what there is
        first; a change that another client makes in between is lost.

        Args:
            stream_id: name or id.
            topic_id: name or id.
            name: the new name.
            compression_algorithm: a label for clients; the server does not compress.
            message_expiry: how long messages are kept.
            max_topic_size: how large it may get.
            options: options to set, as texts; from 0.9 on.
            reset: options that go back to their defaults; from 0.10 on.
            raw_reset: the same by name.

        Raises:
            OptionError: the server refuses an option.
        """
        with option_errors():
            command = UpdateTopic(
                stream_id,
                topic_id,
                name,
                None if compression_algorithm is None else compression_of(compression_algorithm),
                None if message_expiry is None else expiry_us(own_expiry(message_expiry)),
                None if max_topic_size is None else size_bytes(own_size(max_topic_size)),
                None,
                options=options_for(OptionScope.TOPIC, options, self.dialect),
                reset=reset_keys(reset, raw_reset),
            )
            if not await self._is_carried_out(command):
                await self._overwrite_topic(command)

    async def _overwrite_topic(self, change: UpdateTopic) -> None:
        """Change a topic of a server that overwrites the name, or everything."""
        found = await self.own.get_topic(change.stream, change.topic, required=True)
        named = replace(change, name=either(change.name, found.name))
        if await self._is_carried_out(named):
            return
        await self.request(
            replace(
                named,
                compression=either(named.compression, found.compression),
                message_expiry_us=either(named.message_expiry_us, found.message_expiry_us),
                max_topic_size_bytes=either(named.max_topic_size_bytes, found.max_topic_size_bytes),
                replication_factor=found.replication_factor,
            )
        )

    async def _is_carried_out(self, change: UpdateTopic) -> bool:
        """Send a change, unless the generation of the server cannot say it."""
        try:
            await self.request(change)
        except UnsupportedByServerError:
            return False
        return True

    async def delete_topic(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier
    ) -> None:
        """Delete a topic with everything in it."""
        await self.own.delete_topic(stream_id, topic_id)

    async def purge_topic(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier
    ) -> None:
        """Delete all messages of a topic; servers from 0.10 on cannot."""
        await self.own.purge_topic(stream_id, topic_id)

    async def create_partitions(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, partitions_count: int
    ) -> None:
        """Add partitions to a topic."""
        await self.own.create_partitions(stream_id, topic_id, partitions_count)

    async def delete_partitions(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, partitions_count: int
    ) -> None:
        """Take the last partitions of a topic away."""
        await self.own.delete_partitions(stream_id, topic_id, partitions_count)

    async def delete_segments(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, partition_id: int, segments_count: int
    ) -> None:
        """Delete up to so many of the oldest segments that no consumer needs any more."""
        await self.own.delete_segments(stream_id, topic_id, partition_id, segments_count)


def _factor(given: AnyExpiry | int) -> int | None:
    """Take the fifth argument of 0.8, where later versions have the expiry."""
    if given is None or isinstance(given, int):
        return given
    raise TypeError(f"max_topic_size is a timedelta, and message_expiry is {given!r}")


def reset_keys(
    reset: Iterable[OptionKey] | None, raw_reset: Iterable[str] | None
) -> frozenset[str]:
    """Return the names of the options that go back to their defaults."""
    return frozenset({*map(str, reset or ()), *(raw_reset or ())})
