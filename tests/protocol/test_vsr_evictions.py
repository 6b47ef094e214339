"""Evictions: as recorded, with the errors of the official client, and every rule of theirs."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    VERSION_WINDOWS,
    EvictionReason,
    InvalidField,
    Version,
)
from iggy_protocol.vsr.evictions import eviction, login_eviction, read_eviction
from iggy_protocol.vsr.heads import EvictionHead, read_eviction_head
from tests.protocol.vsr_recordings import every_exchange

EXCHANGES = every_exchange()
CLIENT = bytes(range(1, 17))


def test_recorded_evictions_when_written_anew_then_differ_in_nothing_but_the_window():
    evictions = [one.reply for one in EXCHANGES if one.reply is not None and one.reply.eviction]
    assert {one.eviction for one in evictions} == {9, 14}
    for recorded in evictions:
        head = read_eviction_head(recorded.head)
        assert head.encode() == recorded.head
        ours = read_eviction_head(eviction(EvictionReason(head.reason), head.client))
        assert ours._replace(lowest=head.lowest, highest=head.highest) == head
        assert read_eviction(head).reason == recorded.eviction


# Reason, and the error of the official client.
STATUSES = {1: 40, 2: 3, 3: 3, 4: 3, 5: 3, 6: 3, 7: 40, 8: 40, 9: 42, 10: 53, 11: 40, 12: 40}
STATUSES |= {13: 30, 15: 4, 16: 40, 255: 40}


@pytest.mark.parametrize(("reason", "status"), STATUSES.items())
def test_eviction_when_received_then_has_the_error_of_the_official_client(reason, status):
    received = read_eviction(EvictionHead(client=CLIENT, reason=reason))
    assert (received.reason, received.status) == (reason, status)
    assert received.lowest is received.highest is None


def test_eviction_when_it_refuses_a_version_then_names_all_that_are_supported():
    received = read_eviction(
        read_eviction_head(eviction(EvictionReason.INCOMPATIBLE_PROTOCOL, CLIENT))
    )
    assert received.status == 14003
    assert received.lowest == Version(0, 11, 0)
    assert received.highest == Version(0, 12, 2)
    for window in VERSION_WINDOWS:
        assert received.lowest <= window.lowest <= window.highest <= received.highest


@pytest.mark.parametrize(("lowest", "highest"), [(0, 5), (6, 5), (0, 0)])
def test_eviction_when_its_window_is_empty_then_is_like_any_other(lowest, highest):
    received = read_eviction(EvictionHead(reason=14, lowest=lowest, highest=highest))
    assert received.status == 40
    assert received.lowest is None


@pytest.mark.parametrize(
    "wrong", [{"size": 257}, {"release": 1}, {"reserved_end": b"\1" + bytes(102)}, {"lowest": 1}]
)
def test_eviction_when_a_field_breaks_its_rule_then_is_refused(wrong):
    with pytest.raises(InvalidField):
        read_eviction(EvictionHead(client=CLIENT, reason=9)._replace(**wrong))


@pytest.mark.parametrize(
    ("status", "reason"),
    [(42, 9), (43, 9), (44, 9), (53, 10), (54, 10), (47, 11), (3, 15), (4, 15)],
)
def test_login_when_it_fails_then_is_answered_with_the_eviction_for_its_error(status, reason):
    assert login_eviction(status) == reason
    assert login_eviction(1) == EvictionReason.SESSION_ERROR
