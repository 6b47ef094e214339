"""Users, permissions and personal access tokens."""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

from iggy_protocol.model.permissions import Permissions
from iggy_protocol.records import record

__all__ = [
    "Identity",
    "PersonalAccessTokenInfo",
    "RawPersonalAccessToken",
    "User",
    "UserDetails",
    "UserStatus",
]


class UserStatus(IntEnum):
    """Whether a user may log in."""

    ACTIVE = 1
    INACTIVE = 2


@record
class User:
    """A user; root is number 0."""

    id: int
    created_at_us: int
    status: UserStatus
    username: str


@record
class UserDetails(User):
    """A user with its permissions; ``None`` means none at all."""

    permissions: Permissions | None = None


@record
class Identity:
    """Who a login made of this connection."""

    user_id: int


@record
class PersonalAccessTokenInfo:
    """A token by name; the token itself is shown only once, when it is created."""

    name: str
    expires_at_us: int | None = None


@record
class RawPersonalAccessToken:
    """The secret text of a new token."""

    token: str = field(repr=False)
