"""Reads classes for the reference: their fields with types and defaults, and their members."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import typing
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from tools.docstrings import Docstring, as_markdown, parse
from tools.reference_values import default_text, field_default, signature_text, type_text

if typing.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BASES_SHOWN_NOT = {"object", "Generic", "Protocol", "ABC", "dict"}
SETTINGS = {
    "ClientSettings": ("iggy_sdk.options", "ClientOptions", ""),
    "ConsumerSettings": ("iggy_sdk.consumer", "ConsumerOptions", "ConsumerBuilder"),
    "ProducerSettings": ("iggy_sdk.producer", "ProducerOptions", "ProducerBuilder"),
}
"""Keywords, the class that has their defaults, and the one whose methods they are."""


class Row(NamedTuple):
    """A field."""

    name: str
    type: str
    default: str
    text: str


class Member(NamedTuple):
    """A method or a property of a class.

    Attributes:
        name: how it is called.
        function: what has the docstring.
        shown: the signature; empty for a property.
        type: of a property.
        is_property: whether it is read without a call.
    """

    name: str
    function: Any
    shown: str
    type: str
    is_property: bool


def bases_of(kind: type) -> list[str]:
    """Name the bases that say something to a reader."""
    return [
        base.__name__
        for base in kind.__bases__
        if base.__name__ not in BASES_SHOWN_NOT and not base.__name__.startswith("_")
    ]


def fields_of(kind: Any, document: Docstring) -> list[Row]:
    """List the fields of a class: from its annotations, its docstring, or its members."""
    said = document.of("Attributes")
    if kind.__name__ in SETTINGS:
        return settings_rows(kind)
    if issubclass(kind, Enum):
        texts = texts_below(kind)
        return [Row(one.name, "", default_text(one.value), texts.get(one.name, "")) for one in kind]
    if dataclasses.is_dataclass(kind):
        return [
            Row(one.name, type_text(one.type), field_default(one), said.get(one.name, ""))
            for one in dataclasses.fields(kind)
            if not one.name.startswith("_")
        ]
    if typing.is_typeddict(kind):
        return [Row(name, type_text(hint), "", "") for name, hint in kind.__annotations__.items()]
    defaults = getattr(kind, "_field_defaults", {})
    names = list(getattr(kind, "_fields", ()))
    rows = [
        Row(
            name,
            annotation_of(kind, name),
            default_text(defaults[name]) if name in defaults else "",
            said.get(name, ""),
        )
        for name in names
    ]
    return rows + [
        Row(name, annotation_of(kind, name), "", text)
        for name, text in said.items()
        if name not in names
    ]


def settings_rows(kind: Any) -> list[Row]:
    """List keywords, with the defaults and the meaning of the options that they set."""
    module, options_name, builder_name = SETTINGS[kind.__name__]
    options = getattr(importlib.import_module(module), options_name)
    builder = getattr(importlib.import_module(module), builder_name, None)
    defaults = {one.name: field_default(one) for one in dataclasses.fields(options)}
    said = {**parse(options).of("Attributes"), **parse(kind).of("Attributes")}
    return [
        Row(
            name,
            source_annotations(kind).get(name, ""),
            defaults.get(name, ""),
            said.get(name) or parse(getattr(builder, name, None)).summary,
        )
        for name in kind.__annotations__
    ]


def annotation_of(kind: type, name: str) -> str:
    """Find the type of an attribute: annotated, or that of a property."""
    for base in kind.__mro__:
        annotations = inspect.get_annotations(base)
        if name in annotations:
            return type_text(annotations[name])
        found = base.__dict__.get(name)
        if isinstance(found, property) and found.fget is not None:
            returns = inspect.signature(found.fget).return_annotation
            return "" if returns is inspect.Signature.empty else type_text(returns)
    return assigned_types(kind).get(name, "")


@cache
def tree_of(module: str) -> ast.Module | None:
    """Read the source of a module."""
    try:
        return ast.parse(inspect.getsource(importlib.import_module(module)))
    except (OSError, TypeError):
        return None


def definition_of(kind: type) -> ast.ClassDef | None:
    """Find the source of a class."""
    tree = tree_of(kind.__module__)
    nodes = ast.walk(tree) if tree else iter(())
    classes = (node for node in nodes if isinstance(node, ast.ClassDef))
    return next((node for node in classes if node.name == kind.__name__), None)


def source_annotations(kind: type) -> Mapping[str, str]:
    """Read the annotations of a class as they are written."""
    node = definition_of(kind)
    return {
        one.target.id: ast.unparse(one.annotation)
        for one in (node.body if node else [])
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }


def assigned_types(kind: type) -> dict[str, str]:
    """Read the types of the attributes that constructors assign."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        node = definition_of(base) if base.__module__.startswith("iggy_") else None
        for one in ast.walk(node) if node else ():
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Attribute):
                found.setdefault(one.target.attr, ast.unparse(one.annotation))
    return found


def texts_below(kind: type) -> dict[str, str]:
    """Read what is said below each member of an enum."""
    node = definition_of(kind)
    return dict(said_below(node.body)) if node else {}


def assignment_text(module: str, name: str) -> str:
    """Read what is said below a name of a module."""
    imported = importlib.import_module(module)
    tree = tree_of(module)
    if tree is None:
        return ""
    found = dict(said_below(tree.body)).get(name, "")
    if found or not hasattr(imported, name):
        return found
    # The module may only hand it on.
    for node in tree.body:
        names = [one.name for one in node.names] if isinstance(node, ast.ImportFrom) else []
        if name in names and isinstance(node, ast.ImportFrom) and node.module:
            return assignment_text(node.module, name)
    return ""


def said_below(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Pair assignments with the texts that stand below them."""
    for one, following in pairwise(body):
        targets = one.targets if isinstance(one, ast.Assign) else []
        if isinstance(one, ast.AnnAssign):
            targets = [one.target]
        text = following.value if isinstance(following, ast.Expr) else None
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, as_markdown(" ".join(text.value.split()))


def members_of(kind: Any) -> list[Member]:
    """List the public members of a class, its constructor first, then those of each base."""
    if issubclass(kind, Exception) or typing.is_typeddict(kind):
        return []
    found = list(constructor_of(kind))
    listed = {"__init__"}
    for base in kind.__mro__:
        if not base.__module__.startswith("iggy_"):
            continue
        for name in sorted(vars(base)):
            if not name.startswith("_") and name not in listed:
                listed.add(name)
                found += member_of(kind, name)
    return found


def constructor_of(kind: Any) -> Iterator[Member]:
    """Describe the constructor, where it has something to say."""
    made = vars(kind).get("__init__")
    if made is not None and made.__doc__ and made.__module__.startswith("iggy_"):
        shown = signature_text(kind.__name__, made, is_bound=True).removesuffix(" -> None")
        yield Member("__init__", made, shown, "", False)


def member_of(kind: type, name: str) -> Iterator[Member]:
    """Describe a member, if it is documented and ours."""
    value = inspect.getattr_static(kind, name)
    if isinstance(value, property) or type(value).__name__ == "cached_property":
        getter = value.fget if isinstance(value, property) else value.func
        if inspect.getdoc(value) and getattr(getter, "__module__", "").startswith("iggy_"):
            yield Member(name, value, "", annotation_of(kind, name), True)
        return
    function = getattr(value, "__func__", value)
    if not inspect.isfunction(function) or not inspect.getdoc(function):
        return
    word = "async " if inspect.iscoroutinefunction(function) else ""
    is_bound = not isinstance(value, staticmethod)
    yield Member(
        name, function, f"{word}{signature_text(name, function, is_bound=is_bound)}", "", False
    )
