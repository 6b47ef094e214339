"""A client of any dialect that asks the dispatcher of a shard, without a connection."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeVar

from iggy_protocol import (
    Dialect,
    RequestId,
    RequestReceived,
    SessionBinding,
    decode_reply,
    encode_request,
)
from iggy_ref_server.dispatch.dispatcher import Dispatcher
from iggy_ref_server.session import ClientSession
from iggy_ref_server.sessions.table import NewSession
from tests.server.simulated.server import Refused

if TYPE_CHECKING:
    from iggy_protocol import Command
    from iggy_ref_server.dispatch.replies import CommandReply
    from iggy_ref_server.shard.assembly import Shard

R = TypeVar("R")

NO_IDENTIFIER = bytes(16)


class DialectClient:
    """A user who has logged in on a shard."""

    _count = itertools.count(1)

    def __init__(self, shard: Shard, dialect: Dialect) -> None:
        self.dialect = dialect
        self._context = shard.handler_context
        forward = shard._forward if shard.handler_context.shard_id else None
        self._dispatcher = Dispatcher(self._context, forward)
        self._client = next(self._count).to_bytes(16, "little")
        self._numbers = itertools.count(1)
        self.session = ClientSession(1, "127.0.0.1:1")

    @classmethod
    async def log_in(cls, shard: Shard, dialect: Dialect, user: int | str = 0) -> DialectClient:
        """Begin a session as a user, by default the root user, without a password."""
        client = cls(shard, dialect)
        context = shard.handler_context
        record = context.metadata().require_user(user)
        binding = None
        if dialect.is_vsr:
            request_id = RequestId(client._client, 0, 0, NO_IDENTIFIER, dialect=dialect)
            new = NewSession(1, request_id, record.id, record.generation, b"")
            number = await context.sessions.register(new)
            binding = SessionBinding(dialect, client._client, number, record.id)
        client.session.log_in(record, binding)
        return client

    @property
    def position(self) -> int:
        """The position of the metadata."""
        return self._context.position.current

    def _next_request_id(self) -> RequestId | None:
        if not self.dialect.is_vsr:
            return None
        number = next(self._numbers)
        session = self.session.attached_session
        return RequestId(self._client, session, number, NO_IDENTIFIER, dialect=self.dialect)

    async def send_body(self, command: Command[Any], more: bytes = b"") -> CommandReply:
        """Ask with more bytes behind the command, and return the reply as it is."""
        body = b"".join(map(bytes, encode_request(command, self.dialect)))  # type: ignore[arg-type]
        payload = memoryview(bytearray(body + more))
        request_id = self._next_request_id()
        request = RequestReceived(command.CODE, payload, self.dialect, request_id)
        return await self._dispatcher.handle(self.session, request)

    async def ask(self, command: Command[R]) -> R:
        """Ask, and return the decoded reply; raises ``Refused``."""
        reply = await self.send_body(command)
        if reply.status:
            raise Refused(reply.status)
        payload = b"".join(bytes(part) for part in reply.parts)  # type: ignore[arg-type]
        decoded: Any = decode_reply(command.CODE, memoryview(payload), self.dialect)
        return decoded
