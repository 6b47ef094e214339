"""What comes and goes beside the load: topics, partitions, users, tokens, groups, connections.

Names and numbers are few, so that they are used again and again; whatever is found under them must
belong to the present life of the thing, and not to one that was deleted.
"""

from __future__ import annotations

import itertools
import socket
import struct
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from iggy_protocol import ConsumerIdentity, PollingStrategy
from iggy_sdk import AlreadyExistsError, IggyClient, NotFoundError
from tests.server.soak.load import Scene, persist

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CHURN_TRANSPORTS = ("tcp", "ws", "quic", "http", "tcp 0.9", "tcp 0.10", "quic 0.10")
LOST_STREAM = "coming-and-going"
MESSAGES = 20
TOKEN = "user-token"
# A frame that says it has 1,000 bytes, and then does not.
HALF_A_FRAME = struct.pack("<II", 1_000, 101) + b"half"
RESET = struct.pack("ii", 1, 0)


async def keep_doing(scene: Scene, who: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do something until the end, whatever the server does meanwhile."""
    while not scene.is_over:
        await persist(scene, who, work)
        scene.ledger.counts[who] += 1
        await anyio.sleep(scene.chance.uniform(0.02, 0.2))


class TopicChurn:
    """Makes topics of few names, uses them, and deletes them."""

    def __init__(self, scene: Scene, number: int) -> None:
        self._scene = scene
        self._stream = f"{LOST_STREAM}-{number}"
        self._client: IggyClient | None = None
        self._tags = itertools.count()
        self._number = number

    async def run(self) -> None:
        """Go on until the end."""
        await persist(self._scene, "topics churned", self._run)

    async def _run(self) -> None:
        async with self._scene.client() as client:
            self._client = client
            await keep_doing(self._scene, "topics churned", self._live_once)
            await self._forget(client)

    async def _forget(self, client: IggyClient) -> None:
        try:
            await client.delete_stream(self._stream)
        except NotFoundError:
            return

    async def _live_once(self) -> None:
        client, scene = self._client, self._scene
        assert client is not None
        await self._forget(client)
        await self._repeatable(client.create_stream(self._stream))
        topic = f"t{scene.chance.randrange(3)}"
        partitions = scene.chance.randint(1, 4)
        await self._repeatable(client.create_topic(self._stream, topic, partitions))
        await self._check_empty(client, topic, partitions, "new")
        tag = b"%d:%d:" % (self._number, next(self._tags))
        await self._use(client, topic, partitions, tag)
        if scene.chance.random() < 0.3:
            await client.purge_topic(self._stream, topic)
            await self._check_empty(client, topic, partitions, "purged")
        if scene.chance.random() < 0.3:
            await client.create_partitions(self._stream, topic, 2)
            await client.delete_partitions(self._stream, topic, 1)
        if scene.chance.random() < 0.5:
            await client.delete_topic(self._stream, topic)

    async def _repeatable(self, made: Awaitable[object]) -> None:
        """Make something; when the answer to a former attempt was lost, it may be there."""
        try:
            await made
        except AlreadyExistsError as error:
            self._scene.ledger.errors[f"topics churned: {type(error).__name__}"] += 1

    async def _use(self, client: IggyClient, topic: str, partitions: int, tag: bytes) -> None:
        scene = self._scene
        partition = scene.chance.randrange(partitions)
        before = scene.disturbances
        sent = [tag + b"%d" % number for number in range(MESSAGES)]
        await client.send_messages(self._stream, topic, sent, partition_id=partition)
        found = await self._poll(client, topic, partition)
        # Only memory may forget, and only when the server was killed in between.
        if found != sent and (before == scene.disturbances or found):
            scene.ledger.accuse(
                f"{self._stream}/{topic}/{partition}: sent {len(sent)} as {tag!r}, found "
                f"{len(found)}: {found[:2]}"
            )
        group = await client.create_consumer_group(self._stream, topic, "g", exist_ok=True)
        await client.store_consumer_offset(
            self._stream, topic, 3, consumer=ConsumerIdentity.single(1), partition_id=partition
        )
        await client.delete_consumer_group(self._stream, topic, group.id)

    async def _check_empty(
        self, client: IggyClient, topic: str, partitions: int, what: str
    ) -> None:
        for partition in range(partitions):
            found = await self._poll(client, topic, partition)
            if found:
                self._scene.ledger.accuse(
                    f"{self._stream}/{topic}/{partition} is {what} and has {found[:2]}"
                )

    async def _poll(self, client: IggyClient, topic: str, partition: int) -> list[bytes]:
        polled = await client.poll_messages(
            self._stream,
            topic,
            consumer=ConsumerIdentity.single("churn"),
            partition_id=partition,
            strategy=PollingStrategy.first(),
            count=10 * MESSAGES,
        )
        return polled.payloads()


class UserChurn:
    """Makes users and tokens, logs in with them, and deletes them."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._client: IggyClient | None = None

    async def run(self) -> None:
        """Go on until the end."""
        await persist(self._scene, "users churned", self._run)

    async def _run(self) -> None:
        async with self._scene.client() as client:
            self._client = client
            await keep_doing(self._scene, "users churned", self._live_once)

    async def _live_once(self) -> None:
        client = self._client
        assert client is not None
        name = f"user-{self._scene.chance.randrange(3)}"
        await self._forget(client, name)
        await client.create_user(name, "secret-1")
        made = await client.create_personal_access_token(TOKEN, expiry="never")
        for login in (f"{name}:secret-1@", f"{made.token}@"):
            async with IggyClient(
                self._scene.transport_server.url("tcp", login=login)
            ) as user_client:
                await user_client.ping()
        await self._forget(client, name)

    async def _forget(self, client: IggyClient, name: str) -> None:
        if await client.get_user(name) is not None:
            await client.delete_user(name)
        if any(token.name == TOKEN for token in await client.get_personal_access_tokens()):
            await client.delete_personal_access_token(TOKEN)


async def churn_connections(scene: Scene) -> None:
    """Connect over every transport, say something, and leave in several ways."""
    transports = itertools.cycle(CHURN_TRANSPORTS)

    async def come_and_go() -> None:
        transport = next(transports)
        async with scene.client(transport) as client:
            await client.ping()
            await client.get_streams()
        await anyio.to_thread.run_sync(_leave_rudely, scene)

    await keep_doing(scene, "connections churned", come_and_go)


def _leave_rudely(scene: Scene) -> None:
    """Open plain connections that end in the middle of a frame, or with a reset."""
    host, _, port = scene.transport_server.server.settings["IGGY_TCP_ADDRESS"].rpartition(":")
    for is_reset in (False, True):
        try:
            with socket.create_connection((host, int(port)), timeout=5) as raw:
                raw.sendall(HALF_A_FRAME)
                if is_reset:
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except OSError:
            return
