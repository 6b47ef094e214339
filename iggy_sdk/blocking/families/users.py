"""Blocking: Commands for users: accounts, permissions, passwords and the login itself.

Made from iggy_sdk.families.users by ``python -m tests.sdk.blocking.facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import UserStatus
from iggy_sdk.blocking.calls import ClientCalls

if TYPE_CHECKING:
    from iggy_protocol import Identifier, Identity, Permissions, User, UserDetails
    from iggy_sdk.durations import Seconds

__all__ = ["UsersFamily"]


class UsersFamily(ClientCalls):
    """Commands for users."""

    def login_user(
        self, username: str, password: str, *, timeout: Seconds | None = None
    ) -> Identity:
        """Log in; the client does it again by itself after every reconnect.

        Raises:
            AuthenticationError: the name or the password is wrong, or the user is inactive.
        """
        return self._run(self._inner.login_user(username, password, timeout=timeout))

    def logout_user(self, *, timeout: Seconds | None = None) -> None:
        """Log out, and forget the login."""
        self._run(self._inner.logout_user(timeout=timeout))

    @overload
    def get_user(
        self, user: Identifier, *, required: Literal[True], timeout: Seconds | None = None
    ) -> UserDetails: ...

    @overload
    def get_user(
        self, user: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> UserDetails | None: ...

    def get_user(
        self, user: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> UserDetails | None:
        """Ask for one user and its permissions.

        Args:
            user: name or id.
            required: raise ``NotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        return self._run(self._inner.get_user(user, required=required, timeout=timeout))

    def get_users(self, *, timeout: Seconds | None = None) -> list[User]:
        """Ask for all users."""
        return self._run(self._inner.get_users(timeout=timeout))

    def create_user(
        self,
        username: str,
        password: str,
        *,
        status: UserStatus = UserStatus.ACTIVE,
        permissions: Permissions | None = None,
        exist_ok: bool = False,
        timeout: Seconds | None = None,
    ) -> UserDetails:
        """Create a user.

        Args:
            username: 3 to 50 bytes.
            password: 3 to 100 bytes.
            status: whether the user may log in.
            permissions: what the user may do; None means nothing.
            exist_ok: return the user as it is when the name is taken; nothing of it changes.
            timeout: how long it may take.

        Raises:
            AlreadyExistsError: the name is taken.
        """
        return self._run(
            self._inner.create_user(
                username,
                password,
                status=status,
                permissions=permissions,
                exist_ok=exist_ok,
                timeout=timeout,
            )
        )

    def update_user(
        self,
        user: Identifier,
        *,
        username: str | None = None,
        status: UserStatus | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Rename a user, or change whether it may log in; None leaves a field as it is."""
        self._run(self._inner.update_user(user, username=username, status=status, timeout=timeout))

    def delete_user(self, user: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete a user."""
        self._run(self._inner.delete_user(user, timeout=timeout))

    def update_permissions(
        self, user: Identifier, permissions: Permissions | None, *, timeout: Seconds | None = None
    ) -> None:
        """Replace the permissions of a user; None takes them all away."""
        self._run(self._inner.update_permissions(user, permissions, timeout=timeout))

    def change_password(
        self,
        user: Identifier,
        current_password: str,
        new_password: str,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Change a password; the current one must be known."""
        self._run(
            self._inner.change_password(user, current_password, new_password, timeout=timeout)
        )
