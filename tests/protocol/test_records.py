"""Records are frozen dataclasses with slots, whatever they are made of."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any

import pytest

from iggy_protocol.records import record


@record
class Point:
    """A place."""

    x: int
    y: int = 0
    names: list[str] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)


@record(kw_only=True)
class Named:
    """Something with names alone."""

    x: int
    y: int = 2


@record
class Deep(Point):
    """A place below."""

    depth: int = 9


@record
class Checked:
    """Refuses what is negative."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("a size is not negative")


@record
class Willful:
    """Has methods of its own."""

    text: str

    def __repr__(self) -> str:
        return "mine"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Willful) and other.text.lower() == self.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())


@record
class Lenient:
    """Has a way of its own to be equal, and no hash."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lenient)


@record
class Built:
    """Has a constructor of its own."""

    size: int

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "size", len(text))


@record
class Nothing:
    """Has no fields."""


@dataclass(frozen=True, slots=True)
class Standard:
    """What the standard library makes of the fields of a point."""

    x: int
    y: int = 0
    names: list[str] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)


# What is tried below is what the type checker refuses, so it is not told what these are.
ANY_POINT: Any = Point
ANY_NAMED: Any = Named
ANY_DEEP: Any = Deep


def test_record_when_made_then_has_its_values_and_defaults():
    point = Point(1, names=["a"])

    assert (point.x, point.y, point.names, point.secret) == (1, 0, ["a"], "")


def test_record_when_a_factory_makes_a_default_then_each_has_its_own():
    assert Point(1).names is not Point(1).names


@pytest.mark.parametrize(
    ("arguments", "names"), [((), {}), ((1, 2, [], "", 5), {}), ((1,), {"z": 2}), ((1,), {"x": 2})]
)
def test_record_when_made_wrongly_then_raises_type_error(arguments, names):
    with pytest.raises(TypeError):
        Point(*arguments, **names)


def test_record_when_its_fields_go_by_name_then_refuses_places():
    assert Named(x=1) == Named(x=1, y=2)
    with pytest.raises(TypeError):
        ANY_NAMED(1)


def test_record_when_written_for_people_then_looks_as_the_standard_one_does():
    shown = repr(Point(1, names=["a"], secret="hidden"))

    assert shown == repr(Standard(1, names=["a"], secret="hidden")).replace("Standard", "Point")
    assert "hidden" not in shown


def test_record_when_it_holds_itself_then_can_be_written_all_the_same():
    point = ANY_POINT(1)
    point.names.append(point)

    assert "..." in repr(point)


def test_records_when_compared_then_only_what_counts_counts():
    assert Point(1, names=["a"]) == Point(1, names=["b"])
    assert hash(Point(1, names=["a"])) == hash(Point(1, names=["b"]))
    assert Point(1) != Point(2)
    assert Point(1, secret="a") != Point(1, secret="b")
    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())


def test_records_when_of_different_classes_then_differ():
    assert Point(1) != Standard(1)
    assert Point(1) != Deep(1)


def test_record_when_changed_then_refuses():
    point = ANY_POINT(1)

    with pytest.raises(FrozenInstanceError, match="'x'"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="'y'"):
        del point.y
    with pytest.raises(FrozenInstanceError):
        point.z = 3
    assert point == Point(1)


def test_record_when_looked_at_then_has_slots_and_no_dictionary():
    assert not hasattr(Point(1), "__dict__")
    assert ANY_POINT.__slots__ == ("x", "y", "names", "secret")


def test_record_when_taken_for_a_dataclass_then_is_one():
    point = Point(1, secret="s")

    assert ANY_POINT.__dataclass_params__.frozen
    assert dataclasses.is_dataclass(ANY_POINT)
    assert dataclasses.replace(point, y=5) == Point(1, 5, secret="s")
    assert dataclasses.asdict(point) == {"x": 1, "y": 0, "names": [], "secret": "s"}
    match point:
        case Point(x, y):
            assert (x, y) == (1, 0)


def test_record_when_asked_for_its_signature_then_has_that_of_the_standard_one():
    assert str(inspect.signature(Point)) == str(inspect.signature(Standard))


@pytest.mark.parametrize("point", [Point(1, 2, ["a"], "s"), Deep(1, depth=3), Named(x=1)])
def test_record_when_copied_or_pickled_then_comes_back_equal(point):
    assert copy.copy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point


def test_record_when_it_extends_another_then_has_all_fields():
    deep = ANY_DEEP(1, depth=3)

    assert [one.name for one in dataclasses.fields(deep)] == ["x", "y", "names", "secret", "depth"]
    assert deep == Deep(1, 0, depth=3)
    with pytest.raises(FrozenInstanceError):
        deep.depth = 4


def test_record_when_it_checks_itself_then_the_constructor_asks():
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_record_when_it_has_methods_of_its_own_then_they_stay():
    assert repr(Willful("a")) == "mine"
    assert Willful("A") == Willful("a")
    assert hash(Willful("A")) == hash(Willful("a"))


def test_record_when_it_has_only_an_eq_of_its_own_then_is_hashed_by_its_fields():
    assert hash(Lenient("a")) == hash(Lenient("a"))
    assert hash(Lenient("a")) != hash(Lenient("b"))


def test_record_when_it_has_a_constructor_of_its_own_then_that_stays():
    assert Built("abc").size == 3
    assert Built("abc") == Built("xyz")
