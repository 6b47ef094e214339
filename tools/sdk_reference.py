"""Writes the reference of the SDK from its docstrings.

python -m tools.sdk_reference           write docs/sdk-reference.md
python -m tools.sdk_reference --check   fail if it is not what it should be
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
PAGE = ROOT / "docs" / "sdk-reference.md"

# Packages with all of their members; those of the others are listed in one line each.
FULL = (
    *("iggy_sdk", "iggy_sdk.arrow", "iggy_sdk.duckdb", "iggy_sdk.polars"),
    *("iggy_sdk.otel", "iggy_sdk.testing"),
)
BRIEF = ("iggy_sdk.blocking", "iggy_sdk.compat")

HEAD = """# The SDK, name by name

Written by `python -m tools.sdk_reference` from the docstrings. For tasks see [sdk.md](sdk.md).
"""
SECTION = re.compile(r"^(Args|Attributes|Raises|Returns):$")
ENTRY = re.compile(r"^    (\S[^:]*): (.*)$")
BASES_SHOWN = {"object", "Generic", "Protocol", "ABC"}


def paragraphs(docstring: str) -> Iterator[str]:
    """Turn a docstring into Markdown: its sections become lists."""
    in_section = False
    for line in docstring.splitlines():
        section, entry = SECTION.match(line), ENTRY.match(line)
        if section:
            in_section = True
            yield f"{section[1]}:"
            yield ""
        elif in_section and entry:
            yield f"- `{entry[1]}`: {entry[2]}"
        elif in_section and line.strip():
            yield f"  {line.strip()}" if line.startswith("     ") else f"- {line.strip()}"
        else:
            yield line.replace("``", "`") if not line.startswith("    ") else line
            in_section = in_section and not line.strip()


def text_of(value: object, *, indent: str = "") -> str:
    """Return the documentation of a value as Markdown."""
    docstring = inspect.getdoc(value) or ""
    lines = [f"{indent}{line}".rstrip() for line in paragraphs(docstring)]
    return "\n".join(lines).replace("``", "`").strip("\n")


def first_line(value: object) -> str:
    """Return the first line of the documentation."""
    return (inspect.getdoc(value) or "").partition("\n")[0].replace("``", "`")


def signature(value: Any, *, bound: bool) -> str:
    """Show how something is called; without ``self``."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parameters = list(found.parameters.values())
    if bound and parameters and parameters[0].name in {"self", "cls"}:
        parameters = parameters[1:]
    text = str(found.replace(parameters=parameters))
    # Values whose text holds an address or is a page long say nothing to a reader.
    return re.sub(r"= ?<[^>]*>", "= ...", text).replace("'", "").replace("NoneType", "None")


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """List the public members of a class that have no word in its own docstring."""
    # Those of the C twin cannot say where they come from, so neither twin's are listed again.
    listed = re.findall(r"^    (\w+): ", inspect.getdoc(kind) or "", re.MULTILINE)
    for name in sorted(dir(kind)):
        value = inspect.getattr_static(kind, name)
        documented = inspect.getdoc(getattr(value, "__func__", value))
        if name.startswith("_") or not documented or name in listed:
            continue
        home = getattr(getattr(value, "__func__", value), "__module__", "") or ""
        if isinstance(value, property):
            home = getattr(value.fget, "__module__", "")
        if home.startswith("iggy_"):
            yield name, value


def member_block(name: str, value: Any) -> str:
    """Describe one member."""
    function = getattr(value, "__func__", value)
    if isinstance(value, property):
        shown = name
    else:
        word = "async " if inspect.iscoroutinefunction(function) else ""
        is_bound = not isinstance(value, staticmethod)
        shown = f"{word}{name}{signature(function, bound=is_bound)}"
    text = text_of(value if isinstance(value, property) else function, indent="  ").strip()
    return f"- **`{shown}`**\n\n  {text}"


def constructor_block(name: str, kind: type) -> str:
    """Describe the constructor of a class, where it has a docstring."""
    made = vars(kind).get("__init__")
    if made is None or not made.__doc__ or not made.__module__.startswith("iggy_"):
        return ""
    called = signature(made, bound=True).removesuffix(" -> None")
    return f"- **`{name}{called}`**\n\n  {text_of(made, indent='  ').strip()}"


def class_block(name: str, kind: type) -> str:
    """Describe a class and its members."""
    bases = [base.__name__ for base in kind.__bases__ if base.__name__ not in BASES_SHOWN]
    shown = f"({', '.join(bases)})" if bases else ""
    blocks = [f"### `{name}{shown}`", text_of(kind)]
    if not issubclass(kind, Exception):
        blocks += [constructor_block(name, kind)]
        blocks += [member_block(*member) for member in members(kind)]
    return "\n\n".join(filter(None, blocks))


def name_block(name: str, value: Any) -> str:
    """Describe one public name."""
    if inspect.isclass(value):
        return class_block(name, value)
    if callable(value) and inspect.getdoc(value):
        return f"### `{name}{signature(value, bound=False)}`\n\n{text_of(value)}"
    return f"### `{name}`"


def module_blocks(module: ModuleType, *, full: bool) -> Iterator[str]:
    """Describe a module and its public names."""
    yield f"## `{module.__name__}`"
    yield text_of(module)
    public = [(name, getattr(module, name)) for name in module.__all__]
    if full:
        yield from (name_block(name, value) for name, value in public)
    else:
        yield "\n".join(f"- `{name}`: {first_line(value)}" for name, value in public)


def render() -> str:
    """Write the whole page."""
    blocks = [HEAD.strip()]
    for name in (*FULL, *BRIEF):
        blocks += module_blocks(importlib.import_module(name), full=name in FULL)
    lines = "\n\n".join(filter(None, blocks)).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    options = parser.parse_args(arguments)
    is_stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != render()
    if is_stale and not options.check:
        PAGE.write_text(render(), encoding="utf-8")
    if is_stale:
        sys.stdout.write(f"{'stale' if options.check else 'wrote'} {PAGE.name}\n")
    return 1 if is_stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
