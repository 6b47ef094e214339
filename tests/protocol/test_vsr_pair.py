"""A client and a server of the framing from 0.9 on, back to back, by property."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from iggy_protocol import (
    NEED_DATA,
    V0_11,
    V0_12_0,
    V0_12_2,
    CancelReceived,
    DeleteStream,
    ErrorReceived,
    EvictionReason,
    EvictionReceived,
    GetMe,
    GetStreams,
    LogoutUser,
    PartitionContext,
    Ping,
    RemoteProtocolError,
    RequestReceived,
    RequestRefused,
    ResponseReceived,
    SessionDetails,
    VsrClientConnection,
    VsrServerConnection,
)
from tests.protocol.frame_oracle import CUTTERS, random_pieces
from tests.protocol.vsr_frames import (
    ROOT,
    VsrPair,
    bound_server,
    coded,
    expect,
    frame,
    login_body,
    new_session,
    replicated,
)

VSR = [V0_11, V0_12_0, V0_12_2]


@pytest.mark.parametrize("cut", CUTTERS.values(), ids=CUTTERS)
@pytest.mark.parametrize("dialect", VSR)
def test_conversation_when_from_login_to_logout_then_both_sides_agree(dialect, cut):
    pair = VsrPair(dialect, cut=cut)
    assert pair.ask(Ping()).decode() == Ping()
    pair.answer(None)
    details = pair.log_in()
    assert details.version == dialect.version
    assert pair.server.dialect is dialect
    request = pair.ask(DeleteStream("a"))
    assert request.decode() == DeleteStream("a")
    response = pair.answer(None)
    assert (response.decode(), response.is_committed) == (None, dialect is not V0_11)
    pair.ask(DeleteStream("a"))
    assert pair.answer_error(1009, position=pair.position).is_committed == (dialect is not V0_11)
    pair.ask(DeleteStream("a"))
    assert not pair.answer_error(1009).is_committed
    pair.ask(LogoutUser())
    pair.server.unbind()
    pair.answer(None)
    assert not pair.client.session.is_registered
    pair.log_in()
    pair.assert_quiet()


@pytest.mark.parametrize("dialect", VSR)
def test_login_when_refused_then_the_client_gets_the_error_of_its_eviction(dialect):
    pair = VsrPair(dialect)
    pair.ask(pair.client.session.register(ROOT))
    pair.to_client(pair.server.send_error(42))
    assert expect(pair.client.next_event(), EvictionReceived).status == 42


class VsrConversation(RuleBasedStateMachine):
    """Requests, replies in and out of order, cancels and new connections, of one session.

    The model is the set of unanswered requests on each side; bytes travel in random pieces.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(0)
        self.waiting: dict[int, Any] = {}
        self.queue: list[int] = []
        self.parked: dict[int, Any] = {}
        self.prepared: dict[int, Any] = {}

    @initialize(dialect=st.sampled_from(VSR), seed=st.integers(0, 2**32))
    def begin(self, dialect, seed):
        self.rng = random.Random(seed)
        self.dialect = dialect
        self.pair = VsrPair(dialect, cut=lambda data: random_pieces(data, self.rng))
        self.pair.log_in()

    @property
    def may_send(self):
        return not self.waiting or self.dialect is not V0_11

    @precondition(lambda self: self.may_send)
    @rule(
        command=st.sampled_from([Ping(), GetMe(), GetStreams(), DeleteStream("a")]),
        incarnation=st.integers(0, 3),
    )
    def ask(self, command, incarnation):
        is_read = not isinstance(command, DeleteStream)
        context = PartitionContext(incarnation if is_read and self.dialect is not V0_11 else 0)
        request = self.pair.client.prepare(command, context=context)
        self.pair.to_server(self.pair.client.send_prepared(request))
        event = expect(self.pair.server.next_event(), RequestReceived)
        assert event.decode() == command
        assert event.request_id is not None
        assert event.request_id.number == request.number
        assert event.context.incarnation == context.incarnation
        self.waiting[request.number] = command
        self.prepared[request.number] = request
        self.queue.append(request.number)

    @precondition(lambda self: self.queue and self.dialect is not V0_11)
    @rule()
    def park(self):
        number = self.queue.pop()
        self.parked[number] = self.pair.server.detach()
        assert self.parked[number].number == number

    def answered(self, number, written, status=0):
        self.pair.to_client(written)
        event: Any = self.pair.client.next_event()
        command = self.waiting.pop(number)
        if status:
            assert expect(event, ErrorReceived) == ErrorReceived(
                command, status, number, event.is_committed
            )
        else:
            response = expect(event, ResponseReceived)
            assert (response.command, response.number) == (command, number)
            assert bytes(response.payload) == b"payload"

    @precondition(lambda self: self.queue)
    @rule(position=st.integers(0, 100))
    def answer_oldest(self, position):
        written = self.pair.server.send_payload([b"payload"], position=position)
        self.answered(self.queue.pop(0), written)

    @precondition(lambda self: self.queue)
    @rule(position=st.integers(0, 100), status=st.sampled_from([3, 57, 58, 1009]))
    def refuse_oldest(self, position, status):
        written = self.pair.server.send_error(status, position=position)
        self.answered(self.queue.pop(0), written, status)

    @precondition(lambda self: self.parked)
    @rule(data=st.data(), status=st.sampled_from([0, 90]))
    def answer_parked(self, data, status):
        number = data.draw(st.sampled_from(sorted(self.parked)))
        token = self.parked.pop(number)
        server = self.pair.server
        written = (
            server.send_detached_error(token, status)
            if status
            else server.send_detached(token, [b"payload"])
        )
        self.answered(number, written, status)

    @precondition(lambda self: self.parked)
    @rule(data=st.data(), is_late=st.booleans())
    def cancel_parked(self, data, is_late):
        number = data.draw(st.sampled_from(sorted(self.parked)))
        token: Any = self.parked.pop(number)
        self.pair.to_server(self.pair.client.cancel(self.prepared[number]))
        del self.waiting[number]
        assert self.pair.server.next_event() == CancelReceived(number)
        assert id(token) == id(self.pair.server.find_detached(number))
        if is_late:
            self.pair.to_client(self.pair.server.send_detached(token, [b"nobody waits"]))
        else:
            self.pair.server.drop_detached(token)

    @rule(junk=st.binary(max_size=40))
    def send_refused_frame(self, junk):
        """A frame that breaks a rule is refused, and disturbs nothing around it."""
        if self.queue:
            return
        self.pair.to_server([coded(201, junk, view=1)])
        expect(self.pair.server.next_event(), RequestRefused)
        self.pair.server.send_error(4)

    @precondition(lambda self: self.dialect is not V0_11)
    @rule()
    def connect_again(self):
        """The connection is lost; the session is bound to another, and all frames are repeated."""
        session = self.pair.client.session
        old, position = self.prepared, self.pair.position
        self.pair = VsrPair(self.dialect, session=session, cut=self.pair.cut)
        self.pair.position = position
        bind = self.pair.ask(session.bind())
        assert bind.request_id is not None
        self.pair.server.bind(bind.request_id.client, session.session, 0)
        self.pair.answer(SessionDetails(0, session.session, self.dialect.version, "test"))
        self.queue = sorted(self.waiting)
        self.parked = {}
        for number in self.queue:
            self.pair.to_server(self.pair.client.send_prepared(old[number]))
            event = expect(self.pair.server.next_event(), RequestReceived)
            assert event.decode() == self.waiting[number]

    @invariant()
    def agree(self):
        if not hasattr(self, "pair"):
            return
        self.pair.assert_quiet()
        assert self.pair.client.outstanding == len(self.waiting)
        assert self.pair.server.outstanding == len(self.queue)
        assert self.pair.server.detached == len(self.parked)
        assert self.pair.client.is_idle == (not self.waiting)


TestVsrConversation = VsrConversation.TestCase


# Garbage


def drained(connection):
    """Read all events of a connection; say how it ended."""
    count = 0
    while True:
        try:
            event = connection.next_event()
        except RemoteProtocolError:
            return count, "failed"
        if event is NEED_DATA:
            return count, "waiting"
        count += 1


FRAMES = [
    coded(201),
    coded(1, session=0, number=0),
    coded(106, b"body", number=5, metadata_position=4),
    replicated(128, b"\1a"),
    replicated(150, b"\2a"),
    frame(login_body(V0_12_0), operation=1),
    frame(login_body(V0_11), operation=1),
]


@settings(max_examples=settings().max_examples * 2)
@given(
    st.sampled_from([None, *VSR]),
    st.lists(st.sampled_from(FRAMES), max_size=4),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4),
    st.binary(max_size=300),
    st.integers(1, 700),
)
def test_server_when_bytes_are_changed_then_events_do_not_depend_on_how_they_are_cut(
    dialect, frames, changes, garbage, step
):
    data = bytearray(b"".join(frames) + garbage)
    for at, value in changes:
        if at < len(data):
            data[at] = value
    told = []
    for size in (len(data) or 1, step):
        server = bound_server(dialect) if dialect else VsrServerConnection()
        counts, ended = 0, "waiting"
        for at in range(0, len(data), size):
            server.receive_data(bytes(data[at : at + size]))
            count, ended = drained(server)
            counts += count
            if ended == "failed":
                break
        told.append((counts, ended, server.outstanding))
        while server.outstanding:
            server.send_error(3)
    assert told[0] == told[1]


@given(
    st.sampled_from(VSR),
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=4),
    st.binary(max_size=300),
    st.integers(1, 700),
)
def test_client_when_bytes_are_changed_then_events_or_one_final_error(
    dialect, changes, garbage, step
):
    told = []
    for size in (10_000, step):
        pair = VsrPair(dialect)
        pair.log_in()
        pair.ask(GetStreams())
        written = pair.server.send_payload([b"streams"])
        data = bytearray(b"".join(bytes(one) for one in written) * 2 + garbage)
        for at, value in changes:
            data[at % len(data)] = value
        counts, ended = 0, "waiting"
        for at in range(0, len(data), size):
            pair.client.receive_data(bytes(data[at : at + size]))
            count, ended = drained(pair.client)
            counts += count
            if ended == "failed":
                break
        told.append((counts, ended))
    assert told[0] == told[1]


@given(st.sampled_from(VSR), st.data())
def test_frames_when_cut_short_then_more_is_needed_and_the_end_is_inside_a_frame(dialect, data):
    whole = data.draw(st.sampled_from(FRAMES[:5]))
    cut = data.draw(st.integers(1, len(whole) - 1))
    server = bound_server(dialect)
    server.receive_data(whole[:cut])
    assert server.next_event() is NEED_DATA
    server.receive_eof()
    event: Any = server.next_event()
    assert event.mid_frame


def test_client_when_its_session_is_unknown_to_a_new_server_then_is_told_so():
    session = new_session(V0_12_0)
    pair = VsrPair(V0_12_0, session=session)
    pair.log_in()
    pair.server = VsrServerConnection()
    pair.to_server(pair.client.send(DeleteStream("a")))
    event = expect(pair.server.next_event(), RequestRefused)
    pair.to_client(pair.server.send_error(event.error.status))
    evicted = expect(pair.client.next_event(), EvictionReceived)
    assert evicted.reason == EvictionReason.NO_SESSION
    assert session.is_registered, "it is bound again, or refused then"
    assert not VsrClientConnection(session).is_bound
