"""Clients that have not logged in: who goes for a newcomer, and who may stay for how long."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

from iggy_protocol import LoginUser, Ping, Transport
from iggy_ref_server.clients import ClientEntry, ClientTable, UnauthenticatedLimits, network_of
from iggy_ref_server.session import ClientSession
from tests.server.simulated.server import ConnectionLost, open_simulated_server

pytestmark = pytest.mark.trio

FOREVER = float("inf")


class Book:
    """A table of clients, and who was closed."""

    def __init__(self, **limits: Any) -> None:
        self.clients = ClientTable(UnauthenticatedLimits(**limits))
        self.closed: list[int] = []
        self._count = 0

    def come(
        self, host: str = "10.0.0.1", transport: Transport = Transport.TCP
    ) -> ClientSession | None:
        """Have somebody connect, if there is room."""
        self._count += 1
        number, address = self._count, f"{host}:{40_000 + self._count}"
        if not self.clients.admit_unauthenticated(address):
            return None
        session = ClientSession(number, address, transport)

        def abort() -> None:
            self.closed.append(number)
            self.clients.remove(session)

        self.clients.add(ClientEntry(session, abort, 0, abort))
        return session


async def test_newcomer_when_all_places_are_taken_then_the_longest_silent_goes(autojump_clock):
    book = Book(total_max=3, per_address_max=9)
    first = book.come()
    for _ in range(2):
        await trio.sleep(1)
        book.come()
    await trio.sleep(1)
    assert first is not None
    first.last_served_at = trio.current_time()

    assert book.come() is not None

    assert book.closed == [2]
    assert len(book.clients) == 3


async def test_newcomer_when_its_address_is_full_then_one_of_that_address_goes(autojump_clock):
    book = Book(total_max=9, per_address_max=2)
    hosts = ["10.0.0.2", "10.0.0.1", "10.0.0.1", "10.0.0.1"]
    for host in hosts:
        assert book.come(host) is not None
        await trio.sleep(1)

    assert book.closed == [2]


async def test_newcomer_when_all_clients_are_being_served_then_is_refused():
    book = Book(total_max=2, per_address_max=9)
    for session in (book.come(), book.come()):
        assert session is not None
        session.last_served_at = FOREVER

    assert book.come() is None
    assert book.closed == []


async def test_clients_when_logged_in_then_do_not_count():
    book = Book(total_max=2, per_address_max=2)
    for _ in range(20):
        session = book.come()
        assert session is not None
        session.user_id = 1

    assert book.closed == []
    assert len(book.clients) == 20


async def test_client_when_silent_without_a_login_then_is_closed_in_time(autojump_clock):
    book = Book(login_timeout_s=15.0)
    silent, lively, known = book.come(), book.come(), book.come()
    assert silent is not None
    assert lively is not None
    assert known is not None
    known.user_id = 1
    for _ in range(20):
        await trio.sleep(1)
        lively.last_served_at = trio.current_time()
        book.clients.close_unauthenticated()
        assert book.closed == ([] if trio.current_time() < 15 else [1])

    known.user_id = None
    book.clients.close_unauthenticated()
    assert book.closed == [1]
    await trio.sleep(15)
    book.clients.close_unauthenticated()
    assert sorted(book.closed) == [1, 2, 3]


async def test_clients_when_many_are_closed_then_the_log_has_few_lines(caplog, autojump_clock):
    book = Book(total_max=10, per_address_max=100)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            assert book.come() is not None
        await trio.sleep(11)
        book.clients.close_unauthenticated()

    assert len(book.closed) == 990
    assert [record.args[0] for record in caplog.records] == [1, 989]
    assert "limits.max_unauthenticated_connections " in caplog.text


async def test_places_when_all_clients_have_gone_then_nothing_is_counted():
    book = Book()
    sessions = [book.come(f"10.0.0.{number % 3}") for number in range(30)]
    for session in sessions:
        assert session is not None
        book.clients.remove(session)

    assert not book.clients._unauthenticated
    assert not book.clients._per_network


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3:80", "10.1.2.3"),
        ("[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:80", "fe80::/64"),
        ("nowhere:80", "nowhere"),
    ],
)
async def test_address_when_a_client_can_choose_a_part_of_it_then_that_part_does_not_count(
    address, network
):
    assert network_of(address) == network


async def test_client_when_it_pings_before_its_login_then_stays_as_long_as_it_does(autojump_clock):
    async with open_simulated_server() as world:
        lively, silent = world.connect(), world.connect()
        for _ in range(10):
            await lively.ask(Ping())
            await trio.sleep(5)

        with pytest.raises(ConnectionLost):
            await silent.ask(Ping())
        await lively.ask(LoginUser("iggy", "iggy"))
        await trio.sleep(100)
        await lively.ask(Ping())
