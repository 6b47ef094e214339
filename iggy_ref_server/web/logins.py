"""Logging in, staying logged in and logging out over HTTP, where a token stands for a session.

The handlers decide who may log in. Here a login becomes a token, a token becomes another one once,
and a logout takes a token back.

Owns these exchanges. What a token says is read by ``identity.jwt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iggy_protocol import StatusCode
from iggy_protocol.rest import AccessTokenShape, IdentityShape
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.web.auth import session_for

if TYPE_CHECKING:
    from iggy_protocol import Command
    from iggy_ref_server.session import Session
    from iggy_ref_server.web.auth import Caller
    from iggy_ref_server.web.room import WebRoom

__all__ = ["log_in", "log_out", "refresh"]


async def log_in(room: WebRoom, session: Session, command: Command[Any]) -> IdentityShape:
    """Log in with whatever the command proves, and return a token for it.

    Raises:
        ServerFault: it proves nothing.
    """
    await room.desk.perform(session, command)
    return _identity(room, session)


async def refresh(room: WebRoom, token: str, address: str) -> IdentityShape:
    """Exchange a token for a new one; the old one counts no more.

    Raises:
        ServerFault: the token does not count, was exchanged already, or is not ours to exchange.
        StorageError: the exchange could not be written down.
    """
    claims = await room.tokens.read(token)
    if claims.is_external:
        raise _invalid("tokens of others are renewed by their issuers")
    session = session_for(claims, address, room.desk.office.metadata())
    if not room.tokens.has_room():
        raise _invalid("too many tokens were exchanged lately; log in instead")
    if not await room.tokens.take_back(claims):
        raise _invalid("it was exchanged already")
    return _identity(room, session)


async def log_out(room: WebRoom, caller: Caller, command: Command[Any]) -> None:
    """End what a token stands for.

    Raises:
        StorageError: it is ended, but would not be after a restart.
    """
    assert caller.claims is not None
    await room.desk.perform(caller.session, command)
    await room.tokens.take_back(caller.claims)


def _identity(room: WebRoom, session: Session) -> IdentityShape:
    assert session.user_id is not None
    token = room.tokens.issue(session.user_id, session.user_incarnation)
    return IdentityShape(session.user_id, AccessTokenShape(token.text, token.expires_at_s))


def _invalid(reason: str) -> ServerFault:
    return ServerFault(StatusCode.INVALID_ACCESS_TOKEN, f"the access token is refused: {reason}")
