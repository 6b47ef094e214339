"""Clients of HTTP/2 that mean harm, on real sockets: cut off, bounded, and no traceback."""

from __future__ import annotations

import contextlib
import logging
import struct

import h2.config
import h2.connection
import httpx
import pytest
import trio
import trio.testing

from iggy_ref_server.web import http_protocols
from iggy_ref_server.web.context import WebDispatcher
from tests.server.web.test_listener import assert_alive, until_blocked
from tests.server.web.web_harness import ROOT, Site, open_site, read_all

pytestmark = [pytest.mark.trio, pytest.mark.timeout(60)]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes.fromhex("000000040000000000")
HEADERS, PRIORITY, RST_STREAM, PING_FRAME, WINDOW_UPDATE, CONTINUATION = 1, 2, 3, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
HEAD = [(":method", "GET"), (":path", "/ping"), (":scheme", "http"), (":authority", "x")]
STALL_S = 30


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return (
        struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream_id) + payload
    )


class Speaker:
    """Writes frames, good and bad."""

    def __init__(self) -> None:
        self.client = h2.connection.H2Connection(
            h2.config.H2Configuration(
                validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )

    def head(self, fields=HEAD) -> bytes:
        return self.client.encoder.encode(fields)

    def request(self, stream_id: int, fields=HEAD) -> bytes:
        return frame(HEADERS, END_STREAM | END_HEADERS, stream_id, self.head(fields))


def rapid_reset(speaker: Speaker) -> bytes:
    reset = struct.pack("!I", 8)
    return b"".join(
        speaker.request(stream_id) + frame(RST_STREAM, 0, stream_id, reset)
        for stream_id in range(1, 2001, 2)
    )


def continuations(speaker: Speaker) -> bytes:
    head = speaker.head()
    return frame(HEADERS, END_STREAM, 1, head) + frame(CONTINUATION, 0, 1, b"") * 2000


def header_bomb(speaker: Speaker) -> bytes:
    fields = [*HEAD, *[("x", "a" * 4000)] * 200]
    block = speaker.head(fields)
    first = frame(HEADERS, END_STREAM, 1, block[:10_000])
    rest = [block[at : at + 10_000] for at in range(10_000, len(block), 10_000)]
    return first + b"".join(
        frame(CONTINUATION, END_HEADERS if piece is rest[-1] else 0, 1, piece) for piece in rest
    )


FLOODS = {
    "rapid reset": rapid_reset,
    "pings": lambda speaker: frame(PING_FRAME, 0, 0, bytes(8)) * 5000,
    "settings": lambda speaker: SETTINGS * 5000,
    "changing settings": lambda speaker: b"".join(
        frame(4, 0, 0, struct.pack("!HI", 4, size)) for size in range(1, 5000)
    ),
    "priorities": lambda speaker: b"".join(
        frame(PRIORITY, 0, 2 * number + 1, struct.pack("!IB", 0, 1)) for number in range(5000)
    ),
    "priority loop": lambda speaker: frame(PRIORITY, 0, 1, struct.pack("!IB", 1, 1)),
    "window overflow": lambda speaker: frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", 2**31 - 1)) * 2,
    "windows of nothing": lambda speaker: frame(WINDOW_UPDATE, 0, 0, bytes(4)),
    "windows of unknown streams": lambda speaker: (
        speaker.request(1) + frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", 1)) * 2000
    ),
    "data for a stream that has ended": lambda speaker: (
        speaker.request(1) + frame(0, 0, 1, b"x") * 50
    ),
    "data for an answered stream": lambda speaker: (
        frame(HEADERS, END_HEADERS, 1, speaker.head()) + frame(0, 0, 1, b"x" * 9) * 900
    ),
    "continuations": continuations,
    "header bomb": header_bomb,
    "too many streams": lambda speaker: b"".join(
        speaker.request(stream_id) for stream_id in range(1, 401, 2)
    ),
    "no path": lambda speaker: speaker.request(1, [(":method", "CONNECT"), (":authority", "x")]),
    "a path of no characters": lambda speaker: speaker.request(
        1, [(":method", "GET"), (":path", b"/\xff\xfe"), (":scheme", "http"), (":authority", "x")]
    ),
    "a method of no characters": lambda speaker: speaker.request(
        1, [(":method", b"\xff"), (":path", "/"), (":scheme", "http"), (":authority", "x")]
    ),
    "an odd frame": lambda speaker: frame(0, 0, 2, b"x"),
    "a frame that is too large": lambda speaker: b"\xff\xff\xff\0\0\0\0\0\1" + bytes(100_000),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_flood_when_it_comes_by_http2_then_leaves_no_traceback_and_others_are_served(
    flood, caplog
):
    caplog.set_level(logging.INFO)
    speaker = Speaker()
    async with open_site() as site:
        async with await site.connect() as stream:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(PREFACE + SETTINGS + FLOODS[flood](speaker))
                await stream.send_eof()
            await read_all(stream)
        await assert_alive(site)
        await until_blocked()
    assert not [record for record in caplog.records if record.exc_info]


async def test_requests_when_reset_faster_than_served_then_are_bounded(monkeypatch):
    under_way, most = 0, 0

    async def hesitate(self, session, command):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            await trio.sleep_forever()
        finally:
            under_way -= 1

    speaker = Speaker()
    async with open_site() as site:
        with monkeypatch.context() as patch:
            patch.setattr(WebDispatcher, "perform", hesitate)
            patch.setattr(http_protocols, "CONTROL_FRAMES_PER_SECOND_MAX", 1 << 30)
            async with await site.connect() as stream:
                await stream.send_all(PREFACE + SETTINGS)
                reset = struct.pack("!I", 8)
                with contextlib.suppress(trio.BrokenResourceError):
                    for stream_id in range(1, 401, 2):
                        data = speaker.request(stream_id) + frame(RST_STREAM, 0, stream_id, reset)
                        await stream.send_all(data)
                        await trio.testing.wait_all_tasks_blocked()
                await read_all(stream)
            assert 0 < most <= http_protocols.IN_FLIGHT_MAX
            # What hangs there is given up with the listener.
            site.nursery.cancel_scope.cancel()


async def ask_for_much(site: Site, stream: trio.SocketStream, window_bytes: int) -> None:
    """Ask for the page of the documents, and grant a window for little of it."""
    speaker = Speaker()
    window = frame(4, 0, 0, struct.pack("!HI", 4, window_bytes))
    fields = [(":path", "/docs") if name == ":path" else (name, value) for name, value in HEAD]
    await stream.send_all(PREFACE + window + speaker.request(1, fields))
    await until_blocked()


@pytest.mark.parametrize("window_bytes", [0, 1, 100])
async def test_answer_when_no_window_is_granted_for_it_then_its_connection_is_given_up(
    mock_clock, window_bytes
):
    settings = {"LIMITS_HTTP_MAX_CONNECTIONS": "1"}
    async with open_site(settings=settings) as site, await site.connect() as stream:
        await ask_for_much(site, stream, window_bytes)
        mock_clock.jump(STALL_S + 60)
        await until_blocked()
        await read_all(stream)
        await until_blocked()
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"http://127.0.0.1:{site.port}/users/login", json=ROOT)
            assert answer.status_code == 200


@pytest.mark.parametrize(
    "settings", ["AAAA", "!", "A", "", "AAIAAAAC", "\xff", "A" * 3000], ids=lambda text: text[:8]
)
async def test_upgrade_when_its_settings_are_nonsense_then_no_traceback_and_others_are_served(
    settings, caplog
):
    caplog.set_level(logging.INFO)
    head = (
        "GET /ping HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        f"Upgrade: h2c\r\nHTTP2-Settings: {settings}\r\n\r\n"
    )
    async with open_site() as site:
        async with await site.connect() as stream:
            await stream.send_all(head.encode("latin1"))
            await stream.send_eof()
            with trio.fail_after(10):
                await read_all(stream)
        await assert_alive(site)
        await until_blocked()
    assert not [record for record in caplog.records if record.exc_info]
