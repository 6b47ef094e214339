"""Both sides of a connection, without a socket.

    connection.receive_data(bytes)      bytes from the peer, in pieces of any size
    connection.next_event()             the next event that they contain
    connection.send(...)                buffers to be written to the peer, in this order

``ServerConnection`` receives requests and sends replies, ``ClientConnection`` the reverse. The
classic protocol has no request ids: replies match requests by order alone, so both sides keep a
queue of outstanding requests, and a reply always belongs to the oldest.

An error after which the next frame cannot be found is final: every later ``next_event`` raises it
again, and later input is dropped. A server may still send outstanding replies before it closes.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from iggy_protocol import registry
from iggy_protocol.base_connection import (
    DEFAULT_LIMITS,
    BaseClientConnection,
    BaseServerConnection,
    Limits,
    frame_too_large,
)
from iggy_protocol.batch import SendRun, gather_sends
from iggy_protocol.codes import CommandCode
from iggy_protocol.errors import (
    LocalProtocolError,
    MalformedFrame,
    RemoteProtocolError,
    UnknownCommand,
)
from iggy_protocol.events import (
    NEED_DATA,
    PAUSED,
    ClientEvent,
    ErrorReceived,
    ForeignRequestReceived,
    RequestReceived,
    RequestRefused,
    ResponseReceived,
    ServerEvent,
)
from iggy_protocol.framing import CLASSIC_FRAMING, Framing, HeadroomBuffer, join_small, size_of
from iggy_protocol.vsr.heads import VSR_HEAD_BYTES
from iggy_protocol.vsr.recognition import begins_vsr_request, read_vsr_request, vsr_refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iggy_protocol.layout import Buffer
    from iggy_protocol.registry import Command


SUCCESS = 0
STATUS_MAX = 2**32 - 1


class ServerConnection(BaseServerConnection[int]):
    """The server side: requests come in, replies go out in the same order.

    The methods that send take the ``position`` of metadata as those of the other framing do; the
    classic one has no place for it.
    """

    def __init__(
        self,
        *,
        framing: Framing = CLASSIC_FRAMING,
        limits: Limits = DEFAULT_LIMITS,
        is_authenticated: bool = True,
    ) -> None:
        super().__init__(
            payload_bytes_max=framing.payload_bytes_max,
            limits=limits,
            is_authenticated=is_authenticated,
        )
        self._framing = framing
        self._head_bytes = framing.request_head_bytes

    def next_event(self) -> ServerEvent:
        """Return the next event, or the reason why there is none.

        Every RequestReceived and RequestRefused must be answered, in their order.

        Raises:
            FrameTooLarge: a request other than SendMessages is above its limit, or above the
                limit for clients that are not authenticated. Its payload is not read, so
                nothing after it can be decoded. Send the outstanding replies; the last one is
                ``send_error(error.status)`` for this request. Then close.
        """
        if self._is_discarding():
            return self._no_event()
        if len(self._outstanding) >= self._limits.pipelined_max:
            return PAUSED
        buffer, head_bytes = self._buffer, self._head_bytes
        if not buffer.ensure(head_bytes):
            return self._no_event()
        code, size = self._framing.read_request_head(buffer.view, buffer.start)
        size_max = (
            self._limits.request_bytes_max(code)
            if self.is_authenticated
            else self._request_bytes_max(code)
        )
        if not 0 <= size <= size_max:
            return self._refuse(code, size)
        if not buffer.ensure(head_bytes + size):
            return self._no_event()
        payload = buffer.take(head_bytes, head_bytes + size)
        self._accept(code)
        return RequestReceived(code, payload)

    def _accept(self, code: int) -> None:
        self._frames_in += 1
        self._outstanding.append(code)

    def _refuse(self, code: int, size: int) -> ServerEvent:
        """Skip a frame that cannot be a request, or fail where skipping does not help.

        A SendMessages above the limit is skipped: after a close its client would reconnect and send
        the same again. The event is returned at once and the body dropped while it arrives, so
        that a server may also close the connection instead of receiving all of it.
        """
        if size < 0 and not code and not self._frames_in:
            foreign = self._recognise_vsr_client()
            if foreign is not None:
                return foreign
        self._accept(code)
        if size < 0:
            self._discard(self._head_bytes)
            malformed = MalformedFrame("a frame's length counts at least the code", field="length")
            return RequestRefused(code, malformed)
        error = self._too_large(code, size)
        if code != CommandCode.SEND_MESSAGES:
            self._fail(error)
        self._discard(self._head_bytes + size)
        return RequestRefused(code, error)

    def _recognise_vsr_client(self) -> ServerEvent | None:
        """Recognise a client of 0.9 or later by its first frame; None if it is not one.

        Such a frame begins with eight zero bytes. As long as the bytes may be such a frame, return
        NEED_DATA until its head is complete; other bytes are refused as a classic frame of length
        zero.
        """
        buffer = self._buffer
        if not buffer.ensure(VSR_HEAD_BYTES):
            may_be = begins_vsr_request(buffer.view[buffer.start : buffer.end])
            return NEED_DATA if may_be and not self._is_ended else None
        head = buffer.view[buffer.start : buffer.start + VSR_HEAD_BYTES]
        size = read_vsr_request(head)
        if size is None:
            return None
        refusal = vsr_refusal(head)
        del head
        self._discard(size)
        self._count_out(len(refusal))
        return ForeignRequestReceived(refusal)

    def take_sends(self, metadata: Buffer) -> tuple[SendRun, memoryview] | None:
        """Take the complete SendMessages frames that follow and have the same destination.

        Each of them is one outstanding request; their messages are contiguous and can be stored
        as one batch. A server calls this after a SendMessages, which saves an event for each
        message of a client that pipelines single messages.

        Args:
            metadata: those of the last one, from the stream to the message count.

        Returns:
            The run and its messages, or None if there is none.
        """
        buffer = self._buffer
        if buffer.start == buffer.end or self._error or self._discarding_bytes:
            return None
        if self._framing is not CLASSIC_FRAMING:
            return None
        start = buffer.start
        room = self._limits.pipelined_max - len(self._outstanding)
        if room < 1 or buffer.view.readonly:
            return None
        run = gather_sends(buffer.view[start : buffer.end], metadata, frames_max=room)
        if not run.frames_count:
            return None
        messages = buffer.view[start : start + run.messages_bytes]
        buffer.skip(run.size_bytes)
        self._frames_in += run.frames_count
        self._outstanding.extend(repeat(int(CommandCode.SEND_MESSAGES), run.frames_count))
        return run, messages

    def send(self, reply: object, *, position: int = 0) -> list[Buffer]:
        """Answer the oldest outstanding request with success.

        Args:
            reply: the reply of that command; None where it has no payload.

        Returns:
            What to write to the client, in order.

        Raises:
            LocalProtocolError: nothing is outstanding, or the reply does not fit the command.
        """
        code = self._oldest()
        try:
            payload = registry.encode_reply(code, reply)
        except UnknownCommand:
            raise LocalProtocolError(f"{code} is no command: answer it with an error") from None
        return self.send_payload(payload, position=position)

    def send_payload(self, parts: Sequence[Buffer], *, position: int = 0) -> list[Buffer]:
        """Answer the oldest outstanding request with an encoded reply.

        Args:
            parts: the payload in pieces; large ones are not copied.

        Raises:
            LocalProtocolError: nothing is outstanding, or no frame can hold the payload.
        """
        head = self.send_head(size_of(parts), position=position)
        return join_small([head, *parts]) if parts else [head]

    def send_head(self, payload_bytes: int, *, position: int = 0) -> bytes:
        """Write the head of a reply whose payload the caller sends itself.

        For payloads that are not in memory, such as a file for ``sendfile``.

        Args:
            payload_bytes: how many bytes the caller will write after the head.

        Raises:
            LocalProtocolError: nothing is outstanding, or no frame can hold the payload.
        """
        self._oldest()
        if payload_bytes == 1:
            raise LocalProtocolError("a reply cannot be one byte: official clients do not read it")
        self._check_payload(payload_bytes)
        self._outstanding.popleft()
        head = self._framing.response_head(SUCCESS, payload_bytes)
        self._count_out(len(head) + payload_bytes)
        return head

    def send_empty(self, count: int = 1, *, position: int = 0) -> bytes:
        """Answer the oldest ``count`` outstanding requests with success and no payload.

        One call for all acknowledgements of a group of sends that were written together.

        Raises:
            LocalProtocolError: fewer requests are outstanding.
        """
        if not 0 < count <= len(self._outstanding):
            raise LocalProtocolError(
                f"{len(self._outstanding)} requests are waiting for an answer, not {count}"
            )
        for _ in range(count):
            self._outstanding.popleft()
        frames = self._framing.response_head(SUCCESS, 0) * count
        self._frames_out += count
        self._bytes_out += len(frames)
        return frames

    def send_error(self, status: int, *, position: int = 0) -> list[Buffer]:
        """Answer the oldest outstanding request with an error.

        Raises:
            LocalProtocolError: nothing is outstanding, or the status is not one of an error.
        """
        self._oldest()
        frame = self.push_error(status)
        self._outstanding.popleft()
        return frame

    def push_error(self, status: int) -> list[Buffer]:
        """Send an error without a request, as a stopping server does.

        A client with outstanding requests takes it as the reply to the oldest.

        Raises:
            LocalProtocolError: the status is not one of an error.
        """
        if not SUCCESS < status <= STATUS_MAX:
            raise LocalProtocolError(f"{status} is no status of an error")
        head = self._framing.response_head(status, 0)
        self._count_out(len(head))
        return [head]


class ClientConnection(BaseClientConnection["Command[Any]"]):
    """The client side: commands go out, replies come in, in the same order."""

    def __init__(
        self, *, framing: Framing = CLASSIC_FRAMING, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        super().__init__(payload_bytes_max=framing.payload_bytes_max, limits=limits)
        self._framing = framing
        self._head_bytes = framing.response_head_bytes

    def send(self, command: Command[Any]) -> list[Buffer]:
        """Send a command.

        Returns:
            What to write to the server, in order. Large payloads were not copied.

        Raises:
            LocalProtocolError: a field does not fit the wire, the request is above its limit, too
                many are outstanding, or the server has closed.
        """
        self._check_not_ended()
        if self._error is not None:
            raise LocalProtocolError(f"the connection has failed: {self._error.message}")
        if len(self._outstanding) >= self._limits.outstanding_max:
            raise LocalProtocolError(f"{len(self._outstanding)} requests are unanswered already")
        parts = registry.encode_request(command)
        prepared = parts[0] if len(parts) == 1 else None
        if isinstance(prepared, HeadroomBuffer):
            frame = self._frame_in_place(command.CODE, prepared)
        else:
            frame = self._frame(command.CODE, parts)
        self._outstanding.append(command)
        self._count_out(size_of(frame))
        return frame

    def _frame(self, code: int, parts: Sequence[Buffer | HeadroomBuffer]) -> list[Buffer]:
        payload = [part for part in parts if not isinstance(part, HeadroomBuffer)]
        assert len(payload) == len(parts), "a buffer with headroom is a payload of its own"
        size = size_of(payload)
        self._check_request(code, size)
        return join_small([self._framing.request_head(code, size), *payload])

    def _frame_in_place(self, code: int, prepared: HeadroomBuffer) -> list[Buffer]:
        buffer, headroom = prepared.buffer, prepared.headroom
        size = len(buffer) - headroom
        self._check_request(code, size)
        start = headroom - self._framing.request_head_bytes
        if start < 0:
            return [self._framing.request_head(code, size), memoryview(buffer)[headroom:]]
        self._framing.write_request_head(buffer, start, code, size)
        return [memoryview(buffer)[start:] if start else buffer]

    def _check_request(self, code: int, size: int) -> None:
        self._check_payload(size)
        limit = self._limits.request_bytes_max(code)
        if size > limit:
            raise LocalProtocolError(f"a payload of {size} bytes, where {limit} are allowed")

    def next_event(self) -> ClientEvent:
        """Return the next event, or the reason why there is none.

        Raises:
            RemoteProtocolError: the server's bytes are invalid. Close the connection.
        """
        if self._is_discarding():
            return self._no_event()
        buffer, head_bytes = self._buffer, self._head_bytes
        if not buffer.ensure(head_bytes):
            return self._no_event()
        status, size = self._framing.read_response_head(buffer.view, buffer.start)
        if size > self._limits.response_bytes_max:
            self._fail(frame_too_large(size, self._limits.response_bytes_max))
        if status != SUCCESS:
            return self._take_error(status, size)
        if not self._outstanding:
            self._fail(RemoteProtocolError("a reply came without a request", have=size))
        if not buffer.ensure(head_bytes + size):
            return self._no_event()
        payload = buffer.take(head_bytes, head_bytes + size)
        self._frames_in += 1
        self._last_reply_bytes = head_bytes + size
        return ResponseReceived(self._outstanding.popleft(), payload)

    def _take_error(self, status: int, size: int) -> ErrorReceived:
        # Errors have no payload. If one has, skip it: the next frame follows it.
        self._discard(self._head_bytes + size)
        self._frames_in += 1
        return ErrorReceived(self._outstanding.popleft() if self._outstanding else None, status)
