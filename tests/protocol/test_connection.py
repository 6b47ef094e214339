"""Both connections: what they hear, what they say, and what they refuse to say."""

from __future__ import annotations

import dataclasses
from typing import Literal, assert_type

import pytest

from iggy_protocol.base_connection import Limits
from iggy_protocol.commands.messages import PollMessages, SendMessages
from iggy_protocol.commands.streams import CreateStream, GetStream
from iggy_protocol.commands.system import Ping
from iggy_protocol.commands.users import LoginUser
from iggy_protocol.connection import ClientConnection, ServerConnection
from iggy_protocol.errors import LocalProtocolError
from iggy_protocol.events import (
    NEED_DATA,
    PAUSED,
    ConnectionClosed,
    ErrorReceived,
    ForeignRequestReceived,
    RequestReceived,
    RequestRefused,
    Signal,
)
from iggy_protocol.model.identifier import ConsumerIdentity, Partitioning, PollingStrategy
from iggy_protocol.model.stream import Stream
from iggy_protocol.model.user import Identity
from tests.protocol.frame_oracle import (
    CUTTERS,
    FEEDERS,
    SEND_MESSAGES,
    ConnectionPair,
    feed_in_place,
    joined,
    request_frame,
    response_frame,
)

PING = request_frame(1)
PONG = response_frame(0)
STREAM = Stream(
    id=7, created_at_us=1, topics_count=0, size_bytes=0, messages_count=0, name="orders"
)
SEND = SendMessages("orders", 1, Partitioning.balanced(), [b"first", b"second"])
POLL = PollMessages(ConsumerIdentity.single(1), "orders", 1, PollingStrategy.first(), count=10)


# Back to back


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
@pytest.mark.parametrize("cut", CUTTERS.values(), ids=CUTTERS)
def test_pair_when_commands_are_pipelined_then_replies_match_in_order(cut, feed):
    pair = ConnectionPair(cut=cut, feed=feed)
    commands = [LoginUser("iggy", "iggy"), CreateStream("orders"), GetStream("orders"), POLL]

    heard = pair.ask(*commands)

    assert [event.decode() for event in heard] == commands
    login = pair.answer(Identity(0))
    created = pair.answer(STREAM)
    missing = pair.answer(None)
    refused = pair.answer_error(1009)
    assert [login.command, created.command, missing.command] == commands[:3]
    assert [login.decode(), created.decode(), missing.decode()] == [Identity(0), STREAM, None]
    assert refused == ErrorReceived(POLL, 1009)
    assert pair.client.next_event() is NEED_DATA
    assert pair.server.next_event() is NEED_DATA
    assert pair.client.outstanding == pair.server.outstanding == 0


@pytest.mark.parametrize("feed", FEEDERS.values(), ids=FEEDERS)
def test_missing_bytes_when_a_frame_is_cut_then_are_those_that_its_event_needs(feed):
    server = ServerConnection()
    frame = request_frame(SEND_MESSAGES, bytes(100_000))
    assert server.missing_bytes == 0

    # Before the head is complete, only the rest of the head is known to be missing.
    for end, missing in ((3, 5), (8, 100_000), (60_000, len(frame) - 60_000), (len(frame), 0)):
        feed(server, frame[server.statistics().bytes_in : end])
        event = server.next_event()
        assert server.missing_bytes == missing
        assert isinstance(event, RequestReceived) is (missing == 0)


@pytest.mark.parametrize("cut", CUTTERS.values(), ids=CUTTERS)
def test_pair_when_messages_are_sent_then_server_reads_them(cut):
    pair = ConnectionPair(cut=cut)

    (event,) = pair.ask(SEND)

    command = event.decode()
    assert isinstance(command, SendMessages)
    assert (command.stream, command.topic, len(command.messages)) == ("orders", 1, 2)
    assert pair.answer(None).command is SEND


def test_pair_when_done_then_both_ends_count_alike():
    pair = ConnectionPair()
    pair.ask(Ping())
    pair.ask(CreateStream("orders"))
    pair.answer(None)
    pair.ask(Ping())

    client, server = pair.client.statistics(), pair.server.statistics()

    assert (client.frames_out, client.frames_in, client.outstanding) == (3, 1, 2)
    assert (server.frames_in, server.frames_out, server.outstanding) == (3, 1, 2)
    assert client.bytes_out == server.bytes_in == 8 + 15 + 8
    assert server.bytes_out == client.bytes_in == 8
    assert (server.buffered_bytes, server.copied_bytes, server.chunk_allocations) == (0, 0, 0)


def test_statistics_when_frame_is_incomplete_then_shows_what_is_kept():
    server = ServerConnection()
    feed_in_place(server, PING[:5])

    statistics = server.statistics()

    assert (statistics.buffered_bytes, statistics.reserved_bytes) == (5, 65_536)
    assert (statistics.frames_in, statistics.bytes_in) == (0, 5)


def test_statistics_when_items_are_wider_than_bytes_then_count_bytes():
    server = ServerConnection()

    server.receive_data(memoryview(PING).cast("I"))

    assert isinstance(server.next_event(), RequestReceived)
    assert server.statistics().bytes_in == 8


def test_event_when_told_apart_then_type_checkers_follow():
    event = ServerConnection().next_event()

    if event is NEED_DATA:
        assert_type(event, Literal[Signal.NEED_DATA])
    elif event is PAUSED:
        assert_type(event, Literal[Signal.PAUSED])
    else:
        assert_type(
            event, RequestReceived | RequestRefused | ForeignRequestReceived | ConnectionClosed
        )


# The end


@pytest.mark.parametrize("connection", [ClientConnection, ServerConnection])
@pytest.mark.parametrize(
    "end",
    [
        lambda connection: connection.receive_data(b""),
        lambda connection: connection.receive_eof(),
        lambda connection: (connection.get_buffer(), connection.buffer_updated(0)),
    ],
    ids=["no bytes", "receive_eof", "buffer_updated"],
)
def test_connection_when_peer_closes_then_says_so_and_takes_no_more(connection, end):
    closing = connection()

    end(closing)

    assert closing.next_event() == ConnectionClosed(mid_frame=False)
    closing.receive_eof()
    assert closing.next_event() == ConnectionClosed(mid_frame=False)
    with pytest.raises(LocalProtocolError, match="has closed"):
        closing.receive_data(PING)
    with pytest.raises(LocalProtocolError, match="has closed"):
        closing.get_buffer()


@pytest.mark.parametrize("size", [1, 7, 8, 9])
def test_server_when_peer_closes_mid_frame_then_says_so_after_what_came_before(size):
    server = ServerConnection()
    server.receive_data(PING + request_frame(202, b"\x01a")[:size])
    server.receive_eof()

    assert isinstance(server.next_event(), RequestReceived)
    assert server.next_event() == ConnectionClosed(mid_frame=True)
    assert joined(server.send(None)) == PONG


def test_server_when_peer_closes_inside_a_dropped_body_then_it_is_mid_frame():
    server = ServerConnection(limits=Limits(send_bytes_max=1))
    server.receive_data(request_frame(SEND_MESSAGES, bytes(10))[:12])
    server.receive_eof()

    assert isinstance(server.next_event(), RequestRefused)
    assert server.next_event() == ConnectionClosed(mid_frame=True)


def test_client_when_peer_has_closed_then_cannot_ask():
    client = ClientConnection()
    client.receive_eof()

    with pytest.raises(LocalProtocolError, match="has closed"):
        client.send(Ping())


# Limits and types


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Limits)])
def test_limits_when_one_is_below_1_then_refused(field):
    with pytest.raises(LocalProtocolError, match="at least 1") as caught:
        Limits(**{field: 0})

    assert caught.value.field == field


def test_events_when_changed_then_refuse():
    event = ConnectionClosed(mid_frame=False)

    with pytest.raises(dataclasses.FrozenInstanceError):
        event.mid_frame = True  # type: ignore[misc]  # that is the point
