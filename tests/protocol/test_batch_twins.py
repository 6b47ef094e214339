"""The two implementations side by side: the same results, or the same kind of refusal."""

from __future__ import annotations

import inspect
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iggy_protocol import batch_python
from tests.protocol.batch_strategies import (
    HOSTILE_ITEMS,
    ITEMS,
    TELLING_U32,
    U64,
    exact,
    hostile_bodies,
    hostile_messages,
    load_twin,
    make_body,
    make_message,
    make_metadata,
    outcome,
)

ONLY_IN_C = {"available_levels"}
TYPES = {"MessageRecord", "MessageView"}
VIEW_FIELDS = (
    "checksum",
    "id",
    "offset",
    "timestamp_us",
    "origin_timestamp_us",
    "payload",
    "user_headers",
    "size",
)
RECORD_FIELDS = (*VIEW_FIELDS[:5], "size", "payload", "raw_payload", "raw_user_headers")
ODD_NUMBERS = st.one_of(
    U64, st.sampled_from([-1, 0, 2**32 - 1, 2**32, 2**64 - 1, 2**64, None, "1", 1.0, True])
)


@pytest.fixture(scope="module")
def extension():
    return load_twin("c")


def read_views(twin, messages):
    """Read all fields of all views."""
    return [
        (*(getattr(view, field) for field in VIEW_FIELDS), view.is_intact(), repr(view))
        for view in twin.walk(messages)
    ]


def read_records(twin, messages):
    """Read all fields of all records."""
    return [
        (*(getattr(record, field) for field in RECORD_FIELDS), record._is_plain)
        for record in twin.reading(messages, twin.MessageRecord, None, True, [None] * 100)
    ]


def public_names(module):
    return {name for name in vars(module) if not name.startswith("_")}


def test_twins_when_listed_then_offer_the_same_names(extension):
    assert public_names(extension) - ONLY_IN_C == set(batch_python.__all__)


@pytest.mark.parametrize("name", sorted(set(batch_python.__all__) - TYPES))
def test_twins_when_asked_for_a_signature_then_agree(extension, name):
    ours = inspect.signature(getattr(batch_python, name))
    theirs = inspect.signature(getattr(extension, name))

    assert [(p.name, p.kind) for p in theirs.parameters.values()] == [
        (p.name, p.kind) for p in ours.parameters.values()
    ]


def test_twins_when_views_are_listed_then_offer_the_same_names(extension):
    assert public_names(extension.MessageView) == public_names(batch_python.MessageView)
    assert {*VIEW_FIELDS, "is_intact"} == public_names(batch_python.MessageView)


def test_twins_when_records_are_listed_then_offer_and_say_the_same(extension):
    theirs, ours = extension.MessageRecord, batch_python.MessageRecord

    assert public_names(theirs) == public_names(ours) == set(RECORD_FIELDS)
    assert [getattr(theirs, name).__doc__ for name in RECORD_FIELDS] == [
        getattr(ours, name).__doc__ for name in RECORD_FIELDS
    ]


@given(items=st.lists(ITEMS, max_size=10), origin_us=U64, headroom=st.integers(0, 300))
def test_encode_when_items_are_good_then_twins_agree(extension, items, origin_us, headroom):
    arguments = make_metadata(len(items)), items, origin_us, headroom

    assert extension.encode(*arguments) == batch_python.encode(*arguments)


@given(
    items=st.lists(HOSTILE_ITEMS, max_size=4),
    origin_us=ODD_NUMBERS,
    headroom=st.sampled_from([0, 0, 0, 8, -1, 4097, None]),
)
def test_encode_when_items_are_odd_then_twins_agree(extension, items, origin_us, headroom):
    arguments = b"metadata", items, origin_us, headroom

    assert outcome(extension.encode, *arguments) == outcome(batch_python.encode, *arguments)


@given(items=st.lists(HOSTILE_ITEMS, min_size=1, max_size=3))
def test_encode_when_an_item_is_odd_then_twins_say_the_same(extension, items):
    messages = []
    for twin in (extension, batch_python):
        try:
            twin.encode(b"", items, 0, 0)
        except (TypeError, OverflowError, ValueError) as error:
            messages.append(str(error))
        except BufferError:
            messages.append("not contiguous, in Python's own words")
        else:
            messages.append("")

    assert messages[0] == messages[1]


@given(body=st.binary(max_size=300) | hostile_bodies())
@example(body=make_body([make_message(payload_length=2**32 - 1, user_headers_length=2**32 - 1)]))
@example(body=make_metadata(2**28) + bytes(64))
def test_inspect_when_body_is_hostile_then_twins_agree(extension, body):
    assert extension.inspect(exact(body)) == batch_python.inspect(body)


def test_inspect_when_body_is_cut_anywhere_then_twins_agree(extension):
    body = make_body([make_message(b"first", user_headers=b"headers"), make_message(b"second")])

    different = [
        size
        for size in range(len(body) + 1)
        if extension.inspect(exact(body[:size])) != batch_python.inspect(body[:size])
    ]

    assert different == []


@pytest.mark.parametrize("value", [0, 1, 64, 65, 2**31, 2**32 - 64, 2**32 - 1])
def test_inspect_when_any_word_is_replaced_then_twins_agree(extension, value):
    body = make_body([make_message(b"first", user_headers=b"headers"), make_message(b"second")])

    for at in range(len(body) - 3):
        changed = bytearray(body)
        struct.pack_into("<I", changed, at, value)
        assert extension.inspect(changed) == batch_python.inspect(changed), at


@given(messages=hostile_messages())
def test_reading_when_messages_are_hostile_then_twins_agree(extension, messages):
    memory = exact(messages)

    assert extension.measure(memory) == batch_python.measure(messages)
    assert extension.verify(memory) == batch_python.verify(messages)
    assert outcome(extension.payloads, memory) == outcome(batch_python.payloads, messages)
    assert outcome(read_views, extension, memory) == outcome(read_views, batch_python, messages)
    assert outcome(read_records, extension, memory) == outcome(read_records, batch_python, messages)


@given(messages=hostile_messages(), relative=TELLING_U32 | ODD_NUMBERS, position=TELLING_U32)
def test_index_entries_when_anything_is_hostile_then_twins_agree(
    extension, messages, relative, position
):
    assert outcome(extension.index_entries, exact(messages), relative, position) == outcome(
        batch_python.index_entries, messages, relative, position
    )


@given(
    messages=hostile_messages(),
    base_offset=ODD_NUMBERS,
    timestamp_us=ODD_NUMBERS,
    random=st.binary(max_size=100),
)
def test_stamp_when_anything_is_hostile_then_twins_agree_and_leave_the_same_bytes(
    extension, messages, base_offset, timestamp_us, random
):
    mine, other = exact(messages), bytearray(messages)

    assert outcome(extension.stamp, mine, base_offset, timestamp_us, exact(random)) == outcome(
        batch_python.stamp, other, base_offset, timestamp_us, random
    )
    assert bytes(mine) == other
