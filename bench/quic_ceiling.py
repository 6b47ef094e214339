"""How fast ``aioquic`` itself is: two of its connections in one process, without sockets.

    ceiling = measure_ceiling(request_bytes=8, reply_bytes=8, in_flight=1)
    ceiling.requests_per_s, ceiling.bytes_per_s

    python bench/quic_ceiling.py [--seconds S]     our transport beside it, and beside TCP

Both ends exchange what the transport exchanges: one stream per request, the same sizes, datagrams
and windows. Bytes go from one object to the other as they are; no timer is waited for, because
the clock is put forward to the next one whenever both ends have nothing to say. What is left is the
time that the library needs, so this is the most that a transport on top of it could reach if all of
it ran on one core.

Our transport has two processes. Large requests gain by that, where both cores work at the same
time. Small ones lose: besides the library's work each costs two wakes of a process, four system
calls, switches of tasks on both sides, the pipeline of the scheduler, and the write to the log.
"""

from __future__ import annotations

import argparse
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
sys.path[:0] = [str(ROOT), str(ROOT / "protocol")]

import anyio  # noqa: E402  the path above comes first
import trustme  # noqa: E402  the same
from aioquic.quic import events  # noqa: E402  the same
from aioquic.quic.configuration import QuicConfiguration  # noqa: E402  the same
from aioquic.quic.connection import QuicConnection  # noqa: E402  the same

from iggy_protocol import (  # noqa: E402  the same
    ClientConnection,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
)
from iggy_sdk.client import IggyClient  # noqa: E402  the same
from tests.server.running import RunningServer  # noqa: E402  the same

__all__ = ["Ceiling", "Pair", "ceiling_of", "measure_ceiling", "rate_of"]

# As the listener and the client choose them on one machine.
DATAGRAM_BYTES: Final = 8_000
SERVER_WINDOW_BYTES: Final = 100_000
CLIENT_WINDOW_BYTES: Final = 1 << 20
CLIENT, SERVER = ("127.0.0.1", 1), ("127.0.0.1", 2)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What the library reaches.

    Attributes:
        requests_per_s: requests with their replies.
        bytes_per_s: payload of both directions.
    """

    requests_per_s: float
    bytes_per_s: float


class Pair:
    """A client and a server of the library, joined in memory."""

    def __init__(self, *, datagram_bytes: int = DATAGRAM_BYTES) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("localhost")
        self._skew_s = 0.0
        self.client = QuicConnection(
            configuration=QuicConfiguration(
                is_client=True,
                server_name="localhost",
                verify_mode=ssl.CERT_NONE,
                max_datagram_size=datagram_bytes,
                max_data=CLIENT_WINDOW_BYTES,
                max_stream_data=CLIENT_WINDOW_BYTES,
            )
        )
        self.client.connect(SERVER, self._now())
        self.server = QuicConnection(
            configuration=_server_configuration(issued, datagram_bytes),
            original_destination_connection_id=self.client.original_destination_connection_id,
        )
        self.finished_count = 0

    def _now(self) -> float:
        return time.perf_counter() + self._skew_s

    def turn(self, reply: bytes) -> None:
        """Carry everything once in each direction, and answer requests that are complete."""
        now = self._now()
        carried = 0
        for data, _ in self.client.datagrams_to_send(now):
            self.server.receive_datagram(data, CLIENT, now)
            carried += 1
        for event in _events(self.server):
            if isinstance(event, events.StreamDataReceived) and event.end_stream:
                self.server.send_stream_data(event.stream_id, reply, end_stream=True)
        for data, _ in self.server.datagrams_to_send(now):
            self.client.receive_datagram(data, SERVER, now)
            carried += 1
        for event in _events(self.client):
            if isinstance(event, events.StreamDataReceived) and event.end_stream:
                self.finished_count += 1
        if not carried:
            self._skip()

    def _skip(self) -> None:
        """Put the clock forward to what is due next."""
        ends = (self.client, self.server)
        due_at = min(timer for end in ends if (timer := end.get_timer()) is not None)
        self._skew_s += max(0.0, due_at - self._now())
        for end in ends:
            timer = end.get_timer()
            if timer is not None and timer <= self._now():
                end.handle_timer(self._now())

    def ask(self, request: bytes) -> None:
        """Begin one request."""
        stream_id = self.client.get_next_available_stream_id()
        self.client.send_stream_data(stream_id, request, end_stream=True)


def _events(end: QuicConnection) -> list[Any]:
    return list(iter(end.next_event, None))


def _server_configuration(issued: trustme.LeafCert, datagram_bytes: int) -> QuicConfiguration:
    configuration = QuicConfiguration(
        is_client=False,
        max_datagram_size=datagram_bytes,
        max_data=SERVER_WINDOW_BYTES,
        max_stream_data=SERVER_WINDOW_BYTES,
    )
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        configuration.load_cert_chain(certificate, key)
    return configuration


def measure_ceiling(
    *,
    request_bytes: int,
    reply_bytes: int,
    in_flight: int = 1,
    seconds: float = 1.0,
    datagram_bytes: int = DATAGRAM_BYTES,
) -> Ceiling:
    """Exchange requests and replies in memory for some time.

    Args:
        request_bytes: the size of each request.
        reply_bytes: the size of each reply.
        in_flight: how many requests are under way.
        seconds: how long to measure.
        datagram_bytes: the largest datagram.
    """
    pair = Pair(datagram_bytes=datagram_bytes)
    request, reply = bytes(request_bytes), bytes(reply_bytes)
    begun_count = 0

    def go_on(until: float) -> None:
        nonlocal begun_count
        while time.perf_counter() < until:
            while begun_count - pair.finished_count < in_flight:
                pair.ask(request)
                begun_count += 1
            pair.turn(reply)

    go_on(time.perf_counter() + seconds / 4)
    before, began = pair.finished_count, time.perf_counter()
    go_on(began + seconds)
    rate = (pair.finished_count - before) / (time.perf_counter() - began)
    return Ceiling(rate, rate * (request_bytes + reply_bytes))


class Shape(NamedTuple):
    """What is asked for, and how.

    Attributes:
        name: for people.
        command: made with the offset of the next message to poll.
        reply_bytes: the size of a reply with its head.
        messages: in one request.
        in_flight: how many are under way.
    """

    name: str
    command: Callable[[int], Any]
    reply_bytes: int
    messages: int
    in_flight: int = 1


def _send(count: int, size: int) -> Callable[[int], Any]:
    command = SendMessages("bench", "topic", Partitioning.partition(0), [bytes(size)] * count)
    return lambda offset: command


def _poll(offset: int) -> Any:
    return PollMessages(
        ConsumerIdentity.single(1), "bench", "topic", PollingStrategy.offset(offset), BATCH, 0
    )


BATCH: Final = 1000
PAYLOAD_BYTES: Final = 1000
REPLY_BYTES: Final = 8 + 16 + BATCH * (64 + PAYLOAD_BYTES)
SHAPES: Final = (
    Shape("ping", lambda offset: Ping(), 8, 1),
    Shape("ping, 32 in flight", lambda offset: Ping(), 8, 1, in_flight=32),
    Shape("produce 1 x 100 B", _send(1, 100), 8, 1),
    Shape("produce 1 x 100 B, 32 in flight", _send(1, 100), 8, 1, in_flight=32),
    Shape("produce 1000 x 1000 B", _send(BATCH, PAYLOAD_BYTES), 8, BATCH),
    Shape("poll 1000 x 1000 B", _poll, REPLY_BYTES, BATCH),
)


def ceiling_of(shape: Shape, *, seconds: float) -> float:
    """Measure requests per second of the library for a shape."""
    frame = ClientConnection().send(shape.command(0))
    return measure_ceiling(
        request_bytes=sum(map(len, frame)),
        reply_bytes=shape.reply_bytes,
        in_flight=shape.in_flight,
        seconds=seconds,
    ).requests_per_s


async def rate_of(client: IggyClient, shape: Shape, *, seconds: float) -> float:
    """Measure requests per second of a client that is connected."""
    finished_count = 0
    until = time.perf_counter() + seconds

    async def ask() -> None:
        nonlocal finished_count
        while time.perf_counter() < until:
            await client.request(shape.command(finished_count % 20 * BATCH))
            finished_count += 1

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(shape.in_flight):
            tasks.start_soon(ask)
    return finished_count / (time.perf_counter() - began)


async def compare(quic_url: str, tcp_url: str, *, seconds: float, rounds: int) -> None:
    """Print our transport beside the ceiling and beside TCP; the rounds take turns."""
    print(f"{'':<32}{'quic/s':>9}{'ceiling/s':>11}{'ratio':>7}{'tcp/s':>9}{'to tcp':>8}")
    async with IggyClient(quic_url) as quic, IggyClient(tcp_url) as tcp:
        await tcp.request(CreateStream("bench"))
        await tcp.request(CreateTopic("bench", "topic", partitions_count=1))
        for _ in range(20):
            await tcp.request(_send(BATCH, PAYLOAD_BYTES)(0))
        for shape in SHAPES:
            figures: list[tuple[float, float, float]] = []
            for _ in range(rounds):
                ours = await rate_of(quic, shape, seconds=seconds)
                measure = partial(ceiling_of, shape, seconds=seconds)
                ceiling = await anyio.to_thread.run_sync(measure)
                figures.append((ours, ceiling, await rate_of(tcp, shape, seconds=seconds)))
            ours, ceiling, plain = (
                statistics.median(column) for column in zip(*figures, strict=True)
            )
            print(
                f"{shape.name:<32}{ours:>9.0f}{ceiling:>11.0f}{ours / ceiling:>7.2f}"
                f"{plain:>9.0f}{ours / plain:>8.2f}"
            )


def main() -> None:
    """Run a server and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", choices=("asyncio", "trio"), default="asyncio")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, RunningServer(Path(folder)) as server:
        config: Any = server.current_config()
        login = "iggy:iggy@"
        quic_url = f"iggy+quic://{login}{config['quic']['address']}?validate_certificate=false"
        tcp_url = f"iggy://{login}{config['tcp']['address']}"
        asked = partial(compare, quic_url, tcp_url, seconds=chosen.seconds, rounds=chosen.rounds)
        anyio.run(asked, backend=chosen.engine)


if __name__ == "__main__":
    main()
