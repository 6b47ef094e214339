"""Methods of a blocking producer.

Made from iggy_sdk.producer.producer by ``python -m tools.blocking_facade``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iggy_sdk.blocking.wrapper import BlockingProducerBase, Receipt, as_sequence
from iggy_sdk.producer.producer import T

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iggy_protocol import Identifier, Partitioning
    from iggy_sdk.durations import Seconds
    from iggy_sdk.message import Headers, Message
    from iggy_sdk.producer.options import ProducerOptions
    from iggy_sdk.statistics import ProducerStatistics


class ProducerOperations(BlockingProducerBase[T]):
    """Sends messages to a topic; made by ``client.producer()`` and entered with ``async with``."""

    @property
    def stream(self) -> Identifier:
        """The stream to which it sends."""
        return self._inner.stream

    @property
    def topic(self) -> Identifier:
        """The topic to which it sends."""
        return self._inner.topic

    @property
    def options(self) -> ProducerOptions:
        """The options of this producer."""
        return self._inner.options

    @property
    def is_closed(self) -> bool:
        """Whether it accepts no further messages."""
        return self._inner.is_closed

    def statistics(self) -> ProducerStatistics:
        """Return the counters of the producer."""
        return self._inner.statistics()

    def send(
        self,
        value: T | Message[T],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        partitioning: Partitioning | int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Send one message.

        A direct producer returns when the server has it. One in the background returns when the
        message is in the buffer; the receipt tells when it was delivered.

        Args:
            value: a value, or a ``Message`` of one with headers, id or key.
            key: messages with equal keys go to the same partition and keep their order.
            partition_id: the partition, instead of what the producer was told.
            partitioning: the same as a ``Partitioning``.
            headers: user headers; those of the message itself win.
            timeout: how long the call may take with all its attempts; None takes the
                ``request_timeout``. In the background it bounds the wait for space in the buffer,
                and None waits as the ``backpressure`` says.

        Raises:
            SendFailedError: this message was not sent; in the background, one before it.
            BufferFullError: the buffer has no space, in the background.
            SerdeError: the value cannot be written.
            ProducerClosedError: the producer was closed.
        """
        return Receipt(
            self._loop_thread,
            self._run(
                self._inner.send(
                    value,
                    key=key,
                    partition_id=partition_id,
                    partitioning=partitioning,
                    headers=headers,
                    timeout=timeout,
                )
            ),
        )

    def send_many(
        self,
        values: Iterable[T | Message[T]],
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        partitioning: Partitioning | int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Send several messages, in as few requests as the options allow.

        Args:
            values: values, or ``Message``s of them; or ``MessageRows``, which go as they lie in
                their columns if there is a partition, and nothing is to be done with them.
            key: the key of all messages that bring none.
            partition_id: the partition of all messages.
            partitioning: the same as a ``Partitioning``.
            headers: user headers of all messages; those of a message itself win.
            timeout: how long the call may take, as in ``send``.

        Raises:
            SendFailedError: some were not sent; ``messages`` are those, in order.
            BufferFullError: the buffer has no space for them, in the background.
            SerdeError: a value cannot be written; none of the messages was sent.
            ProducerClosedError: the producer was closed.
        """
        return Receipt(
            self._loop_thread,
            self._run(
                self._inner.send_many(
                    as_sequence(values),
                    key=key,
                    partition_id=partition_id,
                    partitioning=partitioning,
                    headers=headers,
                    timeout=timeout,
                )
            ),
        )

    def send_to(
        self,
        stream: Identifier,
        topic: Identifier,
        values: Iterable[T | Message[T]],
        partitioning: Partitioning | int | None = None,
        *,
        key: str | bytes | None = None,
        partition_id: int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Send several messages to another topic, otherwise as ``send_many``."""
        return Receipt(
            self._loop_thread,
            self._run(
                self._inner.send_to(
                    stream,
                    topic,
                    as_sequence(values),
                    partitioning,
                    key=key,
                    partition_id=partition_id,
                    headers=headers,
                    timeout=timeout,
                )
            ),
        )

    def send_one(self, value: T | Message[T], *, timeout: Seconds | None = None) -> Receipt:
        """Send one message; the official name of ``send``."""
        return Receipt(self._loop_thread, self._run(self._inner.send_one(value, timeout=timeout)))

    def send_with_partitioning(
        self,
        values: Iterable[T | Message[T]],
        partitioning: Partitioning | int | None = None,
        *,
        timeout: Seconds | None = None,
    ) -> Receipt:
        """Send several messages to a partition; the official name for ``send_many``."""
        return Receipt(
            self._loop_thread,
            self._run(
                self._inner.send_with_partitioning(
                    as_sequence(values), partitioning, timeout=timeout
                )
            ),
        )

    def flush(self, *, timeout: Seconds | None = None) -> None:
        """Wait until all messages accepted so far were delivered or have failed.

        Args:
            timeout: how long to wait; None waits until then, which ``delivery_timeout`` bounds.

        Raises:
            SendFailedError: some were not sent, and that was not reported yet.
            RequestTimeoutError: some are still on their way; nothing is lost by that.
        """
        self._run(self._inner.flush(timeout=timeout))
