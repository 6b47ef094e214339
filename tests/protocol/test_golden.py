"""Every recorded conversation with a real server, read by our codec.

What the server accepted must decode, and encode to the same bytes again. What it refused as
unreadable must be refused, with the same status. What it refused by a rule must be refused by
``validate``, with the same status. Lines that cannot follow these rules stand in
``exceptions.toml`` with a reason, and a line listed there that follows them after all is an error.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.messages import POLLED_HEAD, SendMessages
from iggy_protocol.commands.topics import PARTITION
from iggy_protocol.commands.users import PERMISSIONS
from iggy_protocol.errors import InvalidBatch, RemoteProtocolError, RuleViolation
from iggy_protocol.framing import HeadroomBuffer
from iggy_protocol.layout import Layout
from iggy_protocol.registry import (
    COMMANDS,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from iggy_protocol.validation import validate
from tests.protocol.recordings import GOLDEN, RECORDINGS, Exchange, exceptions, exchanges

UNREADABLE = {3, 4, 6}
BROKEN_RULES = {43, 44, 50, 101, 2015, 4009, 4017, 4022, 4031, 4032, 4033, 4036, 10011}
CAPTURES = [
    json.loads(line) for line in (GOLDEN / "captures.jsonl").read_text().splitlines() if line
]


def joined(buffers):
    return b"".join(
        bytes(part.buffer[part.headroom :]) if isinstance(part, HeadroomBuffer) else bytes(part)
        for part in buffers
    )


def verdict(command):
    """Return the status that validation gives a command."""
    try:
        validate(command)
    except (InvalidBatch, RuleViolation) as error:
        return error.status
    return 0


def request_surprises(exchange: Exchange):
    """Say in which ways a request does not follow the rules."""
    if exchange.payload is None:
        yield "incomplete"
        return
    try:
        command = decode_request(exchange.code, exchange.payload)
    except RemoteProtocolError as error:
        if exchange.status is not None and error.status != exchange.status:
            yield f"refused with {error.status}, recorded {exchange.status}: {error}"
        return
    if exchange.status in UNREADABLE:
        yield "desynchronised"
    found = verdict(command)
    if (found and exchange.status == 0) or exchange.status in BROKEN_RULES - {found}:
        yield f"validation says {found}, recorded {exchange.status}"
    if isinstance(command, SendMessages) and command.fault is not None:
        return
    canonical = joined(encode_request(command))
    if canonical != exchange.payload:
        yield "surplus" if exchange.payload.startswith(canonical) else "not canonical"
        assert decode_request(exchange.code, canonical) == command
        assert joined(encode_request(decode_request(exchange.code, canonical))) == canonical


def reply_surprises(exchange: Exchange):
    """Say in which ways a reply does not follow the rules."""
    if exchange.status != 0:
        return
    if exchange.reply is None:
        yield "cut reply"
        return
    value = decode_reply(exchange.code, exchange.reply)
    if joined(encode_reply(exchange.code, value)) != exchange.reply:
        yield "reply not canonical"


@pytest.mark.parametrize("file", RECORDINGS)
def test_recording_when_read_then_only_listed_lines_surprise(file):
    found = {}
    for exchange in exchanges(file):
        surprises = [*request_surprises(exchange), *reply_surprises(exchange)]
        if surprises:
            found[exchange.line] = " and ".join(surprises)
    assert found == exceptions(file)


def test_recordings_when_counted_then_nothing_was_left_out():
    counted = Counter()
    codes = set()
    for file in RECORDINGS:
        for exchange in exchanges(file):
            counted["requests"] += exchange.payload is not None
            counted["replies"] += exchange.reply is not None and exchange.status == 0
            codes.add(exchange.code)
    assert counted["requests"] > 2500
    assert counted["replies"] > 1500
    assert set(CommandCode) <= codes


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: capture["name"])
def test_capture_when_decoded_then_means_what_was_written_down(capture):
    if "request" in capture:
        frame = bytes.fromhex(capture["request"])
        assert int.from_bytes(frame[:4], "little") == len(frame) - 4
        code, payload = int.from_bytes(frame[4:8], "little"), frame[8:]
        if capture.get("refused"):
            with pytest.raises(RemoteProtocolError) as caught:
                decode_request(code, payload)
            assert caught.value.status == capture["refused"]
            return
        value = decode_request(code, payload)
        assert verdict(value) == 0
        again = joined(encode_request(value))
    elif "reply" in capture:
        frame, code = bytes.fromhex(capture["reply"]), capture["code"]
        assert frame[:8] == bytes(4) + (len(frame) - 8).to_bytes(4, "little")
        payload = frame[8:]
        value = decode_reply(code, payload)
        again = joined(encode_reply(code, value))
    else:
        payload = bytes.fromhex(capture["record"])
        layout = RECORDS[capture["name"]]
        value = layout.decode(payload)
        again = layout.encode(value)
    assert meaning(value) == capture["means"]
    if capture.get("surplus"):
        assert payload == again + bytes.fromhex(capture["surplus"])
    else:
        assert again == payload


RECORDS = {
    "partition record": Layout("Partition", PARTITION),
    "permissions block": Layout("Permissions", PERMISSIONS),
    "poll header": POLLED_HEAD,
}


def meaning(value):
    """Write a value down so that a person can compare it with the capture."""
    messages = [
        f" [id={message.id} origin={message.origin_timestamp_us}"
        f" payload={bytes(message.payload)!r} headers={bytes(message.user_headers).hex()}]"
        for message in getattr(value, "messages", ())
    ]
    return repr(value) + "".join(messages)


def test_captures_when_counted_then_every_command_of_the_official_clients_is_there():
    assert len(CAPTURES) == 83
    requests = [bytes.fromhex(capture["request"]) for capture in CAPTURES if "request" in capture]
    seen = {int.from_bytes(frame[4:8], "little") for frame in requests}
    assert len(seen) >= 36
    assert seen <= set(COMMANDS)
