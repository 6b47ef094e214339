"""Faults that a test injects between its client and the server.

    iggy_server.faults.drop_connection(after_commands=3)
    iggy_server.faults.answer_with(StatusCode.INVALID_COMMAND, command="create_stream")
    iggy_server.faults.heal()

The proxy carries them out. A fault is active when the call returns, and each call takes well under
a millisecond, so async tests may call it directly.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from iggy_sdk.testing.rules import Action, CommandName, Fault, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_sdk.testing.proxy import Proxy

__all__ = ["Faults"]

STATUS_MAX = 2**32 - 1


class Faults:
    """Injects faults between clients and the server.

    Every command counts, those included that a client sends by itself: a login, a heartbeat's
    ping, a request for the leader. Name ``command`` to select one: its class
    (``SendMessages``), its name (``"send_messages"``) or its code.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def drop_connection(
        self,
        *,
        after_commands: int = 0,
        command: CommandName | None = None,
        executed: bool = False,
        times: int = 1,
    ) -> Fault:
        """Cut the connection that carries a command.

        Args:
            after_commands: so many matching commands pass before that, on whatever connection.
            command: the only command that counts; every one if None.
            executed: whether the server gets the command, so that just its answer is lost; if not,
                the server never sees it.
            times: how many connections are cut.
        """
        action = Action.CUT_AT_REPLY if executed else Action.CUT
        return self._add(Verdict(action), command, times, skip=after_commands)

    def delay(
        self,
        seconds: float | timedelta,
        *,
        command: CommandName | None = None,
        times: int | None = None,
    ) -> Fault:
        """Hold commands back before the server gets them; what is behind them waits as well.

        Args:
            seconds: for how long.
            command: the only command that is held back; every one if None.
            times: how many are; all of them if None.
        """
        delay_s = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        if delay_s <= 0:
            raise ValueError(f"the delay is {delay_s} s; give more than 0")
        return self._add(Verdict(delay_s=delay_s), command, times)

    def answer_with(
        self, code: int, *, command: CommandName | None = None, times: int | None = 1
    ) -> Fault:
        """Answer commands with an error; the server does not see them.

        Args:
            code: the status, such as ``StatusCode.STREAM_ID_NOT_FOUND``.
            command: the only command that is answered so; every one if None.
            times: how many are; all of them if None.
        """
        if not 0 < code <= STATUS_MAX:
            raise ValueError(f"{code} is not an error status; errors are above 0")
        return self._add(Verdict(Action.ANSWER, int(code)), command, times)

    def swallow_reply(self, *, command: CommandName | None = None, times: int | None = 1) -> Fault:
        """Let the server execute a command and never tell the client.

        Replies belong to commands by their order, so none that comes later on that connection
        arrives either: to the client the server looks stuck. A new connection is served.

        Args:
            command: the only command whose reply is lost; every one if None.
            times: how many connections fall silent; all of them if None.
        """
        return self._add(Verdict(Action.SWALLOW), command, times)

    def refuse_connections(self) -> None:
        """Refuse new connections, as a machine without a server does; open ones stay."""
        self._proxy.refuse()

    def drop_connections(self) -> int:
        """Cut all connections now and return how many there were."""
        return self._proxy.cut()

    @contextmanager
    def partition(self) -> Iterator[None]:
        """Cut the client off for as long as the block lasts: no connection lives, none is made."""
        self.refuse_connections()
        self.drop_connections()
        try:
            yield
        finally:
            self._proxy.admit()

    def heal(self) -> None:
        """Take every fault back and let clients in; connections that fell silent are cut."""
        self._proxy.heal()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._proxy.connections()

    def commands(self) -> dict[str, int]:
        """Return how often each command came through, by its name; a test starts at none."""
        return self._proxy.rule(lambda rules: rules.seen())

    def _add(
        self, verdict: Verdict, command: CommandName | None, times: int | None, *, skip: int = 0
    ) -> Fault:
        fault = Fault(verdict, command=command, skip=skip, times=times)
        return self._proxy.rule(lambda rules: rules.add(fault))
