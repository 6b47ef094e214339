"""Sends from 0.9 on that the scheduler stages together, and what each of them is answered."""

from __future__ import annotations

import pytest
import trio

from iggy_protocol import Dialect, SessionBinding
from iggy_ref_server.faults import ServerFault
from tests.protocol.vsr_frames import CLIENT, SESSION, replicated, replies_in
from tests.protocol.vsr_strategies import make_frame, make_send
from tests.server.net.scheduler_harness import SchedulerHarness

pytestmark = pytest.mark.trio

BODY = make_send([make_frame(b"m")])
REFUSED = 87


def sends(*numbers):
    return b"".join(replicated(160, BODY, number=number) for number in numbers)


def connect(stage):
    """Have a client that is bound to a session."""
    pipeline = stage.connect()
    pipeline.session.user_id = 0
    pipeline.session.binding = SessionBinding(Dialect.V0_12_0, CLIENT, SESSION, 0)
    pipeline.resume(is_vsr=True)
    return pipeline


def feed(stage, pipeline, data):
    """Have bytes read in place, as from a socket."""
    space = pipeline.connection.get_buffer(len(data))
    space[: len(data)] = data
    pipeline.connection.buffer_updated(len(data))
    stage.woken.add(pipeline)


def answered(stage, pipeline):
    return [(head.number, head.status) for head, _ in replies_in(stage.sent[pipeline])]


async def test_sends_when_they_come_together_then_are_staged_once_and_all_answered():
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery, pipelined_max=8)
        pipeline = connect(stage)
        feed(stage, pipeline, sends(1, 2, 3, 4))
        stage.round()
        assert stage.appender.stages_count == 2
        assert pipeline.replies.uncommitted_bytes > 0

        stage.appender.settle_oldest()
        stage.round()
        assert answered(stage, pipeline) == [(1, 1)]
        stage.appender.settle_oldest()
        stage.round()

        assert answered(stage, pipeline) == [(1, 1), (2, 2), (3, 2), (4, 2)]
        assert pipeline.connection.is_idle
        assert pipeline.replies.uncommitted_bytes == 0


async def test_sends_when_more_come_than_may_wait_then_the_rest_is_taken_after_replies():
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery, pipelined_max=3)
        pipeline = connect(stage)
        feed(stage, pipeline, sends(*range(1, 9)))
        for _ in range(4):
            stage.round()
            assert pipeline.connection.outstanding <= 3
            while stage.appender.open:
                stage.appender.settle_oldest()
        stage.round()

        assert [number for number, _ in answered(stage, pipeline)] == list(range(1, 9))


async def test_sends_when_refused_together_then_each_is_told_and_the_next_is_taken_by_itself():
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery)
        pipeline = connect(stage)
        stage.appender.refusal = ServerFault(REFUSED, "the partition is another one")
        feed(stage, pipeline, sends(1, 2, 3))
        stage.round()
        stage.appender.settle_oldest()
        stage.round()
        assert answered(stage, pipeline) == [(1, 1), (2, REFUSED), (3, REFUSED)]

        feed(stage, pipeline, sends(4))
        stage.round()
        stage.appender.settle_oldest()
        stage.round()

        assert answered(stage, pipeline)[3:] == [(4, 2)]


async def test_sends_when_the_partition_is_backlogged_then_the_client_waits_for_the_commit():
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery)
        pipeline = connect(stage)
        feed(stage, pipeline, sends(1))
        stage.round()
        stage.appender.clogs = True
        feed(stage, pipeline, sends(2, 3))
        stage.round()
        assert not pipeline.can_read

        for _ in range(2):
            stage.appender.settle_oldest()
            stage.round()

        assert pipeline.can_read
        assert [number for number, _ in answered(stage, pipeline)] == [1, 2, 3]
