"""The budget of buffers: sums that always agree, who waits, and who goes."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.client_limits import SMALL_BYTES_MAX, BufferBudget
from tests.server.simulated.server import open_simulated_server

MIB = 1 << 20
LIMIT = 16 * MIB


class House:
    """A budget, and what became of its accounts."""

    def __init__(self, limit_bytes: int = LIMIT) -> None:
        self.budget = BufferBudget(limit_bytes)
        self.closed: list[str] = []
        self.woken: list[str] = []

    def open(self, name: str):
        """Open an account that tells what happens to it."""
        return self.budget.open(
            name, lambda: self.closed.append(name), lambda: self.woken.append(name)
        )


def test_account_when_told_twice_then_counts_once():
    house = House()
    account = house.open("a")
    for _ in range(3):
        account.hold(MIB)
    assert house.budget.total_bytes == MIB

    account.close()
    account.close()
    account.hold(5)
    assert house.budget.total_bytes == 0
    assert house.budget.accounts_count == 0


def test_account_when_the_limit_is_passed_then_the_largest_is_closed_with_a_line(caplog):
    house = House()
    small, large = house.open("10.0.0.1:1"), house.open("10.0.0.2:2")
    small.hold(6 * MIB)
    large.hold(11 * MIB)

    with caplog.at_level(logging.ERROR):
        house.budget.evict_over_limit()

    assert house.closed == ["10.0.0.2:2"]
    assert house.budget.total_bytes == 6 * MIB
    for word in ("10.0.0.2:2", "11.0 MiB", "limits.memory_budget"):
        assert word in caplog.text


def test_large_request_when_it_does_not_fit_then_waits_until_it_does():
    house = House()
    first, second = house.open("first"), house.open("second")
    first.hold(0, 10 * MIB)
    second.hold(100, 10 * MIB)
    assert (first.is_paused, second.is_paused) == (False, True)
    assert house.budget.total_bytes == 10 * MIB + 100

    first.hold(10 * MIB)
    assert not house.woken
    first.hold(0)
    assert house.woken == ["second"]
    second.hold(100, 10 * MIB)
    assert not second.is_paused


def test_large_request_when_refused_while_its_client_gives_back_then_still_waits():
    house = House()
    first, second = house.open("first"), house.open("second")
    first.hold(10 * MIB)
    second.hold(MIB, 0)
    second.hold(100, 10 * MIB)
    assert second.is_paused
    assert not house.woken

    first.hold(0)
    assert house.woken == ["second"]


def test_small_requests_when_the_limit_is_reached_then_go_on():
    house = House()
    holder, other = house.open("holder"), house.open("other")
    holder.hold(LIMIT)

    other.hold(SMALL_BYTES_MAX)
    other.hold(10, SMALL_BYTES_MAX)

    assert holder.is_paused
    assert not other.is_paused


def test_client_when_it_holds_much_and_room_is_scarce_then_waits_and_is_woken():
    house = House()
    account = house.open("a")
    account.hold(13 * MIB)
    assert account.is_paused

    account.hold(MIB)

    assert not account.is_paused
    assert house.woken == ["a"]


def test_request_under_way_when_room_is_scarce_then_goes_on():
    house = House()
    account = house.open("a")
    account.hold(0, 14 * MIB)
    account.hold(7 * MIB, 7 * MIB)
    assert not account.is_paused


def test_request_under_way_when_almost_complete_and_room_is_scarce_then_goes_on():
    house = House()
    account = house.open("a")
    account.hold(0, 14 * MIB)
    account.hold(14 * MIB - 100, 100)
    assert not account.is_paused
    assert house.budget.total_bytes == 14 * MIB

    account.hold(14 * MIB)
    assert account.is_paused


def test_account_when_others_wait_and_it_does_not_move_then_is_closed():
    house = House()
    still, busy, waiting = house.open("still"), house.open("busy"), house.open("waiting")
    still.hold(4 * MIB)
    busy.hold(5 * MIB)
    waiting.hold(0, 8 * MIB)
    house.budget.check()
    busy.hold(6 * MIB)
    waiting.hold(1, 8 * MIB)

    house.budget.check()

    assert house.closed == ["still"]
    assert "waiting" in house.woken


@pytest.mark.parametrize(("held", "most"), [(0, 3 * MIB), (8 * MIB, MIB), (LIMIT, 1 << 16)])
def test_share_when_less_is_left_then_is_smaller_and_never_nothing(held, most):
    house = House()
    house.open("a").hold(held)
    assert house.budget.reply_allowance(64 * MIB) == most
    assert house.budget.reply_allowance(1000) == 1000


SIZES = st.integers(0, 6 * MIB)
STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["hold", "want", "close", "check"]), SIZES)
)


@given(STEPS)
def test_sums_when_anything_happens_then_agree_with_the_accounts(steps):
    house = House()
    accounts = {number: house.open(str(number)) for number in range(6)}
    for number, action, size in steps:
        account = accounts[number]
        if action == "hold":
            account.hold(size)
        elif action == "want":
            account.hold(account.size_bytes, size)
        elif action == "close":
            account.close()
            accounts[number] = house.open(str(number))
        else:
            house.budget.check()
            assert not house.budget.is_over or all(
                not one.size_bytes for one in house.budget._accounts
            )
        living = list(house.budget._accounts)
        total = sum(one.size_bytes + one.reserved_bytes for one in living)
        assert house.budget.total_bytes == total
        # One step adds at most what one connection holds.
        house.budget.evict_over_limit()
        assert house.budget.total_bytes <= LIMIT + 6 * MIB
    for account in accounts.values():
        account.close()
    assert house.budget.total_bytes == 0
    assert house.budget.accounts_count == 0


@pytest.mark.trio
async def test_shard_when_it_is_told_a_budget_then_all_its_connections_have_accounts_there():
    async with open_simulated_server(settings={"LIMITS_MEMORY_BUDGET": "10 MiB"}) as world:
        shard = world.shards[0]
        await world.log_in()
        assert shard.budget.limit_bytes == 10 * MIB
        assert shard.budget.accounts_count == 1
        assert shard.socket_server._budget is shard.budget
