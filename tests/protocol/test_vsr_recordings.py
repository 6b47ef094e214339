"""The recordings of official clients from 0.9 on, as their reader splits them."""

from __future__ import annotations

from collections import Counter

from iggy_protocol import V0_11, V0_12_0
from tests.protocol.vsr_recordings import every_exchange


def test_recordings_when_read_then_every_reply_belongs_to_the_request_of_its_name():
    for exchange in every_exchange():
        if exchange.reply is None:
            assert exchange.request.name in {"poll_deferred", "cancel_deferred"}
            continue
        name, *error = exchange.reply.name.split()
        assert name in {exchange.request.name, "eviction"}
        if name == "eviction":
            assert (exchange.request.name, error[-1]) in {("register", "9"), ("register", "14")}
            assert exchange.reply.eviction == int(error[-1])
        else:
            assert exchange.reply.status == (int(error[-1]) if error else 0)


def test_recordings_when_counted_then_nothing_was_left_out():
    counted = Counter(exchange.request.dialect for exchange in every_exchange())

    assert counted == {V0_11: 136, V0_12_0: 190}
