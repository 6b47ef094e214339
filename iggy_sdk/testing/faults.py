"""Faults that a test injects between its client and the server.

    iggy_server.faults.drop_connection(after_commands=3)
    iggy_server.faults.answer_with(StatusCode.INVALID_COMMAND, command="create_stream")
    iggy_server.faults.heal()

The proxy carries them out. A fault is active when the call returns, and each call takes well under
a millisecond, so async tests may call it directly.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from iggy_protocol import Command, CommandCode, record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iggy_sdk.testing.proxy import Proxy


# Fault rules: which commands are affected, and how. No socket and no clock: the proxy acts.


CommandName = type[Command[Any]] | str | int
"""A command: its class (``SendMessages``), its name (``"send_messages"``) or its code (101)."""


class FaultAction(Enum):
    """What happens to a command, besides a delay."""

    PASS = "pass"
    ANSWER = "answer"
    SWALLOW = "swallow"
    CUT = "cut"
    CUT_AT_REPLY = "cut at reply"


@record
class FaultEffect:
    """The effect of the faults on one command.

    Attributes:
        action: what happens to it.
        status: the status of the reply, for ``ANSWER``.
        delay_s: how long it is delayed before that.
    """

    action: FaultAction = FaultAction.PASS
    status: int = 0
    delay_s: float = 0.0


PASS = FaultEffect()


def command_code(command: CommandName) -> int:
    """Return the code of a command, however it is named.

    Raises:
        ValueError: there is no such command.
    """
    if isinstance(command, type):
        return int(command.CODE)
    if isinstance(command, str):
        names = {code.name.replace("_", ""): int(code) for code in CommandCode}
        code = names.get(command.replace("_", "").upper())
        if code is None:
            raise ValueError(f"there is no command {command!r}; name one such as 'send_messages'")
        return code
    return int(command)


def command_name(code: int) -> str:
    """Return the name of a command, or its code as text where it has none."""
    try:
        return CommandCode(code).name.lower()
    except ValueError:
        return str(code)


class Fault:
    """One injected fault; ``remove()`` ends it, ``hits`` counts the affected commands.

    Args:
        effect: what happens to the commands that it matches.
        command: the only command that counts, or None for every one.
        skip: how many matching commands pass first.
        times: how many are affected after that; None is all of them.
    """

    def __init__(
        self, effect: FaultEffect, *, command: CommandName | None, skip: int, times: int | None
    ) -> None:
        if skip < 0:
            raise ValueError(f"after_commands is {skip}; give 0 or more")
        if times is not None and times < 1:
            raise ValueError(f"times is {times}; give 1 or more, or None")
        self.effect = effect
        self.hits: int = 0
        self._code = None if command is None else command_code(command)
        self._skip = skip
        self._times = times
        self._is_removed = False

    @property
    def is_spent(self) -> bool:
        """Whether it will affect no further command."""
        return self._is_removed or (self._times is not None and self.hits >= self._times)

    def remove(self) -> None:
        """End the fault."""
        self._is_removed = True

    def matches(self, code: int) -> bool:
        """Say whether this command is affected, and count it."""
        if self.is_spent or self._code not in {None, code}:
            return False
        if self._skip:
            self._skip -= 1
            return False
        self.hits += 1
        return True


class FaultRules:
    """The active faults and the commands that were seen."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._seen: Counter[int] = Counter()

    def add(self, fault: Fault) -> Fault:
        """Activate a fault."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """End all faults."""
        for fault in self._faults:
            fault.remove()
        self._faults.clear()

    def forget(self) -> None:
        """Count commands from zero again."""
        self._seen.clear()

    def seen(self) -> dict[str, int]:
        """Return how often each command was seen, affected ones included."""
        return {command_name(code): count for code, count in sorted(self._seen.items())}

    def decide(self, code: int) -> FaultEffect:
        """Decide on a command: delays add up, and of the other faults the oldest wins."""
        self._seen[code] += 1
        if not self._faults:
            return PASS
        delay_s, struck = 0.0, PASS
        for fault in self._faults:
            if struck is not PASS and fault.effect.action is not FaultAction.PASS:
                continue
            if fault.matches(code):
                delay_s += fault.effect.delay_s
                if fault.effect.action is not FaultAction.PASS:
                    struck = fault.effect
        self._faults = [fault for fault in self._faults if not fault.is_spent]
        return FaultEffect(struck.action, struck.status, delay_s) if delay_s else struck


STATUS_MAX = 2**32 - 1


class Faults:
    """Injects faults between clients and the server.

    Every command counts, those included that a client sends by itself: a login, a heartbeat's
    ping, a request for the leader. Name ``command`` to select one: its class
    (``SendMessages``), its name (``"send_messages"``) or its code. From 0.9 on a login is a
    ``"register"``, and in 0.10 every update has the code 16.
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
        action = FaultAction.CUT_AT_REPLY if executed else FaultAction.CUT
        return self._add(FaultEffect(action), command, times, skip=after_commands)

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

        Raises:
            ValueError: the time is not above 0.
        """
        delay_s = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        if delay_s <= 0:
            raise ValueError(f"the delay is {delay_s} s; give more than 0")
        return self._add(FaultEffect(delay_s=delay_s), command, times)

    def answer_with(
        self, code: int, *, command: CommandName | None = None, times: int | None = 1
    ) -> Fault:
        """Answer commands with an error; the server does not see them.

        Args:
            code: the status, such as ``StatusCode.STREAM_ID_NOT_FOUND``.
            command: the only command that is answered so; every one if None.
            times: how many are; all of them if None.

        Raises:
            ValueError: the code is none of an error.
        """
        if not 0 < code <= STATUS_MAX:
            raise ValueError(f"{code} is not an error status; errors are above 0")
        return self._add(FaultEffect(FaultAction.ANSWER, int(code)), command, times)

    def swallow_reply(self, *, command: CommandName | None = None, times: int | None = 1) -> Fault:
        """Let the server execute a command and never tell the client.

        Replies belong to commands by their order, so none that comes later on that connection
        arrives either: to the client the server looks stuck. A new connection is served.

        Args:
            command: the only command whose reply is lost; every one if None.
            times: how many connections fall silent; all of them if None.
        """
        return self._add(FaultEffect(FaultAction.SWALLOW), command, times)

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
        self, effect: FaultEffect, command: CommandName | None, times: int | None, *, skip: int = 0
    ) -> Fault:
        fault = Fault(effect, command=command, skip=skip, times=times)
        return self._proxy.rule(lambda rules: rules.add(fault))
