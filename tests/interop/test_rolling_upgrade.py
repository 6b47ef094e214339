"""A service moves from client to client while its messages flow, one instance after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.interop.wheels import LATER_VERSIONS, OfficialClient
from tests.server.features.topic_calls import eventually, make_topic

pytestmark = pytest.mark.interop

PARTITIONS = 4
INSTANCES = 2
GROUP = "service"
STEP_MESSAGES = 15
MEMBER_BATCH = 5
# Partitions move when an instance goes and when the next one comes.
HANDOVERS = 2 * INSTANCES * len(LATER_VERSIONS)


@dataclass
class Service:
    """Instances that each produce to a topic and consume it as one group.

    Attributes:
        sent: the payloads whose sends were answered, of instances that were stopped.
        taken: partition, offset and payload of what those handled.
    """

    directory: Path
    place: dict[str, Any]
    instances: list[OfficialClient | None] = field(default_factory=lambda: [None] * INSTANCES)
    sent: list[str] = field(default_factory=list)
    taken: list[tuple[int, int, str]] = field(default_factory=list)

    def start(self, slot: int, version: str) -> None:
        """Start an instance of a version and see it produce and consume."""
        client = self.instances[slot] = OfficialClient(version, self.directory)
        client.run("produce", name=f"{slot} of {version}", partitions=PARTITIONS, **self.place)
        client.run(
            "join", name="it", group=GROUP, stores_each=True, batch=MEMBER_BATCH, **self.place
        )

    def flow(self) -> None:
        """Wait until every instance has handled some more."""
        for client in self.running():
            handled = len(client.run("taken", name="it").returned)
            client.run("taken", name="it", least=handled + STEP_MESSAGES)

    def running(self) -> list[OfficialClient]:
        return [client for client in self.instances if client is not None]

    def quieten(self, slot: int) -> None:
        """Have an instance produce no more."""
        client = self.instances[slot]
        assert client is not None
        self.sent += client.run("finish", name=f"{slot} of {client.version}").returned

    def handled(self) -> list[tuple[int, int, str]]:
        """Return what all instances have handled, of those that run as well."""
        live = [
            (partition, offset, payload)
            for client in self.running()
            for partition, offset, payload, _ in client.run("taken", name="it").returned
        ]
        return [*self.taken, *live]

    def stop(self, slot: int) -> None:
        """Have an instance consume no more, and end it."""
        client = self.instances[slot]
        assert client is not None
        for partition, offset, payload, _ in client.run("leave", name="it").returned:
            self.taken.append((partition, offset, payload))
        self.kill(slot)

    def kill(self, slot: int) -> None:
        client, self.instances[slot] = self.instances[slot], None
        if client is not None:
            client.kill()


@pytest.fixture
def service(shared_server, tmp_path):
    """Run a service on a topic of its own, on the server with two shards."""
    server = shared_server(2)
    host, port = server.address
    with server.login() as client:
        topic = make_topic(client, partitions=PARTITIONS)
        url = f"iggy+tcp://iggy:iggy@{host}:{port}"
        made = Service(tmp_path, {"url": url, "stream": topic.stream, "topic": topic.topic})
        try:
            yield made, topic
        finally:
            for slot in range(INSTANCES):
                made.kill(slot)


def is_shared(topic):
    """Tell whether all instances are members and own as many partitions."""
    return sorted(map(len, topic.shares(GROUP))) == [PARTITIONS // INSTANCES] * INSTANCES


def test_service_when_its_instances_are_upgraded_one_by_one_then_nothing_is_lost(service):
    service, topic = service
    for slot in range(INSTANCES):
        service.start(slot, "0.8.0")
    for version in LATER_VERSIONS:
        for slot in range(INSTANCES):
            assert eventually(lambda: is_shared(topic), within_s=10), topic.shares(GROUP)
            service.flow()
            service.quieten(slot)
            service.stop(slot)
            service.start(slot, version)
    assert eventually(lambda: is_shared(topic), within_s=10), topic.shares(GROUP)
    service.flow()
    for slot in range(INSTANCES):
        service.quieten(slot)
    assert eventually(
        lambda: {payload for *_, payload in service.handled()} >= set(service.sent), within_s=15
    )
    for slot in range(INSTANCES):
        service.stop(slot)

    # What was sent is in the log once, and nothing else is.
    logs = [topic.read(partition=partition) for partition in range(PARTITIONS)]
    assert Counter(payload for log in logs for payload in log) == Counter(service.sent)
    assert len(service.sent) > STEP_MESSAGES * len(LATER_VERSIONS)
    # Every message was handled as it lies in the log.
    for partition, offset, payload in service.taken:
        assert logs[partition][offset] == payload
    times = Counter(payload for *_, payload in service.taken)
    assert times.keys() == set(service.sent)
    # What a member has polled and not stored may come again to the next one, and nothing more.
    again = sum(count - 1 for count in times.values())
    assert again <= HANDOVERS * PARTITIONS * MEMBER_BATCH
