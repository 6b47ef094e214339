"""Blocking: Commands for personal access tokens: logging in without a password.

Made from iggy_sdk.families.tokens by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_sdk.blocking.calls import ClientCalls

if TYPE_CHECKING:
    from iggy_protocol import Identity, PersonalAccessTokenInfo, RawPersonalAccessToken
    from iggy_sdk.durations import Seconds
    from iggy_sdk.families.topic_settings import Expiry

__all__ = ["TokensFamily"]


class TokensFamily(ClientCalls):
    """Commands for personal access tokens."""

    def login_with_personal_access_token(
        self, token: str, *, timeout: Seconds | None = None
    ) -> Identity:
        """Log in with a token; the client does it again by itself after every reconnect.

        Raises:
            AuthenticationError: the token is wrong or has expired.
        """
        return self._run(self._inner.login_with_personal_access_token(token, timeout=timeout))

    def get_personal_access_tokens(
        self, *, timeout: Seconds | None = None
    ) -> list[PersonalAccessTokenInfo]:
        """Ask for the names of one's own tokens, in no particular order."""
        return self._run(self._inner.get_personal_access_tokens(timeout=timeout))

    def create_personal_access_token(
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
        return self._run(
            self._inner.create_personal_access_token(name, expiry=expiry, timeout=timeout)
        )

    def delete_personal_access_token(self, name: str, *, timeout: Seconds | None = None) -> None:
        """Delete one of one's own tokens."""
        self._run(self._inner.delete_personal_access_token(name, timeout=timeout))
