"""Applies changes of users, their permissions and their tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from iggy_ref_server.metadata.records import TokenRecord, UserRecord
from iggy_ref_server.metadata.token_shelf import TokenShelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol import Permissions
    from iggy_ref_server.metadata import changes as happened
    from iggy_ref_server.metadata.state import Metadata

__all__ = [
    "change_password",
    "change_permissions",
    "create_token",
    "create_user",
    "delete_token",
    "delete_user",
    "expire_tokens",
    "update_user",
    "withdraw",
]


def _with_user(
    metadata: Metadata, user_id: int, change: Callable[[UserRecord], UserRecord]
) -> Metadata:
    user = metadata.users.find(user_id)
    if user is None:
        return metadata
    return replace(metadata, users=metadata.users.replace(change(user)))


def create_user(metadata: Metadata, change: happened.UserCreated) -> Metadata:
    """Create a user."""
    user = UserRecord(
        id=change.id,
        incarnation=change.incarnation,
        username=change.username,
        password_hash=change.password_hash,
        status=change.status,
        created_at_us=change.created_at_us,
        permissions=change.permissions,
    )
    if not metadata.users.fits(user):
        return metadata
    return replace(metadata, users=metadata.users.add(user))


def update_user(metadata: Metadata, change: happened.UserUpdated) -> Metadata:
    """Give a user another name or status."""
    if metadata.users.id_by_name.get(change.username or "", change.id) != change.id:
        return metadata
    return _with_user(
        metadata,
        change.id,
        lambda user: replace(
            user,
            username=user.username if change.username is None else change.username,
            status=user.status if change.status is None else change.status,
            incarnation=user.incarnation if change.incarnation is None else change.incarnation,
        ),
    )


def delete_user(metadata: Metadata, change: happened.UserDeleted) -> Metadata:
    """Delete a user, and its tokens."""
    if metadata.users.find(change.id) is None:
        return metadata
    return replace(
        metadata,
        users=metadata.users.remove(change.id),
        tokens=metadata.tokens.remove_user(change.id),
    )


def change_password(metadata: Metadata, change: happened.PasswordChanged) -> Metadata:
    """Give a user another password."""
    return _with_user(
        metadata,
        change.user_id,
        lambda user: replace(user, password_hash=change.password_hash),
    )


def change_permissions(metadata: Metadata, change: happened.PermissionsChanged) -> Metadata:
    """Give a user other permissions."""
    return _with_user(
        metadata, change.user_id, lambda user: replace(user, permissions=change.permissions)
    )


def create_token(metadata: Metadata, change: happened.TokenCreated) -> Metadata:
    """Create a token of a user."""
    if metadata.users.find(change.user_id) is None:
        return metadata
    token = TokenRecord(change.user_id, change.name, change.hash, change.expires_at_us)
    return replace(metadata, tokens=metadata.tokens.add(token))


def delete_token(metadata: Metadata, change: happened.TokenDeleted) -> Metadata:
    """Delete a token."""
    return replace(metadata, tokens=metadata.tokens.remove(change.user_id, change.name))


def expire_tokens(metadata: Metadata, change: happened.TokensExpired) -> Metadata:
    """Delete all expired tokens."""
    kept = (token for token in metadata.tokens if not token.is_expired(change.now_us))
    return replace(metadata, tokens=TokenShelf.holding(kept))


def _without(permissions: Permissions, stream_id: int, topic_id: int | None) -> Permissions:
    if topic_id is None:
        kept = tuple(entry for entry in permissions.streams if entry.stream_id != stream_id)
        return replace(permissions, streams=kept)
    streams = tuple(
        replace(entry, topics=tuple(grant for grant in entry.topics if grant.topic_id != topic_id))
        if entry.stream_id == stream_id
        else entry
        for entry in permissions.streams
    )
    return replace(permissions, streams=streams)


def withdraw(metadata: Metadata, stream_id: int, topic_id: int | None = None) -> Metadata:
    """Drop all permissions that name a stream, or one topic of it.

    Their ids will be reused, and the permissions must not apply to the new objects.
    """
    users = metadata.users
    for user in metadata.users.by_id.values():
        if user.permissions is not None and user.permissions.streams:
            permissions = _without(user.permissions, stream_id, topic_id)
            if permissions != user.permissions:
                users = users.replace(replace(user, permissions=permissions))
    return metadata if users is metadata.users else replace(metadata, users=users)
