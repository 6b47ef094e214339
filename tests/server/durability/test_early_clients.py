"""Clients that come while the server starts: nobody is told that something is missing."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    CreateTopic,
    GetConsumerOffset,
    Partitioning,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StoreConsumerOffset,
)
from tests.server.features.topic_calls import eventually
from tests.server.free_ports import free_ports
from tests.server.running import READY_SECONDS_MAX, RunningServer
from tests.server.wire_client import ConnectionLost, Refused, WireClient

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 400
SHARDS = 2
CALLERS = 3
# Behind the start, so that a shard that lags is noticed as well.
ANSWERS_AFTER = 100


class Caller(threading.Thread):
    """Somebody who connects again and again, and asks for what exists."""

    def __init__(self, address: tuple[str, int], is_over: threading.Event) -> None:
        super().__init__()
        self.address = address
        self.is_over = is_over
        self.answers_count = 0
        self.complaints: list[str] = []

    def has(self, answers_count: int) -> bool:
        """Tell whether so many answers have come, or something was wrong."""
        return self.answers_count >= answers_count or bool(self.complaints)

    def run(self) -> None:
        number = 0
        while not self.is_over.is_set():
            try:
                with WireClient(self.address, timeout_s=READY_SECONDS_MAX) as client:
                    client.login()
                    for _ in range(20):
                        number = (number + 7) % PARTITIONS
                        self._look_at(client, number)
                        self.answers_count += 1
            except ConnectionError:
                self.is_over.wait(0.002)
            except (Refused, ConnectionLost, TimeoutError) as error:
                self.complaints.append(f"partition {number}: {error!r}")

    def _look_at(self, client: WireClient, number: int) -> None:
        me = ConsumerIdentity.single(1)
        stored = client.ask(GetConsumerOffset(me, "s", "t", number))
        if stored is None or stored.stored_offset != 0:
            self.complaints.append(f"the offset of partition {number} was {stored}")
        start = PollingStrategy.first()
        polled = client.ask(PollMessages(me, "s", "t", start, 1, number))
        if len(polled.messages) != 1:
            self.complaints.append(f"partition {number} had {len(polled.messages)} messages")


def test_clients_when_they_come_during_the_start_of_many_partitions_then_miss_nothing(tmp_path):
    address = "127.0.0.1", free_ports(1)[0]
    settings = {"IGGY_TCP_ADDRESS": f"127.0.0.1:{address[1]}"}
    server = RunningServer(tmp_path, shards=SHARDS, settings=settings)
    with server:
        client = server.login()
        client.ask(CreateStream("s"))
        client.ask(CreateTopic("s", "t", PARTITIONS))
        for number in range(PARTITIONS):
            client.ask(SendMessages("s", "t", Partitioning.partition(number), [b"message"]))
            client.ask(StoreConsumerOffset(ConsumerIdentity.single(1), "s", "t", 0, number))
        server.stop()

        is_over = threading.Event()
        callers = [Caller(address, is_over) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            server.start()
            until = [caller.answers_count + ANSWERS_AFTER for caller in callers]
            for caller, count in zip(callers, until, strict=True):
                assert eventually(partial(caller.has, count), READY_SECONDS_MAX)
        finally:
            is_over.set()
            for caller in callers:
                caller.join()
    assert [line for caller in callers for line in caller.complaints][:10] == []
    assert all(caller.answers_count for caller in callers)
