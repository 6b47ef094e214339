"""Recorded bytes cut in every way, real servers' habits with bad frames, and plain garbage."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iggy_protocol.base_connection import Limits
from iggy_protocol.commands.system import Ping
from iggy_protocol.connection import ClientConnection, ServerConnection
from iggy_protocol.errors import RemoteProtocolError
from iggy_protocol.events import (
    NEED_DATA,
    ErrorReceived,
    RequestReceived,
    RequestRefused,
)
from iggy_protocol.model.user import Identity
from iggy_protocol.receive_buffer import CHUNK_BYTES
from iggy_protocol.registry import COMMANDS, decode_reply, decode_request
from tests.protocol import fuzz_connection
from tests.protocol.frame_oracle import (
    CUTTERS,
    FEEDERS,
    RECORDING_NAMES,
    SEND_MESSAGES,
    Recorded,
    drain,
    hear,
    joined,
    random_pieces,
    recorded_connections,
    recording,
    reply_of,
    request_frame,
    requests_in,
    response_frame,
    responses_in,
)

if TYPE_CHECKING:
    from iggy_protocol.layout import Buffer
    from iggy_protocol.registry import Command

# Recordings in which frames themselves are the subject; for the others one way to go through them
# byte by byte is enough, and for the longest of them only when there is time.
ABOUT_FRAMES = ("malformed-frames", "pipelined-mix", "graceful-stop", "truncated-every-command")
LONG = ("permissions-global", "poll-across-segments", "retention-size", "snapshot", "topics-crud")
WAYS = [
    pytest.param(
        name,
        cut,
        feed,
        id=f"{name}-{cut}-{feed}",
        marks=pytest.mark.slow if cut == "byte-by-byte" and name in LONG else (),
    )
    for name in RECORDING_NAMES
    for cut in CUTTERS
    for feed in FEEDERS
    if cut != "byte-by-byte" or feed == "bytes" or name in ABOUT_FRAMES
]

# Recorded connections


@pytest.mark.parametrize(("name", "cut", "feed"), WAYS)
def test_server_when_a_recording_is_cut_in_any_way_then_hears_the_same(name, cut, feed):
    for recorded in recorded_connections(name):
        requests = b"".join(recorded.requests)
        expected = requests_in(requests)

        told = hear(ServerConnection(), CUTTERS[cut](requests), FEEDERS[feed])

        assert told == expected, recorded.name


@pytest.mark.parametrize(("name", "cut", "feed"), WAYS)
def test_client_when_a_recording_is_cut_in_any_way_then_hears_the_same(name, cut, feed):
    for recorded in recorded_connections(name):
        commands = [Ping() for reply in recorded.replies if reply]
        replies = b"".join(recorded.replies)
        client = ClientConnection()
        for command in commands:
            client.send(command)

        told = hear(client, CUTTERS[cut](replies), FEEDERS[feed])

        assert told == responses_in(replies, commands), recorded.name
        assert told[-1] == ("closed", False)


def answer_all(server: ServerConnection) -> bytes:
    """Answer as a server that knows pings and one login."""
    replies = b""
    while (event := server.next_event()) is not NEED_DATA:
        assert isinstance(event, RequestReceived | RequestRefused)
        replies += joined(answer(server, event))
    return replies


def answer(server: ServerConnection, event: RequestReceived | RequestRefused) -> list[Buffer]:
    """Answer one request."""
    if isinstance(event, RequestRefused):
        return server.send_error(event.error.status)
    try:
        command = event.decode()
    except RemoteProtocolError as error:
        return server.send_error(error.status)
    return server.send(None if isinstance(command, Ping) else Identity(0))


def malformed(number: int) -> Recorded:
    """Return one connection of the recording about malformed frames."""
    return recorded_connections("malformed-frames")[number]


def test_malformed_frames_when_replayed_then_answers_are_those_of_the_real_server():
    server, pending = ServerConnection(), b""

    for request, reply in zip(malformed(0).requests, malformed(0).replies, strict=True):
        if request:
            assert pending == b""
            server.receive_data(request)
            pending = answer_all(server)
        assert pending.startswith(reply)
        pending = pending[len(reply) :]

    assert pending == b""
    assert server.statistics().frames_in == sum(map(bool, malformed(0).replies))


def test_malformed_frames_when_control_frame_is_oversized_then_answered_and_given_up():
    server = ServerConnection()
    login, unknown, oversized = malformed(1).requests[:3]
    server.receive_data(login + unknown)
    assert answer_all(server) == b"".join(malformed(1).replies[:2])

    server.receive_data(oversized + request_frame(1))

    with pytest.raises(RemoteProtocolError) as caught:
        server.next_event()
    assert joined(server.send_error(caught.value.status)) == malformed(1).replies[2]
    assert drain(server) == [("failed", "FrameTooLarge")]


def test_malformed_frames_when_peer_closes_inside_one_then_it_is_told():
    assert hear(ServerConnection(), malformed(2).requests) == [("closed", True)]


def command_of(event: RequestReceived) -> Command[Any]:
    """Decode a request; a ping stands for one that is refused."""
    try:
        return event.decode()
    except RemoteProtocolError:
        return Ping()


def test_pipelined_mix_when_replayed_then_replies_come_in_order():
    (recorded,) = recorded_connections("pipelined-mix")
    server, client, commands = ServerConnection(), ClientConnection(), []
    server.receive_data(b"".join(recorded.requests))
    while isinstance(event := server.next_event(), RequestReceived):
        commands.append(command_of(event))
        client.send(commands[-1])

    client.receive_data(b"".join(recorded.replies))

    told = drain(client)
    statuses = [told_status if kind == "error" else 0 for kind, _, told_status in told]
    assert [command for _, command, _ in told] == commands
    assert statuses == [entry["status"] for entry in recording("pipelined-mix") if entry["reply"]]
    assert (len(commands), client.outstanding) == (13, 0)


def test_graceful_stop_when_replayed_then_the_push_blames_no_command():
    for recorded in recorded_connections("graceful-stop"):
        client = ClientConnection()
        for _ in filter(None, recorded.requests):
            client.send(Ping())
        client.receive_data(b"".join(recorded.replies))
        client.receive_eof()

        told = drain(client)

        assert told[-2:] == [("error", None, 8), ("closed", False)]
        assert client.outstanding == 0


def test_graceful_stop_when_told_by_our_server_then_bytes_are_those_of_the_real_one():
    recorded = recorded_connections("graceful-stop")[0]

    assert joined(ServerConnection().push_error(8)) == recorded.replies[-1]


def test_truncated_commands_when_decoded_then_status_is_that_of_the_real_server():
    server, checked = ServerConnection(), 0
    for entry in recording("truncated-every-command"):
        server.receive_data(bytes.fromhex(entry["request"]))
        event = server.next_event()
        assert isinstance(event, RequestReceived)
        if "cut to" not in entry.get("note", "") or event.code == SEND_MESSAGES:
            server.send_payload([])
            continue
        with pytest.raises(RemoteProtocolError) as caught:
            event.decode()
        assert joined(server.send_error(caught.value.status)) == reply_of(entry)
        checked += 1

    assert checked > 100


# Garbage

FRAMES = st.one_of(
    st.builds(request_frame, st.integers(0, 2**32 - 1), st.binary(max_size=300)),
    st.builds(request_frame, st.sampled_from(sorted(COMMANDS)), st.binary(max_size=60)),
    st.builds(response_frame, st.sampled_from([0, 0, 3, 8]), st.binary(max_size=300)),
    st.binary(max_size=30),
    st.just(request_frame(SEND_MESSAGES, bytes(2_000))),
)
STREAMS = st.lists(FRAMES, max_size=12).map(b"".join)
LIMITS = Limits(send_bytes_max=1_000)


@given(STREAMS, st.randoms(use_true_random=False), st.sampled_from(sorted(FEEDERS)))
def test_server_when_anything_comes_then_tells_what_the_oracle_tells(data, rng, feed):
    server = ServerConnection(limits=LIMITS)

    told = hear(server, random_pieces(data, rng), FEEDERS[feed])

    assert told == requests_in(data, send_bytes_max=1_000)


@given(
    STREAMS, st.integers(0, 5), st.randoms(use_true_random=False), st.sampled_from(sorted(FEEDERS))
)
def test_client_when_anything_comes_then_tells_what_the_oracle_tells(data, asked, rng, feed):
    client = ClientConnection(limits=LIMITS)
    for _ in range(asked):
        client.send(Ping())

    told = hear(client, random_pieces(data, rng), FEEDERS[feed])

    assert told == responses_in(data, [Ping()] * asked)


@given(st.sampled_from(sorted(COMMANDS)), st.binary(max_size=200))
def test_decode_when_payload_is_garbage_then_value_or_typed_error(code, payload):
    for decode in (decode_request, decode_reply):
        try:
            decode(code, payload)
        except RemoteProtocolError as error:
            assert 0 < error.status < 2**32  # noqa: PT017 - no error is an outcome as well


@given(st.binary(min_size=8, max_size=100))
def test_server_when_fed_without_end_then_memory_is_bounded(data):
    server = ServerConnection()

    for _ in range(200):
        server.receive_data(data)
        if ("failed", "FrameTooLarge") in drain(server):
            break

    # A large announcement reserves memory for one frame at most, and keeps none of the others.
    assert server.statistics().buffered_bytes <= 200 * len(data)
    assert server.statistics().reserved_bytes <= Limits().send_bytes_max + 2 * CHUNK_BYTES


@pytest.mark.parametrize("seed", range(4))
def test_fuzzer_when_run_briefly_then_finds_nothing(seed):
    counter: Counter[str] = Counter()

    for number in range(100):
        fuzz_connection.run_round(seed, number, counter)

    assert counter["rounds"] == 100
    assert all(counter[what] for what in ("decoded", "request", "response", "closed", "failed"))
    taken = ("vsr RequestReceived", "vsr RequestRefused", "vsr client events", "vsr detected")
    assert all(counter[what] for what in taken)


def test_random_pieces_when_joined_then_give_the_data_back():
    data = bytes(range(256)) * 50

    assert b"".join(random_pieces(data, random.Random(1))) == data


def test_client_when_pushed_errors_alone_come_then_each_is_told():
    client = ClientConnection()
    client.receive_data(response_frame(8) * 3)

    assert [client.next_event() for _ in range(3)] == [ErrorReceived(None, 8)] * 3
