"""Where the official clients are that tests run, and how they are told what to do."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = Path(__file__).parent / "scenarios"
SCENARIO_SECONDS_MAX = 60
END_SECONDS_MAX = 10
COMPLAINT_CHARACTERS_SHOWN = 4_000

CLASSIC_VERSIONS = ("0.7.0", "0.8.0")
# The first speaks the protocol 0.11, the second that of the 0.12 family.
LATER_VERSIONS = ("0.9.0", "0.9.1.dev5")
VERSIONS = CLASSIC_VERSIONS + LATER_VERSIONS


def wheel_python(version: str = "0.8.0") -> Path:
    """Return the interpreter of an environment with an official client; skip where there is none.

    The gate makes these environments first and ends where it cannot, so it skips nothing.
    """
    interpreter = ROOT / ".venv-wheels" / f"apache-iggy-{version}" / "bin" / "python"
    if not interpreter.exists():
        pytest.skip("the wheel is not installed; tests/interop/make_wheel_venvs.sh does that")
    return interpreter


class ScenarioFailed(AssertionError):
    """The client did not come to the end of a scenario; the message says how far it came."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a scenario: what each step saw, in order, and what it returned."""

    steps: dict[str, Any] = field(default_factory=dict)
    returned: Any = None


class OfficialClient:
    """An interpreter with an official client that runs one scenario after the other.

    Starting an interpreter costs more than most scenarios, so tests share it. One that hangs or
    dies is gone, and the next scenario gets another.

    Args:
        version: which client.
        directory: where what it complains about goes.
    """

    def __init__(self, version: str, directory: Path) -> None:
        self.version = version
        self._python = wheel_python(version)
        self._complaints = directory / f"apache-iggy-{version}.txt"
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader: threading.Thread | None = None

    def __enter__(self) -> OfficialClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def run(self, scenario: str, *, seconds_max: float = SCENARIO_SECONDS_MAX, **given: Any) -> Ran:
        """Run a scenario and return what came of it.

        Raises:
            ScenarioFailed: it raised, the interpreter died, or it took too long.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        request = {"run": scenario, "given": given, "seconds_max": seconds_max}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        # The interpreter ends a scenario by itself, with a trace of where it stood.
        deadline = time.monotonic() + seconds_max + END_SECONDS_MAX
        steps: dict[str, Any] = {}
        while text := self._next_line(deadline):
            line = json.loads(text)
            if "step" in line:
                steps[line["step"]] = line["saw"]
            elif "failed" in line:
                raise self._failure(scenario, steps, line["failed"])
            else:
                return Ran(steps, line["returned"])
        self.kill()
        raise self._failure(scenario, steps, "it died or took too long")

    def kill(self) -> None:
        """End the interpreter where it stands, as a client that crashes."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        assert self._reader is not None
        self._reader.join()
        with process:
            process.wait()

    def _next_line(self, deadline: float) -> str:
        """Return what it says next; an empty text when it died or says nothing in time."""
        try:
            return self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return ""

    def _failure(self, scenario: str, steps: dict[str, Any], what: str) -> ScenarioFailed:
        last = next(reversed(steps), "none")
        complaints = self._complaints.read_text(errors="replace")[-COMPLAINT_CHARACTERS_SHOWN:]
        return ScenarioFailed(
            f"{self.version} in {scenario}: {what}; its last step: {last}; "
            f"it complained: {complaints}"
        )

    def _start(self) -> None:
        self.kill()
        with self._complaints.open("ab") as complaints:
            self._process = subprocess.Popen(
                [self._python, "-m", "tests.interop.scenarios.run"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            )
        # Each interpreter has its own queue: what a dead one left unread says nothing of the next.
        self._lines = queue.SimpleQueue()
        reading = (self._process.stdout, self._lines)
        self._reader = threading.Thread(target=_read_all, args=reading, daemon=True)
        self._reader.start()


def _read_all(lines: Any, into: queue.SimpleQueue[str]) -> None:
    """Read until the interpreter is gone, and say so with an empty text."""
    for line in lines:
        into.put(line)
    into.put("")
