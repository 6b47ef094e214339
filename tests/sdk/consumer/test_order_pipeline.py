"""The order pipeline: three workers in a group, a table, and two processes killed on the way."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from iggy_sdk.blocking import IggyClient
from iggy_sdk.testing.server import external_server_address
from tests.server.free_ports import free_ports

ORDERS = 3_000
WORKERS = 3
PARTITIONS = 6
DELIVERIES_MAX = ORDERS * 101 // 100
WAIT_SECONDS = 60.0
WORKER = Path(__file__).parent / "order_worker.py"

pytestmark = [
    pytest.mark.timeout(150),
    pytest.mark.skipif(external_server_address() is not None, reason="it kills its server"),
]


class Deliveries:
    """Counts what workers were given, as they write it."""

    def __init__(self) -> None:
        self.of_order: Counter[int] = Counter()
        self._changed = threading.Condition()

    def follow(self, worker: subprocess.Popen[bytes]) -> None:
        """Count what a worker writes, until it ends."""
        assert worker.stdout is not None
        for line in worker.stdout:
            with self._changed:
                self.of_order[int(line)] += 1
                self._changed.notify_all()

    def wait_for(self, orders_count: int) -> None:
        """Wait until so many different orders were delivered."""
        with self._changed:
            came = self._changed.wait_for(
                lambda: len(self.of_order) >= orders_count, timeout=WAIT_SECONDS
            )
        assert came, f"{len(self.of_order)} orders of {orders_count} came"


class Workers:
    """The worker processes, and the threads that follow them."""

    def __init__(self, url: str, database: Path, backend: str, deliveries: Deliveries) -> None:
        self._command = [sys.executable, str(WORKER), url, str(database), backend]
        self._deliveries = deliveries
        self._running: list[tuple[subprocess.Popen[bytes], threading.Thread]] = []

    def start(self) -> None:
        """Start one more."""
        worker = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        follower = threading.Thread(target=self._deliveries.follow, args=(worker,))
        follower.start()
        self._running.append((worker, follower))

    def kill(self) -> None:
        """Kill the oldest where it stands."""
        worker, follower = self._running.pop(0)
        worker.kill()
        worker.wait()
        follower.join()
        assert worker.stdout is not None
        worker.stdout.close()

    def close(self) -> None:
        """Kill all."""
        while self._running:
            self.kill()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "orders.sqlite"
    table = sqlite3.connect(path)
    table.execute("PRAGMA journal_mode = WAL")
    table.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
    table.close()
    return path


def send(client: IggyClient, first: int, last: int) -> None:
    """Send orders, evenly to all partitions."""
    for partition_id in range(PARTITIONS):
        payloads = [b"%d" % number for number in range(first + partition_id, last, PARTITIONS)]
        client.send_messages("shop", "orders", payloads, partition_id=partition_id)


@pytest.mark.parametrize(
    ("protocol", "backend"),
    [
        ("0.8", "trio"),
        pytest.param("0.9", "asyncio", marks=pytest.mark.slow),
        ("0.10", "asyncio"),
    ],
)
def test_pipeline_when_a_worker_and_the_server_are_killed_has_every_order_once(
    start_server, database, protocol, backend
):
    address = f"127.0.0.1:{free_ports(1)[0]}"
    server = start_server(shards=1, settings={"IGGY_TCP_ADDRESS": address})
    url = f"iggy://iggy:iggy@{address}?protocol={protocol}"
    deliveries = Deliveries()
    with ExitStack() as stack:
        client = stack.enter_context(IggyClient(url))
        client.create_stream("shop")
        client.create_topic("shop", "orders", partitions_count=PARTITIONS)
        send(client, 0, 2_000)
        workers = Workers(url, database, backend, deliveries)
        stack.callback(workers.close)
        for _ in range(WORKERS):
            workers.start()
        deliveries.wait_for(600)
        workers.kill()
        workers.start()
        deliveries.wait_for(1_000)
        server.kill()
        server.start()
        send(client, 2_000, ORDERS)
        deliveries.wait_for(ORDERS)
    table = sqlite3.connect(database)
    rows = [number for (number,) in table.execute("SELECT number FROM orders ORDER BY number")]
    table.close()
    assert rows == list(range(ORDERS))
    assert sum(deliveries.of_order.values()) <= DELIVERIES_MAX
