"""Changes of metadata: bodies by kind and group, the rules of requests and pages, the token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from iggy_protocol import (
    V0_12_0,
    ChangeKind,
    ChangesPhase,
    ChangesStart,
    ChangesStatus,
    CurrentStateToken,
    GetMetadataChanges,
    LocalProtocolError,
    MetadataChange,
    MetadataChanges,
    MetadataCursor,
    MetadataGroup,
    MetadataItem,
    RemoteProtocolError,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from iggy_protocol.commands.metadata_changes import (
    CHANGE_BODIES,
    CURRENT_STATE_TOKEN,
    ITEM_BODIES,
)
from iggy_protocol.model.metadata_changes import (
    LeaveReason,
    MemberRemoved,
    StreamKey,
    StreamState,
    TopicKey,
    UserKey,
    UserNamed,
)
from tests.protocol.frame_oracle import joined
from tests.protocol.strategies import values_of
from tests.protocol.vsr_recordings import every_exchange

CODE = GetMetadataChanges.CODE
CLIENT_AND_COUNT = "07000000000000000000000000000000 08000000"
CURSOR = MetadataCursor(1, 2, 3, 4)
EMPTY_PAGE = MetadataChanges(ChangesStatus.OK, ChangesPhase.CHANGES, None, 0, 0, 0, None, False)


def page_of(**parts):
    return replace(EMPTY_PAGE, **parts)


def change(kind, body):
    return MetadataChange(1, 0, 2, 3, None, 1, kind, body)


def test_bodies_when_listed_then_every_kind_and_every_group_has_one():
    assert CHANGE_BODIES.keys() == {int(kind) for kind in ChangeKind}
    assert ITEM_BODIES.keys() == {int(group) for group in MetadataGroup}
    assert len(CHANGE_BODIES) == 21
    assert len(ITEM_BODIES) == 8


@pytest.mark.parametrize(
    ("kind", "body", "wire"),
    [
        (
            ChangeKind.STREAM_CREATED,
            StreamState(StreamKey(1, 2), 3, "s"),
            "01000000 0200000000000000 0300000000000000 0173 01",
        ),
        (
            ChangeKind.MEMBER_LEFT,
            MemberRemoved(TopicKey(StreamKey(1, 2), 3, 4), 5, 6, 7, 8, LeaveReason.SESSION_ENDED),
            "01000000 0200000000000000 03000000 0400000000000000 05000000 06000000"
            + CLIENT_AND_COUNT
            + "01",
        ),
        (
            ChangeKind.PASSWORD_CHANGED,
            UserNamed(UserKey(1, 2), "bob"),
            "01000000 0200000000000000 03626f62",
        ),
    ],
)
def test_change_when_written_then_its_body_has_the_layout_of_its_kind(kind, body, wire):
    page = page_of(changes=(change(kind, body),))
    written = joined(encode_reply(CODE, page, V0_12_0))

    assert len(bytes.fromhex(wire)).to_bytes(4, "little") + bytes.fromhex(wire) in written
    assert decode_reply(CODE, written, V0_12_0) == page


def test_change_when_its_kind_is_unknown_then_stays_bytes():
    page = page_of(changes=(change(99, b"later"),))

    assert decode_reply(CODE, joined(encode_reply(CODE, page, V0_12_0)), V0_12_0) == page


def test_change_when_its_body_is_of_another_kind_then_cannot_be_written():
    wrong = change(ChangeKind.STREAM_CREATED, UserNamed(UserKey(1, 2), "bob"))
    with pytest.raises(LocalProtocolError):
        encode_reply(CODE, page_of(changes=(wrong,)), V0_12_0)


@pytest.mark.parametrize("wrong", [15, 17])
def test_change_when_its_body_is_too_short_or_too_long_then_refused(wrong):
    body = UserNamed(UserKey(1, 2), "bob")
    wire = joined(
        encode_reply(CODE, page_of(changes=(change(ChangeKind.USER_DELETED, body),)), V0_12_0)
    )
    size = (16).to_bytes(4, "little")
    assert wire.count(size) == 1
    with pytest.raises(RemoteProtocolError):
        decode_reply(CODE, wire.replace(size, wrong.to_bytes(4, "little")), V0_12_0)


def test_page_when_it_has_changes_and_items_then_refused_both_ways():
    stream = StreamState(StreamKey(1, 2), 3, "s")
    one, item = change(ChangeKind.STREAM_CREATED, stream), MetadataItem(1, stream)
    with pytest.raises(LocalProtocolError, match="not both"):
        encode_reply(CODE, page_of(changes=(one,), items=(item,)), V0_12_0)
    empty = joined(encode_reply(CODE, EMPTY_PAGE, V0_12_0))
    # An empty page ends with two counts of zero and a token of no bytes.
    changes = joined(encode_reply(CODE, page_of(changes=(one,)), V0_12_0))[:-6]
    items = joined(encode_reply(CODE, page_of(items=(item,)), V0_12_0))[len(empty) - 6 :]
    with pytest.raises(RemoteProtocolError, match="not both") as caught:
        decode_reply(CODE, changes + items, V0_12_0)
    assert caught.value.status == 3


@pytest.mark.parametrize("at", [2, 27, 28])
def test_flag_when_neither_0_nor_1_then_refused(at):
    wire = bytearray(joined(encode_reply(CODE, EMPTY_PAGE, V0_12_0)))
    assert wire[at] == 0
    wire[at] = 2
    with pytest.raises(RemoteProtocolError, match="2 is no flag") as caught:
        decode_reply(CODE, bytes(wire), V0_12_0)
    assert caught.value.status == 3


def test_options_when_their_state_is_unknown_then_refused():
    body = bytes.fromhex("01000000 0200000000000000 0300000000000000 0173")
    layout = CHANGE_BODIES[ChangeKind.STREAM_CREATED]

    assert layout.decode(body + b"\1").options is None
    with pytest.raises(RemoteProtocolError, match="2 is no state of options"):
        layout.decode(body + b"\2")


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (GetMetadataChanges(limit=0), "the limit is 0"),
        (GetMetadataChanges(limit=1001), "the limit is 1001"),
        (GetMetadataChanges(cursor=CURSOR), "after a cursor"),
        (GetMetadataChanges(ChangesStart.LATEST, token=b"t"), "has a token"),
    ],
)
def test_request_when_it_breaks_a_rule_then_refused_both_ways(request_, problem):
    with pytest.raises(LocalProtocolError, match=problem):
        encode_request(request_, V0_12_0)
    cursor = (
        request_.cursor.log_id.to_bytes(16, "little")
        + request_.cursor.op.to_bytes(8, "little")
        + request_.cursor.checksum.to_bytes(16, "little")
        + request_.cursor.ordinal.to_bytes(4, "little")
    )
    wire = (
        bytes([request_.start])
        + cursor
        + bytes(2)
        + request_.limit.to_bytes(4, "little")
        + bytes(1)
        + len(request_.token).to_bytes(2, "little")
        + request_.token
    )
    with pytest.raises(RemoteProtocolError, match=problem) as caught:
        decode_request(CODE, wire, V0_12_0)
    assert caught.value.status == 3


def test_number_when_it_does_not_fit_128_bits_then_local_error():
    with pytest.raises(LocalProtocolError, match="does not fit 128 bits"):
        encode_request(
            GetMetadataChanges(ChangesStart.AFTER_CURSOR, MetadataCursor(2**128)), V0_12_0
        )


@given(values_of(CURRENT_STATE_TOKEN.construct))
def test_token_when_written_then_is_read_again(token):
    assert CURRENT_STATE_TOKEN.decode(CURRENT_STATE_TOKEN.encode(token)) == token


def test_token_when_written_then_has_the_bytes_of_the_specification():
    token = CurrentStateToken(CURSOR, 5, 0xFF, 2, b"key")

    assert CURRENT_STATE_TOKEN.encode(token) == bytes.fromhex(
        "01000000000000000000000000000000 0200000000000000"
        "03000000000000000000000000000000 04000000"
        "0500000000000000 ff 02 0300 6b6579"
    )


def test_recordings_when_read_then_hold_the_changes_of_their_scenario():
    pages = [
        decode_reply(CODE, exchange.reply.payload, V0_12_0)
        for exchange in every_exchange()
        if exchange.request.code == CODE
        and exchange.request.dialect is V0_12_0
        and exchange.reply is not None
    ]
    kinds = {one.kind for page in pages for one in page.changes}
    items = [item for page in pages for item in page.items]

    assert kinds == {
        ChangeKind.STREAM_CREATED,
        ChangeKind.STREAM_UPDATED,
        ChangeKind.STREAM_DELETED,
        ChangeKind.TOPIC_CREATED,
        ChangeKind.SESSION_REGISTERED,
    }
    assert items
    assert all(isinstance(item.body, StreamState) for item in items)
