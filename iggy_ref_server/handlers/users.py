"""Users: logins, accounts and permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    ChangePassword,
    CreateUser,
    DeleteUser,
    GetUser,
    GetUsers,
    Identity,
    LoginUser,
    LogoutUser,
    StatusCode,
    UpdatePermissions,
    UpdateUser,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handlers.table import Place, handles
from iggy_ref_server.metadata import plan_users
from iggy_ref_server.metadata.views import view_user_details, view_users

if TYPE_CHECKING:
    from iggy_protocol import User, UserDetails
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.metadata.records import UserRecord
    from iggy_ref_server.session import Session

__all__ = ["sign_in"]


def sign_in(session: Session, user: UserRecord) -> Identity:
    """Set the user of a session after the credentials were verified."""
    _insist_on_active(user)
    session.sign_in(user)
    return Identity(user.id)


def _insist_on_active(user: UserRecord) -> None:
    if not user.is_active:
        raise ServerFault(StatusCode.USER_INACTIVE, f"user {user.id} is deactivated")


@handles(LoginUser, is_public=True)
async def login_user(office: Office, session: Session, command: LoginUser) -> Identity:
    """Log in with a password; a user name of digits is a name, not an id."""
    user = office.metadata().find_user(command.username)
    stored = None if user is None else user.password_hash
    # Always hash, also for unknown users, so that the time does not reveal which names exist.
    is_right = await office.passwords.verify(stored, command.password)
    if user is not None:
        _insist_on_active(user)
    if not is_right:
        raise ServerFault(StatusCode.INVALID_CREDENTIALS, "wrong user name or password")
    # The user may have been deleted or changed while the password was hashed.
    user = office.metadata().find_user(command.username)
    if user is None or user.password_hash != stored:
        raise ServerFault(StatusCode.INVALID_CREDENTIALS, "the user changed during the login")
    return sign_in(session, user)


@handles(LogoutUser)
async def logout_user(office: Office, session: Session, command: LogoutUser) -> None:
    """End the session of a user; the connection stays."""
    session.sign_out()


@handles(GetUsers)
async def get_users(office: Office, session: Session, command: GetUsers) -> tuple[User, ...]:
    """List all users."""
    office.authorize(session, command.CODE)
    return view_users(office.metadata())


@handles(GetUser)
async def get_user(office: Office, session: Session, command: GetUser) -> UserDetails | None:
    """Show a user; users may always see themselves."""
    user = office.metadata().find_user(command.user)
    if user is None and isinstance(command.user, str):
        return None
    if user is None or user.id != session.user_id:
        office.authorize(session, command.CODE)
    return None if user is None else view_user_details(user)


@handles(CreateUser, place=Place.METADATA, right_first=True)
async def create_user(office: Office, session: Session, command: CreateUser) -> UserDetails:
    """Create a user."""
    context = office.plan_context(session)
    plan_users.plan_create_user(office.metadata(), command, context, password_hash="")
    password_hash = await office.passwords.hash(command.password)
    change = await office.change(
        lambda metadata: plan_users.plan_create_user(
            metadata, command, context, password_hash=password_hash
        )
    )
    return view_user_details(office.metadata().require_user(change.id))


@handles(UpdateUser, place=Place.METADATA, right_first=True)
async def update_user(office: Office, session: Session, command: UpdateUser) -> None:
    """Change the name or the status of a user."""
    context = office.plan_context(session)
    await office.change(lambda metadata: plan_users.plan_update_user(metadata, command, context))


@handles(DeleteUser, place=Place.METADATA, right_first=True)
async def delete_user(office: Office, session: Session, command: DeleteUser) -> None:
    """Delete a user with their tokens; their sessions end."""
    context = office.plan_context(session)
    await office.change(lambda metadata: plan_users.plan_delete_user(metadata, command, context))


@handles(UpdatePermissions, place=Place.METADATA, right_first=True)
async def update_permissions(office: Office, session: Session, command: UpdatePermissions) -> None:
    """Change the permissions of a user."""
    context = office.plan_context(session)
    await office.change(
        lambda metadata: plan_users.plan_update_permissions(metadata, command, context)
    )


@handles(ChangePassword, place=Place.METADATA)
async def change_password(office: Office, session: Session, command: ChangePassword) -> None:
    """Change a password; the command must contain the current one."""
    user = office.metadata().require_user(command.user)
    if user.id != session.user_id:
        office.authorize(session, command.CODE)
    verified = user.password_hash
    if not await office.passwords.verify(verified, command.current_password):
        raise ServerFault(StatusCode.INVALID_CREDENTIALS, "the current password is wrong")
    password_hash = await office.passwords.hash(command.new_password)
    context = office.plan_context(session)
    await office.change(
        lambda metadata: plan_users.plan_change_password(
            metadata, command, context, verified_hash=verified, password_hash=password_hash
        )
    )
