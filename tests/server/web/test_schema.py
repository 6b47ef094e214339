"""Requests made up from the OpenAPI document: whatever they are, the server does not fail."""

from __future__ import annotations

import sys
import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
import schemathesis
import trio
from hypothesis import HealthCheck, settings

from iggy_protocol.rest import ROUTES
from iggy_ref_server.web.openapi import build_document
from tests.server.web.web_harness import ROOT, SECRET, open_site

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def running_site() -> Iterator[str]:
    """Run a server in a thread; gives its address."""
    started = threading.Event()
    # Client and server are threads of one process here, and take turns with each request.
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0002)
    found: dict = {}

    async def main():
        async with open_site(settings={"HTTP_JWT_ENCODING_SECRET": SECRET}) as site:
            found.update(port=site.port, token=trio.lowlevel.current_trio_token())
            found["stop"] = trio.Event()
            started.set()
            await found["stop"].wait()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert started.wait(10)
    try:
        yield f"http://127.0.0.1:{found['port']}"
    finally:
        trio.from_thread.run_sync(found["stop"].set, trio_token=found["token"])
        thread.join()
        sys.setswitchinterval(interval_s)


class Caller:
    """Calls a server as root, with a new token each time, because some calls end one."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url)
        token = self.client.post("/users/login", json=ROOT).json()["access_token"]["token"]
        self._claims = jwt.decode(token, options={"verify_signature": False})

    def headers(self) -> dict[str, str]:
        """Make a token."""
        token = jwt.encode(self._claims | {"jti": str(uuid.uuid4())}, SECRET)
        return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    with running_site() as url:
        caller = Caller(url)
        topic = {
            "name": "t",
            "partitions_count": 2,
            "compression_algorithm": "none",
            "message_expiry": 0,
            "max_topic_size": 0,
        }
        for path, body in (("/streams", {"name": "s"}), ("/streams/s/topics", topic)):
            caller.client.post(path, json=body, headers=caller.headers()).raise_for_status()
        yield caller
        caller.client.close()


def make_schema(*, is_brief: bool) -> Any:
    """Read the document; a brief schema has no cases for the edges of every single field."""
    schema = schemathesis.openapi.from_dict(build_document(ROUTES))
    # Tokens are good ones here: bad ones would keep everything else from being tried.
    schema.config.generation.update(with_security_parameters=False)
    schema.config.phases.coverage.enabled = not is_brief
    return schema


def settings_for(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


def try_it(case: Any, caller: Caller) -> None:
    response = case.call(base_url=caller.url, headers=caller.headers())
    assert response.status_code < 500, response.text
    assert response.status_code != 401 or "refresh" in case.path
    assert caller.client.get("/ping").text == "pong"


@make_schema(is_brief=True).parametrize()
@settings_for(3)
def test_request_when_made_up_then_the_server_does_not_fail(case, caller):
    try_it(case, caller)


@pytest.mark.slow
@pytest.mark.timeout(120)
@make_schema(is_brief=False).parametrize()
@settings_for(50)
def test_request_when_made_up_at_length_then_the_server_does_not_fail(case, caller):
    try_it(case, caller)
