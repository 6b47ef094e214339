"""Authentication: from the access token of a request to the session of a user.

All but a few paths need a valid token. Without one the reply is an empty 401, whether or not the
path exists. A token is valid as long as its user exists and is active.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import (
    CLASSIC,
    Command,
    Dialect,
    LoginUser,
    StatusCode,
    Transport,
    dialect_of_sdk,
    record,
)
from iggy_protocol.rest import PUBLIC_PATHS, AccessTokenShape, IdentityShape
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.identity.jwt import AccessTokens, Claims
from iggy_ref_server.session import ClientSession
from iggy_ref_server.web.connection import connection_of
from iggy_ref_server.web.errors import empty_response
from iggy_ref_server.web.requests import header_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from iggy_ref_server.metadata.state import Metadata
    from iggy_ref_server.web.context import WebContext


LOGGER = logging.getLogger(__name__)


BEARER: Final = b"Bearer "
CALLER: Final = "iggy.caller"
# HTTP clients are not listed among the connected clients.
CLIENT_ID: Final = 0
MICROSECONDS: Final = 1_000_000
# The OpenAPI document and the page that renders it; Apache Iggy has neither.
DOCUMENT_PATHS: Final = frozenset({"/openapi.json", "/docs"})
UNAUTHENTICATED_PATHS: Final = PUBLIC_PATHS | DOCUMENT_PATHS


@dataclass(slots=True)
class CallerSession(ClientSession):
    """The session of one request.

    Attributes:
        spoken: what the body of the request is written in, or else what the login has told.
    """

    spoken: Dialect = CLASSIC

    @property
    def dialect(self) -> Dialect:
        """What the client speaks; replies tell options to clients from 0.9 on."""
        return self.spoken


@record
class HttpCaller:
    """The caller of a request.

    Attributes:
        session: lasts as long as the request.
        claims: the content of the token; None where none is needed.
    """

    session: CallerSession
    claims: Claims | None = None

    @property
    def dialect(self) -> Dialect:
        """What the client speaks, as its login has told."""
        return CLASSIC if self.claims is None else self.claims.dialect


def caller_of(scope: Scope) -> HttpCaller:
    """Return the caller of a request."""
    caller = scope[CALLER]
    assert isinstance(caller, HttpCaller)
    return caller


def session_for(claims: Claims, address: str, metadata: Metadata) -> CallerSession:
    """Make the session of a token's user.

    Raises:
        ServerFault: its user was deleted, deactivated or replaced.
    """
    session = CallerSession(CLIENT_ID, address, Transport.HTTP, spoken=claims.dialect)
    user = metadata.find_user(claims.user_id)
    if user is None:
        raise ServerFault(StatusCode.UNAUTHENTICATED, "the user of the token was deleted")
    session.log_in(user)
    if claims.generation is not None:
        session.user_generation = claims.generation
    elif user.created_at_us // MICROSECONDS > claims.issued_at_s:
        # The user of the token was deleted, and its id was assigned again.
        raise ServerFault(StatusCode.UNAUTHENTICATED, "the token is older than its user")
    session.user(metadata)
    return session


class TokenMiddleware:
    """ASGI middleware that requires a valid access token."""

    def __init__(self, app: ASGIApp, *, context: WebContext) -> None:
        self._app = app
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = _address(scope)
        if scope["path"] in UNAUTHENTICATED_PATHS:
            scope[CALLER] = HttpCaller(CallerSession(CLIENT_ID, address, Transport.HTTP))
        else:
            try:
                scope[CALLER] = await self._authenticate(scope, address)
            except ServerFault as fault:
                LOGGER.debug("refused a request of %s: %s", address, fault)
                await empty_response(401)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    async def _authenticate(self, scope: Scope, address: str) -> HttpCaller:
        header = header_of(scope, b"authorization")
        if header is None or not header.startswith(BEARER):
            raise ServerFault(StatusCode.ACCESS_TOKEN_MISSING, "no access token")
        tokens: AccessTokens = self._context.tokens
        claims = await tokens.read(header[len(BEARER) :].decode("latin-1"))
        session = session_for(claims, address, self._context.dispatcher.handler_context.metadata())
        connection = connection_of(scope)
        if connection is not None:
            connection.note_login()
        return HttpCaller(session, claims)


def _address(scope: Scope) -> str:
    host, port = scope["client"] or ("unknown", 0)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# Login, token refresh and logout over HTTP, where an access token stands for a session.
#
# The handlers verify credentials. A login returns a token, a refresh replaces a token once, and a
# logout revokes a token.


async def log_in(
    context: WebContext, session: CallerSession, command: Command[Any]
) -> IdentityShape:
    """Log in with the credentials of the command, and return an access token.

    Raises:
        ServerFault: the credentials are wrong.
    """
    await context.dispatcher.perform(session, command)
    if isinstance(command, LoginUser):
        session.spoken = dialect_of_sdk(command.version)
    return _identity(context, session)


async def refresh(context: WebContext, token: str, address: str) -> IdentityShape:
    """Exchange a token for a new one, and revoke the old one.

    Raises:
        ServerFault: the token is invalid, was exchanged already, or has an external issuer.
        StorageError: the revocation could not be stored.
    """
    claims = await context.tokens.read(token)
    if claims.is_external:
        raise _invalid("it has an external issuer, which must renew it")
    session = session_for(claims, address, context.dispatcher.handler_context.metadata())
    if not context.tokens.has_room():
        raise _invalid("too many tokens were exchanged recently; log in instead")
    if not await context.tokens.revoke(claims):
        raise _invalid("it was exchanged already")
    return _identity(context, session)


async def log_out(context: WebContext, caller: HttpCaller, command: Command[Any]) -> None:
    """Log out, and revoke the token.

    Raises:
        StorageError: the token is revoked, but would be valid again after a restart.
    """
    assert caller.claims is not None
    await context.dispatcher.perform(caller.session, command)
    await context.tokens.revoke(caller.claims)


def _identity(context: WebContext, session: ClientSession) -> IdentityShape:
    assert session.user_id is not None
    token = context.tokens.issue(session.user_id, session.user_generation, session.dialect)
    return IdentityShape(session.user_id, AccessTokenShape(token.text, token.expires_at_s))


def _invalid(reason: str) -> ServerFault:
    return ServerFault(StatusCode.INVALID_ACCESS_TOKEN, f"the access token is refused: {reason}")
