"""Plans for personal access tokens: a command and the state give a change, or a fault.

Pure: tokens are made and hashed elsewhere. A user deals with its own tokens only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_protocol import NEVER_EXPIRES, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.metadata.changes import TokenCreated, TokenDeleted, TokensExpired

if TYPE_CHECKING:
    from iggy_protocol import CreatePersonalAccessToken, DeletePersonalAccessToken
    from iggy_ref_server.metadata.plan_context import PlanContext
    from iggy_ref_server.metadata.state import Metadata

__all__ = ["expires_at", "plan_create_token", "plan_delete_token", "plan_expire_tokens"]

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
