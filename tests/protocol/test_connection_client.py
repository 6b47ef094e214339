"""The client's end: what it asks, what it refuses to ask, and what it hears."""

from __future__ import annotations

import pytest

from iggy_protocol import registry
from iggy_protocol.base_connection import Limits
from iggy_protocol.commands.messages import SendMessages
from iggy_protocol.commands.streams import CreateStream, GetStream
from iggy_protocol.commands.system import Ping
from iggy_protocol.connection import ClientConnection, ServerConnection
from iggy_protocol.errors import (
    FrameTooLarge,
    LocalProtocolError,
    RemoteProtocolError,
)
from iggy_protocol.events import (
    NEED_DATA,
    ConnectionClosed,
    ErrorReceived,
    RequestReceived,
    ResponseReceived,
)
from iggy_protocol.framing import CLASSIC_FRAMING, HeadroomBuffer
from iggy_protocol.model.identifier import Partitioning
from iggy_protocol.receive_buffer import CHUNK_BYTES
from tests.protocol.frame_oracle import (
    SEND_MESSAGES,
    ConnectionPair,
    OtherFraming,
    joined,
    pattern,
    request_frame,
    response_frame,
)

PING = request_frame(1)
PONG = response_frame(0)
SEND = SendMessages("orders", 1, Partitioning.balanced(), [b"first", b"second"])


# The client asks


def test_client_when_it_sends_then_frame_is_one_buffer():
    client = ClientConnection()

    assert client.send(Ping()) == [PING]
    assert client.send(CreateStream("s")) == [bytes.fromhex("06000000ca0000000173")]


def test_client_when_batch_has_headroom_then_head_is_written_in_place():
    client = ClientConnection()

    (buffer,) = client.send(SEND)

    assert isinstance(buffer, bytearray)
    assert CLASSIC_FRAMING.read_request_head(buffer, 0) == (SEND_MESSAGES, len(buffer) - 8)


@pytest.mark.parametrize("head_bytes", [4, 7, 9, 256])
def test_pair_when_framing_has_other_heads_then_all_goes_on_the_same(head_bytes):
    framing = OtherFraming(head_bytes)
    pair = ConnectionPair(ClientConnection(framing=framing), ServerConnection(framing=framing))

    ping, send = pair.ask(Ping(), SEND)

    assert (ping.decode(), ping.payload.nbytes) == (Ping(), 0)
    assert bytes(send.payload) == joined(ClientConnection().send(SEND))[8:]
    assert pair.answer(None).command == Ping()
    assert pair.answer_error(41) == ErrorReceived(SEND, 41)


@pytest.mark.parametrize(("head_bytes", "buffers"), [(4, 1), (8, 1), (9, 2)])
def test_client_when_headroom_suffices_then_frame_is_one_buffer(head_bytes, buffers):
    client = ClientConnection(framing=OtherFraming(head_bytes))

    assert len(client.send(SEND)) == buffers


def test_client_when_the_same_buffer_is_sent_again_then_says_the_same(monkeypatch):
    payload = HeadroomBuffer(bytearray(8) + b"x" * 10_000, 8)
    monkeypatch.setattr(registry, "encode_request", lambda command: [payload])
    client = ClientConnection()

    first = client.send(SEND)
    said = joined(first)
    again = client.send(SEND)
    elsewhere = ClientConnection().send(SEND)

    assert said == joined(again) == joined(elsewhere) == request_frame(101, b"x" * 10_000)
    assert all(buffers[0] is payload.buffer for buffers in (first, again, elsewhere))


def test_client_when_headroom_is_longer_than_its_buffer_then_refuses(monkeypatch):
    monkeypatch.setattr(
        registry, "encode_request", lambda command: [HeadroomBuffer(bytearray(7), 8)]
    )

    with pytest.raises(LocalProtocolError, match="no frame can hold"):
        ClientConnection().send(SEND)


def test_client_when_the_same_command_is_sent_again_then_says_the_same():
    client = ClientConnection()

    assert joined(client.send(SEND)) == joined(client.send(SEND))
    assert client.outstanding == 2


def test_client_when_batch_was_received_then_it_is_passed_on_without_a_copy():
    client, server = ClientConnection(), ServerConnection()
    large = SendMessages("orders", 1, Partitioning.balanced(), [b"x" * 10_000])
    server.receive_data(joined(client.send(large)))
    event = server.next_event()
    assert isinstance(event, RequestReceived)

    buffers = ClientConnection().send(event.decode())

    assert joined(buffers) == joined(client.send(large))
    assert memoryview(buffers[-1]).obj is event.payload.obj


def test_client_when_too_many_are_outstanding_then_refuses_until_one_is_answered():
    client = ClientConnection(limits=Limits(outstanding_max=1))
    client.send(Ping())

    with pytest.raises(LocalProtocolError, match="1 requests are unanswered"):
        client.send(Ping())
    client.receive_data(PONG)
    assert isinstance(client.next_event(), ResponseReceived)
    client.send(Ping())


def test_client_when_request_is_above_its_limit_then_refuses():
    client = ClientConnection(limits=Limits(control_bytes_max=3, send_bytes_max=50))

    with pytest.raises(LocalProtocolError, match="7 bytes, where 3 are allowed"):
        client.send(CreateStream("orders"))
    with pytest.raises(LocalProtocolError, match="where 50 are allowed"):
        client.send(SEND)

    assert client.outstanding == client.statistics().frames_out == 0


def test_client_when_command_cannot_be_written_then_nothing_is_outstanding():
    client = ClientConnection()

    with pytest.raises(LocalProtocolError):
        client.send(CreateStream(""))

    assert client.outstanding == 0


# The client hears


def test_client_when_status_8_is_pushed_then_no_command_is_blamed():
    client = ClientConnection()
    client.receive_data(response_frame(8))
    client.receive_eof()

    assert client.next_event() == ErrorReceived(None, 8)
    assert client.next_event() == ConnectionClosed(mid_frame=False)


def test_client_when_reply_comes_unasked_then_fails_for_good():
    client = ClientConnection()
    client.receive_data(PONG)

    with pytest.raises(RemoteProtocolError, match="without a request") as caught:
        client.next_event()
    with pytest.raises(RemoteProtocolError) as again:
        client.next_event()
    assert again.value is caught.value
    with pytest.raises(LocalProtocolError, match="has failed: a reply came"):
        client.send(Ping())


def test_client_when_error_has_a_payload_then_the_next_reply_is_still_found():
    client = ClientConnection()
    client.send(Ping())
    client.send(GetStream(1))
    client.receive_data(response_frame(3, bytes(100))[:50])

    assert client.next_event() == ErrorReceived(Ping(), 3)
    assert client.next_event() is NEED_DATA
    client.receive_data(bytes(58) + PONG)
    assert client.next_event() == ResponseReceived(GetStream(1), memoryview(b""))


def test_client_when_reply_comes_in_pieces_then_waits_for_all_of_it():
    client = ClientConnection()
    client.send(GetStream(1))
    frame = response_frame(0, bytes(100))

    client.receive_data(frame[:50])
    assert client.next_event() is NEED_DATA
    client.receive_data(frame[50:])
    assert client.next_event() == ResponseReceived(GetStream(1), memoryview(bytes(100)))


def test_client_when_reply_is_above_the_limit_then_fails():
    client = ClientConnection(limits=Limits(response_bytes_max=100))
    client.send(Ping())
    client.receive_data(response_frame(0, bytes(101))[:8])

    with pytest.raises(FrameTooLarge):
        client.next_event()


def test_client_when_reply_is_not_what_was_asked_for_then_decode_says_so():
    client = ClientConnection()
    client.send(Ping())
    client.receive_data(response_frame(0, b"surplus"))
    event = client.next_event()
    assert isinstance(event, ResponseReceived)

    with pytest.raises(RemoteProtocolError):
        event.decode()


# How much the client reads at once


def read_reply(client: ClientConnection, frame: bytes) -> int:
    """Give a client a reply as a socket does that has all of it; return the first space."""
    first, at = 0, 0
    while client.next_event() is NEED_DATA:
        space = client.get_buffer()
        size = min(len(space), len(frame) - at)
        space[:size] = frame[at : at + size]
        first = first or len(space)
        at += size
        client.buffer_updated(size)
    return first


def test_client_when_one_large_reply_follows_the_other_then_each_is_read_at_once():
    client, frame = ClientConnection(), response_frame(0, bytes(500_000))

    spaces = []
    for _ in range(4):
        client.send(Ping())
        spaces.append(read_reply(client, frame))
    copied = client.statistics().copied_bytes

    assert spaces == [CHUNK_BYTES, len(frame), len(frame), len(frame)]
    client.send(Ping())
    read_reply(client, frame)
    assert client.statistics().copied_bytes == copied


def test_client_when_replies_grow_and_shrink_then_every_one_is_whole():
    client = ClientConnection()

    for size in (10, 300_000, 700_000, 20, 1_500_000, 5_000_000, 400_000, 0, 80_000):
        client.send(GetStream("s"))
        frame = response_frame(0, pattern(size))
        at = 0
        while (event := client.next_event()) is NEED_DATA:
            space = client.get_buffer()
            piece = frame[at : at + min(len(space), 200_000)]
            space[: len(piece)] = piece
            at += len(piece)
            client.buffer_updated(len(piece))
        assert isinstance(event, ResponseReceived)
        assert event.payload == frame[8:]


def test_client_when_other_requests_wait_then_reads_no_more_than_a_chunk():
    client = ClientConnection()
    client.send(Ping())
    read_reply(client, response_frame(0, bytes(500_000)))

    client.send(Ping())
    client.send(Ping())

    assert len(client.get_buffer()) == CHUNK_BYTES
    assert len(client.get_buffer(200_000)) == 200_000


def test_client_when_the_last_reply_was_small_then_reads_no_more_than_a_chunk():
    client = ClientConnection()
    for size in (500_000, 5):
        client.send(Ping())
        read_reply(client, response_frame(0, bytes(size)))
    client.send(Ping())

    assert len(client.get_buffer()) == CHUNK_BYTES


def test_rest_when_everything_is_answered_then_another_conversation_may_begin():
    client = ClientConnection()
    seen = [client.is_idle]
    client.send(Ping())
    seen.append(client.is_idle)
    client.receive_data(PONG)
    client.next_event()
    seen.append(client.is_idle)

    assert seen == [True, False, True]


def test_rest_when_bytes_are_left_over_then_there_is_none():
    client = ClientConnection()
    client.send(Ping())
    client.receive_data(PONG + b"\0")
    client.next_event()

    assert not client.is_idle


def test_rest_when_the_server_has_closed_then_there_is_none():
    client = ClientConnection()
    client.receive_eof()

    assert not client.is_idle
