"""The dispatcher: decode a request, check it, call its handler, encode the reply.

Apache Iggy 0.8 checks in this order, and so does this module: malformed bytes, login, permissions
that do not depend on the fields, field rules, unknown codes in late fields, handler errors.

Owns that order and the mapping from exceptions to reply statuses.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from iggy_protocol import (
    Command,
    InvalidField,
    ProtocolError,
    RemoteProtocolError,
    RequestReceived,
    RuleViolation,
    StatusCode,
    UnknownDiscriminant,
    encode_reply,
    record,
    validate,
)
from iggy_ref_server.dispatch.handlers.messages import EncodedReply
from iggy_ref_server.dispatch.replies import CommandReply
from iggy_ref_server.dispatch.table import COMMAND_TABLE, CommandRow, Execution, Login, Placement
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.session import ClientSession, SessionEnded
from iggy_ref_server.storage.interface import DiskFull, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from iggy_ref_server.dispatch.context import HandlerContext


LOGGER = logging.getLogger(__name__)

# After these the client has to reconnect: the server closes the connection, as Apache Iggy does.
CLOSING_STATUSES = frozenset({StatusCode.STALE_CLIENT, StatusCode.CLIENT_NOT_FOUND})
# A valid code in each of these fields.
VALID_CODE = b"\1"
# Names have up to 255 bytes; the log shows the beginning.
LOGGED_CHARACTERS_MAX = 100


@record
class DecodedRequest:
    """A request that is decoded and checked, and whose handler has to wait."""

    row: CommandRow
    command: Command[Any]


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
    return RequestReceived(request.code, memoryview(payload))


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


def log_refusal(row: CommandRow | None, session: ClientSession, error: Exception) -> None:
    """Log that a request was refused; a refused login as a warning."""
    if isinstance(error, ServerFault):
        is_login = row is not None and row.login is Login.LOGS_IN
        level = logging.WARNING if is_login else logging.DEBUG
        LOGGER.log(level, "refused a request of %s: %s", session.address, error)


def check_access(context: HandlerContext, row: CommandRow, session: ClientSession) -> None:
    """Check the login, and the permission if it does not depend on the fields of the command.

    Raises:
        ServerFault: the client has not logged in, or the user lacks the permission.
    """
    if row.login is Login.NEEDED:
        session.user(context.metadata())
    if row.permission_first:
        context.authorize(session, row.code)


async def run_handler(
    context: HandlerContext, row: CommandRow, session: ClientSession, command: Command[Any]
) -> object:
    """Run the handler of a command that was checked, and log the command."""
    user_id_before = session.user_id
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
    """

    def __init__(
        self,
        context: HandlerContext,
        forward: Callable[[ClientSession, RequestReceived], Awaitable[CommandReply]] | None,
    ) -> None:
        self._context = context
        self._forward = forward

    def error_reply(self, error: Exception) -> CommandReply:
        """Return the reply for an exception."""
        return reply_for_error(error)

    def handle_inline(
        self, session: ClientSession, request: RequestReceived
    ) -> CommandReply | RequestReceived | DecodedRequest:
        """Handle a request without waiting; return what ``handle`` takes if it has to wait."""
        row = COMMAND_TABLE.get(request.code)
        if row is None or row.execution in (Execution.TASK, Execution.STAGED):
            return request
        try:
            command = self._decode(row, session, request)
            if row.inline_handler is None:
                reply = _run_without_waiting(row.handler(self._context, session, command))
            else:
                reply = row.inline_handler(self._context, session, command)
                if reply is None:
                    return DecodedRequest(row, command)
        except (ServerFault, ProtocolError, StorageError) as error:
            return reply_for_error(error)
        return _encode(row, reply)

    async def handle(
        self, session: ClientSession, request: RequestReceived | DecodedRequest
    ) -> CommandReply:
        """Handle a request; raises nothing."""
        row = None
        try:
            if isinstance(request, DecodedRequest):
                row, command = request.row, request.command
            else:
                row = COMMAND_TABLE.get(request.code)
                if row is None:
                    # Raises for a code that is no command.
                    request.decode()
                    raise AssertionError("every command that decodes has a row")
                if self._forward and row.placement is Placement.METADATA_SHARD:
                    return await self._forward(session, request)
                command = self._decode(row, session, request)
            return _encode(row, await run_handler(self._context, row, session, command))
        except Exception as error:
            log_refusal(row, session, error)
            return reply_for_error(error)

    def _decode(
        self, row: CommandRow, session: ClientSession, request: RequestReceived
    ) -> Command[Any]:
        """Decode a request and check it, in the order of Apache Iggy."""
        command, late_error = read_request(request, row.late_fields)
        check_access(self._context, row, session)
        validate(command)
        if late_error is not None:
            raise late_error
        return command


def _encode(row: CommandRow, reply: object) -> CommandReply:
    if isinstance(reply, EncodedReply):
        return CommandReply(parts=reply.parts)
    return CommandReply(parts=tuple(encode_reply(row.code, reply)))
