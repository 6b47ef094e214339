"""Writes the blocking twins of async classes: the same names, the same types, no await.

    python -m tools.blocking_facade           write them
    python -m tools.blocking_facade --check   fail if they are not what they should be

Signatures and docstrings are taken from the source of the async classes, so a new verb appears
here by itself, fully typed. What differs by more than a missing ``await`` (iteration, callbacks,
lifetime) is written by hand in the modules beside the generated ones.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())
NOTE = "Made from {source} by ``python -m tools.blocking_facade``."


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """One generated module.

    Attributes:
        source: the module of the async classes.
        names: the async classes, in the order of their module.
        target: the module that is written.
        bases: of the class that is written; they bring ``_inner`` and ``_run``.
        imports: of those bases, and of whatever ``wraps`` names.
        by_hand: members that are not written.
        wraps: from the text of a return annotation to an expression around ``{call}``.
        doc: the module's first line.
        as_name: the class that is written, if it has another name; for a single class.
        in_loop: plain methods that must run where the tasks run, because they wake some.
    """

    source: str
    names: tuple[str, ...]
    target: str
    bases: str
    imports: tuple[str, ...]
    doc: str
    by_hand: frozenset[str] = frozenset()
    wraps: tuple[tuple[str, str], ...] = ()
    as_name: str = ""
    in_loop: frozenset[str] = frozenset()

    @property
    def own_names(self) -> set[str]:
        """The names that the imports of the twin bring, instead of those of the source."""
        return {
            name.strip() for line in self.imports for name in line.split("import ")[1].split(",")
        }


def path_of(module: str) -> Path:
    """Find the file of a module of the SDK."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def family(module: str) -> Twin | None:
    """Describe the twin of a module of ``iggy_sdk.families``, if it defines families."""
    source = f"iggy_sdk.families.{module}"
    tree = ast.parse(path_of(source).read_text(encoding="utf-8"))
    names = tuple(
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Family")
    )
    if not names:
        return None
    summary = (ast.get_docstring(tree) or "").partition("\n")[0]
    return Twin(
        source=source,
        names=names,
        target=f"iggy_sdk.blocking.families.{module}",
        bases="BlockingClientBase",
        imports=("from iggy_sdk.blocking.wrapper import BlockingClientBase",),
        doc=f"Blocking: {summary}",
    )


def families() -> tuple[Twin, ...]:
    """Describe the twins of all families."""
    folder = path_of("iggy_sdk.families").with_suffix("")
    modules = sorted(path.stem for path in folder.glob("*.py"))
    return tuple(twin for twin in map(family, modules) if twin is not None)


TWINS = (
    *families(),
    Twin(
        source="iggy_sdk.producer.producer",
        names=("Producer",),
        as_name="ProducerOperations",
        target="iggy_sdk.blocking.producer_operations",
        bases="BlockingProducerBase[T]",
        imports=(
            "from iggy_sdk.blocking.wrapper import BlockingProducerBase",
            "from iggy_sdk.blocking.wrapper import Receipt",
            "from iggy_sdk.producer.producer import T",
        ),
        doc="Methods of a blocking producer.",
        by_hand=frozenset({"aclose", "open", "shutdown"}),
        wraps=(("Receipt", "Receipt(self._loop_thread, {call})"),),
    ),
    Twin(
        source="iggy_sdk.producer.builder",
        names=("ProducerBuilder",),
        target="iggy_sdk.blocking.producer_builder",
        bases="ProducerBuilderBase[P_contra]",
        imports=(
            "from iggy_sdk.blocking.producer import ProducerBuilderBase",
            "from iggy_sdk.value_types import P_contra",
        ),
        doc="The options of a blocking producer.",
        by_hand=frozenset({"make"}),
        wraps=(("ProducerBuilder", "ProducerBuilder(self._loop_thread, {call})"),),
    ),
    Twin(
        source="iggy_sdk.consumer.consumer",
        names=("IggyConsumer",),
        as_name="ConsumerOperations",
        target="iggy_sdk.blocking.consumer_operations",
        bases="BlockingConsumerBase[T]",
        imports=("from iggy_sdk.blocking.wrapper import BlockingConsumerBase, T",),
        doc="Methods of a blocking consumer, besides iteration.",
        by_hand=frozenset(
            {
                "aclose",
                "arrow_batches",
                "batches",
                "consume_messages",
                "delete_offset",
                "get_last_consumed_offset",
                "iter_messages",
                "lag",
                "last_partition_id",
                "partition_id",
                "position",
                "positions",
                "run",
                "seek",
                "shutdown",
                "store_offset",
            }
        ),
        in_loop=frozenset({"pause", "resume", "stop"}),
    ),
    Twin(
        source="iggy_sdk.consumer.builder",
        names=("ConsumerBuilder",),
        target="iggy_sdk.blocking.consumer_builder",
        bases="ConsumerBuilderBase[T]",
        imports=(
            "from iggy_sdk.blocking.consumer import ConsumerBuilderBase",
            "from iggy_sdk.blocking.wrapper import T",
        ),
        doc="The options of a blocking consumer.",
        by_hand=frozenset({"group", "standalone"}),
        wraps=(("ConsumerBuilder", "ConsumerBuilder(self._loop_thread, {call})"),),
    ),
)


Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A module that is read: its classes, and where each of its names comes from."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
        self.origins = dict(self._origins())

    def _origins(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                for alias in node.names:
                    yield alias.asname or alias.name, node.module or ""
        for node in self.tree.body:
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, self.module

    def class_named(self, name: str) -> ast.ClassDef:
        """Find a class."""
        [found] = [
            node for node in self.tree.body if isinstance(node, ast.ClassDef) and node.name == name
        ]
        return found

    def methods(self, name: str) -> list[Function]:
        """List the public methods of a class, overloads included."""
        return [
            node
            for node in self.class_named(name).body
            if isinstance(node, Function) and not node.name.startswith("_")
        ]


def decorators(function: Function) -> set[str]:
    """Name the decorators of a function; what is abstract there is not so here."""
    return {ast.unparse(one) for one in function.decorator_list} - {"abstractmethod"}


def is_overload(function: Function) -> bool:
    """Tell whether this is a signature without a body."""
    return "overload" in decorators(function)


def passed(function: Function) -> str:
    """Write the arguments with which a method passes on what it was given."""
    arguments = function.args
    parts = [handed(one) for one in [*arguments.posonlyargs, *arguments.args][1:]]
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}")
    parts += [f"{one.arg}={handed(one)}" for one in arguments.kwonlyargs]
    if arguments.kwarg:
        parts.append(f"**{arguments.kwarg.arg}")
    return ", ".join(parts)


def handed(argument: ast.arg) -> str:
    """Write one argument; a generator of the caller's must not run in the loop."""
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    return f"as_sequence({argument.arg})" if annotation.startswith("Iterable[") else argument.arg


def body_of(function: Function, twin: Twin) -> str:
    """Write what a blocking method does."""
    if is_overload(function):
        return "..."
    if "property" in decorators(function):
        call = f"self._inner.{function.name}"
    else:
        call = f"self._inner.{function.name}({passed(function)})"
    if function.name in twin.in_loop:
        given = ", ".join([f"self._inner.{function.name}", *filter(None, [passed(function)])])
        call = f"self._run(in_loop({given}))"
    if isinstance(function, ast.AsyncFunctionDef):
        call = f"self._run({call})"
    returns = ast.unparse(function.returns) if function.returns else "None"
    for annotation, around in twin.wraps:
        if returns == annotation or returns.startswith(f"{annotation}["):
            return f"return {around.format(call=call)}"
    return call if returns == "None" else f"return {call}"


def method(function: Function, twin: Twin) -> str:
    """Write one blocking method."""
    lines = [f"@{name}" for name in sorted(decorators(function))]
    returns = ast.unparse(function.returns) if function.returns else "None"
    lines.append(f"def {function.name}({ast.unparse(function.args)}) -> {returns}:")
    docstring = ast.get_docstring(function, clean=True)
    if docstring:
        text = "\n".join(f"    {line}".rstrip() for line in docstring.splitlines()).strip()
        end = "\n    " if "\n" in text else ""
        lines.append(f'    """{text}{end}"""')
    lines.append(f"    {body_of(function, twin)}")
    return "\n".join(f"    {line}".rstrip() for line in "\n".join(lines).splitlines())


def names_in(nodes: list[ast.expr]) -> set[str]:
    """List the names that expressions use, those in quotes too."""
    return {node.id for one in nodes for node in ast.walk(one) if isinstance(node, ast.Name)}


def imports_of(
    functions: list[Function], source: Source, own: set[str]
) -> tuple[list[str], list[str]]:
    """List the imports that signatures need: at run time, and for type checkers alone."""
    runtime: set[str] = set()
    typing: set[str] = set()
    for function in functions:
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        typing |= names_in([one.annotation for one in every if one.annotation is not None])
        typing |= names_in([function.returns] if function.returns else [])
        defaults = [*arguments.defaults, *[one for one in arguments.kw_defaults if one]]
        runtime |= names_in(defaults) | decorators(function)
    runtime = {name for name in runtime if name in source.origins} - own
    typing = {name for name in typing if name in source.origins} - own - runtime
    typed = {name for name in typing if source.origins.get(name) == "typing"}
    return (
        sorted(import_line(name, source) for name in runtime | typed),
        sorted(import_line(name, source) for name in typing - typed),
    )


def import_line(name: str, source: Source) -> str:
    """Write the import of one name."""
    return f"from {source.origins[name]} import {name}"


def render(twin: Twin) -> str:
    """Write the module of a twin."""
    source = Source(twin.source)
    methods = {
        name: [one for one in source.methods(name) if one.name not in twin.by_hand]
        for name in twin.names
    }
    classes = [render_class(source, name, methods[name], twin) for name in twin.names]
    every = [one for name in twin.names for one in methods[name]]
    runtime, typing = imports_of(every, source, twin.own_names)
    runtime += twin.imports
    runtime += [
        f"from iggy_sdk.blocking.wrapper import {name}"
        for name in ("in_loop", "as_sequence")
        if any(f"{name}(" in text for text in classes)
    ]
    if typing:
        runtime.append("from typing import TYPE_CHECKING")
    blocks = [
        f'"""{twin.doc}\n\n{NOTE.format(source=twin.source)}\n"""',
        "from __future__ import annotations",
        "\n".join(runtime),
    ]
    if typing:
        blocks.append("if TYPE_CHECKING:\n" + "\n".join(f"    {line}" for line in typing))
    blocks += classes
    return tidy("\n\n".join(blocks) + "\n", path_of(twin.target))


def render_class(source: Source, name: str, methods: list[Function], twin: Twin) -> str:
    """Write one class of a twin."""
    summary = (ast.get_docstring(source.class_named(name)) or "").partition("\n")[0]
    body = "\n\n".join(method(one, twin) for one in methods)
    return f'class {twin.as_name or name}({twin.bases}):\n    """{summary}"""\n\n{body}'


def tidy(text: str, path: Path) -> str:
    """Lay a module out as the project does."""
    for arguments in (["check", "--quiet", "--select", "I,TC", "--fix"], ["format", "--quiet"]):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, f"--stdin-filename={path}", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        ).stdout
    return text


def stale() -> list[Twin]:
    """List the twins whose module is not what it should be."""
    return [
        twin
        for twin in TWINS
        if not path_of(twin.target).exists()
        or path_of(twin.target).read_text(encoding="utf-8") != render(twin)
    ]


def main(arguments: list[str]) -> int:
    """Write the modules, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    options = parser.parse_args(arguments)
    outdated = stale()
    for twin in outdated:
        if not options.check:
            path_of(twin.target).parent.mkdir(parents=True, exist_ok=True)
            path_of(twin.target).write_text(render(twin), encoding="utf-8")
        sys.stdout.write(f"{'stale' if options.check else 'wrote'} {twin.target}\n")
    return 1 if options.check and outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
