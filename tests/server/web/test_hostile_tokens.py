"""Tokens that are none: whatever a JOSE header says, the answer is 401 and nothing is logged."""

from __future__ import annotations

import base64
import json
import logging

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from tests.server.web.web_harness import open_web

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(["alg", "typ", "kid", "crit", "b64", "jwk", "jku", "x5c", "cty", "zip"])
ALGORITHM = st.sampled_from(["HS256", "RS256", "none", ["HS256"], {"a": 1}, None, 7, True, ""])
HEADERS = st.builds(
    lambda fields, algorithm: {**fields, "alg": algorithm},
    st.dictionaries(NAMES | st.text(max_size=4), VALUES, max_size=4),
    ALGORITHM,
)
CLAIMS = st.dictionaries(
    st.sampled_from(["iss", "sub", "aud", "exp", "jti", "iat", "nbf", "inc"]), VALUES
)


def part(content: object) -> str:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


async def statuses_of(token: str) -> list[int]:
    """Ask with a token, and try to exchange it."""
    async with open_web() as web:
        asked = await web.client.get("/streams", headers={"Authorization": f"Bearer {token}"})
        body = {"token": token}
        exchanged = await web.client.post("/users/refresh-token", json=body)
        return [asked.status_code, exchanged.status_code]


@given(HEADERS | VALUES | st.binary(max_size=40), CLAIMS | VALUES, st.binary(max_size=40))
@example({"alg": ["HS256"]}, {}, b"")
@example({"alg": {"HS256": 1}}, {}, b"")
@example({"alg": "HS256", "kid": ["a"], "crit": 5}, {"iss": 5}, b"x")
@example({"alg": "HS256", "crit": ["b64"], "b64": False}, {"iss": "x"}, b"x")
def test_token_when_its_header_is_malformed_then_is_answered_with_401(header, claims, signature):
    token = ".".join(map(part, (header, claims, signature)))
    assert trio.run(statuses_of, token)[0] == 401


@pytest.mark.trio
async def test_token_when_its_algorithm_is_a_list_then_no_error_is_logged(caplog, autojump_clock):
    caplog.set_level(logging.WARNING)
    token = ".".join(map(part, ({"alg": ["HS256"]}, {}, b"x")))
    asked, exchanged = await statuses_of(token)
    assert asked == 401
    assert exchanged in (400, 401)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
