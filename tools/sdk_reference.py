"""Writes the reference of the SDK from its code: a page for each area, and an index.

python -m tools.sdk_reference           write docs/reference
python -m tools.sdk_reference --check   fail if it is not what it should be

A name is on the page of the module that defines it. What many calls of a page say in the same
words, of an argument or an error, the page says once, at its top.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.docstrings import Docstring, parse
from tools.reference_classes import Member, Row, bases_of, fields_of, members_of
from tools.reference_values import signature_text

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
FOLDER = ROOT / "docs" / "reference"
NOTE = "Written by `python -m tools.sdk_reference` from the code."

SAID_ONCE_FROM = 3
"""What so many calls of a page say in the same words is said at its top instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the reference.

    Attributes:
        name: of the file, without its ending.
        title: the heading.
        intro: what the page is about.
        homes: the modules whose public names are here.
        names: further public names, of modules that several pages share.
        module: the module through which all of it is imported.
        is_brief: whether each name gets one line only.
        twin_of: the module of the names that these differ from in little.
    """

    name: str
    title: str
    intro: str
    homes: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    module: str = "iggy_sdk"
    is_brief: bool = False
    twin_of: str = ""


PAGES = (
    Page(
        name="client",
        title="Clients and their options",
        intro="A client is one connection to a server, opened again when it is lost.",
        homes=(
            "iggy_sdk.client",
            "iggy_sdk.connection_string",
            "iggy_sdk.durations",
            "iggy_sdk.hooks",
            "iggy_sdk.options",
            "iggy_sdk.statistics",
        ),
        names=frozenset({"Dialect"}),
    ),
    Page(
        name="producer",
        title="Producers",
        intro="A producer sends to one topic; `client.producer()` begins one.",
        homes=("iggy_sdk.producer", "iggy_sdk.compression", "iggy_sdk.value_types"),
        names=frozenset({"Partitioning", "SendConfirmation"}),
    ),
    Page(
        name="consumer",
        title="Consumers",
        intro="A consumer reads one topic, alone or in a group; `client.consumer()` and\n"
        "`client.consumer_group()` begin one.",
        homes=("iggy_sdk.consumer",),
        names=frozenset({"Consumer", "ConsumerIdentity", "PollingStrategy"}),
    ),
    Page(
        name="messages",
        title="Messages",
        intro="What is sent, and what is received.",
        homes=("iggy_sdk.message",),
        names=frozenset(
            {"HeaderColumns", "HeaderKey", "HeaderKind", "HeaderValue", "MessageColumns"}
        ),
    ),
    Page(
        name="serdes",
        title="Serdes and encryption",
        intro="How values become payloads, and how payloads are sealed.",
        homes=("iggy_sdk.serde", "iggy_sdk.encryption"),
    ),
    Page(
        name="errors",
        title="Errors",
        intro="Every error is an `IggyError`: it has the number and the name that Apache Iggy\n"
        "gives it, and says what to do next.",
        homes=("iggy_sdk.errors",),
    ),
    Page(
        name="records",
        title="What the server tells",
        intro="Streams, topics, groups, users and the state of the server, as the commands of a\n"
        "client return and take them.",
        homes=("iggy_protocol", "iggy_sdk.families"),
    ),
    Page(
        name="request-reply",
        title="Request and reply",
        intro="Calls with an answer, over two topics; `client.request_reply()` and\n"
        "`client.responder()` begin them.",
        homes=("iggy_sdk.request_reply",),
    ),
    Page(name="arrow", title="Arrow", intro="", module="iggy_sdk.arrow"),
    Page(name="duckdb", title="DuckDB", intro="", module="iggy_sdk.duckdb"),
    Page(name="polars", title="Polars", intro="", module="iggy_sdk.polars"),
    Page(
        name="testing",
        title="Testing",
        intro="",
        module="iggy_sdk.testing",
    ),
    Page(name="otel", title="Tracing", intro="", module="iggy_sdk.otel"),
    Page(
        name="blocking",
        title="Without await",
        intro="`iggy_sdk.blocking` has the same classes with the same calls: leave `await` out,\n"
        "and write `with` and `for` instead of `async with` and `async for`. Arguments, results,\n"
        "options and errors are those of [clients](client.md), [producers](producer.md) and\n"
        "[consumers](consumer.md). Only what differs is listed here.",
        module="iggy_sdk.blocking",
        twin_of="iggy_sdk",
    ),
    Page(
        name="compat",
        title="The names of the official client",
        intro="`iggy_sdk.compat` offers what `apache-iggy` does, under its names. Each name in a\n"
        "line; what they do is told in [from the official Python client](../sdk-migration.md).",
        module="iggy_sdk.compat",
        is_brief=True,
    ),
)


def names_of(page: Page) -> list[str]:
    """List the public names of a page."""
    module = importlib.import_module(page.module)
    if page.module != "iggy_sdk":
        return list(module.__all__)
    return [name for name in module.__all__ if page_of(name) is page]


def page_of(name: str) -> Page:
    """Find the page of a name of ``iggy_sdk``."""
    home = importlib.import_module("iggy_sdk")._HOME_OF[name]
    for page in PAGES:
        if name in page.names:
            return page
    found = [page for page in PAGES for one in page.homes if f"{home}.".startswith(f"{one}.")]
    assert found, f"no page lists {home}, which has {name}"
    return found[0]


# What is said once


@dataclass(slots=True)
class Shared:
    """What many members of a page say in the same words, by section."""

    args: set[tuple[str, str]]
    raises: set[tuple[str, str]]

    @classmethod
    def among(cls, documents: list[Docstring]) -> Shared:
        """Count what the members of a page say."""
        return cls(
            *(
                {
                    said
                    for said, count in Counter(
                        entry for one in documents for entry in one.sections.get(section, [])
                    ).items()
                    if count >= SAID_ONCE_FROM
                }
                for section in ("Args", "Raises")
            )
        )

    def block(self) -> Iterator[str]:
        """Say it."""
        if self.args:
            yield "Arguments that several calls share:"
            yield entries(sorted(self.args))
        if self.raises:
            yield "Errors that several calls raise, which then only name them:"
            yield entries(sorted(self.raises))


def entries(rows: list[tuple[str, str]]) -> str:
    """Write a list of names and what is said of them."""
    return "\n".join(f"- `{name.replace(', ', '`, `')}`: {said}" for name, said in rows)


# Blocks


def table(rows: list[Row]) -> str:
    """Write fields; columns that nobody fills are left out."""
    columns = (
        ("", [f"`{row.name}`" for row in rows]),
        ("type", [f"`{row.type}`" if row.type else "" for row in rows]),
        ("default", [f"`{row.default}`" if row.default else "" for row in rows]),
        ("meaning", [row.text for row in rows]),
    )
    shown = [column for column in columns if any(column[1])]
    lines = [
        f"| {' | '.join(title for title, _ in shown)} |",
        f"|{'---|' * len(shown)}",
    ]
    for cells in zip(*(cells for _, cells in shown), strict=True):
        escaped = [cell.replace("|", "\\|") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    return "\n".join(lines)


def sections_of(document: Docstring, shared: Shared) -> Iterator[str]:
    """Write the sections of a docstring."""
    arguments = [one for one in document.sections.get("Args", []) if one not in shared.args]
    if arguments:
        yield entries(arguments)
    for _, said in document.sections.get("Returns", []):
        yield f"Returns: {said}"
    raised = document.sections.get("Raises", [])
    own = [one for one in raised if one not in shared.raises]
    common = [f"`{name}`" for one in raised if one in shared.raises for name in one[0].split(", ")]
    if own:
        yield "Raises:"
        yield entries(own)
    if common:
        yield f"{'Also raises' if own else 'Raises'} {', '.join(common)}."


def member_block(owner: str, member: Member, shared: Shared, level: int = 3) -> str:
    """Describe a member of a class."""
    document = parse(member.function)
    heading = f"{owner}()" if member.name == "__init__" else f"{owner}.{member.name}"
    blocks = [f"{'#' * level} `{heading}`"]
    if member.shown:
        blocks.append(f"```python\n{member.shown}\n```")
    blocks += [document.text, *sections_of(document, shared)]
    return "\n\n".join(filter(None, blocks))


def class_blocks(name: str, kind: type, shared: Shared) -> Iterator[str]:
    """Describe a class: its fields, then its members."""
    document = parse(kind)
    bases = bases_of(kind)
    yield f"## `{name}`"
    if bases:
        yield f"```python\nclass {name}({', '.join(bases)})\n```"
    yield document.text
    code = vars(kind).get("default_code")
    if code is not None:
        yield f"Code {int(code)} (`{code.name}`), unless the server answers with another."
    rows = fields_of(kind, document)
    if rows:
        yield table(rows)
    listed = {row.name for row in rows}
    members = [one for one in members_of(kind) if one.name not in listed]
    properties = [one for one in members if one.is_property]
    if properties:
        yield "Properties:"
        yield table(
            [Row(one.name, one.type, "", parse(one.function).summary) for one in properties]
        )
    for member in members:
        if not member.is_property:
            yield member_block(name, member, shared)


def name_blocks(name: str, value: Any, shared: Shared) -> Iterator[str]:
    """Describe a public name."""
    if inspect.isclass(value):
        yield from class_blocks(name, value, shared)
        return
    yield f"## `{name}`"
    if inspect.isroutine(value):
        document = parse(value)
        yield f"```python\n{signature_text(name, value, is_bound=False)}\n```"
        yield document.text
        yield from sections_of(document, shared)
    else:
        yield alias_text(name, value)


def alias_text(name: str, value: object) -> str:
    """Describe a type alias, with the text that stands below it in its module."""
    from tools.reference_classes import assignment_text
    from tools.reference_values import type_text

    home = importlib.import_module("iggy_sdk")._HOME_OF.get(name, "")
    said = assignment_text(home, name) if home else ""
    return f"`{type_text(value)}`\n\n{said}".strip()


def twin_blocks(name: str, kind: type, other: type) -> Iterator[str]:
    """Describe what a class without await has that its twin has not, and the other way round."""
    own = {one.name: one for one in members_of(kind)}
    theirs = {one.name: one for one in members_of(other)}
    more = [own[one] for one in own if one not in theirs]
    less = sorted(one for one in theirs if one not in own and one != "__init__")
    if not more and not less:
        return
    yield f"## `{name}`"
    for member in more:
        yield member_block(name, member, Shared(set(), set()))
    if less:
        yield f"It has no {', '.join(f'`{one}`' for one in less)}."


# Pages


def documents_of(names: list[str], module: Any) -> list[Docstring]:
    """Read all docstrings of the members on a page."""
    found: list[Docstring] = []
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value):
            found += [parse(one.function) for one in members_of(value)]
        elif inspect.isroutine(value):
            found.append(parse(value))
    return found


def page_blocks(page: Page) -> Iterator[str]:
    """Write a page."""
    module = importlib.import_module(page.module)
    names = names_of(page)
    yield f"# {page.title}"
    yield f"{NOTE} [All pages](README.md)."
    yield page.intro or parse(module).text
    if page.is_brief:
        yield "\n".join(f"- `{name}`: {parse(getattr(module, name)).summary}" for name in names)
        return
    if page.twin_of:
        twins = importlib.import_module(page.twin_of)
        for name in names:
            other = getattr(twins, name, None)
            value = getattr(module, name)
            if other is not None and other is not value:
                yield from twin_blocks(name, value, other)
            elif other is None:
                yield from name_blocks(name, value, Shared(set(), set()))
        return
    shared = Shared.among(documents_of(names, module))
    yield from shared.block()
    for name in names:
        yield from name_blocks(name, getattr(module, name), shared)


def index_blocks() -> Iterator[str]:
    """Write the index: all pages, and where each name is."""
    yield "# The SDK, name by name"
    yield f"{NOTE} For tasks see [the SDK, task by task](../sdk.md)."
    yield (
        "All names of the first seven pages are imported from `iggy_sdk`. Times are in seconds or\n"
        "`timedelta`s, sizes in bytes, unless a name or a text says something else."
    )
    lines = []
    for page in PAGES:
        shown = ", ".join(f"[`{name}`]({page.name}.md#{name.lower()})" for name in names_of(page))
        if page.is_brief or page.twin_of:
            shown = f"`{page.module}`"
        lines.append(f"- [{page.title}]({page.name}.md): {shown}")
    yield "\n".join(lines)


def render() -> dict[str, str]:
    """Write all pages."""
    pages = {page.name: page_blocks(page) for page in PAGES}
    return {
        f"{name}.md": tidy(blocks) for name, blocks in {"README": index_blocks(), **pages}.items()
    }


def tidy(blocks: Iterator[str]) -> str:
    """Put blocks below each other."""
    lines = "\n\n".join(block for block in blocks if block).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    options = parser.parse_args(arguments)
    wanted = render()
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    stale = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
    if stale and not options.check:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in stale:
            if name in wanted:
                (FOLDER / name).write_text(wanted[name], encoding="utf-8")
            else:
                (FOLDER / name).unlink()
    for name in stale:
        sys.stdout.write(f"{'stale' if options.check else 'wrote'} {name}\n")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
