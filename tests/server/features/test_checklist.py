"""What a server of this kind is expected to do, item by item, and the test that holds it to that.

The items are those that the tests of the original assert; the numbers are theirs in the survey of
its behaviour. An item without a test says here why it has none.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]

# Items that need a listener or a program which is not there.
WITHOUT = {
    119: "tokens over HTTP and TCP: there is no HTTP listener",
    120: "tokens of other issuers: there is no HTTP listener",
    128: "the load program of the original is not at hand; bench has one of its own",
}

ITEMS = {
    # Basics
    1: "test_ping_when_sent_without_a_login_then_it_is_answered",
    2: "test_server_when_fresh_then_it_has_no_streams_and_the_first_gets_id_0",
    3: "test_stream_when_created_then_it_is_listed_as_empty",
    4: "test_stream_when_asked_for_by_id_and_by_name_then_it_is_the_same",
    5: "test_stream_when_created_twice_then_the_second_is_refused",
    6: "test_topic_when_created_with_partitions_then_it_reports_them",
    7: "test_topic_when_it_never_expires_and_size_is_left_to_the_server_then_both_are_echoed",
    8: "test_partitions_when_fresh_then_each_has_one_empty_segment",
    9: "test_topic_when_created_twice_then_the_second_is_refused_and_the_stream_lists_one",
    10: "test_messages_when_sent_in_one_batch_then_they_come_back_in_order",
    11: "test_messages_when_read_in_ten_smaller_polls_then_they_are_the_same",
    12: "test_topic_when_filled_then_its_size_counts_headers_and_payloads",
    13: "test_partitions_when_another_one_is_filled_then_they_stay_empty",
    14: "test_offset_when_stored_and_deleted_then_it_is_there_and_gone",
    15: "test_offset_when_stored_and_deleted_then_it_is_there_and_gone",
    16: "test_poll_when_next_with_auto_commit_then_it_goes_on_behind_the_stored_offset",
    17: "test_group_when_created_then_it_is_listed_without_members",
    18: "test_group_when_joined_and_left_then_the_member_comes_and_goes",
    19: "test_stats_when_things_were_made_then_they_are_counted",
    20: "test_group_when_deleted_then_it_is_gone",
    21: "test_partitions_when_added_and_deleted_then_the_count_follows",
    22: "test_topic_when_updated_then_everything_is_readable_under_the_new_name",
    23: "test_topic_when_purged_then_nothing_is_left_and_the_offset_is_0",
    24: "test_stream_when_renamed_and_purged_then_it_is_empty_under_its_new_name",
    25: "test_topics_and_streams_when_deleted_then_none_are_left",
    26: "test_segments_when_more_are_deleted_than_there_are_then_one_stays",
    27: "test_clients_when_one_is_connected_then_one_is_listed",
    # Messages and limits
    28: "test_batch_when_empty_then_it_is_refused",
    29: "test_payload_when_large_then_it_comes_back_whole",
    30: "test_payload_when_one_byte_too_long_then_nothing_is_stored",
    31: "test_user_headers_when_of_every_kind_then_they_round_trip",
    32: "test_message_when_it_brings_an_id_then_id_and_payload_come_back",
    33: "test_messages_when_one_per_request_and_saved_late_then_none_is_lost",
    # Retrieval
    34: "test_poll_when_from_offset_0_then_everything_comes",
    35: "test_poll_when_from_the_middle_then_the_second_half_comes",
    36: "test_poll_when_beyond_the_end_then_nothing_comes",
    37: "test_poll_when_a_small_count_is_asked_for_then_no_more_comes",
    38: "test_poll_when_it_spans_batches_and_segments_then_the_range_is_whole",
    39: "test_messages_when_polled_then_content_id_and_headers_are_those_sent",
    40: "test_polls_when_one_after_the_other_then_they_cover_everything_once",
    41: "test_poll_when_from_a_time_before_all_then_everything_comes",
    42: "test_poll_when_from_between_two_batches_then_only_the_later_ones_come",
    43: "test_poll_when_from_an_hour_ahead_then_nothing_comes",
    44: "test_poll_when_from_the_time_of_a_batch_then_it_and_the_later_ones_come",
    45: "test_client_when_it_asks_for_everything_then_each_step_is_as_on_the_original",
    # Offsets
    46: "test_offset_when_the_partition_is_empty_then_none_can_be_stored",
    47: "test_offset_when_beyond_the_current_one_then_it_is_refused",
    48: "test_current_offset_when_segments_were_deleted_then_it_stays",
    # Segments and retention
    49: "test_segments_when_full_then_they_roll_with_files_of_exact_sizes",
    50: "test_segments_when_deleted_one_by_one_then_the_oldest_go_first",
    51: "test_active_segment_when_all_are_asked_for_then_it_stays",
    52: "test_segments_when_none_or_a_huge_number_is_asked_for_then_so_many_go",
    53: "test_segment_when_a_consumer_is_inside_it_then_it_stays_until_the_last_message",
    54: "test_segment_when_a_group_is_inside_it_then_it_stays_until_the_last_message",
    55: "test_segments_when_there_are_several_consumers_then_the_slowest_decides",
    56: "test_segments_when_the_place_does_not_exist_then_the_request_is_refused",
    57: "test_files_when_segments_were_deleted_then_they_agree_with_polls_after_a_restart",
    58: "test_consumer_when_its_next_messages_were_deleted_then_it_goes_on_with_the_oldest",
    59: "test_purge_when_offsets_are_stored_then_all_files_go_and_offsets_start_at_0",
    60: "test_segments_when_expired_then_the_cleaner_takes_them_and_leaves_the_active_one",
    61: "test_topic_when_it_nears_its_size_then_the_oldest_segments_go",
    62: "test_topic_when_both_policies_are_on_then_every_partition_keeps_its_active_segment",
    63: "test_segments_when_expired_but_not_consumed_then_the_consumer_goes_on_without_a_gap",
    64: "test_expiry_when_the_age_is_unknown_then_kept",
    # Restart and durability
    65: "test_everything_when_restarted_then_it_is_as_before_and_grows_on",
    66: "test_ids_when_middle_things_were_deleted_then_the_others_keep_theirs",
    67: "test_ids_when_freed_and_given_again_then_they_carry_the_new_name_after_a_restart",
    68: "test_users_when_restarted_then_they_log_in_with_their_latest_password",
    69: "test_secrets_when_used_then_none_is_on_the_disk",
    70: "test_message_when_alone_at_offset_0_then_the_next_after_a_restart_gets_1",
    71: "test_offset_file_when_ahead_of_the_data_then_new_messages_are_delivered",
    72: "test_offsets_when_producing_and_consuming_after_a_restart_then_they_have_no_gap",
    73: "test_producers_and_members_when_the_server_restarts_then_they_go_on",
    74: "test_encryption_when_on_then_nothing_is_readable_on_disk_and_all_over_the_wire",
    75: "test_change_when_not_yet_on_the_disk_then_is_not_visible",
    # Concurrency
    76: "test_creates_when_twenty_have_distinct_names_then_all_succeed",
    77: "test_creates_when_twenty_have_one_name_then_exactly_one_succeeds",
    78: "test_clients_when_on_any_shard_then_they_see_the_same_state",
    79: "test_consumer_when_every_send_is_saved_while_it_polls_then_it_sees_no_gap",
    80: "test_messages_when_the_saver_writes_in_the_background_then_they_stay_readable",
    81: "test_producers_when_eight_share_a_partition_of_tiny_segments_then_the_totals_are_exact",
    # Groups
    82: "test_three_members_of_three_partitions_when_joined_then_have_one_each",
    83: "test_two_members_of_three_partitions_when_joined_then_share_them_all",
    84: "test_member_when_alone_then_it_reads_in_the_order_of_production",
    85: "test_member_when_messages_are_keyed_then_each_comes_once_and_in_order",
    86: "test_members_when_three_share_three_partitions_then_each_reads_every_third_message",
    87: "test_member_when_it_comes_back_then_it_goes_on_behind_what_it_committed",
    88: "test_member_when_it_comes_back_then_it_goes_on_behind_what_it_committed",
    89: "test_offset_of_a_group_when_asked_by_no_member_then_it_is_told",
    90: "test_offsets_of_a_group_when_it_is_deleted_then_they_go_with_it",
    91: "test_newcomer_when_each_member_has_one_partition_then_it_gets_none",
    92: "test_pending_partition_when_polled_in_turn_then_is_skipped_by_both",
    93: "test_partition_when_never_polled_then_it_moves_at_once",
    94: "test_partition_when_polled_without_a_commit_then_it_is_handed_over_by_the_commit",
    95: "test_partition_when_the_commit_never_comes_then_time_hands_it_over",
    96: "test_handover_when_one_side_goes_then_everything_has_one_owner",
    97: "test_slots_when_members_come_and_go_then_no_partition_goes_to_the_wrong_one",
    98: "test_members_when_six_join_six_partitions_then_each_has_one",
    99: "test_partitions_when_changed_during_a_handover_then_all_are_owned_once",
    100: "test_messages_when_members_join_while_polling_then_none_is_delivered_twice",
    101: "test_member_when_its_heart_stops_then_it_is_removed_and_its_connection_closed",
    102: "test_consumer_when_its_heart_stood_still_then_it_comes_back_by_itself",
    103: "test_members_when_all_reconnect_then_exactly_one_gets_the_uncommitted_message",
    # Auth
    104: "test_every_command_when_sent_without_a_login_then_it_is_refused_"
    "and_the_stream_stays_in_step",
    105: "test_root_when_asked_for_then_it_is_user_0_with_all_rights_and_the_next_user_gets_1",
    106: "test_login_when_name_or_password_is_wrong_then_it_is_refused",
    107: "test_user_when_without_rights_then_it_can_only_change_its_own_password",
    108: "test_tokens_when_created_then_they_log_in_until_they_are_deleted",
    109: "test_users_when_managed_then_names_status_and_rights_follow",
    110: "test_user_when_without_permissions_then_everything_is_denied",
    111: "test_rights_on_servers_when_given_then_they_show_figures_and_nothing_else",
    112: "test_rights_on_users_when_given_then_reading_and_managing_differ",
    113: "test_right_when_given_then_it_allows_what_it_implies_and_no_more",
    114: "test_scoped_right_when_given_then_it_counts_nowhere_else",
    115: "test_right_when_given_then_it_allows_what_it_implies_and_no_more",
    116: "test_group_commands_when_asked_for_then_they_need_to_read_the_topic",
    117: "test_scoped_entry_when_it_says_no_then_it_takes_no_global_right_away",
    118: "test_missing_things_when_asked_for_then_no_client_gets_data",
    # Sizes, snapshot, logs, config, TLS, cluster
    121: "test_sizes_when_one_topic_is_purged_or_deleted_then_only_its_part_goes",
    122: "test_snapshot_when_of_the_test_part_then_it_contains_the_word",
    123: "test_logs_when_streams_come_and_go_then_files_obey_their_limits",
    124: "test_cluster_when_the_environment_names_nodes_then_they_replace_the_file",
    125: "test_tls_when_the_certificate_is_given_then_clients_can_verify_it",
    126: "test_client_when_it_connects_to_either_node_then_it_is_redirected_to_the_leader",
    127: "test_client_when_its_recording_is_replayed_then_the_answers_mean_the_same",
}


@pytest.fixture(scope="module")
def written():
    """Name all tests of the server and of the official clients."""
    files = [*(TESTS / "server").rglob("test_*.py"), *(TESTS / "interop").rglob("test_*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    return {
        node.name
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_checklist_when_counted_then_every_item_is_there_once():
    assert sorted([*ITEMS, *WITHOUT]) == list(range(1, 129))


def test_checklist_when_a_test_is_named_then_it_is_written(written):
    assert {name for name in ITEMS.values() if name not in written} == set()
