"""Data directories that a real server made, with everything that was acknowledged about them.

A specimen has several streams, topics, partitions and segments, groups, stored offsets, users,
tokens, things that were deleted and purged, and a copy of itself from the middle of its life. Some
are sealed with a key, some have a metadata snapshot, some were stopped in order and some killed.
"""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from iggy_protocol import (
    ConsumerIdentity,
    CreateConsumerGroup,
    CreatePersonalAccessToken,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteSegments,
    DeleteStream,
    DeleteTopic,
    DeleteUser,
    JoinConsumerGroup,
    NewMessage,
    Partitioning,
    PayloadCipher,
    PollingStrategy,
    PollMessages,
    PurgeTopic,
    SendMessages,
    StoreConsumerOffset,
)
from iggy_protocol.message_view import extents_of
from iggy_ref_server.clock import SystemClock
from iggy_ref_server.metadata.store import MetadataStore
from iggy_ref_server.storage.threads import ThreadStorage
from tests.server.running import RunningServer

if TYPE_CHECKING:
    from tests.server.wire_client import WireClient

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
NEVER_EXPIRES = 0
READER = ConsumerIdentity.single(1)
SECOND_READER = ConsumerIdentity.single(2)
GROUP = "readers"
TOKEN = "specimen-token"
POLLED_MAX = 1_000


@dataclass
class PartitionTruth:
    """What was acknowledged of one partition.

    Attributes:
        stream: its name.
        topic: its name.
        number: of the partition.
        path: where its files are, below the data directory.
        messages: every message that is to be there, by offset.
        next_offset: the lowest offset that was never given away.
        stored: offsets of consumers, by the name of their file below ``offsets``.
    """

    stream: str
    topic: str
    number: int
    path: str
    messages: dict[int, bytes] = field(default_factory=dict)
    next_offset: int = 0
    stored: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is called in findings."""
        return f"{self.stream}/{self.topic}/{self.number}"


@dataclass
class Truth:
    """What was acknowledged of a data directory.

    Attributes:
        partitions: by their path.
        streams: names of streams that are there, with the names of their topics.
        ever: names of streams and topics that were there at any time.
        users: who is there.
        token: lets root in without a password.
    """

    partitions: dict[str, PartitionTruth] = field(default_factory=dict)
    streams: dict[str, set[str]] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    token: str = ""

    def of(self, stream: str, topic: str) -> list[PartitionTruth]:
        """List the partitions of a topic."""
        return [
            each
            for each in self.partitions.values()
            if each.stream == stream and each.topic == topic
        ]


@dataclass(frozen=True)
class Kind:
    """How a specimen is made."""

    level: str
    is_sealed: bool
    is_killed: bool
    has_snapshot: bool

    @property
    def name(self) -> str:
        """What it is called in findings."""
        words = [self.level, "sealed" if self.is_sealed else "plain"]
        words += ["snapshot"] if self.has_snapshot else []
        return "-".join([*words, "killed" if self.is_killed else "stopped"])

    @property
    def settings(self) -> dict[str, str]:
        """The configuration, without the prefix of its variables."""
        told = {"SYSTEM_SEGMENT_SIZE": "2 KiB", "SYSTEM_PARTITION_ACK": self.level}
        if self.is_sealed:
            told |= {"SYSTEM_ENCRYPTION_ENABLED": "true", "SYSTEM_ENCRYPTION_KEY": KEY}
        return told


KINDS = (
    Kind("written", is_sealed=False, is_killed=True, has_snapshot=False),
    Kind("fsync", is_sealed=False, is_killed=False, has_snapshot=True),
    Kind("fsync", is_sealed=False, is_killed=True, has_snapshot=True),
    Kind("written", is_sealed=True, is_killed=False, has_snapshot=False),
    Kind("fsync", is_sealed=True, is_killed=True, has_snapshot=True),
)


@dataclass(frozen=True)
class Specimen:
    """A finished data directory.

    Attributes:
        kind: how it was made.
        directory: its files; never changed, damages are done to copies.
        older: its files in the middle of its life.
        truth: what was acknowledged.
        records: every whole message record as it lies in the logs, by the path of its partition.
    """

    kind: Kind
    directory: Path
    older: Path
    truth: Truth
    records: dict[str, list[bytes]]


class Maker:
    """Fills a server, and remembers what was acknowledged.

    Args:
        kind: how the specimen is made.
        folder: where.
        seed: decides contents.
    """

    def __init__(self, kind: Kind, folder: Path, seed: int) -> None:
        self._kind = kind
        self._folder = folder
        self._chance = random.Random(seed)
        self._truth = Truth(users={"iggy"})
        self._ids: dict[str, int] = {}
        settings = {f"IGGY_{name}": value for name, value in kind.settings.items()}
        self._server = RunningServer(folder, settings=settings)
        self._client: WireClient | None = None
        self._messages = 0

    def make(self) -> Specimen:
        """Play both halves of its life."""
        try:
            self._server.start()
            self._first_half()
            self._server.stop()
            older = self._folder / "older"
            shutil.copytree(self._server.data, older)
            if self._kind.has_snapshot:
                trio.run(self._take_snapshot)
            self._server.start()
            self._second_half()
            self._check()
            if self._kind.is_killed:
                self._server.kill()
            else:
                self._server.stop()
        finally:
            self._server.close()
        records = {path: self._records(path) for path in self._truth.partitions}
        return Specimen(self._kind, self._server.data, older, self._truth, records)

    # ---- what is done

    @property
    def _ask(self) -> WireClient:
        assert self._client is not None
        return self._client

    def _first_half(self) -> None:
        self._client = self._server.login()
        self._truth.token = self._ask.ask(CreatePersonalAccessToken(TOKEN, NEVER_EXPIRES)).token
        for stream in ("doomed", "alpha", "beta"):
            self._create_stream(stream)
        self._create_topic("alpha", "orders", 3)
        self._create_topic("alpha", "events", 1)
        self._create_topic("beta", "gone", 1)
        self._create_topic("beta", "orders", 2)
        self._create_topic("doomed", "orders", 1)
        self._send_all(20)
        for name in ("ada", "bob"):
            self._ask.ask(CreateUser(name, "secret-1"))
            self._truth.users.add(name)
        self._ask.ask(CreateConsumerGroup("alpha", "orders", GROUP))
        self._store("alpha", "orders", READER, "consumers/1", 5)
        self._store("beta", "orders", READER, "consumers/1", 7)
        self._purge("alpha", "events")
        self._delete_topic("beta", "gone")
        self._send_all(20)
        self._client.close()

    async def _take_snapshot(self) -> None:
        """Have a snapshot written, which a server does after some thousand changes only."""
        cipher = PayloadCipher.from_base64(KEY) if self._kind.is_sealed else None
        storage = ThreadStorage(self._server.data)
        store = await MetadataStore.open(storage, SystemClock(), encryptor=cipher)
        await store.compact()
        await storage.aclose()

    def _second_half(self) -> None:
        self._client = self._server.login()
        self._create_topic("beta", "again", 2)
        self._delete_stream("doomed")
        self._send_all(15)
        self._store("alpha", "orders", READER, "consumers/1", 21)
        self._store("alpha", "orders", SECOND_READER, "consumers/2", 30)
        self._ask.ask(JoinConsumerGroup("alpha", "orders", GROUP))
        self._store("alpha", "orders", ConsumerIdentity.group(GROUP), "groups/0", 24)
        self._store("beta", "orders", READER, "consumers/1", 33)
        self._delete_segments("alpha", "orders", 1)
        self._ask.ask(DeleteUser("bob"))
        self._truth.users.discard("bob")
        self._purge("beta", "orders")
        self._send_all(25)
        self._store("beta", "orders", READER, "consumers/1", 4)

    # ---- how it is done

    def _create_stream(self, name: str) -> None:
        self._ids[name] = self._ask.ask(CreateStream(name)).id
        self._truth.streams[name] = set()
        self._truth.ever.add(name)

    def _delete_stream(self, name: str) -> None:
        self._ask.ask(DeleteStream(name))
        del self._truth.streams[name]
        for path in [path for path, each in self._truth.partitions.items() if each.stream == name]:
            del self._truth.partitions[path]

    def _create_topic(self, stream: str, topic: str, partitions: int) -> None:
        made = self._ask.ask(CreateTopic(stream, topic, partitions))
        self._truth.streams[stream].add(topic)
        self._truth.ever.add(f"{stream}/{topic}")
        for number in range(partitions):
            path = f"streams/{self._ids[stream]}/topics/{made.id}/partitions/{number}"
            self._truth.partitions[path] = PartitionTruth(stream, topic, number, path)

    def _delete_topic(self, stream: str, topic: str) -> None:
        self._ask.ask(DeleteTopic(stream, topic))
        self._truth.streams[stream].discard(topic)
        for each in self._truth.of(stream, topic):
            del self._truth.partitions[each.path]

    def _purge(self, stream: str, topic: str) -> None:
        self._ask.ask(PurgeTopic(stream, topic))
        for each in self._truth.of(stream, topic):
            # A purge begins anew, at offset 0, with nobody's offset stored.
            each.messages.clear()
            each.stored.clear()
            each.next_offset = 0

    def _delete_segments(self, stream: str, topic: str, count: int) -> None:
        for each in self._truth.of(stream, topic)[1:2]:
            before = self._logs(each)
            self._ask.ask(DeleteSegments(stream, topic, each.number, count))
            gone = set(before) - set(self._logs(each))
            first = min(int(path.stem) for path in self._logs(each))
            assert gone, "no segment was deleted"
            for offset in [offset for offset in each.messages if offset < first]:
                del each.messages[offset]

    def _logs(self, each: PartitionTruth) -> list[Path]:
        return sorted((self._server.data / each.path).glob("*.log"))

    def _send_all(self, count: int) -> None:
        """Send batches of several sizes to every partition."""
        for each in self._truth.partitions.values():
            left = count + self._chance.randrange(4)
            while left > 0:
                batch = [
                    self._message(each) for _ in range(min(left, self._chance.choice([1, 2, 7])))
                ]
                where = Partitioning.partition(each.number)
                self._ask.ask(SendMessages(each.stream, each.topic, where, batch))
                for message in batch:
                    each.messages[each.next_offset] = bytes(message.payload)
                    each.next_offset += 1
                left -= len(batch)

    def _message(self, each: PartitionTruth) -> NewMessage:
        self._messages += 1
        words = f"{each.name} number {self._messages} ".encode()
        filler = self._chance.randbytes(self._chance.choice([3, 40, 150]))
        return NewMessage(words + filler, id=self._chance.getrandbits(128) | 1)

    def _store(
        self, stream: str, topic: str, who: ConsumerIdentity, name: str, offset: int
    ) -> None:
        for each in self._truth.of(stream, topic):
            at = min(offset, each.next_offset - 1)
            self._ask.ask(StoreConsumerOffset(who, stream, topic, at, each.number))
            each.stored[name] = at

    def _check(self) -> None:
        """See that the server agrees, before anything is damaged."""
        for each in self._truth.partitions.values():
            start = PollingStrategy.offset(0)
            poll = PollMessages(
                ConsumerIdentity.single(9), each.stream, each.topic, start, POLLED_MAX, each.number
            )
            found = {
                message.offset: bytes(message.payload) for message in self._ask.ask(poll).messages
            }
            assert found == each.messages, each.name

    def _records(self, path: str) -> list[bytes]:
        """Cut the logs of a partition into the records of its messages."""
        return [
            content[at : at + size]
            for log in sorted((self._server.data / path).glob("*.log"))
            for content in [log.read_bytes()]
            for at, _, size in extents_of(memoryview(content))
        ]


def make_specimens(folder: Path) -> list[Specimen]:
    """Make one specimen of each kind, two at a time: they wait for disks and processes."""

    def make(numbered: tuple[int, Kind]) -> Specimen:
        number, kind = numbered
        return Maker(kind, folder / kind.name, number).make()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(make, enumerate(KINDS)))
