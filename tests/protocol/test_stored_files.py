"""The files that a real server left behind, record by record, with every checksum verified.

What was recorded on the way in must be found on the disk: messages in the logs, commands in the
state log, offsets in files of their own.
"""

from __future__ import annotations

from uuid import RFC_4122, UUID

import msgspec
import pytest

from iggy_protocol.batch import MessageBatch, checksum
from iggy_protocol.codes import CommandCode
from iggy_protocol.commands.consumers import StoreConsumerOffset
from iggy_protocol.commands.messages import SendMessages
from iggy_protocol.encryption import PayloadCipher
from iggy_protocol.errors import RemoteProtocolError
from iggy_protocol.hashing import consumer_id
from iggy_protocol.model.identifier import ConsumerKind
from iggy_protocol.registry import decode_request, encode_request
from tests.protocol.frame_oracle import joined
from tests.protocol.recordings import exchanges
from tests.protocol.stored_files import (
    DISK,
    PARTITIONS,
    STATE_ENTRY,
    request_of,
    state_entries,
    stored_offsets,
)

DIRECTORIES = ["encrypted", "plain", "segments"]
CIPHER = PayloadCipher(bytes(range(32)))
SEALED = "encrypted"

# The state log keeps what changes something, and neither messages nor offsets nor who is there.
LOGGED = frozenset(CommandCode[name] for name in CommandCode.__members__ if "GET_" not in name) - {
    CommandCode.PING,
    CommandCode.LOGIN_USER,
    CommandCode.LOGIN_WITH_PERSONAL_ACCESS_TOKEN,
    CommandCode.LOGOUT_USER,
    CommandCode.SEND_MESSAGES,
    CommandCode.POLL_MESSAGES,
    CommandCode.FLUSH_UNSAVED_BUFFER,
    CommandCode.STORE_CONSUMER_OFFSET,
    CommandCode.DELETE_CONSUMER_OFFSET,
    CommandCode.JOIN_CONSUMER_GROUP,
    CommandCode.LEAVE_CONSUMER_GROUP,
}
# A password is logged as its hash.
CHANGED = frozenset({CommandCode.CREATE_USER, CommandCode.CHANGE_PASSWORD})

LOGS = sorted(DISK.glob(f"*/{PARTITIONS}/*.log"))


def opened(directory, data):
    return CIPHER.open(data) if directory == SEALED and data else bytes(data)


def accepted(directory):
    """List the recorded requests that the server accepted, as code and payload."""
    return [
        (exchange.code, exchange.payload)
        for exchange in exchanges(f"disk/{directory}.jsonl")
        if exchange.status == 0 and exchange.payload is not None
    ]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_state_log_when_walked_then_entries_are_in_order_and_their_checksums_hold(directory):
    entries = list(state_entries(directory))

    assert [entry.index for entry in entries] == list(range(len(entries)))
    for entry in entries:
        _, term, leader, version, flags, *_, context_size = STATE_ENTRY.unpack(entry.fixed)
        assert (term, leader, version, flags, context_size) == (0, 0, 8000, 0, 0)
        assert checksum(entry.covered(opened(directory, entry.command))) == entry.checksum


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_state_log_when_decoded_then_holds_the_requests_that_were_recorded(directory):
    root, *entries = state_entries(directory)
    requests = [
        (entry.code, request_of(entry.code, opened(directory, entry.command))) for entry in entries
    ]
    recorded = [(code, payload) for code, payload in accepted(directory) if code in LOGGED]

    assert root.code == CommandCode.CREATE_USER
    assert [code for code, _ in requests] == [code for code, _ in recorded]
    for (code, stored), (_, sent) in zip(requests, recorded, strict=True):
        assert joined(encode_request(decode_request(code, stored))) == stored
        assert stored == sent or code in CHANGED


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_logs_when_walked_then_hold_the_messages_that_were_recorded(directory):
    stored = [
        (message.id, opened(directory, message.payload), opened(directory, message.user_headers))
        for log in LOGS
        if log.is_relative_to(DISK / directory)
        for message in MessageBatch(log.read_bytes())
    ]
    sent = [
        (message.id, bytes(message.payload), bytes(message.user_headers))
        for code, payload in accepted(directory)
        if code == CommandCode.SEND_MESSAGES
        for message in messages_of(payload)
    ]

    assert stored
    for (stored_id, *kept), (sent_id, *given) in zip(stored, sent, strict=True):
        assert kept == given
        assert stored_id == sent_id if sent_id else is_random_uuid(stored_id)


def is_random_uuid(number):
    """Tell whether an id is one that the server made: a UUID in the order of its text."""
    made = UUID(bytes=number.to_bytes(16, "little"))
    return (made.variant, made.version) == (RFC_4122, 4)


def messages_of(payload):
    command = decode_request(CommandCode.SEND_MESSAGES, payload)
    assert isinstance(command, SendMessages)
    assert isinstance(command.messages, MessageBatch)
    return command.messages


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.relative_to(DISK).as_posix())
def test_log_when_read_then_every_checksum_holds_and_a_changed_byte_is_noticed(log):
    data = log.read_bytes()
    MessageBatch(data).verify()

    for position in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(RemoteProtocolError):
            MessageBatch(damaged).verify()


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_offset_files_when_read_then_hold_what_was_stored_last(directory):
    expected = {}
    for code, payload in accepted(directory):
        if code == CommandCode.STORE_CONSUMER_OFFSET:
            command = decode_request(code, payload)
            assert isinstance(command, StoreConsumerOffset)
            expected[place_of(command)] = command.offset

    assert stored_offsets(directory) == expected


def place_of(command: StoreConsumerOffset) -> str:
    """Name the file of an offset; the recordings store offsets in stream 1, topic 0 only."""
    consumer = command.consumer
    partition = f"streams/1/topics/0/partitions/{command.partition_id}"
    if consumer.kind is ConsumerKind.GROUP:
        return f"{partition}/offsets/groups/1"
    number = consumer.id if isinstance(consumer.id, int) else consumer_id(consumer.id)
    return f"{partition}/offsets/consumers/{number}"


def test_files_when_listed_then_every_one_was_read():
    read = {*LOGS, *(log.with_suffix(".index") for log in LOGS)}
    read |= {DISK / directory / "state/log" for directory in DIRECTORIES}
    read |= {
        DISK / directory / file for directory in DIRECTORIES for file in stored_offsets(directory)
    }
    for directory in DIRECTORIES:
        info = DISK / directory / "state/info"
        (version, _), _ = msgspec.msgpack.decode(info.read_bytes())
        assert version == "0.8.0"
        read.add(info)
    tokens = DISK / "plain/state/tokens"
    assert [len(token) for token in msgspec.msgpack.decode(tokens.read_bytes())] == [36]
    read.add(tokens)

    found = {path for path in DISK.rglob("*") if path.is_file() and path.parent != DISK}

    assert found == read
