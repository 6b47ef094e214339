"""Hooks: callbacks that observe a client.

A hook never fails the request it observes: its exceptions are logged and counted. Callbacks are
plain functions, run in the task of the caller, and must not block.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from iggy_protocol import (
    Command,
    HeaderScalar,
    Identifier,
    PollDeferred,
    PolledMessages,
    PollMessages,
)
from iggy_protocol import SendMessages as SendMessagesCommand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iggy_sdk.errors import IggyError


_LOGGER: Final = logging.getLogger("iggy_sdk.hooks")


class Hook:
    """Override what you want to see; everything else does nothing."""

    def on_connect(self, endpoint: str) -> None:
        """See a connection that is open and logged in."""

    def on_disconnect(self, endpoint: str, error: IggyError | None) -> None:
        """See a connection end; without an error its owner closed it."""

    def before_request(self, command: Command[Any]) -> None:
        """See a command that is about to be sent."""

    def after_request(
        self,
        command: Command[Any],
        *,
        reply: object,
        error: BaseException | None,
        seconds: float,
    ) -> None:
        """See the reply to a command, or the error that came instead."""

    def before_send(self, command: SendMessagesCommand) -> None:
        """See a batch that is about to be sent, after ``before_request``."""

    def after_send(
        self, command: SendMessagesCommand, *, error: BaseException | None, seconds: float
    ) -> None:
        """See a batch that was sent or refused, after ``after_request``."""

    def on_poll(
        self,
        command: PollMessages | PollDeferred,
        *,
        polled: PolledMessages | None,
        error: BaseException | None,
        seconds: float,
    ) -> None:
        """See what a poll brought, after ``after_request``; one may have waited on the server."""

    def outgoing_headers(
        self, *, stream: Identifier, topic: Identifier
    ) -> Mapping[str, HeaderScalar] | None:
        """Return headers to add to a message that is being handed over for sending here."""
        return None

    def on_message(self, message: Any) -> None:
        """See a received message before it is delivered."""


class Hooks:
    """All hooks of a client; false when there are none, so that callers can skip the work."""

    __slots__ = ("_header_hooks", "_hooks", "failures_count")

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        """Take the hooks, in the order in which they are called."""
        self._hooks = tuple(hooks)
        self._header_hooks = tuple(
            hook for hook in self._hooks if type(hook).outgoing_headers is not Hook.outgoing_headers
        )
        self.failures_count: int = 0

    def __bool__(self) -> bool:
        return bool(self._hooks)

    @property
    def adds_headers(self) -> bool:
        """Tell whether any hook wants to add headers to messages."""
        return bool(self._header_hooks)

    def on_connect(self, endpoint: str) -> None:
        """Call all hooks for a new connection."""
        self._call("on_connect", endpoint)

    def on_disconnect(self, endpoint: str, error: IggyError | None = None) -> None:
        """Call all hooks for the end of a connection."""
        self._call("on_disconnect", endpoint, error)

    def before_request(self, command: Command[Any]) -> None:
        """Call all hooks before a command, and before a batch if it is one."""
        self._call("before_request", command)
        if isinstance(command, SendMessagesCommand):
            self._call("before_send", command)

    def after_request(
        self,
        command: Command[Any],
        *,
        seconds: float,
        reply: object = None,
        error: BaseException | None = None,
    ) -> None:
        """Call all hooks after a command, and after a batch or a poll if it was one."""
        self._call("after_request", command, reply=reply, error=error, seconds=seconds)
        if isinstance(command, SendMessagesCommand):
            self._call("after_send", command, error=error, seconds=seconds)
        elif isinstance(command, PollMessages | PollDeferred):
            polled = reply if isinstance(reply, PolledMessages) else None
            self._call("on_poll", command, polled=polled, error=error, seconds=seconds)

    def outgoing_headers(self, *, stream: Identifier, topic: Identifier) -> dict[str, HeaderScalar]:
        """Collect the headers that hooks add to a message; of equal keys the last one counts."""
        headers: dict[str, HeaderScalar] = {}
        for hook in self._header_hooks:
            try:
                headers.update(hook.outgoing_headers(stream=stream, topic=topic) or {})
            except Exception:
                self._log_failure(hook, "outgoing_headers")
        return headers

    def on_message(self, message: Any) -> None:
        """Call all hooks for a message that is delivered to the user."""
        self._call("on_message", message)

    def _call(self, name: str, *args: Any, **details: Any) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, name)(*args, **details)
            except Exception:
                self._log_failure(hook, name)

    def _log_failure(self, hook: Hook, name: str) -> None:
        self.failures_count += 1
        _LOGGER.exception(
            "the hook %s.%s raised an exception; the request continues", type(hook).__name__, name
        )
