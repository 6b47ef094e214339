"""The event loop of the blocking SDK, on its own thread, and calls into it.

What was opened last is closed first. An interrupted call (Ctrl-C, a signal handler that raises) is
cancelled in the loop, never left running there. The thread belongs to the process that started it:
threads do not survive a fork.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from anyio.from_thread import start_blocking_portal

from iggy_sdk.errors import ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from anyio.from_thread import BlockingPortal

__all__ = ["Bridge", "Hosted"]

THREAD_NAME = "iggy-blocking"

R = TypeVar("R")
T = TypeVar("T")


def _closed() -> ClientClosedError:
    return ClientClosedError(
        "the client is not open",
        advice="Use `with IggyClient(...) as client:`, or call connect() first.",
    )


class Call(Generic[R]):
    """One coroutine that runs in the loop and may be cancelled at any moment."""

    def __init__(self, coroutine: Coroutine[Any, Any, R]) -> None:
        self._coroutine = coroutine
        self._scope: anyio.CancelScope | None = None
        self._is_given_up = False
        self.is_done = False

    async def run(self) -> R:
        """Run the coroutine, unless it was cancelled before."""
        try:
            if not self._is_given_up:
                with anyio.CancelScope() as self._scope:
                    return await self._coroutine
            raise _closed()
        finally:
            self.close()

    async def give_up(self) -> None:
        """Cancel the coroutine, or prevent its start."""
        self._is_given_up = True
        if self._scope is not None:
            self._scope.cancel()

    def close(self) -> None:
        """Close a coroutine that does not run."""
        self.is_done = True
        self._coroutine.close()


class Hosted(Generic[T]):
    """An async context manager that lives in the loop from ``enter`` to ``leave``.

    One task enters and leaves it, as task groups demand.
    """

    def __init__(self, bridge: Bridge, manager: AbstractAsyncContextManager[T]) -> None:
        self._bridge = bridge
        self._manager = manager
        self._leave: anyio.Event | None = None
        self._reason: tuple[
            type[BaseException] | None, BaseException | None, TracebackType | None
        ] = (None, None, None)
        self._ended: Future[bool | None] | None = None

    def enter(self) -> T:
        """Enter it and return what it gives."""
        entered: Future[T] = Future()
        self._ended = self._bridge.start(self._live(entered))
        self._ended.add_done_callback(lambda _: entered.done() or entered.cancel())
        try:
            return entered.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            self._ended.cancel()
            self._ended = None
            raise

    def leave(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> bool | None:
        """Leave it, with the error of the block if there is one; a second time does nothing."""
        ended, self._ended = self._ended, None
        if ended is None:
            return None
        self._reason = kind, error, trace
        self._bridge.run(self._ask_to_leave())
        try:
            return ended.result()
        except CancelledError:
            return None
        except BaseException:
            ended.cancel()
            raise

    async def _ask_to_leave(self) -> None:
        assert self._leave is not None
        self._leave.set()

    async def _live(self, entered: Future[T]) -> bool | None:
        self._leave = anyio.Event()
        try:
            value = await self._manager.__aenter__()
        except Exception as error:
            entered.set_exception(error)
            return None
        entered.set_result(value)
        result: bool | None = None
        try:
            await self._leave.wait()
        finally:
            result = await self._manager.__aexit__(*self._reason)
        return result


class Bridge:
    """An event loop on a thread; ``open()`` starts it, ``close()`` ends all that lives there."""

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None
        self._thread = ExitStack()
        self._hosted: list[Hosted[Any]] = []
        self._changing = threading.Lock()
        self._pid = os.getpid()
        self._at_the_end: weakref.finalize[Any, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are possible."""
        return self._portal is not None

    def open(self, owner: object) -> None:
        """Start the thread; it ends with its owner at the latest."""
        with self._changing:
            if self._portal is None:
                self._pid = os.getpid()
                self._portal = self._thread.enter_context(
                    start_blocking_portal("asyncio", name=THREAD_NAME)
                )
                self._at_the_end = weakref.finalize(owner, _close_forgotten, self, repr(owner))

    def close(self) -> None:
        """Leave all hosted contexts, the last first, and end the thread."""
        if self._is_forked():
            # The thread exists only in the parent process, so there is nothing to end.
            self._portal, self._hosted = None, []
            return
        with self._changing:
            portal, hosted = self._portal, self._hosted
            self._hosted = []
        if self._at_the_end is not None:
            self._at_the_end.detach()
        if portal is None:
            return
        with self._thread:
            self._thread.callback(self._stop_calls)
            for one in hosted:
                self._thread.callback(one.leave)

    def host(self, manager: AbstractAsyncContextManager[T]) -> tuple[Hosted[T], T]:
        """Enter an async context manager in the loop; ``close`` leaves it at the latest."""
        hosted = Hosted(self, manager)
        value = hosted.enter()
        with self._changing:
            self._hosted.append(hosted)
        return hosted, value

    def release(self, hosted: Hosted[T]) -> None:
        """Forget a context that was left."""
        with self._changing:
            if hosted in self._hosted:
                self._hosted.remove(hosted)

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop and wait for what it returns.

        Raises:
            ClientClosedError: there is no loop, or it ended meanwhile, or this is a fork.
        """
        call = Call(coroutine)
        try:
            return self._hand_over(call).result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            # Unless the coroutine itself raised, the wait was interrupted: cancel the coroutine.
            if not call.is_done:
                self._hand_over(Call(call.give_up()))
            raise

    def start(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        """Start a coroutine in the loop without waiting for it."""
        return self._hand_over(Call(coroutine))

    def _hand_over(self, call: Call[R]) -> Future[R]:
        try:
            portal = self._running_portal()
            return portal.start_task_soon(call.run)
        except ClientClosedError:
            call.close()
            raise
        except RuntimeError:
            call.close()
            raise self._not_taken() from None

    def _not_taken(self) -> Exception:
        if self.is_open and threading.current_thread().name == THREAD_NAME:
            return RuntimeError(
                "the blocking client was called from one of its own callbacks; "
                "use the async client there, or hand the work to another thread"
            )
        return _closed()

    def _running_portal(self) -> BlockingPortal:
        if self._is_forked():
            raise ClientClosedError(
                "the client was opened in another process, before a fork",
                advice="Create a client in each process, after the fork.",
            )
        if self._portal is None:
            raise _closed()
        return self._portal

    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

    def _stop_calls(self) -> None:
        self._portal = None


def _close_forgotten(bridge: Bridge, owner: str) -> None:
    warnings.warn(f"{owner} was not closed: use `with`, or call close()", ResourceWarning, 2)
    if threading.current_thread().name == THREAD_NAME:
        # The garbage collector may run on the thread of the loop, which cannot wait for itself.
        threading.Thread(target=bridge.close).start()
    else:
        bridge.close()
