"""The client's side of a connection from 0.9 on, without a socket.

    request = connection.prepare(command)        numbers it, and writes its frame
    connection.send_prepared(request)            buffers to be written to the server
    connection.next_event()                      the reply, with the number of its request

A prepared request keeps its bytes, so that it can be sent again as it was, on this connection or
on another one of the same session. ``send`` does both steps at once.

From 0.10 on replies come in any order and are found by their number. In 0.9 one request is on its
way at a time: a server answers writes on whichever shard owns the partition, so replies to several
requests can overtake each other, and numbers of reads are not unique.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import registry
from iggy_protocol.base_connection import (
    DEFAULT_LIMITS,
    BaseClientConnection,
    Limits,
    frame_too_large,
)
from iggy_protocol.codes import CommandCode
from iggy_protocol.dialect import V0_11
from iggy_protocol.errors import (
    LocalProtocolError,
    MalformedFrame,
    NotInDialect,
    RemoteProtocolError,
)
from iggy_protocol.events import (
    NO_CONTEXT,
    ErrorReceived,
    EvictionReceived,
    ResponseReceived,
    VsrClientEvent,
)
from iggy_protocol.framing import HeadroomBuffer, join_small, size_of
from iggy_protocol.layout import Buffer
from iggy_protocol.model.stream import PartitionContext
from iggy_protocol.records import record
from iggy_protocol.registry import Command
from iggy_protocol.status_table import StatusCode
from iggy_protocol.vsr.evictions import KEPT_SESSIONS, read_eviction
from iggy_protocol.vsr.heads import (
    COMMITTED,
    EVICTION,
    REPLY,
    VSR_HEAD_BYTES,
    ReplyHead,
    RequestHead,
    check_reply,
    read_eviction_head,
    read_reply_head,
)
from iggy_protocol.vsr.operations import (
    NON_REPLICATED,
    PARTITION_OPERATIONS,
    operation_of,
    read_result,
    requested_operation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol.vsr.client_session import VsrClientSession


PAYLOAD_BYTES_MAX: Final = 2**32 - 1 - VSR_HEAD_BYTES
# What may be sent before the connection is bound to a session.
UNBOUND_CODES: Final = frozenset({CommandCode.PING, CommandCode.REGISTER, CommandCode.BIND_SESSION})
LOGINS: Final = frozenset({CommandCode.REGISTER, CommandCode.BIND_SESSION})


@record
class PreparedRequest:
    """A request with its number and its bytes, to be sent once or several times.

    Attributes:
        command: what is asked for.
        head: the head of its frame.
        parts: its body; large parts are not copied, and must not change until the answer.
    """

    command: Command[Any]
    head: RequestHead
    parts: tuple[Buffer, ...]

    @property
    def number(self) -> int:
        """The number by which the reply is found."""
        return self.head.number


class VsrClientConnection(BaseClientConnection[PreparedRequest]):
    """The client side: numbered requests go out, replies and evictions come in.

    Args:
        session: the session; from 0.10 on several connections may share it.
        limits: the bounds of this connection.
    """

    def __init__(self, session: VsrClientSession, *, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(payload_bytes_max=PAYLOAD_BYTES_MAX, limits=limits)
        self._session = session
        self._dialect = session.dialect
        self._pending: dict[int, PreparedRequest] = {}
        self._bound_client = b""
        self._is_evicted = False

    @property
    def session(self) -> VsrClientSession:
        """The session of the client."""
        return self._session

    @property
    def is_bound(self) -> bool:
        """Whether this connection is bound to the session as it is now."""
        return self._session.session > 0 and self._bound_client == self._session.client

    @property
    def outstanding(self) -> int:
        """The number of requests without an answer."""
        return len(self._pending)

    # Requests out

    def send(
        self, command: Command[Any], *, context: PartitionContext = NO_CONTEXT
    ) -> list[Buffer]:
        """Number a command and send it; see ``prepare`` and ``send_prepared``."""
        return self.send_prepared(self.prepare(command, context=context))

    def prepare(
        self, command: Command[Any], *, context: PartitionContext = NO_CONTEXT
    ) -> PreparedRequest:
        """Give a command its number, and write its frame.

        Args:
            command: what to ask for.
            context: the state of the partition that the command refers to. Without one, a read
                asks for metadata at least as new as the client has seen.

        Raises:
            NotInDialect: the dialect has no such command, or no context.
            LocalProtocolError: a field does not fit the wire, the request is above its limit, or
                the command needs a session.
        """
        code = int(command.CODE)
        self._check_bound(code)
        operation = operation_of(code, self._dialect)
        parts = _plain_parts(registry.encode_request(command, self._dialect))
        size = self._check_size(code, parts)
        context = self._context(operation, context)
        number, session = self._number(code, operation)
        head = RequestHead(
            size=VSR_HEAD_BYTES + size,
            client=self._session.client,
            identifier=self._session.identifier(operation, parts),
            number=number,
            operation=operation,
            session=session,
            code=code if operation == NON_REPLICATED else 0,
            incarnation=context.incarnation,
            owner_generation=context.owner_generation,
            metadata_position=context.metadata_position,
        )
        return PreparedRequest(command, head, parts)

    def send_prepared(self, request: PreparedRequest) -> list[Buffer]:
        """Send a request, for the first time or once more.

        Returns:
            What to write to the server, in order. Large parts were not copied.

        Raises:
            LocalProtocolError: the request is outstanding already or belongs to another session,
                the connection is not bound or is over, or too many requests are outstanding.
        """
        self._check_open()
        self._check_bound(request.command.CODE)
        if request.head.client != self._session.client:
            raise LocalProtocolError("the session of the request has ended")
        if request.number in self._pending:
            raise LocalProtocolError(f"request {request.number} is unanswered already")
        # Why one at a time in 0.9: see the docstring of the module.
        outstanding_max = 1 if self._dialect is V0_11 else self._limits.outstanding_max
        if len(self._pending) >= outstanding_max:
            raise LocalProtocolError(f"{len(self._pending)} requests are unanswered already")
        self._pending[request.number] = request
        self._count_out(request.head.size)
        return join_small([request.head.encode(), *request.parts])

    def cancel(self, request: PreparedRequest) -> list[Buffer]:
        """Tell the server that a deferred request is not waited for; neither is answered.

        Raises:
            NotInDialect: 0.9 has no deferred requests.
            LocalProtocolError: the request is not outstanding.
        """
        self._check_open()
        self.forget(request)
        head = RequestHead(
            client=request.head.client,
            number=request.number,
            operation=NON_REPLICATED,
            session=request.head.session,
            code=int(CommandCode.CANCEL_DEFERRED),
        )
        self._count_out(VSR_HEAD_BYTES)
        return [head.encode()]

    def forget(self, request: PreparedRequest) -> None:
        """Wait no longer for the answer to a request; one that still comes is dropped.

        Raises:
            NotInDialect: in 0.9 the next reply could not be told from this one. Close instead.
            LocalProtocolError: the request is not outstanding.
        """
        if self._dialect is V0_11:
            raise NotInDialect("in 0.9 each answer must be waited for")
        if self._pending.get(request.number) is not request:
            raise LocalProtocolError(f"request {request.number} is not outstanding")
        del self._pending[request.number]

    def _check_open(self) -> None:
        self._check_not_ended()
        if self._error is not None:
            raise LocalProtocolError(f"the connection has failed: {self._error.message}")
        if self._is_evicted:
            raise LocalProtocolError("the server has ended the session: connect again")

    def _check_bound(self, code: int) -> None:
        if code not in UNBOUND_CODES and not self.is_bound:
            raise LocalProtocolError(f"command {code} needs a session: log in first")

    def _check_size(self, code: int, parts: tuple[Buffer, ...]) -> int:
        size = size_of(parts)
        self._check_payload(size)
        limit = self._limits.request_bytes_max(code)
        if size > limit:
            raise LocalProtocolError(f"a payload of {size} bytes, where {limit} are allowed")
        return size

    def _context(self, operation: int, context: PartitionContext) -> PartitionContext:
        """Return the context of a request; a read at least wants what the client has seen."""
        is_given = context is not NO_CONTEXT and context != NO_CONTEXT
        if self._dialect is V0_11:
            if is_given:
                raise NotInDialect("a request of 0.9 has no context", field="context")
            return NO_CONTEXT
        refers = operation == NON_REPLICATED or operation in PARTITION_OPERATIONS
        if is_given and not refers:
            raise LocalProtocolError("the command refers to no partition", field="context")
        if is_given or not refers or not self.is_bound:
            return context
        return PartitionContext(metadata_position=self._session.watermark)

    def _number(self, code: int, operation: int) -> tuple[int, int]:
        """Return the number of a new request, and the session that its head names."""
        if code == CommandCode.REGISTER:
            return 0, 0
        if code == CommandCode.PING and not self.is_bound:
            return self._session.unbound_number(), 0
        return self._session.take_number(operation), self._session.session

    # Replies in

    def next_event(self) -> VsrClientEvent:
        """Return the next event, or the reason why there is none.

        Raises:
            RemoteProtocolError: the server's bytes are invalid. Close the connection.
        """
        buffer = self._buffer
        while not self._is_discarding() and buffer.ensure(VSR_HEAD_BYTES):
            head = read_reply_head(buffer.view, buffer.start)
            self._check_head(head)
            if head.command == EVICTION:
                return self._take_eviction()
            request = self._pending.get(head.number)
            if request is None:
                self._drop_reply(head)
            elif buffer.ensure(head.size):
                return self._take_reply(head, request)
            else:
                break
        return self._no_event()

    def _check_head(self, head: ReplyHead) -> None:
        size = head.size - VSR_HEAD_BYTES
        if size < 0 or head.command not in {REPLY, EVICTION}:
            message = f"no server sends {head.size} bytes with the command {head.command}"
            self._fail(MalformedFrame(message, field="size"))
        if size > self._limits.response_bytes_max:
            self._fail(frame_too_large(size, self._limits.response_bytes_max))
        if head.command == REPLY:
            try:
                check_reply(head, self._dialect)
            except RemoteProtocolError as error:
                self._fail(error)

    def _drop_reply(self, head: ReplyHead) -> None:
        """Drop a reply that is not waited for; the next frame follows it."""
        if self._dialect is V0_11:
            self._fail(RemoteProtocolError(f"a reply to request {head.number} came unasked"))
        self._frames_in += 1
        self._discard(head.size)

    def _take_reply(self, head: ReplyHead, request: PreparedRequest) -> VsrClientEvent:
        payload = self._buffer.take(VSR_HEAD_BYTES, head.size)
        self._frames_in += 1
        self._last_reply_bytes = head.size
        del self._pending[request.number]
        try:
            return self._read_reply(head, request, payload)
        except RemoteProtocolError as error:
            self._fail(error)

    def _read_reply(
        self, head: ReplyHead, request: PreparedRequest, payload: memoryview
    ) -> VsrClientEvent:
        _check_committed(head, request.head)
        status, start = (head.status, 0) if head.status else read_result(head.operation, payload)
        if start:
            # A new view where nothing is left, so that the memory can receive the next frames.
            payload = payload[start:] if len(payload) > start else memoryview(b"")
        self._session.note_commit(head.operation, head.commit)
        is_committed = head.marker == COMMITTED
        if status:
            return self._on_error(request, status, is_committed=is_committed)
        response: ResponseReceived[Any] = ResponseReceived(
            request.command, payload, self._dialect, head.number, is_committed
        )
        self._on_success(response)
        return response

    def _on_success(self, response: ResponseReceived[Any]) -> None:
        code = response.command.CODE
        if code in LOGINS:
            self._session.registered(response.decode())
            self._bound_client = self._session.client
        elif code == CommandCode.LOGOUT_USER:
            self._session.end()

    def _on_error(
        self, request: PreparedRequest, status: int, *, is_committed: bool
    ) -> ErrorReceived:
        is_unknown = status == StatusCode.UNAUTHENTICATED
        if request.command.CODE == CommandCode.BIND_SESSION and is_unknown:
            self._session.end()
        return ErrorReceived(request.command, status, request.number, is_committed)

    def _take_eviction(self) -> EvictionReceived:
        """Fail all that is outstanding, and end the session unless it goes on elsewhere.

        In 0.9 an eviction takes the place of a reply, and the client may log in again on the same
        connection. Later clients connect anew.
        """
        head = read_eviction_head(self._buffer.view, self._buffer.start)
        try:
            event = read_eviction(head)
        except RemoteProtocolError as error:
            self._fail(error)
        self._buffer.skip(VSR_HEAD_BYTES)
        self._frames_in += 1
        self._pending.clear()
        self._bound_client = b""
        self._is_evicted = self._dialect is not V0_11
        if self._dialect is V0_11 or event.reason not in KEPT_SESSIONS:
            self._session.end()
        return event


def _plain_parts(parts: Sequence[Buffer | HeadroomBuffer]) -> tuple[Buffer, ...]:
    """Return the payload without the space that was left for a head in front of it.

    The head is a buffer of its own: one payload may be sent under several numbers, and the bytes of
    one may still be on their way when the next one is prepared.
    """
    return tuple(
        memoryview(part.buffer)[part.headroom :] if isinstance(part, HeadroomBuffer) else part
        for part in parts
    )


def _check_committed(reply: ReplyHead, request: RequestHead) -> None:
    """Check what a reply claims that is marked as the final result of a write."""
    if reply.marker != COMMITTED:
        return
    claimed = (
        reply.client,
        reply.identifier,
        requested_operation(reply.operation),
        reply.incarnation,
    )
    if claimed != (request.client, request.identifier, request.operation, request.incarnation):
        raise RemoteProtocolError(f"a result is marked that request {request.number} did not ask")
    if not reply.op or reply.op != reply.commit:
        raise RemoteProtocolError(f"a result is marked at {reply.op}, but {reply.commit} is told")
