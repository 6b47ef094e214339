"""Validation of SendMessages bodies, over both twins and against recordings."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.protocol.batch_strategies import (
    ENTRY,
    MESSAGE_LISTS,
    RAW_FILES,
    SEND_MESSAGES,
    TWINS,
    load_twin,
    make_body,
    make_message,
    make_metadata,
    recorded,
)

ABSENT = {1009, 2010, 3007}  # answered after the body was found good


@pytest.fixture(scope="module", params=TWINS)
def twin(request):
    return load_twin(request.param)


def sent_bodies(name):
    return [
        (number, entry["status"], payload)
        for number, entry, payload in recorded(name)
        if entry["code"] == SEND_MESSAGES and entry.get("status") is not None
    ]


GOOD = make_message(b"good", id_number=7)
OTHER = make_message(b"other", id_number=0)
PARTITIONING_AT, COUNT_AT = 10, 16

REFUSED = {
    "no bytes": (b"", 3, 0),
    "length cut": (b"\0\0\0", 3, 0),
    "metadata beyond the body": (make_metadata(1)[:-1], 3, 0),
    "metadata length huge": (b"\xff\xff\xff\xff" + bytes(90), 3, 0),
    "no metadata": (bytes(4), 6, 4),
    "stream without length": (b"\x01\0\0\0\x01" + bytes(80), 6, 4),
    "stream of unknown kind": (make_metadata(1, stream=b"\x03\x04\0\0\0\0"), 6, 4),
    "numeric stream of 3 bytes": (make_metadata(1, stream=b"\x01\x03\0\0\0"), 6, 4),
    "empty stream name": (make_metadata(1, stream=b"\x02\x00"), 6, 4),
    "stream name cut": (b"\x04\0\0\0\x02\x03ab" + bytes(80), 6, 4),
    "topic of kind 0": (make_metadata(1, topic=b"\x00\x00"), 6, 7),
    "partitioning absent": (make_metadata(1)[:10].replace(b"\x10", b"\x06", 1), 3, 10),
    "partitioning of kind 4": (make_metadata(1, partitioning=b"\x04\x00"), 3, PARTITIONING_AT),
    "balanced with a value": (make_metadata(1, partitioning=b"\x01\x01x"), 3, PARTITIONING_AT),
    "partition of 3 bytes": (make_metadata(1, partitioning=b"\x02\x03abc"), 3, PARTITIONING_AT),
    "count cut": (b"\x0f" + make_metadata(1)[1:], 3, COUNT_AT),
    "index table beyond the body": (make_metadata(1) + bytes(15), 3, COUNT_AT),
    "count huge": (make_metadata(2**32 - 1) + bytes(80), 3, COUNT_AT),
    "no messages": (make_metadata(0), 4009, COUNT_AT),
    "no messages but bytes": (make_body([GOOD], metadata=make_metadata(0)), 4009, COUNT_AT),
    "index offset": (make_body([GOOD], entries=ENTRY.pack(1, 68, 0)), 4031, 0),
    "index timestamp": (make_body([GOOD], entries=ENTRY.pack(0, 68, 1)), 4032, 0),
    "offset before timestamp": (make_body([GOOD], entries=ENTRY.pack(1, 0, 1)), 4031, 0),
    "index table and nothing else": (make_metadata(1) + bytes(16), 4033, 0),
    "63 bytes": (make_body([GOOD[:63]]), 4033, 0),
    "payload cut": (make_body([GOOD[:-1]]), 4033, 0),
    "first end too small": (make_body([GOOD, GOOD], ends=[67, 136]), 4033, 0),
    "first end too large": (make_body([GOOD, GOOD], ends=[69, 136]), 4033, 1),
    "first end beyond the body": (make_body([GOOD, GOOD], ends=[137, 136]), 4033, 0),
    "ends swapped": (make_body([GOOD, GOOD], ends=[136, 68]), 4033, 1),
    "ends fall inside": (make_body([GOOD] * 3, ends=[68, 63, 204]), 4033, 1),
    "lengths that overflow 32 bits": (
        make_body([make_message(payload_length=2**32 - 1, user_headers_length=2**32 - 1)]),
        4033,
        0,
    ),
    "last end falls": (make_body([GOOD, GOOD], ends=[68, 67]), 10011, 1),
    "offsets fall": (
        make_body([make_message(offset=5), make_message(offset=4)]),
        4100,
        1,
    ),
    "offsets fall and ends too": (
        make_body([make_message(offset=5), make_message(offset=4)], ends=[64, 0]),
        4100,
        1,
    ),
    "trailing byte": (make_body([GOOD]) + b"\0", 4036, 0),
    "payload longer than declared": (
        make_body([GOOD, make_message(b"abcd", payload_length=3), GOOD]),
        4036,
        1,
    ),
    "loose message before a bad one": (
        make_body([make_message(b"abcd", payload_length=3), GOOD[:-1]]),
        4033,
        1,
    ),
}


class TestInspect:
    def test_inspect_when_body_is_good_then_finds_its_parts(self, twin):
        body = make_body([GOOD, OTHER, OTHER])

        assert twin.inspect(body) == (0, 0, 3, 7, 10, 20, 68, 2)

    def test_inspect_when_metadata_has_surplus_then_ignores_it(self, twin):
        body = make_body([GOOD], metadata=make_metadata(1, surplus=b"more"))

        assert twin.inspect(body) == (0, 0, 1, 7, 10, 24, 40, 0)

    @pytest.mark.parametrize("end", [0, 67, 68, 69, 2**32 - 1])
    def test_inspect_when_last_end_is_anything_then_uses_the_real_end(self, twin, end):
        assert twin.inspect(make_body([GOOD], ends=[end]))[0] == 0

    @pytest.mark.parametrize(
        "metadata",
        [
            make_metadata(1, stream=b"\x01\x04\0\0\0\0", topic=b"\x01\x04\xff\xff\xff\xff"),
            make_metadata(1, stream=b"\x02\x02\xff\xfe"),
            make_metadata(1, stream=b"\x02\xff" + bytes(255), topic=b"\x02\xff" + bytes(255)),
            make_metadata(1, partitioning=b"\x01\x00"),
            make_metadata(1, partitioning=b"\x03\x00"),
            make_metadata(1, partitioning=b"\x03\xff" + bytes(255)),
        ],
    )
    def test_inspect_when_metadata_is_unusual_then_accepts(self, twin, metadata):
        assert twin.inspect(make_body([GOOD], metadata=metadata))[:3] == (0, 0, 1)

    @pytest.mark.parametrize("name", REFUSED)
    def test_inspect_when_body_is_bad_then_answers_as_the_server(self, twin, name):
        body, status, where = REFUSED[name]

        assert twin.inspect(body) == (status, where, 0, 0, 0, 0, 0, 0)

    def test_inspect_when_payload_is_too_large_then_refuses(self, twin):
        limit = make_body([make_message(bytes(64_000_000))])
        above = make_body([GOOD, make_message(bytes(64_000_001))])

        assert twin.inspect(limit)[0] == 0
        assert twin.inspect(above)[:2] == (4022, 1)

    def test_inspect_when_user_headers_are_too_large_then_refuses(self, twin):
        limit = make_body([make_message(user_headers=bytes(100_000))])
        above = make_body([GOOD, make_message(user_headers=bytes(100_001))])

        assert twin.inspect(limit)[0] == 0
        assert twin.inspect(above)[:2] == (4017, 1)

    @given(messages=MESSAGE_LISTS.filter(bool))
    def test_inspect_when_offsets_rise_then_accepts_what_measure_finds(self, twin, messages):
        messages.sort(key=lambda message: message[24:32][::-1])
        body = make_body(messages)

        status, _, count, *_, messages_at, missing_ids = twin.inspect(body)

        assert status == 0
        size = len(body) - messages_at
        assert twin.measure(body[messages_at:]) == (count, size, size - len(messages[-1]))
        assert missing_ids == sum(message[8:24] == bytes(16) for message in messages)

    def test_inspect_when_replaying_refusals_then_answers_as_recorded(self, twin):
        lines = sent_bodies("send-validation.jsonl")

        answers = {number: twin.inspect(body)[0] for number, _, body in lines}

        recorded_answers = {
            number: 0 if status in ABSENT else status for number, status, _ in lines
        }
        assert answers == recorded_answers
        assert set(answers.values()) == {0, 3, 6, 4009, 4031, 4032, 4033, 4036, 4100}

    @pytest.mark.parametrize("name", RAW_FILES)
    def test_inspect_when_the_server_stored_it_then_accepts(self, twin, name):
        stored = [(number, body) for number, status, body in sent_bodies(name) if status == 0]

        assert [number for number, body in stored if twin.inspect(body)[0] != 0] == []
