"""The REST face answers as a real 0.8.0 server did, and where it does not, the reason is here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import jwt
import pytest
import trio
import trio.testing

from iggy_protocol import JoinConsumerGroup
from tests.server.web.http_recording import (
    SCENES,
    Exchange,
    given_answer,
    read_scene,
    recorded_answer,
)
from tests.server.web.web_harness import Web, open_web

if TYPE_CHECKING:
    import httpx

    from tests.server.simulated.server import Client

DEVIATIONS: Final = {
    ("users-tokens", "token of an inactive user"): "a token dies when its user is deactivated",
    ("users-tokens", "token of a deleted user"): "a token dies when its user is deleted",
    ("system", "metrics"): "partitions and segments are counted, not counted along and lost",
}
# What happens between two recorded lines, and is not recorded itself.
JOINS: Final = "get with a TCP member"
LEAVES: Final = "delete"
EXPIRES: Final = "login with expired token"


class Player:
    """Plays recorded requests, with the tokens of today in the places of those of then."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self._names = {"$TOKEN": "", "$OLD": "", "$USER_TOKEN": "", "$PAT": "", "$PAT2": ""}
        self._member: Client | None = None
        self._client_id = ""

    async def play(self, exchange: Exchange) -> httpx.Response:
        """Ask what was asked then."""
        await self._prepare(exchange)
        headers = {name: self._fill(text) for name, text in exchange.headers.items()}
        content = self._fill(exchange.content().decode()).encode()
        path = exchange.path
        if exchange.name == "client details":
            path = f"/clients/{self._client_id}"
        answer = await self._web.client.request(
            exchange.method, path, headers=headers, content=content
        )
        self._remember(exchange, answer)
        return answer

    async def _prepare(self, exchange: Exchange) -> None:
        if (exchange.scene, exchange.name) == ("consumer-groups", JOINS):
            self._member = await self._web.world.log_in()
            await self._member.ask(JoinConsumerGroup("sm", "t", "g1"))
        if exchange.scene == "consumer-groups" and exchange.name == LEAVES:
            assert self._member is not None
            await self._member.aclose()
            await trio.testing.wait_all_tasks_blocked()
        if exchange.name == EXPIRES:
            await trio.sleep(2)

    async def begin(self, scene: str) -> None:
        """Log in, as was done before each recording but two."""
        if scene not in ("public-paths", "login"):
            self._names["$TOKEN"] = await self._web.log_in()

    def _fill(self, text: str) -> str:
        # The longer names first, for some begin as others do.
        for name in sorted(self._names, key=len, reverse=True):
            text = text.replace(name, self._names[name])
        return text

    def _remember(self, exchange: Exchange, answer: httpx.Response) -> None:
        if exchange.name == "clients with a TCP member":
            self._client_id = answer.json()[0]["client_id"]
        if answer.status_code != 200 or exchange.method != "POST":
            return
        name = {
            "login": "$TOKEN",
            "refresh": "$TOKEN",
            "login alice": "$USER_TOKEN",
            "create token": "$PAT",
            "create with expiry": "$PAT2",
        }.get(exchange.name)
        if name == "$TOKEN":
            self._names["$OLD"] = self._names["$TOKEN"]
        if name is not None:
            identity = answer.json()
            self._names[name] = identity.get("token") or identity["access_token"]["token"]


@pytest.mark.trio
async def test_recorded_requests_when_played_then_are_answered_as_recorded(autojump_clock):
    differing: dict[tuple[str, str], tuple] = {}
    async with open_web() as web:
        player = Player(web)
        for scene in SCENES:
            await player.begin(scene)
            for exchange in read_scene(scene):
                given = given_answer(await player.play(exchange))
                recorded = recorded_answer(exchange)
                if given != recorded:
                    differing[scene, exchange.name] = (recorded, given)
    unlisted = {place: pair for place, pair in differing.items() if place not in DEVIATIONS}
    assert not unlisted
    assert set(differing) == set(DEVIATIONS)


def test_every_recording_when_read_then_is_played():
    assert sum(len(read_scene(scene)) for scene in SCENES) > 200


@pytest.mark.trio
async def test_tokens_when_issued_then_say_what_recorded_ones_say(autojump_clock):
    recorded = next(entry for entry in read_scene("login") if entry.name == "login")
    theirs = recorded.response["access_token"]["token"]
    async with open_web() as web:
        ours = await web.log_in()
    assert jwt.get_unverified_header(ours) == jwt.get_unverified_header(theirs)
    old, new = (jwt.decode(token, options={"verify_signature": False}) for token in (theirs, ours))
    assert new.keys() - old.keys() == {"inc"}
    assert old.keys() <= new.keys()
    for claim in ("iss", "aud", "sub"):
        assert new[claim] == old[claim]
    assert new["exp"] - new["iat"] == old["exp"] - old["iat"] == 3600
    assert new["nbf"] == new["iat"]
    assert new["jti"][14] == old["jti"][14] == "7"
