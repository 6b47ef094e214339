"""Every call of the scheduler ends, whatever clients pipeline and whenever outcomes are known."""

from __future__ import annotations

import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st

from iggy_ref_server.net.connection_state import ConnectionState
from iggy_ref_server.net.scheduler import REQUESTS_PER_TURN_MAX
from tests.server.net.scheduler_harness import PING, SEND, SchedulerHarness


def on_stage(play, **options):
    """Play a scene inside of trio."""

    async def main():
        async with trio.open_nursery() as nursery:
            await play(SchedulerHarness(nursery, **options))

    trio.run(main)


def test_finish_when_a_client_has_as_many_unanswered_sends_as_it_may_then_returns():
    """It used to serve the paused client again and again, and no other client ever after."""

    async def play(stage):
        pipeline = stage.connect()
        stage.feed(pipeline, SEND * 9)
        stage.round()
        assert pipeline.connection.outstanding == 8
        assert not stage.woken
        while stage.appender.open:
            stage.appender.settle_oldest()
        stage.round()
        assert pipeline.connection.outstanding == 1
        stage.appender.settle_oldest()
        stage.round()
        assert stage.answered(pipeline) == stage.pending_reply(pipeline)
        assert len(stage.pending_reply(pipeline)) == 9

    on_stage(play)


def test_outcome_when_it_comes_outside_of_a_round_then_only_marks_its_link():
    async def play(stage):
        pipeline = stage.connect()
        stage.feed(pipeline, SEND * 20)
        stage.round()
        staged = stage.appender.stages_count
        stage.appender.settle_oldest()
        assert stage.woken == {pipeline}
        assert stage.appender.stages_count == staged
        assert stage.answered(pipeline) == []

    on_stage(play)


def test_client_when_it_pipelines_more_than_a_turn_allows_then_others_are_served_in_between():
    async def play(stage):
        greedy, modest = stage.connect(), stage.connect()
        stage.feed(greedy, PING * (3 * REQUESTS_PER_TURN_MAX))
        stage.feed(modest, PING)
        stage.round()
        # One step of the first turn found the framing.
        assert len(stage.answered(greedy)) == REQUESTS_PER_TURN_MAX - 1
        assert len(stage.answered(modest)) == 1
        assert greedy in stage.woken
        while stage.woken:
            stage.round()
        assert len(stage.answered(greedy)) == 3 * REQUESTS_PER_TURN_MAX
        assert greedy.state is ConnectionState.READING

    on_stage(play, pipelined_max=1024)


def test_sends_when_each_commit_decides_them_then_go_on_round_by_round():
    async def play(stage):
        stage.appender.is_at_once = True
        pipeline = stage.connect()
        stage.feed(pipeline, SEND * 100)
        while stage.woken:
            stage.round()
        assert stage.answered(pipeline) == stage.pending_reply(pipeline)
        assert len(stage.pending_reply(pipeline)) == 100
        assert stage.rounds_count <= 100 // stage.pipelined_max + 2

    on_stage(play)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), st.integers(0, 2), st.text("sp", min_size=1, max_size=30)),
        st.tuples(st.just("cut"), st.integers(0, 2), st.integers(1, 200)),
        st.tuples(st.sampled_from(["round", "oldest", "newest", "yield"])),
        st.tuples(st.sampled_from(["clogs", "is_at_once", "is_slow"]), st.booleans()),
    ),
    max_size=60,
)


class _Player:
    """Plays steps: what clients have said reaches the server piece by piece."""

    def __init__(self, stage):
        self.stage = stage
        self.links = [stage.connect() for _ in range(3)]
        self.unsent = [b""] * len(self.links)
        self.asked = [0] * len(self.links)

    async def play(self, step):
        stage, kind = self.stage, step[0]
        if kind == "feed":
            _, number, letters = step
            self.unsent[number] += b"".join({"s": SEND, "p": PING}[one] for one in letters)
            self.asked[number] += len(letters)
        elif kind == "cut":
            self.give(step[1], step[2])
        elif kind == "round":
            stage.round()
        elif kind == "yield":
            await trio.testing.wait_all_tasks_blocked()
        elif kind == "is_slow":
            stage.dispatcher.is_slow = step[1]
        elif kind in {"clogs", "is_at_once"}:
            setattr(stage.appender, kind, step[1])
        elif stage.appender.open:
            getattr(stage.appender, f"settle_{kind}")()

    def give(self, number, size):
        """Have the next bytes received, as a socket would: only while the link reads."""
        data, pipeline = self.unsent[number][:size], self.links[number]
        if data and pipeline.can_read:
            self.unsent[number] = self.unsent[number][size:]
            self.stage.feed(pipeline, data)

    async def finish(self):
        """Let everything come that is to come; tell whether that ends."""
        stage = self.stage
        for _ in range(20 * sum(self.asked) + 20):
            for number in range(len(self.links)):
                self.give(number, 1000)
            stage.round()
            await trio.testing.wait_all_tasks_blocked()
            if stage.appender.open:
                stage.appender.settle_oldest()
            elif not stage.woken and not any(self.unsent):
                return


@given(STEPS, st.sampled_from([1, 2, 8]))
@example([("feed", 0, "s" * 30), ("cut", 0, 100_000), ("round",)], 8)
@example([("feed", 0, "sp" * 9), ("is_slow", True), ("cut", 0, 5_000), ("round",)], 2)
def test_requests_when_pipelined_in_any_way_then_all_are_answered_in_order(steps, pipelined_max):
    async def play(stage):
        player = _Player(stage)
        for step in steps:
            await player.play(step)
        await player.finish()
        for number, pipeline in enumerate(player.links):
            assert stage.answered(pipeline) == stage.pending_reply(pipeline)
            assert len(stage.pending_reply(pipeline)) == player.asked[number]

    on_stage(play, pipelined_max=pipelined_max)
