"""Replies that lie in files, on their way into the streams of a QUIC connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from iggy_ref_server.dispatch.replies import OutputBuffer
from iggy_ref_server.net.quic.stream import ReplyWriter
from iggy_ref_server.storage.interface import FileSlice

SIZE = 1 << 18


class Core:
    """The end of a connection that takes whatever is written."""

    def undelivered_bytes(self, stream_id: int) -> int:
        return 0

    def send_stream_data(self, stream_id: int, data: bytes, end_stream: bool) -> None:
        raise AssertionError("nothing is written for a client that has gone")


class SlowFile:
    """A file whose bytes come when a test says so."""

    path = "log"

    def __init__(self) -> None:
        self.is_asked = trio.Event()
        self.may_answer = trio.Event()

    def read_nowait(self, size: int, position: int) -> None:
        return None

    async def read(self, size: int, position: int) -> bytes:
        self.is_asked.set()
        await self.may_answer.wait()
        return bytes(size)


class LongReply:
    """A request whose long reply lies in a file."""

    stream_id = 0
    loaded = b""
    is_ready = True
    is_reading_file = is_cancelled = is_empty_reply = False

    def __init__(self, file: Any) -> None:
        self.pipeline = SimpleNamespace(output_buffer=OutputBuffer())
        self.pipeline.output_buffer.put(FileSlice(file, 0, SIZE))


@pytest.mark.trio
@pytest.mark.parametrize("is_begun", [True, False])
async def test_load_when_the_client_has_gone_meanwhile_then_nothing_is_taken(is_begun):
    file = SlowFile()
    stream: Any = LongReply(file)
    rung: list[object] = []
    core: Any = Core()
    replies = ReplyWriter(core, SIZE, rung.append)
    replies.write_short(stream)
    replies.write_long()
    assert replies.has_pending_reads

    async with trio.open_nursery() as nursery:
        replies.load(nursery)
        if is_begun:
            await file.is_asked.wait()
        stream.pipeline.output_buffer.clear()
        file.may_answer.set()

    assert rung == [stream]
    assert (stream.loaded, stream.is_reading_file) == (b"", False)
