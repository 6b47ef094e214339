"""All of it at once: a server, a producer, a consumer group, and Spark that writes to Parquet.

Starts the reference server on two shards, sends the events of a shop to it, reads them with a
group of two, and lets the ready Spark job write them to Parquet files while more are coming in. In
the end it shows what arrived and compares the three numbers; the exit code is 1 if they differ.

Run it from the root of the repository with ``make demo`` or ``python -m examples.demo.run``. It
takes about a minute, and leaves its results in ``demo-output``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from examples.demo.arrivals import Arrivals, Sample
from examples.demo.clients import Counts, ask_for_ingested, consume, produce
from examples.demo.ingestion import Ingestion, start_ingestion
from examples.demo.shop import PARTITIONS, STREAM, TOPIC
from examples.server.start_a_server import ExampleServer, usable_shards
from iggy_sdk import IggyClient

if TYPE_CHECKING:
    from collections.abc import Callable

OUTPUT = Path("demo-output")
CONSUMERS = ("anna", "boris")
PRODUCE_SECONDS_MIN, PRODUCE_SECONDS_MAX = 15.0, 70.0
BATCHES_MIN = 3
"""Micro-batches that Spark shall have made while events were still coming in."""

CATCH_UP_SECONDS_MAX = 40.0
SAMPLE_SECONDS = 0.5
SAMPLES_PER_LINE = 4


@dataclass
class Demo:
    """One run of the demo.

    Attributes:
        url: the connection string of the server.
        folder: where the results go.
        counts: messages produced, consumed and ingested.
        samples: the same over time.
        is_sent: whether the producer is done.
        is_level: set when the others have caught up with it, or never will.
        failure: what the Spark job said if it failed.
    """

    url: str
    folder: Path
    counts: Counts = field(default_factory=Counts)
    samples: list[Sample] = field(default_factory=list)
    is_sent: bool = False
    is_level: anyio.Event = field(default_factory=anyio.Event)
    failure: str = ""

    async def run(self) -> None:
        """Produce, consume and ingest until all three have come equally far."""
        async with IggyClient(self.url) as client, anyio.create_task_group() as tasks:
            await client.create_stream(STREAM)
            await client.create_topic(STREAM, TOPIC, partitions_count=PARTITIONS)
            for name in CONSUMERS:
                await tasks.start(consume, self.url, name, self.counts)
            async with start_ingestion(self.url, self.folder / "orders") as ingestion:
                tasks.start_soon(ingestion.listen)
                tasks.start_soon(self._sample, client, ingestion)
                print("      spark  starts, which takes some seconds")
                await produce(client, self.counts, self._is_enough(ingestion))
                print(f"{'':6}all events are sent; the others catch up")
                self.is_sent = True
                with anyio.move_on_after(CATCH_UP_SECONDS_MAX):
                    await self.is_level.wait()
                self.failure = await ingestion.stop()
            tasks.cancel_scope.cancel()

    def _is_enough(self, ingestion: Ingestion) -> Callable[[float], bool]:
        def check(elapsed_s: float) -> bool:
            has_grown = elapsed_s >= PRODUCE_SECONDS_MIN and ingestion.batches >= BATCHES_MIN
            return has_grown or elapsed_s >= PRODUCE_SECONDS_MAX or ingestion.has_ended

        return check

    async def _sample(self, client: IggyClient, ingestion: Ingestion) -> None:
        """Record the counts, and print them from time to time."""
        begin = anyio.current_time()
        while True:
            self.counts.ingested = await ask_for_ingested(client)
            counts = self.counts
            elapsed_s = anyio.current_time() - begin
            if len(self.samples) % SAMPLES_PER_LINE == 0:
                print(
                    f"{elapsed_s:>4.0f} s  produced {counts.produced:>7,}  "
                    f"consumed {counts.consumed:>7,}  ingested {counts.ingested:>7,}",
                    flush=True,
                )
            self.samples.append(
                Sample(elapsed_s, counts.produced, counts.consumed, counts.ingested)
            )
            has_all = counts.produced == counts.consumed == counts.ingested
            if self.is_sent and (has_all or ingestion.has_ended):
                self.is_level.set()
            await anyio.sleep(SAMPLE_SECONDS)


def show(demo: Demo) -> int:
    """Show what arrived, and return the exit code."""
    arrivals = Arrivals(demo.folder / "orders")
    print("\nwhat arrived")
    arrivals.print_tables(demo.counts)
    shares = ", ".join(f"{name} {demo.counts.read_by[name]:,}" for name in CONSUMERS)
    print(f"\n  the group of two shared the work: {shares}")
    picture = demo.folder / "arrivals.svg"
    arrivals.draw(demo.samples, picture)
    print(f"\nParquet files: {demo.folder / 'orders'}\nplot:          {picture}")
    numbers = (demo.counts.produced, demo.counts.consumed, arrivals.messages_count)
    is_good = len(set(numbers)) == 1 and arrivals.rows_count == arrivals.messages_count
    if not is_good:
        print(f"the numbers differ ({arrivals.rows_count:,} rows), which they should not:")
    print("{:,} messages produced, {:,} consumed, {:,} ingested".format(*numbers))
    return 0 if is_good else 1


def main(arguments: list[str]) -> int:
    """Run the demo; the folder of its results may be named."""
    folder = Path(arguments[0]) if arguments else OUTPUT
    shutil.rmtree(folder / "orders", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    shards = usable_shards(2)
    with (
        tempfile.TemporaryDirectory() as place,
        ExampleServer(Path(place), shards=shards) as server,
    ):
        server.start()
        host, port = server.address
        print(f"      a server with {shards} shards listens on {host}:{port}")
        demo = Demo(f"iggy://iggy:iggy@{host}:{port}", folder)
        anyio.run(demo.run)
        server.stop()
    if demo.failure:
        print(demo.failure)
        return 1
    return show(demo)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
