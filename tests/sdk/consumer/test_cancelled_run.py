"""``run`` cancelled at every checkpoint of any of its tasks: nothing lost, nothing left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from iggy_protocol import LoginUser
from iggy_sdk.consumer import AutoCommit, ConsumerBuilder
from tests.sdk.cancelling import CHECKPOINTS_MAX, cancel_at, tasks_at_rest
from tests.sdk.consumer.fake_topic import FakeTopic, fake_topic_and_client

if TYPE_CHECKING:
    from iggy_sdk.consumer import IggyConsumer
    from iggy_sdk.consumer.runner import OrderBy
    from iggy_sdk.message import ReceivedMessage

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.virtual_time,
    pytest.mark.usefixtures("every_dialect"),
]

MESSAGES = {0: 4, 1: 2}
EVERY = {(partition, offset) for partition, count in MESSAGES.items() for offset in range(count)}

ONE_BY_ONE = AutoCommit.after_each(coalesce_messages=1)
BATCHWISE = AutoCommit.after_all()


class Trial:
    """One call that is cancelled, and what it leaves behind."""

    def __init__(
        self, fake_topic: FakeTopic, consumer: IggyConsumer[Any], order_by: OrderBy | None
    ) -> None:
        self.done: list[tuple[int, int]] = []
        self._fake_topic = fake_topic
        self._consumer = consumer
        self._order_by = order_by

    async def run(self) -> None:
        """Handle everything there is."""
        await self._consumer.run(
            self._handle, concurrency=2, order_by=self._order_by, until_end=True
        )

    async def _handle(self, message: ReceivedMessage[Any]) -> None:
        await anyio.sleep(0.01)
        self.done.append((message.partition_id, message.offset))

    def done_in_order(self, partition_id: int) -> int:
        """Count the messages of a partition that are done without a gap."""
        count = 0
        while (partition_id, count) in self.done:
            count += 1
        return count

    def stored(self, partition_id: int) -> int:
        """Count the messages of a partition that are stored as done."""
        offset = self._fake_topic.offset(partition_id)
        return 0 if offset is None else offset + 1


async def cancel_run(checkpoint: int, order_by: OrderBy | None, mode: AutoCommit) -> bool:
    """Cancel one call at one checkpoint; return whether it came that far."""
    async with fake_topic_and_client(2) as (fake_topic, client):
        for partition_id, count in MESSAGES.items():
            fake_topic.fill(partition_id, count)
        builder = ConsumerBuilder.group(client, "g", "s", "t", batch_length=2).commit(mode)
        async with builder as consumer:
            trial = Trial(fake_topic, consumer, order_by)
            tasks, logins = await tasks_at_rest(), fake_topic.count(LoginUser)

            is_reached = await cancel_at(trial.run, checkpoint, children=True)

            for partition_id in MESSAGES:
                stored, done = trial.stored(partition_id), trial.done_in_order(partition_id)
                assert stored == done if mode is ONE_BY_ONE else stored <= done
            assert await tasks_at_rest() == tasks
            assert is_reached or set(trial.done) == EVERY
            await trial.run()
            assert await tasks_at_rest() == tasks
            assert fake_topic.count(LoginUser) == logins
        assert set(trial.done) == EVERY
        assert [trial.stored(partition_id) for partition_id in MESSAGES] == [*MESSAGES.values()]
    return is_reached


@pytest.mark.parametrize("mode", [ONE_BY_ONE, BATCHWISE])
@pytest.mark.parametrize("order_by", [None, "partition"])
async def test_run_when_cancelled_at_every_checkpoint_then_hands_out_again_what_was_not_done(
    order_by, mode
):
    for checkpoint in range(1, CHECKPOINTS_MAX):
        if not await cancel_run(checkpoint, order_by, mode):
            assert checkpoint > 20
            return
    raise AssertionError("the call does not end")
