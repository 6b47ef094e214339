"""TLS between two sockets, without a server: what goes in comes out, however it was cut."""

from __future__ import annotations

import socket
import ssl
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_ref_server.net.tls_codec import (
    DECRYPTED_BYTES_MAX,
    RECEIVE_BYTES,
    RECORDS_MAX,
    TlsCodec,
)
from tests.server.net.tls_peer import connect_tls, contexts

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
STORED = bytes(range(256)) * 1200


class Pair:
    """A client and the codec of the server."""

    def __init__(self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        self.peer, self.theirs, self.tls = connect_tls(version)

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.raw.close()
        self.theirs.close()

    def send(self, ciphertext: bytes) -> None:
        """Put ciphertext into the socket of the client."""
        sent = self.peer.raw.send(ciphertext)
        assert sent == len(ciphertext)

    def read(self, space_bytes: int = 1 << 16) -> bytes | None:
        """Read once as the socket server does; None where it would wait for the kernel."""
        space = memoryview(bytearray(space_bytes))
        try:
            return bytes(space[: self.tls.recv_into(space)])
        except BlockingIOError:
            assert not self.tls.has_input, "no later call would read it"
            return None


def read_all(pair: Pair, space_bytes: int = 1 << 16) -> bytes:
    """Read until the kernel has to be waited for."""
    data = b""
    while (piece := pair.read(space_bytes)) is not None:
        assert piece
        data += piece
    return data


@pytest.mark.parametrize("version", VERSIONS)
@given(
    sizes=st.lists(st.integers(1, 40_000), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 20_000), min_size=1, max_size=6),
    space_bytes=st.sampled_from([1, 100, 16_384, 65_536, 1 << 20]),
)
def test_bytes_when_their_ciphertext_is_cut_anywhere_then_arrive_as_they_were(
    version, sizes, cuts, space_bytes
):
    with Pair(version) as pair:
        sent = [STORED[size : 2 * size] for size in sizes]
        ciphertext = b"".join(map(pair.peer.encrypt, sent))
        received, position, number = b"", 0, 0
        while position < len(ciphertext):
            step = cuts[number % len(cuts)]
            if step * 200 < len(ciphertext):
                step = len(ciphertext) // 200
            pair.send(ciphertext[position : position + step])
            position, number = position + step, number + 1
            received += read_all(pair, max(space_bytes, 1 + len(ciphertext) // 500))

        assert received == b"".join(sent)


def test_bytes_when_ciphertext_comes_one_by_one_then_arrive_as_they_were():
    with Pair() as pair:
        for byte in pair.peer.encrypt(b"request"):
            assert pair.read() is None
            pair.send(bytes([byte]))
        assert pair.tls.is_mid_record
        assert pair.read() == b"request"
        assert not pair.tls.is_mid_record


def test_read_when_the_space_is_small_then_says_that_more_is_here():
    with Pair() as pair:
        pair.send(pair.peer.encrypt(b"a" * 100) + pair.peer.encrypt(b"b"))

        assert pair.read(60) == b"a" * 60
        assert pair.tls.has_input, "the kernel gives no notice of it"
        assert pair.read(60) == b"a" * 40 + b"b"
        assert not pair.tls.has_input


def test_read_when_much_has_arrived_then_is_bounded_and_several_records_long():
    with Pair() as pair:
        pair.peer.raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        pair.send(pair.peer.encrypt(STORED))
        pair.send(pair.peer.encrypt(STORED[:100_000]))

        pieces = [pair.read(1 << 20) or b"" for _ in range(2)]

        assert len(pieces[0]) == DECRYPTED_BYTES_MAX
        assert b"".join(pieces) == STORED + STORED[:100_000]


def test_held_bytes_when_records_wait_then_are_never_less_than_what_has_arrived():
    with Pair() as pair:
        ciphertext = pair.peer.encrypt(STORED[:RECEIVE_BYTES])
        pair.send(ciphertext[:-1])
        first = pair.read(100) or b""
        assert len(first) + pair.tls.held_bytes >= RECEIVE_BYTES - 100
        rest = read_all(pair)
        assert len(first + rest) + pair.tls.held_bytes >= RECEIVE_BYTES - 1


def end_with(pair: Pair, ending: str) -> None:
    """Have the client end its input."""
    if ending == "close_notify":
        pair.send(pair.peer.close_notify())
    elif ending == "within a record":
        pair.send(pair.peer.encrypt(b"never whole")[:-3])
        pair.peer.raw.shutdown(socket.SHUT_WR)
    else:
        pair.peer.raw.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ending", ["close_notify", "without a word", "within a record"])
def test_end_when_it_follows_bytes_then_is_told_behind_them(version, ending):
    with Pair(version) as pair:
        pair.send(pair.peer.encrypt(b"last"))
        end_with(pair, ending)

        assert pair.read() == b"last"
        assert pair.read() == b""
        assert not pair.tls.has_input


def test_end_when_told_with_bytes_in_one_packet_then_is_not_forgotten():
    """The kernel has nothing more to give notice of, if the client leaves its socket open."""
    with Pair() as pair:
        pair.send(pair.peer.encrypt(b"last") + pair.peer.close_notify())

        assert pair.read(4) == b"last"
        assert pair.tls.has_input
        assert pair.read(4) == b""
        assert not pair.tls.has_input


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("at", [0, 1, 3, 5, 20, -1])
def test_record_when_any_byte_of_it_is_wrong_then_is_refused_with_an_alert(version, at):
    with Pair(version) as pair:
        pair.send(pair.peer.encrypt(b"good"))
        assert pair.read() == b"good"
        broken = bytearray(pair.peer.encrypt(b"x" * 100))
        broken[at] ^= 0x55
        pair.send(bytes(broken) + bytes(20_000))

        with pytest.raises(ssl.SSLError):
            read_all(pair)
        assert pair.tls.take_ciphertext()


def test_handshake_when_it_is_none_then_is_refused_with_an_alert():
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        theirs.setblocking(False)
        tls = TlsCodec(contexts()[0], theirs)
        ours.send(b"\x16\x03\x01\x00\x05abcde")
        tls.receive()

        with pytest.raises(ssl.SSLError):
            tls.do_handshake()
        assert tls.take_ciphertext()


def test_replies_when_written_then_share_a_record_and_end_with_close_notify():
    with Pair() as pair:
        assert pair.tls.encrypt(b"reply") == 5
        assert pair.tls.write_close()
        assert not pair.tls.write_close()
        pair.peer.feed(pair.tls.take_ciphertext())

        assert pair.peer.tls.read(100) == b"reply"
        assert pair.peer.tls.read(100) == b""
        assert not pair.tls.take_ciphertext()


def test_recv_when_several_records_are_here_then_returns_all_of_them():
    with Pair() as pair:
        pair.send(pair.peer.encrypt(STORED[:30_000]) + pair.peer.encrypt(b"more"))

        assert pair.tls.recv(1 << 16) == STORED[:30_000] + b"more"


def test_read_when_each_record_has_one_byte_then_ends_after_a_bounded_number_of_them():
    with Pair() as pair:
        sent = STORED[: 3 * RECORDS_MAX]
        pair.send(b"".join(pair.peer.encrypt(bytes([byte])) for byte in sent))

        first = pair.read()

        assert first is not None
        assert len(first) <= RECORDS_MAX
        assert first + read_all(pair) == sent
