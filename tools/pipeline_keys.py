"""Writes the tables of keys into ``docs/pipelines.md``, from the classes that read them.

Run ``python -m tools.pipeline_keys`` from the root of the repository after a source, a transform or
a sink of pipelines has changed; a test compares the page with the classes.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.pipeline.dead_letters import DeadLetters
from spark_jobs.pipeline.specification import SINKS, SOURCES, STEPS, RunOptions
from tools.docstrings import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
PAGE = ROOT / "docs" / "pipelines.md"
START, END = "<!-- keys -->", "<!-- end -->"

SECTIONS: Final[Mapping[str, Mapping[str, type]]] = {
    "`[pipeline]`": {"": RunOptions},
    "`[source]`": SOURCES,
    "`[[transform]]`": STEPS,
    "`[[sink]]`": SINKS,
    "`[dead_letters]`": {"": DeadLetters},
}


def keys_of(kind: type[Any]) -> dict[str, str]:
    """Return what each key of a table means, and whether it has to be there."""
    said = {name: text for one in reversed(kind.__mro__) for name, text in attributes(one)}
    return {
        name: ("required: " if is_required(field) else "") + said[name]
        for field in dataclasses.fields(kind)
        if (name := field.name) in said and "internal" not in field.metadata
    }


def attributes(kind: type[Any]) -> Iterator[tuple[str, str]]:
    """Read the attributes that the docstring of a class names itself."""
    if "__doc__" in vars(kind):
        yield from parse(kind).of("Attributes").items()


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Tell whether a key has no default."""
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def section(title: str, kinds: Mapping[str, type]) -> Iterator[str]:
    """Write the tables of one kind of table."""
    yield f"### {title}\n"
    for name, kind in kinds.items():
        if name:
            yield f'**`type = "{name}"`**: {first_sentence(kind)}\n'
        yield "| key | meaning |\n|---|---|"
        for key, text in keys_of(kind).items():
            yield f"| `{key}` | {text.replace('|', chr(92) + '|')} |"
        yield ""


def first_sentence(kind: type[Any]) -> str:
    """Return what a class is, as a text for users."""
    text = parse(kind).summary
    return f"{text[0].lower()}{text[1:]}"


def fill(page: str) -> str:
    """Return the page with the tables anew."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    tables = "\n".join(line for title, kinds in SECTIONS.items() for line in section(title, kinds))
    return f"{before}{START}\n\n{tables}\n{END}{after}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
