"""Users: accounts, permissions, passwords, tokens and logins.

"No permissions" is one zero byte in a request and four zero bytes in a reply.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from iggy_protocol.codes import CommandCode
from iggy_protocol.errors import InvalidField
from iggy_protocol.fields import (
    ContinuationFlagArray,
    PresenceFlagged,
    RecordStruct,
    Repeated,
    SizeChecked,
)
from iggy_protocol.model.identifier import Identifier
from iggy_protocol.model.user import (
    GlobalPermissions,
    Identity,
    Permissions,
    PersonalAccessTokenInfo,
    RawPersonalAccessToken,
    StreamPermissions,
    TopicPermissions,
    User,
    UserDetails,
    UserStatus,
)
from iggy_protocol.primitives import (
    BOOL,
    IDENTIFIER,
    NAME,
    NEVER_EXPIRES,
    PASSWORD,
    TEXT,
    U32,
    U64,
    discriminant,
    optional_number,
)
from iggy_protocol.records import record
from iggy_protocol.registry import (
    EMPTY,
    Command,
    command,
    reply_of_many,
    reply_of_one,
    reply_of_optional,
)

if TYPE_CHECKING:
    from collections.abc import Callable


USER_STATUS = discriminant(UserStatus)

GLOBAL_PERMISSIONS = RecordStruct(
    GlobalPermissions,
    "manage_servers" / BOOL,
    "read_servers" / BOOL,
    "manage_users" / BOOL,
    "read_users" / BOOL,
    "manage_streams" / BOOL,
    "read_streams" / BOOL,
    "manage_topics" / BOOL,
    "read_topics" / BOOL,
    "poll_messages" / BOOL,
    "send_messages" / BOOL,
)

TOPIC_PERMISSIONS = RecordStruct(
    TopicPermissions,
    "topic_id" / U32,
    "manage_topic" / BOOL,
    "read_topic" / BOOL,
    "poll_messages" / BOOL,
    "send_messages" / BOOL,
)

STREAM_PERMISSIONS = RecordStruct(
    StreamPermissions,
    "stream_id" / U32,
    "manage_stream" / BOOL,
    "read_stream" / BOOL,
    "manage_topics" / BOOL,
    "read_topics" / BOOL,
    "poll_messages" / BOOL,
    "send_messages" / BOOL,
    "topics" / ContinuationFlagArray(TOPIC_PERMISSIONS),
)

PERMISSIONS = RecordStruct(
    Permissions,
    "server" / GLOBAL_PERMISSIONS,
    "streams" / ContinuationFlagArray(STREAM_PERMISSIONS),
)

PERMISSIONS_FIELD = PresenceFlagged(SizeChecked(PERMISSIONS))


class OptionalPermissions(Repeated):
    """Permissions in a reply: behind a byte of one, or four zero bytes when there are none."""

    def parse_elements(self, stream: Any, parse: Callable[[int], Any]) -> Permissions | None:
        """Read the flag and what it announces."""
        start = stream.tell()
        flag = stream.read(1)
        if flag == b"\1":
            permissions: Permissions = parse(0)
            return permissions
        if flag + stream.read(3) != bytes(4):
            raise InvalidField("no permissions are four zero bytes", offset=start, need=4, have=4)
        return None

    def build_elements(self, obj: Any, stream: Any, build: Callable[[Any, int], Any]) -> None:
        """Write the flag and what it announces."""
        if obj is None:
            stream.write(bytes(4))
        else:
            stream.write(b"\1")
            build(obj, 0)

    def _path(self, path: str, index: int) -> str:
        return path


USER_FIELDS = (
    "id" / U32,
    "created_at_us" / U64,
    "status" / USER_STATUS,
    "username" / NAME,
)
USER = RecordStruct(User, *USER_FIELDS)
USER_DETAILS = RecordStruct(
    UserDetails, *USER_FIELDS, "permissions" / OptionalPermissions(SizeChecked(PERMISSIONS))
)
IDENTITY = RecordStruct(Identity, "user_id" / U32)


@command(
    CommandCode.GET_USER, "user" / IDENTIFIER, reply=reply_of_optional(USER_DETAILS, "UserDetails")
)
@record
class GetUser(Command[UserDetails | None]):
    """Ask for one user and its permissions."""

    user: Identifier


@command(CommandCode.GET_USERS, reply=reply_of_many(USER, "users"))
@record
class GetUsers(Command[tuple[User, ...]]):
    """Ask for all users."""


@command(
    CommandCode.CREATE_USER,
    "username" / NAME,
    "password" / PASSWORD,
    "status" / USER_STATUS,
    "permissions" / PERMISSIONS_FIELD,
    reply=reply_of_one(USER_DETAILS, "UserDetails"),
)
@record
class CreateUser(Command[UserDetails]):
    """Create a user."""

    username: str
    password: str = field(repr=False)
    status: UserStatus = UserStatus.ACTIVE
    permissions: Permissions | None = None


@command(CommandCode.DELETE_USER, "user" / IDENTIFIER, reply=EMPTY)
@record
class DeleteUser(Command[None]):
    """Delete a user."""

    user: Identifier


@command(
    CommandCode.UPDATE_USER,
    "user" / IDENTIFIER,
    "username" / PresenceFlagged(NAME),
    "status" / PresenceFlagged(USER_STATUS),
    reply=EMPTY,
)
@record
class UpdateUser(Command[None]):
    """Rename a user, or change whether it may log in; ``None`` leaves a field as it is."""

    user: Identifier
    username: str | None = None
    status: UserStatus | None = None


@command(
    CommandCode.UPDATE_PERMISSIONS,
    "user" / IDENTIFIER,
    "permissions" / PERMISSIONS_FIELD,
    reply=EMPTY,
)
@record
class UpdatePermissions(Command[None]):
    """Replace the permissions of a user; ``None`` takes them all away."""

    user: Identifier
    permissions: Permissions | None = None


@command(
    CommandCode.CHANGE_PASSWORD,
    "user" / IDENTIFIER,
    "current_password" / PASSWORD,
    "new_password" / PASSWORD,
    reply=EMPTY,
)
@record
class ChangePassword(Command[None]):
    """Change a password; the current one must be known."""

    user: Identifier
    current_password: str = field(repr=False)
    new_password: str = field(repr=False)


@command(
    CommandCode.LOGIN_USER,
    "username" / NAME,
    "password" / PASSWORD,
    "version" / TEXT,
    "context" / TEXT,
    reply=reply_of_one(IDENTITY, "Identity"),
)
@record
class LoginUser(Command[Identity]):
    """Log this connection in; ``version`` and ``context`` say who the client is, if anything."""

    username: str
    password: str = field(repr=False)
    version: str = ""
    context: str = ""


@command(CommandCode.LOGOUT_USER, reply=EMPTY)
@record
class LogoutUser(Command[None]):
    """Log out; the connection and its group memberships stay."""


# Personal access tokens: a login without a password.


TOKEN_INFO = RecordStruct(
    PersonalAccessTokenInfo,
    "name" / NAME,
    "expires_at_us" / optional_number(U64, 0, "u64"),
)
RAW_TOKEN = RecordStruct(RawPersonalAccessToken, "token" / NAME)


@command(CommandCode.GET_PERSONAL_ACCESS_TOKENS, reply=reply_of_many(TOKEN_INFO, "tokens"))
@record
class GetPersonalAccessTokens(Command[tuple[PersonalAccessTokenInfo, ...]]):
    """Ask for the names of one's own tokens, in no particular order."""


@command(
    CommandCode.CREATE_PERSONAL_ACCESS_TOKEN,
    "name" / NAME,
    "expiry_us" / U64,
    reply=reply_of_one(RAW_TOKEN, "RawPersonalAccessToken"),
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
    reply=reply_of_one(IDENTITY, "Identity"),
)
@record
class LoginWithPersonalAccessToken(Command[Identity]):
    """Log this connection in with a token."""

    token: str = field(repr=False)
