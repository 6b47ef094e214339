"""Statistics as clients of the original expect them: short numbers, whole seconds, known names."""

from __future__ import annotations

import itertools
import json
import re
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iggy_protocol import GetStats
from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.host import read_os_release, shortest_f32
from tests.server.web.web_harness import open_web

# What json-bigint, the reader of upstream's web interface, takes for a number.
DIGITS_MAX = 15


@given(st.floats(0, 25_600))
@example(0.45153780229327023)
@example(76.83158874511719)
@example(0.0)
@example(100.0)
def test_share_when_written_then_is_the_shortest_text_of_its_32_bit_float(value):
    short = shortest_f32(value)
    assert struct.pack("<f", short) == struct.pack("<f", value)
    assert len(re.sub(r"e.*|\D", "", repr(short)).strip("0")) <= 9
    assert shortest_f32(short) == short


def test_share_when_the_original_writes_it_then_is_the_same():
    assert shortest_f32(struct.unpack("<f", struct.pack("<f", 76.83159))[0]) == 76.83159


@pytest.mark.trio
async def test_stats_when_asked_for_then_have_numbers_and_names_of_the_original(
    autojump_clock, monkeypatch
):
    clock = SimulatedClock(1_700_000_000_123_456)
    ticks = itertools.count()
    monkeypatch.setattr(
        "iggy_ref_server.host._machine_ticks", lambda: (now := next(ticks), now * 2)
    )
    async with open_web(clock=clock) as web:
        await web.log_in()
        await web.ask("GET", "/stats")
        clock.step(9_999_999)
        text = (await web.ask("GET", "/stats")).text
        stats = json.loads(text)
        assert stats["run_time"] == 9_000_000
        assert stats["start_time"] % 1_000_000 == 0
        assert stats["total_cpu_usage"] == 50.0
        assert (stats["os_name"], stats["os_version"]) == read_os_release()
        assert all(len(number) <= DIGITS_MAX for number in re.findall(r"\d+\.\d+", text))
        client = await web.world.log_in()
        told = await client.ask(GetStats())
        assert told.start_time_us == stats["start_time"]
        assert (told.os_name, told.os_version) == read_os_release()
