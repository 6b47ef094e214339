"""Messages over HTTP: their ids in every form, and their user headers as entries or as a block."""

from __future__ import annotations

import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.errors import InvalidField
from iggy_protocol.rest import (
    HeaderEntryShape,
    HeaderFieldShape,
    MessageBody,
    MessageHeaderShape,
    MessageShape,
    SendMessagesBody,
    decode_json,
    encode_header_entries,
    encode_json,
    format_message_id,
    interpret_user_headers,
    parse_message_id,
)
from iggy_protocol.rest.shapes import HeaderKindName
from iggy_protocol.user_headers import (
    HeaderKey,
    HeaderKind,
    HeaderValue,
    decode_user_headers,
    encode_user_headers,
)
from tests.protocol.http_recordings import EXCHANGES, named


def test_message_ids_when_sent_in_every_form_then_are_polled_as_the_same_numbers():
    sent = [
        message.message_id
        for exchange in EXCHANGES
        if exchange.route.name == "send_messages" and exchange.is_success
        for message in decode_json(exchange.raw_body, SendMessagesBody).messages
    ]
    polled = {
        message["header"]["id"]
        for label in ("kind=offset&value=0&count=100", "partition_id=1&kind=offset&count=100")
        for message in named(f"messages: poll {label}").response["messages"]
    }

    assert set(sent) - {0} <= polled
    assert len(polled) == len(sent)
    assert {2**128 - 1, 2**64 - 1, 255, 254} <= polled


@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_message_id_when_formatted_then_every_form_reads_as_the_same_number(number):
    digits = f"{number:032x}"
    dashed = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    assert parse_message_id(format_message_id(number)) == number
    assert parse_message_id(str(number)) == number
    assert parse_message_id(dashed) == parse_message_id(dashed.upper()) == number


@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_message_id_when_polled_then_is_a_bare_integer_of_128_bits(number):
    header = MessageHeaderShape(
        checksum=1,
        id=number,
        offset=0,
        timestamp=0,
        origin_timestamp=0,
        user_headers_length=0,
        payload_length=1,
        reserved=0,
    )

    text = encode_json(header)

    assert f'"id":{number},'.encode() in text
    assert decode_json(text, MessageHeaderShape) == header


def test_message_id_when_polled_with_more_than_128_bits_then_is_refused():
    header = named("messages: poll kind=first&count=1").response["messages"][0]
    header = {**header, "header": {**header["header"], "id": 2**128}}

    with pytest.raises(InvalidField, match="128 bits"):
        decode_json(json.dumps(header), MessageShape)


@pytest.mark.parametrize("text", ["+5", "0" * 45 + "5"])
def test_message_id_when_the_text_has_a_sign_or_many_zeros_then_is_the_number(text):
    assert parse_message_id(text) == 5


def test_message_id_when_32_digits_could_be_both_then_is_decimal():
    assert parse_message_id("0" * 30 + "10") == 10


@pytest.mark.parametrize(
    "value",
    [-1, 2**64, "", "zzz", "-1", "1.5", str(2**128), "f" * 31, "f" * 33, "٣", "0x10", "1" * 40],
)
def test_message_id_when_it_is_none_of_the_forms_then_refuses(value):
    with pytest.raises(ValueError, match="message id"):
        parse_message_id(value)


def test_message_body_when_its_id_is_none_of_the_forms_then_is_refused_with_the_place():
    body = {
        "partitioning": {"kind": "balanced", "value": ""},
        "messages": [{"payload": "eA=="}, {"payload": "eA==", "id": "zzz"}],
    }

    with pytest.raises(InvalidField, match="message id") as caught:
        decode_json(json.dumps(body), SendMessagesBody)
    assert caught.value.field == "messages.1"


def test_message_body_when_id_and_headers_are_absent_then_they_are_not_written():
    assert encode_json(MessageBody(payload=b"x")) == b'{"payload":"eA=="}'


def test_user_headers_when_sent_as_entries_then_come_back_sorted_by_key():
    (sent,) = decode_json(named("messages: send headers").raw_body, SendMessagesBody).messages
    polled = polled_message(3)
    assert isinstance(sent.user_headers, tuple)

    block = encode_header_entries(sent.user_headers)

    assert len(block) == polled.header.user_headers_length
    assert interpret_user_headers(block) == polled.user_headers
    assert {entry.value.kind for entry in sent.user_headers} == set(get_args(HeaderKindName))


def test_user_headers_when_a_size_does_not_fit_then_come_back_as_the_block():
    label = "messages: send headers wrong size"
    (sent,) = decode_json(named(label).raw_body, SendMessagesBody).messages
    assert isinstance(sent.user_headers, tuple)

    block = encode_header_entries(sent.user_headers)

    assert interpret_user_headers(block) == block == polled_message(4).user_headers


def test_user_headers_when_sent_as_a_block_then_come_back_as_entries():
    label = "messages: send headers as raw block"
    (sent,) = decode_json(named(label).raw_body, SendMessagesBody).messages
    assert isinstance(sent.user_headers, bytes)

    assert interpret_user_headers(sent.user_headers) == polled_message(5).user_headers


def test_user_headers_when_a_client_wrote_them_in_another_order_then_entries_are_sorted():
    keys = (HeaderKey.string("b"), HeaderKey.string("a"), HeaderKey.raw_bytes(b"z"))
    value = HeaderValue.uint8(1)
    block = b"".join(encode_user_headers([(key, value)]) for key in keys)

    entries = interpret_user_headers(block)

    assert isinstance(entries, tuple)
    assert [entry.key.value for entry in entries] == [b"z", b"a", b"b"]


def polled_message(message_id: int) -> MessageShape:
    polled = named("messages: poll kind=offset&value=0&count=100")
    shape = decode_json(msgspec.json.encode(polled.response), polled.route.reply)
    (message,) = (one for one in shape.messages if one.header.id == message_id)
    return message


def test_user_headers_when_a_key_comes_twice_then_the_last_entry_counts():
    key = HeaderFieldShape(kind="string", value=b"k")
    entries = [
        HeaderEntryShape(key=key, value=HeaderFieldShape(kind="uint8", value=bytes([number])))
        for number in (1, 2)
    ]

    (value,) = decode_user_headers(encode_header_entries(entries)).values()
    assert value.value == 2


def test_header_kind_names_when_listed_then_are_the_kinds_of_the_wire_in_order():
    assert [kind.name.lower() for kind in HeaderKind] == list(get_args(HeaderKindName))
