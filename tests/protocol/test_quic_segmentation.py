"""Datagrams in runs that the kernel cuts apart, without a socket."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.quic import RUN_BYTES_MAX, SEGMENTS_MAX, segment_option, split_runs

SIZES = st.lists(st.integers(1, 9_000), max_size=200)


@given(SIZES)
def test_runs_when_cut_then_hold_everything_in_order_and_fit_one_call(sizes):
    datagrams = [bytes(size) for size in sizes]
    runs = list(split_runs(datagrams))

    assert [data for run in runs for data in run] == datagrams
    for run in runs:
        assert len(run) <= SEGMENTS_MAX
        assert sum(map(len, run)) <= RUN_BYTES_MAX
        assert {len(data) for data in run[:-1]} <= {len(run[0])}
        assert len(run[-1]) <= len(run[0])


def test_runs_when_all_are_alike_then_are_few():
    assert [len(run) for run in split_runs([bytes(1_000)] * 100)] == [64, 36]


def test_option_when_made_then_has_the_size_of_the_first_datagram():
    # SOL_UDP and UDP_SEGMENT of Linux.
    size = (1_000).to_bytes(2, sys.byteorder)
    assert segment_option([bytes(1_000), bytes(10)]) == [(17, 103, size)]
