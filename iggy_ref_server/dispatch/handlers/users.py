"""Users: logins, accounts and permissions."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from iggy_protocol import (
    BindSession,
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
    PasswordCredentials,
    PersonalAccessTokenInfo,
    RawPersonalAccessToken,
    Register,
    SessionBinding,
    SessionDetails,
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
from iggy_ref_server.sessions.table import NewSession

if TYPE_CHECKING:
    from iggy_protocol import Credentials, RequestId
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
    """Log in with a password."""
    return log_in(session, await _verify_password(context, command.username, command.password))


async def _verify_password(context: HandlerContext, username: str, password: str) -> UserRecord:
    """Return the user whose password this is; a user name of digits is a name, not an id."""
    users = context.metadata().users
    user = users.find(username)
    # Always hash, also for unknown users, so that the time does not reveal which names exist.
    if user is None:
        hashes = [one.password_hash for one in users.by_id.values()]
        stored = context.passwords.hash_of_nobody(username, hashes)
    else:
        stored = user.password_hash
    # A deactivated user takes as long as any other, so that the time does not tell that either.
    is_active = user is not None and user.is_active
    is_right = await context.passwords.verify(stored, password, remember=is_active)
    if user is not None:
        _require_active(user)
    if not is_right:
        raise ServerFault(StatusCode.INVALID_CREDENTIALS, "wrong user name or password")
    # The user may have been deleted or changed while the password was hashed.
    user = context.metadata().find_user(username)
    if user is None or user.password_hash != stored:
        raise ServerFault(StatusCode.INVALID_CREDENTIALS, "the user changed during the login")
    return user


async def logout_user(context: HandlerContext, session: ClientSession, command: LogoutUser) -> None:
    """End the session of a user; the connection stays.

    From 0.9 on the session ends on all its connections. This one has no binding any more then, so
    it is not closed with the others.
    """
    binding = session.binding
    session.log_out()
    if binding is not None:
        await context.sessions.log_out(binding.session)


async def get_users(
    context: HandlerContext, session: ClientSession, command: GetUsers
) -> tuple[User, ...]:
    """List all users."""
    context.authorize(session, command.CODE)
    return view_users(context.metadata(), context.viewer(session))


async def get_user(
    context: HandlerContext, session: ClientSession, command: GetUser
) -> UserDetails | None:
    """Show a user; users may always see themselves."""
    user = context.metadata().find_user(command.user)
    if user is None and isinstance(command.user, str):
        return None
    context.authorize_account(session, command.CODE, user)
    return None if user is None else view_user_details(user, context.viewer(session))


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
        ),
        actor=session.user_id,
    )
    return view_user_details(context.metadata().require_user(change.id), context.viewer(session))


async def update_user(context: HandlerContext, session: ClientSession, command: UpdateUser) -> None:
    """Change the name or the status of a user."""
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_update_user(metadata, command, plan_context),
        actor=session.user_id,
    )


async def delete_user(context: HandlerContext, session: ClientSession, command: DeleteUser) -> None:
    """Delete a user with their tokens; their sessions end."""
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_delete_user(metadata, command, plan_context),
        actor=session.user_id,
    )


async def update_permissions(
    context: HandlerContext, session: ClientSession, command: UpdatePermissions
) -> None:
    """Change the permissions of a user."""
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_update_permissions(metadata, command, plan_context),
        actor=session.user_id,
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
        ),
        actor=session.user_id,
    )


# Personal access tokens: logins that can be revoked one by one.


async def login_with_token(
    context: HandlerContext, session: ClientSession, command: LoginWithPersonalAccessToken
) -> Identity:
    """Log in with a token."""
    user = _find_token_user(context, command.token)
    if user is None:
        raise ServerFault(StatusCode.RESOURCE_NOT_FOUND, "there is no such token")
    return log_in(session, user)


def _find_token_user(context: HandlerContext, raw: str) -> UserRecord | None:
    """Return the user of a token; None if there is no such token."""
    metadata = context.metadata()
    token = metadata.find_token(hash_token(raw))
    if token is None:
        return None
    if token.is_expired(context.clock.now_us()):
        raise ServerFault(
            StatusCode.PERSONAL_ACCESS_TOKEN_EXPIRED, f"token {token.name!r} has expired"
        )
    return metadata.find_user(token.user_id)


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
        ),
        actor=session.user_id,
    )
    return RawPersonalAccessToken(raw)


async def delete_token(
    context: HandlerContext, session: ClientSession, command: DeletePersonalAccessToken
) -> None:
    """Revoke a token."""
    plan_context = context.plan_context(session)
    await context.change(
        lambda metadata: plan_users.plan_delete_token(metadata, command, plan_context),
        actor=session.user_id,
    )


# Logins from 0.9 on, which begin a session of the wire.


async def register(
    context: HandlerContext, session: ClientSession, command: Register, request_id: RequestId
) -> SessionDetails:
    """Log in, and begin a session; a client that has one gets the same again."""
    with suppress(ServerFault):
        session.user(context.metadata())  # a session whose user is gone ends here
    dialect, binding = request_id.dialect, session.binding
    if binding is None:
        user = await _verify_credentials(context, command.credentials)
        _require_active(user)
        _release_session(context, session)
        number = await context.sessions.register(
            NewSession(
                session.client_id,
                request_id,
                user.id,
                user.generation,
                sha256(command.secret).digest(),
            )
        )
        binding = SessionBinding(dialect, request_id.client, number, user.id)
        session.log_in(user, binding)
    return SessionDetails(binding.user_id, binding.session, command.version, dialect.server_version)


async def _verify_credentials(context: HandlerContext, credentials: Credentials) -> UserRecord:
    try:
        if isinstance(credentials, PasswordCredentials):
            return await _verify_password(context, credentials.username, credentials.password)
        user = _find_token_user(context, credentials.token)
    except ServerFault as fault:
        if fault.status == StatusCode.TASK_TIMEOUT:
            # Too many logins wait; this one may be sent once more.
            raise ServerFault(StatusCode.TRANSIENT_NOT_ACCEPTED, fault.message) from fault
        raise
    if user is None:
        raise ServerFault(StatusCode.INVALID_PERSONAL_ACCESS_TOKEN, "there is no such token")
    return user


async def bind_session(
    context: HandlerContext, session: ClientSession, command: BindSession, request_id: RequestId
) -> SessionDetails:
    """Use a session on a further connection.

    Raises:
        ServerFault: there is no such session; the client begins a new one.
    """
    _release_session(context, session)
    bound = await context.sessions.bind(
        command.client, command.session, sha256(command.secret).digest()
    )
    user = context.metadata().find_user(bound.user_id)
    if user is None or user.generation != bound.user_generation or not user.is_active:
        context.sessions.release(bound.session)
        raise ServerFault(StatusCode.UNAUTHENTICATED, "the user was deleted or deactivated")
    dialect = request_id.dialect
    session.log_in(user, SessionBinding(dialect, command.client, bound.session, user.id))
    return SessionDetails(user.id, bound.session, command.version, dialect.server_version)


def _release_session(context: HandlerContext, session: ClientSession) -> None:
    """Leave the session that this connection has used before."""
    if session.attached_session:
        context.sessions.release(session.attached_session)
        session.attached_session = 0
