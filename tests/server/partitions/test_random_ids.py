"""Ids that the server chooses: as many as are asked for, and none of them twice."""

from __future__ import annotations

import pytest

from iggy_ref_server.partitions.append import ID_BYTES, URANDOM_IDS_MAX, RandomIds


def ids_of(content: bytes) -> set[bytes]:
    return {content[at : at + ID_BYTES] for at in range(0, len(content), ID_BYTES)}


@pytest.mark.parametrize("count", [0, 1, URANDOM_IDS_MAX, URANDOM_IDS_MAX + 1, 1000])
def test_ids_when_taken_then_are_as_many_as_were_asked_for(count):
    assert len(RandomIds().take(count)) == count * ID_BYTES


@pytest.mark.parametrize("count", [URANDOM_IDS_MAX, 1000])
def test_ids_when_taken_again_then_none_comes_twice(count):
    source = RandomIds()

    seen = (
        ids_of(source.take(count))
        | ids_of(source.take(count))
        | ids_of(source.take(URANDOM_IDS_MAX + 1))
    )

    assert len(seen) == 2 * count + URANDOM_IDS_MAX + 1


def test_ids_when_taken_from_two_sources_then_differ():
    assert ids_of(RandomIds().take(1000)).isdisjoint(ids_of(RandomIds().take(1000)))
