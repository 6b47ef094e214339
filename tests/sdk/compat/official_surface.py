"""Compares ``iggy_sdk.compat`` with what an official wheel offers, name by name.

The facts about the wheels are in ``tests/golden/clients/names.*.json``. A difference is named like
``IggyClient.create_topic(options)``: the class, its member, and the parameter.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "clients"

BY_POSITION = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.POSITIONAL_ONLY,
)


def facts_of(version: str) -> dict[str, Any]:
    """Return what a wheel offers."""
    facts: dict[str, Any] = json.loads((GOLDEN / f"names.{version}.json").read_text("utf-8"))
    return facts


def default_of(facts: Mapping[str, Any]) -> object:
    """Return the default of a parameter; an ellipsis where the stub keeps it to itself."""
    text = facts["default"]
    if "<<" in text:
        number, places = map(int, text.split("<<"))
        return number << places
    return ast.literal_eval(text)


def different_parameters(
    official: list[dict[str, Any]], ours: list[inspect.Parameter]
) -> Iterator[str]:
    """Yield the parameters with which an official call would fail here, or mean something else."""
    named = {parameter.name: parameter for parameter in ours}
    places = [parameter.name for parameter in ours if parameter.kind in BY_POSITION]
    needed = {one.name for one in ours if one.default is inspect.Parameter.empty}
    for place, facts in enumerate(official):
        name = facts["name"]
        if facts["kind"] == "positional" and place < len(places):
            name = places[place]
        elif facts["kind"] != "by name" and places[place : place + 1] != [name]:
            yield name
            continue
        needed.discard(name)
        if name not in named or not has_default(facts, named[name]):
            yield name
    yield from needed


def has_default(facts: Mapping[str, Any], ours: inspect.Parameter) -> bool:
    """Tell whether a parameter that is left out means the same, as far as the stub tells."""
    if "default" not in facts:
        return True
    default = default_of(facts)
    return ours.default is not inspect.Parameter.empty and default in (..., ours.default)


def parameters_of(callable_: Any, *, bound: bool) -> list[inspect.Parameter]:
    """Return the parameters of a function, without ``self``."""
    parameters = list(inspect.signature(callable_).parameters.values())
    return parameters[1:] if bound else parameters


def has_own(kind: type, name: str) -> bool:
    """Tell whether a class defines a special method, other than by being an object."""
    found = getattr(kind, name, None)
    return found is not None and found is not getattr(object, name, None)


def different_method(kind: type, name: str, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a method differs."""
    if name == "__richcmp__":
        name = "__eq__"
    if name == "__new__":
        names = different_parameters(facts["parameters"], parameters_of(kind, bound=False))
        yield from (f"({one})" for one in names)
        return
    if name.startswith("__"):
        if not has_own(kind, name):
            yield f".{name}"
        return
    if not hasattr(kind, name):
        yield f".{name}"
        return
    raw = inspect.getattr_static(kind, name)
    bound = facts["kind"] != "static" and not isinstance(raw, classmethod)
    method = getattr(kind, name)
    for one in different_parameters(facts["parameters"], parameters_of(method, bound=bound)):
        yield f".{name}({one})"
    if (facts["returns"] == "awaitable") != inspect.iscoroutinefunction(method):
        yield f".{name} is not awaited alike"


BASES: Mapping[str, type] = {"dict": dict, "str": str, "RuntimeError": RuntimeError}


def different_class(kind: type, facts: Mapping[str, Any], samples: Any) -> Iterator[str]:
    """Yield what differs in a class, its variants included."""
    for base in BASES.keys() & facts.get("bases", ()):
        if not issubclass(kind, BASES[base]):
            yield f" is no {base}"
    if "match" in facts and list(getattr(kind, "__match_args__", ())) != facts["match"]:
        yield ".__match_args__"
    for name, method in facts.get("methods", {}).items():
        yield from different_method(kind, name, method)
    for name in facts.get("values", ()):
        if not isinstance(getattr(kind, name, None), kind):
            yield f".{name}"
    sample = samples(kind) if facts.get("attributes") else None
    for name in facts.get("attributes", ()):
        if not hasattr(sample, name):
            yield f".{name}"
    for name, inner in facts.get("classes", {}).items():
        yield from different_variant(kind, name, inner, samples)


def different_variant(
    kind: type, name: str, facts: Mapping[str, Any], samples: Any
) -> Iterator[str]:
    """Yield what differs in a variant of a class."""
    variant = getattr(kind, name, None)
    if not (isinstance(variant, type) and issubclass(variant, kind)):
        yield f".{name}"
        return
    yield from (f".{name}{one}" for one in different_class(variant, facts, samples))


def differences(facts: Mapping[str, Any], package: Any, samples: Any) -> set[str]:
    """Return everything in which a package differs from a wheel.

    Args:
        facts: what the wheel offers.
        package: the package that shall offer the same.
        samples: makes an instance of a class of the package, to look at its attributes.
    """
    found = set()
    for name in facts["names"]:
        ours = getattr(package, name, None) if name in package.__all__ else None
        if ours is None:
            found.add(name)
        elif name in facts["functions"]:
            official = facts["functions"][name]["parameters"]
            for one in different_parameters(official, parameters_of(ours, bound=False)):
                found.add(f"{name}({one})")
        else:
            found |= {
                f"{name}{one}" for one in different_class(ours, facts["classes"][name], samples)
            }
    return found
