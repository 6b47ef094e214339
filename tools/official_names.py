"""Writes down what an official Python client offers: its names, parameters and attributes.

    python -m tools.official_names ENVIRONMENT...           write tests/golden/clients/names.*.json
    python -m tools.official_names --check ENVIRONMENT...   fail if a file is not what it should be

An environment is a folder in which ``apache-iggy`` is installed, such as one of ``.venv-wheels``.
The facts come from the type stub of the wheel: classes with their bases, attributes, values and
methods, and for each parameter its name, its kind and its default. Texts of the stub and types are
left out. ``tests/sdk/compat`` compares ``iggy_sdk.compat`` with the files.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
FOLDER = ROOT / "tests" / "golden" / "clients"
DISTRIBUTION = "apache_iggy-"
COLUMNS_MAX = 120

Facts = dict[str, Any]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def installed_stub(environment: Path) -> tuple[str, Path]:
    """Return the version of the official client in an environment, and its type stub.

    Raises:
        FileNotFoundError: it is not installed there.
    """
    for info in environment.glob(f"lib*/python*/site-packages/{DISTRIBUTION}*.dist-info"):
        version = info.stem.removeprefix(DISTRIBUTION)
        return version, info.parent / "apache_iggy" / "__init__.pyi"
    raise FileNotFoundError(f"there is no apache-iggy in {environment}")


def _parameter(argument: ast.arg, kind: str, default: ast.expr | None) -> Facts:
    facts = {"name": argument.arg, "kind": kind}
    return facts if default is None else facts | {"default": ast.unparse(default)}


def parameters_of(function: Function, *, bound: bool) -> list[Facts]:
    """Return the parameters of a function in their order, without ``self`` or ``cls``."""
    arguments = function.args
    names = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(names) - len(arguments.defaults))
    found = [
        _parameter(
            name, "positional" if name in arguments.posonlyargs else "by position or name", default
        )
        for name, default in zip(names, defaults + list(arguments.defaults), strict=True)
    ]
    if bound:
        del found[0]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found + [_parameter(name, "by name", default) for name, default in named]


def _returns(function: Function) -> str:
    text = "" if function.returns is None else ast.unparse(function.returns)
    if text.startswith("collections.abc.Awaitable"):
        return "awaitable"
    return "async iterator" if text.startswith("collections.abc.AsyncIterator") else "value"


def _decorators(function: Function) -> set[str]:
    return {ast.unparse(decorator) for decorator in function.decorator_list}


def _method(function: Function) -> Facts:
    decorators = _decorators(function)
    kinds = {"staticmethod": "static", "classmethod": "class"}
    kind = next((kinds[name] for name in kinds if name in decorators), "instance")
    return {
        "kind": kind,
        "returns": _returns(function),
        "parameters": parameters_of(function, bound=kind != "static"),
    }


def _values(statement: ast.stmt) -> Iterator[str]:
    """Yield the members of an enum, and the constants of a class."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def class_facts(node: ast.ClassDef) -> Facts:
    """Return what a class offers, the classes inside it included."""
    attributes: list[str] = []
    values: list[str] = []
    methods: dict[str, Facts] = {}
    classes: dict[str, Facts] = {}
    for statement in node.body:
        if isinstance(statement, ast.ClassDef):
            classes[statement.name] = class_facts(statement)
        elif isinstance(statement, Function):
            if "property" in _decorators(statement):
                attributes.append(statement.name)
            else:
                methods[statement.name] = _method(statement)
        else:
            values.extend(_values(statement))
    facts: Facts = {
        "bases": [ast.unparse(base).removeprefix("builtins.") for base in node.bases],
        "attributes": attributes,
        "values": [value for value in values if value != "__match_args__"],
        "methods": methods,
        "classes": classes,
    }
    for statement in node.body:
        if isinstance(statement, ast.Assign) and "__match_args__" in _values(statement):
            facts["match"] = list(ast.literal_eval(statement.value))
    return {key: value for key, value in facts.items() if value or key == "match"}


def facts_of(version: str, text: str) -> Facts:
    """Return what a client offers, from the text of its stub."""
    body = ast.parse(text).body
    exported = next(
        ast.literal_eval(node.value)
        for node in body
        if isinstance(node, ast.Assign) and "__all__" in _values(node)
    )
    functions = {
        node.name: {"returns": _returns(node), "parameters": parameters_of(node, bound=False)}
        for node in body
        if isinstance(node, Function)
    }
    classes = {node.name: class_facts(node) for node in body if isinstance(node, ast.ClassDef)}
    return {
        "package": "apache-iggy",
        "version": version,
        "names": sorted(exported),
        "functions": functions,
        "classes": dict(sorted(classes.items())),
    }


def as_json(value: Any, indent: str = "") -> str:
    """Write a value as JSON, on one line where it fits."""
    line = json.dumps(value)
    if len(indent) + len(line) <= COLUMNS_MAX or not isinstance(value, dict | list):
        return line
    inner = indent + " "
    if isinstance(value, dict):
        rows = [f"{json.dumps(key)}: {as_json(one, inner)}" for key, one in value.items()]
    else:
        rows = [as_json(one, inner) for one in value]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    return f"{opened}\n{inner}" + f",\n{inner}".join(rows) + f"\n{indent}{closed}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(description="write down what an official client offers")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("environments", nargs="+", type=Path, metavar="ENVIRONMENT")
    options = parser.parse_args(argv)
    stale = 0
    for environment in options.environments:
        version, stub = installed_stub(environment)
        facts = facts_of(version, stub.read_text(encoding="utf-8"))
        text = as_json(facts) + "\n"
        page = FOLDER / f"names.{version}.json"
        if not options.check:
            page.write_text(text, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            sys.stderr.write(
                f"{page.name} is stale: python -m tools.official_names {environment}\n"
            )
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
