"""Login, token refresh and logout over HTTP, where an access token stands for a session.

The handlers verify credentials. A login returns a token, a refresh replaces a token once, and a
logout revokes a token.
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
    """Log in with the credentials of the command, and return an access token.

    Raises:
        ServerFault: the credentials are wrong.
    """
    await room.desk.perform(session, command)
    return _identity(room, session)


async def refresh(room: WebRoom, token: str, address: str) -> IdentityShape:
    """Exchange a token for a new one, and revoke the old one.

    Raises:
        ServerFault: the token is invalid, was exchanged already, or has an external issuer.
        StorageError: the revocation could not be stored.
    """
    claims = await room.tokens.read(token)
    if claims.is_external:
        raise _invalid("it has an external issuer, which must renew it")
    session = session_for(claims, address, room.desk.office.metadata())
    if not room.tokens.has_room():
        raise _invalid("too many tokens were exchanged recently; log in instead")
    if not await room.tokens.take_back(claims):
        raise _invalid("it was exchanged already")
    return _identity(room, session)


async def log_out(room: WebRoom, caller: Caller, command: Command[Any]) -> None:
    """Log out, and revoke the token.

    Raises:
        StorageError: the token is revoked, but would be valid again after a restart.
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
