"""The pages about the server are correct: each claim has a test, and their keys exist.

Every row of the table of differences names a weakness of Apache Iggy 0.8 by its id. Each id has a
test that fails on the old behaviour; this file says which.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from iggy_protocol import V0_12_2, OptionFlags, OptionScope, options_of
from iggy_ref_server.config.defaults import DEFAULT_TOML
from iggy_ref_server.config.rules import IGNORED_KEYS, UNSUPPORTED_KEYS
from iggy_ref_server.config.sources import unknown_variables
from tests.interop.wheels import wheel_python
from tests.server.config.test_defaults import ORIGINAL
from tests.server.running import RunningServer

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "server.md"
PAGES = (ROOT / "README.md", PAGE, ROOT / "CHANGELOG.md")

ROW = re.compile(r"^\| ([CDS]\d+) \|", re.MULTILINE)
VARIABLE = re.compile(r"\bIGGY_[A-Z0-9_]*[A-Z0-9]\b")
CLIENTS = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)

OPTION = re.compile(
    r"^\| `([a-z_]+)` \|.* \| (yes|no|no \(from 0\.9: yes\)|set and reset) \|$", re.MULTILINE
)

# Under tests/server.
PROOFS = {
    "D1": "durability/test_kill.py::test_what_was_acknowledged_survives_kills_under_load",
    "D2": "partitions/test_memory_ack.py::test_offsets_when_the_process_dies_then_never_reissued",
    "D3": "partitions/test_memory_ack.py::"
    "test_stored_offset_when_its_message_is_in_memory_then_not_on_disk_before_it",
    "D4": "features/test_damage.py::test_log_when_garbage_follows_its_records_then_it_is_cut_off",
    "D5": "features/test_damage.py::"
    "test_index_when_missing_or_wrong_then_it_is_made_again_from_the_log",
    "D7": "features/test_damage.py::test_metadata_log_when_torn_then_only_the_last_change_is_lost",
    "D8": "metadata/test_store.py::test_change_when_not_yet_on_the_disk_then_is_not_visible",
    "D9": "metadata/test_store_faults.py::test_log_when_long_enough_then_gives_way_to_a_snapshot",
    "D10": "partitions/test_failures.py::"
    "test_sync_when_it_fails_then_read_only_with_a_reason_and_polls_go_on",
    "D11": "partitions/test_failures.py::"
    "test_disk_when_full_then_refused_and_nothing_moves_and_later_it_works",
    "D12": "partitions/test_offsets.py::"
    "test_file_when_it_makes_no_sense_then_passed_over_and_the_others_count",
    "D13": "features/test_damage.py::"
    "test_partition_when_a_record_in_its_middle_is_damaged_then_it_alone_is_set_aside",
    "D14": "partitions/test_retention.py::"
    "test_removal_when_done_then_a_power_loss_does_not_bring_segments_back",
    "D15": "segments/test_recovery.py::test_open_segment_when_clean_then_only_its_end_is_read",
    "D16": "partitions/test_purge.py::"
    "test_purge_when_it_is_interrupted_then_done_at_the_next_start",
    "C1": "features/test_restart.py::"
    "test_topic_when_its_settings_are_left_to_the_server_then_a_restart_keeps_the_resolved_ones",
    "C2": "features/test_restart.py::"
    "test_topic_when_updated_to_server_defaults_then_they_are_resolved_and_checked",
    "C3": "features/test_segments.py::"
    "test_purge_when_messages_are_only_in_memory_then_nothing_is_left",
    "C4": "partitions/test_deduplication.py::"
    "test_batch_when_all_are_duplicates_then_acknowledged_and_nothing_stored",
    "C5": "partitions/test_poll.py::"
    "test_count_when_index_is_not_cached_after_a_restart_then_matches_the_body",
    "C6": "features/test_retrieval.py::"
    "test_poll_when_from_the_time_of_a_batch_then_it_and_the_later_ones_come",
    "C7": "features/test_groups.py::"
    "test_members_when_six_partitions_are_joined_by_four_then_shares_differ_by_one_at_most",
    "C8": "features/test_groups.py::"
    "test_commit_without_a_partition_when_it_follows_a_poll_then_it_means_what_was_polled",
    "C9": "features/test_migration.py::"
    "test_client_when_moved_then_its_number_login_and_memberships_stay",
    "C10": "features/test_groups.py::"
    "test_member_when_its_heart_stops_then_it_is_removed_and_its_connection_closed",
    "C12": "features/test_hostile.py::"
    "test_keyed_send_when_the_topic_has_no_partitions_then_it_is_refused_and_the_server_lives",
    "C13": "metadata/test_plans.py::test_streams_when_full_then_one_more_is_refused_until_one_goes",
    "C16": "partitions/test_encryption_at_rest.py::"
    "test_messages_when_the_key_is_another_then_told_and_never_skipped",
    "C17": "features/test_restart.py::"
    "test_stream_when_it_was_deleted_then_no_message_comes_back_under_its_number",
    "C19": "features/test_groups.py::"
    "test_joins_after_a_leave_when_a_partition_is_uncommitted_then_it_is_not_given_to_two",
    "C20": "groups/test_group_registry.py::test_client_when_gone_then_no_group_keeps_a_ghost",
    "C21": "features/test_hostile.py::"
    "test_send_when_its_body_is_cut_anywhere_then_it_is_refused_and_the_next_request_answered",
    "C22": "partitions/test_poll.py::"
    "test_poll_when_anything_is_asked_then_brings_what_the_model_says",
    "C24": "features/test_auth.py::test_user_when_its_name_is_made_of_digits_then_it_can_log_in",
    "S1": "features/test_auth.py::"
    "test_snapshot_when_asked_for_without_the_right_to_manage_servers_then_it_is_denied",
    "S2": "features/test_auth.py::"
    "test_session_when_its_user_is_deleted_then_it_ends_and_never_acts_for_the_next_one",
    "S3": "metadata/test_plans.py::"
    "test_permissions_when_their_stream_is_deleted_then_do_not_apply_to_the_next_one",
    "S5": "features/test_hostile.py::"
    "test_send_when_refused_unread_then_its_payload_is_drained_and_the_next_request_answered",
    "S6": "identity/test_passwords.py::"
    "test_flood_when_the_line_is_full_then_the_next_is_refused_and_the_loop_goes_on",
    "S8": "features/test_auth.py::"
    "test_root_when_deleted_deactivated_or_restricted_then_it_is_refused",
}


@cache
def functions_in(file: str) -> frozenset[str]:
    """Name the tests of a file."""
    tree = ast.parse((ROOT / "tests" / "server" / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def settings_of(section: dict[str, object], prefix: str = "") -> dict[str, object]:
    """List the keys of a TOML tree, as people write them, with their values."""
    found: dict[str, object] = {}
    for name, value in section.items():
        path = f"{prefix}{name}"
        found |= settings_of(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found


def own_settings() -> dict[str, object]:
    """List the keys that Apache Iggy 0.8 does not have."""
    theirs = {f"{section}.{key}" for section, keys in ORIGINAL.items() for key in keys}
    everything = settings_of(tomllib.loads(DEFAULT_TOML))
    return {key: value for key, value in everything.items() if key not in theirs}


def test_table_of_differences_when_read_then_every_row_has_its_proof():
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))

    assert len(rows) == len(set(rows))
    assert set(rows) == set(PROOFS)


@pytest.mark.parametrize("weakness", PROOFS)
def test_proof_when_looked_for_then_the_test_exists(weakness):
    file, _, name = PROOFS[weakness].partition("::")

    assert name in functions_in(file)


def test_recorded_differences_when_listed_then_the_page_has_their_weaknesses():
    golden = (ROOT / "tests" / "golden" / "deviations.toml").read_text(encoding="utf-8")

    listed = {entry["weakness"] for entry in tomllib.loads(golden)["deviation"]}

    assert listed <= set(PROOFS)


def test_own_keys_when_listed_then_the_page_has_them_with_their_defaults():
    page = PAGE.read_text(encoding="utf-8")
    rows = [f"| `{key}` | `{json.dumps(value)}` |" for key, value in own_settings().items()]

    assert '| `system.partition.ack` | `"written"` |' in rows
    assert [row for row in rows if row not in page] == []


def test_keys_when_without_effect_then_the_page_names_them():
    page = PAGE.read_text(encoding="utf-8")

    assert [key for key in (*UNSUPPORTED_KEYS, *IGNORED_KEYS) if f"`{key}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_when_a_page_names_them_then_they_exist(page):
    named = VARIABLE.findall(page.read_text(encoding="utf-8"))

    assert unknown_variables(dict.fromkeys(named, "1")) == []


def run_client(python, script, directory):
    """Run a client of the front page against a server that listens elsewhere."""
    with RunningServer(directory) as server:
        script = script.replace("127.0.0.1:8090", f"127.0.0.1:{server.address[1]}")
        return subprocess.run(
            [python, "-c", script], capture_output=True, text=True, timeout=60, check=False
        )


@pytest.mark.interop
@pytest.mark.timeout(90)
def test_readme_when_its_official_client_runs_then_it_gets_its_message(tmp_path):
    wheel = wheel_python()
    script, _ = CLIENTS.findall(PAGES[0].read_text(encoding="utf-8"))
    # The wheel has no way to close a client, and its threads may abort an interpreter that ends.
    script += "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"

    done = run_client(wheel, script, tmp_path)

    assert (done.returncode, done.stdout) == (0, "0 tea\n"), done.stderr


@pytest.mark.timeout(90)
def test_readme_when_our_client_runs_then_it_gets_its_message(tmp_path):
    _, script = CLIENTS.findall(PAGES[0].read_text(encoding="utf-8"))

    done = run_client(sys.executable, script, tmp_path)

    assert (done.returncode, done.stdout[1:]) == (0, " 0 tea\n"), done.stderr


def test_table_of_options_when_compared_with_the_protocol_then_each_is_there_with_its_flags():
    flags = {
        "yes": OptionFlags.UPDATABLE,
        "no": OptionFlags(0),
        "no (from 0.9: yes)": OptionFlags(0),
        "set and reset": OptionFlags.UPDATABLE | OptionFlags.RESETTABLE,
    }
    section = PAGE.read_text().partition("\n## Options\n")[2].partition("\n## ")[0]

    told = {key: flags[text] for key, text in OPTION.findall(section)}

    specs = options_of(OptionScope.TOPIC, V0_12_2)
    assert told == {key: spec.flags[V0_12_2] for key, spec in specs.items()}
