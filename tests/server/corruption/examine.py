"""Look at a data directory as its owner would: what fsck says, and what a server serves.

The server is the same code as in a process, with real files and worker threads, reached through
streams in memory; a process of its own is asked in the same way.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import trio

from iggy_protocol import (
    ConsumerIdentity,
    GetConsumerOffset,
    GetStreams,
    GetTopics,
    GetUsers,
    LoginUser,
    LoginWithPersonalAccessToken,
    Partitioning,
    PollingStrategy,
    PollMessages,
    RemoteProtocolError,
    SendMessages,
)
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.config.tree import ConfigError
from iggy_ref_server.fsck.command import check_context, repair_context
from iggy_ref_server.fsck.context import FsckContext
from iggy_ref_server.metadata.errors import MetadataError
from iggy_ref_server.process.locks import writes_survived
from iggy_ref_server.storage.interface import StorageError
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server import wire_client
from tests.server.running import RunningServer, ServerFailed
from tests.server.simulated import server
from tests.server.simulated.server import make_config, open_simulated_server
from tests.server.watching import unforeseen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.server.corruption.sample_data import PartitionTruth, Truth

Ask = Callable[[Any], Awaitable[Any]]

REFUSALS = (server.Refused, wire_client.Refused)
HANG_UPS = (server.ConnectionLost, wire_client.ConnectionLost, ConnectionError)
FORESEEN = (StorageError, MetadataError, ConfigError)
"""What a start may be refused with: these have words for the person who runs the server."""
CHECKER = ConsumerIdentity.single(9)
POLLED_MAX = 40
SERVED_SECONDS_MAX = 30
BEYOND = 2
# No partition of a specimen has more.
MESSAGES_MAX = 10_000
NEW_MESSAGE = b"a message after all this"
PARTITION = re.compile(r"streams/\d+/topics/\d+/partitions/\d+")
LOST = re.compile(r"the messages ([\d, to]+?) are (?:lost|missing)")
LOST_FROM = re.compile(r"all messages from (\d+) on are lost")
FINDING = re.compile(r"(?:repairable|not repairable): (.*)")
EMPTIED = re.compile(r"repair .*\bbegins (?:it|the partition) (?:empty|anew)")
TORN = re.compile(r"a server truncates them")


@dataclass
class PartitionSeen:
    """What a server serves of a partition.

    Attributes:
        messages: by offset, those whose checksum holds.
        broken: offsets under which something was served whose checksum does not hold.
        refused: the status of the first refused poll; None when none was.
        undecodable: what is wrong with an answer that no client can read.
        stored: stored offsets by the name of their file; None where there is none.
        new_offset: what a new message got; None where it was refused.
    """

    messages: dict[int, bytes] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    refused: int | None = None
    undecodable: str = ""
    stored: dict[str, int | None] = field(default_factory=dict)
    new_offset: int | None = None


@dataclass
class Seen:
    """What a server serves of a data directory.

    Attributes:
        refusal: why it did not start, in its own words; empty when it did.
        unforeseen: errors that nobody has words for, wherever they showed.
        is_locked_out: whether nobody could log in.
        streams: names of streams, with the names of their topics.
        users: names of users.
        partitions: by the path of their files.
    """

    refusal: str = ""
    unforeseen: list[str] = field(default_factory=list)
    is_locked_out: bool = False
    streams: dict[str, set[str]] = field(default_factory=dict)
    users: set[str] = field(default_factory=set)
    partitions: dict[str, PartitionSeen] = field(default_factory=dict)

    @property
    def is_started(self) -> bool:
        """Whether the server came up."""
        return not self.refusal


@dataclass
class Verdict:
    """What fsck says.

    Attributes:
        status: 0 sound, 1 to mend, 2 beyond that.
        said: all lines.
        lost: what it says is lost, by the path of the partition.
        torn: paths of partitions with a log whose end a server would cut off, as it is said.
        found: the paths of all findings.
        emptied: paths of partitions that a repair begins anew, with all files in quarantine.
        unforeseen: an error without words.
    """

    status: int
    said: list[str] = field(default_factory=list)
    lost: dict[str, set[int]] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    unforeseen: str = ""

    @property
    def grave(self) -> set[str]:
        """The findings that may concern messages: indexes of killed servers just lag behind."""
        return {path for path in self.found if not path.endswith(".index")}

    @property
    def is_quiet(self) -> bool:
        """Whether nothing was found that may concern messages or metadata."""
        return self.status != BEYOND and not self.grave

    @property
    def concerns_metadata(self) -> bool:
        """Whether something was found that is not about single partitions."""
        return self.status == BEYOND or not all(map(PARTITION.match, self.grave))

    def concerns(self, path: str) -> bool:
        """Tell whether anything was found at a path, below it or above it."""
        return any(found.startswith(path) or path.startswith(found) for found in self.grave)

    def add(self, earlier: Verdict) -> None:
        """Remember what was found before somebody mended it: lost stays lost."""
        for path, lost in earlier.lost.items():
            self.lost.setdefault(path, set()).update(lost)
        self.torn |= earlier.torn
        self.found |= earlier.found
        self.emptied |= earlier.emptied


# ---- fsck


def run_fsck(directory: Path, settings: Mapping[str, str], *, mends: bool) -> Verdict:
    """Have fsck check, or repair."""
    verdict = Verdict(2)

    async def treat() -> None:
        storage = ThreadStorage(directory)
        context = FsckContext(
            storage=storage,
            clock=SystemClock(),
            config=make_config(settings),
            print_line=verdict.said.append,
            writes_survived=writes_survived(directory),
        )
        try:
            verdict.status = await (repair_context if mends else check_context)(context)
        finally:
            await storage.aclose()

    try:
        trio.run(treat)
    except FORESEEN as error:
        verdict.said.append(str(error))
    except Exception as error:  # whatever it is, it has no words for the person who asked
        verdict.unforeseen = f"{type(error).__name__}: {error}"
    _read_losses(verdict)
    return verdict


def _read_losses(verdict: Verdict) -> None:
    path = ""
    for line in verdict.said:
        if finding := FINDING.match(line):
            verdict.found.add(finding[1])
        if not line.startswith(" "):
            found = PARTITION.search(line)
            path = found[0] if found else ""
        for ranges in LOST.findall(line):
            lost = verdict.lost.setdefault(path, set())
            for item in ranges.split(","):
                first, _, last = item.partition("to")
                lost.update(range(int(first), int(last or first) + 1))
        for first in LOST_FROM.findall(line):
            lost = verdict.lost.setdefault(path, set())
            lost.update(range(int(first), int(first) + MESSAGES_MAX))
        if TORN.search(line):
            verdict.torn.add(path)
        if EMPTIED.search(line):
            verdict.emptied.add(path)


# ---- a server in this process


def serve_here(
    directory: Path, settings: Mapping[str, str], truth: Truth, *, shards: int = 1
) -> Seen:
    """Start a server on real files, read everything, send a message to each partition, stop."""
    seen = Seen()

    async def run() -> None:
        storage = ThreadStorage(directory)
        try:
            async with open_simulated_server(
                storage,
                shards_count=shards,
                settings=settings,
                clock=SystemClock(),
                writes_survived=writes_survived(directory),
            ) as running:
                with trio.fail_after(SERVED_SECONDS_MAX):
                    await read_everything(running.connect().ask, running.connect().ask, truth, seen)
        finally:
            await storage.aclose()

    with logged_errors(seen.unforeseen):
        try:
            trio.run(run)
        except BaseExceptionGroup as group:
            _judge_end(seen, [*_leaves(group)])
        except Exception as error:  # anything may come out of a start; it is judged below
            _judge_end(seen, [error])
    return seen


def _judge_end(seen: Seen, errors: list[BaseException]) -> None:
    seen.refusal = "; ".join(str(error) for error in errors)
    for error in errors:
        if not isinstance(error, FORESEEN):
            seen.unforeseen.append(f"{type(error).__name__}: {error}")


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


class _Errors(logging.Handler):
    """Keeps what was logged with a traceback."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        """Record a log line that has a traceback or tells of an unexpected error."""
        text = record.getMessage()
        if record.exc_info or "unexpected error" in text or "nobody foresaw" in text:
            error = record.exc_info[1] if record.exc_info else None
            self._found.append(f"logged: {text}: {error!r}")


@contextmanager
def logged_errors(found: list[str]) -> Iterator[None]:
    """Watch what the server logs during a block."""
    logger, handler = logging.getLogger("iggy_ref_server"), _Errors(found)
    was_propagating, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = was_propagating


# ---- a server as a process of its own


def serve_in_process(directory: Path, settings: Mapping[str, str], truth: Truth) -> Seen:
    """Start a process on a data directory, do the same, and read what it printed."""
    seen = Seen()
    told = {f"IGGY_{name}": value for name, value in settings.items()}
    home = directory.parent / "process"
    home.mkdir(exist_ok=True)
    server = RunningServer(home, settings={**told, "IGGY_SYSTEM_PATH": str(directory)})
    server.data = directory
    try:
        server.start()
        clients = server.connect(), server.connect()

        async def run() -> None:
            await read_everything(_blocking(clients[0]), _blocking(clients[1]), truth, seen)

        trio.run(run)
        server.stop()
    except ServerFailed as failure:
        seen.refusal = str(failure)
    finally:
        output = server.output()
        server.close()
    seen.unforeseen += unforeseen(output)
    return seen


def _blocking(client: wire_client.WireClient) -> Ask:
    async def ask(command: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return client.ask(command)

    return ask


# ---- what is asked


async def read_everything(ask: Ask, other: Ask, truth: Truth, seen: Seen) -> None:
    """Ask for all that the truth knows of, and send a message to each partition."""
    if not await _log_in(ask, other, truth, seen):
        return
    ask = ask if not seen.is_locked_out else other
    seen.is_locked_out = False
    for stream in await ask(GetStreams()):
        seen.streams[stream.name] = {topic.name for topic in await ask(GetTopics(stream.name))}
    seen.users = {user.username for user in await ask(GetUsers())}
    for path, each in truth.partitions.items():
        if each.topic in seen.streams.get(each.stream, set()):
            seen.partitions[path] = await _read_partition(ask, each)


async def _log_in(ask: Ask, other: Ask, truth: Truth, seen: Seen) -> bool:
    """Log in with the token, or with the password if the token is gone."""
    try:
        await ask(LoginWithPersonalAccessToken(truth.token))
        return True
    except (*REFUSALS, *HANG_UPS):
        seen.is_locked_out = True
    try:
        await other(LoginUser("iggy", "iggy"))
        return True
    except (*REFUSALS, *HANG_UPS):
        return False


async def _read_partition(ask: Ask, each: PartitionTruth) -> PartitionSeen:
    seen = PartitionSeen()
    start = 0
    while start <= each.next_offset:
        strategy = PollingStrategy.offset(start)
        poll = PollMessages(CHECKER, each.stream, each.topic, strategy, POLLED_MAX, each.number)
        try:
            messages = list((await ask(poll)).messages)
        except REFUSALS as refused:
            if seen.refused is None:
                seen.refused = refused.status
            if not seen.messages and start > 2:
                break
            # Behind a damaged range there may be more.
            start += 1
            continue
        except (RemoteProtocolError, ValueError) as error:
            seen.undecodable = f"{type(error).__name__}: {error}"
            break
        if not messages:
            break
        for message in messages:
            if message.is_intact():
                seen.messages[message.offset] = bytes(message.payload)
            else:
                seen.broken.add(message.offset)
        start = max(start, messages[-1].offset) + 1
    await _read_offsets(ask, each, seen)
    await _send_one(ask, each, seen)
    return seen


async def _read_offsets(ask: Ask, each: PartitionTruth, seen: PartitionSeen) -> None:
    for name in each.stored:
        folder, _, number = name.partition("/")
        who = (ConsumerIdentity.single if folder == "consumers" else ConsumerIdentity.group)(
            int(number)
        )
        try:
            stored = await ask(GetConsumerOffset(who, each.stream, each.topic, each.number))
        except REFUSALS:
            continue
        seen.stored[name] = None if stored is None else stored.stored_offset


async def _send_one(ask: Ask, each: PartitionTruth, seen: PartitionSeen) -> None:
    where = Partitioning.partition(each.number)
    try:
        await ask(SendMessages(each.stream, each.topic, where, [NEW_MESSAGE]))
        last = PollMessages(
            CHECKER, each.stream, each.topic, PollingStrategy.last(), 1, each.number
        )
        for message in (await ask(last)).messages:
            if bytes(message.payload) == NEW_MESSAGE:
                seen.new_offset = message.offset
    except REFUSALS:
        return
    except (RemoteProtocolError, ValueError) as error:
        seen.undecodable = f"{type(error).__name__}: {error}"


def with_new_messages(truth: Truth, seen: Seen) -> Truth:
    """Return the truth with what was sent while it was looked at."""
    partitions = {
        path: replace(each, messages=dict(each.messages)) for path, each in truth.partitions.items()
    }
    for path, found in seen.partitions.items():
        if found.new_offset is not None:
            each = partitions[path]
            each.messages[found.new_offset] = NEW_MESSAGE
            each.next_offset = max(each.next_offset, found.new_offset + 1)
    return replace(truth, partitions=partitions)
