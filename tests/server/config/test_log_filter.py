"""Which log lines are wanted, in the words of ``RUST_LOG``."""

from __future__ import annotations

import logging

import pytest

from iggy_ref_server.config.syntax import OFF, TRACE, LogFilter, parse_log_filter


def own(level: int, below: str = "") -> dict[str, int]:
    """List the loggers that ``iggy`` means."""
    return {f"iggy_ref_server{below}": level, f"iggy_protocol{below}": level}


FILTERS = {
    "info": LogFilter(logging.INFO, {}),
    "WARN": LogFilter(logging.WARNING, {}),
    "off": LogFilter(OFF, {}),
    "none": LogFilter(OFF, {}),
    "info,iggy=debug": LogFilter(logging.INFO, own(logging.DEBUG)),
    "warn, server=trace": LogFilter(logging.WARNING, own(TRACE)),
    "iggy=debug": LogFilter(logging.ERROR, own(logging.DEBUG)),
    "info,server::tcp=off": LogFilter(logging.INFO, own(OFF, ".tcp")),
    "trio=info,error": LogFilter(logging.ERROR, {"trio": logging.INFO}),
}


@pytest.mark.parametrize("text", FILTERS)
def test_filter_when_written_as_rust_log_then_is_read(text):
    assert parse_log_filter(text) == FILTERS[text]


@pytest.mark.parametrize("text", ["", " , ", "loud", "info,iggy=loud", "iggy[span]=info", "=info"])
def test_filter_when_senseless_then_refused(text):
    with pytest.raises(ValueError, match=r"neither|has no level"):
        parse_log_filter(text)
