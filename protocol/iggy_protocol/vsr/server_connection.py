"""The server's side of a connection from 0.9 on, without a socket.

It has the interface of the classic ``ServerConnection``, so that one pipeline can use either. What
this framing adds: a Register or BindSession chooses the dialect, ``bind`` notes the session that
came of it, replies echo the number of their request, and an eviction ends a session.

Replies leave in the order of the requests, unless the server detaches a request and answers it
later. A client of 0.9 needs that order; later ones find the request by its number.

Where Apache Iggy drops a frame and leaves its client waiting, this answers with a status. Only a
frame whose end cannot be trusted is final: it is shorter than its head, above the limit, or has a
command that no frame has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol import registry
from iggy_protocol.base_connection import (
    DEFAULT_LIMITS,
    SEND_MESSAGES,
    BaseServerConnection,
    Limits,
)
from iggy_protocol.codes import CommandCode, EvictionReason
from iggy_protocol.dialect import V0_11, Dialect
from iggy_protocol.errors import (
    LocalProtocolError,
    MalformedFrame,
    RemoteProtocolError,
    UnknownCommand,
)
from iggy_protocol.events import (
    PAUSED,
    CancelReceived,
    RequestReceived,
    RequestRefused,
    SendsReceived,
    VersionRefused,
    VsrServerEvent,
)
from iggy_protocol.framing import join_small, size_of
from iggy_protocol.status_table import StatusCode
from iggy_protocol.vsr.admission import (
    SessionBinding,
    SessionRefused,
    UnsupportedVersion,
    admit,
    request_id_of,
)
from iggy_protocol.vsr.evictions import eviction
from iggy_protocol.vsr.heads import (
    COMMAND_MAX,
    VSR_HEAD_BYTES,
    ZERO_ID,
    RequestHead,
    read_request_head,
)
from iggy_protocol.vsr.operations import NON_REPLICATED, OPERATIONS
from iggy_protocol.vsr.replies import (
    PAYLOAD_BYTES_MAX,
    UnansweredRequest,
    error_frame,
    success_head,
)
from iggy_protocol.vsr.send_runs import ExpectedSends, UnansweredRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol.layout import Buffer


STATUS_MAX: Final = 2**32 - 1
DETACHED_MAX: Final = 256
"""Requests of one connection that are answered out of order: as many as an official client has
waiting on one connection."""


class VsrServerConnection(BaseServerConnection[UnansweredRequest]):
    """The server side: numbered requests come in, replies and evictions go out.

    The methods that send take the ``position`` of the metadata that the reply is the result of.
    From 0.10 on a write with a position is told to be committed; without one, a success is not
    told to be final, and an error is a refusal.

    Args:
        limits: the bounds of this connection.
        is_authenticated: whether the client has logged in.
        binding: the session of the client, if another connection of it is bound already, as are the
            streams of a QUIC connection.
    """

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        is_authenticated: bool = False,
        binding: SessionBinding | None = None,
    ) -> None:
        super().__init__(
            payload_bytes_max=PAYLOAD_BYTES_MAX, limits=limits, is_authenticated=is_authenticated
        )
        self._binding = binding
        self._dialect = binding.dialect if binding else V0_11
        self._client = binding.client if binding else ZERO_ID
        self._detached: dict[UnansweredRequest, None] = {}
        self._newest: UnansweredRequest | None = None
        self._expected: ExpectedSends | None = None
        # A run is one entry of the queue; these are its requests but the last one.
        self._followers_count = 0

    # The session

    @property
    def binding(self) -> SessionBinding | None:
        """The session that this connection uses, if any.

        A server that keeps the session of a client elsewhere assigns it here whenever it has
        changed: the client logs in on one stream of a QUIC connection and goes on with others.
        """
        return self._binding

    @binding.setter
    def binding(self, binding: SessionBinding | None) -> None:
        if binding != self._binding:
            self._expected = None
        self._binding = binding
        self.is_authenticated: bool = binding is not None
        if binding is not None:
            self._dialect, self._client = binding.dialect, binding.client

    @property
    def dialect(self) -> Dialect:
        """What the last login announced; the oldest dialect of this framing before a login."""
        return self._dialect

    def bind(self, client: bytes, session: int, user_id: int) -> None:
        """Note that the client has logged in, before the reply is sent.

        Args:
            client: the id of the client, from the request.
            session: the number of the session, from 1.
            user_id: the user who has logged in.
        """
        if client == ZERO_ID or session < 1:
            raise LocalProtocolError("a session has a client and a number")
        self.binding = SessionBinding(self._dialect, client, session, user_id)

    def unbind(self) -> None:
        """Note that the session has ended, as by a logout; the client may log in again."""
        self.binding = None

    # Requests in

    def next_event(self) -> VsrServerEvent:
        """Return the next event, or the reason why there is none.

        Every RequestReceived, RequestRefused and each request of SendsReceived must be answered, in
        their order, or detached. A CancelReceived is not answered.

        Raises:
            FrameTooLarge: a request other than SendMessages is above its limit, or above the
                limit for clients that are not authenticated. Send the outstanding replies; the last
                one is ``send_error(error.status)`` for this request. Then close.
            MalformedFrame: the bytes are no frame. Send the outstanding replies and close.
        """
        if self._is_discarding():
            return self._no_event()
        room = self._limits.pipelined_max - len(self._outstanding) - self._followers_count
        if room <= 0:
            return PAUSED
        if self._expected is not None:
            sends = self._take_expected(self._expected, room)
            if sends is not None:
                return sends
        buffer = self._buffer
        if not buffer.ensure(VSR_HEAD_BYTES):
            return self._no_event()
        head = read_request_head(buffer.view, buffer.start)
        if head.size < VSR_HEAD_BYTES or head.command > COMMAND_MAX:
            message = f"no frame has {head.size} bytes and the command {head.command}"
            self._fail(MalformedFrame(message, field="size", need=VSR_HEAD_BYTES, have=head.size))
        code = self._code_of(head)
        if head.size - VSR_HEAD_BYTES > self._request_bytes_max(code):
            return self._refuse_size(head, code)
        if not buffer.ensure(head.size):
            return self._no_event()
        return self._admit(head, buffer.take(VSR_HEAD_BYTES, head.size))

    def _code_of(self, head: RequestHead) -> int:
        """Return the command of a request that is not checked yet; 0 if it is not known."""
        if head.operation == NON_REPLICATED:
            return head.code
        return OPERATIONS[self._dialect].get(head.operation, 0)

    def _refuse_size(self, head: RequestHead, code: int) -> VsrServerEvent:
        """Skip a SendMessages above the limit, as in the classic framing; fail for others."""
        error = self._too_large(code, head.size - VSR_HEAD_BYTES)
        self._frames_in += 1
        self._accept(head, code)
        if code != SEND_MESSAGES:
            self._fail(error)
        self._discard(head.size)
        return RequestRefused(code, error)

    def _accept(
        self, head: RequestHead, code: int, reason: EvictionReason | None = None
    ) -> UnansweredRequest:
        self._client = head.client
        request = UnansweredRequest(head, code, self._dialect, reason)
        self._outstanding.append(request)
        return request

    def _admit(self, head: RequestHead, payload: memoryview) -> VsrServerEvent:
        self._frames_in += 1
        try:
            code, dialect = admit(head, payload, self._binding)
        except RemoteProtocolError as error:
            return self._refuse(head, error)
        if code == CommandCode.CANCEL_DEFERRED and dialect is not V0_11:
            return CancelReceived(head.number)
        self._dialect = dialect
        self._newest = self._accept(head, code)
        return RequestReceived(code, payload, dialect, request_id_of(head, dialect))

    def _refuse(self, head: RequestHead, error: RemoteProtocolError) -> VsrServerEvent:
        code = self._code_of(head)
        self._accept(head, code, error.reason if isinstance(error, SessionRefused) else None)
        if isinstance(error, UnsupportedVersion):
            return VersionRefused(code, error, *error.prefix)
        return RequestRefused(code, error)

    @property
    def outstanding(self) -> int:
        """The number of requests without an answer, those of runs included."""
        return len(self._outstanding) + self._followers_count

    def expect_sends(self, metadata: bytes) -> None:
        """Take the sends together from now on that say the same as the last one.

        A server calls this when it has accepted a send. Those that follow, and differ in their
        messages and in numbers that rise, come as ``SendsReceived``.

        Args:
            metadata: those of the last one, from the stream to the message count.
        """
        newest, binding = self._newest, self._binding
        self._expected = None
        if newest is None or binding is None or newest.code != SEND_MESSAGES:
            return
        is_of_session = (newest.head.client, newest.head.session) == (
            binding.client,
            binding.session,
        )
        if is_of_session and ExpectedSends.may_follow(newest, self._limits):
            request_id = request_id_of(newest.head, newest.dialect)
            self._expected = ExpectedSends(newest, request_id, metadata)

    def expect_no_sends(self) -> None:
        """Take each send by itself again, because those taken together were refused."""
        self._expected = None

    def _take_expected(self, expected: ExpectedSends, frames_max: int) -> SendsReceived | None:
        taken = expected.take(self._buffer, frames_max)
        if taken is not None:
            run = taken.run
            self._frames_in += run.frames_count
            self._followers_count += run.frames_count - 1
            self._outstanding.append(UnansweredRun(expected.before, run.numbers, run.counts))
        return taken

    # Replies out

    def send(self, reply: object, *, position: int = 0) -> list[Buffer]:
        """Answer the oldest outstanding request with success.

        Args:
            reply: the reply of that command; None where it has no payload.
            position: the position of the metadata that it is the result of.

        Raises:
            LocalProtocolError: nothing is outstanding, or the reply does not fit the command.
        """
        request = self._oldest()
        try:
            payload = registry.encode_reply(request.code, reply, request.dialect)
        except UnknownCommand:
            message = f"{request.code} is no command: answer it with an error"
            raise LocalProtocolError(message) from None
        return self.send_payload(payload, position=position)

    def send_payload(self, parts: Sequence[Buffer], *, position: int = 0) -> list[Buffer]:
        """Answer the oldest outstanding request with an encoded reply.

        Raises:
            LocalProtocolError: nothing is outstanding, or no frame can hold the payload.
        """
        head = self.send_head(size_of(parts), position=position)
        return join_small([head, *parts])

    def send_head(self, payload_bytes: int, *, position: int = 0) -> bytes:
        """Write the head of a reply whose payload the caller sends itself.

        Raises:
            LocalProtocolError: nothing is outstanding, or no frame can hold the payload.
        """
        head = self._success_head(self._oldest(), payload_bytes, position)
        self._drop_oldest()
        return head

    def send_empty(self, count: int = 1, *, position: int = 0) -> bytes:
        """Answer the oldest ``count`` outstanding requests with success and no payload.

        Raises:
            LocalProtocolError: fewer requests are outstanding.
        """
        if not 0 < count <= self.outstanding:
            raise LocalProtocolError(
                f"{self.outstanding} requests are waiting for an answer, not {count}"
            )
        if count == 1:
            return self.send_head(0, position=position)
        return b"".join([self.send_head(0, position=position) for _ in range(count)])

    def send_confirmations(self, payload: bytes, *, position: int = 0) -> bytes:
        """Answer all requests of the run at the front, which are stored one behind the other.

        Args:
            payload: the encoded confirmation of the first one.
            position: the position of the metadata that they are the result of.

        Raises:
            LocalProtocolError: the oldest outstanding request is not one of a run.
        """
        run = self._outstanding[0] if self._outstanding else None
        if not isinstance(run, UnansweredRun):
            raise LocalProtocolError("no run of sends is waiting for an answer")
        frames = run.confirm(success_head(run.oldest(), len(payload), position) + payload)
        self._outstanding.popleft()
        self._followers_count -= run.left - 1
        self._frames_out += run.left
        self._bytes_out += len(frames)
        return frames

    def send_error(self, status: int, *, position: int = 0) -> list[Buffer]:
        """Answer the oldest outstanding request with an error.

        A login that fails for good is answered with an eviction, and so is a request that was
        refused because it has no session.

        Args:
            status: the number of the error.
            position: where the error was committed as the result of a write; 0 is a refusal.

        Raises:
            LocalProtocolError: nothing is outstanding, or the status is not one of an error.
        """
        frame = self._error_frame(self._oldest(), status, position)
        self._drop_oldest()
        return [frame]

    def push_error(self, status: int) -> list[Buffer]:
        """Tell a client without a request why its connection ends.

        A reply without a request does not exist in this framing. A client that is stale is evicted;
        any other learns from the close alone that the connection is lost.

        Raises:
            LocalProtocolError: the status is not one of an error.
        """
        self._check_status(status)
        is_stale = status == StatusCode.STALE_CLIENT and self._client != ZERO_ID
        return [self._evict(self._client, EvictionReason.STALE_CLIENT)] if is_stale else []

    def send_eviction(self, reason: EvictionReason) -> list[Buffer]:
        """End the session in place of an answer to the oldest outstanding request.

        Raises:
            LocalProtocolError: nothing is outstanding.
        """
        frame = self._evict(self._oldest().head.client, reason)
        self._drop_oldest()
        return [frame]

    # Replies out of order

    @property
    def detached(self) -> int:
        """The number of detached requests without an answer."""
        return len(self._detached)

    def detach(self) -> UnansweredRequest:
        """Take the newest outstanding request out of the order of replies.

        It is answered with ``send_detached`` at any time, or never.

        Raises:
            LocalProtocolError: nothing is outstanding, the client needs replies in order, or
                ``DETACHED_MAX`` requests are detached already.
        """
        self._oldest()
        newest = self._outstanding[-1]
        if not newest.dialect.binds_sessions:
            raise LocalProtocolError("a client of 0.9 needs its replies in order")
        if isinstance(newest, UnansweredRun):
            raise LocalProtocolError("a run of sends is answered in order")
        if len(self._detached) >= DETACHED_MAX:
            raise LocalProtocolError(f"{DETACHED_MAX} requests are detached already")
        request = self._outstanding.pop()
        self._detached[request] = None
        return request

    def find_detached(self, number: int) -> UnansweredRequest | None:
        """Return the detached request with this number, as a CancelReceived names it."""
        return next((one for one in self._detached if one.head.number == number), None)

    def drop_detached(self, request: UnansweredRequest) -> None:
        """Forget a detached request: its client no longer waits for the answer."""
        self._check_detached(request)
        del self._detached[request]

    def send_detached(
        self, request: UnansweredRequest, parts: Sequence[Buffer], *, position: int = 0
    ) -> list[Buffer]:
        """Answer a detached request with an encoded reply."""
        head = self.send_detached_head(request, size_of(parts), position=position)
        return join_small([head, *parts])

    def send_detached_head(
        self, request: UnansweredRequest, payload_bytes: int, *, position: int = 0
    ) -> bytes:
        """Write the head of a detached request's reply; the caller sends the payload."""
        self._check_detached(request)
        head = self._success_head(request, payload_bytes, position)
        del self._detached[request]
        return head

    def send_detached_error(self, request: UnansweredRequest, status: int) -> list[Buffer]:
        """Answer a detached request with an error."""
        self._check_detached(request)
        frame = self._error_frame(request, status, 0)
        del self._detached[request]
        return [frame]

    @property
    def is_idle(self) -> bool:
        """Whether every request is answered, detached ones included, and nothing is skipped."""
        return super().is_idle and not self._detached

    # Inside

    def _oldest(self) -> UnansweredRequest:
        request = super()._oldest()
        return request.oldest() if isinstance(request, UnansweredRun) else request

    def _drop_oldest(self) -> None:
        """Forget the oldest outstanding request, which is answered now."""
        request = self._outstanding[0]
        if isinstance(request, UnansweredRun) and request.left > 1:
            request.answered += 1
            self._followers_count -= 1
        else:
            self._outstanding.popleft()

    def _check_detached(self, request: UnansweredRequest) -> None:
        if request not in self._detached:
            raise LocalProtocolError("the request is not detached, or was answered")

    def _check_status(self, status: int) -> None:
        if not 0 < status <= STATUS_MAX:
            raise LocalProtocolError(f"{status} is no status of an error")

    def _success_head(self, request: UnansweredRequest, payload_bytes: int, position: int) -> bytes:
        self._check_payload(payload_bytes)
        head = success_head(request, payload_bytes, position)
        self._count_out(len(head) + payload_bytes)
        return head

    def _error_frame(self, request: UnansweredRequest, status: int, position: int) -> bytes:
        self._check_status(status)
        reason = request.eviction_for(status)
        if reason is not None:
            return self._evict(request.head.client, reason)
        frame = error_frame(request, status, position)
        self._count_out(len(frame))
        return frame

    def _evict(self, client: bytes, reason: EvictionReason) -> bytes:
        self.unbind()
        frame = eviction(reason, client)
        self._count_out(len(frame))
        return frame
