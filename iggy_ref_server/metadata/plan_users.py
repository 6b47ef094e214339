"""Plans for users: a command, the present state and hashes give a change, or a fault.

Owns the guards around root: it cannot be deleted, deactivated, or given other permissions. Pure:
passwords are hashed and verified elsewhere. Fields of commands have passed
``iggy_protocol.validate`` and the asking user's permissions are checked elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from iggy_protocol import (
    NEVER_EXPIRES,
    V0_12_0,
    ByDialect,
    ChangePassword,
    CreatePersonalAccessToken,
    CreateUser,
    DeletePersonalAccessToken,
    DeleteUser,
    Dialect,
    GlobalPermissions,
    OptionScope,
    Permissions,
    StatusCode,
    UpdatePermissions,
    UpdateUser,
    UserStatus,
    check_created_options,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.changes import (
    PasswordChanged,
    PermissionsChanged,
    TokenCreated,
    TokenDeleted,
    TokensExpired,
    UserCreated,
    UserDeleted,
    UserUpdated,
)
from iggy_ref_server.metadata.options import store_options
from iggy_ref_server.metadata.state import ROOT_USER_ID, Metadata, PlanContext

ROOT_PERMISSIONS = Permissions(
    GlobalPermissions(
        manage_servers=True,
        read_servers=True,
        manage_users=True,
        read_users=True,
        manage_streams=True,
        read_streams=True,
        manage_topics=True,
        read_topics=True,
        poll_messages=True,
        send_messages=True,
    )
)


def _username_taken(username: str) -> ServerFault:
    return ServerFault(StatusCode.USER_ALREADY_EXISTS, f"a user named {username!r} exists already")


def normalize_permissions(permissions: Permissions | None) -> Permissions | None:
    """Sort the entries by id; where one stands twice, the later counts."""
    if permissions is None:
        return None
    streams = {
        entry.stream_id: replace(
            entry,
            topics=tuple(
                grant
                for _, grant in sorted({grant.topic_id: grant for grant in entry.topics}.items())
            ),
        )
        for entry in permissions.streams
    }
    return replace(permissions, streams=tuple(entry for _, entry in sorted(streams.items())))


def plan_create_root(
    metadata: Metadata, username: str, password_hash: str, context: PlanContext
) -> UserCreated | None:
    """Plan the first user, or nothing where there is one."""
    if metadata.users.find(ROOT_USER_ID) is not None:
        return None
    return UserCreated(
        id=ROOT_USER_ID,
        generation=metadata.next_generation(context.now_us),
        username=username,
        password_hash=password_hash,
        status=UserStatus.ACTIVE,
        created_at_us=context.now_us,
        permissions=ROOT_PERMISSIONS,
    )


def plan_create_user(
    metadata: Metadata, command: CreateUser, context: PlanContext, *, password_hash: str
) -> UserCreated:
    """Plan a new user under the next free id."""
    if command.username in metadata.users.id_by_name:
        raise _username_taken(command.username)
    return UserCreated(
        id=metadata.users.next_id,
        generation=metadata.next_generation(context.now_us),
        username=command.username,
        password_hash=password_hash,
        status=command.status,
        created_at_us=context.now_us,
        permissions=normalize_permissions(command.permissions),
        options=store_options(
            check_created_options(OptionScope.USER, command.options, context.dialect)
        ),
    )


# Whether the root user may be changed at all; it may never be deactivated.
_IS_ROOT_FIXED = ByDialect(False, {V0_12_0: True})


def _check_root_update(command: UpdateUser, dialect: Dialect) -> None:
    if _IS_ROOT_FIXED[dialect]:
        raise ServerFault(StatusCode.ROOT_USER_IMMUTABLE, "the root user cannot be changed")
    if command.status is UserStatus.INACTIVE:
        raise ServerFault(
            StatusCode.CANNOT_CHANGE_PERMISSIONS, "the root user cannot be deactivated"
        )


def plan_update_user(metadata: Metadata, command: UpdateUser, context: PlanContext) -> UserUpdated:
    """Plan another name or status for a user; deactivating one ends its sessions."""
    user = metadata.require_user(command.user)
    if user.is_root:
        _check_root_update(command, context.dialect)
    name = command.username
    if name is not None and metadata.users.id_by_name.get(name, user.id) != user.id:
        raise _username_taken(name)
    deactivated = command.status is UserStatus.INACTIVE
    return UserUpdated(
        id=user.id,
        username=name,
        status=command.status,
        generation=metadata.next_generation(context.now_us) if deactivated else None,
    )


def plan_delete_user(metadata: Metadata, command: DeleteUser, context: PlanContext) -> UserDeleted:
    """Plan the end of a user, its tokens and its sessions."""
    user = metadata.require_user(command.user)
    if user.is_root:
        raise ServerFault(StatusCode.CANNOT_DELETE_USER, "the root user cannot be deleted")
    return UserDeleted(id=user.id)


def plan_update_permissions(
    metadata: Metadata, command: UpdatePermissions, context: PlanContext
) -> PermissionsChanged:
    """Plan other permissions for a user."""
    user = metadata.require_user(command.user)
    if user.is_root:
        raise ServerFault(
            StatusCode.CANNOT_CHANGE_PERMISSIONS, "the permissions of the root user are fixed"
        )
    return PermissionsChanged(
        user_id=user.id, permissions=normalize_permissions(command.permissions)
    )


def plan_change_password(
    metadata: Metadata,
    command: ChangePassword,
    context: PlanContext,
    *,
    verified_hash: str,
    password_hash: str,
) -> PasswordChanged:
    """Plan another password for a user.

    Args:
        verified_hash: the stored hash that the current password was found to match; when it is no
            longer the stored one, another request changed it.
        password_hash: the hash of the new password.
    """
    user = metadata.require_user(command.user)
    if user.password_hash != verified_hash:
        raise ServerFault(
            StatusCode.INVALID_CREDENTIALS,
            f"another request changed the password of user {user.id} meanwhile",
        )
    return PasswordChanged(user_id=user.id, password_hash=password_hash)


# Plans for personal access tokens: a command and the state give a change, or a fault.
#
# Pure: tokens are made and hashed elsewhere. A user deals with its own tokens only.


TIMESTAMP_US_MAX = 2**64 - 1


def expires_at(now_us: int, expiry_us: int) -> int | None:
    """Return when a token ends that lives so long from now; both 0 and the highest mean never."""
    if expiry_us in (0, NEVER_EXPIRES):
        return None
    return min(now_us + expiry_us, TIMESTAMP_US_MAX)


def plan_create_token(
    metadata: Metadata,
    command: CreatePersonalAccessToken,
    context: PlanContext,
    *,
    token_hash: str,
) -> TokenCreated:
    """Plan a new token for the asking user; expired ones keep their place until swept."""
    user = metadata.require_user(context.user_id)
    own = metadata.tokens.of_user(user.id)
    if len(own) >= context.settings.tokens_per_user_max:
        raise ServerFault(
            StatusCode.PERSONAL_ACCESS_TOKENS_LIMIT_REACHED,
            f"user {user.id} holds {len(own)} personal access tokens, which is the limit",
        )
    if command.name in own:
        raise ServerFault(
            StatusCode.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS,
            f"user {user.id} has a personal access token named {command.name!r} already",
        )
    return TokenCreated(
        user_id=user.id,
        name=command.name,
        hash=token_hash,
        expires_at_us=expires_at(context.now_us, command.expiry_us),
    )


def plan_delete_token(
    metadata: Metadata, command: DeletePersonalAccessToken, context: PlanContext
) -> TokenDeleted:
    """Plan the end of a token of the asking user."""
    if command.name not in metadata.tokens.of_user(context.user_id):
        raise ServerFault(
            StatusCode.RESOURCE_NOT_FOUND,
            f"user {context.user_id} has no personal access token named {command.name!r}",
        )
    return TokenDeleted(user_id=context.user_id, name=command.name)


def plan_expire_tokens(metadata: Metadata, context: PlanContext) -> TokensExpired | None:
    """Plan to sweep the tokens whose time has come, or nothing where there are none."""
    if any(token.is_expired(context.now_us) for token in metadata.tokens):
        return TokensExpired(now_us=context.now_us)
    return None
