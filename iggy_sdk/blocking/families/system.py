"""Blocking: Commands for the server as a whole, users and personal access tokens.

Made from iggy_sdk.families.system by ``python -m tools.blocking_facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from iggy_protocol import ChangesStart, SnapshotCompression, SnapshotType, UserStatus
from iggy_sdk.blocking.wrapper import BlockingClientBase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from iggy_protocol import (
        ClientDetails,
        ClientInfo,
        ClusterMetadata,
        Identifier,
        Identity,
        MetadataChanges,
        MetadataCursor,
        MetadataGroup,
        OptionDescription,
        OptionScope,
        Permissions,
        PersonalAccessTokenInfo,
        RawPersonalAccessToken,
        Snapshot,
        Stats,
        User,
        UserDetails,
    )
    from iggy_sdk.durations import Seconds
    from iggy_sdk.families.topic_settings import Expiry


class SystemFamily(BlockingClientBase):
    """Commands for the server as a whole."""

    def ping(self, *, timeout: Seconds | None = None) -> None:
        """Ask for a sign of life; works before a login."""
        self._run(self._inner.ping(timeout=timeout))

    def get_stats(self, *, timeout: Seconds | None = None) -> Stats:
        """Ask what the server says about itself."""
        return self._run(self._inner.get_stats(timeout=timeout))

    def get_snapshot(
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
        return self._run(
            self._inner.get_snapshot(compression=compression, types=types, timeout=timeout)
        )

    def get_cluster_metadata(self, *, timeout: Seconds | None = None) -> ClusterMetadata:
        """Ask for the nodes of the cluster."""
        return self._run(self._inner.get_cluster_metadata(timeout=timeout))

    def describe_options(
        self, scope: OptionScope, *, timeout: Seconds | None = None
    ) -> list[OptionDescription]:
        """Ask which options a kind of resource has; servers from 0.9 on know.

        Args:
            scope: topics, streams or users.
            timeout: how long it may take.
        """
        return self._run(self._inner.describe_options(scope, timeout=timeout))

    def get_metadata_changes(
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
        return self._run(
            self._inner.get_metadata_changes(
                start,
                cursor=cursor,
                since=since,
                until=until,
                groups=groups,
                limit=limit,
                token=token,
                timeout=timeout,
            )
        )

    def get_me(self, *, timeout: Seconds | None = None) -> ClientDetails:
        """Ask how the server sees this connection."""
        return self._run(self._inner.get_me(timeout=timeout))

    @overload
    def get_client(
        self, client_id: int, *, required: Literal[True], timeout: Seconds | None = None
    ) -> ClientDetails: ...

    @overload
    def get_client(
        self, client_id: int, *, required: bool = False, timeout: Seconds | None = None
    ) -> ClientDetails | None: ...

    def get_client(
        self, client_id: int, *, required: bool = False, timeout: Seconds | None = None
    ) -> ClientDetails | None:
        """Ask for one client and the groups it has joined.

        Args:
            client_id: as ``get_clients`` shows it.
            required: raise ``NotFoundError`` rather than return None.
            timeout: how long it may take.
        """
        return self._run(self._inner.get_client(client_id, required=required, timeout=timeout))

    def get_clients(self, *, timeout: Seconds | None = None) -> list[ClientInfo]:
        """Ask for all clients, in no particular order."""
        return self._run(self._inner.get_clients(timeout=timeout))


class UsersFamily(BlockingClientBase):
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


class TokensFamily(BlockingClientBase):
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
