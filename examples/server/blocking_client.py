"""A client in a hundred lines: a blocking socket below, the protocol above, nothing hidden.

The protocol turns commands into bytes and bytes into replies; this file only carries the bytes. Log
in, create a stream and a topic with three partitions, send a few messages and read them back.

Run it from the root of the repository. Without an address it brings a server of its own:

    python -m examples.server.blocking_client
    python -m examples.server.blocking_client 127.0.0.1:8090 iggy the-password
"""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, TypeVar

from examples.server.start_a_server import ExampleServer
from iggy_protocol import (
    NEED_DATA,
    ClientConnection,
    Command,
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    DeleteStream,
    ErrorReceived,
    LoginUser,
    Partitioning,
    PollingStrategy,
    PollMessages,
    ResponseReceived,
    SendMessages,
    status,
)

if TYPE_CHECKING:
    from types import TracebackType

R = TypeVar("R")

RECEIVE_BYTES = 1 << 18
TIMEOUT_S = 10.0


class RequestError(Exception):
    """The server says no, and why."""


class Client:
    """One connection to a server.

    Args:
        address: host and port.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = ClientConnection()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def ask(self, command: Command[R]) -> R:
        """Send a command and return its reply, whose type the command knows."""
        for buffer in self._connection.send(command):
            self._socket.sendall(buffer)
        while (event := self._connection.next_event()) is NEED_DATA:
            # No bytes at all mean that the server is gone; the connection understands that too.
            self._connection.receive_data(self._socket.recv(RECEIVE_BYTES))
        if isinstance(event, ErrorReceived):
            raise RequestError(f"{event.status} {status(event.status).meaning}")
        if not isinstance(event, ResponseReceived):
            raise ConnectionError("the server has closed the connection")
        reply: R = event.decode()
        return reply


def produce(client: Client, payloads: list[bytes], partitioning: Partitioning) -> None:
    """Send one batch to the topic of these examples; when this returns, it is acknowledged."""
    now_us = time_ns() // 1_000
    client.ask(SendMessages("shop", "orders", partitioning, payloads, origin_timestamp_us=now_us))


def run_session(client: Client) -> None:
    """Produce three orders and consume them."""
    client.ask(CreateStream("shop"))
    client.ask(CreateTopic("shop", "orders", partitions_count=3))
    print("created stream 'shop' with topic 'orders' and 3 partitions")
    for customer, order in [(b"ada", b"tea"), (b"grace", b"coffee"), (b"ada", b"cake")]:
        produce(client, [order], Partitioning.key(customer))
    print("sent 3 orders; those of one customer go to one partition")
    for partition_id in range(3):
        polled = client.ask(
            PollMessages(
                ConsumerIdentity.single("till"),
                "shop",
                "orders",
                PollingStrategy.first(),
                10,
                partition_id,
            )
        )
        for message in polled.messages:
            payload = bytes(message.payload).decode()
            print(f"partition {partition_id}, offset {message.offset}: {payload}")
    client.ask(DeleteStream("shop"))


def main(arguments: list[str]) -> None:
    """Talk to the server that the command line names, or to one of our own."""
    if arguments:
        address, username, password = arguments
        host, _, port = address.rpartition(":")
        with Client((host.strip("[]"), int(port))) as client:
            client.ask(LoginUser(username, password))
            run_session(client)
        return
    with tempfile.TemporaryDirectory() as folder, ExampleServer(Path(folder) / "data") as server:
        server.start()
        with Client(server.address) as client:
            user = client.ask(LoginUser("iggy", "iggy"))
            print(f"logged in as user {user.user_id}")
            run_session(client)
        server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
