"""Starts, replays and hand-overs on a real server, in each generation that it speaks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from iggy_protocol import ConsumerIdentity
from iggy_sdk.client import IggyClient
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from iggy_sdk.testing.server import external_server_address

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(90),
    pytest.mark.skipif(external_server_address() is not None, reason="it may speak one generation"),
]

SERVER_SHARDS = 2
MANUAL = AutoCommit.disabled()


@pytest.fixture(params=["0.8", "0.9", "0.10"])
async def client(server, request, anyio_backend) -> AsyncIterator[IggyClient]:
    """Connect in one generation, with a topic of three partitions of its own."""
    host, port = server.address
    url = f"iggy://iggy:iggy@{host}:{port}?protocol={request.param}"
    async with IggyClient(url) as opened:
        await opened.create_stream("s", exist_ok=True)
        await opened.delete_stream("s")
        await opened.create_stream("s")
        await opened.create_topic("s", "t", partitions_count=3)
        yield opened


async def fill(client: IggyClient, count: int) -> None:
    """Send messages to each partition."""
    for partition_id in range(3):
        payloads = [b"%d" % number for number in range(count)]
        await client.send_messages("s", "t", payloads, partition_id=partition_id)


def of_each(offsets: list[int]) -> dict[int, list[int]]:
    """Return the same offsets for each partition."""
    return dict.fromkeys(range(3), offsets)


async def read(client: IggyClient, **options) -> dict[int, list[int]]:
    """Read to the end, and return the offsets of each partition."""
    seen: dict[int, list[int]] = {}
    async with client.consumer_group("g", "s", "t", until_end=True, **options) as consumer:
        async for message in consumer:
            seen.setdefault(message.partition_id, []).append(message.offset)
    return seen


@pytest.mark.parametrize("is_time", [False, True])
async def test_new_group_when_it_starts_from_now_on_goes_on_there_after_each_start(client, is_time):
    await fill(client, 20)
    start = datetime.now(UTC) + timedelta(hours=1) if is_time else "latest"
    assert await read(client, start_if_new=start, commit=MANUAL) == {}
    await fill(client, 2)
    assert await read(client, start_if_new=start, commit=MANUAL) == of_each([20, 21])
    assert await read(client) == of_each([20, 21])
    assert await read(client) == {}
    assert await client.consumer_lag("g", "s", "t") == {0: 0, 1: 0, 2: 0}


async def test_new_group_when_it_starts_at_a_time_reads_what_came_since(client):
    await fill(client, 5)
    batch = await client.poll_messages(
        "s", "t", consumer=ConsumerIdentity.single(1), partition_id=0, count=10
    )
    between = batch[-1].timestamp_us + 1
    while datetime.now(UTC).timestamp() * 1e6 <= between + 1_000:
        await anyio.lowlevel.checkpoint()
    await fill(client, 3)
    start = datetime.fromtimestamp(between / 1e6, UTC)
    assert (await read(client, start_if_new=start))[0] == [5, 6, 7]


async def test_replay_when_it_is_over_has_moved_nothing_back(client):
    await fill(client, 30)
    assert await read(client) == of_each([*range(30)])
    async with client.consumer_group("g", "s", "t", replay_from=10) as consumer:
        async for message in consumer:
            await message.commit()
            assert message.offset == 10
            break
    assert await client.consumer_lag("g", "s", "t") == {0: 0, 1: 0, 2: 0}
    again = await read(client, replay_from={1: 25})
    assert again == {1: [*range(25, 30)]}
    assert await read(client) == {}


async def test_members_when_a_partition_is_handed_over_share_without_repeating(client):
    await fill(client, 100)
    told: list[tuple[str, frozenset[int]]] = []
    seen: list[tuple[int, int]] = []
    mode = AutoCommit.after_each(coalesce_messages=1)
    group = client.consumer_group("g", "s", "t", commit=mode, batch_length=10)
    watched = group.on_assigned(lambda all_: told.append(("assigned", all_)))
    watched = watched.on_revoked(lambda all_: told.append(("revoked", all_)))

    async with anyio.create_task_group() as tasks:

        async def work(builder: ConsumerBuilder[Any]) -> None:
            async with builder as consumer:
                async for message in consumer:
                    seen.append((message.partition_id, message.offset))
                    if builder is watched:
                        assigned = [all_ for what, all_ in told if what == "assigned"]
                        assert message.partition_id in frozenset().union(*assigned)
                    if len(seen) == 20:
                        tasks.start_soon(work, group)
                    if len(set(seen)) == 300:
                        tasks.cancel_scope.cancel()
                    await anyio.lowlevel.checkpoint()

        tasks.start_soon(work, watched)
    assert set(seen) == {(p, n) for p in range(3) for n in range(100)}
    assert len(seen) <= 300 + 3
    assert {what for what, _ in told} == {"assigned", "revoked"}
