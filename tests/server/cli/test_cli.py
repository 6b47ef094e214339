"""The command line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from iggy_ref_server.cli import (
    CheckCommand,
    DefaultsCommand,
    RepairCommand,
    ServeCommand,
    StartFlags,
    parse_arguments,
)

COMMANDS = {
    "": ServeCommand(StartFlags()),
    "-f": ServeCommand(StartFlags(fresh=True)),
    "--fresh": ServeCommand(StartFlags(fresh=True)),
    "-c file": ServeCommand(StartFlags()),
    "--config-provider file --follower": ServeCommand(StartFlags(follower=True)),
    "--with-default-root-credentials": ServeCommand(StartFlags(with_default_root_credentials=True)),
    "check data": CheckCommand(Path("data")),
    "repair data": RepairCommand(Path("data")),
    "defaults": DefaultsCommand(),
}


@pytest.mark.parametrize("line", COMMANDS)
def test_arguments_when_known_then_become_a_command(line):
    assert parse_arguments(line.split()) == COMMANDS[line]


@pytest.mark.parametrize(
    "line",
    [
        "--fres",
        "-c env",
        "check",
        "repair",
        "check a b",
        "start",
        "--fresh check data",
        "defaults x",
    ],
)
def test_arguments_when_wrong_then_end_with_status_2(line, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_arguments(line.split())

    assert caught.value.code == 2
    assert "usage: iggy-server" in capsys.readouterr().err


def test_help_when_asked_then_shows_examples(capsys):
    with pytest.raises(SystemExit) as caught:
        parse_arguments(["--help"])

    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert "examples:" in text
    assert "IGGY_CONFIG_PATH=server.toml iggy-server" in text
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version_when_asked_then_is_one_line(flag, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_arguments([flag])

    assert caught.value.code == 0
    told = capsys.readouterr().out
    assert re.fullmatch(r"iggy-server \S+, speaks Apache Iggy 0\.7 to 0\.10\n", told)


def test_command_line_when_read_then_no_library_is_imported():
    heavy = "msgspec trio iggy_protocol iggy_ref_server.config typer rich importlib.metadata"
    code = (
        "import sys; from iggy_ref_server.cli import parse_arguments; parse_arguments(['-f']); "
        f"print([name for name in {heavy.split()} if name in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )

    assert result.stdout == "[]\n"
