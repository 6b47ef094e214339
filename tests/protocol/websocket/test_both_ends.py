"""What one end writes the other end reads: both of ours, and ours with the library."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import CloseCode, Opcode
from websockets.protocol import CLOSING, OPEN

from iggy_protocol.websocket import ReplyFramer, RequestFramer, encoder
from tests.protocol.websocket.frames import (
    CUTS,
    ENDS,
    ClientEnd,
    End,
    ServerEnd,
    frames_of,
    pieces_of,
)

PAYLOADS = st.lists(
    st.binary(max_size=200) | st.sampled_from([125, 126, 65_535, 65_536, 70_001]).map(bytes),
    max_size=4,
)


# Ours with ours


@given(requests=PAYLOADS, cuts=CUTS, frame_bytes_max=st.sampled_from([20_000, 1 << 20]))
def test_requests_when_cut_anywhere_then_the_server_reads_what_the_client_wrote(
    requests, cuts, frame_bytes_max
):
    framer, end = RequestFramer(secrets.token_bytes), ServerEnd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "FRAME_BYTES_MAX", frame_bytes_max)
        # As in the product, the frames of a split request are too large for the reused buffer.
        patch.setattr(encoder, "SCRATCH_BYTES_MAX", frame_bytes_max - 1)
        data = b"".join(b"".join(framer.frame([request])) for request in requests)

    assert end.decode(pieces_of(data, cuts)) == b"".join(requests)
    assert not end.decoder.is_ended
    assert not end.decoder.is_mid_frame


@given(payloads=PAYLOADS, cuts=CUTS, frame_bytes_max=st.sampled_from([100, 20_000, 1 << 20]))
def test_replies_when_cut_anywhere_then_the_client_reads_what_the_server_wrote(
    payloads, cuts, frame_bytes_max
):
    replies = [bytes(4) + len(one).to_bytes(4, "little") + one for one in payloads]
    end = ClientEnd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "FRAME_BYTES_MAX", frame_bytes_max)
        data = b"".join(ReplyFramer().frame(b"".join(replies)))

    assert end.decode(pieces_of(data, cuts)) == b"".join(replies)
    assert not end.decoder.is_ended
    assert not end.decoder.is_mid_frame


def test_close_when_one_end_closes_then_the_other_answers_and_both_have_ended():
    client, server = ClientEnd(), ServerEnd()

    client.decoder.close()
    server.decode([client.decoder.close_frame])
    again = client.decoder.close_frame
    client.decoder.close()

    assert client.decoder.is_ended
    assert server.decoder.is_ended
    assert client.decoder.failure == server.decoder.failure == ""
    # 1000 comes back, and nobody says goodbye twice.
    assert server.decoder.close_frame == b"\x88\x02\x03\xe8"
    assert client.decoder.close_frame == again


# Ours with the library


@pytest.mark.parametrize("make_end", ENDS)
@given(messages=PAYLOADS, cuts=CUTS)
def test_messages_when_the_library_writes_them_then_are_read(make_end, messages, cuts):
    end = make_end()
    for number, message in enumerate(messages):
        end.peer.send_ping(bytes([number]))
        end.peer.send_binary(message[:100], fin=False)
        end.peer.send_continuation(message[100:], fin=True)
        end.peer.send_binary(message)

    received = end.decode(pieces_of(b"".join(end.peer.data_to_send()), cuts))

    assert received == b"".join(message * 2 for message in messages)
    if messages:
        (pong,) = frames_of(end.peer, end.decoder.pong)
        assert (pong.opcode, bytes(pong.data)) == (Opcode.PONG, bytes([len(messages) - 1]))


@pytest.mark.parametrize(
    ("make_end", "code"),
    [(ServerEnd, CloseCode.GOING_AWAY), (ClientEnd, CloseCode.NORMAL_CLOSURE)],
)
def test_close_when_ours_then_the_library_reads_the_code_and_answers(make_end, code):
    end: End = make_end()

    end.decoder.close()

    assert end.sent_close_code() == code
    assert end.peer.state is CLOSING
    end.decode([answer for answer in end.peer.data_to_send() if answer])
    assert end.decoder.is_ended
    assert not end.decoder.failure


@pytest.mark.parametrize("code", [None, CloseCode.NORMAL_CLOSURE, 4000])
@pytest.mark.parametrize("make_end", ENDS)
def test_close_when_of_the_library_then_is_answered_with_its_code(make_end, code):
    end = make_end()
    end.peer.send_binary(b"last")
    end.peer.send_close(code)

    received = end.decode([b"".join(end.peer.data_to_send())])

    assert received == b"last"
    assert end.decoder.is_ended
    assert not end.decoder.failure
    assert end.sent_close_code() == (code or CloseCode.NO_STATUS_RCVD)


@pytest.mark.parametrize("make_end", ENDS)
def test_failure_when_called_then_the_library_is_told_the_reason(make_end):
    end = make_end()

    end.decoder.fail(CloseCode.POLICY_VIOLATION, "too many of them")

    assert end.sent_close_code() == CloseCode.POLICY_VIOLATION
    assert end.peer.close_rcvd.reason == end.decoder.failure == "too many of them"


@pytest.mark.parametrize("make_end", ENDS)
def test_pongs_when_nobody_asked_then_change_nothing(make_end):
    end = make_end()
    end.peer.send_pong(b"unasked")

    assert end.decode([b"".join(end.peer.data_to_send()), end.frame(b"on")]) == b"on"
    assert end.decoder.pong is None
    assert not end.decoder.is_ended
    assert end.peer.state is OPEN
