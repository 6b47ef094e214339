"""Both QUIC cores against each other, without a socket and without a clock."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import trustme
from aioquic._buffer import Buffer
from aioquic.quic import events
from aioquic.quic.packet import encode_quic_retry, pull_quic_header
from aioquic.quic.packet_builder import QuicPacketBuilder

from iggy_protocol.quic import QuicClientCore, QuicServerCore
from tests.certificates import Certificate
from tests.protocol.quic_pair import (
    SERVER,
    QuicPair,
    client_configuration,
    destination_id,
    reset_token,
    server_configuration,
)

if TYPE_CHECKING:
    from typing import Any

ACK_DELAY_S = 0.01
WINDOW = 16_384


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.make(trustme.CA(), tmp_path_factory.mktemp("quic"), ("localhost",))


@pytest.fixture
def pair(certificate: Certificate) -> QuicPair:
    return QuicPair.connected(server_configuration(certificate))


# Handshake and streams


def test_handshake_when_done_then_both_ends_say_so(pair):
    assert pair.count(pair.client, events.HandshakeCompleted) == 1
    assert pair.count(pair.server, events.HandshakeCompleted) == 1
    assert pair.server.has_decrypted
    assert pair.client.termination is pair.server.termination is None


def test_first_datagram_when_it_is_no_packet_then_the_server_has_decrypted_nothing(certificate):
    pair = QuicPair(server_configuration(certificate))
    pair.deliver(pair.server, [bytes(1200)])

    assert not pair.server.has_decrypted


def test_streams_when_both_ends_write_then_each_has_what_the_other_wrote(pair):
    for stream_id in (0, 4):
        pair.client.send_stream_data(stream_id, b"request %d" % stream_id, end_stream=True)
    pair.exchange()
    pair.server.send_stream_data(4, bytes(50_000), end_stream=True)
    pair.settle()

    assert pair.received(pair.server, 0) == b"request 0"
    assert pair.received(pair.server, 4) == b"request 4"
    assert pair.received(pair.client, 4) == bytes(50_000)


def test_request_when_the_handshake_is_not_confirmed_then_is_sent_and_arrives(certificate):
    pair = QuicPair(server_configuration(certificate))
    pair.deliver(pair.server, pair.first)
    # The amplification limit holds the rest of a long certificate back until the client answers.
    while not pair.count(pair.client, events.HandshakeCompleted):
        pair.deliver(pair.client, pair.written(pair.server))
        if not pair.count(pair.client, events.HandshakeCompleted):
            pair.deliver(pair.server, pair.written(pair.client))
    # A pacer holds everything back at the moment of its first measurement.
    pair.now += 0.01
    pair.client.send_stream_data(0, b"early")
    assert not pair.client.has_written_all()
    pair.deliver(pair.server, pair.written(pair.client))

    assert pair.received(pair.server) == b"early"


def test_retry_when_the_client_repeats_its_hello_with_the_token_then_connects(certificate):
    pair = QuicPair(server_configuration(certificate))
    header = pull_quic_header(Buffer(data=pair.first[0]), host_cid_length=8)
    assert header.version is not None
    retry_cid = b"retry id"
    retry = encode_quic_retry(
        header.version, retry_cid, header.source_cid, header.destination_cid, b"token"
    )
    pair.deliver(pair.client, [retry])
    again = pair.written(pair.client)
    assert destination_id(again[0]) == retry_cid

    pair.events.pop(pair.server)
    pair.server = QuicServerCore(
        server_configuration(certificate),
        streams_max=16,
        original_cid=header.destination_cid,
        retry_cid=retry_cid,
        reset_token=reset_token,
    )
    pair.events[pair.server] = []
    pair.deliver(pair.server, again)
    pair.settle()

    assert pair.count(pair.client, events.HandshakeCompleted) == 1


# The size of datagrams


class SmallClientCore(QuicClientCore):
    """Announces that it takes datagrams of 1400 bytes at most."""

    def _serialize_transport_parameters(self) -> bytes:
        announced: bytes = super()._serialize_transport_parameters()
        return announced + bytes.fromhex("03 02 4578")


def largest_datagram(pair: QuicPair, datagram_bytes: int) -> int:
    """Return the size of what the server sends, as soon as it may send so much."""
    pair.server.set_datagram_size(datagram_bytes)
    pair.client.send_stream_data(0, b"request")
    pair.exchange()
    pair.server.send_stream_data(0, bytes(20_000))
    return max(map(len, pair.written(pair.server)))


def test_datagrams_when_the_handshake_is_under_way_then_have_the_smallest_size(certificate):
    pair = QuicPair(server_configuration(certificate))
    pair.deliver(pair.server, pair.first)

    assert {len(data) for data in (*pair.first, *pair.written(pair.server))} == {1200}


@pytest.mark.parametrize(("wanted", "size"), [(8_000, 8_000), (1_200, 1_200), (100, 1_200)])
def test_datagrams_when_a_size_is_set_then_have_it_but_are_never_smaller(pair, wanted, size):
    assert largest_datagram(pair, wanted) == size


def test_datagrams_when_the_peer_takes_less_then_have_its_size(certificate):
    pair = QuicPair.connected(server_configuration(certificate), client_class=SmallClientCore)

    assert largest_datagram(pair, 8_000) == 1_400


def test_datagrams_when_they_grow_then_as_many_of_them_may_be_under_way(pair):
    pair.server.set_datagram_size(8_000)

    assert pair.server._loss.congestion_window >= 10 * 8_000


# Acknowledgements


def request_datagrams(pair: QuicPair, count: int) -> list[bytes]:
    """Have the client write so many datagrams with a request each."""
    made = []
    for _ in range(count):
        pair.client.send_stream_data(pair.client.get_next_available_stream_id(), b"request")
        made += pair.written(pair.client)
    assert len(made) == count
    return made


def acknowledging_pair(pair: QuicPair) -> QuicPair:
    pair.server.set_datagram_size(1_200)
    pair.client.set_datagram_size(1_200)
    return pair


def test_acknowledgement_when_one_datagram_came_then_leaves_after_the_delay(pair):
    acknowledging_pair(pair).deliver(pair.server, request_datagrams(pair, 1))
    pair.server.schedule_acks(1, pair.now)
    assert pair.written(pair.server) == []
    due_at = pair.server.get_timer()
    assert due_at == pytest.approx(pair.now + ACK_DELAY_S)

    pair.run_timers(due_at)
    assert len(pair.written(pair.server)) == 1


def test_acknowledgement_when_two_datagrams_came_then_leaves_at_once(pair):
    acknowledging_pair(pair)
    for expected in (0, 1):
        pair.deliver(pair.server, request_datagrams(pair, 1))
        pair.server.schedule_acks(1, pair.now)
        assert len(pair.written(pair.server)) == expected

    # The count has begun again.
    pair.deliver(pair.server, request_datagrams(pair, 1))
    pair.server.schedule_acks(1, pair.now)
    assert pair.written(pair.server) == []


def test_acknowledgement_when_a_reply_is_written_then_leaves_with_it(pair):
    acknowledging_pair(pair).deliver(pair.server, request_datagrams(pair, 1))
    pair.server.send_stream_data(0, b"reply")
    pair.server.schedule_acks(1, pair.now, has_written=True)
    pair.deliver(pair.client, pair.written(pair.server))

    assert pair.client._loss.bytes_in_flight == 0


def test_acknowledgement_when_nothing_came_then_nothing_is_sent(pair):
    unconnected = QuicClientCore(client_configuration())
    unconnected.acknowledge(0.0)
    unconnected.connect(SERVER, 0.0)
    assert len(unconnected.datagrams_to_send(0.0)) == 1

    pair.server.acknowledge(pair.now)
    assert pair.written(pair.server) == []


def test_client_when_only_an_acknowledgement_is_left_then_may_wait_to_send(pair):
    assert not QuicClientCore(client_configuration()).may_wait_to_send(0.0)
    acknowledging_pair(pair)
    assert not pair.client.may_wait_to_send(pair.now)

    pair.deliver(pair.server, request_datagrams(pair, 1))
    pair.server.send_stream_data(0, b"reply")
    pair.deliver(pair.client, pair.written(pair.server))
    assert pair.client.may_wait_to_send(pair.now)
    assert not pair.client.may_wait_to_send(pair.now + ACK_DELAY_S)

    pair.client.send_stream_data(0, b"more")
    assert not pair.client.may_wait_to_send(pair.now)


def test_client_when_the_connection_is_closed_then_may_not_wait_to_send(pair):
    acknowledging_pair(pair).deliver(pair.server, request_datagrams(pair, 1))
    pair.server.send_stream_data(0, b"reply")
    replies = pair.written(pair.server)
    pair.server.close()
    pair.deliver(pair.client, [*replies, *pair.written(pair.server)])

    assert not pair.client.may_wait_to_send(pair.now)


# Flow control


def windowed_pair(certificate: Certificate, **settings: Any) -> QuicPair:
    return QuicPair.connected(server_configuration(certificate, **settings))


def test_stream_when_it_is_paused_then_gets_no_credit_until_it_goes_on(certificate):
    pair = windowed_pair(certificate, max_stream_data=WINDOW)
    pair.server.paused_streams.add(0)
    pair.client.send_stream_data(0, bytes(3 * WINDOW))
    pair.client.send_stream_data(4, bytes(3 * WINDOW))
    pair.settle()
    assert len(pair.received(pair.server, 0)) == WINDOW
    assert len(pair.received(pair.server, 4)) == 3 * WINDOW

    pair.server.paused_streams.clear()
    pair.settle()
    assert len(pair.received(pair.server, 0)) == 3 * WINDOW


def test_window_when_it_does_not_slide_then_no_more_than_one_arrives(certificate):
    pair = windowed_pair(certificate, max_data=WINDOW)
    pair.client.send_stream_data(0, bytes(3 * WINDOW))
    pair.settle(slides=False)

    assert len(pair.received(pair.server)) == WINDOW


def test_window_when_it_slides_then_all_arrives_and_it_never_grows(certificate):
    pair = windowed_pair(certificate, max_data=WINDOW)
    pair.client.send_stream_data(0, bytes(20 * WINDOW))
    for _ in range(100):
        pair.exchange()
        pair.run_timers(pair.now + 0.011)
        limit = pair.server._local_max_data
        assert WINDOW // 2 <= limit.value - limit.used <= WINDOW

    assert len(pair.received(pair.server)) == 20 * WINDOW


def open_streams(pair: QuicPair) -> int:
    """Open as many streams as the server allows; return how many."""
    opened = 0
    while pair.client.may_open_stream:
        pair.client.send_stream_data(pair.client.get_next_available_stream_id(), b"request")
        opened += 1
    return opened


def test_streams_when_the_client_logs_in_then_more_may_be_open(certificate):
    pair = QuicPair.connected(server_configuration(certificate), streams_max=2)
    assert open_streams(pair) == 2
    pair.settle()
    assert open_streams(pair) == 0

    pair.server.allow_streams(3)
    pair.settle()
    assert open_streams(pair) == 3


@pytest.mark.parametrize("is_unidirectional", [False, True])
def test_streams_when_the_server_opens_one_then_nothing_of_it_is_sent(pair, is_unidirectional):
    stream_id = pair.server.get_next_available_stream_id(is_unidirectional)
    pair.server.send_stream_data(stream_id, b"unwanted")
    pair.settle()

    assert pair.received(pair.client, stream_id) == b""
    assert pair.client.termination is None


# What is left of streams


def test_stream_when_all_was_sent_once_then_is_flushed(certificate):
    pair = windowed_pair(certificate, max_stream_data=WINDOW)
    pair.server.paused_streams.add(0)
    pair.client.send_stream_data(0, bytes(2 * WINDOW))
    pair.settle()
    assert not pair.client.is_flushed(0)

    pair.server.paused_streams.clear()
    pair.settle()
    assert pair.client.is_flushed(0)
    assert pair.client.is_flushed(400)


def test_reply_when_it_is_not_acknowledged_then_is_undelivered_and_held(pair):
    pair.client.send_stream_data(0, b"request", end_stream=True)
    pair.exchange()
    assert pair.server.undelivered == (0, 0)
    pair.server.send_stream_data(0, b"reply", end_stream=True)
    lost = pair.written(pair.server)

    assert lost
    assert pair.server.undelivered == (1, 5)
    assert pair.server.undelivered_bytes(0) == pair.server.buffered_bytes == 5
    assert pair.server.undelivered_bytes(400) == 0

    pair.run_timers(pair.now + 1.0)
    pair.settle()
    assert pair.received(pair.client) == b"reply"
    assert pair.server.undelivered == (0, 0)
    assert pair.server.buffered_bytes == 0


def test_request_when_it_comes_out_of_order_then_is_held(pair):
    pair.client.send_stream_data(0, bytes(2_000))
    first, *later = pair.written(pair.client)
    pair.deliver(pair.server, later)
    assert pair.server.buffered_bytes > 0

    pair.deliver(pair.server, [first])
    assert pair.server.buffered_bytes == 0


def test_stream_when_the_client_cancels_it_then_the_server_is_told_of_both_directions(pair):
    pair.client.send_stream_data(0, b"request")
    pair.exchange()
    pair.client.cancel_stream(0)
    pair.settle()

    assert pair.count(pair.server, events.StreamReset) == 1
    assert pair.count(pair.server, events.StopSendingReceived) == 1


def test_stream_when_its_reply_has_come_then_cancelling_resets_the_request_alone(pair):
    pair.client.send_stream_data(0, b"request")
    pair.exchange()
    pair.server.send_stream_data(0, b"reply", end_stream=True)
    pair.exchange()
    pair.client.cancel_stream(0)
    pair.settle()

    assert pair.count(pair.server, events.StreamReset) == 1
    assert pair.count(pair.server, events.StopSendingReceived) == 0


def test_stream_when_it_is_not_known_then_cancelling_does_nothing(pair):
    pair.client.cancel_stream(0)

    assert pair.written(pair.client) == []


# The pacer


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every packet that the library starts to build."""
    packets: list[object] = []
    start_packet = QuicPacketBuilder.start_packet

    def counted(builder: QuicPacketBuilder, *given: Any) -> None:
        packets.append(builder)
        start_packet(builder, *given)

    monkeypatch.setattr(QuicPacketBuilder, "start_packet", counted)
    return packets


@pytest.mark.parametrize(("size", "count"), [(100, 1), (2_000, 2)])
def test_packets_when_all_is_written_then_no_further_one_is_started(pair, started, size, count):
    started.clear()
    pair.client.send_stream_data(0, bytes(size), end_stream=True)

    assert len(pair.written(pair.client)) == len(started) == count
    assert pair.client.is_flushed(0)
    # A pacer that has stopped is no reason to wake up at once.
    assert pair.client.get_timer() > pair.now


def test_packets_when_the_pacer_holds_them_back_then_the_timer_says_until_when(pair):
    pair.client.send_stream_data(0, bytes(100_000))
    sent = itertools.takewhile(bool, (pair.written(pair.client) for _ in range(10)))
    assert sum(map(len, sent)) < 100_000 // 1_200
    assert not pair.client.is_flushed(0)

    assert pair.client.get_timer() > pair.now

    for _ in range(20):
        pair.settle()
    assert len(pair.received(pair.server)) == 100_000
