"""Commands for the server as a whole, users and personal access tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import (
    NEVER_EXPIRES,
    ChangePassword,
    ChangesStart,
    ClientDetails,
    ClientInfo,
    ClusterMetadata,
    CreatePersonalAccessToken,
    CreateUser,
    DeletePersonalAccessToken,
    DeleteUser,
    DescribeOptions,
    GetClient,
    GetClients,
    GetClusterMetadata,
    GetMe,
    GetMetadataChanges,
    GetPersonalAccessTokens,
    GetSnapshot,
    GetStats,
    GetUser,
    GetUsers,
    Identifier,
    Identity,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    MetadataChanges,
    MetadataCursor,
    MetadataGroup,
    OptionDescription,
    OptionScope,
    Permissions,
    PersonalAccessTokenInfo,
    Ping,
    RawPersonalAccessToken,
    Snapshot,
    SnapshotCompression,
    SnapshotType,
    Stats,
    StatusCode,
    UpdatePermissions,
    UpdateUser,
    User,
    UserDetails,
    UserStatus,
)
from iggy_sdk.client_interface import RequestSender
from iggy_sdk.errors import AlreadyExistsError, NotFoundError
from iggy_sdk.families.topic_settings import Expiry, expiry_us

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from iggy_sdk.durations import Seconds


class SystemFamily(RequestSender):
    """Commands for the server as a whole."""

    async def ping(self, *, timeout: Seconds | None = None) -> None:
        """Ask for a sign of life; works before a login."""
        await self.request(Ping(), timeout=timeout)

    async def get_stats(self, *, timeout: Seconds | None = None) -> Stats:
        """Ask what the server says about itself."""
        return await self.request(GetStats(), timeout=timeout)

    async def get_snapshot(
        self,
        *,
        compression: SnapshotCompression = SnapshotCompression.DEFLATED,
        types: Sequence[SnapshotType] = (SnapshotType.ALL,),
        timeout: Seconds | None = None,
    ) -> Snapshot:
        """Fetch an archive that helps with finding faults.

        Args:
            compression: how the files inside are packed.
            types: what it holds; ``ALL`` stands alone.
            timeout: how long it may take.
        """
        return await self.request(GetSnapshot(compression, tuple(types)), timeout=timeout)

    async def get_cluster_metadata(self, *, timeout: Seconds | None = None) -> ClusterMetadata:
        """Ask for the nodes of the cluster."""
        return await self.request(GetClusterMetadata(), timeout=timeout)

    async def describe_options(
        self, scope: OptionScope, *, timeout: Seconds | None = None
    ) -> list[OptionDescription]:
        """Ask which options a kind of resource has; servers from 0.9 on know.

        Args:
            scope: topics, streams or users.
            timeout: how long it may take.
        """
        return list(await self.request(DescribeOptions(scope), timeout=timeout))

    async def get_metadata_changes(
        self,
        start: ChangesStart = ChangesStart.EARLIEST,
        *,
        cursor: MetadataCursor | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        groups: Sequence[MetadataGroup] = (),
        limit: int = 100,
        token: bytes = b"",
        timeout: Seconds | None = None,
    ) -> MetadataChanges:
        """Ask what was created, changed and deleted; servers from 0.10 on know.

        Args:
            start: the earliest change that is retained, the latest, those after a cursor, or
                everything as it is now.
            cursor: ``next_cursor`` of an earlier page, to go on after it.
            since: leaves out what is older.
            until: leaves out what is newer.
            groups: leaves out all others; all if empty.
            limit: how many at most; up to 1000.
            token: that of an earlier page of everything as it is now, to go on after it.
            timeout: how long it may take.
        """
        command = GetMetadataChanges(
            ChangesStart.AFTER_CURSOR if cursor is not None else start,
            MetadataCursor() if cursor is None else cursor,
            None if since is None else _microseconds(since),
            None if until is None else _microseconds(until),
            limit,
            tuple(groups),
            token,
        )
        return await self.request(command, timeout=timeout)

    async def get_me(self, *, timeout: Seconds | None = None) -> ClientDetails:
        """Ask how the server sees this connection."""
        return await self.request(GetMe(), timeout=timeout)

    @overload
    async def get_client(
        self, client_id: int, *, required: Literal[True], timeout: Seconds | None = None
    ) -> ClientDetails: ...
    @overload
    async def get_client(
        self, client_id: int, *, required: bool = False, timeout: Seconds | None = None
    ) -> ClientDetails | None: ...
    async def get_client(
        self, client_id: int, *, required: bool = False, timeout: Seconds | None = None
    ) -> ClientDetails | None:
        """Ask for one client and the groups it has joined.

        Args:
            client_id: as ``get_clients`` shows it.
            required: raise ``NotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        try:
            details = await self.request(GetClient(client_id), timeout=timeout)
        except NotFoundError:
            # Servers of this version answer with an error where others answer with nothing.
            details = None
        if details is None and required:
            raise NotFoundError(f"there is no client {client_id}", code=StatusCode.CLIENT_NOT_FOUND)
        return details

    async def get_clients(self, *, timeout: Seconds | None = None) -> list[ClientInfo]:
        """Ask for all clients, in no particular order."""
        return list(await self.request(GetClients(), timeout=timeout))


def _microseconds(moment: datetime) -> int:
    """Write a moment as servers count; one without a time zone is local, as everywhere."""
    return int(moment.timestamp() * 1_000_000)


# Commands for users: accounts, permissions, passwords and the login itself.


class UsersFamily(RequestSender):
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


# Commands for personal access tokens: logging in without a password.


class TokensFamily(RequestSender):
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
