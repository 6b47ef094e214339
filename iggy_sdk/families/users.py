"""Commands for users: accounts, permissions, passwords and the login itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import (
    ChangePassword,
    CreateUser,
    DeleteUser,
    GetUser,
    GetUsers,
    Identifier,
    Identity,
    LoginUser,
    LogoutUser,
    Permissions,
    StatusCode,
    UpdatePermissions,
    UpdateUser,
    User,
    UserDetails,
    UserStatus,
)
from iggy_sdk.errors import AlreadyExistsError, NotFoundError
from iggy_sdk.families.asking import Asking

if TYPE_CHECKING:
    from iggy_sdk.durations import Seconds

__all__ = ["UsersFamily"]


class UsersFamily(Asking):
    """Commands for users."""

    async def login_user(
        self, username: str, password: str, *, timeout: Seconds | None = None
    ) -> Identity:
        """Log in; the client does it again by itself after every reconnect.

        Raises:
            AuthenticationError: the name or the password is wrong, or the user is inactive.
        """
        return await self.request(LoginUser(username, password), timeout=timeout)

    async def logout_user(self, *, timeout: Seconds | None = None) -> None:
        """Log out, and forget the login."""
        await self.request(LogoutUser(), timeout=timeout)

    @overload
    async def get_user(
        self, user: Identifier, *, required: Literal[True], timeout: Seconds | None = None
    ) -> UserDetails: ...
    @overload
    async def get_user(
        self, user: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> UserDetails | None: ...
    async def get_user(
        self, user: Identifier, *, required: bool = False, timeout: Seconds | None = None
    ) -> UserDetails | None:
        """Ask for one user and its permissions.

        Args:
            user: name or id.
            required: raise ``NotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        details = await self.request(GetUser(user), timeout=timeout)
        if details is None and required:
            raise NotFoundError(f"there is no user {user!r}", code=StatusCode.RESOURCE_NOT_FOUND)
        return details

    async def get_users(self, *, timeout: Seconds | None = None) -> list[User]:
        """Ask for all users."""
        return list(await self.request(GetUsers(), timeout=timeout))

    async def create_user(
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
        command = CreateUser(username, password, status, permissions)
        try:
            return await self.request(command, timeout=timeout)
        except AlreadyExistsError:
            found = await self.get_user(username, timeout=timeout) if exist_ok else None
            if found is None:
                raise
            return found

    async def update_user(
        self,
        user: Identifier,
        *,
        username: str | None = None,
        status: UserStatus | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Rename a user, or change whether it may log in; None leaves a field as it is."""
        await self.request(UpdateUser(user, username, status), timeout=timeout)

    async def delete_user(self, user: Identifier, *, timeout: Seconds | None = None) -> None:
        """Delete a user."""
        await self.request(DeleteUser(user), timeout=timeout)

    async def update_permissions(
        self,
        user: Identifier,
        permissions: Permissions | None,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Replace the permissions of a user; None takes them all away."""
        await self.request(UpdatePermissions(user, permissions), timeout=timeout)

    async def change_password(
        self,
        user: Identifier,
        current_password: str,
        new_password: str,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Change a password; the current one must be known."""
        command = ChangePassword(user, current_password, new_password)
        await self.request(command, timeout=timeout)
