"""Ids and names in a catalog."""

from __future__ import annotations

from iggy_ref_server.metadata.state import Catalog, GroupRecord


def thing(number: int, name: str = "") -> GroupRecord:
    return GroupRecord(number, name or f"g{number}", generation=1)


def catalog_of(*numbers: int) -> Catalog[GroupRecord]:
    catalog: Catalog[GroupRecord] = Catalog()
    for number in numbers:
        catalog = catalog.add(thing(number))
    return catalog


def test_next_id_when_nothing_was_freed_then_counts_up_from_zero():
    assert [catalog_of(*range(count)).next_id for count in range(3)] == [0, 1, 2]


def test_next_id_when_ids_were_freed_then_the_last_freed_comes_first():
    catalog = catalog_of(0, 1, 2, 3, 4).remove(1).remove(4).remove(2)

    given = []
    for _ in range(4):
        given.append(catalog.next_id)
        catalog = catalog.add(thing(catalog.next_id))

    assert given == [2, 4, 1, 5]


def test_add_when_ids_are_skipped_then_they_are_free_and_the_highest_comes_first():
    catalog = catalog_of(0, 3)

    assert catalog.free_ids == (1, 2)
    assert catalog.next_id == 2


def test_add_when_a_free_id_is_taken_out_of_turn_then_the_others_stay_free():
    catalog = catalog_of(0, 1, 2).remove(0).remove(1).remove(2).add(thing(1))

    assert catalog.free_ids == (0, 2)


def test_find_when_given_a_number_or_a_text_then_tells_ids_from_names():
    catalog = catalog_of(0, 1).add(thing(2, "1"))

    assert (catalog.find(1), catalog.find("1")) == (thing(1), thing(2, "1"))
    assert (catalog.find(7), catalog.find("7")) == (None, None)


def test_find_when_letter_case_differs_then_finds_nothing():
    assert catalog_of(0).find("G0") is None


def test_replace_when_renamed_then_the_old_name_is_free():
    catalog = catalog_of(0, 1).replace(thing(0, "new"))

    assert catalog.find("g0") is None
    assert catalog.find("new") == catalog.find(0) == thing(0, "new")


def test_change_when_made_then_the_old_catalog_is_as_before():
    before = catalog_of(0, 1)

    before.add(thing(2))
    before.remove(0)
    before.replace(thing(1, "new"))

    assert before == catalog_of(0, 1)


def test_iteration_when_ids_came_in_any_order_then_ascends():
    catalog = catalog_of(0, 1, 2).remove(0).add(thing(0, "again"))

    assert [entry.id for entry in catalog] == [0, 1, 2]
    assert len(catalog) == 3
