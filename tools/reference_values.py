"""Shows signatures, types and defaults as a reader would write them."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field
from enum import Enum
from typing import Any

LINE_COLUMNS_MAX = 96
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def default_text(value: object) -> str:
    """Write a default: the shortest call that makes it, rather than all of its fields."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if type(value).__name__ in {"Inherited", "_Inherited"}:
        return "that of the client"
    if type(value).__module__.startswith("iggy_"):
        return made_by(value)
    if callable(value):
        return "..."
    if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000:
        return f"{value:_}"
    if isinstance(value, tuple) and value and type(value[0]).__module__.startswith("iggy_"):
        return f"({', '.join(map(made_by, value))},)"
    return ADDRESS.sub("", repr(value)).replace("mappingproxy({})", "{}")


def made_by(value: object) -> str:
    """Find a constructor without arguments that makes an equal value."""
    kind = type(value)
    names = [name for name in vars(kind) if not name.startswith("_")]
    for name in names:
        if not isinstance(vars(kind)[name], classmethod):
            continue
        make = getattr(kind, name)
        needed = [one for one in inspect.signature(make).parameters.values() if is_needed(one)]
        if not needed and make() == value:
            return f"{kind.__name__}.{name}()"
    needed = [one for one in inspect.signature(kind).parameters.values() if is_needed(one)]
    if not needed and kind() == value:
        return f"{kind.__name__}()"
    return ADDRESS.sub("", repr(value))


def is_needed(parameter: inspect.Parameter) -> bool:
    """Tell whether a parameter has no default and collects nothing."""
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_KEYWORD,
        parameter.VAR_POSITIONAL,
    )


def field_default(field: Field[Any]) -> str:
    """Write the default of a field; a dash where it has to be given."""
    if field.default is not MISSING:
        return default_text(field.default)
    if field.default_factory is not MISSING:
        return default_text(field.default_factory())
    return ""


def type_text(annotation: object) -> str:
    """Write a type."""
    if isinstance(annotation, str):
        return annotation.strip("\"'").replace("P_contra", "T")
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not hasattr(annotation, "__args__"):
        return annotation.__name__
    shown = str(annotation).replace("NoneType", "None")
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", shown)


def parameter_text(parameter: inspect.Parameter) -> str:
    """Write one parameter."""
    stars: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    text = f"{stars.get(parameter.kind, '')}{parameter.name}"
    typed = parameter.annotation is not parameter.empty
    if typed:
        text += f": {type_text(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f"{' = ' if typed else '='}{default_text(parameter.default)}"
    return text


def signature_text(name: str, value: Any, *, is_bound: bool) -> str:
    """Write how something is called, without ``self``; a parameter to a line if it is long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parameters = list(found.parameters.values())
    if is_bound and parameters and parameters[0].name in {"self", "cls"}:
        parameters = parameters[1:]
    shown = with_markers(parameters)
    returns = found.return_annotation
    arrow = "" if returns is found.empty else f" -> {type_text(returns)}"
    line = f"{name}({', '.join(shown)}){arrow}"
    if len(line) <= LINE_COLUMNS_MAX:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in shown), f"){arrow}"])


def with_markers(parameters: list[inspect.Parameter]) -> list[str]:
    """Write parameters with the marks between their kinds."""
    shown: list[str] = []
    for number, parameter in enumerate(parameters):
        before = parameters[number - 1].kind if number else None
        if before is parameter.POSITIONAL_ONLY and parameter.kind is not before:
            shown.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            shown.append("*")
        shown.append(parameter_text(parameter))
    if parameters and parameters[-1].kind is inspect.Parameter.POSITIONAL_ONLY:
        shown.append("/")
    return shown
