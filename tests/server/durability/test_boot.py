"""Whether the machine has run since a server last used the data directory."""

from __future__ import annotations

import pytest

from iggy_protocol import CreateStream, CreateTopic
from iggy_ref_server.process.locks import record_boot_id, writes_survived
from tests.server.running import RunningServer


def test_machine_when_it_has_run_since_then_all_writes_are_there(tmp_path):
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("one\n")

    assert not writes_survived(tmp_path, boot_id), "nothing is known of a new directory"
    record_boot_id(tmp_path, boot_id)
    assert writes_survived(tmp_path, boot_id)
    boot_id.write_text("two\n")
    assert not writes_survived(tmp_path, boot_id)


def test_machine_when_it_cannot_tell_then_a_loss_of_power_is_assumed(tmp_path):
    missing = tmp_path / "missing"
    record_boot_id(tmp_path, missing)

    assert not writes_survived(tmp_path, missing)
    for noted in (b"", b"\xff\xfe"):
        (tmp_path / ".boot").write_bytes(noted)
        assert not writes_survived(tmp_path)


@pytest.mark.timeout(60)
def test_boot_when_a_partition_cannot_be_opened_yet_then_is_not_noted(tmp_path):
    """It was not mended since the power failed, and the next start has to know that it may have."""
    with RunningServer(tmp_path) as server:
        client = server.login()
        client.ask(CreateStream("s"))
        client.ask(CreateTopic("s", "t", 2))
        server.stop()
        assert writes_survived(server.data)
        (server.data / ".boot").write_text("an earlier run")
        partition = server.data / "streams/0/topics/0/partitions/0"
        partition.rename(tmp_path / "aside")
        partition.write_bytes(b"not a directory")

        server.start()
        server.stop()
        assert not writes_survived(server.data)

        partition.unlink()
        (tmp_path / "aside").rename(partition)
        server.start()
        assert writes_survived(server.data)
