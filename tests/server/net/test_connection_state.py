"""The states of a connection: as a table, and as the scheduler walks through it."""

from __future__ import annotations

import pytest
import trio

from iggy_protocol import StatusCode
from iggy_ref_server.dispatch.replies import CommandReply
from iggy_ref_server.net.connection_state import (
    TRANSITIONS,
    ConnectionEvent,
    ConnectionState,
    IllegalTransition,
    next_state,
)
from tests.server.net.scheduler_harness import PING, SEND, SchedulerHarness

EVERYTHING = [(state, event) for state in ConnectionState for event in ConnectionEvent]


@pytest.mark.parametrize(("state", "event"), EVERYTHING, ids=lambda part: part.name)
def test_event_when_the_table_has_no_row_for_it_then_is_refused(state, event):
    if (state, event) in TRANSITIONS:
        assert next_state(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition, match=f"{event.name} .* {state.name}"):
            next_state(state, event)


def test_end_when_it_comes_in_any_state_then_nothing_more_is_read():
    for state in ConnectionState:
        after = next_state(state, ConnectionEvent.INPUT_ENDED)
        assert after.name.startswith(("CLOSING", "LINGERING", "ABANDONED", "CLOSED"))


@pytest.mark.trio
async def test_pipeline_when_a_task_handles_a_request_then_goes_on_behind_it():
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery)
        stage.dispatcher.is_slow = True
        pipeline = stage.connect()
        stage.feed(pipeline, PING * 2)
        stage.round()
        seen = [pipeline.state]
        while pipeline.is_busy:
            await trio.lowlevel.checkpoint()
        seen.append(pipeline.state)
        stage.dispatcher.is_slow = False
        stage.round()
        seen.append(pipeline.state)
        state = ConnectionState
        assert seen == [state.HANDLING, state.SERVING, state.READING]
        assert len(stage.answered(pipeline)) == 2


@pytest.mark.trio
async def test_pipeline_when_its_client_goes_during_a_task_then_is_dropped_behind_the_task():
    dropped = []
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery)
        stage.dispatcher.is_slow = True
        pipeline = stage.connect()
        stage.feed(pipeline, PING)
        stage.round()
        pipeline.drop(lambda: dropped.append(pipeline.state))
        assert (pipeline.state, dropped) == (ConnectionState.ABANDONED, [])
    assert dropped == [ConnectionState.CLOSED]


@pytest.mark.trio
async def test_pipeline_when_the_server_stops_during_a_task_then_the_status_follows_the_reply():
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery)
        stage.dispatcher.is_slow = True
        pipeline = stage.connect()
        stage.feed(pipeline, PING)
        stage.round()
        pipeline.close_with(StatusCode.DISCONNECTED)
        stage.round()
        assert (pipeline.state, stage.answered(pipeline)) == (ConnectionState.CLOSING_HANDLING, [])
        while pipeline.is_busy:
            await trio.lowlevel.checkpoint()
        stage.round()
    assert pipeline.is_done
    assert stage.answered(pipeline) == [*stage.pending_reply(pipeline), StatusCode.DISCONNECTED]


@pytest.mark.trio
async def test_request_when_it_follows_a_reply_that_closes_then_gets_no_task(monkeypatch):
    """The reply of a refused send was encoded only when the next request was looked at."""
    closing = CommandReply(40, close=True)
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery)
        stage.appender.is_at_once = True
        stage.dispatcher.is_slow = True
        monkeypatch.setattr(stage.dispatcher, "error_reply", lambda error: closing)
        pipeline = stage.connect()
        stage.feed(pipeline, SEND + PING)
        stage.round()
        assert pipeline.state is ConnectionState.CLOSING
        assert not nursery.child_tasks
    assert stage.answered(pipeline) == [40]


@pytest.mark.trio
@pytest.mark.parametrize("is_slow", [False, True])
async def test_migration_when_the_client_no_longer_prefers_the_other_shard_then_is_cancelled(
    is_slow,
):
    async with trio.open_nursery() as nursery:
        stage = SchedulerHarness(nursery)
        stage.dispatcher.is_slow = is_slow
        pipeline = stage.connect()
        stage.feed(pipeline, PING * 2)
        if is_slow:
            stage.round()
        before = pipeline.state
        pipeline.note_preference(wants_migration=True)
        assert (before, pipeline.is_ready) != (pipeline.state, True)
        assert pipeline.state.name.startswith("MIGRATING")
        pipeline.note_preference(wants_migration=False)
        while len(stage.answered(pipeline)) < 2:
            stage.round()
            await trio.lowlevel.checkpoint()
