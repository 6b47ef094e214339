"""The command table: everything that the server knows about each command, one row per command.

The dispatcher, the request scheduler, the permission checks and ``docs/commands.md`` read these
rows. Layouts are in ``iggy_protocol.COMMANDS``, and the routes of the REST API in
``iggy_protocol.rest.ROUTES``.

A handler takes the handler context, the session and the command, and returns the reply. It raises
ServerFault to refuse the command. A row may ask for the request id as well, for commands that refer
to the state of a partition or to the session of the wire; it is None in the classic dialect.

A command that has no row is refused: as no command where the dialect does not have it, else as one
that this server does not serve.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import CommandCode, Dialect, record
from iggy_protocol.rest import ROUTES_BY_COMMAND, Route
from iggy_ref_server.dispatch.handlers import (
    deferred,
    fetches,
    groups,
    messages,
    polls,
    streams,
    system,
    users,
)
from iggy_ref_server.identity import permissions
from iggy_ref_server.identity.permissions import Requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from iggy_ref_server.dispatch.handlers.messages import EncodedReply

    # The first three arguments are the handler context, the session and the command.
    Handler = Callable[..., Coroutine[Any, Any, object]]
    InlineHandler = Callable[..., EncodedReply | None]


class Execution(Enum):
    """How a request of a connection is executed. Over HTTP every request has a task already."""

    INLINE = "inline"
    """In the scheduler's round, without a task: the handler never waits."""
    INLINE_FIRST = "inline, or in a task if it has to wait"
    """The inline handler returns None where it would have to wait; then a task runs the handler."""
    TASK = "in a task"
    STAGED = "staged with other sends, without decoding"
    """The appender takes the body as it is and commits it with others at the end of the round."""
    DETACHED = "in a task, out of the order of replies"
    """The client's other requests go on meanwhile; it finds the reply by its number."""


class Placement(Enum):
    """Which shard does the work of a command."""

    ANY_SHARD = "the shard of the connection"
    PARTITION_OWNER = "the owner of the partition"
    """The handler runs on the shard of the connection and calls the owner for the partition."""
    METADATA_SHARD = "shard 0"
    """The request is forwarded: shard 0 alone writes metadata and knows the members of groups."""


class Login(Enum):
    """Whether the client must have logged in before the command."""

    NEEDED = "needed"
    NEEDED_BEFORE_0_9 = "needed by clients before 0.9"
    NOT_NEEDED = "not needed"
    LOGS_IN = "not needed: it is the login"


@record
class CommandRow:
    """What the server knows about one command.

    Attributes:
        code: the command.
        handler: serves it.
        requirement: the permission of the user.
        placement: the shard that does the work.
        execution: whether it needs a task.
        login: whether a login is needed before it.
        inline_handler: serves it without waiting, or returns None; with ``INLINE_FIRST`` only.
        permission_first: whether the permission does not depend on the fields and is checked before
            them.
        allows_own_account: whether users need no permission for their own account.
        late_fields: fields with codes that Apache Iggy reads as plain numbers. It rejects unknown
            codes only after the login, the permission and the rules of the other fields.
        is_logged: whether the log shows it: it changes persistent state or a session, and clients
            do not send it all the time.
        takes_request_id: whether handlers get the request id as a fourth argument.
        unavailable_in: the dialects that have the command, and in which it is not served.
    """

    code: CommandCode
    handler: Handler
    requirement: Requirement
    placement: Placement = Placement.ANY_SHARD
    execution: Execution = Execution.TASK
    login: Login = Login.NEEDED
    inline_handler: InlineHandler | None = None
    permission_first: bool = False
    allows_own_account: bool = False
    late_fields: tuple[str, ...] = ()
    is_logged: bool = False
    takes_request_id: bool = False
    unavailable_in: frozenset[Dialect] = frozenset()

    @property
    def route(self) -> Route | None:
        """The route of the command in the REST API, if it has one."""
        return ROUTES_BY_COMMAND.get(self.code)


_ROWS: Final = (
    # The server and its clients
    CommandRow(
        CommandCode.PING,
        system.ping,
        permissions.ANY_USER,
        Placement.ANY_SHARD,
        Execution.INLINE,
        login=Login.NOT_NEEDED,
    ),
    CommandRow(
        CommandCode.GET_STATS, system.get_stats, permissions.READ_SERVERS, permission_first=True
    ),
    # The archive holds logs, processes and the configuration, so reading rights are not enough.
    CommandRow(
        CommandCode.GET_SNAPSHOT,
        system.get_snapshot,
        permissions.MANAGE_SERVERS,
        permission_first=True,
        late_fields=("compression", "types"),
    ),
    CommandRow(CommandCode.GET_CLUSTER_METADATA, system.get_cluster_metadata, permissions.ANY_USER),
    CommandRow(CommandCode.DESCRIBE_OPTIONS, system.describe_options, permissions.ANY_USER),
    CommandRow(
        CommandCode.BIND_SESSION,
        users.bind_session,
        permissions.ANY_USER,
        login=Login.LOGS_IN,
        takes_request_id=True,
    ),
    # The changes tell the names of all users and tokens, so reading rights are not enough.
    CommandRow(
        CommandCode.GET_METADATA_CHANGES,
        system.get_metadata_changes,
        permissions.MANAGE_SERVERS,
        Placement.METADATA_SHARD,
        permission_first=True,
    ),
    CommandRow(CommandCode.GET_ME, system.get_me, permissions.ANY_USER),
    CommandRow(
        CommandCode.GET_CLIENT, system.get_client, permissions.READ_SERVERS, permission_first=True
    ),
    CommandRow(
        CommandCode.GET_CLIENTS, system.get_clients, permissions.READ_SERVERS, permission_first=True
    ),
    # Users and their tokens
    CommandRow(
        CommandCode.GET_USER, users.get_user, permissions.READ_USERS, allows_own_account=True
    ),
    CommandRow(CommandCode.GET_USERS, users.get_users, permissions.READ_USERS),
    CommandRow(
        CommandCode.CREATE_USER,
        users.create_user,
        permissions.MANAGE_USERS,
        Placement.METADATA_SHARD,
        permission_first=True,
        late_fields=("status",),
        is_logged=True,
    ),
    CommandRow(
        CommandCode.DELETE_USER,
        users.delete_user,
        permissions.MANAGE_USERS,
        Placement.METADATA_SHARD,
        permission_first=True,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.UPDATE_USER,
        users.update_user,
        permissions.MANAGE_USERS,
        Placement.METADATA_SHARD,
        permission_first=True,
        late_fields=("status",),
        is_logged=True,
    ),
    CommandRow(
        CommandCode.UPDATE_PERMISSIONS,
        users.update_permissions,
        permissions.MANAGE_USERS,
        Placement.METADATA_SHARD,
        permission_first=True,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.CHANGE_PASSWORD,
        users.change_password,
        permissions.MANAGE_USERS,
        Placement.METADATA_SHARD,
        allows_own_account=True,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.LOGIN_USER,
        users.login_user,
        permissions.ANY_USER,
        login=Login.LOGS_IN,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.LOGOUT_USER,
        users.logout_user,
        permissions.ANY_USER,
        login=Login.NEEDED_BEFORE_0_9,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.REGISTER,
        users.register,
        permissions.ANY_USER,
        login=Login.LOGS_IN,
        is_logged=True,
        takes_request_id=True,
    ),
    CommandRow(CommandCode.GET_PERSONAL_ACCESS_TOKENS, users.get_tokens, permissions.ANY_USER),
    CommandRow(
        CommandCode.CREATE_PERSONAL_ACCESS_TOKEN,
        users.create_token,
        permissions.ANY_USER,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.DELETE_PERSONAL_ACCESS_TOKEN,
        users.delete_token,
        permissions.ANY_USER,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
        users.login_with_token,
        permissions.ANY_USER,
        login=Login.LOGS_IN,
        is_logged=True,
    ),
    # Messages and offsets
    CommandRow(
        CommandCode.POLL_MESSAGES,
        polls.poll_messages,
        permissions.POLL_MESSAGES,
        Placement.PARTITION_OWNER,
        Execution.INLINE_FIRST,
        inline_handler=polls.poll_nowait,
        takes_request_id=True,
    ),
    CommandRow(
        CommandCode.SEND_MESSAGES,
        messages.send_messages,
        permissions.SEND_MESSAGES,
        Placement.PARTITION_OWNER,
        Execution.STAGED,
    ),
    CommandRow(
        CommandCode.FLUSH_UNSAVED_BUFFER,
        messages.flush_unsaved_buffer,
        permissions.SEND_MESSAGES,
        Placement.PARTITION_OWNER,
        unavailable_in=frozenset({Dialect.V0_11}),
    ),
    CommandRow(
        CommandCode.GET_PARTITION_ROUTE,
        messages.get_partition_route,
        permissions.USE_PARTITION,
        execution=Execution.INLINE,
    ),
    # The connection itself carries out a cancel of one of these, and answers nothing.
    CommandRow(
        CommandCode.POLL_DEFERRED,
        deferred.poll_deferred,
        permissions.POLL_MESSAGES,
        Placement.PARTITION_OWNER,
        Execution.DETACHED,
        takes_request_id=True,
    ),
    CommandRow(
        CommandCode.WAIT_FOR_MESSAGES,
        deferred.wait_for_messages,
        permissions.POLL_MESSAGES,
        Placement.PARTITION_OWNER,
        Execution.DETACHED,
        takes_request_id=True,
    ),
    CommandRow(
        CommandCode.FETCH_MESSAGES,
        fetches.fetch_messages,
        permissions.POLL_MESSAGES,
        Placement.PARTITION_OWNER,
        Execution.DETACHED,
        takes_request_id=True,
    ),
    CommandRow(
        CommandCode.GET_CONSUMER_OFFSET,
        messages.get_consumer_offset,
        permissions.POLL_MESSAGES,
        Placement.PARTITION_OWNER,
        takes_request_id=True,
    ),
    CommandRow(
        CommandCode.STORE_CONSUMER_OFFSET,
        messages.store_consumer_offset,
        permissions.POLL_MESSAGES,
        Placement.PARTITION_OWNER,
        takes_request_id=True,
    ),
    CommandRow(
        CommandCode.DELETE_CONSUMER_OFFSET,
        messages.delete_consumer_offset,
        permissions.POLL_MESSAGES,
        Placement.PARTITION_OWNER,
        takes_request_id=True,
    ),
    # Streams
    CommandRow(CommandCode.GET_STREAM, streams.get_stream, permissions.READ_STREAM),
    CommandRow(CommandCode.GET_STREAMS, streams.get_streams, permissions.READ_STREAMS),
    CommandRow(
        CommandCode.CREATE_STREAM,
        streams.create_stream,
        permissions.CREATE_STREAM,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.DELETE_STREAM,
        streams.delete_stream,
        permissions.MANAGE_STREAM,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.UPDATE_STREAM,
        streams.update_stream,
        permissions.MANAGE_STREAM,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.PURGE_STREAM,
        streams.purge_stream,
        permissions.MANAGE_STREAM,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    # Topics, partitions and segments
    CommandRow(CommandCode.GET_TOPIC, streams.get_topic, permissions.READ_TOPIC),
    CommandRow(CommandCode.GET_TOPICS, streams.get_topics, permissions.READ_TOPICS),
    CommandRow(
        CommandCode.CREATE_TOPIC,
        streams.create_topic,
        permissions.CREATE_TOPIC,
        Placement.METADATA_SHARD,
        late_fields=("compression",),
        is_logged=True,
    ),
    CommandRow(
        CommandCode.DELETE_TOPIC,
        streams.delete_topic,
        permissions.MANAGE_TOPIC,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.UPDATE_TOPIC,
        streams.update_topic,
        permissions.MANAGE_TOPIC,
        Placement.METADATA_SHARD,
        late_fields=("compression",),
        is_logged=True,
    ),
    CommandRow(
        CommandCode.PURGE_TOPIC,
        streams.purge_topic,
        permissions.MANAGE_TOPIC,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.CREATE_PARTITIONS,
        streams.create_partitions,
        permissions.MANAGE_TOPIC,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.DELETE_PARTITIONS,
        streams.delete_partitions,
        permissions.MANAGE_TOPIC,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.DELETE_SEGMENTS,
        streams.delete_segments,
        permissions.MANAGE_TOPIC,
        Placement.PARTITION_OWNER,
        is_logged=True,
    ),
    # Consumer groups
    CommandRow(
        CommandCode.GET_CONSUMER_GROUP,
        groups.get_consumer_group,
        permissions.READ_TOPIC,
        Placement.METADATA_SHARD,
    ),
    CommandRow(
        CommandCode.GET_CONSUMER_GROUPS,
        groups.get_consumer_groups,
        permissions.READ_TOPIC,
        Placement.METADATA_SHARD,
    ),
    CommandRow(
        CommandCode.CREATE_CONSUMER_GROUP,
        groups.create_consumer_group,
        permissions.READ_TOPIC,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.DELETE_CONSUMER_GROUP,
        groups.delete_consumer_group,
        permissions.READ_TOPIC,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.JOIN_CONSUMER_GROUP,
        groups.join_consumer_group,
        permissions.READ_TOPIC,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.LEAVE_CONSUMER_GROUP,
        groups.leave_consumer_group,
        permissions.READ_TOPIC,
        Placement.METADATA_SHARD,
        is_logged=True,
    ),
    CommandRow(
        CommandCode.SYNC_CONSUMER_GROUP,
        groups.sync_consumer_group,
        permissions.READ_TOPIC,
        Placement.METADATA_SHARD,
    ),
)


def _index(rows: tuple[CommandRow, ...]) -> Mapping[int, CommandRow]:
    table = {int(row.code): row for row in rows}
    assert len(table) == len(rows), "a command has two rows"
    return MappingProxyType(table)


COMMAND_TABLE: Final[Mapping[int, CommandRow]] = _index(_ROWS)
"""The rows by command code."""

STAGED_CODES: Final = frozenset(
    code for code, row in COMMAND_TABLE.items() if row.execution is Execution.STAGED
)
