"""Personal access tokens: logins that can be revoked one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import (
    CreatePersonalAccessToken,
    DeletePersonalAccessToken,
    GetPersonalAccessTokens,
    LoginWithPersonalAccessToken,
    RawPersonalAccessToken,
    StatusCode,
)
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.handlers.table import Place, handles
from iggy_ref_server.handlers.users import sign_in
from iggy_ref_server.identity.tokens import hash_token, make_token
from iggy_ref_server.metadata import plan_tokens
from iggy_ref_server.metadata.views import view_tokens

if TYPE_CHECKING:
    from iggy_protocol import Identity, PersonalAccessTokenInfo
    from iggy_ref_server.handlers.office import Office
    from iggy_ref_server.session import Session


@handles(LoginWithPersonalAccessToken, is_public=True)
async def login_with_token(
    office: Office, session: Session, command: LoginWithPersonalAccessToken
) -> Identity:
    """Log in with a token."""
    metadata = office.metadata()
    token = metadata.find_token(hash_token(command.token))
    user = None if token is None else metadata.find_user(token.user_id)
    if token is None or user is None:
        raise ServerFault(StatusCode.RESOURCE_NOT_FOUND, "there is no such token")
    if token.is_expired(office.clock.now_us()):
        raise ServerFault(
            StatusCode.PERSONAL_ACCESS_TOKEN_EXPIRED, f"token {token.name!r} has expired"
        )
    return sign_in(session, user)


@handles(GetPersonalAccessTokens)
async def get_tokens(
    office: Office, session: Session, command: GetPersonalAccessTokens
) -> tuple[PersonalAccessTokenInfo, ...]:
    """List the user's own tokens."""
    user = session.user(office.metadata())
    return view_tokens(office.metadata(), user.id)


@handles(CreatePersonalAccessToken, place=Place.METADATA)
async def create_token(
    office: Office, session: Session, command: CreatePersonalAccessToken
) -> RawPersonalAccessToken:
    """Create a token; only this reply contains it."""
    raw = make_token(office.random_bytes)
    await office.change(
        # The clock is read inside the plan, so that the expiry counts from the change itself, not
        # from the time before its turn.
        lambda metadata: plan_tokens.plan_create_token(
            metadata, command, office.plan_context(session), token_hash=hash_token(raw)
        )
    )
    return RawPersonalAccessToken(raw)


@handles(DeletePersonalAccessToken, place=Place.METADATA)
async def delete_token(
    office: Office, session: Session, command: DeletePersonalAccessToken
) -> None:
    """Revoke a token."""
    context = office.plan_context(session)
    await office.change(lambda metadata: plan_tokens.plan_delete_token(metadata, command, context))
