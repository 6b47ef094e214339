"""The steady load: a producer and a reader for every partition, and a group whose members change.

All of it goes through the SDK as an application would, over every transport in turn. Errors while
the server is away are counted by their type; those that nobody should ever meet are violations.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from iggy_protocol import ConsumerIdentity, Partitioning, PollingStrategy
from iggy_sdk import (
    ConnectionFailedError,
    IggyClient,
    IggyError,
    ProtocolError,
    Reconnect,
    RequestTimeoutError,
    Retry,
    SendFailedError,
)
from tests.server.soak.ledger import Key, Ledger, Track, batch_payloads, key_of

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from iggy_sdk import IggyConsumer
    from tests.transports.servers import TransportServer

STREAM, TOPIC, GROUP = "soak", "kept", "crew"
TRANSPORTS = ("tcp", "ws 0.10", "tcp 0.9", "quic", "http")
"""Which transport the nth producer or reader takes, in turn, and which version it speaks if not
0.8; most people take the first."""
MEMBER_TRANSPORTS = ("tcp", "ws 0.9", "tcp 0.10")
RECONNECT = Reconnect(delay=0.05, max_delay=0.5)
POLLED_MAX = 500
AUDITED_MESSAGES = 2_000
PAUSE_S = 0.2
"""How long somebody waits who met an error, before the next attempt."""


class Scene:
    """What all tasks of a soak share.

    Attributes:
        transport_server: the server.
        ledger: what was told and seen.
        chance: decides what is not measured.
        is_loading: whether producers go on.
        is_over: whether everybody else goes on.
        disturbances: how many lives of the server have ended; whoever sees it change met one.
    """

    def __init__(
        self, transport_server: TransportServer, ledger: Ledger, chance: random.Random
    ) -> None:
        self.transport_server = transport_server
        self.ledger = ledger
        self.chance = chance
        self.is_loading = True
        self.is_over = False
        self.disturbances = 0
        self.serving = anyio.Event()

    @asynccontextmanager
    async def client(self, transport: str = "tcp") -> AsyncIterator[IggyClient]:
        """Open a client that comes back after each restart."""
        name, _, protocol = transport.partition(" ")
        options = {"protocol": protocol} if protocol else {}
        url = self.transport_server.url(name, **options)
        async with IggyClient(url, reconnect=RECONNECT) as client:
            yield client

    def note_error(self, who: str, error: IggyError) -> None:
        """Count an error; those that a restart does not explain are violations."""
        cause: BaseException | None = error
        while isinstance(cause, SendFailedError) and cause.cause is not None:
            cause = cause.cause
        self.ledger.errors[f"{who}: {type(cause).__name__}"] += 1
        if not is_explained(cause):
            self.ledger.accuse(f"{who} met {type(cause).__name__}: {cause}")


def is_explained(error: BaseException | None) -> bool:
    """Tell whether a server that goes away and comes back explains an error.

    An answer that never comes is not explained: a server that ends closes its connections.
    """
    if isinstance(error, RequestTimeoutError | ProtocolError):
        return False
    return isinstance(error, ConnectionFailedError) or (
        isinstance(error, IggyError) and error.retriable
    )


class Pace:
    """Lets so many messages through in a second, all producers together."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    async def take(self, messages: int) -> None:
        """Wait for the turn of so many messages."""
        now = time.monotonic()
        # What could not be sent while the server was away is not made up for.
        self._due = max(self._due, now - 1.0) + messages / self._rate
        await anyio.sleep(max(0.0, self._due - now))


async def persist(scene: Scene, who: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do something, and again after each error, until it is done or all is over."""
    while not scene.is_over:
        await scene.serving.wait()
        try:
            await work()
        except IggyError as error:
            scene.note_error(who, error)
            await anyio.sleep(PAUSE_S)
        else:
            return


async def produce(scene: Scene, track: Track, pace: Pace) -> None:
    """Send batch after batch to one partition until the load ends."""
    transport = TRANSPORTS[track.partition % len(TRANSPORTS)]
    who = f"producer over {transport}"
    await persist(scene, who, partial(_produce, scene, track, pace, transport))


async def _produce(scene: Scene, track: Track, pace: Pace, transport: str) -> None:
    # Every second producer tries again by itself, as applications do; its messages may be doubled.
    attempts = 8 if track.partition % 2 else 0
    async with scene.client(transport) as client:
        sender = client.producer(
            STREAM,
            TOPIC,
            partitioning=Partitioning.partition(track.partition),
            retry=Retry(attempts=attempts, backoff=0.1, max_backoff=1.0),
        )
        async with sender as producer:
            while scene.is_loading:
                batch = track.next_batch
                payloads = batch_payloads(track.partition, batch)
                await pace.take(len(payloads))
                before = scene.disturbances
                try:
                    receipt = await producer.send_many(payloads)
                except IggyError as error:
                    scene.note_error(f"producer over {transport}", error)
                    scene.ledger.give_up(track, batch)
                    await anyio.sleep(PAUSE_S)
                else:
                    disturbed = before != scene.disturbances or not scene.serving.is_set()
                    scene.ledger.acknowledge(track, batch, was_disturbed=disturbed)
                    if len(receipt.confirmations) == 1:
                        [confirmation] = receipt.confirmations
                        scene.ledger.confirm(track, batch, confirmation)
                track.next_batch = batch + 1


async def read(scene: Scene, track: Track) -> None:
    """Read one partition from its beginning, in order, as a consumer with a stored offset does."""
    transport = TRANSPORTS[(track.partition + 1) % len(TRANSPORTS)]
    await persist(scene, f"reader over {transport}", partial(_read, scene, track, transport))


async def _read(scene: Scene, track: Track, transport: str) -> None:
    async with scene.client(transport) as client:
        reader = client.consumer(
            f"reader-{track.partition}",
            STREAM,
            TOPIC,
            partition_id=track.partition,
            batch_length=POLLED_MAX,
        )
        async with reader as consumer:
            async for batch in consumer.batches(max_messages=POLLED_MAX, max_wait=0.5):
                for message in batch:
                    scene.ledger.see(track, message.offset, message.payload)
                if scene.is_over:
                    return


async def be_member(scene: Scene, number: int) -> None:
    """Join the group, read for a while, leave, and come again."""
    transport = MEMBER_TRANSPORTS[number % len(MEMBER_TRANSPORTS)]
    while not scene.is_over:
        await persist(scene, f"member over {transport}", partial(_join, scene, transport))


async def _join(scene: Scene, transport: str) -> None:
    until = time.monotonic() + scene.chance.uniform(2.0, 20.0)
    async with scene.client(transport) as client:
        member = client.consumer_group(GROUP, STREAM, TOPIC, batch_length=POLLED_MAX)
        async with member as consumer:
            await _read_as_member(scene, consumer, until)
    scene.ledger.counts["memberships"] += 1


async def _read_as_member(scene: Scene, consumer: IggyConsumer[Any], until: float) -> None:
    batches = consumer.batches(max_messages=POLLED_MAX, max_wait=0.5)
    # Nothing may ever come for a member without partitions, so it looks at the clock as well.
    while time.monotonic() < until and not scene.is_over:
        with anyio.move_on_after(1.0):
            batch = await anext(batches)
            for message in batch:
                scene.ledger.see_in_group(message.partition_id, message.offset, message.payload)


async def audit(scene: Scene) -> None:
    """Read the ends of all partitions after a restart: offsets hold what they held before."""
    async with scene.client() as client:
        for track in scene.ledger.tracks:
            known = dict(track.window)
            first = max(0, track.last_offset - AUDITED_MESSAGES)
            found = await client.poll_messages(
                STREAM,
                TOPIC,
                consumer=ConsumerIdentity.single("auditor"),
                partition_id=track.partition,
                strategy=PollingStrategy.offset(first),
                count=AUDITED_MESSAGES + 1,
            )
            _compare_with(scene.ledger, track, known, found)


def _compare_with(
    ledger: Ledger, track: Track, known: dict[int, Key], found: Iterable[Any]
) -> None:
    last = max(known, default=-1)
    seen = set()
    for message in found:
        seen.add(message.offset)
        key = key_of(track.partition, message.payload)
        if key is None:
            ledger.accuse(f"partition {track.partition}, offset {message.offset}: not its message")
        elif message.offset in known and known[message.offset] != key:
            ledger.accuse(
                f"partition {track.partition}, offset {message.offset}: was message "
                f"{known[message.offset]} before the restart, is {key}"
            )
    if ledger.lives[-1].may_lose:
        return
    first = max(0, last - AUDITED_MESSAGES // 2)
    gone = [offset for offset in known if first <= offset <= last and offset not in seen]
    if gone:
        ledger.accuse(
            f"partition {track.partition}: offsets {min(gone)} to {max(gone)} were read before "
            "the restart and are gone"
        )
