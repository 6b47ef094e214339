"""Logging of a process as a whole."""

from __future__ import annotations

import io
import logging
import os
import threading
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from iggy_ref_server.config.load import default_config
from iggy_ref_server.logs import LogLimits, LogWriter, RollingFile, start_logging
from iggy_ref_server.logs.writer import LogLine

if TYPE_CHECKING:
    from pathlib import Path

    from iggy_ref_server.config.schema import LoggingConfig

SETTINGS = default_config().system.logging
OURS = logging.getLogger("iggy_ref_server.net")
THEIRS = logging.getLogger("somebody.else")


def log_all(directory: Path, settings: LoggingConfig, **environment: str) -> str:
    """Log one line of each level from us and from a library, and return what was shown."""
    terminal = io.StringIO()
    with start_logging(settings, directory, environment, process="shard-1", terminal=terminal):
        for level in (5, logging.DEBUG, logging.INFO, logging.ERROR):
            OURS.log(level, "ours at %d", level)
            THEIRS.log(level, "theirs at %d", level)
    return terminal.getvalue()


def shown(text: str) -> list[str]:
    """Shorten lines to their messages."""
    return [line.partition(": ")[2] for line in text.splitlines()]


def test_logging_when_started_then_lines_reach_terminal_and_file(tmp_path):
    text = log_all(tmp_path, SETTINGS)

    assert shown(text) == ["ours at 20", "theirs at 20", "ours at 40", "theirs at 40"]
    assert " INFO shard-1 net: ours at 20" in text
    assert (tmp_path / "logs" / "iggy-server.log").read_text() == text


def test_logging_when_parts_are_wanted_then_only_they_speak(tmp_path):
    text = log_all(tmp_path, replace(SETTINGS, level="error,iggy=debug"))

    assert shown(text) == ["ours at 10", "ours at 20", "ours at 40", "theirs at 40"]


def test_logging_when_rust_log_is_set_then_it_wins(tmp_path):
    assert shown(log_all(tmp_path, SETTINGS, RUST_LOG="off")) == []
    assert len(shown(log_all(tmp_path, SETTINGS, RUST_LOG="trace"))) == 8


def test_logging_when_rust_log_is_senseless_then_says_so_and_takes_the_settings(tmp_path):
    text = log_all(tmp_path, SETTINGS, RUST_LOG="a[b]=c")

    assert "RUST_LOG is ignored: 'a[b]=c' is neither" in text
    assert "ours at 20" in text


def test_logging_when_files_are_off_then_there_is_none(tmp_path):
    assert "ours at 20" in log_all(tmp_path, replace(SETTINGS, file_enabled=False))
    assert not list(tmp_path.iterdir())


def test_logging_when_the_directory_cannot_be_made_then_goes_on_with_the_terminal(tmp_path):
    (tmp_path / "logs").write_text("a file is in the way")

    text = log_all(tmp_path, SETTINGS)

    assert "logs go to the terminal only" in text
    assert "ours at 20" in text


def test_logging_when_it_ends_then_everything_is_as_before(tmp_path):
    root = logging.getLogger()
    before = (root.level, list(root.handlers), OURS.level)

    log_all(tmp_path, replace(SETTINGS, level="trace,iggy.net=debug"))

    assert (root.level, root.handlers, OURS.level) == before


def test_logging_when_a_process_forks_then_each_writes_its_own_lines(tmp_path):
    with start_logging(SETTINGS, tmp_path, {}, process="supervisor", terminal=io.StringIO()):
        OURS.info("before")
        child = os.fork()
        if child == 0:
            OURS.info("lost: this process has not started its logging yet")
            with start_logging(SETTINGS, tmp_path, {}, process="shard-0", terminal=io.StringIO()):
                OURS.info("below")
            os._exit(0)
        assert os.waitpid(child, 0) == (child, 0)
        OURS.info("after")

    lines = (tmp_path / "logs" / "iggy-server.log").read_text().splitlines()
    assert sorted(line.partition("INFO ")[2] for line in lines) == [
        "shard-0 net: below",
        "supervisor net: after",
        "supervisor net: before",
    ]


class Stalled(io.StringIO):
    """A terminal that takes nothing until somebody looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.looked_at = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.looked_at.wait(5)
        return super().write(text)


def test_writer_when_the_terminal_stalls_then_drops_lines_and_tells_how_many():
    terminal = Stalled()
    writer = LogWriter(terminal, None, sweep_interval_s=60, lines_waiting_max=2)
    writer.start()
    writer.put(LogLine(logging.INFO, "first"))
    terminal.entered.wait(5)
    for number in range(5):
        writer.put(LogLine(logging.INFO, f"line {number}"))
    terminal.looked_at.set()
    writer.flush()
    writer.stop()
    writer.stop()

    assert terminal.getvalue().splitlines() == [
        "first",
        "3 log lines were dropped: the queue was full",
        "line 0",
        "line 1",
    ]


class Ascii(io.StringIO):
    """A terminal that knows few letters."""

    encoding = "ascii"


@pytest.mark.parametrize(("terminal", "expected"), [(Ascii(), "\\u0142\n"), (io.StringIO(), "ł\n")])
def test_writer_when_the_terminal_knows_few_letters_then_escapes_the_others(terminal, expected):
    writer = LogWriter(terminal, None, sweep_interval_s=60)
    writer.start()
    writer.put(LogLine(logging.INFO, "ł"))
    writer.stop()

    assert terminal.getvalue() == expected


def test_writer_when_the_terminal_is_closed_then_goes_on(tmp_path):
    limits = LogLimits(file_size_bytes_max=0, total_size_bytes_max=0, retention_s=1)
    terminal = io.StringIO()
    writer = LogWriter(terminal, RollingFile(tmp_path, limits), sweep_interval_s=60)
    writer.start()
    terminal.close()
    writer.put(LogLine(logging.INFO, "x"))
    writer.stop()

    assert (tmp_path / "iggy-server.log").read_text() == "x\n"
