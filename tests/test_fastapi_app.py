"""The web service of the examples: real processes, a real server, and a stop under load."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from iggy_sdk.blocking import IggyClient

pytest.importorskip("fastapi")

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
LISTENING = re.compile(r"Uvicorn running on (http://[\d.:]+)")
SHIPPED = re.compile(r"shipping order (\d+):")
LINE_SECONDS_MAX = 40.0
STOP_SECONDS_MAX = 30.0

pytestmark = pytest.mark.timeout(90)


class Program:
    """A process whose output is read line by line."""

    def __init__(self, *arguments: str, url: str) -> None:
        search = os.pathsep.join([str(ROOT), str(ROOT / "protocol")])
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error::ResourceWarning", *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": search, "IGGY_URL": url, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            self._new.put(line)
        self._new.put(None)

    def wait_for(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """Wait for a line, and return what matched."""
        while (line := self._new.get(timeout=LINE_SECONDS_MAX)) is not None:
            match = re.search(pattern, line)
            if match:
                return match
        raise AssertionError(f"{pattern} never came: {''.join(self.lines)}")

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_SECONDS_MAX)
        self._reader.join(STOP_SECONDS_MAX)
        return code

    def close(self) -> None:
        """End it, however it is."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(STOP_SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def program(*arguments: str, url: str) -> Iterator[Program]:
    """Run a program, and see that it ends with the block."""
    running = Program(*arguments, url=url)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def web_shop(url: str) -> Iterator[tuple[Program, str]]:
    """Run the web service on a free port."""
    served = ("-m", "uvicorn", "examples.fastapi_app.app:app", "--port", "0")
    with program(*served, url=url) as app:
        yield app, app.wait_for(LISTENING)[1]


def shipped(app: Program) -> list[int]:
    """Return the numbers of the orders that the service has handled."""
    return [int(match[1]) for line in app.lines if (match := SHIPPED.search(line))]


def stored(url: str, topic: str) -> list[bytes]:
    """Read what the server has of a topic."""
    with (
        IggyClient(url) as client,
        client.consumer("test", "web-shop", topic, partition_id="all", until_end=True) as consumer,
    ):
        return [message.payload for message in consumer]


def test_prices_when_a_responder_runs_then_the_service_answers_and_else_says_why(iggy_server):
    with web_shop(iggy_server.url) as (app, address), httpx.Client(base_url=address) as web:
        assert web.get("/prices/tea").status_code == 504
        with program("-m", "examples.fastapi_app.prices", iggy_server.url, url="") as prices:
            prices.wait_for("answering")
            assert web.get("/prices/tea").json() == {"cents": 250}
            unknown = web.get("/prices/gold")
            assert (unknown.status_code, unknown.json()["detail"]) == (404, "gold has no price")
            assert prices.stop() == 0
        assert web.post("/orders", json={"number": 1, "item": "tea", "count": 0}).status_code == 422
        assert app.stop() in {0, -signal.SIGTERM}
    # What nobody waited for was delivered when the service stopped.
    assert sorted(stored(iggy_server.url, "lookups")) == [b"gold", b"tea", b"tea"]


def test_service_when_stopped_under_load_then_loses_no_order_that_it_has_acknowledged(iggy_server):
    acknowledged: list[int] = []
    enough = threading.Event()

    def order(worker: int, address: str) -> None:
        with httpx.Client(base_url=address, timeout=30.0) as web:
            for number in range(worker, 100_000, 8):
                try:
                    placed = {"number": number, "item": f"item-{worker}", "count": 1}
                    answer = web.post("/orders", json=placed)
                except httpx.TransportError:
                    return
                if answer.status_code == 202:
                    acknowledged.append(number)
                if len(acknowledged) >= 100:
                    enough.set()

    with web_shop(iggy_server.url) as (app, address), ThreadPoolExecutor(8) as workers:
        running = [workers.submit(order, worker, address) for worker in range(8)]
        assert enough.wait(LINE_SECONDS_MAX)
        code = app.stop()
        for one in running:
            one.result()
        first = shipped(app)

    assert code in {0, -signal.SIGTERM}, "".join(app.lines)
    assert "Application shutdown complete." in "".join(app.lines)
    orders = [json.loads(order)["number"] for order in stored(iggy_server.url, "orders")]
    assert len(acknowledged) >= 100
    assert set(acknowledged) <= set(orders)
    # The next start ships what is left, and nothing twice that was done in good order.
    with web_shop(iggy_server.url) as (again, _):
        while len(first) + len(shipped(again)) < len(orders):
            again.wait_for(SHIPPED)
        again.stop()
        second = shipped(again)
    assert sorted(first + second) == sorted(orders)
