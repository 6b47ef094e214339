"""A server of 0.9 and a client that is to speak 0.8: it says so instead of waiting in vain."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from iggy_sdk import IggyClient, IncompatibleServerError, RequestTimeoutError
from tests.sdk.net.socket_servers import socket_server

pytestmark = pytest.mark.anyio

RECORDING = Path(__file__).parents[2] / "golden" / "vsr" / "login.0.9.0.jsonl"
HEAD_BYTES = 256


def recorded_pong():
    """Return the answer to a ping that the official client 0.9.0 accepted."""
    lines = [json.loads(line) for line in RECORDING.read_text().splitlines()]
    frames = [bytes.fromhex(line["frame"]) for line in lines if line.get("dir") == "<"]
    return frames[0]


async def serve_as_0_9(stream):
    """Wait for whole heads, as such a server does, and answer pings."""
    received = b""
    while True:
        try:
            received += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return
        while len(received) >= HEAD_BYTES:
            if received[60] != 5:
                return
            received = received[HEAD_BYTES:]
            await stream.send(recorded_pong())


async def serve_rudely(stream):
    """Do likewise, but hang up on who begins with anything else."""
    first = await stream.receive()
    if not any(first[:4]):
        await stream.send(recorded_pong())


async def serve_nothing(stream):
    """Never answer."""
    try:
        while True:
            await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return


@pytest.mark.parametrize("serve", [serve_as_0_9, serve_rudely])
async def test_connect_when_only_0_8_may_be_spoken_to_0_9_then_says_so_with_advice(serve):
    async with socket_server(serve) as endpoint:
        client = IggyClient(f"iggy://iggy:iggy@{endpoint}?protocol=0.8")
        with anyio.fail_after(15), pytest.raises(IncompatibleServerError) as caught:
            await client.connect()
        await client.aclose()
    assert "0.9" in caught.value.message
    assert "0.8" in caught.value.message
    assert "protocol=" in caught.value.advice
    assert not caught.value.retriable


async def test_connect_when_the_server_is_only_silent_then_times_out_as_before():
    async with socket_server(serve_nothing) as endpoint:
        client = IggyClient(
            f"iggy://iggy:iggy@{endpoint}?connect_timeout=2500ms&reconnection_enabled=false"
        )
        with anyio.fail_after(15), pytest.raises(RequestTimeoutError):
            await client.connect()
        await client.aclose()
