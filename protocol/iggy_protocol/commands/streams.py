"""Streams: create, look up, rename, purge, delete."""

from __future__ import annotations

from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.topics import TOPIC, TOPIC_V0_11, TOPIC_V0_12_0, TOPIC_V0_12_2
from iggy_protocol.dialect import V0_11, V0_12_0, V0_12_2, ByDialect
from iggy_protocol.fields import Absent, Field, RecordStruct, StrictGreedyRange
from iggy_protocol.model.identifier import Identifier
from iggy_protocol.model.stream import Stream, StreamDetails
from iggy_protocol.option_layouts import REPORTED_OPTIONS, Setting, option_patch, with_options
from iggy_protocol.options import NO_OPTIONS, Options, OptionScope, option_spec
from iggy_protocol.primitives import (
    IDENTIFIER,
    NAME,
    PREFIXED_OPTIONS,
    U32,
    U64,
    counted,
    required,
)
from iggy_protocol.records import optional_field, record
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
STREAM_FIELDS_V0_11 = (*STREAM_FIELDS, "options" / PREFIXED_OPTIONS)
STREAM_FIELDS_V0_12 = (*STREAM_FIELDS, *REPORTED_OPTIONS)

STREAM = RecordStruct(Stream, *STREAM_FIELDS)
STREAM_V0_11 = RecordStruct(Stream, *STREAM_FIELDS_V0_11)
STREAM_V0_12 = RecordStruct(Stream, *STREAM_FIELDS_V0_12)


def _details(*fields: Field, topic: Field) -> Field:
    return counted(
        RecordStruct(StreamDetails, *fields, "topics" / StrictGreedyRange(topic)),
        count="topics_count",
        elements="topics",
    )


STREAM_DETAILS = _details(*STREAM_FIELDS, topic=TOPIC)
STREAM_DETAILS_V0_11 = _details(*STREAM_FIELDS_V0_11, topic=TOPIC_V0_11)
STREAM_DETAILS_V0_12_0 = _details(*STREAM_FIELDS_V0_12, topic=TOPIC_V0_12_0)
STREAM_DETAILS_V0_12_2 = _details(*STREAM_FIELDS_V0_12, topic=TOPIC_V0_12_2)


@command(
    CommandCode.GET_STREAM,
    "stream" / IDENTIFIER,
    reply=ByDialect(
        reply_of_optional(STREAM_DETAILS, "StreamDetails"),
        {
            V0_11: reply_of_optional(STREAM_DETAILS_V0_11, "StreamDetails"),
            V0_12_0: reply_of_optional(STREAM_DETAILS_V0_12_0, "StreamDetails"),
            V0_12_2: reply_of_optional(STREAM_DETAILS_V0_12_2, "StreamDetails"),
        },
    ),
)
@record
class GetStream(Command[StreamDetails | None]):
    """Ask for one stream and its topics."""

    stream: Identifier


@command(
    CommandCode.GET_STREAMS,
    reply=ByDialect(
        reply_of_many(STREAM, "streams"),
        {
            V0_11: reply_of_many(STREAM_V0_11, "streams"),
            V0_12_0: reply_of_many(STREAM_V0_12, "streams"),
        },
    ),
)
@record
class GetStreams(Command[tuple[Stream, ...]]):
    """Ask for all streams, by ascending id."""


@command(
    CommandCode.CREATE_STREAM,
    "name" / NAME,
    "options" / Absent(NO_OPTIONS),
    reply=ByDialect(
        reply_of_one(STREAM, "Stream"),
        {
            V0_11: reply_of_one(STREAM_V0_11, "Stream"),
            V0_12_0: reply_of_one(STREAM_V0_12, "Stream"),
        },
    ),
    changes={V0_11: with_options("name" / NAME)},
)
@record
class CreateStream(Command[Stream]):
    """Create a stream; the server chooses its id. It can have options from 0.9 on."""

    name: str
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)


@command(CommandCode.DELETE_STREAM, "stream" / IDENTIFIER, reply=EMPTY)
@record
class DeleteStream(Command[None]):
    """Delete a stream with everything in it."""

    stream: Identifier


@command(
    CommandCode.UPDATE_STREAM,
    "stream" / IDENTIFIER,
    "name" / required(NAME),
    "options" / Absent(NO_OPTIONS),
    "reset" / Absent(frozenset[str]()),
    reply=EMPTY,
    changes={
        V0_11: with_options(
            "stream" / IDENTIFIER, "name" / required(NAME), unsaid={"reset": (frozenset(),)}
        ),
        V0_12_0: option_patch(
            OptionScope.STREAM,
            "stream" / IDENTIFIER,
            settings=(Setting("name", option_spec(OptionScope.STREAM, "name")),),
        ),
    },
)
@record
class UpdateStream(Command[None]):
    """Rename a stream; from 0.10 on ``None`` leaves the name as it is.

    Attributes:
        options: options to set; from 0.9 on.
        reset: the keys of options that go back to the server's default; from 0.10 on.
    """

    stream: Identifier
    name: str | None
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)
    reset: frozenset[str] = optional_field(default=frozenset(), kw_only=True)


@command(CommandCode.PURGE_STREAM, "stream" / IDENTIFIER, reply=EMPTY, changes={V0_12_0: None})
@record
class PurgeStream(Command[None]):
    """Delete all messages and stored offsets of a stream."""

    stream: Identifier
