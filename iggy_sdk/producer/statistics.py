"""What a producer has done so far, as one frozen value."""

from __future__ import annotations

from iggy_protocol import record

__all__ = ["ProducerStatistics"]


@record(kw_only=True)
class ProducerStatistics:
    """What a producer has done so far.

    Attributes:
        accepted_count: messages taken from callers.
        delivered_count: messages that the server acknowledged.
        failed_count: messages that were given up.
        batches_count: requests that the server acknowledged.
        retries_count: attempts after the first.
        buffered_bytes: what is in the buffer or on its way.
        in_flight_count: requests that wait for their answers.
        blocked_count: callers that wait for room in the buffer.
        callback_errors_count: exceptions that ``on_error`` raised.
    """

    accepted_count: int = 0
    delivered_count: int = 0
    failed_count: int = 0
    batches_count: int = 0
    retries_count: int = 0
    buffered_bytes: int = 0
    in_flight_count: int = 0
    blocked_count: int = 0
    callback_errors_count: int = 0
