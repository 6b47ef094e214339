"""The access token of an HTTP session: from a login, refreshed before it expires.

A token that the server refuses is replaced by logging in again. If many requests need that at
once, one of them does it and the others wait.
"""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import anyio

from iggy_protocol import Identity, RemoteProtocolError
from iggy_protocol.rest import IdentityShape, decode_json, encode_refresh, encode_rest_request
from iggy_sdk.errors import error_from_protocol
from iggy_sdk.session.http.responses import decode_response

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_protocol import Command
    from iggy_protocol.rest import RestRequest
    from iggy_sdk.session.http.connection import HttpResponse

__all__ = ["AccessTokenSource"]

RENEWED_BEFORE_SECONDS: Final = 60.0
"""How long before its expiry a token is refreshed: longer than a request takes."""

RENEWED_BEFORE_SHARE: Final = 0.2
"""The same as a fraction of the lifetime, for tokens that live only a few minutes."""


class AccessTokenSource:
    """Holds the token and refreshes it.

    Args:
        exchange: sends a request without a token and returns the response.

    Attributes:
        renewals_count: how often a token was replaced.
    """

    def __init__(self, exchange: Callable[[RestRequest], Awaitable[HttpResponse]]) -> None:
        self._exchange = exchange
        self._login: Command[Any] | None = None
        self._token: str | None = None
        self._renew_at = math.inf
        self._renewing = anyio.Lock()
        self.renewals_count = 0

    async def log_in(self, command: Command[Any]) -> Identity:
        """Log in, and remember how.

        Raises:
            AuthenticationError: the server refuses.
        """
        request = encode_rest_request(command)
        response = await self._exchange(request)
        identity: Identity = decode_response(command, request.route, response)
        self._store_token(response)
        self._login = command
        return identity

    def forget(self) -> None:
        """Forget the token and the login."""
        self._login, self._token, self._renew_at = None, None, math.inf

    async def token(self) -> str | None:
        """Return the token, a new one if it expires soon; None without a login."""
        token = self._token
        if token is None or anyio.current_time() < self._renew_at:
            return token
        async with self._renewing:
            if self._token is token and anyio.current_time() >= self._renew_at:
                await self._renew(token)
        return self._token

    async def replace(self, refused: str) -> str | None:
        """Log in again, because a token was refused; None without a remembered login.

        Raises:
            AuthenticationError: the server refuses the login as well.
        """
        async with self._renewing:
            if self._token == refused and self._login is not None:
                await self._log_in_again(self._login)
        return self._token if self._token != refused else None

    async def _renew(self, token: str) -> None:
        """Refresh the token; if that fails, it is replaced once the server refuses it."""
        # If this is cancelled or fails, requests go on with the old token.
        self._renew_at = math.inf
        request = encode_refresh(token)
        response = await self._exchange(request)
        if response.status == request.route.success and self._token is token:
            self._store_token(response)
            self.renewals_count += 1

    async def _log_in_again(self, login: Command[Any]) -> None:
        request = encode_rest_request(login)
        response = await self._exchange(request)
        decode_response(login, request.route, response)
        if self._login is login:
            self._store_token(response)
            self.renewals_count += 1

    def _store_token(self, response: HttpResponse) -> None:
        try:
            access = decode_json(response.body, IdentityShape).access_token
        except RemoteProtocolError as error:
            raise error_from_protocol(error) from error
        self._token = access.token
        life = access.expiry - _server_time(response)
        if life <= 0:
            # The clocks disagree too much; wait until the server refuses the token.
            self._renew_at = math.inf
            return
        margin = min(RENEWED_BEFORE_SECONDS, life * RENEWED_BEFORE_SHARE)
        self._renew_at = anyio.current_time() + life - margin


def _server_time(response: HttpResponse) -> float:
    """Read the clock of the server from the Date header; the local clock without one."""
    try:
        return parsedate_to_datetime(response.headers[b"date"].decode("latin-1")).timestamp()
    except (KeyError, ValueError):
        return time.time()
