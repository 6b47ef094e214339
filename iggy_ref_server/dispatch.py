"""From a request to its answer: decode, check who asks, find the handler, encode the reply.

The order of checks is that of the original: bytes that make no command, then the login, then rights
that depend on nothing, then the rules of the fields, then codes that mean nothing, then what the
handler finds.

Owns that order and the way in which faults become answers. What a command does is the handlers'
affair, how bytes travel the data plane's.
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
from iggy_ref_server.data_plane.answers import Answer
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handlers import HANDLERS, Place
from iggy_ref_server.handlers.messages import RawReply, poll_now
from iggy_ref_server.session import SessionEnded
from iggy_ref_server.storage.interface import DiskFull, StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_protocol import Command
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.handlers.table import Handler
    from iggy_ref_server.session import Session

__all__ = ["Dispatcher", "answer_for"]

LOGGER = logging.getLogger(__name__)

PING, POLL = int(CommandCode.PING), int(CommandCode.POLL_MESSAGES)
# After these the client has to connect again; the original hangs up as well.
FINAL = frozenset({StatusCode.STALE_CLIENT, StatusCode.CLIENT_NOT_FOUND})
# Codes that the original reads as plain numbers; whether they mean anything it asks only after the
# login, the rights and the rules of the other fields.
LATE_FIELDS = {
    int(CommandCode.GET_SNAPSHOT): ("compression", "types"),
    int(CommandCode.CREATE_USER): ("status",),
    int(CommandCode.UPDATE_USER): ("status",),
    int(CommandCode.CREATE_TOPIC): ("compression",),
    int(CommandCode.UPDATE_TOPIC): ("compression",),
}
# In all of these fields 1 means something.
MEANINGFUL = b"\1"
# Whatever changes something that lasts is told to the operator, unless clients do it all the time.
FREQUENT = frozenset(
    {
        CommandCode.PING,
        CommandCode.POLL_MESSAGES,
        CommandCode.SEND_MESSAGES,
        CommandCode.FLUSH_UNSAVED_BUFFER,
        CommandCode.STORE_CONSUMER_OFFSET,
        CommandCode.DELETE_CONSUMER_OFFSET,
    }
)
NOTED = frozenset(
    int(code) for code in CommandCode if code not in FREQUENT and not code.name.startswith("GET_")
)
# Of a name of 255 bytes the beginning tells enough.
CHARACTERS_TOLD_MAX = 100
LOGINS = frozenset({int(CommandCode.LOGIN_USER), int(CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN)})


def read_request(request: RequestReceived) -> tuple[Command[Any], RemoteProtocolError | None]:
    """Decode a request, and return what is wrong with its late fields for when their time comes.

    Raises:
        RemoteProtocolError: the bytes are no command.
    """
    late: RemoteProtocolError | None = None
    while True:
        try:
            return request.decode(), late
        except (UnknownDiscriminant, InvalidField) as error:
            if error.field.partition(".")[0] not in LATE_FIELDS.get(request.code, ()):
                raise
            late = late or error
            mended = _without(request, error)
            if mended.payload == request.payload:
                raise
            request = mended


def _without(request: RequestReceived, error: RemoteProtocolError) -> RequestReceived:
    """Put something meaningful where the error is, so that the rest can be looked at."""
    payload = bytearray(request.payload)
    if isinstance(error, UnknownDiscriminant):
        payload[error.offset : error.offset + 1] = MEANINGFUL
    else:
        # A list that contradicts itself: its elements stand behind their number.
        elements = range(error.offset + 1, len(payload))
        payload[elements.start :] = MEANINGFUL * len(elements)
    return RequestReceived(request.code, memoryview(payload))


def describe(command: Command[Any]) -> str:
    """Write a command for the log: no secrets, and nothing that could be long in full."""
    described: Any = command
    shown = {field.name: getattr(command, field.name) for field in fields(described) if field.repr}
    told = [
        f"{name}={value.name if isinstance(value, Enum) else repr(value)}"
        for name, value in ((name, _beginning(value)) for name, value in shown.items())
        if isinstance(value, str | int)
    ]
    return f"{type(command).__name__}({', '.join(told)})"


def _beginning(value: object) -> object:
    return value[:CHARACTERS_TOLD_MAX] if isinstance(value, str) else value


def answer_for(error: Exception) -> Answer:
    """Return what a client is told about what went wrong."""
    if isinstance(error, ServerFault):
        return Answer(error.status, close=isinstance(error, SessionEnded) or error.status in FINAL)
    if isinstance(error, RemoteProtocolError | RuleViolation):
        return Answer(error.status)
    if isinstance(error, StorageError):
        LOGGER.error("%s", error)
        full = isinstance(error, DiskFull)
        return Answer(StatusCode.CANNOT_WRITE_TO_FILE if full else StatusCode.IO_ERROR)
    LOGGER.error("a request failed in a way nobody foresaw", exc_info=error)
    return Answer(StatusCode.ERROR)


class Dispatcher:
    """Answers requests on one shard.

    Args:
        office: what handlers work with.
        forward: asks shard 0 instead; None on shard 0 itself.
    """

    def __init__(
        self,
        office: Office,
        forward: Callable[[Session, RequestReceived], Awaitable[Answer]] | None,
    ) -> None:
        self._office = office
        self._forward = forward

    def refused(self, error: Exception) -> Answer:
        """Return the answer for what a room raised."""
        return answer_for(error)

    def answer_now(self, session: Session, request: RequestReceived) -> Answer | None:
        """Answer without waiting, or return None if that is not possible."""
        if request.code == PING:
            office = self._office
            office.clients.seen(session.client_id, office.clock.now_us())
            return Answer()
        if request.code != POLL:
            return None
        try:
            command = request.decode()
            assert isinstance(command, PollMessages)
            session.user(self._office.metadata())
            reply = poll_now(self._office, session, command)
        except (ServerFault, ProtocolError, StorageError) as error:
            return answer_for(error)
        return None if reply is None else Answer(parts=reply.parts)

    async def answer(self, session: Session, request: RequestReceived) -> Answer:
        """Answer, however long it takes; raises nothing."""
        try:
            handler = HANDLERS.get(request.code)
            if handler is not None and self._forward and handler.place is Place.METADATA:
                return await self._forward(session, request)
            return await self.serve(handler, session, request)
        except Exception as error:
            if isinstance(error, ServerFault):
                level = logging.WARNING if request.code in LOGINS else logging.DEBUG
                LOGGER.log(level, "%s is refused: %s", session.address, error)
            return answer_for(error)

    async def serve(
        self, handler: Handler | None, session: Session, request: RequestReceived
    ) -> Answer:
        """Serve a request on this shard."""
        command, late_fault = read_request(request)
        assert handler is not None, "every command that decodes has a handler"
        if not handler.is_public:
            session.user(self._office.metadata())
        if handler.right_first:
            self._office.authorize(session, command.CODE)
        validate(command)
        if late_fault is not None:
            raise late_fault
        asking_id = session.user_id
        reply = await handler.serve(self._office, session, command)
        if request.code in NOTED:
            user_id = asking_id if session.user_id is None else session.user_id
            LOGGER.info("%s as user %s: %s", session.address, user_id, describe(command))
        if isinstance(reply, RawReply):
            return Answer(parts=reply.parts)
        return Answer(parts=tuple(encode_reply(request.code, reply)))
