"""Renders tables of states as Mermaid diagrams, with what each state means, into the pages.

Run ``python -m tools.state_diagrams`` from the root of the repository to write them anew after a
table has changed; a test compares them with the tables.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from iggy_ref_server.net.connection_state import TRANSITIONS as CONNECTION_TRANSITIONS
from iggy_sdk.session.states import CLIENT_TRANSITIONS, SESSION_TRANSITIONS

if TYPE_CHECKING:
    from enum import Enum

Transitions: TypeAlias = Mapping[tuple[Any, Any], Any]

ROOT = next(path for path in Path(__file__).resolve().parents if (path / "Makefile").exists())


class Diagram(NamedTuple):
    """One table and where its diagram belongs.

    Attributes:
        page: the file, from the root of the repository.
        marker: the name in ``<!-- states: name -->``, which ``<!-- end -->`` follows.
        transitions: state and event give the next state; the first state of the enum is the first.
    """

    page: str
    marker: str
    transitions: Transitions


DIAGRAMS = [
    Diagram("docs/sdk.md", "client", CLIENT_TRANSITIONS),
    Diagram("docs/sdk.md", "session", SESSION_TRANSITIONS),
    Diagram("docs/server.md", "connection", CONNECTION_TRANSITIONS),
]


def states_of(transitions: Transitions) -> list[Enum]:
    """List the states of a table, in the order of their enum."""
    first, _ = next(iter(transitions))
    states: type[Enum] = type(first)
    return list(states)


def is_last(transitions: Transitions, state: Enum) -> bool:
    """Say whether no event leads out of a state."""
    return all(after is state for (before, _), after in transitions.items() if before is state)


def event_label(event: Enum) -> str:
    """Return the words for an event: its value if that is a text, else its name."""
    return event.value if isinstance(event.value, str) else event.name.lower().replace("_", " ")


def mermaid(transitions: Transitions) -> str:
    """Render a table as a diagram: one arrow from state to state, with all events that take it."""
    states = states_of(transitions)
    arrows: dict[tuple[Enum, Enum], list[str]] = {}
    for (before, event), after in transitions.items():
        arrows.setdefault((before, after), []).append(event_label(event))
    order = {state: number for number, state in enumerate(states)}
    lines = ["stateDiagram-v2", f"    [*] --> {states[0].name}"]
    for before, after in sorted(arrows, key=lambda arrow: (order[arrow[0]], order[arrow[1]])):
        lines.append(f"    {before.name} --> {after.name}: {', '.join(arrows[before, after])}")
    lines += [f"    {state.name} --> [*]" for state in states if is_last(transitions, state)]
    return "\n".join(lines)


def meanings(states: type[Enum]) -> dict[str, str]:
    """Read the text below each member of an enum, which Python itself does not keep."""
    found: dict[str, str] = {}
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(states))).body
    assert isinstance(definition, ast.ClassDef)
    for member, text in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(member, ast.Assign)
            and isinstance(member.targets[0], ast.Name)
            and isinstance(text, ast.Expr)
        ):
            found[member.targets[0].id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def section(transitions: Transitions) -> str:
    """Render what belongs between the markers."""
    states = states_of(transitions)
    texts = meanings(type(states[0]))
    rows = [f"| `{state.name}` | {texts[state.name].replace('``', '`')} |" for state in states]
    return "\n".join(
        ["```mermaid", mermaid(transitions), "```", "", "| state | |", "|---|---|", *rows]
    )


def rendered(text: str, page: str) -> str:
    """Fill in everything between the markers of a page."""
    for diagram in DIAGRAMS:
        if diagram.page == page:
            start, end = f"<!-- states: {diagram.marker} -->", "<!-- end -->"
            before, found, rest = text.partition(start)
            _, found_end, after = rest.partition(end)
            assert found, f"{page} lacks {start}"
            assert found_end, f"{page} lacks {end} after {start}"
            text = f"{before}{start}\n\n{section(diagram.transitions)}\n\n{end}{after}"
    return text


if __name__ == "__main__":
    for name in sorted({diagram.page for diagram in DIAGRAMS}):
        path = ROOT / name
        path.write_text(rendered(path.read_text(encoding="utf-8"), name), encoding="utf-8")
        sys.stdout.write(f"{name} is up to date\n")
