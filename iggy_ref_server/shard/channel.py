"""The channel between two shards: calls and replies over a socket.

Shards are processes that share nothing. Each pair is joined by a Unix stream socket. Measured
against SEQPACKET and a ring in shared memory, the cost is waking the other process and not the
mechanism, and a stream carries batches of any size. The frame of a message is

    u32 id    0 for a message without a reply; the highest bit marks a reply
    u32 size of the record, u32 size of the payload, record, payload

Messages arrive in the order in which they were sent, so appends of one client stay in order. A
channel is full when ``CALLS_IN_FLIGHT_MAX`` calls have no reply, or ``IN_FLIGHT_BYTES_MAX`` of
their bytes. A caller then waits; a client whose send has passed the mark is not read until that
send has its reply. That bounds the input of the other shard.

A parked call waits for something to happen there, such as a message, and has its reply then. It has
no payload and does not count in those marks; whoever parks calls bounds their number.

What a channel holds counts in the memory budget of its shard: payloads that are received, calls
    that are handled, and replies that are not sent. Calls that are not sent count in the account of
    the client that caused them. A channel never waits for memory and is never closed for it. Two
    shards that waited for each other before they read on would wait forever: the reply that frees
    the memory of one is behind the call that the other does not read. So messages between shards
    always continue, and clients are paused or closed instead, which ends the calls they caused. The
    marks above bound what messages can add, for each pair of shards.

Owns the socket, ids and order. ``call_handler`` knows what the messages mean.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from iggy_protocol import Buffer, StatusCode, allocate
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.shard.messages import FaultReply, ShardMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iggy_ref_server.client_limits import BufferBudget


HEADER = struct.Struct("<III")
REPLY_BIT = 1 << 31
CALLS_IN_FLIGHT_MAX = 1024
# Large enough that the next full batch travels while the shard writes the one before.
IN_FLIGHT_BYTES_MAX = 8 << 20
BUFFERS_PER_SENDMSG = 64

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ShardMessage)


class MessageReceiver(Protocol):
    """The receiver of a channel's calls."""

    def receive(
        self, channel: ShardChannel, call_id: int, message: ShardMessage, payload: memoryview
    ) -> None:
        """Handle a call without waiting; ``call_id`` is the id for the reply."""

    def batch_done(self) -> None:
        """Handle the end of a batch: all messages received so far were handled."""


class ShardChannel:
    """One end of the channel between two shards.

    Args:
        connected: this side's socket.
        receiver: reads what arrives.
        budget: what the shard may hold; None counts nothing.

    Attributes:
        held_bytes: what counts in the budget.
    """

    def __init__(
        self,
        connected: trio.socket.SocketType,
        receiver: MessageReceiver,
        budget: BufferBudget | None = None,
    ) -> None:
        self._socket = connected
        self._receiver = receiver
        self._budget = budget
        self.held_bytes = 0
        self._worked_on: dict[int, int] = {}
        # Where the answers that are not sent end in the stream, and their sizes.
        self._answers: deque[tuple[int, int]] = deque()
        self._written_bytes = self._sent_bytes = 0
        self._unsent: deque[memoryview] = deque()
        self._in_flight_bytes = 0
        self._send_wakeup = trio.Event()
        self._capacity = trio.lowlevel.ParkingLot()
        self._calls: dict[int, tuple[Callable[[ShardMessage, memoryview], None], int]] = {}
        self._parked: set[int] = set()
        self._next_id = 1
        self._is_closed = False

    # Calls

    @property
    def is_full(self) -> bool:
        """Whether a further call has to wait."""
        return (
            len(self._calls) - len(self._parked) >= CALLS_IN_FLIGHT_MAX
            or self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX
        )

    def call_nowait(
        self,
        message: ShardMessage,
        payload: Sequence[Buffer],
        on_reply: Callable[[ShardMessage, memoryview], None],
    ) -> int:
        """Call without waiting; ``on_reply`` gets the reply, which may be a ``FaultReply``.

        Returns:
            The id of the call; 0 if it has its reply already.
        """
        if self._is_closed:
            on_reply(
                FaultReply(StatusCode.SHARD_COMMUNICATION_ERROR, "the shard has ended"),
                memoryview(b""),
            )
            return 0
        call_id = self._next_id
        size_bytes = self._write(call_id, message, payload)
        self._calls[call_id] = on_reply, size_bytes
        self._in_flight_bytes += size_bytes
        self._next_id = call_id % (REPLY_BIT - 1) + 1
        return call_id

    def park(
        self, message: ShardMessage, on_reply: Callable[[ShardMessage, memoryview], None]
    ) -> int:
        """Call without waiting, where the reply may take long; such calls do not fill the channel.

        Returns:
            The id of the call, which a ``CancelWaitCall`` names; 0 if it has its reply already.
        """
        call_id = self.call_nowait(message, (), on_reply)
        if call_id:
            self._parked.add(call_id)
        return call_id

    async def call(
        self,
        message: ShardMessage,
        payload: Sequence[Buffer] = (),
        on_reply: Callable[[ShardMessage], None] | None = None,
    ) -> tuple[ShardMessage, memoryview]:
        """Call and wait for the reply.

        Args:
            message: the call.
            payload: what goes with it.
            on_reply: called with a reply that is no fault, before the next message is handled.

        Raises:
            ServerFault: the call failed, or the other shard has ended.
        """
        while self.is_full and not self._is_closed:
            await self._capacity.park()
        done = trio.Event()
        reply: list[tuple[ShardMessage, memoryview]] = []

        def take(message: ShardMessage, payload: memoryview) -> None:
            reply.append((message, payload))
            if on_reply is not None and not isinstance(message, FaultReply):
                on_reply(message)
            done.set()

        self.call_nowait(message, payload, take)
        await done.wait()
        if isinstance(fault := reply[0][0], FaultReply):
            raise ServerFault(fault.status, fault.message)
        return reply[0]

    def reply(self, call_id: int, message: ShardMessage, payload: Sequence[Buffer] = ()) -> None:
        """Answer a question; an answer never waits."""
        self._hold(-self._worked_on.pop(call_id, 0))
        if call_id and not self._is_closed:
            self._write(call_id | REPLY_BIT, message, payload)
            size_bytes = sum(memoryview(part).nbytes for part in payload)
            if size_bytes:
                self._answers.append((self._written_bytes, size_bytes))
                self._hold(size_bytes)

    def _write(self, number: int, message: ShardMessage, payload: Sequence[Buffer]) -> int:
        """Append a message to the send queue; return its size."""
        record = _encoder.encode(message)
        views = [memoryview(part) for part in payload]
        size = sum(view.nbytes for view in views)
        self._unsent.append(memoryview(HEADER.pack(number, len(record), size) + record))
        self._unsent.extend(view for view in views if view.nbytes)
        self._send_wakeup.set()
        size_bytes = HEADER.size + len(record) + size
        self._written_bytes += size_bytes
        return size_bytes

    def _hold(self, change_bytes: int) -> None:
        """Count more, or less."""
        if change_bytes:
            self.held_bytes += change_bytes
            if self._budget is not None:
                self._budget.hold_for_shards(change_bytes)

    # The socket

    async def run(self) -> None:
        """Send and receive until the other end is closed; fail the calls that are left."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                await self._receive()
                nursery.cancel_scope.cancel()
        finally:
            self._is_closed = True
            self._socket.close()
            self._worked_on.clear()
            self._answers.clear()
            self._unsent.clear()
            self._hold(-self.held_bytes)
            gone = FaultReply(StatusCode.SHARD_COMMUNICATION_ERROR, "the shard is gone")
            calls, self._calls = self._calls, {}
            self._parked.clear()
            self._in_flight_bytes = 0
            for on_reply, _ in calls.values():
                on_reply(gone, memoryview(b""))
            self._capacity.unpark_all()

    async def _send(self) -> None:
        while True:
            await self._send_wakeup.wait()
            self._send_wakeup = trio.Event()
            while self._unsent:
                head = [self._unsent[i] for i in range(min(len(self._unsent), BUFFERS_PER_SENDMSG))]
                try:
                    sent = await self._socket.sendmsg(head)
                except OSError:
                    return
                self._note_sent(sent)
                while sent:
                    first = self._unsent.popleft()
                    if sent < first.nbytes:
                        self._unsent.appendleft(first[sent:])
                        break
                    sent -= first.nbytes

    def _note_sent(self, size_bytes: int) -> None:
        self._sent_bytes += size_bytes
        while self._answers and self._answers[0][0] <= self._sent_bytes:
            self._hold(-self._answers.popleft()[1])

    async def _receive(self) -> None:
        head = bytearray(HEADER.size)
        while await self._receive_exactly(memoryview(head)):
            number, record_size, payload_size = HEADER.unpack(head)
            body = memoryview(allocate(record_size + payload_size))
            self._hold(payload_size)
            if not await self._receive_exactly(body):
                return
            if payload_size and number and not number & REPLY_BIT:
                # Until it is answered.
                self._worked_on[number] = payload_size
            else:
                self._hold(-payload_size)
            self._dispatch(number, _decoder.decode(body[:record_size]), body[record_size:])

    async def _receive_exactly(self, buffer: memoryview) -> bool:
        """Receive until the buffer is full; return False when the other end is closed."""
        while buffer.nbytes:
            try:
                size = await self._socket.recv_into(buffer)
            except OSError:
                return False
            if not size:
                return False
            buffer = buffer[size:]
        return True

    def _dispatch(self, number: int, message: ShardMessage, payload: memoryview) -> None:
        if number & REPLY_BIT:
            call = self._calls.pop(number & ~REPLY_BIT, None)
            if call is not None:
                on_reply, size_bytes = call
                self._in_flight_bytes -= size_bytes
                self._parked.discard(number & ~REPLY_BIT)
                if not self.is_full:
                    self._capacity.unpark_all()
                on_reply(message, payload)
        else:
            self._receiver.receive(self, number, message, payload)
        self._receiver.batch_done()
