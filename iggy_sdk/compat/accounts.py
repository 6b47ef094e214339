"""The official methods for users, groups and the server as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import iggy_protocol
from iggy_protocol import CreateUser, Identifier, OptionScope, UpdateUser
from iggy_sdk.compat.errors import option_errors
from iggy_sdk.compat.metadata_changes import MetadataChanges, request_of
from iggy_sdk.compat.records import ConsumerGroup, ConsumerGroupDetails
from iggy_sdk.compat.shared_client import SharedClient
from iggy_sdk.compat.statistics import Stats
from iggy_sdk.compat.streams import reset_keys
from iggy_sdk.compat.users import IdentityInfo, UserInfo, UserInfoDetails, own_permissions
from iggy_sdk.families.topic_settings import options_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_sdk.compat.choices import UserStatus
    from iggy_sdk.compat.metadata_changes import MetadataChangeGroup, MetadataChangeStart
    from iggy_sdk.compat.settings import OptionKey, UserOptions
    from iggy_sdk.compat.users import Permissions


class GroupsMethods(SharedClient):
    """Methods for consumer groups."""

    async def create_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, name: str
    ) -> ConsumerGroupDetails:
        """Create a consumer group."""
        return ConsumerGroupDetails(await self.own.create_consumer_group(stream_id, topic_id, name))

    async def get_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, group_id: Identifier
    ) -> ConsumerGroupDetails | None:
        """Ask for one consumer group; None if there is none."""
        found = await self.own.get_consumer_group(stream_id, topic_id, group_id)
        return None if found is None else ConsumerGroupDetails(found)

    async def get_consumer_groups(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier
    ) -> list[ConsumerGroup]:
        """Ask for all consumer groups of a topic."""
        found = await self.own.get_consumer_groups(stream_id, topic_id)
        return [ConsumerGroup(group) for group in found]

    async def delete_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, group_id: Identifier
    ) -> None:
        """Delete a consumer group."""
        await self.own.delete_consumer_group(stream_id, topic_id, group_id)

    async def join_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, group_id: Identifier
    ) -> None:
        """Join a consumer group with this connection."""
        await self.own.join_consumer_group(stream_id, topic_id, group_id)

    async def leave_consumer_group(  # type: ignore[override]
        self, stream_id: Identifier, topic_id: Identifier, group_id: Identifier
    ) -> None:
        """Leave a consumer group."""
        await self.own.leave_consumer_group(stream_id, topic_id, group_id)


class UsersMethods(SharedClient):
    """Methods for logins, users and the server as a whole."""

    async def get_stats(self) -> Stats:  # type: ignore[override]
        """Ask what the server says about itself."""
        return Stats(await self.own.get_stats())

    async def get_metadata_changes(  # type: ignore[override]
        self,
        start: MetadataChangeStart,
        *,
        groups: Iterable[MetadataChangeGroup] | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int | None = None,
    ) -> MetadataChanges:
        """Ask a server from 0.10 on for a page of changes of metadata, or of its current state.

        Args:
            start: where to start.
            groups: families to read; all of them without any.
            since: leaves out what is older, in microseconds since 1970.
            until: leaves out what is newer.
            limit: how many at most, up to 1000; 100 by default.

        Raises:
            UnsupportedByServerError: the server is older, and has no such log.
            InvalidRequestError: the limit is wrong.
        """
        page = await self.request(request_of(start, groups, since, until, limit))
        return MetadataChanges(page)

    async def login_user(  # type: ignore[override]
        self, username: str, password: str
    ) -> IdentityInfo:
        """Log in; the client does it again by itself after every reconnect.

        Raises:
            AuthenticationError: the name or the password is wrong, or the user is inactive.
        """
        return IdentityInfo(await self.own.login_user(username, password))

    async def login_with_personal_access_token(  # type: ignore[override]
        self, token: str
    ) -> IdentityInfo:
        """Log in with a token; the client does it again by itself after every reconnect.

        Raises:
            AuthenticationError: the token is wrong or has expired.
        """
        return IdentityInfo(await self.own.login_with_personal_access_token(token))

    async def get_user(  # type: ignore[override]
        self, user_id: Identifier
    ) -> UserInfoDetails | None:
        """Ask for one user; None if there is none."""
        found = await self.own.get_user(user_id)
        return None if found is None else UserInfoDetails(found)

    async def get_users(self) -> list[UserInfo]:  # type: ignore[override]
        """Ask for all users."""
        return [UserInfo(user) for user in await self.own.get_users()]

    async def create_user(  # type: ignore[override]
        self,
        username: str,
        password: str,
        status: UserStatus | iggy_protocol.UserStatus | None = None,
        permissions: Permissions | iggy_protocol.Permissions | None = None,
        options: UserOptions | None = None,
    ) -> UserInfoDetails:
        """Create a user.

        Args:
            username: 3 to 50 bytes.
            password: 3 to 100 bytes.
            status: whether the user may log in; by default it may.
            permissions: what the user may do; None means nothing.
            options: options of the user, which ask for a server from 0.9 on.

        Raises:
            AlreadyExistsError: the name is taken.
            OptionError: the server refuses an option.
        """
        given = {} if options is None else options.options()
        with option_errors():
            command = CreateUser(
                username,
                password,
                iggy_protocol.UserStatus.ACTIVE if status is None else own_status(status),
                own_permissions(permissions),
                options=options_for(OptionScope.USER, given, self.dialect),
            )
            return UserInfoDetails(await self.request(command))

    async def update_user(  # type: ignore[override]
        self,
        user_id: Identifier,
        username: str | None = None,
        status: UserStatus | iggy_protocol.UserStatus | None = None,
        options: Mapping[str, str] | None = None,
        *,
        reset: Iterable[OptionKey] | None = None,
        raw_reset: Iterable[str] | None = None,
    ) -> None:
        """Rename a user, or change whether it may log in; what is None stays as it is.

        Args:
            user_id: name or id.
            username: the new name.
            status: whether the user may log in.
            options: options to set, as texts; from 0.9 on.
            reset: options that go back to their defaults; from 0.10 on.
            raw_reset: the same by name.

        Raises:
            OptionError: the server refuses an option.
        """
        with option_errors():
            command = UpdateUser(
                user_id,
                username,
                None if status is None else own_status(status),
                options=options_for(OptionScope.USER, options, self.dialect),
                reset=reset_keys(reset, raw_reset),
            )
            await self.request(command)

    async def delete_user(self, user_id: Identifier) -> None:  # type: ignore[override]
        """Delete a user."""
        await self.own.delete_user(user_id)

    async def update_permissions(  # type: ignore[override]
        self, user_id: Identifier, permissions: Permissions | iggy_protocol.Permissions | None
    ) -> None:
        """Replace the permissions of a user; None takes them all away."""
        await self.own.update_permissions(user_id, own_permissions(permissions))

    async def change_password(  # type: ignore[override]
        self, user_id: Identifier, current_password: str, new_password: str
    ) -> None:
        """Change a password; the current one must be known."""
        await self.own.change_password(user_id, current_password, new_password)


def own_status(status: UserStatus | iggy_protocol.UserStatus) -> iggy_protocol.UserStatus:
    """Return a status as this SDK spells it."""
    return iggy_protocol.UserStatus(int(status))
