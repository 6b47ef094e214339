"""A process that forks while it has a ring; exits with 0 if the child could do no harm.

usage: forked_ring.py FILE
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING

from iggy_ref_server._uring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable


def is_refused(use: Callable[[], object]) -> bool:
    """Tell whether a ring says whose it is instead of being used."""
    try:
        use()
    except RuntimeError as error:
        return f"belongs to process {os.getppid()}" in str(error)
    return False


def misuse(ring: Ring, file: int) -> bool:
    """Try all that a child could try; tell whether all of it was refused."""
    uses: list[Callable[[], object]] = [
        lambda: ring.write("stolen", file, [b"from the child"], 0, False),
        lambda: ring.read("stolen", file, bytearray(5), 0, 0),
        lambda: ring.fsync("stolen", file, True),
        lambda: ring.cancel("mine"),
        lambda: ring.inject("write", 1, -5),
        lambda: ring.hold("write", 1),
        lambda: ring.eventfd,
        lambda: ring.room,
        lambda: ring.prepared,
        ring.submit,
        ring.reap,
        ring.release,
        ring.heal,
    ]
    return [is_refused(use) for use in uses] == [True] * len(uses)


def main(path: str) -> int:
    """Fork between preparing and submitting."""
    ring = Ring(4)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    buffer = bytearray(b"from the parent")
    ring.write("mine", file, [buffer], 0, False)
    child = os.fork()
    if child == 0:
        was_refused = misuse(ring, file)
        ring.close()
        buffer.append(0)
        os._exit(0 if was_refused else 1)
    if os.waitpid(child, 0)[1]:
        return 1
    ring.submit()
    select.select([ring.eventfd], [], [])
    is_intact = ring.reap() == [("mine", 15)] and os.pread(file, 99, 0) == b"from the parent"
    ring.close()
    return 0 if is_intact else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
