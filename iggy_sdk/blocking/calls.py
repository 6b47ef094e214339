"""Base classes of the blocking SDK: an async object inside, and the event loop that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from iggy_sdk.consumer import IggyConsumer as AsyncIggyConsumer
from iggy_sdk.producer import Producer as AsyncProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iggy_sdk.blocking.bridge import Bridge
    from iggy_sdk.client import IggyClient as AsyncIggyClient

__all__ = [
    "Calls",
    "ClientCalls",
    "ConsumerCalls",
    "ProducerCalls",
    "T",
    "in_loop",
    "listed",
    "outside_loops",
]

R = TypeVar("R")
T = TypeVar("T")


class Calls:
    """An object that runs coroutines in the event loop."""

    _bridge: Bridge

    def _run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self._bridge.run(coroutine)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled; pass the address instead, "
            "and make a client in the process that uses it"
        )


class ClientCalls(Calls):
    """The base of a blocking client."""

    _inner: AsyncIggyClient


class ProducerCalls(Calls, Generic[T]):
    """The base of a blocking producer."""

    _inner: AsyncProducer[T]


class ConsumerCalls(Calls, Generic[T]):
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
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(make).result()


def listed(values: Iterable[T]) -> Sequence[T]:
    """Collect an iterable in the caller's thread: the loop must not run the caller's code."""
    return values if isinstance(values, Sequence) else list(values)
