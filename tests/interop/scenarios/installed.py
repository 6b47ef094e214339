"""The official client that is installed here, under names that all its versions share.

The clients up to 0.8 have twelve calls; 0.9 has names for everything and says where a message went;
0.10 puts the options of a topic into a class of their own. A scenario asks what there is
(``IS_CLASSIC``, ``HAS_TOPIC_OPTIONS``) only where a version has nothing to offer.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import apache_iggy  # type: ignore[import-not-found]
from apache_iggy import AutoCommit, AutoCommitWhen, IggyClient, PollingStrategy, SendMessage

VERSION = version("apache-iggy")
IS_CLASSIC = not hasattr(apache_iggy, "Consumer")
HAS_TOPIC_OPTIONS = hasattr(apache_iggy, "TopicOptions")
IS_OF_0_9 = not IS_CLASSIC and not HAS_TOPIC_OPTIONS

# A client that was refused or disconnected tries again at once, not after five seconds.
QUICK = "reconnection_interval=100ms&{}reestablish_after=100ms"

# The consumer that the classic client polls as; later ones are told to be the same.
SINGLE_ID = 0


class Client:
    """One client of the installed version.

    Args:
        url: a connection string, with the login in it.
    """

    def __init__(self, url: str) -> None:
        # Only the options of QUIC spell the second one in full.
        quick = QUICK.format("reconnection_" if url.startswith("iggy+quic") else "")
        url += ("&" if "?" in url else "?") + quick
        self.calls: Any = IggyClient.from_connection_string(url)

    @classmethod
    async def connected(cls, url: str) -> Client:
        """Make a client, connect it and log it in."""
        client = cls(url)
        await client.calls.connect()
        return client

    async def create_topic(self, stream: str, topic: str, partitions: int) -> None:
        """Create a topic with the options that the server would choose."""
        if HAS_TOPIC_OPTIONS:
            options = apache_iggy.TopicOptions(partitions_count=partitions)
            await self.calls.create_topic(stream, topic, options)
        else:
            await self.calls.create_topic(stream, topic, partitions)

    async def send(self, stream: str, topic: str, partition: Any, payloads: list) -> Any:
        """Send payloads in one batch; tell partition and first offset, where the version does."""
        messages = [SendMessage(payload) for payload in payloads]
        return confirmed(await self.calls.send_messages(stream, topic, partition, messages))

    async def poll(
        self,
        stream: str,
        topic: str,
        partition: int,
        strategy: Any,
        count: int,
        *,
        commits: bool = False,
        consumer: Any = None,
    ) -> list[Any]:
        """Poll one partition."""
        if IS_CLASSIC:
            return await self.calls.poll_messages(
                stream, topic, partition, strategy, count, commits
            )
        if consumer is None:
            consumer = apache_iggy.Consumer.Single(SINGLE_ID)
        return await self.calls.poll_messages(
            stream,
            topic,
            consumer=consumer,
            polling_strategy=strategy,
            count=count,
            auto_commit=commits,
            partition_id=partition,
        )

    async def consumer(
        self,
        group: str,
        stream: str,
        topic: str,
        *,
        strategy: Any = None,
        batch: int = 10,
        commits: Any = None,
    ) -> Any:
        """Join a group with a consumer that polls by itself; the group is made if it is missing."""
        # Some of these have a length of 0, which makes them false.
        if strategy is None:
            strategy = PollingStrategy.Next()
        if commits is None:
            commits = AutoCommit.When(AutoCommitWhen.PollingMessages())
        pause = {} if HAS_TOPIC_OPTIONS else {"poll_interval": timedelta(milliseconds=5)}
        return await self.calls.consumer_group(
            group,
            stream,
            topic,
            polling_strategy=strategy,
            batch_length=batch,
            auto_commit=commits,
            create_consumer_group_if_not_exists=True,
            auto_join_consumer_group=True,
            polling_retry_interval=timedelta(milliseconds=100),
            **pause,
        )


def confirmed(response: Any) -> list[list[int]] | None:
    """Return partition and first offset of each part of a send; None where it is not told."""
    if not hasattr(response, "confirmations"):
        return None
    return [[part.partition_id, part.base_offset] for part in response.confirmations]


async def take(consumer: Any, count: int, seconds_max: float = 20) -> list[Any]:
    """Read so many messages with a callback."""
    taken: list[Any] = []
    done = asyncio.Event()

    async def note(message: Any) -> None:
        taken.append(message)
        if len(taken) >= count:
            done.set()

    await asyncio.wait_for(consumer.consume_messages(note, done), seconds_max)
    return taken
