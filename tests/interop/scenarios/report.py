"""What a scenario says: one line of JSON for each step, with what was seen."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# No step takes a second where the server answers. Clients give up on a request after 30 s, and a
# step that hangs shall be named well before the test that waits for it gives up.
STEP_SECONDS_MAX = 10
# Whoever hangs twice hangs again, and the test has to end in time to say where it began.
HANGS_MAX = 2

hangs: list[str] = []


class GaveUp(Exception):
    """Too many steps have hung for the others to be tried."""


def say(**line: Any) -> None:
    """Write one line, at once."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def refusal(error: Exception) -> dict[str, Any]:
    """Return what an error says, with its number where the client tells it."""
    return {"error": str(error) or type(error).__name__, "code": getattr(error, "code", None)}


async def step(name: str, call: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> Any:
    """Do a step and say what it returned or raised; a step that hangs says that."""
    try:
        saw = await asyncio.wait_for(call(*args, **named), STEP_SECONDS_MAX)
    except TimeoutError:
        hangs.append(name)
        saw = {"error": f"nothing came in {STEP_SECONDS_MAX} s", "code": None}
    except Exception as error:
        saw = refusal(error)
    # Versions differ in what they return for nothing.
    say(step=name, saw=None if saw == () else saw)
    if len(hangs) >= HANGS_MAX:
        raise GaveUp(name)
    return saw


async def quiet(call: Callable[..., Awaitable[Any]], *args: Any) -> None:
    """Do what only some versions return something for."""
    await call(*args)
