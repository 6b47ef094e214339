"""The budget of open files: what is in use stays, what is idle goes, and the count is kept."""

from __future__ import annotations

import pytest

from iggy_ref_server.storage.interface import OpenFileBudget


class Shelf:
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
    budget, shelf = OpenFileBudget(), Shelf()
    shelf.keep(budget, *range(1000))

    assert len(shelf.kept) == 1000
    assert budget.descriptors_count == 2000


def test_keeping_when_the_budget_is_spent_then_the_oldest_is_closed():
    budget, shelf = OpenFileBudget(6), Shelf()
    shelf.keep(budget, "a", "b", "c", "d")

    assert shelf.kept == {"b", "c", "d"}
    assert budget.descriptors_count == 6


def test_keeping_when_the_oldest_is_in_use_then_it_has_a_second_chance():
    budget, shelf = OpenFileBudget(6), Shelf()
    shelf.keep(budget, "a", "b", "c")
    shelf.used = {"a"}
    shelf.keep(budget, "d")
    assert shelf.kept == {"a", "c", "d"}
    shelf.keep(budget, "e", "f")

    assert shelf.kept == {"a", "e", "f"} or "a" not in shelf.kept
    assert budget.descriptors_count == 6


def test_keeping_when_everything_is_in_use_then_one_is_closed_all_the_same():
    budget, shelf = OpenFileBudget(6), Shelf()
    shelf.keep(budget, "a", "b", "c")
    shelf.used = {"a", "b", "c", "d"}
    shelf.keep(budget, "d")

    assert len(shelf.kept) == 3
    assert "d" in shelf.kept


def test_keeping_when_one_alone_is_more_than_the_budget_then_it_is_kept():
    budget, shelf = OpenFileBudget(1), Shelf()
    shelf.keep(budget, "a")
    shelf.keep(budget, "b")

    assert shelf.kept == {"b"}


@pytest.mark.parametrize("count", [1, 3, 10])
def test_squeezing_when_something_is_kept_then_some_of_it_is_closed(count):
    budget, shelf = OpenFileBudget(), Shelf()
    shelf.keep(budget, *range(count))

    assert budget.evict_some()
    assert len(shelf.kept) == count - max(1, -(-count // 4))


def test_squeezing_when_nothing_is_kept_then_that_is_told():
    assert not OpenFileBudget(10).evict_some()


def test_forgetting_when_an_item_is_unknown_then_nothing_happens():
    budget, shelf = OpenFileBudget(4), Shelf()
    shelf.keep(budget, "a")
    budget.forget(shelf, "b")
    budget.forget(shelf, "a")
    budget.forget(shelf, "a")

    assert budget.descriptors_count == 0
