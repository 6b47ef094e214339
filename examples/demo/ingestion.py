"""The Spark side of the demo: the ready job ``iggy-spark-to-parquet`` as a process of its own.

It is started by its command and ended with SIGTERM, as in production. Spark
needs Java; where the machine has none, the job uses the one that the extra ``spark`` brings along.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio
from anyio.streams.text import TextReceiveStream

from examples.demo.clients import LAKE
from examples.demo.shop import SCHEMA, STREAM, TOPIC

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, Process

# A short job ends before the optimising compiler pays off.
QUICK_START = "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
STOP_SECONDS_MAX = 30.0
BATCH_EVENTS_MAX = 20_000
"""Small enough for the first results to be seen soon."""


def command(target: Path) -> list[str]:
    """Write the command line of the job."""
    arguments = [sys.executable, "-m", "spark_jobs.jobs.to_parquet", "--stream", STREAM]
    arguments += ["--topic", TOPIC, "--path", str(target), "--json-schema", SCHEMA]
    arguments += ["--consumer", LAKE, "--every", "1s", "--max-offsets", str(BATCH_EVENTS_MAX)]
    arguments += ["--workers", "2", "--conf", QUICK_START]
    return arguments


class Ingestion:
    """The job while it runs."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.batches = 0
        self._last_words: list[str] = []
        self._has_heard_all = anyio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.returncode is not None

    async def listen(self) -> None:
        """Read what the job says, and show the lines about its micro-batches."""
        assert self._process.stderr is not None
        with suppress(anyio.ClosedResourceError):
            await self._listen(self._process.stderr)
        self._has_heard_all.set()

    async def _listen(self, stream: ByteReceiveStream) -> None:
        rest = ""
        async for text in TextReceiveStream(stream, errors="replace"):
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self._last_words = [*self._last_words[-20:], line]
                if line.startswith("rows: batch"):
                    self.batches += 1
                    print(f"      spark  {line.removeprefix('rows: ')}", flush=True)

    async def stop(self) -> str:
        """Ask the job to stop, wait for its end, and return what it said if that was a bad one."""
        if not self.has_ended:
            self._process.terminate()
        with anyio.fail_after(STOP_SECONDS_MAX):
            code = await self._process.wait()
            await self._has_heard_all.wait()
        return "\n".join([f"the Spark job ended with {code}:", *self._last_words]) if code else ""


@asynccontextmanager
async def start_ingestion(url: str, target: Path) -> AsyncIterator[Ingestion]:
    """Start the job; whatever happens, it does not outlive the block."""
    process = await anyio.open_process(
        command(target),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # The connection string is a secret, and command lines can be seen by all.
        env={**os.environ, "IGGY_CONNECTION_STRING": url, "SPARK_LOCAL_IP": "127.0.0.1"},
        start_new_session=True,
    )
    try:
        yield Ingestion(process)
    finally:
        if process.returncode is None:
            process.terminate()
            with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS_MAX):
                await process.wait()
        with anyio.CancelScope(shield=True):
            await process.aclose()
