"""Receipts of metadata requests: a repeated request gets the reply of the first one.

A client from 0.9 on repeats a request when it does not know its result: with the same number and
identifier, on the same connection or on another one of its session. The newest replies of each
session are kept as they were sent:

    a repeat while the first runs     waits for it
    a repeat afterwards               gets the same bytes and the same position
    an older number                   is refused; the client has gone on since

Only final results are kept: a request that was refused before anything was done may be tried again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from iggy_protocol import V0_12_0, ByDialect, StatusCode
from iggy_ref_server.completion import Completion
from iggy_ref_server.faults import ServerFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iggy_protocol import Dialect


REPLIES_MAX: Final = 5
"""Of each session, as in Apache Iggy. Clients have one metadata request in flight."""
REPLY_BYTES_MAX: Final = 1 << 20
"""The largest replies tell of a topic with a thousand partitions, in 64 KiB."""
TOTAL_BYTES_MAX: Final = 64 << 20
"""Of all sessions together; the oldest replies are forgotten first."""
OVERHEAD_BYTES: Final = 512
"""What a receipt takes beside the bytes of its reply, so that empty replies count as well."""

STATUS_WITHOUT_RECEIPT: Final = ByDialect(
    StatusCode.REQUEST_ALREADY_APPLIED, {V0_12_0: StatusCode.REQUEST_TOO_OLD}
)
"""What a client is told whose request is older than the replies that are kept."""


class RecordedReply(NamedTuple):
    """A reply as it was sent.

    Attributes:
        status: 0, or the number of an error.
        payload: its bytes without a frame.
        position: where the metadata stood afterwards; 0 if this is no final result.
        close: whether the server closes the connection after it.
    """

    status: int = 0
    payload: bytes = b""
    position: int = 0
    close: bool = False

    @property
    def size_bytes(self) -> int:
        """What it takes in memory."""
        return OVERHEAD_BYTES + len(self.payload)


class ReplyReceipt(Completion):
    """The receipt of one request; it is done when the request is.

    Attributes:
        number: that of the request.
        identifier: that of the request; zeros are none.
        reply: how it was answered; None while it runs, and if nobody knows.
    """

    __slots__ = ("identifier", "number", "reply")

    def __init__(self, number: int, identifier: bytes) -> None:
        super().__init__()
        self.number = number
        self.identifier = identifier
        self.reply: RecordedReply | None = None


class ReceiptBudget:
    """The replies of all sessions, and how much memory they take.

    Args:
        total_bytes_max: what they may take together.

    Attributes:
        total_bytes: what they take.
    """

    def __init__(self, *, total_bytes_max: int = TOTAL_BYTES_MAX) -> None:
        self.total_bytes = 0
        self._total_bytes_max = total_bytes_max
        self._owners: OrderedDict[ReplyReceipt, ReplyReceipts] = OrderedDict()

    def hold(self, receipt: ReplyReceipt, owner: ReplyReceipts) -> None:
        """Count a reply, and forget the oldest ones if all take too much."""
        assert receipt.reply is not None
        self._owners[receipt] = owner
        self.total_bytes += receipt.reply.size_bytes
        while self.total_bytes > self._total_bytes_max:
            oldest, its_owner = next(iter(self._owners.items()))
            its_owner.forget(oldest)

    def release(self, receipt: ReplyReceipt) -> None:
        """Count a reply no more; no error if it was not counted."""
        if self._owners.pop(receipt, None) is not None:
            assert receipt.reply is not None
            self.total_bytes -= receipt.reply.size_bytes


class ReplyReceipts:
    """The newest replies of one session.

    Args:
        dialect: what the client speaks.
        budget: that of all sessions.
    """

    __slots__ = ("_budget", "_newest_number", "_receipts", "_too_old_status")

    def __init__(self, dialect: Dialect, budget: ReceiptBudget) -> None:
        self._too_old_status = STATUS_WITHOUT_RECEIPT[dialect]
        self._budget = budget
        # By number, in the order in which the requests came; numbers rise.
        self._receipts: dict[int, ReplyReceipt] = {}
        self._newest_number = 0

    def __len__(self) -> int:
        return len(self._receipts)

    def find(self, number: int, identifier: bytes) -> ReplyReceipt | None:
        """Return the receipt of the request that this one repeats; None if it is a new one.

        Raises:
            ServerFault: the request is older than what is kept, or another one had its number.
        """
        receipt = self._receipts.get(number)
        if receipt is not None:
            if receipt.identifier != identifier:
                raise ServerFault(
                    StatusCode.INVALID_FORMAT, f"request {number} was another one before"
                )
            return receipt
        if number <= self._newest_number:
            raise ServerFault(
                self._too_old_status,
                f"request {number} is older than {self._newest_number}, and has no receipt",
            )
        return None

    def begin(self, number: int, identifier: bytes) -> ReplyReceipt:
        """Remember a new request, which runs now."""
        assert number > self._newest_number, "a new request has a higher number"
        self._newest_number = number
        receipt = self._receipts[number] = ReplyReceipt(number, identifier)
        self._forget_oldest()
        return receipt

    def settle(self, receipt: ReplyReceipt, reply: RecordedReply) -> None:
        """Note the reply of a request; it is kept if it is a final result."""
        receipt.reply = reply
        if self._receipts.get(receipt.number) is receipt:
            if reply.position and len(reply.payload) <= REPLY_BYTES_MAX:
                self._budget.hold(receipt, self)
            else:
                self._withdraw(receipt, is_final=bool(reply.position))
        receipt.finish()

    def abandon(self, receipt: ReplyReceipt) -> None:
        """Note that a request ended without a reply; what became of it is not known."""
        self._withdraw(receipt, is_final=False)
        unknown = f"request {receipt.number} was interrupted"
        receipt.finish(ServerFault(StatusCode.TRANSIENT_NOT_COMMITTED, unknown))

    def forget(self, receipt: ReplyReceipt) -> None:
        """Forget a reply; a repeat of its request is refused from now on."""
        if self._receipts.get(receipt.number) is receipt:
            del self._receipts[receipt.number]
        self._budget.release(receipt)

    def clear(self) -> None:
        """Forget everything, because the session has ended."""
        for receipt in tuple(self._receipts.values()):
            self.forget(receipt)

    def _withdraw(self, receipt: ReplyReceipt, *, is_final: bool) -> None:
        """Forget a request without a receipt; if it had no final result, it may come again."""
        self.forget(receipt)
        if not is_final and receipt.number == self._newest_number:
            self._newest_number -= 1

    def _forget_oldest(self) -> None:
        """Keep to the bound; what runs stays, and its connections bound that."""
        excess = len(self._receipts) - REPLIES_MAX
        for receipt in tuple(self._receipts.values())[: max(excess, 0)]:
            if receipt.is_done:
                self.forget(receipt)


async def answer_once(
    receipts: ReplyReceipts,
    number: int,
    identifier: bytes,
    answer: Callable[[], Awaitable[RecordedReply]],
) -> RecordedReply:
    """Answer a request, or return the reply to the one that it repeats.

    Raises:
        ServerFault: there is no such reply any more, or the first request was interrupted.
    """
    receipt = receipts.find(number, identifier)
    if receipt is not None:
        await receipt.wait()
        assert receipt.reply is not None
        return receipt.reply
    receipt = receipts.begin(number, identifier)
    try:
        reply = await answer()
    except BaseException:
        receipts.abandon(receipt)
        raise
    receipts.settle(receipt, reply)
    return reply
