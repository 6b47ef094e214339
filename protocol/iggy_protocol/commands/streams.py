"""Streams: create, look up, rename, purge, delete."""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.topics import TOPIC
from iggy_protocol.fields import RecordStruct, StrictGreedyRange
from iggy_protocol.model.identifier import Identifier
from iggy_protocol.model.stream import Stream, StreamDetails
from iggy_protocol.primitives import IDENTIFIER, NAME, U32, U64, counted
from iggy_protocol.records import record
from iggy_protocol.registry import (
    EMPTY,
    Command,
    command,
    reply_of_many,
    reply_of_one,
    reply_of_optional,
)

STREAM_FIELDS = (
    "id" / U32,
    "created_at_us" / U64,
    "topics_count" / U32,
    "size_bytes" / U64,
    "messages_count" / U64,
    "name" / NAME,
)
STREAM = RecordStruct(Stream, *STREAM_FIELDS)

STREAM_DETAILS = counted(
    RecordStruct(StreamDetails, *STREAM_FIELDS, "topics" / StrictGreedyRange(TOPIC)),
    count="topics_count",
    elements="topics",
)


@command(
    CommandCode.GET_STREAM,
    "stream" / IDENTIFIER,
    reply=reply_of_optional(STREAM_DETAILS, "StreamDetails"),
)
@record
class GetStream(Command[StreamDetails | None]):
    """Ask for one stream and its topics."""

    stream: Identifier


@command(CommandCode.GET_STREAMS, reply=reply_of_many(STREAM, "streams"))
@record
class GetStreams(Command[tuple[Stream, ...]]):
    """Ask for all streams, by ascending id."""


@command(CommandCode.CREATE_STREAM, "name" / NAME, reply=reply_of_one(STREAM, "Stream"))
@record
class CreateStream(Command[Stream]):
    """Create a stream; the server chooses its id."""

    name: str


@command(CommandCode.DELETE_STREAM, "stream" / IDENTIFIER, reply=EMPTY)
@record
class DeleteStream(Command[None]):
    """Delete a stream with everything in it."""

    stream: Identifier


@command(CommandCode.UPDATE_STREAM, "stream" / IDENTIFIER, "name" / NAME, reply=EMPTY)
@record
class UpdateStream(Command[None]):
    """Rename a stream."""

    stream: Identifier
    name: str


@command(CommandCode.PURGE_STREAM, "stream" / IDENTIFIER, reply=EMPTY)
@record
class PurgeStream(Command[None]):
    """Delete all messages and stored offsets of a stream."""

    stream: Identifier
