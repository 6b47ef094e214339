"""Base classes of the blocking SDK: an async object inside, and the event loop that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from iggy_sdk.consumer import IggyConsumer as AsyncIggyConsumer
from iggy_sdk.producer import Producer as AsyncProducer
from iggy_sdk.value_types import P_contra

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iggy_protocol import SendConfirmation
    from iggy_sdk.blocking.loop_thread import EventLoopThread
    from iggy_sdk.client import IggyClient as AsyncIggyClient
    from iggy_sdk.durations import Seconds
    from iggy_sdk.errors import SendFailedError
    from iggy_sdk.producer import Receipt as AsyncReceipt


R = TypeVar("R")
T = TypeVar("T")


class BlockingBase:
    """An object that runs coroutines in the event loop."""

    _loop_thread: EventLoopThread

    def _run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self._loop_thread.run(coroutine)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled; pass the address instead, "
            "and make a client in the process that uses it"
        )


class BlockingClientBase(BlockingBase):
    """The base of a blocking client."""

    _inner: AsyncIggyClient


class BlockingProducerBase(BlockingBase, Generic[P_contra]):
    """The base of a blocking producer."""

    _inner: AsyncProducer[P_contra]


class BlockingConsumerBase(BlockingBase, Generic[T]):
    """The base of a blocking consumer."""

    _inner: AsyncIggyConsumer[T]


async def in_loop(function: Callable[..., R], *arguments: object) -> R:
    """Call a plain function in the event loop, because it wakes tasks there."""
    return function(*arguments)


def outside_loops(make: Callable[[], R]) -> R:
    """Call a function on a thread without an event loop.

    Locks and events of anyio bind to the running event loop, and the caller of a blocking client
    may be a notebook or a trio task. The client uses another loop.
    """
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(make).result()


def as_sequence(values: Iterable[T]) -> Sequence[T]:
    """Collect an iterable in the caller's thread: the loop must not run the caller's code."""
    return values if isinstance(values, Sequence) else list(values)


# A receipt whose ``delivered()`` blocks.


class Receipt:
    """The delivery of what one call accepted; of a direct producer's it is always done."""

    __slots__ = ("_inner", "_loop_thread")

    def __init__(self, loop_thread: EventLoopThread, inner: AsyncReceipt) -> None:
        self._loop_thread = loop_thread
        self._inner = inner

    @property
    def is_done(self) -> bool:
        """Whether the messages were delivered or have failed."""
        return self._inner.is_done

    @property
    def error(self) -> SendFailedError | None:
        """Why the messages were not sent; None otherwise."""
        return self._inner.error

    @property
    def confirmations(self) -> tuple[SendConfirmation, ...]:
        """Where the messages are, batch by batch, as servers from 0.9 on tell it."""
        return self._inner.confirmations

    @property
    def partition_id(self) -> int | None:
        """The partition of the messages; None if it is not known, or there are several."""
        return self._inner.partition_id

    @property
    def offset(self) -> int | None:
        """The offset of the first message; None if it is not known, or of several batches."""
        return self._inner.offset

    def delivered(self, *, timeout: Seconds | None = None) -> None:
        """Wait until the server has acknowledged the messages.

        Args:
            timeout: how long to wait; None waits until it is known.

        Raises:
            SendFailedError: they were not sent; ``messages`` are those of this receipt.
            RequestTimeoutError: it is not known yet; the producer goes on delivering.
        """
        self._loop_thread.run(self._inner.delivered(timeout=timeout))

    def __repr__(self) -> str:
        return repr(self._inner)
