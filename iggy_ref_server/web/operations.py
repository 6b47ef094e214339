"""The operations of the REST API, from the request to the response.

    path, query, body → command → dispatcher → shape → JSON

A few operations differ: logins return tokens, a poll is encoded in pieces, a snapshot is a file,
and some responses are text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import UNSET, defstruct
from starlette.responses import Response

from iggy_protocol import (
    CLASSIC,
    NO_OPTIONS,
    V0_12_2,
    Command,
    CommandCode,
    CreateTopic,
    GetUser,
    HeadroomBuffer,
    LocalProtocolError,
    MessageBatch,
    PolledMessages,
    SendMessages,
    StatusCode,
    decode_reply,
    encode_request,
)
from iggy_protocol.rest import (
    METADATA_CHANGES,
    MessageHeaderShape,
    MessageShape,
    PolledMessagesShape,
    Route,
    SendMessagesBody,
    encode_json,
    interpret_user_headers,
)
from iggy_ref_server.dispatch.dispatcher import log_refusal
from iggy_ref_server.dispatch.table import COMMAND_TABLE
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.options import durability_of
from iggy_ref_server.metadata.views import view_topic_details
from iggy_ref_server.storage.interface import FileSlice, StorageError
from iggy_ref_server.web.auth import HttpCaller, caller_of, log_in, log_out, refresh
from iggy_ref_server.web.commands import RequestParts, build_command
from iggy_ref_server.web.connection import RequestBuffers, connection_of
from iggy_ref_server.web.context import COPIES_OF_POLL, LARGE_RESPONSE_BYTES, WebContext
from iggy_ref_server.web.errors import (
    JSON,
    TEXT,
    Rejection,
    empty_response,
    error_response,
    json_response,
    not_found_response,
)
from iggy_ref_server.web.metadata_changes import read_changes_query, shape_changes
from iggy_ref_server.web.option_bodies import dialect_of_body, shape_of
from iggy_ref_server.web.replies import shape_confirmations, shape_reply
from iggy_ref_server.web.requests import read_json, read_query, read_values

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from iggy_ref_server.dispatch.context import StagedWrite

    OperationHandler = Callable[["WebContext", "RestCall"], Awaitable[Response]]
    from collections.abc import Iterator

    from iggy_ref_server.dispatch.handlers.messages import EncodedReply
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.session import ClientSession


NAME: Final = "Iggy API"
PONG: Final = "pong"
MICROSECONDS: Final = 1_000_000
# What a message of a request costs beside its content; as JSON it may have 20 bytes.
MESSAGE_BYTES: Final = 192
# An answer, and the same with its head on the way to the socket.
ANSWER_COPIES: Final = 2
MESSAGE_CODES: Final = frozenset(
    {
        CommandCode.SEND_MESSAGES,
        CommandCode.POLL_MESSAGES,
        CommandCode.FLUSH_UNSAVED_BUFFER,
        CommandCode.GET_CONSUMER_OFFSET,
        CommandCode.STORE_CONSUMER_OFFSET,
        CommandCode.DELETE_CONSUMER_OFFSET,
    }
)
OWN_USER: Final = "me"
UNACKNOWLEDGED: Final = "none"
DURABILITY_HEADER: Final = "iggy-durability"


@dataclass(slots=True)
class RestCall:
    """The state of one request.

    Attributes:
        route: the route of the request.
        caller: the caller.
        body: its JSON, in the shape of the route.
        query: the parameters of the query, in the shape of the route.
        command: what it became; None where there is no such command, or until then.
        buffers: counts what the request and its answer hold.
    """

    route: Route
    caller: HttpCaller
    buffers: RequestBuffers
    body: Any = None
    query: Any = None
    command: Command[Any] | None = None

    @property
    def asked(self) -> Command[Any]:
        """The command of a route that has one."""
        assert self.command is not None
        return self.command


class RestOperation:
    """Serves one route."""

    def __init__(self, context: WebContext, route: Route) -> None:
        self._context = context
        self._route = route
        self._handle = _OPERATION_HANDLERS.get(route.operation, _perform)
        self._bodies = context.bodies.for_unauthenticated() if route.public else context.bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, whatever it is."""
        caller, connection = caller_of(scope), connection_of(scope)
        with trio.CancelScope() as cancel_scope:
            abort = cancel_scope.cancel if connection is None else connection.abort
            buffers = RequestBuffers(self._context.budget, caller.session.address, abort)
            try:
                await self._respond(RestCall(self._route, caller, buffers), scope, receive, send)
            finally:
                buffers.close()

    async def _respond(self, call: RestCall, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        try:
            await self._read(call, scope, receive)
            if connection is not None:
                connection.note_work()
            with self._context.shielded():
                response = await self._handle(self._context, call)
        except Exception as error:
            response = self._refuse(call, error)
        call.buffers.hold_more(len(response.body) * ANSWER_COPIES)
        if len(response.body) <= LARGE_RESPONSE_BYTES:
            await response(scope, receive, send)
            return
        async with self._context.large_responses:
            await response(scope, receive, send)

    def _refuse(self, call: RestCall, error: Exception) -> Response:
        session, operation = call.caller.session, self._route.operation
        row = COMMAND_TABLE[operation] if isinstance(operation, CommandCode) else None
        log_refusal(row, session, error)
        return error_response(
            error, self._context.dispatcher.handler_context, session, call.command
        )

    async def _read(self, call: RestCall, scope: Scope, receive: Receive) -> None:
        """Read the parts in the order of Apache Iggy, because the first error is reported."""
        route, context = self._route, self._context
        values, session = read_values(scope["path_params"]), call.caller.session
        call.query = read_query(scope, route.query)
        choose = partial(shape_of, route, caller=session.spoken)
        call.body = await read_json(scope, receive, route.body, self._bodies, call.buffers, choose)
        # Messages are the same for all over HTTP: only their metadata differ.
        is_classic = route.operation in MESSAGE_CODES
        session.spoken = CLASSIC if is_classic else dialect_of_body(call.body, session.spoken)
        if isinstance(route.operation, CommandCode):
            now_us = context.dispatcher.handler_context.clock.now_us()
            asked = RequestParts(values, call.body, call.query, now_us, session.spoken)
            call.command = build_command(route.operation, asked)
        if isinstance(call.command, SendMessages):
            call.buffers.hold_more(len(call.command.messages) * MESSAGE_BYTES)


async def _perform(context: WebContext, call: RestCall) -> Response:
    reply = await context.dispatcher.perform(call.caller.session, call.asked)
    route = call.route
    if route.reply is None:
        return empty_response(route.success)
    if reply is None:
        return not_found_response()
    dialect = call.caller.session.dialect
    return json_response(encode_json(shape_reply(reply, dialect)), route.success)


async def _name(context: WebContext, call: RestCall) -> Response:
    return Response(NAME, media_type=TEXT)


async def _ping(context: WebContext, call: RestCall) -> Response:
    await context.dispatcher.perform(call.caller.session, call.asked)
    return Response(PONG, media_type=TEXT)


async def _metrics(context: WebContext, call: RestCall) -> Response:
    return Response(await context.metrics.text(), media_type=TEXT)


async def _log_in(context: WebContext, call: RestCall) -> Response:
    return json_response(encode_json(await log_in(context, call.caller.session, call.asked)))


async def _refresh(context: WebContext, call: RestCall) -> Response:
    identity = await refresh(context, call.body.token, call.caller.session.address)
    return json_response(encode_json(identity))


async def _log_out(context: WebContext, call: RestCall) -> Response:
    await log_out(context, call.caller, call.asked)
    return empty_response(call.route.success)


async def _create_topic(context: WebContext, call: RestCall) -> Response:
    """Return a new topic with its current statistics, as Apache Iggy does over HTTP only."""
    created = await context.dispatcher.perform(call.caller.session, call.asked)
    assert isinstance(call.asked, CreateTopic)
    handler_context = context.dispatcher.handler_context
    statistics = await handler_context.cluster_view.statistics()
    topic = handler_context.metadata().find_topic(call.asked.stream, created.id)
    session, details = call.caller.session, created
    if topic is not None:
        details = view_topic_details(topic, statistics.of, handler_context.viewer(session))
    return json_response(encode_json(shape_reply(details, session.dialect)), call.route.success)


async def _get_user(context: WebContext, call: RestCall) -> Response:
    """Show a user; ``me`` is the caller. No user has that name, which is too short for one."""
    session, command = call.caller.session, call.asked
    assert isinstance(command, GetUser)
    if command.user == OWN_USER and session.user_id is not None:
        call.command = GetUser(session.user_id)
    return await _perform(context, call)


async def _send(context: WebContext, call: RestCall) -> Response:
    """Append messages; clients from 0.9 on are told where they are, and how safe."""
    session, command = call.caller.session, call.asked
    assert isinstance(command, SendMessages)
    handler_context = context.dispatcher.handler_context
    try:
        _check_context(handler_context.metadata(), command, call.body)
        if not call.caller.dialect.is_vsr and call.query.ack != UNACKNOWLEDGED:
            return await _perform(context, call)
        staged = _stage(context, session, command)
        if call.query.ack == UNACKNOWLEDGED:
            if staged.is_backlogged:
                # They are in memory until then, and others want some of it, too.
                await staged.pending.wait()
            return empty_response(202)
        await staged.pending.wait()
    except LocalProtocolError as error:
        raise Rejection(422, f"Failed to create message: {error}") from None
    topic = handler_context.metadata().find_topic(command.stream, command.topic)
    options = NO_OPTIONS if topic is None else topic.options
    told = encode_json(shape_confirmations(staged.confirmations))
    response = json_response(told, call.route.success)
    response.headers[DURABILITY_HEADER] = durability_of(options, handler_context.settings)
    return response


def _stage(context: WebContext, session: ClientSession, command: SendMessages) -> StagedWrite:
    """Append messages without waiting until they are stored."""
    context.dispatcher.check(session, command)
    (encoded,) = encode_request(command)
    assert isinstance(encoded, HeadroomBuffer)
    appender = context.dispatcher.handler_context.appender
    staged = appender.stage_confirmed(session, memoryview(encoded.buffer)[encoded.headroom :])
    appender.commit()
    return staged


def _check_context(metadata: Metadata, command: SendMessages, body: SendMessagesBody) -> None:
    """Refuse a send to a partition that has started over since the client has read it.

    Raises:
        ServerFault: the client has to read the topic again.
    """
    partition_id = command.partitioning.partition_id
    if body.context is UNSET or partition_id is None:
        return
    topic = metadata.find_topic(command.stream, command.topic)
    partition = None if topic is None else topic.find_partition(partition_id)
    if partition is not None and partition.incarnation != body.context.incarnation:
        raise ServerFault(
            StatusCode.PARTITION_HISTORY_UNAVAILABLE,
            f"partition {partition_id} has started over since the client has read it",
        )


async def _metadata_changes(context: WebContext, call: RestCall) -> Response:
    session = call.caller.session
    if not session.dialect.is_vsr:
        # A route that clients of 0.8 do not know, so whoever asks means that of 0.10.
        session.spoken = V0_12_2
    call.command = read_changes_query(call.query)
    page = await context.dispatcher.perform(session, call.command)
    return json_response(encode_json(shape_changes(page)))


async def _describe_options(context: WebContext, call: RestCall) -> Response:
    session = call.caller.session
    if not session.dialect.is_vsr:
        session.spoken = V0_12_2
    return await _perform(context, call)


async def _poll(context: WebContext, call: RestCall) -> Response:
    reply = await context.dispatcher.perform(call.caller.session, call.asked)
    size = sum(part.size if isinstance(part, FileSlice) else len(part) for part in reply.parts)
    call.buffers.hold(size * COPIES_OF_POLL)
    return await respond_polled(reply)


async def _snapshot(context: WebContext, call: RestCall) -> Response:
    snapshot = await context.dispatcher.perform(call.caller.session, call.asked)
    now = datetime.fromtimestamp(
        context.dispatcher.handler_context.clock.now_us() / MICROSECONDS, tz=UTC
    )
    name = f"iggy_snapshot_{now:%Y%m%d_%H%M%S}.zip"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(snapshot.archive, headers=headers, media_type="application/zip")


_OPERATION_HANDLERS: Final[Mapping[CommandCode | str, OperationHandler]] = {
    "name": _name,
    "metrics": _metrics,
    "refresh_token": _refresh,
    CommandCode.PING: _ping,
    CommandCode.LOGIN_USER: _log_in,
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN: _log_in,
    CommandCode.LOGOUT_USER: _log_out,
    CommandCode.CREATE_TOPIC: _create_topic,
    CommandCode.GET_USER: _get_user,
    CommandCode.DESCRIBE_OPTIONS: _describe_options,
    METADATA_CHANGES: _metadata_changes,
    CommandCode.SEND_MESSAGES: _send,
    CommandCode.POLL_MESSAGES: _poll,
    CommandCode.GET_SNAPSHOT: _snapshot,
}


# The response to a poll, encoded as JSON in pieces.
#
# A poll may return thousands of messages. They are encoded a few at a time with a checkpoint
# between the pieces, so that one large response does not block the shard. Each piece is sent before
# the next is encoded.

# About a millisecond of work.
MESSAGES_PER_PIECE: Final = 200
BYTES_PER_PIECE: Final = 1 << 19
EMPTY_POLL: Final = encode_json(PolledMessagesShape(0, 0, 0, ()))
RESERVED: Final = 0
ID_BYTES: Final = 16

# The values were validated when they were stored. The validating classes would cost most of the
# time, because there is one object per message.
_Header: Any = defstruct("_Header", MessageHeaderShape.__struct_fields__, gc=False)
_Message: Any = defstruct("_Message", MessageShape.__struct_fields__, gc=False)


async def respond_polled(reply: EncodedReply) -> Response:
    """Make the response to a poll; a large one is sent piece by piece.

    Raises:
        StorageError: a segment could not be read.
    """
    polled: PolledMessages = decode_reply(CommandCode.POLL_MESSAGES, await _load(reply))
    pieces = _write(polled)
    if polled.messages.nbytes <= BYTES_PER_PIECE:
        return json_response(b"".join(pieces))
    return StreamedJsonResponse(pieces)


class StreamedJsonResponse(Response):
    """A JSON response whose length is not known in advance.

    Args:
        pieces: encodes the parts one by one.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__(media_type=JSON)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces with a checkpoint after each."""
        headers = [header for header in self.raw_headers if header[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await trio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _write(polled: PolledMessages) -> Iterator[bytes]:
    """Encode a response in pieces."""
    if not polled.messages_count:
        yield EMPTY_POLL
        return
    shape = PolledMessagesShape(
        polled.partition_id, polled.current_offset, polled.messages_count, ()
    )
    # Remove the end of the empty list of messages, which the pieces fill.
    before = encode_json(shape).removesuffix(b"]}")
    messages = _shapes(polled.messages)
    while piece := _piece(messages):
        yield before + encode_json(piece)[1:-1]
        before = b","
    yield b"]}"


def _piece(messages: Iterator[Any]) -> list[Any]:
    """Take the messages of one piece, limited by count and size."""
    piece: list[Any] = []
    size_bytes = 0
    for message in islice(messages, MESSAGES_PER_PIECE):
        piece.append(message)
        size_bytes += len(message.payload)
        if size_bytes >= BYTES_PER_PIECE:
            break
    return piece


def _shapes(messages: MessageBatch) -> Iterator[Any]:
    columns = messages.columns()
    payloads, blocks = memoryview(columns.payloads or b""), memoryview(columns.user_headers or b"")
    ids = memoryview(columns.ids)
    payload_at = block_at = id_at = 0
    for checksum, offset, timestamp_us, origin_us, payload_end, block_end in zip(
        memoryview(columns.checksums).cast("Q"),
        memoryview(columns.offsets).cast("Q"),
        memoryview(columns.timestamps_us).cast("Q"),
        memoryview(columns.origin_timestamps_us).cast("Q"),
        memoryview(columns.payload_bounds or b"").cast("i")[1:],
        memoryview(columns.user_header_bounds or b"").cast("i")[1:],
        strict=True,
    ):
        header = _Header(
            checksum,
            int.from_bytes(ids[id_at : id_at + ID_BYTES], "little"),
            offset,
            timestamp_us,
            origin_us,
            block_end - block_at,
            payload_end - payload_at,
            RESERVED,
        )
        block = blocks[block_at:block_end]
        headers = interpret_user_headers(block) if block else ()
        yield _Message(header, payloads[payload_at:payload_end], headers)
        payload_at, block_at, id_at = payload_end, block_end, id_at + ID_BYTES


async def _load(reply: EncodedReply) -> bytes:
    """Join the parts of a reply, and read those that are pieces of files."""
    parts: list[bytes] = []
    for part in reply.parts:
        if not isinstance(part, FileSlice):
            parts.append(bytes(part))
            continue
        content = await part.file.read(part.size, part.position)
        if len(content) != part.size:
            raise StorageError("read", part.file.path, "the segment is shorter than its index says")
        parts.append(content)
    return b"".join(parts)
