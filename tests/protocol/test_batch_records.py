"""Records: messages with room for what a reader remembers, in classes of the reader; both twins."""

from __future__ import annotations

import gc
import itertools
import weakref
from contextlib import suppress
from types import new_class
from typing import Any, Generic, TypeVar

import pytest

from tests.protocol.batch_strategies import TWINS, load_twin, make_message

T = TypeVar("T")

PLAIN = make_message(b"plain", id_number=7, offset=3)
HEADED = make_message(b"headed", user_headers=b"headers", id_number=8, offset=4)
PAIR = PLAIN + HEADED
SOURCE = object()


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


class Typed(Generic[T]):
    """What makes a class of messages one of messages with some value."""

    __slots__ = ()


def records(twin, messages, kind, source, opens_plain):
    """Make records of all messages."""
    return list(twin.reading(messages, kind, source, opens_plain, [None] * 1_000))


def derived(twin, *others, **methods):
    """Derive a class from the record of a twin."""
    body = {"__slots__": (), **methods}
    return new_class(
        "ReaderRecord", (twin.MessageRecord, *others), exec_body=lambda it: it.update(body)
    )


@pytest.fixture(scope="module")
def record_class(twin):
    """A reader's own class of messages."""

    def init(self, view, source):
        self._source = source

    return derived(twin, Typed, __init__=init, _read_payload=lambda self: b"read by the reader")


def test_records_when_made_then_are_of_the_class_and_know_their_source(twin, record_class):
    made = records(twin, PAIR, record_class, SOURCE, True)

    assert [type(record) for record in made] == [record_class, record_class]
    assert [record._source for record in made] == [SOURCE, SOURCE]
    assert [record.offset for record in made] == [3, 4]
    assert [record.id for record in made] == [7, 8]
    assert [record.size for record in made] == [len(PLAIN), len(HEADED)]
    assert [record._opened for record in made] == [None, None]
    assert [record._value for record in made] == [None, None]


def test_payload_when_not_plain_then_is_what_the_reader_makes_of_it(twin, record_class):
    plain, headed = records(twin, PAIR, record_class, SOURCE, True)

    assert (plain._is_plain, headed._is_plain) == (True, False)
    assert (plain.payload, headed.payload) == (b"plain", b"read by the reader")
    assert (plain.raw_payload, headed.raw_payload) == (b"plain", b"headed")
    assert (plain.raw_user_headers, headed.raw_user_headers) == (b"", b"headers")


def test_payload_when_the_source_opens_nothing_plain_then_is_read_by_the_reader(twin, record_class):
    sealed = records(twin, PLAIN, record_class, SOURCE, False)[0]

    assert not sealed._is_plain
    assert sealed.payload == b"read by the reader"


def test_payload_when_the_class_reads_nothing_then_is_as_it_came(twin):
    (record,) = records(twin, HEADED, twin.MessageRecord, SOURCE, True)

    assert record.payload == b"headed"


def test_payload_when_reading_fails_then_raises(twin):
    def fail(self):
        raise LookupError("no key")

    (record,) = records(twin, HEADED, derived(twin, _read_payload=fail), SOURCE, True)

    with pytest.raises(LookupError, match="no key"):
        _ = record.payload


def test_records_when_remembering_then_keep_it(twin, record_class):
    first, second = records(twin, PAIR, record_class, SOURCE, True)

    first._value, first._opened = "value", ("opened",)

    assert (first._value, first._opened) == ("value", ("opened",))
    assert (second._value, second._opened) == (None, None)


def test_reading_when_no_record_is_kept_then_all_are_read_right(twin, record_class):
    messages = [make_message(b"%d" % number, offset=number) for number in range(100)]
    kept: list[Any] = [None] * 100

    reading = twin.reading(b"".join(messages), record_class, SOURCE, True, kept)
    seen = [(record.offset, record.payload, record._source, record.size) for record in reading]

    assert seen == [(n, b"%d" % n, SOURCE, len(messages[n])) for n in range(100)]
    for offset, record in enumerate(kept):
        assert record is None or record.offset == offset


def test_reading_when_some_are_kept_then_they_stay_what_they_are(twin, record_class):
    messages = b"".join(make_message(b"%d" % number, offset=number) for number in range(100))
    kept: list[Any] = [None] * 100

    mine = {
        number: record
        for number, record in enumerate(twin.reading(messages, record_class, SOURCE, True, kept))
        if number % 7 in (0, 1)
    }

    assert [record.offset for record in mine.values()] == list(mine)
    again = list(twin.reading(messages, record_class, SOURCE, True, kept))
    assert [record.offset for record in again] == list(range(100))
    assert all(again[number] is record for number, record in mine.items())
    assert again == list(twin.reading(messages, record_class, SOURCE, True, kept)) == kept


@pytest.mark.parametrize("place", ["_opened", "_value"])
def test_reading_when_something_is_remembered_then_it_stays(twin, record_class, place):
    messages = b"".join(make_message(offset=number) for number in range(50))
    kept: list[Any] = [None] * 50
    for record in twin.reading(messages, record_class, SOURCE, True, kept):
        if record.offset % 3 == 0:
            setattr(record, place, f"of {record.offset}")

    found = [
        getattr(record, place)
        for record in twin.reading(messages, record_class, SOURCE, True, kept)
    ]

    assert found == [f"of {number}" if number % 3 == 0 else None for number in range(50)]


def test_reading_when_the_class_has_places_of_its_own_then_they_start_empty(twin):
    kind = derived(twin, __slots__=("extra",))
    for record in twin.reading(PLAIN * 10, kind, SOURCE, True, [None] * 10):
        assert not hasattr(record, "extra")
        record.extra = 1


def test_reading_when_two_read_at_the_same_time_then_see_the_same_records(twin, record_class):
    kept: list[Any] = [None] * 50
    messages = b"".join(make_message(offset=number) for number in range(50))

    one = twin.reading(messages, record_class, SOURCE, True, kept)
    other = twin.reading(messages, record_class, "other", True, kept)

    for number, (first, second) in enumerate(zip(one, other, strict=True)):
        assert first is second is kept[number]
        assert (first.offset, first._source) == (number, SOURCE)


def test_reading_when_there_are_too_few_places_then_says_so(twin, record_class):
    reading = twin.reading(PAIR, record_class, SOURCE, True, [None])

    assert next(reading).offset == 3
    with pytest.raises(ValueError, match="no place for message 1"):
        next(reading)


@pytest.mark.parametrize("kept", [None, (None, None), "ab"])
def test_reading_when_places_are_no_list_then_is_refused(twin, record_class, kept):
    with pytest.raises(TypeError, match="kept in a list"):
        twin.reading(PAIR, record_class, SOURCE, True, kept)


def test_reading_when_a_finalizer_reads_on_meanwhile_then_every_record_is_in_its_place(
    twin, record_class
):
    class ReadsOn:
        def __init__(self):
            self.itself = self

        def __del__(self):
            with suppress(ValueError):  # The twin in Python cannot be asked from inside itself.
                mine.extend(itertools.islice(reading, 2))

    messages = b"".join(make_message(offset=number) for number in range(60))
    kept: list[Any] = [None] * 60
    mine: list[Any] = []
    reading = twin.reading(messages, record_class, SOURCE, True, kept)
    threshold = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1)
    try:
        for record in reading:
            mine.append(record)
            ReadsOn()
    finally:
        gc.set_threshold(*threshold)

    assert sorted(record.offset for record in mine) == list(range(60))
    assert [record.offset for record in kept] == list(range(60))


def test_record_when_made_of_a_view_or_a_record_then_looks_at_the_same_message(twin, record_class):
    view = next(iter(twin.walk(HEADED)))

    record = record_class(view, SOURCE)
    again = record_class(record, source="another")

    for made in (record, again):
        assert (made.offset, made.raw_payload, made._is_plain) == (4, b"headed", False)
    assert (record._source, again._source) == (SOURCE, "another")
    record._opens_plain = True
    plain = record_class(next(iter(twin.walk(PLAIN))), SOURCE)
    plain._opens_plain = True
    assert (record._is_plain, plain._is_plain) == (False, True)


@pytest.mark.parametrize("arguments", [(), (None,), (PLAIN,)])
def test_record_when_made_of_anything_else_then_is_refused(twin, arguments):
    with pytest.raises(TypeError):
        twin.MessageRecord(*arguments)


@pytest.mark.parametrize("kind", [None, 7, bytes, "MessageView"])
def test_records_when_the_class_is_none_of_records_then_is_refused(twin, kind):
    kind = twin.MessageView if kind == "MessageView" else kind

    with pytest.raises(TypeError, match="a class of MessageRecord"):
        records(twin, PAIR, kind, SOURCE, True)


@pytest.mark.parametrize("size", [1, 63, 64, len(PLAIN) - 1])
def test_records_when_tail_is_cut_then_is_refused(twin, size):
    with pytest.raises(ValueError, match=f"the last {size} bytes are not a whole message"):
        records(twin, PAIR + PLAIN[:size], twin.MessageRecord, SOURCE, True)


def test_records_when_given_no_flat_buffer_then_are_refused(twin):
    with pytest.raises(TypeError):
        records(twin, None, twin.MessageRecord, SOURCE, True)
    with pytest.raises(BufferError):
        records(twin, memoryview(bytes(8))[::2], twin.MessageRecord, SOURCE, True)


def test_record_when_written_to_then_keeps_what_the_message_says(twin, record_class):
    (record,) = records(twin, PLAIN, record_class, SOURCE, True)

    for name in ("offset", "payload", "size", "id"):
        with pytest.raises(AttributeError):
            setattr(record, name, 1)
    with pytest.raises(AttributeError):
        record.anything = 1


class Source:
    """Something that can be part of a cycle and watched."""

    held: object = None


@pytest.mark.parametrize("place", ["_source", "_opened", "_value"])
def test_cycle_when_closed_through_a_record_then_is_collected(twin, record_class, place):
    source = Source()
    (record,) = records(twin, PLAIN, record_class, None, True)
    setattr(record, place, source)
    source.held = record
    gone = weakref.ref(source)

    del source, record
    gc.collect()

    assert gone() is None


def test_records_when_chained_without_end_then_are_freed_without_recursion(twin):
    chain: list[Any] = []
    for _ in range(100_000):
        (record,) = records(twin, PLAIN, twin.MessageRecord, None, True)
        record._value = chain.pop() if chain else None
        chain.append(record)
        del record

    assert chain.pop()._value.offset == 3


def test_records_when_the_collector_runs_meanwhile_then_are_all_there(twin, record_class):
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        made = records(twin, PLAIN * 100, record_class, SOURCE, True)
    finally:
        gc.set_threshold(*threshold)

    assert [record.payload for record in made] == [b"plain"] * 100
