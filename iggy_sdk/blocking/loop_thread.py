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


THREAD_NAME = "iggy-blocking"

R = TypeVar("R")
T = TypeVar("T")


def _not_open_error() -> ClientClosedError:
    return ClientClosedError(
        "the client is not open",
        advice="Use `with IggyClient(...) as client:`, or call connect() first.",
    )


class LoopCall(Generic[R]):
    """One coroutine that runs in the loop and may be cancelled at any moment."""

    def __init__(self, coroutine: Coroutine[Any, Any, R]) -> None:
        self._coroutine = coroutine
        self._scope: anyio.CancelScope | None = None
        self._is_cancelled = False
        self.is_done: bool = False

    async def run(self) -> R:
        """Run the coroutine, unless it was cancelled before."""
        try:
            if not self._is_cancelled:
                with anyio.CancelScope() as self._scope:
                    return await self._coroutine
            raise _not_open_error()
        finally:
            self.close()

    async def cancel(self) -> None:
        """Cancel the coroutine, or prevent its start."""
        self._is_cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def close(self) -> None:
        """Close a coroutine that does not run."""
        self.is_done = True
        self._coroutine.close()


class HostedContext(Generic[T]):
    """An async context manager that lives in the loop from ``enter`` to ``leave``.

    One task enters and leaves it, as task groups demand.
    """

    def __init__(
        self, loop_thread: EventLoopThread, manager: AbstractAsyncContextManager[T]
    ) -> None:
        self._loop_thread = loop_thread
        self._manager = manager
        self._leave: anyio.Event | None = None
        self._reason: tuple[
            type[BaseException] | None, BaseException | None, TracebackType | None
        ] = (None, None, None)
        self._ended: Future[bool | None] | None = None

    def enter(self) -> T:
        """Enter it and return what it gives."""
        entered: Future[T] = Future()
        self._ended = self._loop_thread.start(self._host_context(entered))
        self._ended.add_done_callback(lambda _: entered.done() or entered.cancel())
        try:
            return entered.result()
        except CancelledError:
            raise _not_open_error() from None
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
        self._loop_thread.run(self._request_leave())
        try:
            return ended.result()
        except CancelledError:
            return None
        except BaseException:
            ended.cancel()
            raise

    async def _request_leave(self) -> None:
        assert self._leave is not None
        self._leave.set()

    async def _host_context(self, entered: Future[T]) -> bool | None:
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


class EventLoopThread:
    """An event loop on a thread; ``open()`` starts it, ``close()`` ends all that lives there."""

    def __init__(self) -> None:
        self._portal: BlockingPortal | None = None
        self._thread = ExitStack()
        self._hosted: list[HostedContext[Any]] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._finalizer: weakref.finalize[Any, Any] | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are possible."""
        return self._portal is not None

    def open(self, owner: object) -> None:
        """Start the thread; it ends with its owner at the latest."""
        with self._lock:
            if self._portal is None:
                self._pid = os.getpid()
                self._portal = self._thread.enter_context(
                    start_blocking_portal("asyncio", name=THREAD_NAME)
                )
                self._finalizer = weakref.finalize(owner, _close_unclosed, self, repr(owner))

    def close(self) -> None:
        """Leave all hosted contexts, the last first, and end the thread."""
        if self._is_forked():
            # The thread exists only in the parent process, so there is nothing to end.
            self._portal, self._hosted = None, []
            return
        with self._lock:
            portal, hosted = self._portal, self._hosted
            self._hosted = []
        if self._finalizer is not None:
            self._finalizer.detach()
        if portal is None:
            return
        with self._thread:
            self._thread.callback(self._stop_calls)
            for one in hosted:
                self._thread.callback(one.leave)

    def host(self, manager: AbstractAsyncContextManager[T]) -> tuple[HostedContext[T], T]:
        """Enter an async context manager in the loop; ``close`` leaves it at the latest."""
        hosted = HostedContext(self, manager)
        value = hosted.enter()
        with self._lock:
            self._hosted.append(hosted)
        return hosted, value

    def release(self, hosted: HostedContext[T]) -> None:
        """Forget a context that was left."""
        with self._lock:
            if hosted in self._hosted:
                self._hosted.remove(hosted)

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop and wait for what it returns.

        Raises:
            ClientClosedError: there is no loop, or it ended meanwhile, or this is a fork.
        """
        call = LoopCall(coroutine)
        try:
            return self._submit(call).result()
        except CancelledError:
            raise _not_open_error() from None
        except BaseException:
            # Unless the coroutine itself raised, the wait was interrupted: cancel the coroutine.
            if not call.is_done:
                self._submit(LoopCall(call.cancel()))
            raise

    def start(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        """Start a coroutine in the loop without waiting for it."""
        return self._submit(LoopCall(coroutine))

    def _submit(self, call: LoopCall[R]) -> Future[R]:
        try:
            portal = self._running_portal()
            return portal.start_task_soon(call.run)
        except ClientClosedError:
            call.close()
            raise
        except RuntimeError:
            call.close()
            raise self._submit_error() from None

    def _submit_error(self) -> Exception:
        if self.is_open and threading.current_thread().name == THREAD_NAME:
            return RuntimeError(
                "the blocking client was called from one of its own callbacks; "
                "use the async client there, or hand the work to another thread"
            )
        return _not_open_error()

    def _running_portal(self) -> BlockingPortal:
        if self._is_forked():
            raise ClientClosedError(
                "the client was opened in another process, before a fork",
                advice="Create a client in each process, after the fork.",
            )
        if self._portal is None:
            raise _not_open_error()
        return self._portal

    def _is_forked(self) -> bool:
        return self._pid != os.getpid()

    def _stop_calls(self) -> None:
        self._portal = None


def _close_unclosed(loop_thread: EventLoopThread, owner: str) -> None:
    warnings.warn(f"{owner} was not closed: use `with`, or call close()", ResourceWarning, 2)
    if threading.current_thread().name == THREAD_NAME:
        # The garbage collector may run on the thread of the loop, which cannot wait for itself.
        threading.Thread(target=loop_thread.close).start()
    else:
        loop_thread.close()
