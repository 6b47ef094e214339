"""Commands for personal access tokens: logging in without a password."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    NEVER_EXPIRES,
    CreatePersonalAccessToken,
    DeletePersonalAccessToken,
    GetPersonalAccessTokens,
    Identity,
    LoginWithPersonalAccessToken,
    PersonalAccessTokenInfo,
    RawPersonalAccessToken,
)
from iggy_sdk.families.asking import Asking
from iggy_sdk.families.topic_settings import Expiry, expiry_us

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds

__all__ = ["TokensFamily"]


class TokensFamily(Asking):
    """Commands for personal access tokens."""

    async def login_with_personal_access_token(
        self, token: str, *, timeout: Seconds | None = None
    ) -> Identity:
        """Log in with a token; the client does it again by itself after every reconnect.

        Raises:
            AuthenticationError: the token is wrong or has expired.
        """
        return await self.request(LoginWithPersonalAccessToken(token), timeout=timeout)

    async def get_personal_access_tokens(
        self, *, timeout: Seconds | None = None
    ) -> list[PersonalAccessTokenInfo]:
        """Ask for the names of one's own tokens, in no particular order."""
        return list(await self.request(GetPersonalAccessTokens(), timeout=timeout))

    async def create_personal_access_token(
        self, name: str, *, expiry: Expiry = None, timeout: Seconds | None = None
    ) -> RawPersonalAccessToken:
        """Create a token; it is shown only this once.

        Args:
            name: 3 to 30 bytes.
            expiry: how long it is valid; None or ``"never"`` never ends.
            timeout: how long it may take.

        Raises:
            AlreadyExistsError: one of one's own tokens has this name.
        """
        lifetime = NEVER_EXPIRES if expiry is None else expiry_us(expiry, name="expiry")
        return await self.request(CreatePersonalAccessToken(name, lifetime), timeout=timeout)

    async def delete_personal_access_token(
        self, name: str, *, timeout: Seconds | None = None
    ) -> None:
        """Delete one of one's own tokens."""
        await self.request(DeletePersonalAccessToken(name), timeout=timeout)
