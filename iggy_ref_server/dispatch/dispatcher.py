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
    CommandCode,
    InvalidField,
    PollMessages,
    ProtocolError,
    RemoteProtocolError,
    RequestReceived,
    RuleViolation,
    StatusCode,
    UnknownDiscriminant,
    encode_reply,
    validate,
)
from iggy_ref_server.dispatch.handlers import HANDLERS, Placement
from iggy_ref_server.dispatch.handlers.messages import EncodedReply, poll_nowait
from iggy_ref_server.dispatch.replies import CommandReply
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.session import SessionEnded
from iggy_ref_server.storage.interface import DiskFull, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_protocol import Command
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.dispatch.table import Handler
    from iggy_ref_server.session import ClientSession

__all__ = ["Dispatcher", "reply_for_error"]

LOGGER = logging.getLogger(__name__)

PING, POLL = int(CommandCode.PING), int(CommandCode.POLL_MESSAGES)
# After these the client has to reconnect: the server closes the connection, as Apache Iggy does.
CLOSING_STATUSES = frozenset({StatusCode.STALE_CLIENT, StatusCode.CLIENT_NOT_FOUND})
# Codes that Apache Iggy reads as plain numbers. It rejects unknown ones only after the login, the
# permissions and the rules of the other fields.
LATE_FIELDS = {
    int(CommandCode.GET_SNAPSHOT): ("compression", "types"),
    int(CommandCode.CREATE_USER): ("status",),
    int(CommandCode.UPDATE_USER): ("status",),
    int(CommandCode.CREATE_TOPIC): ("compression",),
    int(CommandCode.UPDATE_TOPIC): ("compression",),
}
# A valid code in each of these fields.
VALID_CODE = b"\1"
# Commands that change persistent state are logged, except those that clients send all the time.
FREQUENT_COMMANDS = frozenset(
    {
        CommandCode.PING,
        CommandCode.POLL_MESSAGES,
        CommandCode.SEND_MESSAGES,
        CommandCode.FLUSH_UNSAVED_BUFFER,
        CommandCode.STORE_CONSUMER_OFFSET,
        CommandCode.DELETE_CONSUMER_OFFSET,
    }
)
LOGGED_COMMANDS = frozenset(
    int(code)
    for code in CommandCode
    if code not in FREQUENT_COMMANDS and not code.name.startswith("GET_")
)
# Names have up to 255 bytes; the log shows the beginning.
LOGGED_CHARACTERS_MAX = 100
LOGIN_COMMANDS = frozenset(
    {int(CommandCode.LOGIN_USER), int(CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN)}
)


def read_request(request: RequestReceived) -> tuple[Command[Any], RemoteProtocolError | None]:
    """Decode a request; return the command and the error in its late fields, if any.

    Raises:
        RemoteProtocolError: the bytes are malformed.
    """
    late: RemoteProtocolError | None = None
    while True:
        try:
            return request.decode(), late
        except (UnknownDiscriminant, InvalidField) as error:
            if error.field.partition(".")[0] not in LATE_FIELDS.get(request.code, ()):
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
    ) -> CommandReply | None:
        """Handle a request without waiting; None if that is not possible."""
        if request.code == PING:
            context = self._context
            context.clients.note_heartbeat(session.client_id, context.clock.now_us())
            return CommandReply()
        if request.code != POLL:
            return None
        try:
            command = request.decode()
            assert isinstance(command, PollMessages)
            session.user(self._context.metadata())
            reply = poll_nowait(self._context, session, command)
        except (ServerFault, ProtocolError, StorageError) as error:
            return reply_for_error(error)
        return None if reply is None else CommandReply(parts=reply.parts)

    async def handle(self, session: ClientSession, request: RequestReceived) -> CommandReply:
        """Handle a request; raises nothing."""
        try:
            handler = HANDLERS.get(request.code)
            if (
                handler is not None
                and self._forward
                and handler.placement is Placement.METADATA_SHARD
            ):
                return await self._forward(session, request)
            return await self.serve(handler, session, request)
        except Exception as error:
            if isinstance(error, ServerFault):
                level = logging.WARNING if request.code in LOGIN_COMMANDS else logging.DEBUG
                LOGGER.log(level, "refused a request of %s: %s", session.address, error)
            return reply_for_error(error)

    async def serve(
        self, handler: Handler | None, session: ClientSession, request: RequestReceived
    ) -> CommandReply:
        """Handle a request on this shard."""
        command, late_error = read_request(request)
        assert handler is not None, "every command that decodes has a handler"
        if not handler.is_public:
            session.user(self._context.metadata())
        if handler.permission_first:
            self._context.authorize(session, command.CODE)
        validate(command)
        if late_error is not None:
            raise late_error
        user_id_before = session.user_id
        reply = await handler.serve(self._context, session, command)
        if request.code in LOGGED_COMMANDS:
            user_id = user_id_before if session.user_id is None else session.user_id
            LOGGER.info("%s as user %s: %s", session.address, user_id, describe_command(command))
        if isinstance(reply, EncodedReply):
            return CommandReply(parts=reply.parts)
        return CommandReply(parts=tuple(encode_reply(request.code, reply)))
