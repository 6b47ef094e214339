"""Kill the server with ``kill -9`` while clients produce and consume, and check what is kept.

Four producers send to a partition each and count the acknowledged messages. A consumer reads and
stores its offsets. Meanwhile all processes of the server are killed. After a restart every
acknowledged message is there: once, in order, with consecutive offsets; and the consumer continues
from its stored offset. The exit code is 1 otherwise.

Run it from the root of the repository with ``python -m examples.server.survive_a_kill``.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from time import perf_counter

from examples.server.blocking_client import Client, produce
from examples.server.start_a_server import ExampleServer, usable_shards
from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    LoginUser,
    Partitioning,
    PollingStrategy,
    PollMessages,
    StoreConsumerOffset,
    pack_namespace,
    shard_for_namespace,
)

PARTITIONS = 4
# The second topic of the stream; two shards share its partitions evenly, those of the first not.
ORDERS_ID = 1
BATCH = 25
CONSUMED_BEFORE_THE_KILL = 10_000
PRODUCED_AFTERWARDS = 500
BAR_COLUMNS = 40
CONSUMER = ConsumerIdentity.single("consumer")


def log_in(server: ExampleServer) -> Client:
    """Connect as root."""
    client = Client(server.address)
    client.ask(LoginUser("iggy", "iggy"))
    return client


def orders(partition_id: int, first: int, number: int) -> list[bytes]:
    """Write orders that say where they belong."""
    return [b"partition %d order %d" % (partition_id, first + n) for n in range(number)]


def produce_until_killed(server: ExampleServer, partition_id: int) -> int:
    """Send batch after batch, and return how many orders were acknowledged in the end."""
    with log_in(server) as client:
        for acknowledged in count(0, BATCH):
            batch = orders(partition_id, acknowledged, BATCH)
            try:
                produce(client, batch, Partitioning.partition(partition_id))
            except ConnectionError:
                return acknowledged
    raise AssertionError("the loop above does not end by itself")


class OrderConsumer:
    """The consumer: polls what is next, checks it, and stores the offset of what it has done."""

    def __init__(self) -> None:
        self.done = [0] * PARTITIONS
        self.unexpected: list[str] = []

    def work(self, client: Client, partition_id: int) -> int:
        """Do what is next in a partition, and return how many orders that were."""
        polled = client.ask(
            PollMessages(CONSUMER, "shop", "orders", PollingStrategy.next(), 1000, partition_id)
        )
        offset = None
        for message in polled.messages:
            offset, expected = message.offset, self.done[partition_id]
            (order,) = orders(partition_id, offset, 1)
            if offset > expected or bytes(message.payload) != order:
                self.unexpected.append(f"{bytes(message.payload)!r} at offset {offset}")
            # An order that was done, but whose offset could not be stored in time, comes again.
            self.done[partition_id] = max(expected, offset + 1)
        if offset is not None:
            client.ask(StoreConsumerOffset(CONSUMER, "shop", "orders", offset, partition_id))
        return len(polled.messages)


def run_until_killed(server: ExampleServer, consumer: OrderConsumer) -> list[int]:
    """Produce and consume until the kill, and return what was acknowledged by partition."""
    with log_in(server) as client, ThreadPoolExecutor(PARTITIONS) as pool:
        client.ask(CreateStream("shop"))
        for topic in ("offers", "orders"):
            client.ask(CreateTopic("shop", topic, partitions_count=PARTITIONS))
        producers = [
            pool.submit(produce_until_killed, server, partition_id)
            for partition_id in range(PARTITIONS)
        ]
        try:
            while sum(consumer.done) < CONSUMED_BEFORE_THE_KILL:
                for partition_id in range(PARTITIONS):
                    consumer.work(client, partition_id)
        finally:
            server.kill()
        return [producer.result() for producer in producers]


def run_after_restart(server: ExampleServer, consumer: OrderConsumer) -> list[int]:
    """Count what the kill has left by partition, then produce more and consume everything."""
    kept = []
    with log_in(server) as client:
        for partition_id in range(PARTITIONS):
            polled = client.ask(
                PollMessages(CONSUMER, "shop", "orders", PollingStrategy.last(), 1, partition_id)
            )
            kept.append(sum(message.offset + 1 for message in polled.messages))
            more = orders(partition_id, kept[-1], PRODUCED_AFTERWARDS)
            produce(client, more, Partitioning.partition(partition_id))
            while consumer.work(client, partition_id):
                pass
    return kept


def shard_of(partition_id: int, shards: int) -> int:
    """Compute on which shard a partition of the topic lives; the server does the same."""
    packed = pack_namespace(stream_id=0, topic_id=ORDERS_ID, partition_id=partition_id)
    return shard_for_namespace(packed, shards_count=shards)


def draw(shards: int, acknowledged: list[int], kept: list[int], done: list[int]) -> None:
    """Draw what arrived: full blocks before the kill, light ones after it."""
    longest = max(done)
    print("partition  shard  acknowledged  there  consumed")
    for partition_id in range(PARTITIONS):
        before = round(BAR_COLUMNS * kept[partition_id] / longest)
        after = round(BAR_COLUMNS * done[partition_id] / longest) - before
        print(
            f"{partition_id:>9}  {shard_of(partition_id, shards):>5}"
            f"  {acknowledged[partition_id]:>12}  {kept[partition_id]:>5}"
            f"  {done[partition_id]:>8}  {'█' * before}{'░' * after}"
        )
    print("█ produced before the kill, ░ after it. What was under way when the server died may be")
    print("there without an acknowledgement; what was acknowledged must be there.")


def conclude(acknowledged: list[int], kept: list[int], consumer: OrderConsumer) -> bool:
    """Say how it went."""
    saved = sum(min(pair) for pair in zip(acknowledged, kept, strict=True))
    is_read = consumer.done == [number + PRODUCED_AFTERWARDS for number in kept]
    is_whole = saved == sum(acknowledged) and is_read and not consumer.unexpected
    for line in consumer.unexpected[:5]:
        print(f"not what was sent: {line}")
    print("nothing is lost, nothing is out of place" if is_whole else "SOMETHING IS WRONG")
    produced = sum(kept) + PARTITIONS * PRODUCED_AFTERWARDS
    print(
        f"produced {produced} messages, consumed {sum(consumer.done)}, "
        f"kept over the kill {saved} of {sum(acknowledged)} acknowledged"
    )
    return is_whole


def main() -> int:
    """Run before and after the kill, and compare."""
    consumer, shards = OrderConsumer(), usable_shards(2)
    with (
        tempfile.TemporaryDirectory() as folder,
        ExampleServer(Path(folder) / "data", shards=shards) as server,
    ):
        print("\n".join(server.start()))
        print(f"\n{PARTITIONS} producers and a consumer are at work ...")
        acknowledged = run_until_killed(server, consumer)
        produced, consumed = sum(acknowledged), sum(consumer.done)
        print(f"kill -9 after {produced} acknowledged and {consumed} consumed messages")
        began_s = perf_counter()
        server.start()
        print(f"the server is back after {perf_counter() - began_s:.1f} s, on the same data\n")
        kept = run_after_restart(server, consumer)
        server.stop()
    draw(shards, acknowledged, kept, consumer.done)
    print()
    return 0 if conclude(acknowledged, kept, consumer) else 1


if __name__ == "__main__":
    sys.exit(main())
