"""What can be said about cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.config.syntax import (
    AllCores,
    CoreCount,
    CoreRange,
    NumaCores,
    parse_cpu_allocation,
)

FORMS = {
    "all": AllCores(),
    "4": CoreCount(4),
    "5..8": CoreRange(5, 8),
    "numa:auto": NumaCores(),
    "numa:nodes=0,1;cores=4;no_ht=true": NumaCores((0, 1), 4, True),
    "numa:no_ht=false": NumaCores((), 0, False),
    "numa:cores=2": NumaCores((), 2, True),
}
NUMBERS = st.integers(0, 999_999)
ALLOCATIONS = (
    st.just(AllCores())
    | st.builds(CoreCount, st.integers(1, 999_999))
    | st.tuples(NUMBERS, NUMBERS)
    .filter(lambda pair: pair[0] < pair[1])
    .map(lambda p: CoreRange(*p))
    | st.builds(NumaCores, st.lists(NUMBERS, unique=True).map(tuple), NUMBERS, st.booleans())
)


@pytest.mark.parametrize("text", FORMS)
def test_allocation_when_written_as_the_original_does_then_is_read(text):
    assert parse_cpu_allocation(text) == FORMS[text]


@given(ALLOCATIONS)
def test_allocation_when_written_then_reads_back(allocation):
    assert parse_cpu_allocation(str(allocation)) == allocation


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "some",
        "3..3",
        "5..2",
        "..2",
        "1..2..3",
        "numa:",
        "numa:all",
        "numa:nodes=",
        "numa:nodes=0,0",
        "numa:nodes=a",
        "numa:cores=2;cores=3",
        "numa:no_ht=yes",
        "numa:threads=2",
    ],
)
def test_allocation_when_senseless_then_refused(text):
    with pytest.raises(ValueError):
        parse_cpu_allocation(text)


@given(st.text(max_size=20))
def test_allocation_when_it_is_any_text_then_answers_or_refuses(text):
    try:
        allocation = parse_cpu_allocation(text)
    except ValueError:
        return
    assert parse_cpu_allocation(str(allocation)) == allocation
