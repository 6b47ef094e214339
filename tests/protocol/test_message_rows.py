"""Messages in columns, as producers use them: the same bytes as messages one by one."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from iggy_protocol import (
    BytesColumn,
    ContentIds,
    Dialect,
    HeaderPairs,
    HeaderValue,
    LocalProtocolError,
    MessageRows,
    NewMessage,
    Partitioning,
    SendMessages,
    encode_request,
    encode_user_headers,
    header_blocks,
    partition_for_key,
    row_partitions,
)
from tests.protocol.frame_oracle import joined
from tests.protocol.test_batch_rows import column, numbers

PAYLOADS = [b"one", b"", b"three"]
KEYS = [b"a", b"bc", b"d"]
IDS = bytes(range(1, 49))
ORIGIN_US = 1_763_596_800_000_000


def headers_of(key: bytes) -> bytes:
    return encode_user_headers({"iggy-key": HeaderValue.string(key.decode())})


def rows() -> MessageRows:
    return MessageRows(
        column(PAYLOADS),
        headers=header_blocks(3, keys=column(KEYS)),
        ids=IDS,
        origins_us=numbers([ORIGIN_US] * 3),
    )


def messages() -> list[NewMessage]:
    return [
        NewMessage(
            payload,
            id=int.from_bytes(IDS[16 * at : 16 * at + 16], "little"),
            user_headers=headers_of(KEYS[at]),
            origin_timestamp_us=ORIGIN_US,
        )
        for at, payload in enumerate(PAYLOADS)
    ]


def send(content: Any) -> SendMessages:
    place = Partitioning.partition(0)
    return SendMessages("s", "t", place, content, origin_timestamp_us=ORIGIN_US, random=bytes(48))


@pytest.mark.parametrize("dialect", Dialect)
def test_rows_when_sent_then_the_body_is_that_of_the_messages(dialect):
    body = joined(encode_request(send(rows()), dialect))

    assert body == joined(encode_request(send(messages()), dialect))


def test_rows_when_read_then_they_are_the_messages_in_columns():
    assert list(rows()) == messages()
    assert rows().columns[2] == IDS


def test_ids_when_assigned_then_contents_are_counted():
    ids = ContentIds(b"scope")

    ids.assign(column([b"a", b"b", b"a"]))

    assert ids.contents_count == 2


def test_partitions_when_chosen_by_key_then_are_those_of_producers():
    chosen = row_partitions(3, 7, keys=column(KEYS))

    assert list(memoryview(chosen).cast("I")) == [partition_for_key(key, 7) for key in KEYS]


def test_headers_when_bounds_lie_outside_of_the_pairs_then_are_refused():
    places = BytesColumn(1, 0, None, 4, struct.pack("=2i", 0, 5), b"")

    with pytest.raises(LocalProtocolError, match="lies outside"):
        header_blocks(1, pairs=HeaderPairs(places, column([b"a"]), 1, column([b"x"])))


def test_headers_when_a_value_has_no_name_then_are_refused():
    places = BytesColumn(1, 0, None, 4, struct.pack("=2i", 0, 1), b"")

    with pytest.raises(LocalProtocolError, match="row 4: a header has no key"):
        header_blocks(
            1,
            pairs=HeaderPairs(places, column([None]), 1, column([b"x"])),
            first_row=4,
        )
