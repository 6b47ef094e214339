"""The reference of the SDK agrees with the code, and every link of every page leads somewhere."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import iggy_protocol
import iggy_sdk
from iggy_sdk import arrow, blocking, otel, testing
from iggy_sdk.consumer.auto_commit import COALESCE_MESSAGES, COALESCE_SECONDS
from tests.test_tidy import FILES, prose, relative
from tools import sdk_reference
from tools.docstrings import parse, parse_text
from tools.reference_classes import members_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = [path for path in FILES if path.suffix == ".md"]
MODULES = (iggy_sdk, blocking, otel, testing)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
SENTENCES_MAX = 8
"""How often a page may say the same, other than in tables and code."""

# What ends an iteration is no error.
NOT_DOCUMENTED = {"StopIteration", "StopAsyncIteration"}


# The pages


def test_reference_when_written_again_then_is_the_same():
    assert sdk_reference.main(["--check"]) == 0


def test_reference_when_stale_then_is_written_and_a_page_too_many_is_deleted(monkeypatch, tmp_path):
    monkeypatch.setattr(sdk_reference, "FOLDER", tmp_path)
    (tmp_path / "gone.md").write_text("# Gone\n")

    assert sdk_reference.main(["--check"]) == 1
    assert sdk_reference.main([]) == 0
    assert sdk_reference.main(["--check"]) == 0
    assert not (tmp_path / "gone.md").exists()


def test_reference_when_read_then_every_public_name_has_one_heading():
    pages = "\n".join(sdk_reference.render().values())
    headings = Counter(re.findall(r"^## `(\w+)`$", pages, re.MULTILINE))

    assert {name: headings[name] for name in iggy_sdk.__all__ if not headings[name]} == {}


@pytest.mark.parametrize("page", sorted(sdk_reference.render()))
def test_reference_when_read_then_says_nothing_over_and_over(page):
    lines = [line for _, line in prose(sdk_reference.render()[page]) if not line.startswith("|")]

    said = Counter(line for line in lines if len(line.split()) > 3)

    assert {line: count for line, count in said.items() if count > SENTENCES_MAX} == {}


# Links


def anchors_of(text: str) -> set[str]:
    """List the anchors of a page, as sites that show Markdown make them from headings."""
    found: Counter[str] = Counter()
    anchors: set[str] = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for _, line in prose(text):
        heading = re.match(r"#{1,6} +(.*?)\s*$", line)
        if heading:
            shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
            anchors.add(f"{slug}-{found[slug]}" if found[slug] else slug)
            found[slug] += 1
    return anchors


def links_of(path: Path) -> Iterator[tuple[int, str, str]]:
    """List the links of a page to others of the project: line, file, anchor."""
    for number, line in prose(path.read_text(encoding="utf-8")):
        for target, anchor in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if target or anchor:
                yield number, target, anchor


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_page_when_its_links_are_followed_then_files_and_headings_are_there(path):
    lost = []
    for number, target, anchor in links_of(path):
        found = (path.parent / target).resolve() if target else path
        if not found.exists():
            lost.append(f"{number}: {target}")
        elif anchor and found.suffix == ".md":
            anchors = anchors_of(found.read_text(encoding="utf-8"))
            if anchor not in anchors:
                lost.append(f"{number}: {target}#{anchor}")

    assert lost == []


def test_links_when_a_heading_is_missing_then_it_would_be_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `two`, three\n\n[here](#one-two-three) and [gone](#four)\n")

    assert anchors_of(page.read_text()) == {"one-two-three"}
    assert [anchor for _, _, anchor in links_of(page)] == ["one-two-three", "four"]


# Errors


def functions() -> Iterator[tuple[str, Any]]:
    """List the public functions and methods, with their names."""
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                for member in members_of(value):
                    yield f"{module.__name__}.{name}.{member.name}", member.function
            elif inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


FUNCTIONS = dict(functions())


def documented_errors(function: Any) -> list[str]:
    """List the errors that a docstring names."""
    raised = parse(function).sections.get("Raises", [])
    return [name for names, _ in raised for name in re.split(r",\s*", names)]


def error_named(name: str) -> Any:
    """Find a public error."""
    for place in (iggy_sdk, arrow, testing, iggy_protocol, builtins):
        if name in getattr(place, "__all__", dir(place)):
            return getattr(place, name)
    return None


def is_error(value: object) -> bool:
    """Tell whether this is a class of errors."""
    return isinstance(value, type) and issubclass(value, BaseException)


def raised_in(function: Any) -> set[str]:
    """Name the errors that a function raises itself."""
    plain: Any = function.fget if isinstance(function, property) else function
    plain = getattr(plain, "func", plain)
    source = textwrap.dedent(inspect.getsource(plain))
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        made = node.exc if isinstance(node, ast.Raise) else None
        kind = made.func if isinstance(made, ast.Call) else made
        if isinstance(kind, ast.Name | ast.Attribute):
            name = kind.id if isinstance(kind, ast.Name) else kind.attr
            if is_error(error_named(name)):
                found.add(name)
    return found - NOT_DOCUMENTED


def test_functions_when_listed_then_there_are_many():
    assert len(FUNCTIONS) > 300
    assert sum(bool(documented_errors(one)) for one in FUNCTIONS.values()) > 80


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_when_it_documents_an_error_then_that_is_a_public_one(name):
    documented = documented_errors(FUNCTIONS[name])
    unknown = [error for error in documented if not is_error(error_named(error))]

    assert unknown == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_when_it_raises_an_error_itself_then_its_text_names_it(name):
    words = re.findall(r"\w+", inspect.getdoc(FUNCTIONS[name]) or "")
    kinds = tuple(kind for kind in map(error_named, words) if is_error(kind))

    raised = raised_in(FUNCTIONS[name])
    silent = [error for error in raised if not issubclass(error_named(error), kinds)]

    assert silent == []


# Defaults


@pytest.mark.parametrize("kind", [iggy_sdk.IggyConsumer, iggy_sdk.AutoCommit])
def test_defaults_when_a_text_tells_them_then_they_are_those_of_the_code(kind):
    text = " ".join(inspect.getsource(kind).split())

    for seconds in re.findall(r"at most (\d[\d.]*) seconds or", text):
        assert float(seconds) == COALESCE_SECONDS
    for count in re.findall(r"seconds or (\d+) messages of acknowledged", text):
        assert int(count) == COALESCE_MESSAGES


def test_blocking_consumer_when_it_tells_its_commit_interval_then_it_is_that_of_the_code():
    [seconds] = re.findall(
        r"\((\S+) s by default\)", " ".join(inspect.getsource(blocking.IggyConsumer).split())
    )

    assert float(seconds) == COALESCE_SECONDS


# Docstrings


def test_docstring_when_read_then_its_parts_are_told_apart():
    found = parse_text(
        "Send ``it``.\n\nMore.\n\nArgs:\n    value: what\n        to send.\n\n"
        "Returns:\n    The place: here.\n\nRaises:\n    KeyError, ValueError: no.\n"
    )

    assert (found.text, found.summary) == ("Send `it`.\n\nMore.", "Send `it`.")
    assert found.sections == {
        "Args": [("value", "what to send.")],
        "Returns": [("", "The place: here.")],
        "Raises": [("KeyError, ValueError", "no.")],
    }
