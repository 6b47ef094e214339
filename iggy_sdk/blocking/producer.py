"""A producer that blocks: the same calls without await, and ``with`` instead of ``async with``.

Threads may share it. Callbacks such as ``on_error`` run on the thread of the loop.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Generic

from iggy_sdk.blocking.producer_operations import ProducerOperations
from iggy_sdk.blocking.wrapper import BlockingBase, in_loop
from iggy_sdk.value_types import P_contra

if TYPE_CHECKING:
    from types import TracebackType

    from iggy_sdk import producer
    from iggy_sdk.blocking.loop_thread import EventLoopThread
    from iggy_sdk.durations import Seconds


class Producer(ProducerOperations[P_contra]):
    """Sends messages to a topic; made by ``client.producer()`` and entered with ``with``."""

    def __init__(self, loop_thread: EventLoopThread, inner: producer.Producer[P_contra]) -> None:
        """Enter an async producer in the loop."""
        self._loop_thread = loop_thread
        self._hosted, self._inner = loop_thread.host(inner)

    def close(self, *, timeout: Seconds | None = None) -> None:
        """Deliver what is in the buffer, and accept no further messages. May be called again.

        Args:
            timeout: how long delivering may take, after which the rest is given up; None waits for
                all of it, which ``delivery_timeout`` bounds.

        Raises:
            SendFailedError: messages were not sent, and that was not reported yet.
        """
        try:
            if timeout is not None and self._loop_thread.is_open:
                self._run(self._inner.aclose(timeout=timeout))
        finally:
            self.__exit__(None, None, None)

    def shutdown(self, *, timeout: Seconds | None = None) -> None:
        """Close the producer; the official name of ``close``."""
        self.close(timeout=timeout)

    def __enter__(self) -> Producer[P_contra]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop_thread.release(self._hosted)
        self._hosted.leave(kind, error, trace)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"


class ProducerBuilderBase(BlockingBase, Generic[P_contra]):
    """Enters a producer with collected options."""

    def __init__(
        self, loop_thread: EventLoopThread, inner: producer.ProducerBuilder[P_contra]
    ) -> None:
        """Take the options as the async client collected them."""
        self._loop_thread = loop_thread
        self._inner = inner
        # A builder may be entered several times, by several threads; each leaves its own producer.
        self._entered: defaultdict[int, list[Producer[P_contra]]] = defaultdict(list)

    def open(self) -> Producer[P_contra]:
        """Enter a producer without a block; ``close()`` it in the end.

        Raises:
            StreamNotFoundError, TopicNotFoundError: there is none, and none was to be created.
        """
        return Producer(self._loop_thread, self._run(in_loop(self._inner.make)))

    def __enter__(self) -> Producer[P_contra]:
        producer = self.open()
        self._entered[threading.get_ident()].append(producer)
        return producer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stack = self._entered[threading.get_ident()]
        producer = stack.pop()
        if not stack:
            del self._entered[threading.get_ident()]
        producer.__exit__(kind, error, trace)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerBuilderBase) and self._inner == other._inner

    def __hash__(self) -> int:
        return hash(self._inner)

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"
