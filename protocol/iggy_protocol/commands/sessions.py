"""Sessions: the login from 0.9 on, and the further connections of a session from 0.10 on.

Both commands begin alike, with what chooses the dialect of the connection. The credentials of a
Register come without a tag: a user name and a password, or a token, each followed by a context.
They are read as the password form, and where that does not fit, as the token form.

No login fits both. The two forms of the same bytes would differ by one byte in length, so the
context of the password form would have 256 n - 1 bytes. The first byte of that length would be 255,
inside the context of the token form; but that is UTF-8, which has no such byte, or it would be part
of a length above any limit.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from construct import Bytes

from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import V0_11, V0_12_0, Version
from iggy_protocol.errors import LocalProtocolError, NotInDialect, RemoteProtocolError
from iggy_protocol.fields import CompiledAdapter, RecordStruct
from iggy_protocol.layout import Layout
from iggy_protocol.primitives import NAME, PASSWORD, TEXT, U32, U64
from iggy_protocol.records import record
from iggy_protocol.registry import Command, command, reply_of_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_protocol.layout import Buffer


CLIENT_BYTES = 16
SECRET_BYTES = 32


@record
class PasswordCredentials:
    """Who logs in, by name and password; ``context`` says why, if anything."""

    username: str
    password: str = field(repr=False)
    context: str = ""


@record
class TokenCredentials:
    """Who logs in, by a personal access token."""

    token: str = field(repr=False)
    context: str = ""


Credentials = PasswordCredentials | TokenCredentials


@record
class SessionDetails:
    """The session that a login made, and what the server speaks.

    Attributes:
        user_id: the user who has logged in.
        session: the number of the session; never 0.
        version: the version of the protocol, that of the connection.
        server_version: the release of the server.
    """

    user_id: int
    session: int
    version: Version
    server_version: str


class LoginPrefix(NamedTuple):
    """What every login begins with."""

    version: Version
    sdk_name: str
    sdk_version: str


def _packed(version: Version) -> int:
    packed = version.pack()
    if Version.unpack(packed) != version:
        raise LocalProtocolError(f"{version} is no version of the protocol")
    return packed


def _of_size(size: int) -> Callable[[bytes], bytes]:
    def check(value: bytes) -> bytes:
        if len(value) != size:
            raise LocalProtocolError(f"{size} bytes belong here, not {len(value)}")
        return value

    return check


VERSION = CompiledAdapter(U32, Version.unpack, _packed, label="version")
SECRET = CompiledAdapter(Bytes(SECRET_BYTES), bytes, _of_size(SECRET_BYTES), label="32 bytes")
CLIENT = CompiledAdapter(Bytes(CLIENT_BYTES), bytes, _of_size(CLIENT_BYTES), label="16 bytes")
PREFIX_FIELDS = ("version" / VERSION, "sdk_name" / NAME, "sdk_version" / NAME)
SESSION_DETAILS = RecordStruct(
    SessionDetails, "user_id" / U32, "session" / U64, "version" / VERSION, "server_version" / NAME
)

LOGIN_PREFIX = RecordStruct(LoginPrefix, *PREFIX_FIELDS)
PASSWORD_CREDENTIALS = RecordStruct(
    PasswordCredentials, "username" / PASSWORD, "password" / PASSWORD, "context" / TEXT
)
TOKEN_CREDENTIALS = RecordStruct(TokenCredentials, "token" / PASSWORD, "context" / TEXT)

_PREFIX: Layout[LoginPrefix] = Layout("LoginPrefix", LOGIN_PREFIX, surplus_allowed=True)
# In this order, because a server tries the password first.
_CREDENTIALS: dict[type[Credentials], Layout[Credentials]] = {
    struct.type: Layout(struct.type.__name__, struct)
    for struct in (PASSWORD_CREDENTIALS, TOKEN_CREDENTIALS)
}
_SECRET: Layout[bytes] = Layout("secret", SECRET, surplus_allowed=True)


def read_login_prefix(body: Buffer) -> tuple[LoginPrefix, int]:
    """Read what a Register or a BindSession begins with, and return where it ends.

    Raises:
        RemoteProtocolError: the body begins otherwise.
    """
    prefix = _PREFIX.decode(body)
    return prefix, len(_PREFIX.encode(prefix))


def _read_credentials(body: bytes) -> Credentials:
    first_error: RemoteProtocolError | None = None
    for layout in _CREDENTIALS.values():
        try:
            return layout.decode(body)
        except RemoteProtocolError as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


class RegisterCodec:
    """A login: its beginning, the bind secret where the dialect has one, and the credentials.

    Args:
        has_secret: whether the dialect has a bind secret.
    """

    def __init__(self, *, has_secret: bool) -> None:
        self._has_secret = has_secret

    def decode(self, payload: Buffer) -> Register:
        """Read the login."""
        prefix, end = read_login_prefix(payload)
        secret, body = b"", bytes(payload)[end:]
        if self._has_secret:
            secret, body = _SECRET.decode(body), body[SECRET_BYTES:]
        return Register(*prefix, _read_credentials(body), secret)

    def encode(self, value: Register) -> list[Buffer]:
        """Write the login."""
        if bool(value.secret) > self._has_secret:
            raise NotInDialect("a login of 0.9 has no bind secret", field="secret")
        layout = _CREDENTIALS[type(value.credentials)]
        prefix = LoginPrefix(value.version, value.sdk_name, value.sdk_version)
        secret = _SECRET.encode(value.secret) if self._has_secret else b""
        return [_PREFIX.encode(prefix) + secret + layout.encode(value.credentials)]


@command(
    CommandCode.REGISTER,
    request=RegisterCodec(has_secret=False),
    reply=reply_of_one(SESSION_DETAILS, "SessionDetails"),
    since=V0_11,
    changes={V0_12_0: RegisterCodec(has_secret=True)},
)
@record
class Register(Command[SessionDetails]):
    """Log in, and begin a session.

    Attributes:
        version: the protocol that the client speaks.
        sdk_name: how the SDK of the client calls itself.
        sdk_version: the version of the SDK.
        credentials: who logs in.
        secret: lets further connections bind the session; from 0.10 on.
    """

    version: Version
    sdk_name: str
    sdk_version: str
    credentials: Credentials
    secret: bytes = field(default=b"", repr=False)


@command(
    CommandCode.BIND_SESSION,
    *PREFIX_FIELDS,
    "client" / CLIENT,
    "session" / U64,
    "watermark" / U64,
    "secret" / SECRET,
    reply=reply_of_one(SESSION_DETAILS, "SessionDetails"),
    since=V0_12_0,
)
@record
class BindSession(Command[SessionDetails]):
    """Use a session on this connection, too.

    Attributes:
        version: the protocol that the client speaks.
        sdk_name: how the SDK of the client calls itself.
        sdk_version: the version of the SDK.
        client: the client's id of the session, as in the head.
        session: the number of the session; 0 asks which one the client's Register made.
        watermark: the highest position of metadata that the client has seen.
        secret: that of the Register.
    """

    version: Version
    sdk_name: str
    sdk_version: str
    client: bytes
    session: int
    watermark: int
    secret: bytes = field(repr=False)
