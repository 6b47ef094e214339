"""The bodies of message commands that official clients of 0.9 and 0.10 sent, or accepted."""

from __future__ import annotations

from collections import Counter

import pytest

from iggy_protocol.batch import MessageBatch, PolledMessages
from iggy_protocol.batch_vsr import classic_records, vsr_batches
from iggy_protocol.commands.messages import SendMessages
from iggy_protocol.registry import (
    commands_of,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from iggy_protocol.validation import validate
from tests.protocol.frame_oracle import joined
from tests.protocol.vsr_recordings import RECORDINGS, every_exchange, exchanges

MESSAGE_CODES = {100, 101, 105, 106, 107, 108}
POLL_CODES = {100, 106}


def message_exchanges(file):
    """List the exchanges with messages; a client of 0.9 tries a command of 0.10 on purpose."""
    return [
        one
        for one in exchanges(file)
        if one.request.code in MESSAGE_CODES & commands_of(one.request.dialect)
    ]


@pytest.mark.parametrize("file", RECORDINGS)
def test_request_when_recorded_then_decodes_and_encodes_to_the_same_bytes(file):
    for exchange in message_exchanges(file):
        request = exchange.request
        command = decode_request(request.code, request.body, request.dialect)
        validate(command)
        assert joined(encode_request(command, request.dialect)) == request.body


@pytest.mark.parametrize("file", RECORDINGS)
def test_send_when_recorded_then_every_message_has_an_id_and_a_time(file):
    for exchange in message_exchanges(file):
        if exchange.request.code == 101:
            command = decode_request(101, exchange.request.body, exchange.request.dialect)
            assert isinstance(command, SendMessages)
            assert isinstance(command.messages, MessageBatch)
            assert all(view.id and view.origin_timestamp_us for view in command.messages)


@pytest.mark.parametrize("file", RECORDINGS)
def test_reply_when_accepted_by_a_client_then_decodes_and_encodes_to_the_same_bytes(file):
    for exchange in message_exchanges(file):
        request, reply = exchange.request, exchange.reply
        if reply is None or reply.status:
            continue
        value = decode_reply(request.code, reply.payload, request.dialect)
        if isinstance(value, PolledMessages):
            assert value.messages_count == len(value.messages)
            value.messages.verify()
        assert joined(encode_reply(request.code, value, request.dialect)) == reply.payload


def test_recordings_when_counted_then_have_batches_of_many_kinds():
    counted = Counter(
        one.request.code for one in every_exchange() if one.request.code in MESSAGE_CODES
    )
    polls = [
        decode_reply(one.request.code, one.reply.payload, one.request.dialect)
        for one in every_exchange()
        if one.request.code in POLL_CODES and one.reply is not None and not one.reply.status
    ]

    assert set(counted) == MESSAGE_CODES
    assert sum(len(polled.messages) > 1 for polled in polls) > 5
    assert any(len(polled.messages) == 0 for polled in polls)


def test_batches_when_recorded_then_the_same_after_both_conversions():
    for exchange in every_exchange():
        if exchange.request.code in POLL_CODES and exchange.reply and not exchange.reply.status:
            head_bytes = 16 if exchange.request.dialect.age == 1 else 40
            payload = exchange.reply.payload
            partition_id = int.from_bytes(payload[:4], "little")
            made = classic_records(payload[head_bytes:])
            assert made.fault is None
            again = vsr_batches(made.records, partition_id=partition_id)
            assert again.buffer == payload[head_bytes:]
