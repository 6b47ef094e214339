"""Whether the machine has run since a server last used the data directory."""

from __future__ import annotations

from iggy_ref_server.boot import note_boot, writes_survived


def test_machine_when_it_has_run_since_then_all_writes_are_there(tmp_path):
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("one\n")

    assert not writes_survived(tmp_path, boot_id), "nothing is known of a new directory"
    note_boot(tmp_path, boot_id)
    assert writes_survived(tmp_path, boot_id)
    boot_id.write_text("two\n")
    assert not writes_survived(tmp_path, boot_id)


def test_machine_when_it_cannot_tell_then_a_loss_of_power_is_assumed(tmp_path):
    missing = tmp_path / "missing"
    note_boot(tmp_path, missing)

    assert not writes_survived(tmp_path, missing)
    for noted in (b"", b"\xff\xfe"):
        (tmp_path / ".boot").write_bytes(noted)
        assert not writes_survived(tmp_path)
