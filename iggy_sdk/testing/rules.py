"""Fault rules: which commands are affected, and how. No socket and no clock: the proxy acts."""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Any

from iggy_protocol import Command, CommandCode, record

__all__ = ["Action", "CommandName", "Fault", "RuleBook", "Verdict", "command_code"]

CommandName = type[Command[Any]] | str | int
"""A command: its class (``SendMessages``), its name (``"send_messages"``) or its code (101)."""


class Action(Enum):
    """What happens to a command, besides a delay."""

    PASS = "pass"
    ANSWER = "answer"
    SWALLOW = "swallow"
    CUT = "cut"
    CUT_AT_REPLY = "cut at reply"


@record
class Verdict:
    """The effect of the faults on one command.

    Attributes:
        action: what happens to it.
        status: the status of the reply, for ``ANSWER``.
        delay_s: how long it is delayed before that.
    """

    action: Action = Action.PASS
    status: int = 0
    delay_s: float = 0.0


PASS = Verdict()


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
        verdict: what happens to the commands that it matches.
        command: the only command that counts, or None for every one.
        skip: how many matching commands pass first.
        times: how many are affected after that; None is all of them.
    """

    def __init__(
        self, verdict: Verdict, *, command: CommandName | None, skip: int, times: int | None
    ) -> None:
        if skip < 0:
            raise ValueError(f"after_commands is {skip}; give 0 or more")
        if times is not None and times < 1:
            raise ValueError(f"times is {times}; give 1 or more, or None")
        self.verdict = verdict
        self.hits = 0
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

    def strikes(self, code: int) -> bool:
        """Say whether this command is affected, and count it."""
        if self.is_spent or self._code not in {None, code}:
            return False
        if self._skip:
            self._skip -= 1
            return False
        self.hits += 1
        return True


class RuleBook:
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

    def judge(self, code: int) -> Verdict:
        """Decide on a command: delays add up, and of the other faults the oldest wins."""
        self._seen[code] += 1
        if not self._faults:
            return PASS
        delay_s, struck = 0.0, PASS
        for fault in self._faults:
            if struck is not PASS and fault.verdict.action is not Action.PASS:
                continue
            if fault.strikes(code):
                delay_s += fault.verdict.delay_s
                if fault.verdict.action is not Action.PASS:
                    struck = fault.verdict
        self._faults = [fault for fault in self._faults if not fault.is_spent]
        return Verdict(struck.action, struck.status, delay_s) if delay_s else struck
