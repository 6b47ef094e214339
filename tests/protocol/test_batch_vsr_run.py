"""Runs of sends from 0.9 on that are taken as one batch, and the replies to them; both twins."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iggy_protocol import inspect_send
from iggy_protocol.batch_vsr import classic_send_body
from iggy_protocol.vsr.heads import REPLY_HEAD, REQUEST_HEAD, RequestHead, offset_of
from tests.protocol.batch_strategies import (
    TWINS,
    U64,
    damaged,
    exact,
    load_twin,
    make_metadata,
    outcome,
)
from tests.protocol.vsr_strategies import (
    CONTENT_LISTS,
    Content,
    frames_of,
    hostile_sends,
    make_frame,
    make_send,
)

FIRST = RequestHead(
    size=1000, client=bytes(range(16)), operation=160, session=7, number=10, incarnation=3
)
HEAD = FIRST.encode()
METADATA = make_metadata(1)[4:-4]
ELSEWHERE = make_metadata(1, partitioning=b"\x02\x04\x01\x00\x00\x00")
LIMIT = 1 << 14
PRODUCER = (1, 2, 3)


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


def frame(number, body, **fields):
    head = FIRST._replace(size=256 + len(body), number=number, **fields)
    return head.encode() + body


def send(*payloads, id_number=1, **batch):
    contents = [Content(payload, id_number, b"", 0) for payload in payloads]
    return make_send(frames_of(contents), **batch)


def messages_of(body):
    """Return the messages of a body in the classic form, as a server stores them one by one."""
    classic = classic_send_body(body).body
    return bytes(classic[inspect_send(classic).messages_at :])


def numbers_in(data, size):
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


def test_run_when_frames_follow_each_other_then_their_records_lie_together(twin):
    bodies = [send(b"a", b"bc"), send(b"", id_number=0), send(b"d" * 1000, origin_us=5)]
    data = bytearray(b"".join(map(frame, (11, 12, 20), bodies)))

    frames, consumed, count, missing, size, numbers, counts = twin.gather_vsr(
        data, HEAD, METADATA, 100
    )

    assert (frames, consumed, count, missing) == (3, len(data), 4, 1)
    assert data[:size] == b"".join(map(messages_of, bodies))
    assert numbers_in(numbers, 8) == [11, 12, 20]
    assert numbers_in(counts, 4) == [2, 1, 1]


@pytest.mark.parametrize(
    "other",
    [
        frame(13, send(b"z", metadata=ELSEWHERE)),
        frame(12, send(b"z")),
        frame(2, send(b"z")),
        frame(13, send(b"z"))[:-1],
        frame(13, send(b"z"))[:400],
        frame(13, send(b"z" * LIMIT)),
        frame(13, send()),
        frame(13, send(b"z", checksum=1)),
        frame(13, make_send([make_frame(b"z", checksum=1)])),
        frame(13, send(b"z", base_offset=1)),
        frame(13, send(b"z", producer=PRODUCER)),
        frame(13, send(b"z") + b"\0"),
        frame(13, send(b"z", metadata=make_metadata(2))),
        frame(13, send(b"z", metadata=make_metadata(1, surplus=b"\0"))),
        frame(13, send(*[b""] * 200)),
        frame(13, send(b"z"), client=bytes(16)),
        frame(13, send(b"z"), session=8),
        frame(13, send(b"z"), operation=161),
        frame(13, send(b"z"), command=6),
        frame(13, send(b"z"), identifier=b"\1" + bytes(15)),
        frame(13, send(b"z"), timestamp=1),
        frame(13, send(b"z"), code=101),
        frame(13, send(b"z"), incarnation=4),
        frame(13, send(b"z"), owner_generation=1),
        frame(13, send(b"z"), metadata_position=1),
        frame(13, send(b"z"), cluster=b"\1" + bytes(15)),
        frame(13, send(b"z"), view=1),
        frame(13, send(b"z"), reserved=bytes(65) + b"\1"),
        frame(13, send(b"z"), reserved_end=bytes(31) + b"\1"),
        frame(13, b""),
        b"\0" * 700,
        b"\xff" * 700,
        b"\1",
        b"",
    ],
)
def test_run_when_something_else_comes_then_stops_before_it_and_leaves_it(twin, other):
    bodies = [send(b"a"), send(b"b")]
    good = b"".join(map(frame, (11, 12), bodies))
    data = bytearray(good + other)

    frames, consumed, _, _, size, numbers, counts = twin.gather_vsr(data, HEAD, METADATA, 100)

    assert (frames, consumed, len(numbers), len(counts)) == (2, len(good), 16, 8)
    assert data[:size] == b"".join(map(messages_of, bodies))
    assert data[consumed:] == other


def test_run_when_checksums_of_heads_differ_then_goes_on_because_nobody_compares_them(twin):
    data = bytearray(frame(11, send(b"a"), checksum=b"\1" * 16, checksum_body=b"\2" * 16))

    assert twin.gather_vsr(data, HEAD, METADATA, 100)[0] == 1


def test_run_when_records_need_more_room_than_is_before_them_then_stops(twin):
    """A record is longer than its frame; the heads of the frames so far make up for it."""
    metadata_end = 4 + len(METADATA) + 4
    room = (256 + metadata_end + 256) // 16
    for count, before in ((room, []), (room + 1, [frame(11, send(b"a"))])):
        data = bytearray(b"".join([*before, frame(12, send(*[b""] * count))]))
        assert twin.gather_vsr(data, HEAD, METADATA, 100)[0] == 1 + len(before)
    data = bytearray(frame(12, send(*[b""] * (room + 1))))
    unchanged = bytes(data)
    assert twin.gather_vsr(data, HEAD, METADATA, 100)[:5] == (0, 0, 0, 0, 0)
    assert data == unchanged


def test_run_when_enough_frames_are_taken_then_stops(twin):
    data = bytearray(b"".join(frame(number, send(b"a")) for number in range(11, 16)))

    assert twin.gather_vsr(data, HEAD, METADATA, 2)[:3] == (2, 2 * len(data) // 5, 2)
    assert twin.gather_vsr(data, HEAD, METADATA, 0)[:3] == (0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((b"", HEAD, METADATA, 1), BufferError),
        ((bytearray(), HEAD[:-1], METADATA, 1), ValueError),
        ((bytearray(), HEAD, METADATA, -1), OverflowError),
        ((bytearray(), HEAD, METADATA, 2**64), OverflowError),
        ((bytearray(), HEAD, METADATA, "1"), TypeError),
        ((bytearray(), HEAD, "metadata", 1), TypeError),
        ((bytearray(), 5, METADATA, 1), TypeError),
        ((None, HEAD, METADATA, 1), TypeError),
    ],
)
def test_run_when_an_argument_is_wrong_then_refused(twin, arguments, error):
    with pytest.raises(error):
        twin.gather_vsr(*arguments)


NUMBERS = st.integers(11, 2**64 - 1)


@given(
    contents=st.lists(CONTENT_LISTS, min_size=1, max_size=5),
    numbers=st.sets(NUMBERS, min_size=5, max_size=5).map(sorted),
    origin_us=st.integers(0, 2**63),
)
def test_run_when_all_are_good_then_equals_the_frames_one_by_one(contents, numbers, origin_us):
    bodies = [
        make_send(frames_of(content), metadata=make_metadata(len(content)), origin_us=origin_us)
        for content in contents
    ]
    frames = list(map(frame, numbers, bodies))
    for name in TWINS:
        data = bytearray(b"".join(frames))
        taken, consumed, count, missing, size, own, counts = load_twin(name).gather_vsr(
            data, HEAD, METADATA, 100
        )
        assert taken == len(frames)
        assert consumed == len(data)
        assert data[:size] == b"".join(map(messages_of, bodies))
        assert numbers_in(own, 8) == numbers[:taken]
        assert numbers_in(counts, 4) == list(map(len, contents))
        assert count == sum(map(len, contents))
        assert missing == sum(not one.id_number for content in contents for one in content)


pieces = st.one_of(
    st.tuples(st.integers(9, 14), CONTENT_LISTS).map(
        lambda pair: frame(pair[0], make_send(frames_of(pair[1])))
    ),
    st.tuples(st.integers(9, 14), hostile_sends()).map(lambda pair: frame(*pair)),
    st.integers(9, 14)
    .map(lambda number: frame(number, send(b"abc")))
    .flatmap(lambda whole: damaged(whole)),
    st.integers(25, 40).map(lambda count: frame(14, send(*[b""] * count))),
    st.binary(max_size=30),
)


@given(st.lists(pieces, max_size=6).map(b"".join), st.integers(0, 10))
@example(frame(11, send(b"a")) + frame(12, send(b"b", metadata=make_metadata(2**32 - 1))), 5)
def test_twins_when_given_anything_then_agree_on_every_byte(data, frames_max):
    outcomes = []
    for name in TWINS:
        copy = exact(data)
        result = load_twin(name).gather_vsr(memoryview(copy), HEAD, METADATA, frames_max)
        outcomes.append((result, bytes(copy)[: result[4]], bytes(copy)[result[1] :]))

    assert all(outcome == outcomes[0] for outcome in outcomes)


# Replies


@given(
    first=st.binary(min_size=280, max_size=280),
    run=st.lists(st.tuples(U64, st.integers(0, 2**32 - 1)), max_size=5),
)
def test_confirmations_when_written_then_each_has_its_number_and_the_next_offset(first, run):
    numbers = b"".join(struct.pack("<Q", number) for number, _ in run)
    counts = b"".join(struct.pack("<I", count) for _, count in run)
    offset = int.from_bytes(first[272:], "little")
    wanted = b""
    for number, count in run:
        wanted += first[:200] + struct.pack("<Q", number) + first[208:272]
        wanted += struct.pack("<Q", offset)
        offset = (offset + count) % 2**64

    for name in TWINS:
        assert load_twin(name).confirmations(exact(first), exact(numbers), exact(counts)) == wanted


@given(st.sampled_from([0, 279, 280, 281]), st.integers(0, 17), st.integers(0, 9))
def test_confirmations_when_sizes_do_not_fit_then_twins_say_the_same(first, numbers, counts):
    arguments = bytes(first), bytes(numbers), bytes(counts)
    ours, theirs = (outcome(load_twin(name).confirmations, *arguments) for name in TWINS)

    assert ours == theirs
    is_right = first == 280 and numbers % 8 == 0 and 2 * counts == numbers
    assert ours[0] == ("returned" if is_right else "raised")


@pytest.mark.parametrize(
    "arguments", [(None, b"", b""), (bytes(280), None, b""), (bytes(280), b"", None)]
)
def test_confirmations_when_an_argument_is_no_buffer_then_type_error(twin, arguments):
    with pytest.raises(TypeError):
        twin.confirmations(*arguments)


def test_positions_when_compared_with_the_layouts_then_are_those_of_the_fields():
    """Both implementations have numbers where ``heads`` has names."""
    places = [
        (name, offset_of(REQUEST_HEAD, name))
        for name in ("cluster", "size", "view", "identifier", "timestamp", "number", "operation")
    ]

    assert [at for _, at in places] == [32, 48, 52, 144, 160, 168, 176]
    assert offset_of(REPLY_HEAD, "number") == 200
