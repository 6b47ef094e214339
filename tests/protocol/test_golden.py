"""Every recorded conversation with a real server, read by our codec.

What the server accepted must decode, and encode to the same bytes again. What it refused as
unreadable must be refused, with the same status. What it refused by a rule must be refused by
``validate``, with the same status. Lines that cannot follow these rules stand in
``exceptions.toml`` with a reason, and a line listed there that follows them after all is an error.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from iggy_protocol import CLASSIC, commands_of
from iggy_protocol.codes import status
from iggy_protocol.commands.messages import SendMessages
from iggy_protocol.commands.polled import POLLED_HEAD
from iggy_protocol.commands.topics import PARTITION
from iggy_protocol.commands.users import PERMISSIONS
from iggy_protocol.errors import InvalidBatch, RemoteProtocolError, RuleViolation
from iggy_protocol.framing import CLASSIC_FRAMING
from iggy_protocol.layout import Layout
from iggy_protocol.registry import (
    COMMANDS,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from iggy_protocol.validation import validate
from tests.protocol.frame_oracle import joined
from tests.protocol.recordings import (
    EXCEPTIONS,
    GOLDEN,
    RECORDINGS,
    Exchange,
    exceptions,
    exchanges,
)

UNREADABLE = {3, 4, 6}
BROKEN_RULES = {43, 44, 50, 101, 2015, 4009, 4017, 4022, 4031, 4032, 4033, 4036, 10011}
BROKEN_OFFSETS = 4100
"""A rule of batches, and elsewhere a matter of what is stored."""
Capture = dict[str, Any]
Reading = tuple[Any, bytes, bytes]
"""A value, the bytes it was read from, and the bytes it is written as."""
CAPTURES: list[Capture] = [
    json.loads(line) for line in (GOLDEN / "captures.jsonl").read_text().splitlines() if line
]


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
    rules = BROKEN_RULES | ({BROKEN_OFFSETS} if isinstance(command, SendMessages) else set())
    if (found and exchange.status == 0) or exchange.status in rules - {found}:
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
    counted: Counter[str] = Counter()
    codes = set()
    for file in RECORDINGS:
        for exchange in exchanges(file):
            counted["requests"] += exchange.payload is not None
            counted["replies"] += exchange.reply is not None and exchange.status == 0
            counted["refusals"] += exchange.status in UNREADABLE
            codes.add(exchange.code)
    assert counted == {"requests": 3874, "replies": 2441, "refusals": 674}
    assert commands_of(CLASSIC) <= codes


def test_exceptions_when_read_then_each_has_a_recording_and_a_reason():
    for entry in EXCEPTIONS:
        assert entry["file"] in RECORDINGS
        assert entry["lines"]
        assert len(entry["reason"].split()) > 5


def read_request(capture: Capture) -> Reading:
    frame = bytes.fromhex(capture["request"])
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    value = decode_request(int.from_bytes(frame[4:8], "little"), frame[8:])
    validate(value)
    return value, frame[8:], joined(encode_request(value))


def read_reply(capture: Capture) -> Reading:
    frame, code = bytes.fromhex(capture["reply"]), capture["code"]
    assert frame[:8] == bytes(4) + (len(frame) - 8).to_bytes(4, "little")
    value = decode_reply(code, frame[8:])
    return value, frame[8:], joined(encode_reply(code, value))


def read_record(capture: Capture) -> Reading:
    payload, layout = bytes.fromhex(capture["record"]), RECORDS[capture["name"]]
    value = layout.decode(payload)
    return value, payload, layout.encode(value)


READERS = {"request": read_request, "reply": read_reply, "record": read_record}


def captures(*kinds: str, refused: bool = False) -> list[Any]:
    """Choose captures that hold something of these kinds, and were refused or not."""
    return [
        pytest.param(kind, capture, id=capture["name"])
        for capture in CAPTURES
        for kind in kinds
        if kind in capture and ("refused" in capture) == refused
    ]


@pytest.mark.parametrize(("kind", "capture"), captures(*READERS))
def test_capture_when_decoded_then_means_what_was_written_down(kind, capture):
    value, payload, again = READERS[kind](capture)

    assert meaning(value) == capture["means"]
    assert payload == again + bytes.fromhex(capture.get("surplus", ""))


@pytest.mark.parametrize(("kind", "capture"), captures("request", refused=True))
def test_capture_when_its_client_deviates_then_is_refused(kind, capture):
    with pytest.raises(RemoteProtocolError) as caught:
        READERS[kind](capture)
    assert caught.value.status == capture["refused"]


@pytest.mark.parametrize(("kind", "capture"), captures("error"))
def test_capture_when_it_is_an_error_then_has_a_name_and_no_payload(kind, capture):
    code, size = CLASSIC_FRAMING.read_response_head(bytes.fromhex(capture[kind]), 0)

    assert (status(code).name, size) == (capture["means"], 0)


RECORDS: dict[str, Layout[Any]] = {
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
    chosen = [*captures(*READERS, "error"), *captures("request", refused=True)]
    assert len(chosen) == len(CAPTURES) == 89
    requests = [bytes.fromhex(capture["request"]) for capture in CAPTURES if "request" in capture]
    seen = {int.from_bytes(frame[4:8], "little") for frame in requests}
    assert len(seen) >= 36
    assert seen <= set(COMMANDS)
