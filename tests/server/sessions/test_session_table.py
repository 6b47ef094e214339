"""Sessions: who gets one, who may bind it, and when it ends."""

from __future__ import annotations

import hashlib
import itertools
import logging

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iggy_protocol import V0_11, V0_12_0, V0_12_2, RequestId, StatusCode
from iggy_ref_server.faults import ServerFault
from iggy_ref_server.sessions.receipts import RecordedReply
from iggy_ref_server.sessions.table import (
    EXPIRY_US,
    NewSession,
    SessionEnd,
    SessionTable,
    member_id_of,
)

SECRET = hashlib.sha256(b"secret").digest()
OTHER_SECRET = hashlib.sha256(b"other").digest()
NO_SECRET = hashlib.sha256(b"").digest()
CLIENT = b"c" * 16


def login_of(
    client=CLIENT,
    *,
    secret=SECRET,
    identifier=b"i" * 16,
    user_id=1,
    dialect=V0_12_2,
    client_id=77,
):
    request_id = RequestId(client, 0, 0, identifier, dialect=dialect)
    return NewSession(client_id, request_id, user_id, 5, secret)


class Sessions:
    """A table, and the numbers and ends that it has given."""

    def __init__(self, **limits):
        self.numbers = itertools.count(100)
        self.ended: list[tuple[int, SessionEnd]] = []
        self.table = SessionTable(
            lambda session, why: self.ended.append((session.number, why)), **limits
        )

    def register(self, *arguments, **fields):
        return self.table.register(login_of(*arguments, **fields), lambda: next(self.numbers))

    def bind(self, number=0, *, client=CLIENT, secret=SECRET):
        return self.table.bind(client, number, secret)


@pytest.fixture
def sessions():
    return Sessions()


def status_of(action, *arguments, **fields):
    with pytest.raises(ServerFault) as caught:
        action(*arguments, **fields)
    return caught.value.status


# --- registering


def test_register_when_new_then_gets_a_number_and_a_connection(sessions):
    session = sessions.register()

    assert session.number == 100
    assert session.connections_count == 1
    assert sessions.table.find(100) is session


def test_register_when_repeated_then_is_the_same_session_and_takes_no_number(sessions):
    session = sessions.register()

    again = sessions.register(client_id=78)

    assert again is session
    assert session.connections_count == 2
    assert next(sessions.numbers) == 101


def test_register_when_its_client_begins_anew_then_replaces_the_session(sessions):
    sessions.register()

    again = sessions.register(identifier=b"j" * 16)

    assert again.number == 101
    assert sessions.ended == [(100, SessionEnd.REPLACED)]
    assert sessions.table.find(100) is None


@pytest.mark.parametrize("fields", [{"user_id": 2}, {"dialect": V0_12_0}])
def test_register_when_its_identifier_came_with_another_login_then_is_no_repeat(sessions, fields):
    sessions.register()

    assert sessions.register(**fields).number == 101


def test_register_when_the_client_is_known_with_another_secret_then_is_refused(sessions):
    session = sessions.register()

    assert status_of(sessions.register, secret=OTHER_SECRET) == StatusCode.UNAUTHENTICATED
    assert sessions.table.find(session.number) is session
    assert sessions.ended == []


def test_register_when_the_identifier_is_zeros_then_is_never_a_repeat(sessions):
    fields = {"dialect": V0_11, "secret": NO_SECRET, "identifier": bytes(16)}
    sessions.register(**fields)

    assert sessions.register(**fields).number == 101


# --- binding


@pytest.mark.parametrize("number", [0, 100])
def test_bind_when_the_secret_is_right_then_is_the_session(sessions, number):
    session = sessions.register()

    assert sessions.bind(number) is session
    assert session.connections_count == 2


@pytest.mark.parametrize(
    "fields",
    [{"client": b"x" * 16}, {"secret": OTHER_SECRET}, {"number": 99}, {"number": 101}],
)
def test_bind_when_anything_is_wrong_then_is_refused(sessions, fields):
    session = sessions.register()

    assert status_of(sessions.bind, **fields) == StatusCode.UNAUTHENTICATED
    assert session.connections_count == 1


def test_bind_when_the_session_is_of_0_9_then_is_refused(sessions):
    sessions.register(dialect=V0_11, secret=NO_SECRET)

    assert status_of(sessions.bind, secret=NO_SECRET) == StatusCode.UNAUTHENTICATED


# --- ends


def test_session_when_a_connection_is_left_then_lives(sessions):
    session = sessions.register()
    sessions.bind()

    sessions.table.release(100, 0)
    sessions.table.expire(10 * EXPIRY_US)

    assert sessions.table.find(100) is session


def test_session_when_without_connections_then_expires_in_time(sessions):
    sessions.register()
    sessions.table.release(100, 1_000)
    assert sessions.table.next_deadline_us() == 1_000 + EXPIRY_US

    sessions.table.expire(999 + EXPIRY_US)
    assert sessions.ended == []
    sessions.table.expire(1_000 + EXPIRY_US)

    assert sessions.ended == [(100, SessionEnd.EXPIRED)]
    assert status_of(sessions.bind) == StatusCode.UNAUTHENTICATED
    assert sessions.table.next_deadline_us() is None


def test_session_when_bound_again_in_time_then_lives(sessions):
    session = sessions.register()
    sessions.table.release(100, 0)

    assert sessions.bind() is session
    sessions.table.expire(10 * EXPIRY_US)

    assert sessions.ended == []


def test_session_of_0_9_when_its_connection_goes_then_ends_at_once(sessions):
    sessions.register(dialect=V0_11, secret=NO_SECRET)

    sessions.table.release(100, 0)

    assert sessions.ended == [(100, SessionEnd.EXPIRED)]


def test_session_when_logged_out_then_is_over_for_all_connections(sessions):
    sessions.register()
    sessions.bind()

    sessions.table.log_out(100)
    sessions.table.log_out(100)
    sessions.table.release(100, 0)
    sessions.table.release(100, 0)

    assert sessions.ended == [(100, SessionEnd.LOGOUT)]
    assert len(sessions.table) == 0


def test_sessions_when_their_user_is_gone_then_end(sessions):
    sessions.register(b"a" * 16, user_id=1)
    sessions.register(b"b" * 16, user_id=2)
    sessions.register(b"c" * 16, user_id=1)

    sessions.table.revoke(1, lambda new: False)

    assert sessions.ended == [(100, SessionEnd.REVOKED), (102, SessionEnd.REVOKED)]


def test_sessions_when_too_many_then_the_one_longest_without_connection_ends(caplog):
    sessions = Sessions(sessions_max=3)
    for number, client in enumerate((b"a" * 16, b"b" * 16, b"c" * 16)):
        sessions.register(client)
        sessions.table.release(100 + number, number)
    sessions.bind(client=b"a" * 16)

    with caplog.at_level(logging.WARNING):
        sessions.register(b"d" * 16)

    assert sessions.ended == [(101, SessionEnd.DROPPED)]
    assert "session 101 of user 1 ends" in caplog.text


def test_sessions_when_one_user_makes_too_many_then_those_of_others_stay(caplog):
    sessions = Sessions(sessions_max=4)
    sessions.register(b"a" * 16, user_id=2)
    sessions.table.release(100, 0)
    for number in range(1, 20):
        sessions.register(bytes([number]) * 16)
        sessions.table.release(100 + number, number)

    assert [number for number, _ in sessions.ended] == list(range(101, 117))
    assert sessions.table.find(100) is not None
    assert caplog.text.count("because there are 4 sessions") == 1


def test_revoke_when_one_user_is_gone_then_only_their_sessions_are_looked_at(sessions):
    looked_at = []
    for number in range(6):
        sessions.register(bytes([number + 1]) * 16, user_id=number % 2)

    def may_stay(new):
        looked_at.append(new.user_id)
        return False

    sessions.table.revoke(1, may_stay)

    assert looked_at == [1, 1, 1]
    assert len(sessions.table) == 3


def test_sessions_when_all_have_ended_then_nothing_of_them_is_kept(sessions):
    for number in range(6):
        sessions.register(bytes([number + 1]) * 16, user_id=number)
        if number % 2:
            sessions.table.release(100 + number, 0)
    for number in range(100, 106):
        sessions.table.log_out(number)

    table = sessions.table
    for kept in (table._by_number, table._by_client, table._by_member, table._by_user):
        assert not kept
    assert not table._idle
    assert not table._idle_by_user


def test_sessions_when_too_many_and_all_connected_then_the_next_is_told_to_come_later():
    sessions = Sessions(sessions_max=1)
    sessions.register()

    status = status_of(sessions.register, b"d" * 16)

    assert status == StatusCode.TRANSIENT_NOT_ACCEPTED
    assert next(sessions.numbers) == 101, "a refused login takes no number"


def test_receipts_when_their_session_ends_then_are_gone(sessions):
    session = sessions.register()
    receipt = session.receipts.begin(1, b"r")
    session.receipts.settle(receipt, RecordedReply(0, b"payload", 5))
    assert len(session.receipts) == 1

    sessions.table.log_out(100)

    assert len(session.receipts) == 0


# --- ids of members


def test_member_when_its_session_outlives_connections_then_has_an_id_of_its_own(sessions):
    session = sessions.register(client_id=77)

    assert session.member_id == member_id_of(100) != 77
    assert len({member_id_of(number) for number in range(10_000)}) == 10_000
    assert 0 <= member_id_of((1 << 43) - 1) < 1 << 32


def test_member_when_its_session_ends_with_the_connection_then_has_the_id_of_that(sessions):
    session = sessions.register(dialect=V0_11, secret=NO_SECRET, client_id=77)

    assert session.member_id == 77


# --- any order


CLIENTS = st.sampled_from([b"a" * 16, b"b" * 16, b"c" * 16])
SECRETS = st.sampled_from([SECRET, OTHER_SECRET])
SESSIONS_MAX = 2


class SessionMachine(RuleBasedStateMachine):
    """Three clients that register, bind, lose connections, log out, and stay away."""

    def __init__(self):
        super().__init__()
        self.sessions = Sessions(sessions_max=SESSIONS_MAX)
        self.now_us = 0
        # Session number: client, secret, identifier; and how many connections it has.
        self.alive: dict[int, tuple[bytes, bytes, bytes]] = {}
        self.connections: dict[int, int] = {}
        self.idle_since_us: dict[int, int] = {}

    def number_of(self, client):
        return next((number for number, one in self.alive.items() if one[0] == client), None)

    def forget_ended(self):
        for number, why in self.sessions.ended:
            if why is SessionEnd.DROPPED:
                assert self.connections[number] == 0
            del self.alive[number]
        self.sessions.ended.clear()

    def attach(self, number):
        self.connections[number] = self.connections.get(number, 0) + 1

    @rule(client=CLIENTS, secret=SECRETS, identifier=st.sampled_from([b"1", b"2"]))
    def register(self, client, secret, identifier):
        known = self.number_of(client)
        is_full = len(self.alive) >= SESSIONS_MAX
        all_connected = all(self.connections[number] for number in self.alive)
        try:
            session = self.sessions.register(client, secret=secret, identifier=identifier)
        except ServerFault as fault:
            if fault.status == StatusCode.UNAUTHENTICATED:
                assert known is not None
                assert self.alive[known][1] != secret
            else:
                assert known is None
                assert is_full
                assert all_connected
            return
        self.forget_ended()
        is_repeat = self.alive.get(session.number) == (client, secret, identifier)
        assert is_repeat == (session.number == known)
        self.alive[session.number] = (client, secret, identifier)
        self.attach(session.number)

    @rule(client=CLIENTS, secret=SECRETS, asks=st.booleans())
    def bind(self, client, secret, asks):
        known = self.number_of(client)
        number = 0 if asks or known is None else known
        try:
            session = self.sessions.bind(number, client=client, secret=secret)
        except ServerFault:
            assert known is None or self.alive[known][1] != secret
            return
        assert session.number == known
        assert self.alive[known][1] == secret
        self.attach(known)

    @precondition(lambda self: any(self.connections.values()))
    @rule(data=st.data())
    def lose_connection(self, data):
        connected = sorted(number for number, count in self.connections.items() if count)
        number = data.draw(st.sampled_from(connected))
        self.sessions.table.release(number, self.now_us)
        self.connections[number] -= 1
        self.idle_since_us[number] = self.now_us

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def log_out(self, data):
        number = data.draw(st.sampled_from(sorted(self.alive)))
        self.sessions.table.log_out(number)
        self.forget_ended()
        assert number not in self.alive

    @rule(step_us=st.integers(0, EXPIRY_US))
    def time_passes(self, step_us):
        self.now_us += step_us
        self.sessions.table.expire(self.now_us)
        before = dict(self.alive)
        self.forget_ended()
        for number in before:
            is_due = (
                not self.connections[number]
                and self.idle_since_us[number] + EXPIRY_US <= self.now_us
            )
            assert (number in self.alive) != is_due

    @invariant()
    def table_knows_exactly_the_living(self):
        assert len(self.sessions.table) == len(self.alive) <= SESSIONS_MAX
        for number in self.alive:
            session = self.sessions.table.find(number)
            assert session is not None
            assert session.connections_count == self.connections[number]


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(stateful_step_count=30)
