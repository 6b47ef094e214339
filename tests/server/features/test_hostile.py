"""Hostile input: what makes no sense is refused, and the connection stays in step or closes."""

from __future__ import annotations

import pytest

from iggy_protocol import (
    ConsumerIdentity,
    CreateStream,
    GetStreams,
    LoginUser,
    NewMessage,
    Partitioning,
    Ping,
    PollingStrategy,
    PollMessages,
    SendMessages,
    StatusCode,
)
from tests.server.features.topic_calls import frame_of, make_topic
from tests.server.replay.raw_peer import Absence, RawPeer

OK = bytes(8)
CONTROL_BYTES_MAX = 10_485_760


@pytest.fixture
def peer(server):
    """A raw connection, logged in as root."""
    raw = RawPeer(server.address)
    raw.send(frame_of(LoginUser("iggy", "iggy")))
    assert isinstance(raw.read_frame(5), bytes)
    yield raw
    raw.close()


def frame(code, payload, *, length=None):
    size = len(payload) + 4 if length is None else length
    return size.to_bytes(4, "little") + code.to_bytes(4, "little") + payload


def status(reply):
    assert isinstance(reply, bytes)
    return int.from_bytes(reply[:4], "little")


def in_step(peer):
    peer.send(frame_of(Ping()))
    return peer.read_frame(5) == OK


def test_send_when_refused_unread_then_its_payload_is_drained_and_the_next_request_answered(
    server,
):
    anonymous = RawPeer(server.address)
    batch = [NewMessage(b"x" * 200) for _ in range(100)]
    send = frame_of(SendMessages("s", "t", Partitioning.partition(0), batch))

    anonymous.send(send)
    assert status(anonymous.read_frame(5)) == StatusCode.UNAUTHENTICATED
    assert in_step(anonymous)
    assert anonymous.read_frame(0.05) is Absence.SILENCE
    anonymous.close()


@pytest.mark.parametrize("cut", [1, 3, 4, 8, 20, 40, 100])
def test_send_when_its_body_is_cut_anywhere_then_it_is_refused_and_the_next_request_answered(
    peer, cut
):
    send = frame_of(SendMessages("s", "t", Partitioning.partition(0), [b"message"]))
    body = send[8:]

    peer.send(frame(101, body[: max(0, len(body) - cut)]))

    assert status(peer.read_frame(5)) != 0
    assert in_step(peer)


def test_control_frame_when_oversized_then_it_is_refused_and_the_connection_closed(peer):
    peer.send(frame(202, b"", length=CONTROL_BYTES_MAX + 5))

    assert status(peer.read_frame(5)) == StatusCode.INVALID_COMMAND
    assert peer.read_frame(5) is Absence.CLOSED


def test_frame_when_too_short_for_its_code_then_it_is_refused_and_the_next_answered(peer):
    for length in range(4):
        peer.send(frame(1, b"", length=length))
        assert status(peer.read_frame(5)) == StatusCode.INVALID_COMMAND
    assert in_step(peer)


def test_frames_when_they_come_byte_by_byte_then_they_are_answered_once(peer):
    for byte in frame_of(GetStreams()):
        peer.send(bytes([byte]))

    assert status(peer.read_frame(5)) == 0
    assert peer.read_frame(0.05) is Absence.SILENCE


def test_frames_when_many_come_in_one_piece_then_they_are_answered_in_order(peer):
    peer.send(frame_of(Ping()) * 500 + frame(9999, b"abc") + frame_of(Ping()) * 500)

    statuses = [status(peer.read_frame(5)) for _ in range(1001)]

    assert statuses == [0] * 500 + [StatusCode.INVALID_COMMAND] + [0] * 500


def test_client_when_it_vanishes_mid_frame_then_the_others_do_not_notice(server, root):
    for _ in range(20):
        raw = RawPeer(server.address)
        raw.send(frame_of(CreateStream("never"))[:-2])
        raw.close()

    assert root.ask(GetStreams()) is not None
    assert "never" not in [stream.name for stream in root.ask(GetStreams())]


def test_keyed_send_when_the_topic_has_no_partitions_then_it_is_refused_and_the_server_lives(root):
    topic = make_topic(root, partitions=0)

    for where in (Partitioning.key("k"), Partitioning.balanced(), Partitioning.partition(0)):
        assert root.refusal(SendMessages(topic.stream, topic.topic, where, [b"x"])) != 0
    assert root.ask(GetStreams())


def test_reader_when_it_never_reads_then_others_are_served(server, root):
    topic = make_topic(root)
    topic.send(*(b"x" * 100_000 for _ in range(50)))
    lazy = server.login()
    poll = PollMessages(
        ConsumerIdentity.single(1), topic.stream, topic.topic, PollingStrategy.first(), 50, 0
    )
    lazy.send(*[poll] * 40)

    for _ in range(20):
        assert topic.poll(count=1).messages_count == 1
    # When it reads at last, everything is there.
    assert all(len(lazy.receive().messages) == 50 for _ in range(40))
