"""Throws bytes at both connections of the framing from 0.9 on; a part of ``fuzz_connection``.

A server finds the frames that the oracle cuts, takes or refuses each of them, and can answer every
one, whatever was changed. A client tells the same of the same bytes, however they are cut.
"""

from __future__ import annotations

import struct
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from iggy_protocol import (
    NEED_DATA,
    V0_11,
    VSR_HEAD_BYTES,
    CancelReceived,
    CommandCode,
    ConnectionClosed,
    DetectingConnection,
    Dialect,
    FramingDetected,
    GetStreams,
    Limits,
    RemoteProtocolError,
    RequestReceived,
    RequestRefused,
    ResponseReceived,
    SendsReceived,
    SessionBinding,
    VsrClientConnection,
    VsrServerConnection,
    classic_send_body,
    inspect_send,
)
from iggy_protocol.vsr.heads import RequestHead
from tests.protocol.frame_oracle import FEEDERS, random_pieces
from tests.protocol.vsr_frames import log_in, new_session
from tests.protocol.vsr_oracle import CutFrame, cut_requests
from tests.protocol.vsr_recordings import RECORDINGS, exchanges
from tests.protocol.vsr_strategies import make_frame, make_send

if TYPE_CHECKING:
    import random
    from collections import Counter
    from collections.abc import Iterator

RESERVED_BYTES_MAX = 1 << 20
REPLIES_MAX = 20


@cache
def recorded_requests() -> list[tuple[SessionBinding, bytes]]:
    """Return what each recorded session sent after its login."""
    found: dict[tuple[str, bytes, int], tuple[SessionBinding, list[bytes]]] = {}
    for file in RECORDINGS:
        for request in (one.request for one in exchanges(file)):
            binding = SessionBinding(request.dialect, request.client, request.session or 1, 0)
            key = (file, request.client, request.session)
            found.setdefault(key, (binding, []))[1].append(request.head + request.body)
    return [(binding, b"".join(frames)) for binding, frames in found.values()]


@cache
def recorded_replies(dialect: Dialect) -> bytes:
    """Return replies that a client of this dialect has read."""
    heads = [
        one.reply.head
        for file in RECORDINGS
        for one in exchanges(file)
        if one.reply is not None and one.request.dialect is dialect
        if one.reply.head[48:52] == (256).to_bytes(4, "little")
    ]
    return b"".join(heads[:REPLIES_MAX])


def pipelined_sends(binding: SessionBinding, rng: random.Random) -> bytes:
    """Return sends as a client writes them that does not wait for replies."""
    frames = []
    for number in range(1, rng.randrange(2, 12)):
        messages = [
            make_frame(rng.randbytes(rng.randrange(60)), offset_delta=index)
            for index in range(rng.randrange(1, 4))
        ]
        body = make_send(messages)
        head = RequestHead(
            size=VSR_HEAD_BYTES + len(body),
            client=binding.client,
            number=number,
            operation=160,
            session=binding.session,
        )
        frames.append(head.encode() + body)
    return b"".join(frames)


def check_frame(event: object, frame: CutFrame, counter: Counter[str]) -> None:
    """Compare one event of a server with the frame that it must be."""
    counter[f"vsr {type(event).__name__}"] += 1
    if isinstance(event, CancelReceived):
        assert event.number == frame.number
    elif isinstance(event, RequestReceived):
        assert not frame.is_skipped
        assert event.request_id is not None
        assert event.request_id.number == frame.number
        assert bytes(event.payload) == frame.body
        try:
            event.decode()
        except RemoteProtocolError:
            counter["vsr undecodable"] += 1
    else:
        assert isinstance(event, RequestRefused), event


def check_run(event: SendsReceived, first: CutFrame, expected: Iterator[CutFrame]) -> None:
    """Compare sends that were taken together with the frames that they must be."""
    count = event.run.frames_count
    frames = [first, *islice(expected, count - 1)]
    assert struct.unpack(f"<{count}Q", event.run.numbers) == tuple(one.number for one in frames)
    messages = b"".join(map(classic_messages, (one.body for one in frames)))
    assert bytes(event.messages) == messages


def classic_messages(body: bytes) -> bytes:
    """Return the messages of a send in the form in which a server stores them."""
    classic = classic_send_body(body).body
    return bytes(classic[inspect_send(classic).messages_at :])


def accept_sends(server: VsrServerConnection, event: object, counter: Counter[str]) -> None:
    """Have the sends taken together that follow one which a server could store."""
    if isinstance(event, RequestReceived) and event.code == CommandCode.SEND_MESSAGES:
        try:
            classic = classic_send_body(event.payload).body
        except RemoteProtocolError:
            return
        counter["vsr accepted"] += 1
        server.expect_sends(bytes(classic[4 : inspect_send(classic).indexes_at - 4]))


def answer_all(server: VsrServerConnection, rng: random.Random) -> None:
    """Answer what is outstanding in any way there is; none of them may fail."""
    while server.outstanding:
        position, way = rng.choice((0, 7)), rng.randrange(3)
        if way == 0:
            server.send_payload([b"payload"], position=position)
        elif way == 1:
            server.send_empty(position=position)
        else:
            server.send_error(rng.choice((3, 57, 42, 1009)), position=position)
    assert server.detached == 0


def attack_server(rng: random.Random, limits: Limits, mutate: Any, counter: Counter[str]) -> None:
    """Send changed requests to a server that has a session, or none yet."""
    binding, requests = rng.choice(recorded_requests())
    if rng.random() < 0.5:
        requests = pipelined_sends(binding, rng)
    data = mutate(requests, rng)
    is_bound = rng.random() < 0.7
    server = VsrServerConnection(
        limits=limits, is_authenticated=True, binding=binding if is_bound else None
    )
    frames, end = cut_requests(
        data, send_bytes_max=limits.send_bytes_max, control_bytes_max=limits.control_bytes_max
    )
    expected = iter(frames)
    for piece in random_pieces(data, rng):
        rng.choice(list(FEEDERS.values()))(server, piece)  # type: ignore[arg-type]
        assert server.statistics().reserved_bytes <= RESERVED_BYTES_MAX
        while True:
            try:
                event = server.next_event()
            except RemoteProtocolError:
                assert end == "failed"
                assert next(expected, None) is None
                answer_all(server, rng)
                return
            if event is NEED_DATA:
                break
            if isinstance(event, SendsReceived):
                counter["vsr SendsReceived"] += event.run.frames_count
                check_run(event, next(expected), expected)
            else:
                check_frame(event, next(expected), counter)
                accept_sends(server, event, counter)
        if rng.random() < 0.3:
            answer_all(server, rng)
            if is_bound and server.binding is None:
                # An eviction has ended the session; go on with it, as after another login.
                server.bind(binding.client, binding.session, 0)
    server.receive_eof()
    assert server.next_event() == ConnectionClosed(mid_frame=end == "closed mid frame")
    assert next(expected, None) is None
    answer_all(server, rng)


def told_by_client(dialect: Dialect, pieces: list[bytes]) -> list[str]:
    """Return what a client with open requests tells of the pieces."""
    client = VsrClientConnection(new_session(dialect))
    log_in(client)
    for _ in range(1 if dialect is V0_11 else REPLIES_MAX):
        client.send(GetStreams())
    told: list[str] = []
    for piece in pieces:
        client.receive_data(piece)
        while True:
            try:
                event = client.next_event()
            except RemoteProtocolError as error:
                return [*told, type(error).__name__]
            if event is NEED_DATA:
                break
            payload = bytes(event.payload) if isinstance(event, ResponseReceived) else b""
            told.append(f"{type(event).__name__} {getattr(event, 'number', 0)} {payload!r}")
    return told


def attack_client(rng: random.Random, mutate: Any, counter: Counter[str]) -> None:
    """Send changed replies to a client, in one piece and in many."""
    dialect = rng.choice(recorded_requests())[0].dialect
    data = mutate(recorded_replies(dialect), rng)
    whole = told_by_client(dialect, [data] if data else [])
    assert told_by_client(dialect, list(random_pieces(data, rng))) == whole
    counter["vsr client events"] += len(whole)


def attack_detection(rng: random.Random, mutate: Any, counter: Counter[str]) -> None:
    """Send changed first bytes: the framing follows from the first eight, and only from them."""
    data = mutate(rng.choice(recorded_requests())[1], rng)
    connection = DetectingConnection()
    for piece in random_pieces(data, rng):
        connection.receive_data(piece)
        try:
            event = connection.next_event()
        except RemoteProtocolError:
            assert int.from_bytes(data[:4], "little") in {1, 2, 3}
            return
        if event is not NEED_DATA:
            assert isinstance(event, FramingDetected)
            is_vsr = isinstance(event.connection, VsrServerConnection)
            assert is_vsr == (data[:8] == bytes(8))
            counter["vsr detected"] += 1
            return


def run_vsr_round(rng: random.Random, limits: Limits, mutate: Any, counter: Counter[str]) -> None:
    """Attack one connection once."""
    chance = rng.random()
    if chance < 0.6:
        attack_server(rng, limits, mutate, counter)
    elif chance < 0.9:
        attack_client(rng, mutate, counter)
    else:
        attack_detection(rng, mutate, counter)
