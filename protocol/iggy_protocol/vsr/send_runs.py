"""Runs of sends: those that follow one that the server has accepted, and say the same.

A client that pipelines single messages, or sends them one after another, repeats the head and the
destination of its requests. Once a server has accepted one of them, those that follow need no
look at each field: ``ExpectedSends`` compares them as bytes, all that are received with one call,
and hands them out as one event with one batch. Whatever differs is left to be taken alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iggy_protocol.batch_send_python import GATHERED_BYTES_MAX
from iggy_protocol.batch_vsr import SMALLEST_BATCH_BYTES, confirm_run, gather_vsr_sends
from iggy_protocol.events import SendsReceived
from iggy_protocol.vsr.heads import REQUEST_HEAD, VSR_HEAD_BYTES, offset_of
from iggy_protocol.vsr.operations import SEND_MESSAGES_OPERATION
from iggy_protocol.vsr.replies import UnansweredRequest

if TYPE_CHECKING:
    from iggy_protocol.base_connection import Limits
    from iggy_protocol.events import RequestId
    from iggy_protocol.receive_buffer import ReceiveBuffer


NUMBER_BYTES: Final = 8
COUNT_BYTES: Final = 4
NUMBER_AT: Final = offset_of(REQUEST_HEAD, "number")
OPERATION_AT: Final = offset_of(REQUEST_HEAD, "operation")
SMALLEST_SEND_BYTES: Final = VSR_HEAD_BYTES + 4 + SMALLEST_BATCH_BYTES
"""The head, the length of the metadata, and a batch of one message without content."""


class ExpectedSends:
    """What the next sends are compared with.

    Args:
        before: a send that the server has accepted.
        request_id: identifies it.
        metadata: those of its body, from the stream to the message count.

    Attributes:
        before: the send.
    """

    __slots__ = ("_head", "_metadata", "_request_id", "before")

    def __init__(self, before: UnansweredRequest, request_id: RequestId, metadata: bytes) -> None:
        self.before: UnansweredRequest = before
        self._request_id = request_id
        self._metadata = metadata
        self._head = bytearray(before.head.encode())

    @staticmethod
    def may_follow(request: UnansweredRequest, limits: Limits) -> bool:
        """Tell whether sends like this one are taken together: small ones, which limits allow."""
        return request.head.size <= GATHERED_BYTES_MAX <= limits.send_bytes_max

    def take(self, buffer: ReceiveBuffer, frames_max: int) -> SendsReceived | None:
        """Take the complete sends at the front that are as expected; None if there are none.

        Args:
            buffer: received bytes.
            frames_max: how many to take at most.
        """
        view, start, end = buffer.view, buffer.start, buffer.end
        if (
            end - start < SMALLEST_SEND_BYTES
            or view[start + OPERATION_AT] != SEND_MESSAGES_OPERATION
            or view.readonly
        ):
            return None
        run = gather_vsr_sends(view[start:end], self._head, self._metadata, frames_max=frames_max)
        if not run.frames_count:
            return None
        self._head[NUMBER_AT : NUMBER_AT + NUMBER_BYTES] = run.numbers[-NUMBER_BYTES:]
        messages = view[start : start + run.messages_bytes]
        buffer.skip(run.size_bytes)
        return SendsReceived(run, messages, self._metadata, self._request_id)


class UnansweredRun(UnansweredRequest):
    """Sends that were taken as one; their heads differ in nothing but their numbers.

    Attributes:
        numbers: of the requests, as integers of 64 bits.
        counts: of their messages, as integers of 32 bits.
        answered: how many of them are answered.
    """

    __slots__ = ("answered", "counts", "numbers")

    def __init__(self, before: UnansweredRequest, numbers: bytes, counts: bytes) -> None:
        super().__init__(before.head, before.code, before.dialect)
        self.numbers: bytes = numbers
        self.counts: bytes = counts
        self.answered: int = 0

    @property
    def left(self) -> int:
        """How many of them are not answered."""
        return len(self.numbers) // NUMBER_BYTES - self.answered

    def oldest(self) -> UnansweredRequest:
        """Return the first of them that is not answered."""
        at = NUMBER_BYTES * self.answered
        number = int.from_bytes(self.numbers[at : at + NUMBER_BYTES], "little")
        return UnansweredRequest(self.head._replace(number=number), self.code, self.dialect)

    def confirm(self, first: bytes) -> bytes:
        """Write the replies to all that are not answered, after the reply to the first of them."""
        return confirm_run(
            first,
            self.numbers[NUMBER_BYTES * self.answered :],
            self.counts[COUNT_BYTES * self.answered :],
        )
