"""Classes with variants, as the official client has them: ``IggyExpiry.NeverExpire()``.

A variant is a class of its own that extends the class it belongs to, so ``isinstance`` and
``match`` see both. Its values are attributes, and those of some classes are also read by number.
Knows none of the classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

V = TypeVar("V")


def variant(owner: type[Any], name: str) -> Callable[[type[V]], type[V]]:
    """Make a class known as a variant of another one, under its official name.

    Args:
        owner: the class that has variants.
        name: what the variant is called there.
    """

    def register(made: type[V]) -> type[V]:
        made.__name__ = name
        made.__qualname__ = f"{owner.__qualname__}.{name}"
        setattr(owner, name, made)
        return made

    return register


class ByValue:
    """What variants and settings share: they show their values, and are equal if those are.

    ``__match_args__`` names the values.
    """

    __slots__ = ()

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _names_in(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByValue) or type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        shown = ", ".join(
            repr(value) if name.startswith("_") else f"{name}={value!r}"
            for name, value in zip(_names_in(self), self._values(), strict=True)
        )
        return f"{type(self).__qualname__}({shown})"


class SequenceVariant(ByValue):
    """A variant whose values are also read by number; one without values is false, therefore."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(_names_in(self))

    def __getitem__(self, index: int, /) -> Any:
        return self._values()[index]


def _names_in(value: object) -> tuple[str, ...]:
    """Name the values of a variant, which has none if it says nothing."""
    names: tuple[str, ...] = getattr(value, "__match_args__", ())
    return names
