"""The page about versions is that of the commands that exist, and says what to do without one."""

from __future__ import annotations

import pytest

from iggy_protocol import COMMANDS, CommandSpec
from tools.version_table import NOTES, PAGE, RELEASES, cell, fill


def test_table_when_compared_with_the_commands_then_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert fill(page) == page, "run python -m tools.version_table"


def test_notes_when_read_then_each_is_about_a_command() -> None:
    assert set(NOTES) <= set(COMMANDS)


@pytest.mark.parametrize("spec", COMMANDS.values(), ids=lambda spec: spec.code.name)
def test_command_when_a_version_lacks_it_then_a_note_says_more(spec: CommandSpec) -> None:
    cells = [cell(spec, dialects) for dialects in RELEASES.values()]
    if any(one.startswith(("status", "eviction")) for one in cells):
        assert NOTES.get(spec.code)
