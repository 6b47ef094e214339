"""The counters of a producer."""

from __future__ import annotations

from iggy_protocol import record

__all__ = ["ProducerStatistics"]


@record(kw_only=True)
class ProducerStatistics:
    """The counters of a producer.

    Attributes:
        accepted_count: messages accepted from callers.
        delivered_count: messages that the server acknowledged.
        failed_count: messages that were not sent.
        batches_count: requests that the server acknowledged.
        retries_count: attempts after the first.
        buffered_bytes: bytes in the buffer or in flight.
        in_flight_count: requests that wait for their answers.
        blocked_count: callers that wait for space in the buffer.
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
