"""The replayer itself, against a scripted peer: it accepts what is equal and sees what is not."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest

from iggy_protocol import MessageBatch, NewMessage, encode_messages, stamp
from tests.server.replay.plausibility import now_us
from tests.server.replay.player import Player
from tests.server.replay.recording import (
    RAW,
    Event,
    Exchange,
    Mask,
    Patch,
    Recording,
    read_recording,
)

PING = bytes.fromhex("0400000001000000")
OK = bytes(8)
REFUSED = bytes.fromhex("0300000000000000")


class ScriptedServer:
    """Answers the nth piece it receives with the nth reply; None closes the connection."""

    def __init__(self, *replies):
        self._replies = replies
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self.received = []
        self.acts = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        connection, _ = self._listener.accept()
        with connection:
            for reply in self._replies:
                data = connection.recv(65536)
                if not data or reply is None:
                    return
                self.received.append(data)
                connection.sendall(reply)
            while connection.recv(65536):
                continue

    def start(self):
        self.acts.append("start")

    def stop(self):
        self.acts.append("stop")

    def kill(self):
        self.acts.append("kill")

    def end(self):
        self._thread.join(timeout=5)
        self._listener.close()


@contextmanager
def scripted(*replies):
    server = ScriptedServer(*replies)
    try:
        yield server
    finally:
        server.end()


def exchange(line, *, request=PING, reply=OK, masks=(), patches=(), **changes):
    fields = {
        "code": 1,
        "is_unasked": False,
        "is_send_only": False,
        "is_silent": reply is None,
        "compare": "exact",
        "note": "",
        **changes,
    }
    return Exchange(
        line=line,
        connection=0,
        request=request,
        reply=reply,
        masks=masks,
        patches=patches,
        **fields,
    )


def differing(server, *lines, expected=()):
    """Play lines on one connection and return the numbers of those that differ."""
    recording = Recording("made-up", 1, {}, (), (Event(2, 0, "connect"), *lines))
    found = Player(server, expected, started_us=now_us()).play(recording)
    return [difference.line for difference in found]


def test_player_when_the_reply_is_equal_then_nothing_differs():
    with scripted(OK) as server:
        assert differing(server, exchange(3), Event(4, 0, "close")) == []


def test_player_when_the_status_differs_then_the_line_is_named():
    with scripted(REFUSED, OK) as server:
        assert differing(server, exchange(3), exchange(4)) == [3]


def test_player_when_masked_bytes_differ_then_they_do_not_count():
    recorded = bytes(4) + b"\4\0\0\0" + b"abcd"
    masks = (Mask(9, 11, "whatever"),)
    with scripted(recorded[:8] + b"aXYd", recorded[:8] + b"XbcY") as server:
        lines = [exchange(n, reply=recorded, masks=masks, code=None) for n in (3, 4)]
        assert differing(server, *lines) == [4]


def test_player_when_the_length_differs_then_the_line_is_named():
    with scripted(bytes(4) + b"\2\0\0\0ab") as server:
        assert differing(server, exchange(3, reply=bytes(4) + b"\1\0\0\0a")) == [3]


@pytest.mark.parametrize(
    ("compare", "differ"), [("exact", [3]), ("prefix:9", []), ("status", []), ("any", [])]
)
def test_player_when_only_a_part_counts_then_the_rest_does_not(compare, differ):
    with scripted(bytes(4) + b"\3\0\0\0aXY") as server:
        line = exchange(3, reply=bytes(4) + b"\3\0\0\0abc", compare=compare, code=None)
        assert differing(server, line) == differ


def test_player_when_silence_was_recorded_then_a_reply_differs():
    with scripted(OK, b"") as server:
        assert differing(server, exchange(3, reply=None), exchange(4, reply=None)) == [3]


def test_player_when_the_server_hangs_up_then_lines_that_wait_for_it_agree():
    with scripted(None) as server:
        lines = [exchange(3, is_send_only=True), Event(4, 0, "server_closed"), exchange(5)]
        assert differing(server, *lines) == [5]


def test_player_when_an_unasked_frame_came_then_the_next_line_differs():
    with scripted(OK + OK, OK) as server:
        assert differing(server, exchange(3), Event(4, None, "sleep", 0.05), exchange(5)) == [5]


def test_player_when_unasked_frames_were_recorded_then_they_are_read():
    with scripted(OK + OK + REFUSED) as server:
        unasked = [exchange(n, request=b"", is_unasked=True) for n in (4, 5)]
        assert differing(server, exchange(3), *unasked) == [5]


def test_player_when_a_request_is_patched_then_it_carries_bytes_of_this_run():
    token = bytes(4) + b"\2\0\0\0zz"
    with scripted(token, OK) as server:
        first = exchange(3, reply=token, code=None)
        second = exchange(4, request=b"\6\0\0\0\1\0\0\0aa", patches=(Patch(8, 10, 3, 8, 10),))
        assert differing(server, first, second) == []
        assert server.received[1].endswith(b"zz")


def test_player_when_the_server_is_stopped_and_killed_then_it_is():
    with scripted() as server:
        names = ("server_stop", "server_start", "server_kill")
        assert differing(server, *(Event(n, None, name) for n, name in enumerate(names, 3))) == []
        assert server.acts == ["stop", "start", "kill"]


def polled(timestamp_us, message_id):
    """Make a poll reply of one stored message."""
    body = encode_messages(b"", [NewMessage(b"m000", id=message_id)], origin_timestamp_us=1)
    message = bytearray(body[16:])
    stamp(message, base_offset=0, timestamp_us=timestamp_us, random=bytes(16))
    assert len(MessageBatch(message)) == 1
    payload = bytes(12) + b"\1\0\0\0" + message
    return bytes(4) + len(payload).to_bytes(4, "little") + payload


POLL_MASKS = (Mask(24, 32, "checksum"), Mask(56, 64, "server timestamp"))


def test_player_when_a_masked_time_is_before_the_run_then_the_line_differs():
    recorded, fine, old = polled(5, 1), polled(now_us() + 500_000, 1), polled(6, 1)
    with scripted(old, fine) as server:
        lines = [exchange(n, reply=recorded, masks=POLL_MASKS, code=100) for n in (3, 4)]
        # The second time lies a little ahead of the clock, and that makes no sense either.
        assert differing(server, *lines) == [3, 4]


def test_player_when_a_checksum_does_not_fit_then_the_line_differs():
    recorded = polled(5, 1)
    started_us = now_us()
    fine = polled(started_us + 1, 1)
    damaged = fine[:24] + bytes(8) + fine[32:]
    with scripted(damaged, fine) as server:
        lines = [exchange(n, reply=recorded, masks=POLL_MASKS, code=100) for n in (3, 4)]
        recording = Recording("made-up", 1, {}, (), (Event(2, 0, "connect"), *lines))
        found = Player(server, (), started_us).play(recording)
    assert [difference.line for difference in found] == [3]


def test_recordings_when_read_then_every_line_is_understood():
    names = {
        line.name for name in RAW for line in read_recording(name).lines if isinstance(line, Event)
    }
    assert names == {
        "connect",
        "close",
        "server_closed",
        "sleep",
        "server_stop",
        "server_kill",
        "server_start",
    }
    assert len(RAW) == 39
