"""An immutable catalog of objects with a unique id and a unique name.

The id that was freed last is reused first, and a new number only when none is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from iggy_protocol import record

if TYPE_CHECKING:
    from iggy_protocol import Identifier

__all__ = ["Catalog", "Named"]


class Named(Protocol):
    """A thing with an id and a name."""

    @property
    def id(self) -> int:
        """The number of its place."""

    @property
    def name(self) -> str:
        """The text it is known by."""


T = TypeVar("T", bound=Named)


@record
class Catalog(Generic[T]):
    """Things by id and by name; every change makes a new catalog and leaves this one alone.

    Attributes:
        by_id: the things, in no particular order.
        id_by_name: where a name leads.
        free_ids: ids below the highest that are not in use, the one to be used next at the end.
    """

    by_id: Mapping[int, T] = field(default_factory=dict)
    id_by_name: Mapping[str, int] = field(default_factory=dict)
    free_ids: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[T]:
        """Go through the things by ascending id."""
        by_id = self.by_id
        return iter([by_id[number] for number in sorted(by_id)])

    @property
    def next_id(self) -> int:
        """The id for the thing that is created next."""
        return self.free_ids[-1] if self.free_ids else len(self.by_id)

    def find(self, identifier: Identifier) -> T | None:
        """Look a thing up: a number is an id, a text is a name, even one made of digits."""
        if isinstance(identifier, str):
            number = self.id_by_name.get(identifier)
            return None if number is None else self.by_id[number]
        return self.by_id.get(identifier)

    def fits(self, thing: T) -> bool:
        """Tell whether neither the id nor the name is taken."""
        return thing.id not in self.by_id and thing.name not in self.id_by_name

    def add(self, thing: T) -> Catalog[T]:
        """Put up a new thing that fits; ids that are skipped become free."""
        unused = len(self.by_id) + len(self.free_ids)
        free_ids = tuple(number for number in self.free_ids if number != thing.id)
        return Catalog(
            {**self.by_id, thing.id: thing},
            {**self.id_by_name, thing.name: thing.id},
            free_ids + tuple(range(unused, thing.id)),
        )

    def replace(self, thing: T) -> Catalog[T]:
        """Exchange the thing with this id for another one, possibly under another name."""
        before = self.by_id[thing.id]
        id_by_name = self.id_by_name
        if before.name != thing.name:
            renamed = {name: number for name, number in id_by_name.items() if number != thing.id}
            id_by_name = {**renamed, thing.name: thing.id}
        return Catalog({**self.by_id, thing.id: thing}, id_by_name, self.free_ids)

    def remove(self, number: int) -> Catalog[T]:
        """Take a thing away; its id is the next to be given out."""
        by_id = dict(self.by_id)
        id_by_name = dict(self.id_by_name)
        del id_by_name[by_id.pop(number).name]
        return Catalog(by_id, id_by_name, (*self.free_ids, number))
