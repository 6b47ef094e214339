"""Dispatches the commands of HTTP requests to the same handlers as those of other transports.

The checks have the order of Apache Iggy's REST API: field rules come before permissions. Some lists
are stricter than over the binary transports: their stream or topic must exist.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import (
    CommandCode,
    GetConsumerGroup,
    LocalProtocolError,
    SendMessages,
    StatusCode,
    encode_request,
    validate,
)
from iggy_ref_server.dispatch import LOGINS, NOTED, describe
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handlers import HANDLERS
from iggy_ref_server.web.errors import Rejection

if TYPE_CHECKING:
    from iggy_protocol import Command
    from iggy_ref_server.data_plane.plane import Appends
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session

__all__ = ["WebDesk"]

LOGGER = logging.getLogger(__name__)

# Apache Iggy does not validate the fields of these commands over HTTP; the handlers do.
UNCHECKED: Final = LOGINS | {CommandCode.GET_CLIENT}
# These commands reply "not found" if their stream or topic does not exist.
UNDER_A_STREAM: Final = frozenset({CommandCode.GET_TOPICS})
UNDER_A_TOPIC: Final = frozenset(
    {
        CommandCode.GET_CONSUMER_GROUPS,
        CommandCode.GET_CONSUMER_GROUP,
        CommandCode.GET_CONSUMER_OFFSET,
    }
)


class WebDesk:
    """Dispatches commands on shard 0.

    Args:
        office: what handlers work with.
        appends: takes batches.
    """

    def __init__(self, office: Office, appends: Appends) -> None:
        assert office.shard_id == 0, "all commands are served without asking another shard"
        self.office = office
        self._appends = appends

    async def perform(self, session: Session, command: Command[Any]) -> Any:
        """Execute a command.

        Raises:
            ServerFault: it is refused.
            RuleViolation: a field breaks a rule.
            RemoteProtocolError: a batch is malformed.
            StorageError: a file operation failed.
            Rejection: a message is too large.
        """
        code = command.CODE
        if code not in UNCHECKED:
            validate(command)
        if isinstance(command, SendMessages):
            return await self._send(session, command)
        handler = HANDLERS[code]
        office = self.office
        if not handler.is_public:
            session.user(office.metadata())
        if handler.right_first:
            office.authorize(session, code)
        self._insist_on_parents(command)
        asking_id = session.user_id
        reply = await handler.serve(office, session, command)
        if code in NOTED:
            user_id = asking_id if session.user_id is None else session.user_id
            LOGGER.info("%s as user %s: %s", session.address, user_id, describe(command))
        if reply is None and isinstance(command, GetConsumerGroup):
            status = StatusCode.CONSUMER_GROUP_ID_NOT_FOUND
            raise ServerFault(status, f"there is no consumer group {command.group!r}")
        return reply

    def _insist_on_parents(self, command: Any) -> None:
        metadata = self.office.metadata()
        if command.CODE in UNDER_A_STREAM:
            metadata.require_stream(command.stream)
        elif command.CODE in UNDER_A_TOPIC:
            metadata.require_topic(command.stream, command.topic)

    async def _send(self, session: Session, command: SendMessages) -> None:
        try:
            (written,) = encode_request(command)
        except LocalProtocolError as error:
            raise Rejection(422, f"Failed to create message: {error}") from None
        assert not isinstance(written, bytes | bytearray | memoryview)
        body = memoryview(written.buffer)[written.headroom :]
        staged = self._appends.stage(session, body)
        self._appends.commit()
        await staged.pending.wait()
