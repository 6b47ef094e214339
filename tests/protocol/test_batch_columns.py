"""Messages as columns: the same values as the views show, from both implementations."""

from __future__ import annotations

import mmap
import struct
import threading
from array import array
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iggy_protocol import (
    HeaderKey,
    HeaderKind,
    HeaderValue,
    LocalProtocolError,
    MessageBatch,
    RemoteProtocolError,
    batch_python,
    decode_user_headers,
    encode_user_headers,
)
from tests.protocol.batch_strategies import (
    TELLING_U32,
    TWINS,
    exact,
    hostile_messages,
    load_twin,
    make_message,
    outcome,
)

HALVES = st.one_of(
    st.text(min_size=1, max_size=20).map(HeaderValue.string),
    st.binary(min_size=1, max_size=20).map(HeaderValue.raw_bytes),
    st.booleans().map(HeaderValue.boolean),
    st.integers(-(2**31), 2**31 - 1).map(HeaderValue.int32),
    st.integers(0, 2**128 - 1).map(HeaderValue.uint128),
    st.floats(allow_nan=False).map(HeaderValue.float64),
)
BLOCKS = st.dictionaries(
    st.text(min_size=1, max_size=8).map(HeaderKey.string), HALVES, max_size=4
).map(encode_user_headers)


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


def numbers(column: bytearray | None) -> list[int]:
    return list(array("Q", bytes(column or b"")))


def values(bounds: bytearray | None, column: bytearray | None) -> list[bytes]:
    """Cut a variable column into its values."""
    assert bounds is not None
    assert column is not None
    return [bytes(column[start:end]) for start, end in pairwise(array("i", bytes(bounds)))]


@given(messages=st.lists(st.tuples(st.binary(max_size=80), BLOCKS), max_size=8))
def test_columns_when_copied_then_show_what_the_views_show(messages):
    batch = MessageBatch(
        b"".join(
            make_message(
                payload,
                user_headers=block,
                offset=7 + index,
                id_number=2**127 + index,
                timestamp_us=index * 3,
                origin_us=index * 5,
                checksum=2**64 - 1 - index,
            )
            for index, (payload, block) in enumerate(messages)
        )
    )

    columns = batch.columns()

    views = list(batch)
    assert numbers(columns.offsets) == [view.offset for view in views]
    assert numbers(columns.timestamps_us) == [view.timestamp_us for view in views]
    assert numbers(columns.origin_timestamps_us) == [view.origin_timestamp_us for view in views]
    assert numbers(columns.checksums) == [view.checksum for view in views]
    assert columns.ids == b"".join(view.id.to_bytes(16, "little") for view in views)
    assert values(columns.payload_bounds, columns.payloads) == [view.payload for view in views]
    assert values(columns.user_header_bounds, columns.user_headers) == [
        view.user_headers for view in views
    ]


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (False, False)])
def test_columns_when_some_are_not_wanted_then_only_those_are_missing(wanted):
    batch = MessageBatch(make_message(b"payload", user_headers=b"block", offset=3))
    payloads, user_headers = wanted

    columns = batch.columns(payloads=payloads, user_headers=user_headers)

    assert numbers(columns.offsets) == [3]
    assert columns.payloads == (b"payload" if payloads else None)
    assert (columns.payload_bounds is None) is not payloads
    assert columns.user_headers == (b"block" if user_headers else None)
    assert (columns.user_header_bounds is None) is not user_headers


@given(messages=hostile_messages(), payloads=st.booleans(), user_headers=st.booleans())
def test_columns_when_messages_are_hostile_then_twins_agree(messages, payloads, user_headers):
    extension = load_twin("c")

    assert outcome(extension.columns, exact(messages), payloads, user_headers) == outcome(
        batch_python.columns, messages, payloads, user_headers
    )


@pytest.mark.parametrize("arguments", [(), (b"",), (b"", True), (b"", True, True, True), (1, 1, 1)])
def test_columns_when_arguments_are_wrong_then_refuses(twin, arguments):
    with pytest.raises(TypeError):
        twin.columns(*arguments)


@pytest.mark.parametrize("field", [48, 52])
def test_columns_when_bytes_exceed_a_bound_then_refuses_before_they_are_copied(twin, field):
    # Untouched pages of an anonymous map cost nothing.
    with mmap.mmap(-1, 2**31 + 64) as memory:
        struct.pack_into("<I", memory, field, 2**31)
        with pytest.raises(ValueError, match="do not fit into one column: 2147483648 of them"):
            twin.columns(memory, True, True)


def test_columns_when_bytes_exceed_a_bound_then_the_module_raises_its_own_error():
    with mmap.mmap(-1, 2**31 + 64) as memory:
        struct.pack_into("<I", memory, 52, 2**31)
        batch = MessageBatch(memory)  # type: ignore[arg-type]  # any buffer will do

        with pytest.raises(LocalProtocolError, match="do not fit into one column"):
            batch.columns()

        assert numbers(batch.columns(payloads=False).offsets) == [0]


def test_columns_when_bytes_change_meanwhile_then_nothing_is_read_beyond_the_end():
    """A thread rewrites lengths while another copies: the answer is columns or ValueError."""
    extension = load_twin("c")
    # Above this size the interpreter lock is released, so the two really run side by side.
    memory = bytearray(b"".join(make_message(bytes(1000), offset=at) for at in range(1200)))
    done = threading.Event()

    def rewrite() -> None:
        lengths = (1000, 0, 5_000, 2**32 - 1)
        turn = 0
        while not done.is_set():
            struct.pack_into("<I", memory, 52 + 1064 * 600, lengths[turn % len(lengths)])
            turn += 1

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        outcomes = {outcome(extension.columns, memory, True, True)[0] for _ in range(200)}
    finally:
        done.set()
        writer.join()

    assert outcomes <= {"returned", "raised"}


@given(blocks=st.lists(BLOCKS | st.binary(max_size=30), max_size=6))
def test_header_columns_when_split_then_show_what_decoding_shows(blocks):
    batch = MessageBatch(b"".join(make_message(user_headers=block) for block in blocks))
    messages = batch.columns(payloads=False)

    columns = messages.split_user_headers()

    keys = values(columns.key_bounds, columns.keys)
    found = values(columns.value_bounds, columns.values)
    bounds = array("i", bytes(columns.pair_bounds))
    for index, (block, (start, end)) in enumerate(zip(blocks, pairwise(bounds), strict=True)):
        try:
            expected = decode_user_headers(block)
        except RemoteProtocolError:
            assert (columns.readable[index], start) == (0, end)
            continue
        pairs = {
            HeaderKey(HeaderKind(columns.key_kinds[at]), keys[at]): HeaderValue(
                HeaderKind(columns.value_kinds[at]), found[at]
            )
            for at in range(start, end)
        }
        assert (columns.readable[index], pairs) == (1, expected)


@given(
    blocks=st.binary(max_size=120) | st.lists(BLOCKS, max_size=3).map(b"".join),
    bounds=st.lists(st.integers(-2, 130) | TELLING_U32.map(lambda u32: u32 - 2**31), max_size=5),
    tail=st.sampled_from([b"", b"", b"\x00"]),
)
@example(blocks=b"", bounds=[], tail=b"")
@example(blocks=b"abc", bounds=[0, 2, 1], tail=b"")
@example(blocks=encode_user_headers({"a": 1, "b": "x"}), bounds=[0, 33], tail=b"")
def test_header_pairs_when_anything_is_hostile_then_twins_agree(blocks, bounds, tail):
    extension = load_twin("c")
    raw = array("i", bounds).tobytes() + tail

    assert outcome(extension.header_pairs, exact(raw), exact(blocks)) == outcome(
        batch_python.header_pairs, raw, blocks
    )


@pytest.mark.parametrize("cut", range(1, 26))
def test_header_pairs_when_a_block_is_cut_anywhere_then_it_has_no_pairs(twin, cut):
    block = encode_user_headers({"k": 5, "text": "t"})[:cut]
    whole = encode_user_headers({"k": 5})
    bounds = array("i", [0, cut, cut + len(whole)]).tobytes()

    pair_bounds, readable, *_ = twin.header_pairs(bounds, block + whole)

    is_whole = block == whole
    assert list(readable) == [is_whole, True]
    assert list(array("i", bytes(pair_bounds))) == [0, int(is_whole), int(is_whole) + 1]


@pytest.mark.parametrize("bounds", [b"", b"\x00", bytes(6), struct.pack("=ii", 0, 9)])
def test_header_columns_when_bounds_are_wrong_then_refuses(bounds):
    columns = (
        MessageBatch(b"")
        .columns()
        ._replace(user_header_bounds=bytearray(bounds), user_headers=bytearray(b"12345678"))
    )

    with pytest.raises(LocalProtocolError, match="bounds"):
        columns.split_user_headers()


def test_header_columns_when_user_headers_were_not_wanted_then_refuses():
    columns = MessageBatch(make_message()).columns(user_headers=False)

    with pytest.raises(LocalProtocolError, match="bounds"):
        columns.split_user_headers()


@pytest.mark.parametrize("arguments", [(), (b"",), (bytes(4), 1), (1, b""), (b"", b"", b"")])
def test_header_pairs_when_arguments_are_wrong_then_refuses(twin, arguments):
    with pytest.raises(TypeError):
        twin.header_pairs(*arguments)
