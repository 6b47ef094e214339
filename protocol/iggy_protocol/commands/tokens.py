"""Personal access tokens: a login without a password."""

from __future__ import annotations

from dataclasses import field

from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.users import IDENTITY
from iggy_protocol.fields import Record
from iggy_protocol.model.user import (
    Identity,
    PersonalAccessTokenInfo,
    RawPersonalAccessToken,
)
from iggy_protocol.primitives import NAME, NEVER_EXPIRES, U64, optional_number
from iggy_protocol.records import record
from iggy_protocol.registry import EMPTY, Command, command, many, one

__all__ = [
    "CreatePersonalAccessToken",
    "DeletePersonalAccessToken",
    "GetPersonalAccessTokens",
    "LoginWithPersonalAccessToken",
]

TOKEN_INFO = Record(
    PersonalAccessTokenInfo,
    "name" / NAME,
    "expires_at_us" / optional_number(U64, 0, "u64"),
)
RAW_TOKEN = Record(RawPersonalAccessToken, "token" / NAME)


@command(CommandCode.GET_PERSONAL_ACCESS_TOKENS, reply=many(TOKEN_INFO, "tokens"))
@record
class GetPersonalAccessTokens(Command[tuple[PersonalAccessTokenInfo, ...]]):
    """Ask for the names of one's own tokens, in no particular order."""


@command(
    CommandCode.CREATE_PERSONAL_ACCESS_TOKEN,
    "name" / NAME,
    "expiry_us" / U64,
    reply=one(RAW_TOKEN, "RawPersonalAccessToken"),
)
@record
class CreatePersonalAccessToken(Command[RawPersonalAccessToken]):
    """Create a token; ``expiry_us`` counts from now, and 0 means never as well."""

    name: str
    expiry_us: int = NEVER_EXPIRES


@command(CommandCode.DELETE_PERSONAL_ACCESS_TOKEN, "name" / NAME, reply=EMPTY)
@record
class DeletePersonalAccessToken(Command[None]):
    """Delete one of one's own tokens."""

    name: str


@command(
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
    "token" / NAME,
    reply=one(IDENTITY, "Identity"),
)
@record
class LoginWithPersonalAccessToken(Command[Identity]):
    """Log this connection in with a token."""

    token: str = field(repr=False)
