"""Which tokens open which paths: each route with each way in which a token may be wrong."""

from __future__ import annotations

import base64
import logging
import re

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from iggy_protocol import LoginUser, StatusCode
from iggy_protocol.rest import ROUTES, Route
from iggy_ref_server.identity.credentials import Passwords
from tests.server.simulated.server import Refused
from tests.server.web.web_harness import SECRET, Web, open_web

pytestmark = pytest.mark.trio

SETTINGS = {"HTTP_JWT_ENCODING_SECRET": SECRET}
CLOSED = [route for route in ROUTES if not route.public]
OPEN = [route for route in ROUTES if route.public]


def path_of(route: Route) -> str:
    return re.sub(r"\{fsync\}", "true", re.sub(r"\{(?!fsync)\w+\}", "1", route.path))


def claims_of(token: str) -> dict:
    return jwt.decode(token, options={"verify_signature": False})


def forge(token: str, *, secret: str = SECRET, algorithm: str = "HS256", **changes) -> str:
    """Sign other claims; None takes a claim away."""
    claims = claims_of(token) | changes
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, secret, algorithm=algorithm)


RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = RSA_KEY.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
).decode()

DEEP = base64.urlsafe_b64encode(b'{"a":' + b"[" * 9000).decode().rstrip("=")

WRONG = {
    "none": lambda token: "",
    "rubbish": lambda token: "abc",
    "three dots": lambda token: "a.b.c",
    "cut": lambda token: token[:-1],
    "changed": lambda token: token[:-40] + ("A" if token[-40] != "A" else "B") + token[-39:],
    "other secret": lambda token: forge(token, secret="another secret that is long enough"),
    "no algorithm": lambda token: jwt.encode(claims_of(token), "", algorithm="none"),
    "other algorithm": lambda token: forge(token, algorithm="HS512"),
    "other family": lambda token: forge(token, secret=PEM, algorithm="RS256"),
    "expired": lambda token: forge(token, exp=claims_of(token)["iat"] - 6),
    "not yet": lambda token: forge(token, nbf=claims_of(token)["iat"] + 60),
    "other issuer": lambda token: forge(token, iss="somebody"),
    "other audience": lambda token: forge(token, aud="somebody"),
    "no issuer": lambda token: forge(token, iss=None),
    "no end": lambda token: forge(token, exp=None),
    "no id": lambda token: forge(token, jti=None),
    "number as id": lambda token: forge(token, jti=7),
    "text as end": lambda token: forge(token, exp="tomorrow"),
    "endless end": lambda token: forge(token, exp=2**70),
    "unknown user": lambda token: forge(token, sub="77"),
    "no number of a user": lambda token: forge(token, sub="-1"),
    "huge number of a user": lambda token: forge(token, sub="9" * 30),
    "other life": lambda token: forge(token, inc=99_999),
    "text as life": lambda token: forge(token, inc="0"),
    "older than its user": lambda token: forge(token, inc=None, iat=1),
    "deep claims": lambda token: token.split(".")[0] + "." + DEEP + "." + token.split(".")[2],
    "deep header": lambda token: DEEP + "." + token.split(".", 1)[1],
    "long": lambda token: "a" * 20_000,
    "not ascii": lambda token: "tökên",
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_closed_paths_when_the_token_is_wrong_then_answer_401(wrong, autojump_clock):
    async with open_web(settings=SETTINGS) as web:
        await web.log_in()
        token = WRONG[wrong](web.token)
        headers = {b"authorization": b"Bearer " + token.encode("latin-1")} if token else {}
        for route in CLOSED:
            answer = await web.client.request(route.method, path_of(route), headers=headers)
            assert (answer.status_code, answer.content) == (401, b""), route


async def test_closed_paths_when_the_token_is_good_then_answer_otherwise(autojump_clock):
    async with open_web(settings=SETTINGS) as web:
        await web.log_in()
        for route in CLOSED:
            if route.name != "logout_user":
                answer = await web.ask(route.method, path_of(route))
                assert answer.status_code != 401, route


async def test_open_paths_when_there_is_no_token_then_answer(autojump_clock):
    async with open_web() as web:
        for route in OPEN:
            body = None if route.body is None else {"username": "iggy", "password": "iggy"}
            answer = await web.ask(route.method, path_of(route), body)
            assert answer.status_code == (422 if "token" in route.path else 200), route


@pytest.mark.parametrize("header", [b"bearer ", b"Basic ", b"Bearer", b""])
async def test_closed_paths_when_the_scheme_is_another_then_answer_401(header, autojump_clock):
    async with open_web() as web:
        value = header + (await web.log_in()).encode()
        answer = await web.client.get("/streams", headers={b"authorization": value})
        assert answer.status_code == 401


async def make_user(web: Web) -> tuple[str, str]:
    """Make a user and log in as them; returns the tokens of root and of the user."""
    root = await web.log_in()
    body = {"username": "alice", "password": "secret", "status": "active"}
    assert (await web.ask("POST", "/users", body)).status_code == 200
    alice = await web.log_in("alice", "secret")
    assert (await web.ask("GET", "/users/alice", token=alice)).status_code == 200
    return root, alice


async def test_token_when_its_user_is_deleted_then_dies_and_never_speaks_for_another(
    autojump_clock,
):
    async with open_web() as web:
        root, alice = await make_user(web)
        user_id = (await web.ask("GET", "/users/alice", token=root)).json()["id"]
        await web.ask("DELETE", "/users/alice", token=root)
        assert (await web.ask("GET", "/users/alice", token=alice)).status_code == 401
        body = {"username": "mallory", "password": "secret", "status": "active"}
        made = await web.ask("POST", "/users", body, token=root)
        assert made.json()["id"] == user_id
        assert (await web.ask("GET", f"/users/{user_id}", token=alice)).status_code == 401
        answer = await web.ask("POST", "/users/refresh-token", {"token": alice}, token="")
        assert answer.status_code == 401


async def test_token_when_its_user_is_deactivated_then_dies_for_good(autojump_clock):
    async with open_web() as web:
        root, alice = await make_user(web)
        await web.ask("PUT", "/users/alice", {"status": "inactive"}, token=root)
        assert (await web.ask("GET", "/users/alice", token=alice)).status_code == 401
        await web.ask("PUT", "/users/alice", {"status": "active"}, token=root)
        assert (await web.ask("GET", "/users/alice", token=alice)).status_code == 401
        await web.log_in("alice", "secret")
        assert (await web.ask("GET", "/users/alice")).status_code == 200


async def test_token_without_a_life_when_younger_than_its_user_then_counts(autojump_clock):
    """Another program with the same secret may make tokens; it knows nothing of lives."""
    async with open_web(settings=SETTINGS) as web:
        token = forge(await web.log_in(), inc=None)
        assert (await web.ask("GET", "/streams", token=token)).status_code == 200


async def test_personal_access_token_when_used_to_log_in_then_gives_a_token(autojump_clock):
    async with open_web() as web:
        root, alice = await make_user(web)
        body = {"name": "mine", "expiry": 0}
        raw = (await web.ask("POST", "/personal-access-tokens", body, token=alice)).json()["token"]
        login = {"token": raw}
        answer = await web.ask("POST", "/personal-access-tokens/login", login, token="")
        token = answer.json()["access_token"]["token"]
        assert (await web.ask("GET", "/users/alice", token=token)).status_code == 200
        assert (await web.ask("GET", "/users/0", token=token)).status_code == 403
        await web.ask("DELETE", "/users/alice", token=root)
        answer = await web.ask("POST", "/personal-access-tokens/login", login, token="")
        assert (answer.status_code, answer.json()["id"]) == (404, 20)


async def test_password_when_wrong_or_the_user_inactive_then_no_token_is_given(
    autojump_clock, caplog
):
    async with open_web() as web:
        root, _ = await make_user(web)
        login = {"username": "alice", "password": "wrong"}
        with caplog.at_level(logging.WARNING):
            answer = await web.ask("POST", "/users/login", login, token="")
        assert (answer.status_code, answer.json()["id"]) == (400, 42)
        assert "refused a request of 127.0.0.1:40000: wrong user name or password" in caplog.text
        await web.ask("PUT", "/users/alice", {"status": "inactive"}, token=root)
        login = {"username": "alice", "password": "secret"}
        answer = await web.ask("POST", "/users/login", login, token="")
        assert (answer.status_code, answer.json()["id"]) == (400, 47)


@pytest.mark.parametrize("transport", ["http", "tcp"])
async def test_login_when_it_fails_then_costs_one_hash_for_any_name(
    transport, autojump_clock, monkeypatch
):
    """A login that fails takes the same time, so that nobody's password is tried for less."""
    hashed = 0
    matches = Passwords._matches

    def count(self, password_hash, password):
        nonlocal hashed
        hashed += 1
        return matches(self, password_hash, password)

    async with open_web() as web:
        root, _ = await make_user(web)
        body = {"username": "sleeper", "password": "secret", "status": "inactive"}
        assert (await web.ask("POST", "/users", body, token=root)).status_code == 200
        monkeypatch.setattr(Passwords, "_matches", count)
        statuses = []
        for login in (
            ("alice", "wrong"),
            ("nobody", "wrong"),
            ("sleeper", "wrong"),
            ("sleeper", "secret"),
        ):
            before = hashed
            if transport == "http":
                body = {"username": login[0], "password": login[1]}
                answer = await web.ask("POST", "/users/login", body, token="")
                statuses.append(answer.json()["id"])
            else:
                client = web.world.connect(0)
                with pytest.raises(Refused) as refused:
                    await client.ask(LoginUser(*login))
                statuses.append(refused.value.status)
                await client.aclose()
            assert hashed == before + 1
    wrong, inactive = StatusCode.INVALID_CREDENTIALS, StatusCode.USER_INACTIVE
    assert statuses == [wrong, wrong, inactive, inactive]
