"""The style of the house, as tests: each rule reads one file and names the lines that break it."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Rule = Callable[[Path, str], Iterator[str]]

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = (ROOT, ROOT / "protocol")
PACKAGES = ("iggy_protocol", "iggy_sdk", "iggy_ref_server", "spark_jobs")

LINE_COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500

# Files that are one long table, which readers search and do not read through.
TABLES = frozenset(
    {
        "protocol/iggy_protocol/__init__.py",
        "protocol/iggy_protocol/status_table.py",
        "iggy_sdk/__init__.py",
        "iggy_ref_server/config/schema.py",
    }
)

PYTHON = frozenset({".py", ".pyi"})
SOURCES = PYTHON | {".c", ".h"}
TEXTS = SOURCES | {"", ".in", ".md", ".sh", ".toml"}

MODULE_NAMES_BANNED = frozenset({"base", "common", "helpers", "manager", "misc", "util", "utils"})

# This file has to spell what it bans, so it alone is not searched for words.
WORDS_BANNED = (
    re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"),
    re.compile(r"\bplaceholders?\b", re.IGNORECASE),
    re.compile(r"\bfor now\b(?!(, \w+)* in\b)", re.IGNORECASE),
    re.compile(r"\bNotImplementedError\b"),
    re.compile(r"pragma: no (cover|branch)"),
    re.compile(r"(?<![\w.:/])/(work|root|home|Users|tmp|mnt|opt)\b(?!`? (path|route))"),
    re.compile(r"\.\./shared\b"),
    re.compile(r"\b(pypi\.org|pythonhosted\.org|crates\.io|docker\.io)\b"),
)
NOQA = re.compile(r"#\s*noqa(?P<codes>:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?(?P<reason>.*)")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def relative(path: Path) -> str:
    """Name a file as seen from the root."""
    return path.relative_to(ROOT).as_posix()


def walk(folder: Path) -> Iterator[Path]:
    """Find the project's files where git cannot tell, as in an unpacked source distribution."""
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.name == ".ci" or not (
            path.name.startswith(".")
            or path.name in {"__pycache__", "build", "dist", "htmlcov"}
            or path.name.endswith(".egg-info")
        ):
            yield from walk(path)


def project_files() -> list[Path]:
    """List what git tracks or would track, recordings left out."""
    if (ROOT / ".git").exists():
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        paths = [ROOT / name for name in listing.split("\0") if name]
    else:
        paths = list(walk(ROOT))
    golden = ROOT / "tests" / "golden"
    return sorted({path for path in paths if path.is_file() and golden not in path.parents})


FILES = project_files()


def is_shipped(path: Path) -> bool:
    """Tell whether a file belongs to one of the packages."""
    return any(root / package in path.parents for root in SOURCE_ROOTS for package in PACKAGES)


def long_lines(path: Path, text: str) -> Iterator[str]:
    """Find lines that do not fit."""
    if path.suffix not in SOURCES:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > LINE_COLUMNS_MAX:
            yield f"{number}: {len(line)} columns"


def function_length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without its docstring."""
    assert node.end_lineno is not None
    length = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node) is None:
        return length
    docstring = node.body[0]
    assert docstring.end_lineno is not None
    return length - (docstring.end_lineno - docstring.lineno + 1)


def long_functions(path: Path, text: str) -> Iterator[str]:
    """Find functions that do not fit a screen."""
    if path.suffix not in PYTHON:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = function_length(node)
            if length > FUNCTION_LINES_MAX:
                yield f"{node.lineno}: {node.name} has {length} lines"


def long_files(path: Path, text: str) -> Iterator[str]:
    """Find files that should be two."""
    length = len(text.splitlines())
    if path.suffix in PYTHON and relative(path) not in TABLES and length > FILE_LINES_MAX:
        yield f"1: {length} lines"


def banned_names(path: Path, text: str) -> Iterator[str]:
    """Find shipped modules named after nothing."""
    if is_shipped(path) and path.stem in MODULE_NAMES_BANNED:
        yield "1: name it after what it holds"


def banned_words(path: Path, text: str) -> Iterator[str]:
    """Find promises, excuses and other people's machines."""
    if path.suffix not in TEXTS or path.name in {"LICENSE", Path(__file__).name}:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern in WORDS_BANNED:
            match = pattern.search(line)
            if match:
                yield f"{number}: {match[0]!r}"


def missing_docstrings(path: Path, text: str) -> Iterator[str]:
    """Find modules that do not say what they are."""
    if path.suffix == ".py" and not ast.get_docstring(ast.parse(text)):
        yield "1: no module docstring"


def silent_noqa(path: Path, text: str) -> Iterator[str]:
    """Find suppressed warnings without a code or without a reason beside them."""
    if path.suffix not in PYTHON or path.name == Path(__file__).name:
        return
    for number, line in enumerate(text.splitlines(), start=1):
        match = NOQA.search(line)
        if match and not (match["codes"] and re.search(r"\w+ \w+", match["reason"])):
            yield f"{number}: say why"


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Walk the lines of a Markdown text that are outside code blocks."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def titles(path: Path, text: str) -> Iterator[str]:
    """Find documents without a title, or with several."""
    if path.suffix != ".md":
        return
    lines = [number for number, line in prose(text) if line.startswith("# ")]
    if len(lines) != 1:
        yield f"{lines[-1] if lines else 1}: {len(lines)} titles"


def dead_links(path: Path, text: str) -> Iterator[str]:
    """Find links to files that are not there."""
    if path.suffix != ".md":
        return
    for number, line in prose(text):
        for target in LINK.findall(line):
            if not (path.parent / target).exists():
                yield f"{number}: {target}"


def ragged_ends(path: Path, text: str) -> Iterator[str]:
    """Find trailing blanks and files that do not end in exactly one newline."""
    if path.suffix not in TEXTS:
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line != line.rstrip():
            yield f"{number}: trailing blanks"
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield f"{len(text.splitlines())}: one newline belongs at the end"


CODE = ROOT / "protocol" / "iggy_protocol" / "sample.py"
PAGE = ROOT / "sample.md"

# Every rule with a file that breaks it, so that no rule can fall asleep unnoticed.
RULES: dict[Rule, tuple[Path, str]] = {
    long_lines: (CODE, "x" * 101),
    long_functions: (CODE, "def f():\n" + "    pass\n" * 60),
    long_files: (CODE, "\n" * 501),
    banned_names: (CODE.with_name("utils.py"), ""),
    banned_words: (CODE, "# TODO: later"),
    missing_docstrings: (CODE, "x = 1\n"),
    silent_noqa: (CODE, "x = 1  # noqa: E501"),
    titles: (PAGE, "# One\n\n# Two\n"),
    dead_links: (PAGE, "[gone](no/such/file.md)\n"),
    ragged_ends: (PAGE, "end "),
}
WORDS_CAUGHT = (
    "FIXME",
    "a Placeholder",
    "good enough for now",
    "raise NotImplementedError",
    "# pragma: no cover",
    "open('/root/key')",
    "cd /work",
    "see ../shared/spec",
)
WORDS_PASSED = (
    "https://example.org/home",
    "_xxh3 XXXL",
    "iggy://root:secret@host",
    "GET /users",
    "[now - then for now, then in times]",
)


def rule_name(rule: Rule) -> str:
    """Name a rule in the report."""
    return rule.__name__


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_project_when_read_then_keeps_the_rule(rule):
    broken = [
        f"{relative(path)}:{complaint}"
        for path in FILES
        if path.suffix in TEXTS
        for complaint in rule(path, path.read_text(encoding="utf-8"))
    ]

    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize("rule", RULES, ids=rule_name)
def test_rule_when_a_file_breaks_it_then_complains(rule):
    path, text = RULES[rule]

    assert list(rule(path, text))


@pytest.mark.parametrize("text", WORDS_CAUGHT)
def test_banned_words_when_present_then_found(text):
    assert list(banned_words(CODE, text))


@pytest.mark.parametrize("text", WORDS_PASSED)
def test_banned_words_when_only_similar_then_passed(text):
    assert not list(banned_words(CODE, text))


def test_function_length_when_documented_then_counts_code_only():
    function = ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n').body[0]
    assert isinstance(function, ast.FunctionDef)

    assert function_length(function) == 2


def test_noqa_when_explained_then_passed():
    assert not list(silent_noqa(CODE, "x = 1  # noqa: E501  a table reads better unbroken"))


# Shipped although only tests and simulators of users need them: storage and wires in memory.
FOR_TESTS = {"iggy_ref_server.storage.simulated.storage", "tests.sdk.memory_transport"}
# Modules that users import, and no other module.
ENTRY_MODULES = {
    *("iggy_sdk.blocking", "iggy_sdk.compat", "iggy_sdk.duckdb", "iggy_sdk.otel"),
    *("iggy_sdk.polars", "iggy_sdk.testing"),
}


def module_name(path: Path) -> str:
    """Turn the path of a shipped file into its dotted name."""
    root = SOURCE_ROOTS[1] if SOURCE_ROOTS[1] in path.parents else SOURCE_ROOTS[0]
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(path: Path) -> Iterator[str]:
    """List every dotted name that a file imports, parents included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def test_shipped_module_when_listed_then_is_used_by_another():
    shipped = [path for path in FILES if path.suffix == ".py" and is_shipped(path)]
    used = {name for path in shipped for name in imported_names(path) if name != module_name(path)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = [*project["scripts"].values(), *project["entry-points"]["pytest11"].values()]
    used |= (
        {command.partition(":")[0] for command in commands}
        | set(PACKAGES)
        | FOR_TESTS
        | ENTRY_MODULES
    )

    dead = {module_name(path) for path in shipped} - used

    assert not dead


def test_walk_when_git_is_absent_then_finds_the_same_sources():
    walked = {path for path in walk(ROOT) if path.suffix == ".py"}

    assert {path for path in FILES if path.suffix == ".py"} <= walked
