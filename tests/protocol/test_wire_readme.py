"""The byte tables of the protocol's README are the layouts, not a memory of them."""

from __future__ import annotations

import re

from iggy_protocol import commands
from iggy_protocol.registry import COMMANDS
from tools.wire_tables import README, rendered


def test_readme_when_rendered_anew_then_does_not_change():
    text = README.read_text()
    assert rendered(text) == text, "run: python -m tools.wire_tables"


def test_readme_when_searched_then_shows_every_family_and_every_command():
    text = README.read_text()
    assert set(commands.__all__) < set(re.findall(r"<!-- wire: (\w+) -->", text))
    for spec in COMMANDS.values():
        assert f"#### {spec.command.__name__} ({spec.code.value})" in text
