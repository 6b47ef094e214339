"""Who holds which memory for how long: exports, cycles, leaks and threads; over both twins."""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import threading
import tracemalloc
import weakref

import pytest

from iggy_protocol.message_view import NewMessage
from tests.protocol.batch_strategies import TWINS, load_twin, make_body, make_message
from tests.protocol.vsr_strategies import make_frame, make_send

PAIR = make_message(b"first", user_headers=b"headers") + make_message(b"second")


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


def attempt(function, *arguments):
    try:
        return function(*arguments)
    except (TypeError, ValueError, OverflowError, BufferError):
        return None


def first_view(twin, buffer):
    return next(iter(twin.walk(buffer)))


def read(twin, buffer):
    return twin.reading(buffer, twin.MessageRecord, None, True, [None, None])


HOLDERS = {
    "walk": lambda twin, buffer: twin.walk(buffer),
    "view": first_view,
    "payload": lambda twin, buffer: first_view(twin, buffer).payload,
    "user headers": lambda twin, buffer: first_view(twin, buffer).user_headers,
    "reading": lambda twin, buffer: read(twin, buffer),
    "records": lambda twin, buffer: list(read(twin, buffer)),
    "record": lambda twin, buffer: twin.MessageRecord(first_view(twin, buffer)),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_bytearray_when_something_looks_at_it_then_cannot_be_resized(twin, holder):
    buffer = bytearray(PAIR)
    held = HOLDERS[holder](twin, buffer)

    with pytest.raises(BufferError):
        buffer.append(0)

    del held
    buffer.append(0)


def test_memoryview_when_its_owner_releases_it_then_views_go_on(twin):
    buffer = bytearray(PAIR)
    source = memoryview(buffer)
    view = first_view(twin, source)

    attempt(source.release)

    assert bytes(view.payload) == b"first"
    with pytest.raises(BufferError):
        buffer.append(0)
    del view
    source.release()
    buffer.append(0)


def test_memoryview_when_in_a_cycle_with_its_views_then_can_be_collected(twin):
    def keep_an_error_in_its_own_frame():
        held = [first_view(twin, memoryview(PAIR))]
        try:
            raise ValueError
        except ValueError as error:
            held.append(error)

    for _ in range(20):
        keep_an_error_in_its_own_frame()
        gc.collect(0)  # what was made just now; a whole collection takes a second in a long run


CALLS = {
    "checksum": lambda twin, buffer: twin.checksum(buffer),
    "classic records": lambda twin, buffer: twin.classic_records(buffer, True, True),
    "classic send": lambda twin, buffer: twin.classic_send(buffer, True),
    "encode batch": lambda twin, buffer: twin.encode_vsr(buffer, [buffer], 0, 0, buffer, None),
    "encode batch, bad": lambda twin, buffer: twin.encode_vsr(buffer, [7], 0, 0, buffer, None),
    "batches": lambda twin, buffer: twin.vsr_batches(buffer, 0, 2**63, False),
    "batches, damaged": lambda twin, buffer: twin.vsr_batches(buffer, 0, 2**63, True),
    "encode metadata": lambda twin, buffer: twin.encode(buffer, [b"x"], 0, 0),
    "encode metadata, bad": lambda twin, buffer: twin.encode(buffer, [7], 0, 0),
    "encode payload": lambda twin, buffer: twin.encode(b"", [buffer], 0, 0),
    "encode payload, bad": lambda twin, buffer: twin.encode(b"", [buffer, 7], 0, 0),
    "encode headers": lambda twin, buffer: twin.encode(b"", [(b"", 0, buffer, None)], 0, 0),
    "index entries": lambda twin, buffer: twin.index_entries(buffer, 0, 0),
    "index entries, bad": lambda twin, buffer: twin.index_entries(buffer, 2**32, 0),
    "inspect": lambda twin, buffer: twin.inspect(buffer),
    "measure": lambda twin, buffer: twin.measure(buffer),
    "payloads": lambda twin, buffer: twin.payloads(buffer),
    "reading": lambda twin, buffer: list(read(twin, buffer)),
    "reading, bad": lambda twin, buffer: twin.reading(buffer, bytes, None, True, []),
    "reading, no list": lambda twin, buffer: twin.reading(buffer, bytes, None, True, None),
    "stamp messages": lambda twin, buffer: twin.stamp(buffer, 0, 0, b""),
    "stamp messages, bad": lambda twin, buffer: twin.stamp(buffer, 2**64 - 1, 0, b""),
    "stamp random": lambda twin, buffer: twin.stamp(bytearray(), 0, 0, buffer),
    "stamp random, bad": lambda twin, buffer: twin.stamp(b"read-only", 0, 0, buffer),
    "verify": lambda twin, buffer: twin.verify(buffer),
}


@pytest.mark.parametrize("call", CALLS)
def test_function_when_it_returns_or_fails_then_lets_go_of_the_buffer(twin, call):
    buffer = bytearray(PAIR)

    attempt(CALLS[call], twin, buffer)

    buffer.append(0)


def test_walk_when_exhausted_then_lets_go_of_the_buffer(twin):
    buffer = bytearray(PAIR)
    views = twin.walk(buffer)
    assert len(list(views)) == 2

    buffer.append(0)

    assert list(views) == []


def test_walk_when_it_failed_then_lets_go_of_the_buffer(twin):
    buffer = bytearray(PAIR[:-1])
    views = twin.walk(buffer)
    next(views)
    with pytest.raises(ValueError):
        next(views)

    buffer.append(0)


def test_reading_when_exhausted_or_failed_then_lets_go_of_the_buffer(twin):
    for messages in (PAIR, PAIR[:-1]):
        buffer, kept = bytearray(messages), [None, None]
        reading = twin.reading(buffer, twin.MessageRecord, None, True, kept)
        attempt(list, reading)
        kept.clear()

        buffer.append(0)

        assert list(reading) == []


def test_view_when_its_buffer_changes_then_shows_the_change_within_old_bounds(twin):
    buffer = bytearray(PAIR)
    view = first_view(twin, buffer)
    payload = view.payload

    twin.stamp(buffer, 41, 42, b"")
    buffer[48:56] = b"\xff" * 8
    buffer[64:69] = b"FIRST"

    assert (view.offset, view.timestamp_us, view.size) == (41, 42, 76)
    assert bytes(payload) == bytes(view.payload) == b"FIRST"
    assert bytes(view.user_headers) == b"headers"


def test_view_when_written_through_then_is_read_only(twin):
    view = first_view(twin, bytearray(PAIR))

    assert view.payload.readonly
    assert view.user_headers.readonly
    with pytest.raises(TypeError):
        view.payload[0] = 1
    with pytest.raises(AttributeError):
        view.offset = 1
    with pytest.raises(AttributeError):
        view.anything = 1


def test_view_when_made_by_hand_or_inherited_from_then_is_refused(twin):
    with pytest.raises(TypeError):
        twin.MessageView()
    with pytest.raises(TypeError):
        type("Child", (twin.MessageView,), {})


class Chunk(bytearray):
    """A buffer that can hold its own views."""

    views: object = None


@pytest.mark.parametrize("holder", HOLDERS)
def test_cycle_when_a_buffer_holds_its_views_then_is_collected(twin, holder):
    chunk = Chunk(PAIR)
    chunk.views = HOLDERS[holder](twin, chunk)
    gone = weakref.ref(chunk)

    del chunk
    gc.collect()

    assert gone() is None


def test_collector_when_buffer_is_plain_then_does_not_trace_views(twin):
    view = first_view(twin, bytearray(PAIR))

    gc.collect()

    assert bytes(view.payload) == b"first"
    assert gc.is_tracked(view) == (twin.__name__ == "iggy_protocol.batch_python")


def test_view_when_a_finalizer_ends_its_walk_meanwhile_then_stays_readable(twin):
    class EndsTheWalk:
        def __init__(self):
            self.itself = self

        def __del__(self):
            attempt(list, walk)

    threshold = gc.get_threshold()
    gc.collect()
    gc.disable()
    gc.set_threshold(1)
    try:
        EndsTheWalk()
        walk = twin.walk(bytearray(PAIR))
        gc.enable()
        view = next(walk)  # making the view collects the garbage above
    finally:
        gc.set_threshold(*threshold)
        gc.enable()

    assert bytes(view.payload) == b"first"
    assert view.size == 76


def test_views_when_nested_without_end_then_are_freed_without_recursion():
    extension = load_twin("c")
    depth = 200_000
    buffer = bytearray(64 * depth)
    for inner in range(depth):
        at = 64 * (depth - 1 - inner)
        struct.pack_into("<I", buffer, at + 52, 64 * inner)

    payload = memoryview(buffer)
    for _ in range(depth):
        payload = first_view(extension, payload).payload
    assert len(payload) == 0
    del payload

    buffer.append(0)


def test_functions_when_a_buffer_has_no_address_then_take_it_as_empty(twin):
    nowhere = (ctypes.c_char * 0).from_address(0)

    assert twin.checksum(nowhere) == twin.checksum(b"")
    assert twin.encode(nowhere, [nowhere, (nowhere, 1, nowhere, None)], 2, 3) == twin.encode(
        b"", [b"", NewMessage(b"", 1)], 2, 3
    )
    assert twin.index_entries(nowhere, 0, 0) == b""
    assert twin.inspect(nowhere) == twin.inspect(b"")
    assert twin.measure(nowhere) == (0, 0, 0)
    assert list(twin.reading(nowhere, twin.MessageRecord, None, True, [])) == []
    assert twin.payloads(nowhere) == []
    assert twin.stamp(nowhere, 0, 0, nowhere) == 0
    assert twin.verify(nowhere) == -1
    assert list(twin.walk(nowhere)) == []


def read_records(twin, data, kind):
    """Make records, read all of them, and leave something behind in them."""
    for record in twin.reading(data, kind, data, True, [None, None]):
        again = twin.MessageRecord(record, 1, two=2)
        again._value = record
        again._opened = record.payload + record.raw_user_headers + again.payload


VSR_SEND = make_send([make_frame(b"payload")], producer=(1, 2, 3))


def everything(twin, buffer):
    """Call every function, on its good ways and its bad ones."""
    items = [b"plain", bytearray(b"array"), NewMessage(b"named", 1 << 100, b"headers", 5)]
    for messages in (
        [b"plain"] * 3,
        items,
        [*items, 7],
        [b"x", (b"x", -1, b"", None)],
        7,
        [(b"x",)],
    ):
        attempt(twin.encode, b"metadata", messages, 1, 8)
        attempt(twin.encode_vsr, b"metadata", messages, 1, 8, bytes(48), (1, 2, 3))
        attempt(twin.encode_vsr, b"metadata", messages, 1, 8, b"", "")
    for data in (make_body([PAIR[:76], PAIR[76:]]), PAIR, PAIR[:-1], memoryview(buffer), 7, None):
        for name in ("inspect", "measure", "verify", "payloads", "checksum"):
            attempt(getattr(twin, name), data)
        attempt(twin.index_entries, data, 1, 1)
        attempt(twin.index_entries, data, 2**32, 1)
        attempt(twin.index_entries, data, "", 1)
        attempt(twin.stamp, data, 1, 2, b"")
        for verify in (True, False):
            attempt(twin.vsr_batches, data, 1, 2**63, verify)
            attempt(twin.vsr_batches, data, "", 0, verify)
        for kind in (twin.MessageRecord, bytes, 7):
            attempt(read_records, twin, data, kind)
        attempt(
            lambda data=data: [(repr(v), v.payload, v.user_headers, v.id) for v in twin.walk(data)]
        )
    for data in (VSR_SEND, VSR_SEND[:-1], VSR_SEND[:-1] + b"?", buffer, 7, None):
        attempt(twin.classic_send, data, True)
        attempt(twin.classic_records, data, True, True)
    attempt(twin.classic_records, VSR_SEND[20:], True, True)
    attempt(twin.stamp, buffer, 1, 2, None)
    attempt(twin.allocate, 1000)
    attempt(twin.allocate, -1)


def test_functions_when_called_often_then_leak_nothing(twin):
    buffer = bytearray(PAIR)
    watched = (buffer, PAIR, twin.MessageView, twin.MessageRecord)
    for _ in range(3):
        everything(twin, buffer)
    gc.collect()
    references = [sys.getrefcount(value) for value in watched]
    tracemalloc.start()
    try:
        everything(twin, buffer)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(50):
            everything(twin, buffer)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < 2000
    grown = [sys.getrefcount(value) - old for value, old in zip(watched, references, strict=True)]
    assert max(grown) < 20


def test_threads_when_one_scribbles_over_lengths_then_the_other_stays_in_bounds(twin):
    messages = make_message(bytes(1000)) * 1200
    buffer = bytearray(messages)
    finished = threading.Event()

    def scribble():
        view = memoryview(buffer)
        while not finished.is_set():
            for at in range(0, len(view) - 1064, 1064 * 7):
                view[at + 48 : at + 56] = b"\xff" * 8
                view[at + 48 : at + 56] = b"\x00\x00\x00\x00\xe8\x03\x00\x00"

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        outcomes = {
            kind
            for _ in range(10)
            for kind in (
                type(attempt(twin.stamp, buffer, 1, 2, b"")),
                type(attempt(twin.verify, buffer)),
            )
        }
    finally:
        finished.set()
        writer.join()

    assert outcomes <= {int, type(None)}
