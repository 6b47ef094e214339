"""io_uring in C: queues shared with the kernel, and the memory it works on.

A ``Ring`` belongs to the process that made it and to one thread at a time. Operations are first
prepared, then submitted together, and their results are reaped when the eventfd is readable. From
preparation to reaping the ring holds the token and every buffer, so neither can vanish or be
resized while the kernel is at it. Results are counts of bytes or 0, or negative error numbers.
"""

from collections.abc import Sequence
from typing import Any, Literal, Self, final

from iggy_protocol import Buffer

# Bytes of undefined content, to be filled by ``Ring.read`` before any other code sees them.
def blank(size: int, /) -> bytes: ...

@final
class Ring:
    # OSError where the kernel refuses or lacks something; its filename says which step failed.
    def __new__(cls, entries: int, /) -> Self: ...
    @property
    def eventfd(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def room(self) -> int: ...
    @property
    def prepared(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def submissions(self) -> int: ...

    # BlockingIOError when there is no room. A linked write that is not done in full cancels what
    # is prepared next.
    def write(
        self,
        token: object,
        descriptor: int,
        buffers: Sequence[Buffer],
        position: int,
        link: bool,
        /,
    ) -> int: ...
    def read(
        self,
        token: object,
        descriptor: int,
        target: bytes | bytearray | memoryview,
        start: int,
        position: int,
        /,
    ) -> int: ...
    def fsync(self, token: object, descriptor: int, datasync: bool, /) -> None: ...
    def cancel(self, token: object, /) -> bool: ...
    # What the kernel cannot take at once stays prepared, and makes the eventfd readable.
    def submit(self, /) -> int: ...
    def reap(self, /) -> list[tuple[Any, int]]: ...
    def close(self, /) -> None: ...

    # Only in a build with IGGY_URING_FAULTS, for tests. The nth such operation from now on, or each
    # one if 0, ends with a negative error number, or does no more than so many bytes or entries; or
    # it is kept back.
    def inject(
        self, operation: Literal["write", "read", "fsync", "submit"], nth: int, result: int, /
    ) -> None: ...
    def hold(self, operation: Literal["write", "read", "fsync"], nth: int, /) -> None: ...
    def release(self, /) -> None: ...
    def heal(self, /) -> None: ...
