"""Tokens of other issuers, whose keys are fetched from a real port.

The clock stands still unless a test moves it, so nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import jwt
import pytest
import trio

from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.identity.jwks import FETCH_PAUSE_S, FRESH_S, STALE_KEYS_MAX_S, read_key_set
from tests.server.web.issuer import (
    EC_KEY,
    OTHER_RSA_KEY,
    RSA_KEY,
    Issuer,
    open_issuer,
    rsa_entry,
)
from tests.server.web.web_harness import Web, open_web

pytestmark = pytest.mark.trio


class Scene:
    """A server, an issuer that it trusts, and the user for whom that speaks."""

    def __init__(self, web: Web, issuer: Issuer, clock: SimulatedClock) -> None:
        self.web = web
        self.issuer = issuer
        self.clock = clock

    def token(
        self, key_id: str | None = "rsa", key=RSA_KEY, algorithm: str = "RS256", **changes
    ) -> str:
        """Sign a token; None takes a claim away."""
        now_s = self.clock.now_us() // 1_000_000
        claims = {
            "jti": "1",
            "iss": Issuer.NAME,
            "aud": "iggy",
            "sub": "somebody",
            "iat": now_s,
            "nbf": now_s,
            "exp": now_s + 100,
        } | changes
        claims = {name: value for name, value in claims.items() if value is not None}
        headers = {} if key_id is None else {"kid": key_id}
        return jwt.encode(claims, key, algorithm=algorithm, headers=headers)

    async def status(self, token: str) -> int:
        """Ask for what the user may see."""
        return (await self.web.ask("GET", "/users/alice", token=token)).status_code


@asynccontextmanager
async def open_scene(user_id: int = 1):
    clock = SimulatedClock()
    async with (
        open_issuer() as issuer,
        open_web(settings=issuer.settings(user_id), clock=clock) as web,
    ):
        await web.log_in()
        body = {"username": "alice", "password": "secret", "status": "active"}
        assert (await web.ask("POST", "/users", body)).json()["id"] == 1
        yield Scene(web, issuer, clock)


async def test_token_of_an_issuer_when_its_key_is_published_then_speaks_for_its_user(mock_clock):
    async with open_scene() as scene:
        assert await scene.status(scene.token()) == 200
        assert await scene.status(scene.token("ec", EC_KEY, "ES256")) == 200
        assert await scene.status(scene.token(aud=["other", "iggy"])) == 200
        assert scene.issuer.fetches == 1
        answer = await scene.web.ask("GET", "/users", token=scene.token())
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"nbf": 2**40},
        {"aud": "other"},
        {"aud": ["other"]},
        {"aud": None},
        {"iss": "https://stranger.example"},
        {"iss": None},
        {"jti": None},
        {"sub": None},
        {"exp": None},
        {"key_id": "unknown"},
        {"key_id": None},
        {"key": OTHER_RSA_KEY},
        {"key": EC_KEY, "algorithm": "ES256"},
        {"key_id": "ec"},
    ],
)
async def test_token_of_an_issuer_when_something_is_wrong_then_is_refused(changes, mock_clock):
    async with open_scene() as scene:
        assert await scene.status(scene.token(**changes)) == 401
        assert await scene.status(scene.token()) == 200


async def test_token_when_the_public_key_signs_it_as_a_secret_then_is_refused(mock_clock):
    async with open_scene() as scene:
        modulus = str(rsa_entry("rsa")["n"])
        for secret in (modulus, modulus.encode().hex()):
            assert await scene.status(scene.token("rsa", secret, "HS256")) == 401
        assert await scene.status(scene.token("rsa", None, "none")) == 401


async def test_token_when_its_key_is_for_another_algorithm_then_is_refused(mock_clock):
    async with open_scene() as scene:
        scene.issuer.keys = [rsa_entry("rsa", alg="RS512")]
        assert await scene.status(scene.token("rsa", RSA_KEY, "RS256")) == 401
        assert await scene.status(scene.token("rsa", RSA_KEY, "RS512")) == 200


async def test_token_of_an_issuer_when_it_stands_for_root_then_is_refused(mock_clock):
    async with open_scene(user_id=0) as scene:
        assert await scene.status(scene.token()) == 401
        assert scene.issuer.fetches == 0


async def test_token_of_an_issuer_when_its_user_is_gone_then_is_refused(mock_clock):
    async with open_scene() as scene:
        token = scene.token()
        assert await scene.status(token) == 200
        await scene.web.ask("PUT", "/users/alice", {"status": "inactive"})
        assert await scene.status(token) == 401
        await scene.web.ask("DELETE", "/users/alice")
        assert await scene.status(token) == 401


async def test_token_of_an_issuer_when_logged_out_then_counts_no_more(mock_clock):
    async with open_scene() as scene:
        first, second = scene.token(), scene.token(jti="2")
        answer = await scene.web.ask("DELETE", "/users/logout", token=first)
        assert answer.status_code == 204
        assert [await scene.status(token) for token in (first, second)] == [401, 200]


async def test_token_of_an_issuer_when_refreshed_then_is_refused_and_still_counts(mock_clock):
    async with open_scene() as scene:
        token = scene.token()
        body = {"token": token}
        answer = await scene.web.ask("POST", "/users/refresh-token", body, token="")
        assert (answer.status_code, answer.json()["id"]) == (401, 78)
        assert await scene.status(token) == 200


async def test_key_set_when_many_made_up_keys_are_asked_for_then_is_fetched_now_and_then(
    mock_clock,
):
    async with open_scene() as scene:
        for number in range(20):
            assert await scene.status(scene.token(f"made-up-{number}")) == 401
        assert scene.issuer.fetches == 1
        mock_clock.jump(FETCH_PAUSE_S)
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(scene.status, scene.token(f"more-{number}"))
        assert scene.issuer.fetches == 2


async def test_key_set_when_keys_are_replaced_then_new_ones_serve_and_old_ones_do_not(mock_clock):
    async with open_scene() as scene:
        assert await scene.status(scene.token()) == 200
        scene.issuer.keys = [rsa_entry("new", OTHER_RSA_KEY)]
        mock_clock.jump(FETCH_PAUSE_S)
        assert await scene.status(scene.token("new", OTHER_RSA_KEY)) == 200
        assert await scene.status(scene.token()) == 401


async def test_key_set_when_a_key_is_withdrawn_then_is_noticed_without_another_key(mock_clock):
    async with open_scene() as scene:
        assert await scene.status(scene.token()) == 200
        scene.issuer.keys = []
        mock_clock.jump(FRESH_S)
        assert await scene.status(scene.token()) == 401


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 There\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nnope",
        b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"keys": 7}',
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b" " * 300_000,
    ],
)
async def test_issuer_when_it_answers_rubbish_then_its_last_keys_serve_for_a_while(
    answer, mock_clock
):
    async with open_scene() as scene:
        assert await scene.status(scene.token()) == 200
        scene.issuer.answer = answer
        mock_clock.jump(FRESH_S)
        assert await scene.status(scene.token()) == 200
        assert scene.issuer.fetches == 2
        mock_clock.jump(STALE_KEYS_MAX_S)
        assert await scene.status(scene.token()) == 401


async def test_issuer_when_it_is_silent_then_others_are_served_and_it_is_given_up(mock_clock):
    async with open_scene() as scene:
        scene.issuer.is_silent = True
        statuses: list[int] = []

        async def try_it():
            statuses.append(await scene.status(scene.token()))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(try_it)
            while not scene.issuer.fetches:
                assert (await scene.web.ask("GET", "/streams")).status_code == 200
            assert not statuses
            mock_clock.jump(5)
        assert statuses == [401] * 5
        assert scene.issuer.fetches == 1


async def test_key_set_when_some_entries_are_strange_then_the_others_are_read():
    entries = [
        rsa_entry("good"),
        rsa_entry("for encryption", use="enc"),
        rsa_entry("one algorithm", alg="RS512"),
        rsa_entry("another family", alg="HS256"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric"},
        {"kty": "RSA", "n": "*", "e": "AQAB", "kid": "broken"},
        {"kty": "RSA", "n": 7, "e": "AQAB", "kid": "wrong kind"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "other curve"},
        {**rsa_entry("nameless"), "kid": None},
        {},
    ]
    keys = read_key_set(json.dumps({"keys": entries}).encode())
    assert {key_id: key.algorithms[:1] for key_id, key in keys.items()} == {
        "good": ("RS256",),
        "one algorithm": ("RS512",),
    }


async def test_token_of_an_issuer_when_another_user_has_the_id_by_now_then_is_refused(mock_clock):
    """Whoever deletes a user does not give away the tokens that were made for them."""
    async with open_scene() as scene:
        early = scene.token(exp=2**33)
        assert await scene.status(early) == 200
        await scene.web.ask("DELETE", "/users/alice")
        scene.clock.step(1_000_000)
        body = {"username": "alice", "password": "secret", "status": "active"}
        assert (await scene.web.ask("POST", "/users", body)).json()["id"] == 1
        assert await scene.status(early) == 401
        assert await scene.status(scene.token(jti="2")) == 200


async def test_token_of_an_issuer_when_issued_in_the_future_then_is_refused(mock_clock):
    async with open_scene() as scene:
        future_s = scene.clock.now_us() // 1_000_000 + 3600
        assert await scene.status(scene.token(iat=future_s, exp=future_s + 9)) == 401
