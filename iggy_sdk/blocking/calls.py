"""What the blocking classes stand on: an async object inside, and the bridge to it."""

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
    """Whoever has a bridge to call through."""

    _bridge: Bridge

    def _run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return self._bridge.run(coroutine)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot leave its process; send the address instead, "
            "and make a client where it is used"
        )


class ClientCalls(Calls):
    """Whoever has an async client behind the bridge."""

    _inner: AsyncIggyClient


class ProducerCalls(Calls, Generic[T]):
    """Whoever has an async producer behind the bridge."""

    _inner: AsyncProducer[T]


class ConsumerCalls(Calls, Generic[T]):
    """Whoever has an async consumer behind the bridge."""

    _inner: AsyncIggyConsumer[T]


async def in_loop(function: Callable[..., R], *arguments: object) -> R:
    """Call a plain function where the tasks run, because it wakes some of them."""
    return function(*arguments)


def outside_loops(make: Callable[[], R]) -> R:
    """Make something where no event loop runs, whatever runs here.

    Locks and events take the engine of the caller if there is one, and the caller of a blocking
    client may well be a notebook or a trio task. Ours is another loop.
    """
    with ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(make).result()


def listed(values: Iterable[T]) -> Sequence[T]:
    """Take the values here, in the caller's thread: the loop must not run the caller's code."""
    return values if isinstance(values, Sequence) else list(values)
