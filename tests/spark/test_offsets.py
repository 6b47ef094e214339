"""Offsets and tasks: canonical texts, fair shares, and slices that cover everything once."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs import OptionError
from spark_jobs.offsets import TopicPartition, limit_offsets, read_offsets, write_offsets
from spark_jobs.query_offset import PartitionIdentity, QueryOffset
from spark_jobs.reader import OffsetSlice, split_slices

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 12))
RANGES = st.dictionaries(
    PLACES, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=8
)


@given(offsets=st.dictionaries(PLACES, st.integers(0, 2**63)), seed=st.randoms())
def test_offsets_when_written_in_any_order_then_the_text_is_the_same(offsets, seed):
    shuffled = list(offsets.items())
    seed.shuffle(shuffled)

    text = json.dumps(write_offsets(offsets))

    assert text == json.dumps(write_offsets(dict(shuffled)))
    assert read_offsets(json.loads(text)) == offsets


def test_offsets_when_there_are_ten_partitions_then_they_are_in_the_order_of_their_numbers():
    offsets = {TopicPartition("t", number): 1 for number in (10, 9, 2)}

    assert list(write_offsets(offsets)["t"]) == ["2", "9", "10"]


IDENTITIES = st.builds(
    PartitionIdentity, st.integers(0, 9), st.integers(0, 2**63), st.integers(0, 2**63)
)


@given(
    numbers=st.dictionaries(PLACES, st.integers(0, 2**63)),
    starts=st.dictionaries(PLACES, st.integers(0, 2**63)),
    identities=st.dictionaries(PLACES, IDENTITIES),
    seed=st.randoms(),
)
def test_checkpoint_when_written_in_any_order_then_the_text_is_the_same_and_says_the_same(
    numbers, starts, identities, seed
):
    reached = QueryOffset(
        numbers, *({at: one[at] for at in one if at in numbers} for one in (starts, identities))
    )
    parts = [list(one.items()) for one in (numbers, reached.starts, reached.identities)]
    for part in parts:
        seed.shuffle(part)

    text = json.dumps(reached.to_json())

    assert json.dumps(QueryOffset(*map(dict, parts)).to_json()) == text
    assert QueryOffset.from_json(json.loads(text)) == reached
    assert read_offsets(json.loads(text)) == numbers


@given(offsets=st.dictionaries(PLACES, st.integers(0, 2**63)))
def test_checkpoint_when_it_is_of_before_then_it_has_offsets_alone(offsets):
    assert QueryOffset.from_json(write_offsets(offsets)) == QueryOffset(offsets)


@pytest.mark.parametrize("written", [{"t": {"identity": {"0": [1]}}}, {"t": {"start": 5}}])
def test_checkpoint_when_it_cannot_be_read_then_the_answer_says_so(written):
    with pytest.raises(OptionError, match="the checkpoint cannot be read"):
        QueryOffset.from_json(written)


SEEN = PartitionIdentity(3, 1_000_000_000, 7)


@pytest.mark.parametrize(
    ("now", "is_same"),
    [
        (SEEN, True),
        (SEEN._replace(incarnation=8), False),
        (SEEN._replace(topic_id=4), False),
        # Servers before 0.10 tell no incarnation, and 0.8 moves the time at its first restart.
        (SEEN._replace(incarnation=0), True),
        (SEEN._replace(created_at_us=1_000_900_000, incarnation=0), True),
        (SEEN._replace(created_at_us=1_001_100_000, incarnation=0), False),
        (SEEN._replace(created_at_us=999_999_999, incarnation=0), False),
    ],
)
def test_identity_when_a_server_tells_it_later_then_it_is_known_again(now, is_same):
    assert now.continues(SEEN) is is_same


@pytest.mark.parametrize("written", [{"0": 5}, {"t": {"x": 1}}, {"t": {"0": None}}, {"t": [1]}])
def test_offsets_when_the_checkpoint_is_of_another_source_then_the_answer_says_so(written):
    with pytest.raises(OptionError, match="checkpointLocation of its own"):
        read_offsets(written)


# Rounding in proportion first gave 2, 1 and 0 here, although the limit reaches for everybody.
STARVED = {TopicPartition("a", number): (0, count) for number, count in enumerate([4, 1, 1])}


@given(ranges=RANGES, limit=st.integers(1, 3000))
@example(ranges=STARVED, limit=3)
def test_share_when_there_is_a_limit_then_it_is_used_up_and_none_is_starved(ranges, limit):
    start = {place: first for place, (first, _) in ranges.items()}
    end = {place: first + count for place, (first, count) in ranges.items()}
    waiting = sum(count for _, count in ranges.values())

    shared = limit_offsets(start, end, limit)

    assert sum(shared[place] - start[place] for place in end) == min(limit, waiting)
    assert all(start[place] <= shared[place] <= end[place] for place in end)
    hungry = [place for place in end if end[place] > start[place]]
    if limit >= len(hungry):
        assert all(shared[place] > start[place] for place in hungry)


@given(ranges=RANGES, limit=st.integers(1, 3000))
@example(ranges=STARVED, limit=2)
@example(ranges=STARVED, limit=4)
def test_share_when_more_waits_in_a_partition_then_it_gets_no_less_than_another(ranges, limit):
    start = {place: first for place, (first, _) in ranges.items()}
    end = {place: first + count for place, (first, count) in ranges.items()}

    shared = limit_offsets(start, end, limit)

    got = sorted((ranges[place][1], shared[place] - start[place]) for place in end)
    assert [part for _, part in got] == sorted(part for _, part in got)


@pytest.mark.parametrize(
    ("waiting", "limit", "shares"),
    [
        ([4, 1, 1], 3, [1, 1, 1]),
        ([4, 1, 1], 2, [1, 1, 0]),
        ([1000, 100, 0, 10], 111, [98, 11, 0, 2]),
        ([5, 5, 5], 7, [3, 2, 2]),
    ],
)
def test_share_when_the_limit_is_small_then_all_get_one_and_the_rest_is_in_proportion(
    waiting, limit, shares
):
    places = [TopicPartition("t", number) for number in range(len(waiting))]
    end = dict(zip(places, waiting, strict=True))

    shared = limit_offsets(dict.fromkeys(places, 0), end, limit)

    assert list(shared.values()) == shares


@given(
    sizes=st.lists(st.integers(1, 500), min_size=1, max_size=6),
    min_partitions=st.integers(0, 40),
    max_records=st.integers(0, 200),
)
def test_split_when_asked_for_tasks_then_they_cover_everything_once(
    sizes, min_partitions, max_records
):
    whole = [OffsetSlice("t", number, 7, 7 + size) for number, size in enumerate(sizes)]

    pieces = split_slices(whole, min_partitions=min_partitions, max_records=max_records)

    assert len(pieces) >= min(min_partitions, sum(sizes))
    assert all(piece.size >= 1 for piece in pieces)
    if max_records:
        assert max(piece.size for piece in pieces) <= max_records
    for number, one in enumerate(whole):
        mine = [piece for piece in pieces if piece.partition == number]
        assert (mine[0].start, mine[-1].end) == (one.start, one.end)
        assert all(left.end == right.start for left, right in pairwise(mine))


def test_split_when_there_is_nothing_then_there_are_no_tasks():
    assert split_slices([], min_partitions=5, max_records=5) == []


def test_split_when_more_tasks_are_wanted_then_the_large_slice_is_cut():
    whole = [OffsetSlice("t", 0, 0, 10), OffsetSlice("t", 1, 0, 990)]

    pieces = split_slices(whole, min_partitions=10, max_records=0)

    assert [piece.partition for piece in pieces].count(1) == 9
