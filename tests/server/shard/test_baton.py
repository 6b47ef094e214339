"""A lock that another hand may give back."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from iggy_ref_server.baton import Baton

pytestmark = pytest.mark.trio


async def test_baton_when_given_back_by_somebody_else_then_the_first_in_line_has_it():
    baton, order = Baton(), []

    async def work(name):
        async with baton:
            order.append(name)
            await trio.testing.wait_all_tasks_blocked()

    assert baton.take_now()
    async with trio.open_nursery() as nursery:
        for name in "abc":
            nursery.start_soon(work, name)
            await trio.testing.wait_all_tasks_blocked()
        assert not baton.take_now()
        assert order == []
        baton.give_back()
        assert not baton.take_now(), "it was handed on, nobody may slip in"

    assert order == ["a", "b", "c"]
    assert not baton.is_held


@pytest.mark.parametrize("way", ["take", "with"])
async def test_baton_when_a_waiter_is_cancelled_then_the_next_has_it(way):
    baton, got = Baton(), []

    async def wait(name, scope):
        with scope:
            if way == "take":
                await baton.take()
            else:
                await baton.__aenter__()
            got.append(name)
            baton.give_back()

    baton.take_now()
    scopes = [trio.CancelScope(), trio.CancelScope()]
    async with trio.open_nursery() as nursery:
        for name, scope in enumerate(scopes):
            nursery.start_soon(wait, name, scope)
            await trio.testing.wait_all_tasks_blocked()
        scopes[0].cancel()
        await trio.testing.wait_all_tasks_blocked()
        baton.give_back()

    assert got == [1]
    assert not baton.is_held


async def test_take_when_cancelled_then_nothing_is_held():
    baton = Baton()
    with trio.CancelScope() as scope:
        scope.cancel()
        await baton.take()

    assert scope.cancelled_caught
    assert not baton.is_held


async def test_with_when_free_then_others_may_run_and_take_does_not_let_them():
    baton = Baton()
    with trio.testing.assert_checkpoints():
        async with baton:
            pass
    with trio.testing.assert_no_checkpoints():
        assert baton.take_now()
        baton.give_back()


async def test_baton_when_nobody_has_it_then_it_cannot_be_given_back():
    with pytest.raises(AssertionError):
        Baton().give_back()
