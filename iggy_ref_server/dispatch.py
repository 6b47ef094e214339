"""From a request to its answer: decode, check who asks, find the handler, encode the reply.

The order of checks is that of the original: bytes that make no command, then the login, then rights
that depend on nothing, then the rules of the fields, then what the handler finds.

Owns that order and the way in which faults become answers. What a command does is the handlers'
affair, how bytes travel the data plane's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from iggy_protocol import (
    CommandCode,
    PollMessages,
    ProtocolError,
    RemoteProtocolError,
    RuleViolation,
    StatusCode,
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

    from iggy_protocol import RequestReceived
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.handlers.table import Handler
    from iggy_ref_server.session import Session

__all__ = ["Dispatcher", "answer_for"]

LOGGER = logging.getLogger(__name__)

PING, POLL = int(CommandCode.PING), int(CommandCode.POLL_MESSAGES)
# After these the client has to connect again; the original hangs up as well.
FINAL = frozenset({StatusCode.STALE_CLIENT, StatusCode.CLIENT_NOT_FOUND})


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
            return answer_for(error)

    async def serve(
        self, handler: Handler | None, session: Session, request: RequestReceived
    ) -> Answer:
        """Serve a request on this shard."""
        command = request.decode()
        assert handler is not None, "every command that decodes has a handler"
        if not handler.is_public:
            session.user(self._office.metadata())
        if handler.right_first:
            self._office.authorize(session, command.CODE)
        validate(command)
        reply = await handler.serve(self._office, session, command)
        if isinstance(reply, RawReply):
            return Answer(parts=reply.parts)
        return Answer(parts=tuple(encode_reply(request.code, reply)))
