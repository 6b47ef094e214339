"""Access tokens over HTTP: kept, renewed in time, replaced when refused, and never shown."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from iggy_protocol import (
    GetStreams,
    LoginUser,
    LoginWithPersonalAccessToken,
    LogoutUser,
    Ping,
    StatusCode,
)
from iggy_sdk.connection_string import TokenLogin
from iggy_sdk.errors import AuthenticationError, ProtocolError
from tests.sdk.http.peers import Heard, HttpPeer, http_server

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

TIMEOUT = 30.0
LOGIN = LoginUser("iggy", "hidden-password")
WRONG = {"id": 42, "code": "invalid_credentials", "reason": "Invalid credentials", "field": None}


class Registry:
    """A script of servers that know which token counts.

    Args:
        life_s: how long a token counts, as they say.
        refreshes: whether they exchange tokens.
        date: whether they tell the time.
    """

    def __init__(self, *, life_s: int = 3600, refreshes: bool = True, date: bool = True) -> None:
        self.life_s = life_s
        self.refreshes = refreshes
        self.date = date
        self.counts: str | None = None
        self.accepts_logins = True
        self.logins: list[Heard] = []
        self.refreshed: list[str] = []

    async def __call__(self, peer: HttpPeer) -> None:
        while True:
            await self.serve(peer, await peer.hear())

    async def serve(self, peer: HttpPeer, heard: Heard) -> None:
        if heard.line.endswith("/login"):
            self.logins.append(heard)
            await anyio.sleep(0.1)
            if self.accepts_logins:
                await self.give(peer)
            else:
                await peer.reply(400, WRONG)
        elif heard.line == "POST /users/refresh-token":
            self.refreshed.append(heard.json["token"])
            await anyio.sleep(0.1)
            if self.refreshes and heard.json["token"] == self.counts:
                await self.give(peer)
            else:
                await peer.reply(401)
        elif heard.line != "GET /ping" and heard.token != self.counts:
            await peer.reply(401)
        else:
            await peer.answer(heard)

    async def give(self, peer: HttpPeer) -> None:
        await peer.give_token(life_s=self.life_s, date=self.date)
        self.counts = f"token-{peer.server.tokens_count}"


async def ask_many(conversation: Any) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(lambda: conversation.request(GetStreams(), timeout=TIMEOUT))


@pytest.mark.parametrize(
    ("login", "line", "body"),
    [
        (LOGIN, "POST /users/login", {"username": "iggy", "password": "hidden-password"}),
        (
            LoginWithPersonalAccessToken("hidden-token"),
            "POST /personal-access-tokens/login",
            {"token": "hidden-token"},
        ),
    ],
)
async def test_login_when_accepted_then_the_token_goes_with_every_request(login, line, body):
    registry = Registry()
    async with http_server(registry) as server:
        conversation = await server.open()
        identity = await conversation.request(login, timeout=TIMEOUT)
        await conversation.request(GetStreams(), timeout=TIMEOUT)
        await conversation.request(Ping(), timeout=TIMEOUT)

        assert identity.user_id == 1
        assert [heard.line for heard in server.heard] == [
            "GET /ping",
            line,
            "GET /streams",
            "GET /ping",
        ]
        assert [heard.token for heard in server.heard] == ["", "", "token-1", ""]
        assert body.items() <= server.heard[1].json.items()


async def test_login_when_refused_then_says_so():
    registry = Registry()
    registry.accepts_logins = False
    async with http_server(registry) as server:
        conversation = await server.open()
        with pytest.raises(AuthenticationError) as caught:
            await conversation.request(LOGIN, timeout=TIMEOUT)

        assert caught.value.code == StatusCode.INVALID_CREDENTIALS


async def test_login_when_the_answer_is_of_another_server_then_is_refused():
    async def strange(peer: HttpPeer) -> None:
        while True:
            heard = await peer.hear()
            if heard.line == "GET /ping":
                await peer.answer(heard)
            else:
                await peer.reply(200, {"user_id": 1})

    async with http_server(strange) as server:
        conversation = await server.open()
        with pytest.raises(ProtocolError):
            await conversation.request(LOGIN, timeout=TIMEOUT)


async def test_request_when_not_logged_in_then_is_refused_as_over_any_transport():
    async with http_server(Registry()) as server:
        conversation = await server.open()
        with pytest.raises(AuthenticationError) as caught:
            await conversation.request(GetStreams(), timeout=TIMEOUT)

        assert caught.value.code == StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(("life_s", "rest_s"), [(3600, 3539), (100, 79)])
async def test_token_when_its_end_is_near_then_it_is_exchanged_once_for_all(life_s, rest_s):
    registry = Registry(life_s=life_s)
    async with http_server(registry) as server:
        conversation = await server.open()
        await conversation.request(LOGIN, timeout=TIMEOUT)
        await anyio.sleep(rest_s)
        await ask_many(conversation)
        assert registry.refreshed == []
        await anyio.sleep(2)
        await ask_many(conversation)

        assert registry.refreshed == ["token-1"]
        assert len(registry.logins) == 1
        assert server.heard[-1].token == "token-2"


async def test_token_when_it_is_exchanged_again_and_again_then_the_client_works_for_a_day():
    registry = Registry()
    async with http_server(registry) as server, server.client() as client:
        for _ in range(48):
            await anyio.sleep(1800)
            assert await client.get_streams() == []

        assert 23 <= len(registry.refreshed) <= 25
        assert len(registry.logins) == 1
        assert client.epoch == 1


async def test_token_when_it_cannot_be_exchanged_then_the_client_logs_in_again():
    registry = Registry(refreshes=False)
    async with http_server(registry) as server:
        conversation = await server.open()
        await conversation.request(LOGIN, timeout=TIMEOUT)
        await anyio.sleep(3550)
        await ask_many(conversation)
        assert len(registry.logins) == 1
        registry.counts = None
        await ask_many(conversation)

        assert registry.refreshed == ["token-1"]
        assert len(registry.logins) == 2


async def test_token_when_it_is_refused_then_one_logs_in_again_for_all():
    registry = Registry()
    async with http_server(registry) as server:
        conversation = await server.open()
        await conversation.request(LOGIN, timeout=TIMEOUT)
        registry.counts = None
        await ask_many(conversation)

        assert len(registry.logins) == 2
        assert registry.logins[0].body == registry.logins[1].body
        assert not conversation.is_closed


async def test_token_when_the_password_was_changed_meanwhile_then_says_so():
    registry = Registry()
    async with http_server(registry) as server, server.client() as client:
        registry.counts = None
        registry.accepts_logins = False
        with pytest.raises(AuthenticationError) as caught:
            await client.get_streams()

        assert caught.value.code == StatusCode.INVALID_CREDENTIALS


async def test_token_when_every_one_is_refused_then_gives_up():
    class Forgetful(Registry):
        async def give(self, peer: HttpPeer) -> None:
            await super().give(peer)
            self.counts = None

    registry = Forgetful()
    async with http_server(registry) as server, server.client() as client:
        with pytest.raises(AuthenticationError) as caught:
            await client.get_streams()

        assert caught.value.code == StatusCode.UNAUTHENTICATED
        assert len(registry.logins) <= 6


async def test_exchange_when_cancelled_then_the_next_request_has_a_token():
    registry = Registry()
    async with http_server(registry) as server:
        conversation = await server.open()
        await conversation.request(LOGIN, timeout=TIMEOUT)
        await anyio.sleep(3550)
        with anyio.move_on_after(0.05):
            await conversation.request(GetStreams(), timeout=TIMEOUT)
        await ask_many(conversation)

        assert registry.refreshed == ["token-1"]
        assert not conversation.is_closed


@pytest.mark.parametrize("life_s", [0, -5])
async def test_token_when_it_says_to_be_over_already_then_is_used_until_refused(life_s):
    registry = Registry(life_s=life_s)
    async with http_server(registry) as server:
        conversation = await server.open()
        await conversation.request(LOGIN, timeout=TIMEOUT)
        await ask_many(conversation)

        assert registry.refreshed == []
        assert len(registry.logins) == 1


async def test_token_when_the_server_tells_no_time_then_our_own_clock_counts():
    registry = Registry(date=False)
    async with http_server(registry) as server:
        conversation = await server.open()
        await conversation.request(LOGIN, timeout=TIMEOUT)
        await ask_many(conversation)

        # By our clock the token was over years ago, which says nothing.
        assert registry.refreshed == []


async def test_logout_when_done_then_neither_token_nor_login_are_kept():
    registry = Registry()
    async with http_server(registry) as server:
        conversation = await server.open()
        await conversation.request(LOGIN, timeout=TIMEOUT)
        await conversation.request(LogoutUser(), timeout=TIMEOUT)
        with pytest.raises(AuthenticationError):
            await conversation.request(GetStreams(), timeout=TIMEOUT)

        assert [heard.line for heard in server.heard[2:]] == [
            "DELETE /users/logout",
            "GET /streams",
        ]
        assert [heard.token for heard in server.heard[2:]] == ["token-1", ""]


async def test_logout_when_the_token_counts_no_more_then_is_done_all_the_same():
    registry = Registry()
    async with http_server(registry) as server:
        conversation = await server.open()
        await conversation.request(LOGIN, timeout=TIMEOUT)
        registry.counts = None
        await conversation.request(LogoutUser(), timeout=TIMEOUT)

        assert len(registry.logins) == 1


async def test_logout_when_not_logged_in_then_is_refused():
    async with http_server(Registry()) as server:
        conversation = await server.open()
        with pytest.raises(AuthenticationError):
            await conversation.request(LogoutUser(), timeout=TIMEOUT)


async def test_secrets_when_things_go_wrong_then_are_in_no_error_and_no_log(caplog):
    registry = Registry()
    caplog.set_level(logging.DEBUG)
    async with (
        http_server(registry) as server,
        server.client(credentials=TokenLogin("hidden-token")) as client,
    ):
        registry.counts = None
        registry.accepts_logins = False
        with pytest.raises(AuthenticationError) as caught:
            await client.get_streams()
    told = [str(caught.value)]
    cause: BaseException | None = caught.value
    while cause is not None:
        told.append(repr(cause))
        cause = cause.__cause__ or cause.__context__

    assert not [text for text in [*told, caplog.text] if "hidden" in text or "token-1" in text]
