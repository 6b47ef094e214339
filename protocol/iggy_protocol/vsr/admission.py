"""Which requests a server takes from a client: the rules of heads, logins and sessions.

Pure functions: they get the head, the body and the session of the connection, and return the
command that was asked for, or raise what to answer. Before a login only a ping and the two ways to
log in are taken.

Knows neither buffers nor replies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol.batch import checksum
from iggy_protocol.codes import CommandCode, EvictionReason
from iggy_protocol.commands.sessions import CLIENT_BYTES, LoginPrefix, read_login_prefix
from iggy_protocol.dialect import V0_11, Dialect, dialect_of
from iggy_protocol.errors import InvalidField, RemoteProtocolError, UnknownCommand
from iggy_protocol.events import NO_CONTEXT, RequestId
from iggy_protocol.model.stream import PartitionContext
from iggy_protocol.status_table import StatusCode
from iggy_protocol.vsr.heads import REQUEST, ZERO_ID, RequestHead, check_request
from iggy_protocol.vsr.operations import (
    ALL_REPLICATED_CODES,
    KNOWN_OPERATIONS,
    LOGOUT,
    NON_REPLICATED,
    OPERATIONS,
    REGISTER,
    REPLICATED_CODES,
    UPDATE_RESOURCE,
    updated_by,
)

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer


CLASSIC_LOGINS: Final = frozenset(
    {CommandCode.LOGIN_USER, CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN}
)


class SessionBinding(NamedTuple):
    """The session that a connection uses.

    Attributes:
        dialect: what its login announced.
        client: the client's id of the session.
        session: the number that the server gave to it.
        user_id: the user who has logged in.
    """

    dialect: Dialect
    client: bytes
    session: int
    user_id: int


class Admitted(NamedTuple):
    """A request that is taken: its command, and what the client speaks."""

    code: int
    dialect: Dialect


class SessionRefused(RemoteProtocolError):
    """The client has no session for this request, or gets none.

    Attributes:
        reason: that of the eviction which answers the request.
    """

    default_status: int = int(StatusCode.UNAUTHENTICATED)

    def __init__(self, message: str, reason: EvictionReason) -> None:
        super().__init__(message)
        self.reason = reason


class UnsupportedVersion(SessionRefused):
    """A login announces a version that no dialect has."""

    def __init__(self, prefix: LoginPrefix) -> None:
        message = f"version {prefix.version} is not supported"
        super().__init__(message, EvictionReason.INCOMPATIBLE_PROTOCOL)
        self.prefix = prefix


def admit(head: RequestHead, body: Buffer, binding: SessionBinding | None) -> Admitted:
    """Return what a request asks for.

    Raises:
        SessionRefused: answer with an eviction.
        RemoteProtocolError: answer with its status.
    """
    if head.command != REQUEST:
        raise UnknownCommand(f"a client sends no frame {head.command}", field="command")
    check_request(head, binding.dialect if binding else None)
    if head.operation == NON_REPLICATED:
        return _admit_code(head, body, binding)
    if head.operation not in KNOWN_OPERATIONS:
        raise UnknownCommand(f"{head.operation} is no operation", field="operation")
    if head.code:
        raise InvalidField("code is given, but the operation has none", field="code")
    if head.operation == REGISTER:
        return _admit_register(head, body, binding)
    if binding is None:
        return _admit_unbound(head)
    return _admit_replicated(head, body, binding)


def request_id_of(head: RequestHead, dialect: Dialect) -> RequestId:
    """Return what tells a request from all others."""
    context = NO_CONTEXT
    if head.incarnation or head.owner_generation or head.metadata_position:
        context = PartitionContext(head.incarnation, head.owner_generation, head.metadata_position)
    return RequestId(head.client, head.session, head.number, head.identifier, context, dialect)


def _admit_register(head: RequestHead, body: Buffer, binding: SessionBinding | None) -> Admitted:
    if head.session or head.number:
        raise InvalidField("a login has neither session nor number", field="session")
    dialect, _ = _login_dialect(body, binding)
    _check_identifier(head, body, dialect)
    return Admitted(CommandCode.REGISTER, dialect)


def _admit_bind(head: RequestHead, body: Buffer, binding: SessionBinding | None) -> Admitted:
    dialect, end = _login_dialect(body, binding)
    if dialect is V0_11:
        raise UnknownCommand("0.9 binds no session twice", field="code")
    if bytes(body[end : end + CLIENT_BYTES]) != head.client:
        raise InvalidField("the body names another client than the head", field="client")
    return Admitted(CommandCode.BIND_SESSION, dialect)


def _login_dialect(body: Buffer, binding: SessionBinding | None) -> tuple[Dialect, int]:
    """Return what a login announces, and where its announcement ends."""
    try:
        prefix, end = read_login_prefix(body)
    except RemoteProtocolError as error:
        raise SessionRefused(error.message, EvictionReason.MALFORMED_LOGIN) from None
    dialect = dialect_of(prefix.version, prefix.sdk_version)
    if dialect is None:
        raise UnsupportedVersion(prefix)
    if binding is not None and dialect is not binding.dialect:
        raise UnknownCommand("a connection keeps its dialect until a logout", field="version")
    return dialect, end


def _admit_code(head: RequestHead, body: Buffer, binding: SessionBinding | None) -> Admitted:
    """Take a request that its code names."""
    if head.code == CommandCode.BIND_SESSION:
        return _admit_bind(head, body, binding)
    if binding is None:
        return _admit_code_unbound(head)
    if head.code in ALL_REPLICATED_CODES:
        return _refuse_replicated(head.code, binding.dialect)
    if head.code == CommandCode.CANCEL_DEFERRED and len(body):
        raise InvalidField("a cancel has no body", field="body", have=len(body))
    _check_identifier(head, body, binding.dialect)
    return Admitted(head.code, binding.dialect)


def _admit_code_unbound(head: RequestHead) -> Admitted:
    if head.code == CommandCode.PING:
        return Admitted(head.code, V0_11)
    if head.code in CLASSIC_LOGINS:
        raise SessionRefused("this is a login of 0.8", EvictionReason.MALFORMED_LOGIN)
    raise UnknownCommand("log in first", field="code", status=int(StatusCode.UNAUTHENTICATED))


def _refuse_replicated(code: int, dialect: Dialect) -> Admitted:
    """Refuse a code that has an operation, in this dialect or in another one."""
    is_known = code in REPLICATED_CODES[dialect]
    status = StatusCode.FEATURE_UNAVAILABLE if is_known else StatusCode.INVALID_COMMAND
    raise UnknownCommand(f"{code} has an operation of its own", field="code", status=int(status))


def _admit_unbound(head: RequestHead) -> Admitted:
    if head.operation == LOGOUT:
        return Admitted(CommandCode.LOGOUT_USER, V0_11)
    raise SessionRefused("log in first", EvictionReason.NO_SESSION)


def _admit_replicated(head: RequestHead, body: Buffer, binding: SessionBinding) -> Admitted:
    """Take a write; it must belong to the session of the connection."""
    if not head.session or not head.number:
        raise InvalidField("a write has a session and a number", field="session")
    if head.session < binding.session:
        raise SessionRefused("the session was replaced", EvictionReason.SESSION_TOO_LOW)
    if (head.client, head.session) != (binding.client, binding.session):
        status = int(StatusCode.UNAUTHENTICATED)
        raise InvalidField("another session is bound here", field="session", status=status)
    _check_identifier(head, body, binding.dialect)
    if head.operation == UPDATE_RESOURCE and binding.dialect is not V0_11:
        return Admitted(updated_by(body), binding.dialect)
    code = OPERATIONS[binding.dialect].get(head.operation)
    if code is None:
        raise UnknownCommand(f"{head.operation} is no operation here", field="operation")
    return Admitted(code, binding.dialect)


def _check_identifier(head: RequestHead, body: Buffer, dialect: Dialect) -> None:
    """Check the checksum of a body, which only 0.9 has; zeros mean that there is none."""
    if dialect is not V0_11 or head.identifier == ZERO_ID:
        return
    if int.from_bytes(head.identifier, "little") != checksum(body):
        raise InvalidField("the checksum is not that of the body", field="identifier")
