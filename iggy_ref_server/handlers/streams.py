"""Streams: the outermost containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    CreateStream,
    DeleteStream,
    GetStream,
    GetStreams,
    PurgeStream,
    UpdateStream,
)
from iggy_ref_server.handlers.table import Place, handles
from iggy_ref_server.metadata import plan_streams
from iggy_ref_server.metadata.views import no_statistics, view_stream_details, view_streams

if TYPE_CHECKING:
    from iggy_protocol import Stream, StreamDetails
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session


@handles(GetStreams)
async def get_streams(office: Office, session: Session, command: GetStreams) -> tuple[Stream, ...]:
    """List all streams."""
    office.authorize(session, command.CODE)
    figures = await office.census.figures()
    return view_streams(office.metadata(), figures.of)


@handles(GetStream)
async def get_stream(office: Office, session: Session, command: GetStream) -> StreamDetails | None:
    """Show one stream with its topics."""
    stream = office.metadata().find_stream(command.stream)
    if stream is None:
        return None
    office.authorize(session, command.CODE, stream.id)
    return view_stream_details(stream, (await office.census.figures()).of)


@handles(CreateStream, place=Place.METADATA)
async def create_stream(office: Office, session: Session, command: CreateStream) -> StreamDetails:
    """Create a stream."""
    office.authorize(session, command.CODE)
    context = office.plan_context(session)
    change = await office.change(
        lambda metadata: plan_streams.plan_create_stream(metadata, command, context)
    )
    return view_stream_details(office.metadata().require_stream(change.id), no_statistics)


@handles(UpdateStream, place=Place.METADATA)
async def update_stream(office: Office, session: Session, command: UpdateStream) -> None:
    """Rename a stream."""
    stream = office.metadata().require_stream(command.stream)
    office.authorize(session, command.CODE, stream.id)
    context = office.plan_context(session)
    await office.change(
        lambda metadata: plan_streams.plan_update_stream(metadata, command, context)
    )


@handles(DeleteStream, place=Place.METADATA)
async def delete_stream(office: Office, session: Session, command: DeleteStream) -> None:
    """Delete a stream with all it holds."""
    stream = office.metadata().require_stream(command.stream)
    office.authorize(session, command.CODE, stream.id)
    context = office.plan_context(session)
    await office.change(
        lambda metadata: plan_streams.plan_delete_stream(metadata, command, context)
    )


@handles(PurgeStream, place=Place.METADATA)
async def purge_stream(office: Office, session: Session, command: PurgeStream) -> None:
    """Empty all topics of a stream."""
    stream = office.metadata().require_stream(command.stream)
    office.authorize(session, command.CODE, stream.id)
    context = office.plan_context(session)
    await office.change(lambda metadata: plan_streams.plan_purge_stream(metadata, command, context))
