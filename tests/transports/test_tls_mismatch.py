"""One side speaks TLS and the other does not: both directions, every transport and protocol."""

from __future__ import annotations

import anyio
import pytest

from iggy_sdk import AuthenticationError, ConnectionFailedError, IggyClient

pytestmark = pytest.mark.anyio

PROTOCOLS = ("auto", "0.8", "0.9", "0.10")
PLAIN_CLIENTS = [*(("tcp", one) for one in PROTOCOLS), *(("ws", one) for one in PROTOCOLS)]
SECURED_CLIENTS = [*(("tls", one) for one in PROTOCOLS), *(("wss", one) for one in PROTOCOLS)]
SECONDS_MAX = 15.0
"""Far below what a client takes that tries again until its time is over, on a busy machine."""


@pytest.fixture(scope="module")
def shards() -> int:
    """How many shards serve."""
    return 1


async def refusal(url: str) -> ConnectionFailedError:
    with pytest.raises(ConnectionFailedError) as caught, anyio.fail_after(SECONDS_MAX):
        await IggyClient(url, connect_timeout=60.0).connect()
    return caught.value


@pytest.mark.parametrize(("transport", "protocol"), [*PLAIN_CLIENTS, ("http", "auto")])
async def test_plain_client_when_the_port_speaks_tls_then_is_told_so_at_once(
    open_server, transport, protocol
):
    server = open_server(shards=1, secured=True)

    error = await refusal(server.url(transport, protocol=protocol))

    assert "speaks TLS, and this client connects without it" in error.message
    assert {"tcp": "tls=true", "ws": "iggy+wss://", "http": "iggy+https://"}[
        transport
    ] in error.advice
    assert not error.retriable


@pytest.mark.parametrize(("transport", "protocol"), [*SECURED_CLIENTS, ("https", "auto")])
async def test_tls_client_when_the_port_is_plain_then_is_told_so_at_once(
    open_server, transport, protocol
):
    server = open_server(shards=1, secured=False)

    error = await refusal(server.url(transport, protocol=protocol))

    assert "does not speak TLS, and this client connects with it" in error.message
    assert {"tls": "tls=true", "wss": "iggy+ws://", "https": "iggy+http://"}[
        transport
    ] in error.advice
    assert not error.retriable


@pytest.mark.parametrize("transport", ["tls", "wss", "https"])
async def test_client_when_both_speak_tls_then_a_wrong_login_is_what_is_told(
    open_server, transport
):
    server = open_server(shards=1, secured=True)

    with pytest.raises(AuthenticationError):
        await IggyClient(server.url(transport, login="iggy:wrong@")).connect()
