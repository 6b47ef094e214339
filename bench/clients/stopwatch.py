"""How a client is timed, in the same way whichever client it is: some rounds, or some seconds.

Runs in the environments of other clients too, so it needs nothing but Python. Owns the clock and
the figure. Knows no client.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Stopwatch:
    """Counts operations for some seconds, after a warm-up, and remembers how long each took.

    Args:
        seconds: how long.
        server_cpu_s: tells how long the server has been on a core so far.
    """

    def __init__(
        self, seconds: float, server_cpu_s: Callable[[], float] = time.process_time
    ) -> None:
        self._seconds = seconds
        self._server_cpu_s = server_cpu_s
        self._took: list[float] = []
        self._began = time.perf_counter()
        self._server_began = self._client_began = 0.0

    async def repeat(self, operation: Callable[[], Awaitable[object]]) -> None:
        """Do something again and again until the time is up."""
        clock = time.perf_counter
        warm_until = clock() + self._seconds / 5
        while clock() < warm_until:
            await operation()
        self._server_began, self._client_began = self._server_cpu_s(), time.process_time()
        self._began = now = clock()
        end = now + self._seconds
        while now < end:
            await operation()
            done = clock()
            self._took.append(done - now)
            now = done

    def report(self, messages_each: int) -> None:
        """Print what came out."""
        elapsed = time.perf_counter() - self._began
        server_s = self._server_cpu_s() - self._server_began
        client_s = time.process_time() - self._client_began
        took = sorted(self._took)
        figure = {
            "messages_s": len(took) * messages_each / elapsed,
            "p50_us": took[len(took) // 2] * 1e6,
            "p99_us": took[len(took) * 99 // 100] * 1e6,
            "server_us": server_s / len(took) * 1e6,
            "client_us": client_s / len(took) * 1e6,
        }
        sys.stdout.write(json.dumps(figure) + "\n")
        sys.stdout.flush()
