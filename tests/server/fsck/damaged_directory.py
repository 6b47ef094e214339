"""A data directory on a real disk with known messages, and helpers to damage and read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from trio.testing import MockClock

from iggy_protocol import (
    ConsumerIdentity,
    CreateConsumerGroup,
    CreateStream,
    CreateTopic,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StoreConsumerOffset,
)
from iggy_ref_server.fsck import check, repair
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.simulated.server import Refused, open_simulated_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.server.simulated.server import Client

MESSAGES = [b"message %02d" % number + bytes(100) for number in range(40)]
SETTINGS = {"SYSTEM_SEGMENT_SIZE": "2 KiB"}
HEADER_BYTES = 64


class DataDirectory:
    """A data directory with two partitions of 40 messages, in several segments each.

    Args:
        directory: where it is made.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.printed: list[str] = []
        self._serve(self._fill)

    def partition(self, number: int = 0) -> Path:
        """Name the directory of a partition."""
        return self.directory / "streams/0/topics/0/partitions" / str(number)

    def logs(self, number: int = 0) -> list[Path]:
        """List the logs of a partition, oldest first."""
        return sorted(self.partition(number).glob("*.log"))

    def content(self) -> dict[str, bytes]:
        """Return every file but those that belong to no server."""
        return {
            path.relative_to(self.directory).as_posix(): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file() and path.name != ".lock"
        }

    def check(self) -> int:
        """Check the directory; the output is in ``printed``."""
        return self._run(check)

    def repair(self) -> int:
        """Repair the directory; the output is in ``printed``."""
        return self._run(repair)

    def text(self) -> str:
        """Return the last output."""
        return "\n".join(self.printed)

    def _run(self, command: Callable[[Path, Callable[[str], None]], int]) -> int:
        self.printed.clear()
        return command(self.directory, self.printed.append)

    # ---- as a server sees it

    def read(self, number: int = 0) -> dict[int, bytes]:
        """Start a server, and read all messages of a partition by their offsets."""
        found: dict[int, bytes] = {}

        async def poll(client: Client) -> None:
            start = 0
            while True:
                strategy = PollingStrategy.offset(start)
                question = PollMessages(ConsumerIdentity.single(9), "s", "t", strategy, 7, number)
                messages = (await client.ask(question)).messages
                if not len(messages):
                    return
                for message in messages:
                    found[message.offset] = bytes(message.payload)
                    start = message.offset + 1

        self._serve(poll)
        return found

    def next_offset(self, number: int = 0) -> int:
        """Start a server, send a message, and return the offset that it got."""

        async def send(client: Client) -> None:
            where = Partitioning.partition(number)
            await client.ask(SendMessages("s", "t", where, [b"new"]))

        self._serve(send)
        [offset] = [at for at, payload in self.read(number).items() if payload == b"new"]
        return offset

    def is_served(self, number: int = 0) -> bool:
        """Start a server, and tell whether it serves a partition."""
        is_served = True
        try:
            self.read(number)
        except* Refused:
            is_served = False
        return is_served

    def _serve(self, work: Callable[[Client], Awaitable[None]]) -> None:
        async def run() -> None:
            storage = ThreadStorage(self.directory)
            async with open_simulated_server(storage, settings=SETTINGS) as world:
                await work(await world.log_in())
            await storage.aclose()

        trio.run(run, clock=MockClock(autojump_threshold=1))

    async def _fill(self, client: Client) -> None:
        await client.ask(CreateStream("s"))
        await client.ask(CreateTopic("s", "t", 2))
        await client.ask(CreateConsumerGroup("s", "t", "g"))
        for number in range(2):
            where = Partitioning.partition(number)
            for message in MESSAGES:
                await client.ask(SendMessages("s", "t", where, [message]))
            await client.ask(StoreConsumerOffset(ConsumerIdentity.single(1), "s", "t", 20, number))


def flip(path: Path, at: int) -> None:
    """Turn one bit over."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
