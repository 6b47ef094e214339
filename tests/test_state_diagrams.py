"""The diagrams of states in the pages are the tables, not a memory of them."""

from __future__ import annotations

from enum import Enum

import pytest

from tools.state_diagrams import DIAGRAMS, ROOT, meanings, mermaid, rendered, states_of


class Light(Enum):
    """A small table to render."""

    RED = "red"
    """Wait for ``green``."""

    GREEN = "green"
    """Go."""

    OFF = "off"
    """Out
    of order."""


class Press(Enum):
    """What happens to it."""

    SWITCH = "switch"
    BREAK = "break"
    CUT = "cut"


LIGHTS = {
    (Light.GREEN, Press.SWITCH): Light.RED,
    (Light.RED, Press.SWITCH): Light.GREEN,
    (Light.RED, Press.BREAK): Light.OFF,
    (Light.RED, Press.CUT): Light.OFF,
    (Light.OFF, Press.SWITCH): Light.OFF,
}


@pytest.mark.parametrize("page", sorted({diagram.page for diagram in DIAGRAMS}))
def test_page_when_rendered_anew_then_does_not_change(page):
    text = (ROOT / page).read_text(encoding="utf-8")

    assert rendered(text, page) == text, "run: python -m tools.state_diagrams"


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda diagram: diagram.marker)
def test_states_when_listed_then_each_says_what_it_means(diagram):
    states = states_of(diagram.transitions)

    assert set(meanings(type(states[0]))) == {state.name for state in states}


def test_mermaid_when_rendered_then_has_one_arrow_between_two_states():
    assert mermaid(LIGHTS).splitlines() == [
        "stateDiagram-v2",
        "    [*] --> RED",
        "    RED --> GREEN: switch",
        "    RED --> OFF: break, cut",
        "    GREEN --> RED: switch",
        "    OFF --> OFF: switch",
        "    OFF --> [*]",
    ]


def test_meanings_when_a_text_has_several_lines_then_is_one():
    assert meanings(Light)["OFF"] == "Out of order."


def test_rendered_when_a_page_lacks_its_marker_then_fails():
    with pytest.raises(AssertionError, match="lacks <!-- states: client -->"):
        rendered("no marker", DIAGRAMS[0].page)
