"""The life of a token: how long it counts, how it is exchanged, how it is taken back."""

from __future__ import annotations

import base64
import logging
from typing import Any

import jwt
import msgspec
import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from iggy_ref_server.clock import SimulatedClock
from iggy_ref_server.config.tree import ConfigError
from iggy_ref_server.identity.jwt import make_token_id, normalize_issuer
from iggy_ref_server.identity.revocations import REVOCATIONS_PATH, Revocations
from iggy_ref_server.storage.simulated.fault_plan import FaultPlan
from iggy_ref_server.storage.simulated.storage import SimulatedStorage
from tests.server.web.web_harness import SECRET, Web, open_web

pytestmark = pytest.mark.trio

KEPT = {"HTTP_JWT_ENCODING_SECRET": SECRET}


def end_of(token: str) -> int:
    return int(jwt.decode(token, options={"verify_signature": False})["exp"])


async def status_of(web: Web, token: str) -> int:
    return (await web.ask("GET", "/streams", token=token)).status_code


async def refresh(web: Web, token: str) -> tuple[int, dict]:
    answer = await web.ask("POST", "/users/refresh-token", {"token": token}, token="")
    return answer.status_code, answer.json()


async def test_token_when_its_hour_is_over_then_counts_for_the_leeway_and_no_longer(mock_clock):
    clock = SimulatedClock()
    async with open_web(clock=clock) as web:
        token = await web.log_in()
        left_us = end_of(token) * 1_000_000 - clock.now_us()
        clock.step(left_us + 5_999_999)
        assert await status_of(web, token) == 200
        clock.step(1)
        assert await status_of(web, token) == 401
        assert (await refresh(web, token))[0] == 401


async def test_token_when_its_time_has_not_come_then_counts_within_the_leeway_only(mock_clock):
    clock = SimulatedClock()
    async with open_web(clock=clock, settings={"HTTP_JWT_NOT_BEFORE": "20 s"}) as web:
        token = await web.log_in()
        assert await status_of(web, token) == 401
        clock.step(14_000_000)
        assert await status_of(web, token) == 401
        clock.step(1_000_000)
        assert await status_of(web, token) == 200


@pytest.mark.parametrize(("expiry", "seconds"), [("none", 1_000_000_000), ("90 s", 90)])
async def test_token_when_an_expiry_is_configured_then_ends_there(expiry, seconds, mock_clock):
    async with open_web(settings={"HTTP_JWT_ACCESS_TOKEN_EXPIRY": expiry}) as web:
        body = {"username": "iggy", "password": "iggy"}
        token = (await web.ask("POST", "/users/login", body)).json()["access_token"]
        claims = jwt.decode(token["token"], options={"verify_signature": False})
        assert claims["exp"] - claims["iat"] == seconds
        assert token["expiry"] == claims["exp"]


async def test_token_when_refreshed_then_counts_no_more_and_the_new_one_does(autojump_clock):
    async with open_web() as web:
        old = await web.log_in()
        status, identity = await refresh(web, old)
        assert (status, identity["user_id"]) == (200, 0)
        new = identity["access_token"]["token"]
        assert [await status_of(web, token) for token in (old, new)] == [401, 200]
        status, error = await refresh(web, old)
        assert (status, error["id"]) == (401, 78)


async def test_token_when_refreshed_by_many_at_once_then_one_of_them_gets_another(autojump_clock):
    plan = FaultPlan()
    plan.delay("replace", path=REVOCATIONS_PATH, seconds=1)
    async with open_web(SimulatedStorage(plan)) as web:
        token = await web.log_in()
        statuses: list[int] = []

        async def try_it():
            statuses.append((await refresh(web, token))[0])

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(try_it)
        assert sorted(statuses) == [200] + [401] * 19


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [
        ("", 401, 78),
        ("abc", 401, 78),
        ("a.b.c", 401, 78),
        ("é.é.é", 401, 78),
        ("x" * 20_000, 401, 78),
        ("eyJhbGciOiJub25lIn0.e30.", 401, 78),
        ("eyJhbGciOiJIUzUxMiJ9.e30.x", 400, 73),
        ("eyJhbGciOiJIUzI1NiJ9.e30.x", 401, 40),
    ],
)
async def test_refresh_when_there_is_no_token_in_it_then_says_so(
    token, status, code, autojump_clock
):
    async with open_web() as web:
        given, error = await refresh(web, token)
        assert (given, error["id"]) == (status, code)


async def test_refresh_when_the_algorithm_is_another_then_says_so(autojump_clock):
    async with open_web() as web:
        token = jwt.encode({"iss": "x"}, SECRET * 2, algorithm="HS512")
        status, error = await refresh(web, token)
        assert (status, error["id"], error["code"]) == (400, 73, "invalid_jwt_algorithm")


async def test_refresh_when_very_many_were_exchanged_then_is_refused_and_logins_work(
    autojump_clock, monkeypatch
):
    monkeypatch.setattr("iggy_ref_server.identity.jwt.REVOCATIONS_MAX", 2)
    async with open_web() as web:
        token = await web.log_in()
        for _ in range(2):
            _, identity = await refresh(web, token)
            token = identity["access_token"]["token"]
        assert (await refresh(web, token))[0] == 401
        assert await status_of(web, token) == 200
        assert await status_of(web, await web.log_in()) == 200


async def test_token_when_revoked_then_stays_so_after_a_restart(autojump_clock):
    storage = SimulatedStorage()
    async with open_web(storage, settings=KEPT) as web:
        kept, ended = await web.log_in(), await web.log_in()
        assert (await web.ask("DELETE", "/users/logout", token=ended)).status_code == 204
    async with open_web(storage, settings=KEPT) as web:
        assert [await status_of(web, token) for token in (kept, ended)] == [200, 401]


async def test_token_when_the_secret_is_random_then_dies_with_the_server(autojump_clock):
    storage = SimulatedStorage()
    async with open_web(storage) as web:
        token = await web.log_in()
        assert await status_of(web, token) == 200
    async with open_web(storage, seed=1) as web:
        assert await status_of(web, token) == 401


async def test_revoked_tokens_when_written_then_are_as_the_original_writes_them(autojump_clock):
    storage = SimulatedStorage()
    async with open_web(storage) as web:
        token = await web.log_in()
        claims = jwt.decode(token, options={"verify_signature": False})
        await web.ask("DELETE", "/users/logout")
        content = await storage.read_file(REVOCATIONS_PATH)
    assert content is not None
    assert msgspec.msgpack.decode(content) == {claims["jti"]: claims["exp"] + 5}


async def test_revoked_tokens_when_expired_then_are_forgotten(autojump_clock):
    storage = SimulatedStorage()
    async with open_web(storage) as web:
        await web.log_in()
        await web.ask("DELETE", "/users/logout")
        revocations = web.context.tokens.revocations
        await web.context.tokens.sweep()
        assert len(revocations) == 1
        await trio.sleep(3600 + 6)
        await web.context.tokens.sweep()
        assert len(revocations) == 0
        content = await storage.read_file(REVOCATIONS_PATH)
    assert content is not None
    assert msgspec.msgpack.decode(content) == {}


@pytest.mark.parametrize("content", [b"\xc1", b"", b"\x93\x01\x02\x03", b"\x81\xa1a\xa1b"])
async def test_revoked_tokens_when_their_file_is_damaged_then_all_have_to_log_in(
    content, autojump_clock, caplog
):
    storage, clock = SimulatedStorage(), SimulatedClock()
    async with open_web(storage, settings=KEPT, clock=clock) as web:
        token = await web.log_in()
    await storage.replace(REVOCATIONS_PATH, content)
    clock.step(2_000_000)
    with caplog.at_level(logging.ERROR):
        async with open_web(storage, settings=KEPT, clock=clock) as web:
            assert await status_of(web, token) == 401
            assert await status_of(web, await web.log_in()) == 200
    assert "log in again" in caplog.text


async def test_logout_when_the_disk_fails_then_says_so_and_the_token_is_dead(autojump_clock):
    plan = FaultPlan()
    plan.fail("replace", path=REVOCATIONS_PATH)
    async with open_web(SimulatedStorage(plan)) as web:
        await web.log_in()
        answer = await web.ask("DELETE", "/users/logout")
        assert answer.status_code == 400
        assert (await web.ask("GET", "/streams")).status_code == 401


async def test_logout_when_the_disk_cannot_sync_then_does_not_wait_for_it(autojump_clock):
    plan = FaultPlan()
    async with open_web(SimulatedStorage(plan)) as web:
        await web.log_in()
        plan.delay("sync_directory", path="state", seconds=60)
        before = trio.current_time()
        assert (await web.ask("DELETE", "/users/logout")).status_code == 204
        assert trio.current_time() - before < 1
        await web.context.tokens.sweep()
        assert trio.current_time() - before >= 60
        await web.context.tokens.sweep()
        assert trio.current_time() - before < 120


async def test_revocations_when_many_come_at_once_then_share_writes(autojump_clock):
    plan = FaultPlan()
    plan.delay("replace", path=REVOCATIONS_PATH, seconds=1)
    storage = SimulatedStorage(plan)
    await storage.make_directories("state")
    revocations = await Revocations.open(storage, 0)
    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(revocations.add, str(number), 7)
    assert 1 <= trio.current_time() - before <= 3
    assert len(revocations) == 100


def pem_pair() -> tuple[str, str]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()


async def test_algorithm_when_it_is_rsa_then_pem_keys_sign_and_the_public_key_cannot(
    autojump_clock,
):
    private, public = pem_pair()
    settings = {
        "HTTP_JWT_ALGORITHM": "RS256",
        "HTTP_JWT_ENCODING_SECRET": private,
        "HTTP_JWT_DECODING_SECRET": public,
    }
    async with open_web(settings=settings) as web:
        token = await web.log_in()
        assert jwt.get_unverified_header(token)["alg"] == "RS256"
        assert await status_of(web, token) == 200
        claims = jwt.decode(token, options={"verify_signature": False})
        # The oldest trick: the public key taken for the secret of an HMAC.
        head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
        body = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=")
        signer = jwt.get_algorithm_by_name("HS256")
        signature = signer.sign(head + b"." + body, public.encode())
        forged = b".".join((head, body, base64.urlsafe_b64encode(signature).rstrip(b"=")))
        assert await status_of(web, forged.decode()) == 401


async def test_secret_when_it_is_base64_then_its_bytes_sign(autojump_clock):
    text = base64.b64encode(SECRET.encode()).decode()
    settings = {"HTTP_JWT_DECODING_SECRET": text, "HTTP_JWT_USE_BASE64_SECRET": "true"}
    async with open_web(settings=settings) as web:
        token = await web.log_in()
        times: Any = {
            "verify_aud": False,
            "verify_exp": False,
            "verify_nbf": False,
            "verify_iat": False,
        }
        claims = jwt.decode(token, SECRET, algorithms=["HS256"], options=times)
        assert claims["sub"] == "0"


async def test_secret_when_it_is_short_then_works_and_is_called_so(autojump_clock, caplog):
    with caplog.at_level(logging.WARNING):
        async with open_web(settings={"HTTP_JWT_ENCODING_SECRET": "short"}) as web:
            assert await status_of(web, await web.log_in()) == 200
    assert "encoding_secret is too short" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"HTTP_JWT_ALGORITHM": "RS256"},
        {"HTTP_JWT_ALGORITHM": "RS256", "HTTP_JWT_ENCODING_SECRET": SECRET},
        {"HTTP_JWT_ENCODING_SECRET": SECRET, "HTTP_JWT_DECODING_SECRET": SECRET + "2"},
        {"HTTP_JWT_ENCODING_SECRET": "***", "HTTP_JWT_USE_BASE64_SECRET": "true"},
    ],
)
async def test_listener_when_the_configuration_cannot_work_then_is_not_opened(
    settings, autojump_clock
):
    with pytest.RaisesGroup(ConfigError, flatten_subgroups=True):
        async with open_web(settings=settings):
            pass


async def test_token_ids_when_made_in_turn_then_are_sorted_and_differ():
    made = [
        make_token_id(now_us, lambda size: b"\xff" * size) for now_us in (0, 10**15, 2 * 10**15)
    ]
    assert made == sorted(made)
    assert made[0] == "00000000-0000-7fff-bfff-ffffffffffff"


@pytest.mark.parametrize(
    ("issuer", "same"),
    [
        ("HTTPS://Example.COM/Path", "https://example.com/Path"),
        ("HTTPS://Example.COM", "https://example.com"),
        ("Example.COM/", "example.com"),
    ],
)
async def test_issuers_when_compared_then_case_counts_in_paths_only(issuer, same):
    assert normalize_issuer(issuer) == same
