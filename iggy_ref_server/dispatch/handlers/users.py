"""Users: logins, accounts and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    ChangePassword,
    CreatePersonalAccessToken,
    CreateUser,
    DeletePersonalAccessToken,
    DeleteUser,
    GetPersonalAccessTokens,
    GetUser,
    GetUsers,
    Identity,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    PersonalAccessTokenInfo,
    RawPersonalAccessToken,
    StatusCode,
    UpdatePermissions,
    UpdateUser,
    User,
    UserDetails,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.identity.credentials import hash_token, make_token
from iggy_ref_server.metadata import plan_users
from iggy_ref_server.metadata.views import view_tokens, view_user_details, view_users

if TYPE_CHECKING:
    from iggy_ref_server.dispatch.context import HandlerContext
    from iggy_ref_server.metadata.state import UserRecord
    from iggy_ref_server.session import ClientSession


def log_in(session: ClientSession, user: UserRecord) -> Identity:
    """Set the user of a session after the credentials were verified."""
    _require_active(user)
    session.log_in(user)
    return Identity(user.id)


def _require_active(user: UserRecord) -> None:
    if not user.is_active:
        raise ServerFault(StatusCode.USER_INACTIVE, f"user {user.id} is deactivated")


async def login_user(
    context: HandlerContext, session: ClientSession, command: LoginUser
) -> Identity:
    """Log in with a password; a user name of digits is a name, not an id."""
    user = context.metadata().find_user(command.username)
    stored = None if user is None else user.password_hash
    # Always hash, also for unknown users, so that the time does not reveal which names exist.
    is_right = await context.passwords.verify(stored, command.password)
    if user is not None:
        _require_active(user)
    if not is_right:
        raise ServerFault(StatusCode.INVALID_CREDENTIALS, "wrong user name or password")
    # The user may have been deleted or changed while the password was hashed.
    user = context.metadata().find_user(command.username)
    if user is None or user.password_hash != stored:
        raise ServerFault(StatusCode.INVALID_CREDENTIALS, "the user changed during the login")
    return log_in(session, user)


async def logout_user(context: HandlerContext, session: ClientSession, command: LogoutUser) -> None:
    """End the session of a user; the connection stays."""
    session.log_out()


async def get_users(
    context: HandlerContext, session: ClientSession, command: GetUsers
) -> tuple[User, ...]:
    """List all users."""
    context.authorize(session, command.CODE)
    return view_users(context.metadata())


async def get_user(
    context: HandlerContext, session: ClientSession, command: GetUser
) -> UserDetails | None:
    """Show a user; users may always see themselves."""
    user = context.metadata().find_user(command.user)
    if user is None and isinstance(command.user, str):
        return None
    context.authorize_account(session, command.CODE, user)
    return None if user is None else view_user_details(user)


async def create_user(
    context: HandlerContext, session: ClientSession, command: CreateUser
) -> UserDetails:
    """Create a user."""
    plan_context = context.plan_context(session)
    plan_users.plan_create_user(context.metadata(), command, plan_context, password_hash="")
    password_hash = await context.passwords.hash(command.password)
    change = await context.change(
        lambda metadata: plan_users.plan_create_user(
            metadata, command, plan_context, password_hash=password_hash
        )
    )
    return view_user_details(context.metadata().require_user(change.id))


async def update_user(context: HandlerContext, session: ClientSession, command: UpdateUser) -> None:
    """Change the name or the status of a user."""
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_update_user(metadata, command, plan_context)
    )


async def delete_user(context: HandlerContext, session: ClientSession, command: DeleteUser) -> None:
    """Delete a user with their tokens; their sessions end."""
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_delete_user(metadata, command, plan_context)
    )


async def update_permissions(
    context: HandlerContext, session: ClientSession, command: UpdatePermissions
) -> None:
    """Change the permissions of a user."""
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_update_permissions(metadata, command, plan_context)
    )


async def change_password(
    context: HandlerContext, session: ClientSession, command: ChangePassword
) -> None:
    """Change a password; the command must contain the current one."""
    user = context.metadata().require_user(command.user)
    context.authorize_account(session, command.CODE, user)
    verified = user.password_hash
    if not await context.passwords.verify(verified, command.current_password):
        raise ServerFault(StatusCode.INVALID_CREDENTIALS, "the current password is wrong")
    password_hash = await context.passwords.hash(command.new_password)
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_change_password(
            metadata, command, plan_context, verified_hash=verified, password_hash=password_hash
        )
    )


# Personal access tokens: logins that can be revoked one by one.


async def login_with_token(
    context: HandlerContext, session: ClientSession, command: LoginWithPersonalAccessToken
) -> Identity:
    """Log in with a token."""
    metadata = context.metadata()
    token = metadata.find_token(hash_token(command.token))
    user = None if token is None else metadata.find_user(token.user_id)
    if token is None or user is None:
        raise ServerFault(StatusCode.RESOURCE_NOT_FOUND, "there is no such token")
    if token.is_expired(context.clock.now_us()):
        raise ServerFault(
            StatusCode.PERSONAL_ACCESS_TOKEN_EXPIRED, f"token {token.name!r} has expired"
        )
    return log_in(session, user)


async def get_tokens(
    context: HandlerContext, session: ClientSession, command: GetPersonalAccessTokens
) -> tuple[PersonalAccessTokenInfo, ...]:
    """List the user's own tokens."""
    user = session.user(context.metadata())
    return view_tokens(context.metadata(), user.id)


async def create_token(
    context: HandlerContext, session: ClientSession, command: CreatePersonalAccessToken
) -> RawPersonalAccessToken:
    """Create a token; only this reply contains it."""
    raw = make_token(context.random_bytes)
    await context.change(
        # The clock is read inside the plan, so that the expiry counts from the change itself, not
        # from the time before its turn.
        lambda metadata: plan_users.plan_create_token(
            metadata, command, context.plan_context(session), token_hash=hash_token(raw)
        )
    )
    return RawPersonalAccessToken(raw)


async def delete_token(
    context: HandlerContext, session: ClientSession, command: DeletePersonalAccessToken
) -> None:
    """Revoke a token."""
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_delete_token(metadata, command, plan_context)
    )
