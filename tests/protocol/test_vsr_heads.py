"""The heads of 256 bytes: as official clients write them, both ways, and every rule of theirs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol import V0_11, V0_12_0, V0_12_2, InvalidField
from iggy_protocol.layout import derive_struct
from iggy_protocol.vsr import heads
from iggy_protocol.vsr.heads import (
    COMMITTED,
    VSR_HEAD_BYTES,
    EvictionHead,
    ReplyHead,
    RequestHead,
    check_reply,
    check_request,
    read_eviction_head,
    read_reply_head,
    read_request_head,
    write_reply_head,
)
from tests.protocol.vsr_recordings import every_exchange

EXCHANGES = every_exchange()
CLIENT = bytes(range(1, 17))
REQUEST = RequestHead(client=CLIENT, operation=2, code=1)
REPLY = ReplyHead(client=CLIENT, operation=2)


@pytest.mark.parametrize(
    ("declared", "type_"),
    [
        (heads.REQUEST_HEAD, RequestHead),
        (heads.REPLY_HEAD, ReplyHead),
        (heads.EVICTION_HEAD, EvictionHead),
    ],
)
def test_head_when_declared_then_has_256_bytes_and_the_fields_of_its_record(declared, type_):
    derived, names = derive_struct(declared)
    assert declared.sizeof() == derived.size == VSR_HEAD_BYTES
    assert names == type_._fields
    assert declared.build(dict(zip(names, type_(), strict=True))) == type_().encode()


U64 = st.integers(0, 2**64 - 1)


@given(
    request=st.binary(min_size=VSR_HEAD_BYTES, max_size=VSR_HEAD_BYTES).map(read_request_head),
    operation=st.integers(0, 255),
    body_bytes=st.integers(0, 2**32 - 1 - VSR_HEAD_BYTES),
    status=st.integers(0, 2**32 - 1),
    positions=st.tuples(U64, U64),
    committed=st.tuples(st.integers(0, 255), U64),
)
def test_reply_head_when_written_at_once_then_equals_that_of_the_record(
    request, operation, body_bytes, status, positions, committed
):
    expected = ReplyHead(
        size=VSR_HEAD_BYTES + body_bytes,
        identifier=request.identifier,
        client=request.client,
        op=positions[0],
        commit=positions[1],
        number=request.number,
        operation=operation,
        status=status,
        marker=committed[0],
        incarnation=committed[1],
    )
    written = write_reply_head(request, operation, body_bytes, status, positions, committed)
    assert written == expected.encode()


@given(st.binary(min_size=VSR_HEAD_BYTES, max_size=VSR_HEAD_BYTES))
def test_head_when_any_bytes_are_read_then_are_written_back(data):
    for read in (read_request_head, read_reply_head, read_eviction_head):
        assert read(data).encode() == data
        assert read(b"before" + data, len(b"before")).encode() == data


def test_recorded_requests_when_read_then_are_allowed_and_have_the_recorded_fields():
    assert len(EXCHANGES) > 250
    for request in (exchange.request for exchange in EXCHANGES):
        head = read_request_head(request.head)
        check_request(head, request.dialect)
        check_request(head, None)
        assert head.encode() == request.head
        assert head.size == VSR_HEAD_BYTES + len(request.body)
        assert (head.client, head.number) == (request.client, request.number)
        assert (head.operation, head.session) == (request.operation, request.session)
        context = (head.incarnation, head.owner_generation, head.metadata_position)
        assert context == request.context


def test_recorded_replies_when_read_then_are_allowed_and_echo_their_request():
    replies = [(one.request, one.reply) for one in EXCHANGES if one.reply is not None]
    assert len(replies) > 250
    for request, reply in replies:
        if reply.eviction:
            continue
        head = read_reply_head(reply.head)
        check_reply(head, request.dialect)
        assert head.encode() == reply.head
        asked = read_request_head(request.head)
        assert head.number == asked.number
        assert (head.identifier, head.client) == (asked.identifier, asked.client)
        assert head.incarnation == asked.incarnation


@pytest.mark.parametrize(
    "wrong",
    [
        {"cluster": bytes(15) + b"\1"},
        {"view": 1},
        {"release": 1},
        {"replica": 1},
        {"reserved": bytes(65) + b"\1"},
        {"client": bytes(16)},
        {"timestamp": 1},
        {"padding": bytes(6) + b"\1"},
        {"user_id": 1},
        {"reserved_end": bytes(31) + b"\1"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_request_when_a_fixed_field_has_another_value_then_is_refused_with_status_4(wrong):
    for dialect in (None, V0_11, V0_12_0, V0_12_2):
        check_request(REQUEST, dialect)
        with pytest.raises(InvalidField, match=next(iter(wrong))) as caught:
            check_request(REQUEST._replace(**wrong), dialect)
        assert caught.value.status == 4


def test_request_when_its_checksums_are_filled_in_then_is_allowed_because_none_is_verified():
    check_request(REQUEST._replace(checksum=bytes(16), checksum_body=b"\1" * 16), V0_11)


@pytest.mark.parametrize("field", ["incarnation", "owner_generation", "metadata_position"])
def test_request_when_it_has_a_context_then_is_refused_in_0_9_alone(field):
    values: dict[str, Any] = {field: 1}
    head = REQUEST._replace(**values)
    for dialect in (None, V0_12_0, V0_12_2):
        check_request(head, dialect)
    with pytest.raises(InvalidField, match=field):
        check_request(head, V0_11)


@pytest.mark.parametrize(
    "wrong",
    [
        {"release": 1},
        {"reserved": bytes(65) + b"\1"},
        {"padding": b"\1" + bytes(6)},
        {"reserved_end": bytes(23) + b"\1"},
        {"status": 3, "size": VSR_HEAD_BYTES + 1},
        {"marker": 2},
        {"reserved_marker": b"\0\0\1"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_reply_when_a_field_breaks_its_rule_then_is_refused(wrong):
    for dialect in (V0_11, V0_12_0, V0_12_2):
        check_reply(REPLY, dialect)
        with pytest.raises(InvalidField):
            check_reply(REPLY._replace(**wrong), dialect)


def test_reply_when_it_is_marked_or_names_an_incarnation_then_is_refused_in_0_9_alone():
    for head in (REPLY._replace(marker=COMMITTED), REPLY._replace(incarnation=1)):
        check_reply(head, V0_12_0)
        with pytest.raises(InvalidField):
            check_reply(head, V0_11)


def test_reply_when_the_server_tells_its_cluster_then_that_is_ignored():
    told: dict[str, Any] = {
        "cluster": CLIENT,
        "view": 7,
        "replica": 2,
        "timestamp": 9,
        "context": CLIENT,
    }
    check_reply(REPLY._replace(**told), V0_11)
