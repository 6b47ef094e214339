"""The budget of open files: what is in use stays, what is idle goes, and the count is kept."""

from __future__ import annotations

import pytest

from iggy_ref_server.storage.interface import OpenFileBudget


class FileOwner:
    """An owner that remembers what it holds and what was used."""

    def __init__(self) -> None:
        self.kept: set[object] = set()
        self.used: set[object] = set()

    def keep(self, budget: OpenFileBudget, *items: object) -> None:
        """Open items."""
        for item in items:
            self.kept.add(item)
            budget.keep(self, item, 2)

    def is_idle(self, item: object) -> bool:
        """Tell whether an item was not used since the last time."""
        is_idle = item not in self.used
        self.used.discard(item)
        return is_idle

    def close_item(self, item: object) -> None:
        """Close an item."""
        self.kept.remove(item)


def test_keeping_when_there_is_no_bound_then_nothing_is_closed():
    budget, owner = OpenFileBudget(), FileOwner()
    owner.keep(budget, *range(1000))

    assert len(owner.kept) == 1000
    assert budget.descriptors_count == 2000


def test_keeping_when_the_budget_is_spent_then_the_oldest_is_closed():
    budget, owner = OpenFileBudget(6), FileOwner()
    owner.keep(budget, "a", "b", "c", "d")

    assert owner.kept == {"b", "c", "d"}
    assert budget.descriptors_count == 6


def test_keeping_when_the_oldest_is_in_use_then_it_has_a_second_chance():
    budget, owner = OpenFileBudget(6), FileOwner()
    owner.keep(budget, "a", "b", "c")
    owner.used = {"a"}
    owner.keep(budget, "d")
    assert owner.kept == {"a", "c", "d"}
    owner.keep(budget, "e", "f")

    assert owner.kept == {"a", "e", "f"} or "a" not in owner.kept
    assert budget.descriptors_count == 6


def test_keeping_when_everything_is_in_use_then_one_is_closed_all_the_same():
    budget, owner = OpenFileBudget(6), FileOwner()
    owner.keep(budget, "a", "b", "c")
    owner.used = {"a", "b", "c", "d"}
    owner.keep(budget, "d")

    assert len(owner.kept) == 3
    assert "d" in owner.kept


def test_keeping_when_one_alone_is_more_than_the_budget_then_it_is_kept():
    budget, owner = OpenFileBudget(1), FileOwner()
    owner.keep(budget, "a")
    owner.keep(budget, "b")

    assert owner.kept == {"b"}


@pytest.mark.parametrize("count", [1, 3, 10])
def test_squeezing_when_something_is_kept_then_some_of_it_is_closed(count):
    budget, owner = OpenFileBudget(), FileOwner()
    owner.keep(budget, *range(count))

    assert budget.evict_some()
    assert len(owner.kept) == count - max(1, -(-count // 4))


def test_squeezing_when_nothing_is_kept_then_that_is_told():
    assert not OpenFileBudget(10).evict_some()


def test_forgetting_when_an_item_is_unknown_then_nothing_happens():
    budget, owner = OpenFileBudget(4), FileOwner()
    owner.keep(budget, "a")
    budget.forget(owner, "b")
    budget.forget(owner, "a")
    budget.forget(owner, "a")

    assert budget.descriptors_count == 0
