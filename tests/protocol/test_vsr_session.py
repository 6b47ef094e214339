"""The session of a client from 0.9 on: logins, binds, numbers, identifiers and contexts."""

from __future__ import annotations

import json

import pytest

from iggy_protocol import (
    CLASSIC,
    V0_11,
    V0_12_0,
    V0_12_2,
    VSR_HEAD_BYTES,
    CommandCode,
    CreateStream,
    DeleteStream,
    ErrorReceived,
    GetMe,
    GetStreams,
    LocalProtocolError,
    LogoutUser,
    NotInDialect,
    PartitionContext,
    Ping,
    ResponseReceived,
    SessionDetails,
    Version,
    VsrClientConnection,
    VsrClientSession,
    encode_reply,
)
from iggy_protocol.vsr.heads import read_request_head
from iggy_protocol.vsr.operations import NO_ERRORS
from tests.protocol.frame_oracle import joined
from tests.protocol.vsr_frames import (
    ROOT,
    SESSION,
    bound_client,
    details_of,
    expect,
    fails,
    head_of,
    log_in,
    new_session,
    reply,
    stamped,
)
from tests.protocol.vsr_recordings import DIALECTS, FOLDER, RECORDINGS

VSR = [V0_11, V0_12_0, V0_12_2]
LATER = [V0_12_0, V0_12_2]
CONTEXT = PartitionContext(5, 6, 7)


@pytest.mark.parametrize("file", RECORDINGS)
def test_recorded_requests_when_prepared_anew_then_have_the_same_numbers(file):
    """The numbers of all requests that official clients sent, drawn by our session."""
    first, *lines = [json.loads(line) for line in (FOLDER / file).read_text().splitlines()]
    dialect = DIALECTS[first["version"]]
    sessions: dict[int, VsrClientSession] = {}
    for entry in lines:
        if entry.get("dir") != ">":
            continue
        head = read_request_head(bytes.fromhex(entry["frame"]))
        session = sessions.setdefault(entry["conn"], new_session(dialect))
        if head.operation == 1:
            assert head.number == 0
            if dialect is V0_11:
                session.end()
        elif head.code != CommandCode.CANCEL_DEFERRED:
            is_bound = head.session > 0
            drawn = session.take_number(head.operation) if is_bound else session.unbound_number()
            assert drawn == head.number


# Sessions


@pytest.mark.parametrize("dialect", VSR)
def test_session_when_made_then_has_ids_of_its_own_and_is_not_registered(dialect):
    session = new_session(dialect)
    assert session.dialect is dialect
    assert not session.is_registered
    assert session.client[6] >> 4 == 4
    assert session.client[8] >> 6 == 2
    assert len(session.client) == 16
    assert len(session.secret) == (0 if dialect is V0_11 else 32)
    before = session.client, session.secret
    session.end()
    assert session.client != before[0]
    assert dialect is V0_11 or session.secret != before[1]


def test_session_when_the_sdk_would_be_taken_for_another_dialect_then_cannot_be_made():
    for dialect, version in ((CLASSIC, "0.1.0"), (V0_12_0, "0.12.0"), (V0_12_0, "1.0")):
        with pytest.raises(LocalProtocolError, match="cannot announce"):
            VsrClientSession(dialect, bytes, sdk_name="x", sdk_version=version)
    VsrClientSession(V0_12_2, bytes, sdk_name="x", sdk_version="1.0")


@pytest.mark.parametrize("dialect", VSR)
def test_login_when_answered_then_the_session_is_registered_and_bound(dialect):
    client = VsrClientConnection(new_session(dialect))
    response = log_in(client)
    assert response.decode().session == client.session.session == SESSION
    assert client.is_bound
    assert client.session.is_registered
    assert client.session.user_id == 3
    assert client.session.watermark == SESSION
    with pytest.raises(LocalProtocolError, match="log out first"):
        client.session.register(ROOT)


@pytest.mark.parametrize("dialect", VSR)
def test_login_when_sent_then_has_neither_number_nor_session(dialect):
    client = VsrClientConnection(new_session(dialect))
    (buffer,) = client.send(client.session.register(ROOT))
    head, body = read_request_head(buffer), bytes(buffer[VSR_HEAD_BYTES:])
    assert (head.operation, head.code, head.number, head.session) == (1, 0, 0, 0)
    assert head.client == client.session.client
    if dialect is V0_11:
        assert head.identifier == stamped(1, body)
    else:
        assert head.identifier not in {bytes(16), stamped(1, body)}
        assert client.session.secret in body


@pytest.mark.parametrize("wrong", [{"session": 0}, {"version": Version(0, 13, 0)}])
def test_login_when_the_answer_makes_no_sense_then_the_connection_fails(wrong):
    client = VsrClientConnection(new_session(V0_12_0))
    head = head_of(client.send(client.session.register(ROOT)))
    fields = {
        "user_id": 3,
        "session": 7,
        "version": Version(0, 12, 0),
        "server_version": "x",
    } | wrong
    body = joined(encode_reply(CommandCode.REGISTER, SessionDetails(**fields), V0_12_0))
    fails(client, reply(head, NO_ERRORS + body))
    assert not client.session.is_registered


def test_login_when_its_answer_is_cut_then_the_connection_fails():
    for body in (b"", NO_ERRORS, NO_ERRORS + details_of(bound_client(V0_12_0))[:-1]):
        client = VsrClientConnection(new_session(V0_12_0))
        head = head_of(client.send(client.session.register(ROOT)))
        fails(client, reply(head, body))


@pytest.mark.parametrize("dialect", VSR)
def test_command_when_there_is_no_session_then_is_not_sent(dialect):
    client = VsrClientConnection(new_session(dialect))
    with pytest.raises(LocalProtocolError, match="log in first"):
        client.send(GetStreams())
    other = bound_client(dialect)
    with pytest.raises(LocalProtocolError, match="log in first"):
        client.send_prepared(other.prepare(GetStreams()))
    assert client.outstanding == 0


@pytest.mark.parametrize("dialect", VSR)
def test_logout_when_answered_then_the_next_login_has_other_ids(dialect):
    client = bound_client(dialect)
    before = client.session.client
    head = head_of(client.send(LogoutUser()))
    assert (head.operation, head.number, head.session) == (3, 1, SESSION)
    client.receive_data(reply(head, op=9, commit=9, marker=0))
    expect(client.next_event(), ResponseReceived)
    assert client.session.client != before
    assert not client.is_bound
    log_in(client, SESSION + 5)
    expected = 1 if dialect is V0_11 else 2
    assert head_of(client.send(GetStreams())).number == expected, "0.9 counts anew"


def test_connection_when_lost_then_ends_the_session_in_0_9_alone():
    for dialect in VSR:
        client = bound_client(dialect)
        before = client.session.client
        client.session.lost()
        assert (client.session.client == before) == (dialect is not V0_11)
        assert client.is_bound == (dialect is not V0_11)


def test_session_when_ended_on_one_connection_then_the_others_are_not_bound_to_it():
    client = bound_client(V0_12_0)
    request = client.prepare(Ping())
    client.session.end()
    assert not client.is_bound
    with pytest.raises(LocalProtocolError, match="has ended"):
        client.send_prepared(request)


@pytest.mark.parametrize("dialect", LATER)
def test_bind_when_answered_then_another_connection_uses_the_session(dialect):
    first = bound_client(dialect)
    first.session.note_commit(128, 40)
    second = VsrClientConnection(first.session)
    (buffer,) = second.send(first.session.bind())
    head = read_request_head(buffer)
    assert (head.operation, head.code, head.session, head.number) == (2, 15, SESSION, 1)
    assert head.metadata_position == 0
    second.receive_data(reply(head, details_of(second)))
    expect(second.next_event(), ResponseReceived)
    assert second.is_bound
    assert head_of(second.send(GetStreams())).number == 2
    assert head_of(first.send(GetStreams())).number == 3


def test_bind_when_refused_then_the_session_begins_anew():
    client = bound_client(V0_12_0)
    other = VsrClientConnection(client.session)
    before = client.session.client
    for status, is_kept in ((58, True), (40, False)):
        head = head_of(other.send(client.session.bind()))
        other.receive_data(reply(head, status=status))
        assert expect(other.next_event(), ErrorReceived).status == status
        assert (client.session.client == before) == is_kept


def test_bind_when_another_session_is_answered_then_the_connection_fails():
    client = bound_client(V0_12_0)
    other = VsrClientConnection(client.session)
    head = head_of(other.send(client.session.bind()))
    fails(other, reply(head, details_of(other, SESSION + 1)))


def test_bind_when_the_register_was_not_answered_then_asks_which_session_it_made():
    session = new_session(V0_12_0)
    assert session.bind().session == 0
    client = VsrClientConnection(session)
    head = head_of(client.send(session.bind()))
    client.receive_data(reply(head, details_of(client)))
    expect(client.next_event(), ResponseReceived)
    assert client.is_bound
    with pytest.raises(NotInDialect):
        new_session(V0_11).bind()


# Numbers, identifiers, context


def test_numbers_when_of_0_9_then_only_writes_take_one():
    client = bound_client(V0_11)
    sent = []
    for command in (GetStreams(), CreateStream("a"), GetMe(), GetStreams(), DeleteStream("a")):
        head = head_of(client.send(command))
        sent.append(head.number)
        assert any(head.identifier) == (head.operation != 2)
        client.receive_data(reply(head, status=1))
        expect(client.next_event(), ErrorReceived)
    assert sent == [1, 1, 2, 2, 2]
    assert client.session.take_number(160) == 3


def test_numbers_when_of_0_10_then_every_request_takes_one():
    client = bound_client(V0_12_0)
    heads = [head_of(client.send(one)) for one in (GetStreams(), DeleteStream("a"), Ping())]
    assert [head.number for head in heads] == [1, 2, 3]
    assert {head.session for head in heads} == {SESSION}
    assert len({head.identifier for head in heads}) == 2


def test_ping_when_not_bound_then_carries_the_number_of_the_official_clients():
    for dialect, number in ((V0_11, 1), (V0_12_0, 0)):
        client = VsrClientConnection(new_session(dialect))
        for _ in range(2):
            head = head_of(client.send(Ping()))
            assert (head.number, head.session) == (number, 0)
            with pytest.raises(LocalProtocolError, match="unanswered"):
                client.send(Ping())
            client.receive_data(reply(head))
            expect(client.next_event(), ResponseReceived)


def test_identifier_when_the_random_bytes_are_zeros_then_is_not():
    session = VsrClientSession(V0_12_0, bytes, sdk_name="x", sdk_version="0.1")
    assert any(session.identifier(128, []))
    assert any(session.client)
    assert not any(session.identifier(160, []))


def test_context_when_given_then_is_in_the_head_and_a_read_wants_what_was_seen():
    client = bound_client(V0_12_0)
    heads = [
        head_of(client.send(GetStreams(), context=CONTEXT)),
        head_of(client.send(GetStreams())),
        head_of(client.send(DeleteStream("a"))),
    ]
    contexts = [(one.incarnation, one.owner_generation, one.metadata_position) for one in heads]
    assert contexts == [(5, 6, 7), (0, 0, SESSION), (0, 0, 0)]
    with pytest.raises(LocalProtocolError, match="no partition"):
        client.send(DeleteStream("a"), context=CONTEXT)
    with pytest.raises(NotInDialect):
        bound_client(V0_11).send(GetStreams(), context=CONTEXT)
    assert head_of(client.send(Ping())).number == 4, "a command that was not sent took no number"


def test_watermark_when_replies_tell_positions_then_is_the_highest_of_metadata():
    session = new_session(V0_12_0)
    for operation, position in ((128, 4), (160, 90), (2, 80), (64, 6), (3, 5), (1, 0)):
        session.note_commit(operation, position)
    assert session.watermark == 6
