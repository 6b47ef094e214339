"""Records as lines."""

from __future__ import annotations

import logging
import sys

import pytest

from iggy_ref_server.logs.writer import LineFormatter, colorize


def line(message: str, *arguments: object, level: int = logging.INFO, **extra: object) -> str:
    """Format a record of a fixed time."""
    record = logging.LogRecord(
        "iggy_ref_server.partitions", level, __file__, 1, message, arguments, None
    )
    record.created = 1_700_000_000.25
    vars(record).update(extra)
    return LineFormatter("shard-0").format(record)


def test_line_when_formatted_then_has_time_level_process_logger_and_message():
    assert line("wrote %d bytes", 5) == (
        "2023-11-14T22:13:20.250000Z  INFO shard-0 partitions: wrote 5 bytes"
    )


@pytest.mark.parametrize(
    ("level", "name"), [(5, "TRACE"), (10, "DEBUG"), (30, " WARN"), (40, "ERROR"), (50, "ERROR")]
)
def test_line_when_of_another_level_then_says_so(level, name):
    assert f"Z {name} shard-0" in line("x", level=level)


def test_line_when_there_are_fields_then_they_follow():
    assert line("x", stream=3, title="two words", empty="").endswith(
        'partitions: x stream=3 title="two words" empty=""'
    )


def test_line_when_a_client_named_something_nasty_then_stays_one_harmless_line():
    text = line("created %s", "a\n2023 ERROR forged\x1b[2J\x9b\u2028", topic="b\r\n\x1b")

    assert "\n" not in text
    assert text.isprintable()
    assert "a\\n2023 ERROR forged\\x1b[2J" in text


def test_line_when_there_is_a_traceback_then_its_lines_are_marked():
    try:
        raise ValueError("bad\x1b\nthing")
    except ValueError:
        record = logging.LogRecord("trio", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())

    first, *rest = LineFormatter("shard-0").format(record).split("\n")

    assert first.endswith("ERROR shard-0 trio: failed")
    assert all(row.startswith("    | ") and row.isprintable() for row in rest)
    assert rest[-2:] == ["    | ValueError: bad\\x1b", "    | thing"]


def test_paint_when_grave_then_colours():
    assert colorize("x", logging.INFO) == "x"
    assert colorize("x", logging.CRITICAL) == "\x1b[31mx\x1b[0m"
    assert colorize("x", logging.WARNING) == "\x1b[33mx\x1b[0m"
    assert colorize("x", logging.DEBUG) == "\x1b[2mx\x1b[0m"
