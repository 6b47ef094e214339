"""Authentication: from the access token of a request to the session of a user.

All but a few paths need a valid token. Without one the reply is an empty 401, whether or not the
path exists. A token is valid as long as its user exists and is active.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from iggy_protocol import StatusCode, Transport, record
from iggy_protocol.rest import PUBLIC_PATHS
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.identity.jwt import Claims
from iggy_ref_server.session import Session
from iggy_ref_server.web.connection import connection_of
from iggy_ref_server.web.errors import empty_response
from iggy_ref_server.web.requests import header_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from iggy_ref_server.identity.jwt import AccessTokens
    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.web.room import WebRoom

__all__ = ["Bearer", "Caller", "caller_of", "session_for"]

LOGGER = logging.getLogger(__name__)

BEARER: Final = b"Bearer "
CALLER: Final = "iggy.caller"
# HTTP clients are not listed among the connected clients.
CLIENT_ID: Final = 0
MICROSECONDS: Final = 1_000_000
# The OpenAPI document and the page that renders it; Apache Iggy has neither.
DOCUMENT_PATHS: Final = frozenset({"/openapi.json", "/docs"})
OPEN_PATHS: Final = PUBLIC_PATHS | DOCUMENT_PATHS


@record
class Caller:
    """The caller of a request.

    Attributes:
        session: lasts as long as the request.
        claims: the content of the token; None where none is needed.
    """

    session: Session
    claims: Claims | None = None


def caller_of(scope: Scope) -> Caller:
    """Return the caller of a request."""
    caller = scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


def session_for(claims: Claims, address: str, metadata: Metadata) -> Session:
    """Make the session of a token's user.

    Raises:
        ServerFault: its user was deleted, deactivated or replaced.
    """
    session = Session(CLIENT_ID, address, Transport.HTTP)
    user = metadata.find_user(claims.user_id)
    if user is None:
        raise ServerFault(StatusCode.UNAUTHENTICATED, "the user of the token was deleted")
    session.sign_in(user)
    if claims.incarnation is not None:
        session.user_incarnation = claims.incarnation
    elif user.created_at_us // MICROSECONDS > claims.issued_at_s:
        # The user of the token was deleted, and its id was assigned again.
        raise ServerFault(StatusCode.UNAUTHENTICATED, "the token is older than its user")
    session.user(metadata)
    return session


class Bearer:
    """ASGI middleware that requires a valid access token."""

    def __init__(self, app: ASGIApp, *, room: WebRoom) -> None:
        self._app = app
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = _address(scope)
        if scope["path"] in OPEN_PATHS:
            scope[CALLER] = Caller(Session(CLIENT_ID, address, Transport.HTTP))
        else:
            try:
                scope[CALLER] = await self._recognise(scope, address)
            except ServerFault as fault:
                LOGGER.debug("refused a request of %s: %s", address, fault)
                await empty_response(401)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _recognise(self, scope: Scope, address: str) -> Caller:
        header = header_of(scope, b"authorization")
        if header is None or not header.startswith(BEARER):
            raise ServerFault(StatusCode.ACCESS_TOKEN_MISSING, "no access token")
        tokens: AccessTokens = self._room.tokens
        claims = await tokens.read(header[len(BEARER) :].decode("latin-1"))
        session = session_for(claims, address, self._room.desk.office.metadata())
        connection = connection_of(scope)
        if connection is not None:
            connection.note_login()
        return Caller(session, claims)


def _address(scope: Scope) -> str:
    host, port = scope["client"] or ("unknown", 0)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
