"""What tests of whole jobs share: a topic of orders, and a way to run a job in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from iggy_sdk.blocking import IggyClient
    from iggy_sdk.testing import RunningServer

BAD = [b"nope", b'{"id": "text"}']


@pytest.fixture
def orders(client: IggyClient, stream: str) -> Callable[..., None]:
    """Return a function that sends orders to both partitions of topic ``orders``."""
    client.create_topic(stream, "orders", 2)

    def send(first: int = 0, count: int = 20, *, bad: bool = False) -> None:
        for partition in range(2):
            payloads = [
                b'{"id": %d, "item": "tea", "cups": %d}' % (number, number % 5)
                for number in range(first + partition, first + 2 * count, 2)
            ]
            more = BAD if bad else []
            client.send_messages(stream, "orders", payloads + more, partition_id=partition)

    return send


@pytest.fixture
def run(spark: Any, spark_server: RunningServer, stream: str) -> Callable[..., int]:
    """Return a function that runs a job on topic ``orders`` in the session of the tests."""

    def run_job(job: Any, *arguments: object, topic: str = "orders") -> int:
        place = ["--server", spark_server.url, "--stream", stream, "--topic", topic]
        code: int = job.main([*place, *map(str, arguments)])
        return code

    return run_job
