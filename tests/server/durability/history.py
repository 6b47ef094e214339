"""What clients were told over many lives of one server, and whether a later life agrees with it.

Producers, a consumer and an administrator work until the server is killed under their hands. Each
notes what it asked for before it asks, and what was acknowledged when it was.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    CreateUser,
    DeleteStream,
    GetConsumerOffset,
    GetStreams,
    GetUsers,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StoreConsumerOffset,
)
from tests.server.wire_client import ConnectionLost

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.server.running import RunningServer
    from tests.server.wire_client import WireClient

STREAM, TOPIC = "kept", "t"
PARTITIONS = 3
WINDOW = 4
CONSUMER = ConsumerIdentity.single(1)
# What a connection to a killed server ends with.
ENDED = (ConnectionLost, ConnectionError, TimeoutError)


@dataclass
class Row:
    """One partition.

    Attributes:
        sent: every batch that was ever handed over, oldest first.
        acknowledged: how many batches of these were acknowledged, by number.
        seen: what was read under each offset, in any life.
        stored: the last offset whose storing was acknowledged.
        storing: the last offset that was to be stored.
    """

    sent: list[list[bytes]] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    seen: dict[int, bytes] = field(default_factory=dict)
    stored: int = -1
    storing: int = -1


@dataclass
class Names:
    """Things that were made and deleted: asked for, and acknowledged."""

    asked: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)


class History:
    """Everything that was asked and answered.

    Args:
        chance: decides sizes and moments.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.rows = [Row() for _ in range(PARTITIONS)]
        self.streams, self.users = Names(), Names()
        self._life = 0
        self._acknowledgements = 0
        self._deadly = 0
        self._is_time = threading.Event()

    def begin(self, server: RunningServer) -> None:
        """Make the topic that all lives share."""
        client = server.login()
        client.ask(CreateStream(STREAM))
        client.ask(CreateTopic(STREAM, TOPIC, PARTITIONS))
        client.close()

    # ---- one life

    def live_until_killed(self, server: RunningServer, acknowledgements: int) -> None:
        """Work until so much was acknowledged, then kill the server in the middle of the rest."""
        self._life += 1
        self._acknowledgements, self._deadly = 0, acknowledgements
        self._is_time.clear()
        workers: list[Callable[[WireClient], None]] = [self._consume, self._administer]
        workers += [partial(self._produce, number) for number in range(PARTITIONS)]
        clients = [server.login() for _ in workers]
        with ThreadPoolExecutor(len(workers)) as pool:
            running = [
                pool.submit(self._until_killed, work, client)
                for work, client in zip(workers, clients, strict=True)
            ]
            is_reached = self._is_time.wait(30)
            server.kill()
            for task in running:
                task.result()
        assert is_reached, "the load did not get under way"

    def _until_killed(self, work: Callable[[WireClient], None], client: WireClient) -> None:
        try:
            while True:
                work(client)
        except ENDED:
            client.close()

    def _note_acknowledged(self) -> None:
        self._acknowledgements += 1
        if self._acknowledgements >= self._deadly:
            self._is_time.set()

    def _produce(self, number: int, client: WireClient) -> None:
        """Send a few batches without waiting, then take their acknowledgements."""
        row, first = self.rows[number], len(self.rows[number].sent)
        for batch in range(first, first + WINDOW):
            count = self.chance.choice([1, 1, 5, 40])
            row.sent.append(
                [
                    b"%d/%d/%d:" % (self._life, batch, place) + bytes(self.chance.randrange(300))
                    for place in range(count)
                ]
            )
            where = Partitioning.partition(number)
            client.send(SendMessages(STREAM, TOPIC, where, row.sent[batch]))
        for batch in range(first, first + WINDOW):
            client.receive()
            row.acknowledged.add(batch)
            self._note_acknowledged()

    def _consume(self, client: WireClient) -> None:
        number = self.chance.randrange(PARTITIONS)
        row = self.rows[number]
        polled = client.ask(
            PollMessages(CONSUMER, STREAM, TOPIC, PollingStrategy.next(), 50, number)
        )
        for message in polled.messages:
            self._note_seen(row, message.offset, bytes(message.payload))
            row.storing = message.offset
        if len(polled.messages):
            client.ask(StoreConsumerOffset(CONSUMER, STREAM, TOPIC, row.storing, number))
            row.stored = row.storing

    def _administer(self, client: WireClient) -> None:
        name = f"s{self._life}-{len(self.streams.asked)}"
        self.streams.asked.add(name)
        client.ask(CreateStream(name))
        self.streams.made.add(name)
        if self.chance.random() < 0.5:
            self.streams.deleting.add(name)
            client.ask(DeleteStream(name))
            self.streams.deleted.add(name)
        if len(self.users.asked) < 3 * self._life:
            user = f"u{self._life}-{len(self.users.asked)}"
            self.users.asked.add(user)
            client.ask(CreateUser(user, "secret"))
            self.users.made.add(user)

    def _note_seen(self, row: Row, offset: int, payload: bytes) -> None:
        known = row.seen.setdefault(offset, payload)
        assert known == payload, f"offset {offset} was {known[:30]!r} and is {payload[:30]!r}"

    # ---- what a later life must agree with

    def check(self, server: RunningServer) -> None:
        """Hold what is there now to everything that anybody was told."""
        client = server.login()
        for number, row in enumerate(self.rows):
            self._check_row(client, number, row)
        streams = {stream.name for stream in client.ask(GetStreams())} - {STREAM}
        users = {user.username for user in client.ask(GetUsers())} - {"iggy"}
        for names, found in ((self.streams, streams), (self.users, users)):
            assert found <= names.asked
            assert names.made - names.deleting <= found, "an acknowledged change is lost"
            assert not names.deleted & found, "what was deleted came back"
        client.close()

    def _check_row(self, client: WireClient, number: int, row: Row) -> None:
        found = self._read(client, number)
        for offset, payload in enumerate(found):
            self._note_seen(row, offset, payload)
        assert len(found) > max(row.seen, default=-1), "a message that was polled is gone"
        place = {payload: at for at, payload in enumerate(found)}
        assert len(place) == len(found), "a message is there twice"
        order = [
            place.get(payload, -1 if batch in row.acknowledged else None)
            for batch, payloads in enumerate(row.sent)
            for payload in payloads
        ]
        there = [at for at in order if at is not None]
        assert -1 not in there, "an acknowledged message is lost"
        assert there == list(range(len(found))), "messages are out of order, or nobody's"
        self._check_stored(client, number, row)

    def _check_stored(self, client: WireClient, number: int, row: Row) -> None:
        stored = client.ask(GetConsumerOffset(CONSUMER, STREAM, TOPIC, number))
        offset = -1 if stored is None else stored.stored_offset
        assert row.stored <= offset <= row.storing, "a stored offset is lost, or nobody's"
        row.stored = row.storing = offset

    def _read(self, client: WireClient, number: int) -> list[bytes]:
        found: list[bytes] = []
        while True:
            start = PollingStrategy.offset(len(found))
            poll = PollMessages(ConsumerIdentity.single(9), STREAM, TOPIC, start, 1000, number)
            messages = client.ask(poll).messages
            if not len(messages):
                return found
            for message in messages:
                assert message.offset == len(found), "an offset is missing"
                found.append(bytes(message.payload))


def play(server: RunningServer, chance: random.Random, *, rounds: int) -> History:
    """Kill the server again and again under load, and check each life against all before it."""
    history = History(chance)
    server.start()
    history.begin(server)
    for _ in range(rounds):
        history.live_until_killed(server, chance.randint(1, 400))
        server.start()
        history.check(server)
    return history
