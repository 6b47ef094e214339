"""Users: accounts, permissions, passwords, tokens and logins.

"No permissions" is one zero byte in a request and four zero bytes in a reply. The logins here are
those of the classic dialect.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import V0_11, V0_12_0, ByDialect
from iggy_protocol.errors import InvalidField
from iggy_protocol.fields import (
    Absent,
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
from iggy_protocol.option_layouts import REPORTED_OPTIONS, Setting, option_patch, with_options
from iggy_protocol.options import NO_OPTIONS, Options, OptionScope, option_spec
from iggy_protocol.primitives import (
    BOOL,
    IDENTIFIER,
    NAME,
    NEVER_EXPIRES,
    PASSWORD,
    PREFIXED_OPTIONS,
    TEXT,
    U32,
    U64,
    discriminant,
    optional_number,
)
from iggy_protocol.records import optional_field, record
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
USER_FIELDS_V0_11 = (*USER_FIELDS, "options" / PREFIXED_OPTIONS)
USER_FIELDS_V0_12 = (*USER_FIELDS, *REPORTED_OPTIONS)

USER = RecordStruct(User, *USER_FIELDS)
USER_V0_11 = RecordStruct(User, *USER_FIELDS_V0_11)
USER_V0_12 = RecordStruct(User, *USER_FIELDS_V0_12)

REPORTED_PERMISSIONS = "permissions" / OptionalPermissions(SizeChecked(PERMISSIONS))
USER_DETAILS = RecordStruct(UserDetails, *USER_FIELDS, REPORTED_PERMISSIONS)
USER_DETAILS_V0_11 = RecordStruct(UserDetails, *USER_FIELDS_V0_11, REPORTED_PERMISSIONS)
USER_DETAILS_V0_12 = RecordStruct(UserDetails, *USER_FIELDS_V0_12, REPORTED_PERMISSIONS)
IDENTITY = RecordStruct(Identity, "user_id" / U32)


@command(
    CommandCode.GET_USER,
    "user" / IDENTIFIER,
    reply=ByDialect(
        reply_of_optional(USER_DETAILS, "UserDetails"),
        {
            V0_11: reply_of_optional(USER_DETAILS_V0_11, "UserDetails"),
            V0_12_0: reply_of_optional(USER_DETAILS_V0_12, "UserDetails"),
        },
    ),
)
@record
class GetUser(Command[UserDetails | None]):
    """Ask for one user and its permissions."""

    user: Identifier


@command(
    CommandCode.GET_USERS,
    reply=ByDialect(
        reply_of_many(USER, "users"),
        {
            V0_11: reply_of_many(USER_V0_11, "users"),
            V0_12_0: reply_of_many(USER_V0_12, "users"),
        },
    ),
)
@record
class GetUsers(Command[tuple[User, ...]]):
    """Ask for all users."""


CREATED_FIELDS = (
    "username" / NAME,
    "password" / PASSWORD,
    "status" / USER_STATUS,
    "permissions" / PERMISSIONS_FIELD,
)


@command(
    CommandCode.CREATE_USER,
    *CREATED_FIELDS,
    "options" / Absent(NO_OPTIONS),
    reply=ByDialect(
        reply_of_one(USER_DETAILS, "UserDetails"),
        {
            V0_11: reply_of_one(USER_DETAILS_V0_11, "UserDetails"),
            V0_12_0: reply_of_one(USER_DETAILS_V0_12, "UserDetails"),
        },
    ),
    changes={V0_11: with_options(*CREATED_FIELDS)},
)
@record
class CreateUser(Command[UserDetails]):
    """Create a user. It can have options from 0.9 on."""

    username: str
    password: str = field(repr=False)
    status: UserStatus = UserStatus.ACTIVE
    permissions: Permissions | None = None
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)


@command(CommandCode.DELETE_USER, "user" / IDENTIFIER, reply=EMPTY)
@record
class DeleteUser(Command[None]):
    """Delete a user."""

    user: Identifier


UPDATED_FIELDS = (
    "user" / IDENTIFIER,
    "username" / PresenceFlagged(NAME),
    "status" / PresenceFlagged(USER_STATUS),
)
UPDATED_SETTINGS = (
    Setting("username", option_spec(OptionScope.USER, "username")),
    Setting(
        "status",
        option_spec(OptionScope.USER, "status"),
        read=lambda text: UserStatus[text.upper()],
        write=lambda status: UserStatus(status).name.lower(),
    ),
)


@command(
    CommandCode.UPDATE_USER,
    *UPDATED_FIELDS,
    "options" / Absent(NO_OPTIONS),
    "reset" / Absent(frozenset[str]()),
    reply=EMPTY,
    changes={
        V0_11: with_options(*UPDATED_FIELDS, unsaid={"reset": (frozenset(),)}),
        V0_12_0: option_patch(OptionScope.USER, "user" / IDENTIFIER, settings=UPDATED_SETTINGS),
    },
)
@record
class UpdateUser(Command[None]):
    """Rename a user, or change whether it may log in; ``None`` leaves a field as it is.

    Attributes:
        options: options to set; from 0.9 on.
        reset: the keys of options that go back to the server's default; from 0.10 on.
    """

    user: Identifier
    username: str | None = None
    status: UserStatus | None = None
    options: Options = optional_field(default=NO_OPTIONS, kw_only=True)
    reset: frozenset[str] = optional_field(default=frozenset(), kw_only=True)


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
    changes={V0_11: None},
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
    changes={V0_11: None},
)
@record
class LoginWithPersonalAccessToken(Command[Identity]):
    """Log this connection in with a token."""

    token: str = field(repr=False)
