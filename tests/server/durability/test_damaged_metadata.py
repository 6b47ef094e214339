"""Metadata that are damaged in the middle: no start, no change, but instructions that work."""

from __future__ import annotations

import pytest

from iggy_protocol import CreateStream, GetStreams
from iggy_ref_server.fsck import check, repair
from tests.server.running import ServerFailed

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("shards", [1, 2])
def test_log_when_damaged_in_the_middle_then_the_start_is_refused_until_repaired(
    start_server, shards
):
    server = start_server(shards=shards)
    client = server.login()
    for number in range(20):
        client.ask(CreateStream(f"stream {number}"))
    server.stop()
    log = server.data / "state" / "metadata.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)

    with pytest.raises(ServerFailed, match=r"(?s)ended with 1 .*iggy-server repair"):
        server.start()

    assert log.read_bytes() == content, "a refused start changes nothing"
    said: list[str] = []
    assert check(server.data, said.append) == 1
    assert log.read_bytes() == content, "a check changes nothing"
    assert repair(server.data, said.append) == 0, said
    server.start()
    names = {stream.name for stream in server.login().ask(GetStreams())}
    assert len(names) == 19
    assert names < {f"stream {number}" for number in range(20)}
    [kept] = (server.data / "quarantine").rglob("metadata.log*")
    assert kept.read_bytes() == content
