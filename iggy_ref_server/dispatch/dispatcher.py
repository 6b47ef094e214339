"""The dispatcher: decode a request, check it, call its handler, encode the reply.

Apache Iggy 0.8 checks in this order, and so does this module: malformed bytes, login, permissions
that do not depend on the fields, field rules, unknown codes in late fields, handler errors.

Requests are decoded, and replies encoded, in the dialect of the request. From 0.9 on the reply to a
write tells the position of the metadata if it is the final result of that write, also if the
handler has refused it; a reply without one is a refusal before anything was done.

Owns that order and the mapping from exceptions to reply statuses.
"""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from iggy_protocol import (
    CLASSIC,
    METADATA_CODES,
    Command,
    CommandCode,
    InvalidField,
    ProtocolError,
    RemoteProtocolError,
    RequestId,
    RequestReceived,
    RuleViolation,
    StatusCode,
    StatusGroup,
    UnknownDiscriminant,
    encode_confirmation,
    encode_reply,
    record,
    status,
    validate,
)
from iggy_ref_server.dispatch.handlers.messages import EncodedReply
from iggy_ref_server.dispatch.replies import CommandReply
from iggy_ref_server.dispatch.table import COMMAND_TABLE, CommandRow, Execution, Login, Placement
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.session import ClientSession, SessionEnded
from iggy_ref_server.sessions.receipts import RecordedReply, answer_once
from iggy_ref_server.storage.interface import DiskFull, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from iggy_protocol import Buffer
    from iggy_ref_server.dispatch.context import HandlerContext, StagedWrite


LOGGER = logging.getLogger(__name__)

# After these the client has to reconnect: the server closes the connection, as Apache Iggy does.
CLOSING_STATUSES = frozenset({StatusCode.STALE_CLIENT, StatusCode.CLIENT_NOT_FOUND})
# Faults of a handler that are no final result of a write: the request was not admitted, or what
# became of it is not known. So are all that a repetition may cure.
REFUSALS: Final = frozenset(
    {
        StatusCode.INVALID_COMMAND,
        StatusCode.FEATURE_UNAVAILABLE,
        StatusCode.UNAUTHENTICATED,
        StatusCode.REQUEST_TOO_OLD,
        StatusCode.PARTITION_HISTORY_UNAVAILABLE,
        StatusCode.CONSUMER_GROUP_PARTITION_NOT_OWNED,
    }
)
REFUSAL_GROUPS: Final = frozenset(
    {StatusGroup.CONNECTION, StatusGroup.PERMISSION, StatusGroup.SERVER}
)
# A valid code in each of these fields.
VALID_CODE = b"\1"
# How requests are executed that have a task, or none of their own.
WAITING_EXECUTIONS: Final = (Execution.TASK, Execution.STAGED, Execution.DETACHED)
# Names have up to 255 bytes; the log shows the beginning.
LOGGED_CHARACTERS_MAX = 100


@record
class DecodedRequest:
    """A request that is decoded and checked, and whose handler has to wait."""

    row: CommandRow
    command: Command[Any]
    request_id: RequestId | None


def read_request(
    request: RequestReceived, late_fields: tuple[str, ...]
) -> tuple[Command[Any], RemoteProtocolError | None]:
    """Decode a request; return the command and the error in its late fields, if any.

    Raises:
        RemoteProtocolError: the bytes are malformed.
    """
    late: RemoteProtocolError | None = None
    while True:
        try:
            return request.decode(), late
        except (UnknownDiscriminant, InvalidField) as error:
            if error.field.partition(".")[0] not in late_fields:
                raise
            late = late or error
            patched = _replace_invalid_field(request, error)
            if patched.payload == request.payload:
                raise
            request = patched


def _replace_invalid_field(request: RequestReceived, error: RemoteProtocolError) -> RequestReceived:
    """Replace the invalid field by a valid one, so that the other fields can be checked."""
    payload = bytearray(request.payload)
    if isinstance(error, UnknownDiscriminant):
        payload[error.offset : error.offset + 1] = VALID_CODE
    else:
        # An inconsistent list: its elements follow the byte with their count.
        elements = range(error.offset + 1, len(payload))
        payload[elements.start :] = VALID_CODE * len(elements)
    return replace(request, payload=memoryview(payload))


def describe_command(command: Command[Any]) -> str:
    """Format a command for the log, without secrets and with long values shortened."""
    described: Any = command
    shown = {field.name: getattr(command, field.name) for field in fields(described) if field.repr}
    told = [
        f"{name}={value.name if isinstance(value, Enum) else repr(value)}"
        for name, value in ((name, _truncate(value)) for name, value in shown.items())
        if isinstance(value, str | int)
    ]
    return f"{type(command).__name__}({', '.join(told)})"


def _truncate(value: object) -> object:
    return value[:LOGGED_CHARACTERS_MAX] if isinstance(value, str) else value


def reply_for_error(error: Exception) -> CommandReply:
    """Return the reply for an exception."""
    if isinstance(error, ServerFault):
        return CommandReply(
            error.status, close=isinstance(error, SessionEnded) or error.status in CLOSING_STATUSES
        )
    if isinstance(error, RemoteProtocolError | RuleViolation):
        return CommandReply(error.status)
    if isinstance(error, StorageError):
        LOGGER.error("%s", error)
        full = isinstance(error, DiskFull)
        return CommandReply(StatusCode.CANNOT_WRITE_TO_FILE if full else StatusCode.IO_ERROR)
    LOGGER.error("a request failed with an unexpected error", exc_info=error)
    return CommandReply(StatusCode.ERROR)


def is_final(error: Exception) -> bool:
    """Tell whether an error of a handler is what a write came to, for good."""
    if not isinstance(error, ServerFault) or error.status in REFUSALS:
        return False
    meaning = status(error.status)
    return not meaning.retriable and meaning.group not in REFUSAL_GROUPS


def log_refusal(row: CommandRow | None, session: ClientSession, error: Exception) -> None:
    """Log that a request was refused; a refused login as a warning."""
    if isinstance(error, ServerFault):
        is_login = row is not None and row.login is Login.LOGS_IN
        level = logging.WARNING if is_login else logging.DEBUG
        LOGGER.log(level, "refused a request of %s: %s", session.address, error)


def check_access(
    context: HandlerContext,
    row: CommandRow,
    session: ClientSession,
    request_id: RequestId | None = None,
) -> None:
    """Check the login, and the permission if it does not depend on the fields of the command.

    Raises:
        ServerFault: the client has not logged in, or the user lacks the permission.
    """
    if row.login is Login.NEEDED or (row.login is Login.NEEDED_BEFORE_0_9 and request_id is None):
        session.user(context.metadata())
    if row.permission_first:
        context.authorize(session, row.code)


async def run_handler(
    context: HandlerContext,
    row: CommandRow,
    session: ClientSession,
    command: Command[Any],
    request_id: RequestId | None = None,
) -> object:
    """Run the handler of a command that was checked, and log the command."""
    user_id_before = session.user_id
    if row.takes_request_id:
        reply = await row.handler(context, session, command, request_id)
    else:
        reply = await row.handler(context, session, command)
    if row.is_logged:
        user_id = user_id_before if session.user_id is None else session.user_id
        LOGGER.info("%s as user %s: %s", session.address, user_id, describe_command(command))
    return reply


def _run_without_waiting(coroutine: Coroutine[Any, Any, object]) -> object:
    """Run a handler that never waits; it needs no task."""
    try:
        coroutine.send(None)
    except StopIteration as returned:
        return returned.value
    coroutine.close()
    raise AssertionError("a handler waits although its row says INLINE")


class Dispatcher:
    """Dispatches the requests of one shard.

    Args:
        context: what handlers work with.
        forward: sends a request to shard 0; None on shard 0 itself.
        rows: the command table.
    """

    def __init__(
        self,
        context: HandlerContext,
        forward: Callable[[ClientSession, RequestReceived], Awaitable[CommandReply]] | None,
        rows: Mapping[int, CommandRow] = COMMAND_TABLE,
    ) -> None:
        self._context = context
        self._forward = forward
        self._rows = rows

    def error_reply(self, error: Exception) -> CommandReply:
        """Return the reply for an exception."""
        return reply_for_error(error)

    def handle_inline(
        self, session: ClientSession, request: RequestReceived
    ) -> CommandReply | RequestReceived | DecodedRequest:
        """Handle a request without waiting; return what ``handle`` takes if it has to wait."""
        row = self._rows.get(request.code)
        if row is None or row.execution in WAITING_EXECUTIONS:
            return request
        try:
            command = self._decode(row, session, request)
            arguments: tuple[Any, ...] = (self._context, session, command)
            if row.takes_request_id:
                arguments = (*arguments, request.request_id)
            if row.inline_handler is None:
                reply = _run_without_waiting(row.handler(*arguments))
            else:
                reply = row.inline_handler(*arguments)
                if reply is None:
                    return DecodedRequest(row, command, request.request_id)
        except (ServerFault, ProtocolError, StorageError) as error:
            return reply_for_error(error)
        return self._encode(row, request.request_id, reply)

    async def handle(
        self, session: ClientSession, request: RequestReceived | DecodedRequest
    ) -> CommandReply:
        """Handle a request; raises nothing."""
        if (
            isinstance(request, RequestReceived)
            and request.request_id is not None
            and request.code in METADATA_CODES
        ):
            return await self._handle_once(session, request, request.request_id)
        return await self._handle(session, request)

    async def _handle(
        self, session: ClientSession, request: RequestReceived | DecodedRequest
    ) -> CommandReply:
        row, request_id, is_admitted = None, request.request_id, False
        try:
            if isinstance(request, DecodedRequest):
                row, command = request.row, request.command
            else:
                row = self._find_row(request)
                if self._forward and row.placement is Placement.METADATA_SHARD:
                    return await self._forward(session, request)
                command = self._decode(row, session, request)
            is_admitted = request_id is not None
            reply = await run_handler(self._context, row, session, command, request_id)
            return self._encode(row, request_id, reply)
        except Exception as error:
            log_refusal(row, session, error)
            refusal = reply_for_error(error)
            if is_admitted and is_final(error):
                refusal = replace(refusal, position=self._context.position.current)
            return refusal

    def _find_row(self, request: RequestReceived) -> CommandRow:
        """Return the row of a request.

        Raises:
            RemoteProtocolError: the dialect has no such command.
            ServerFault: it has, and this server does not serve it.
        """
        row = self._rows.get(request.code)
        if row is None or request.dialect in row.unavailable_in:
            request.decode()
            raise ServerFault(StatusCode.FEATURE_UNAVAILABLE, f"{request.code} is not served")
        return row

    def _decode(
        self, row: CommandRow, session: ClientSession, request: RequestReceived
    ) -> Command[Any]:
        """Decode a request and check it, in the order of Apache Iggy."""
        command, late_error = read_request(request, row.late_fields)
        check_access(self._context, row, session, request.request_id)
        validate(command, request.dialect)
        if late_error is not None:
            raise late_error
        return command

    def _encode(self, row: CommandRow, request_id: RequestId | None, reply: object) -> CommandReply:
        dialect = CLASSIC if request_id is None else request_id.dialect
        parts = (
            reply.parts
            if isinstance(reply, EncodedReply)
            else tuple(encode_reply(row.code, reply, dialect))
        )
        if request_id is None:
            return CommandReply(parts=parts)
        return CommandReply(parts=parts, position=self._context.position.current)

    # Requests from 0.9 on

    async def _handle_once(
        self, session: ClientSession, request: RequestReceived, request_id: RequestId
    ) -> CommandReply:
        """Handle a request that changes metadata, or return the reply to the one it repeats.

        Shard 0 does this also where the work is another shard's, because the receipts are there.
        """

        async def answer() -> RecordedReply:
            reply = await self._handle(session, request)
            payload = b"".join(cast("Sequence[Buffer]", reply.parts))
            return RecordedReply(reply.status, payload, reply.position, reply.close)

        try:
            if self._forward is not None:
                return await self._forward(session, request)
            receipts = self._context.sessions.receipts(request_id.session)
            if receipts is None:
                reason = f"session {request_id.session} has ended"
                raise ServerFault(StatusCode.UNAUTHENTICATED, reason)
            reply = await answer_once(receipts, request_id.number, request_id.identifier, answer)
        except ServerFault as fault:
            log_refusal(None, session, fault)
            return reply_for_error(fault)
        parts = (reply.payload,) if reply.payload else ()
        return CommandReply(reply.status, parts, reply.close, reply.position)

    def note_heartbeat(self, session: ClientSession) -> None:
        """Record that a client has sent a request; from 0.9 on any of them is a heartbeat."""
        self._context.clients.note_heartbeat(session.client_id, self._context.clock.now_us())

    def is_detached(self, request: RequestReceived) -> bool:
        """Tell whether a request is answered out of order."""
        row = self._rows.get(request.code)
        return row is not None and row.execution is Execution.DETACHED

    def confirmation(self, staged: StagedWrite) -> CommandReply:
        """Return the reply to a committed send, which tells where its messages are."""
        base_offset = staged.pending.base_offset
        if base_offset is None:
            parts = tuple(encode_reply(CommandCode.SEND_MESSAGES, None, staged.dialect))
        else:
            confirmation = encode_confirmation(
                staged.stream_id, staged.topic_id, staged.partition_id, base_offset
            )
            parts = (confirmation,)
        return CommandReply(parts=parts, position=self._context.position.current)
