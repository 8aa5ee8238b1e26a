"""The test of each row of the table of threats and faults, as `file::name` below `tests/`, or why it has none."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["REASONS", "ROWS", "TESTS", "row_ids"]

CASES = "protocol/test_jsonrpc_cases.py::test_each_case_gets_its_answer_and_the_next_request_is_served"
STATELESS = "transports/test_http_stateless.py::"
SESSIONS = "transports/http_server/test_sessions.py::"
LIMITS = "transports/test_http_limits.py::"
EVENT_STREAMS = "transports/http_server/test_asgi_response.py::"
SHARES = "transports/test_http_shares.py::"
TRAILERS = "transports/test_http_trailers.py::"
STDIO = "transports/test_stdio_server.py::"
PEER = "protocol/test_server_peer.py::"
SAFE_OPEN = "sources/folder/test_safe_open.py::"
HERE = "security/"
POLICY = "security/test_policy.py::"
TOKENS = "security/test_tokens.py::"
SQL = "sources/sql_database/test_queries.py::"
GIT = "sources/git_repository/test_safety.py::"
LOGS = "sources/log_files/test_logs.py::"
SCREEN = "sources/test_screens.py::"

ROWS = (
    "J01-J41 L01-L24 H01-H62 S01-S13 R01-R34 T01-T06 U01-U10 F01-F15 A01-A20 A23 A25 X01-X11 Q01-Q11 G01-G12 D01-D05 "
    "P01-P10 P12 W17"
)
"""The rows of the table of threats and faults."""

TESTS: dict[str, str] = {
    "J01-J02": HERE + "test_messages.py::test_the_command_answers_every_malformed_line",
    "J03": "protocol/test_jsonrpc_cases.py::test_blank_lines_between_messages_are_ignored",
    "J04-J05": CASES,
    "J06": HERE + "test_tools.py::test_numbers_too_large_for_json_are_answered_with_valid_json",
    "J07-J09": CASES,
    "J10": HERE + "test_messages.py::test_the_command_answers_every_malformed_line",
    "J11": HERE + "test_tools.py::test_numbers_too_large_for_json_are_answered_with_valid_json",
    "J12": "protocol/test_jsonrpc_cases.py::test_an_id_of_many_digits_is_served_or_refused",
    "J13-J16": CASES,
    "J17": "protocol/test_jsonrpc_cases.py::test_an_id_of_many_digits_is_served_or_refused",
    "J18-J19": HERE + "test_messages.py::test_both_eras_share_one_stream_and_its_ids",
    "J20-J23": CASES,
    "J24": HERE + "test_messages.py::test_a_message_of_64_mib_is_refused_in_bounded_memory",
    "J25": HERE + "test_messages.py::test_the_process_ends_after_64_mib_without_a_line_end_and_the_end_of_input",
    "J26-J30": CASES,
    "J31": HERE + "test_messages.py::test_an_unexpected_response_and_progress_are_ignored",
    "J32-J36": CASES,
    "J37": "protocol/test_jsonrpc_cases.py::test_200_000_members_are_decoded_in_bounded_time",
    "J38": "protocol/test_jsonrpc_cases.py::test_an_id_may_be_used_again_after_its_answer",
    "J39-J40": CASES,
    "J41": "protocol/test_jsonrpc_cases.py::test_mutated_messages_never_raise_and_every_answer_is_json",
    "L01": PEER + "test_a_request_before_initialize_is_refused",
    "L02": PEER + "test_ping_is_served_before_the_handshake",
    "L03": PEER + "test_a_second_initialize_does_not_change_the_session",
    "L04": "protocol/test_handshake.py::test_any_other_revision_is_answered_with_the_latest",
    "L05": PEER + "test_a_failed_initialize_leaves_the_session_new",
    "L06": PEER + "test_initialized_without_initialize_does_not_open_the_session",
    "L07": PEER + "test_a_call_in_the_same_write_as_initialize_is_served",
    "L08": PEER + "test_a_cancellation_of_an_unknown_request_is_ignored",
    "L09": HERE + "test_messages.py::test_an_unexpected_response_and_progress_are_ignored",
    "L10": PEER + "test_a_late_response_does_not_answer_a_later_request_with_the_same_id",
    "L11": HERE + "test_messages.py::test_cancelled_work_stops",
    "L12": HERE + "test_messages.py::test_an_unexpected_response_and_progress_are_ignored",
    "L13": STATELESS + "test_missing_meta_is_reported",
    "L14": STATELESS + "test_an_unknown_version_is_refused_with_the_supported_versions",
    "L15": HERE + "test_messages.py::test_initialize_with_stateless_meta_is_refused",
    "L16": STDIO + "test_a_server_with_the_null_device_as_stdin_ends_at_once",
    "L17": STDIO + "test_an_endless_request_does_not_delay_the_exit_after_the_end_of_input",
    "L18": STDIO + "test_a_blocked_thread_does_not_delay_the_exit_after_the_end_of_input",
    "L19-L20": HERE + "test_messages.py::test_a_signal_ends_a_process_that_listens_and_blocks",
    "L21": STDIO + "test_two_thousand_concurrent_calls_are_each_answered_once",
    "L22": HERE + "test_messages.py::test_20_000_concurrent_calls_are_limited_and_each_is_answered_once",
    "L23": HERE + "test_messages.py::test_both_eras_share_one_stream_and_its_ids",
    "L24": HERE + "test_messages.py::test_20_000_concurrent_calls_are_limited_and_each_is_answered_once",
    "H01-H06": HERE + "test_http.py::test_only_allowed_hosts_and_origins_are_served",
    "H07": STATELESS + "test_pages_of_an_allowed_origin_may_read_answers",
    "H08-H09": HERE + "test_http.py::test_content_types_that_a_page_can_send_without_preflight_are_refused",
    "H10": "protocol/http/test_rules.py::test_a_request_that_does_not_accept_the_response_type_is_refused",
    "H11": "protocol/http/test_rules.py::test_compressed_body_is_refused",
    "H12": LIMITS + "test_a_body_over_the_limit_is_refused_before_it_is_sent",
    "H13": LIMITS + "test_a_chunked_body_over_the_limit_is_refused",
    "H14": LIMITS + "test_contradictory_lengths_are_refused_and_the_connection_is_closed",
    "H15": LIMITS + "test_a_body_that_never_ends_times_out",
    "H16": LIMITS + "test_a_head_that_never_ends_times_out",
    "H17": LIMITS + "test_unfinished_heads_do_not_delay_other_clients",
    "H18": LIMITS + "test_a_head_over_the_limit_is_refused",
    "H19": STATELESS + "test_other_http_methods_are_not_allowed",
    "H20": STATELESS + "test_other_spellings_of_the_path_are_not_found",
    "H21": SESSIONS + "test_a_request_without_a_session_is_refused",
    "H22-H23": SESSIONS + "test_an_unknown_session_is_not_found_and_its_id_is_not_repeated",
    "H24": SESSIONS + "test_session_ids_are_unguessable_and_unordered",
    "H25": SESSIONS + "test_a_deleted_session_is_not_found",
    "H26-H27": SESSIONS + "test_a_session_has_one_stream_at_a_time",
    "H28": SESSIONS + "test_a_session_cannot_cancel_requests_of_another",
    "H29": "transports/http_server/test_replay.py::test_the_event_id_of_another_session_replays_nothing",
    "H30": SESSIONS + "test_an_unknown_last_event_id_replays_nothing",
    "H31": HERE + "test_http.py::test_text_with_line_ends_stays_in_one_event",
    "H32": HERE + "test_files.py::test_undecodable_names_are_listed_and_read",
    "H33": EVENT_STREAMS + "test_a_listener_that_never_reads_uses_bounded_memory_and_does_not_delay_others",
    "H34": HERE + "test_subscriptions.py::test_an_unread_stream_does_not_block_other_requests_of_its_session",
    "H35": HERE + "test_subscriptions.py::test_disconnected_listeners_release_their_descriptors",
    "H36-H37": "protocol/http/test_rules.py::test_a_header_that_differs_from_the_body_or_is_missing_is_refused",
    "H38": "protocol/http/test_rules.py::test_a_header_that_proxies_route_by_may_not_repeat",
    "H39": "protocol/http/test_rules.py::test_name_that_looks_encoded_must_be_encoded",
    "H40": STATELESS + "test_an_unknown_method_or_one_of_another_era_is_not_found",
    "H41": STATELESS + "test_invalid_headers_are_refused_before_the_handler_runs",
    "H42": STATELESS + "test_a_disconnect_cancels_the_request",
    "H43": STATELESS + "test_clients_with_equal_ids_get_their_own_answers",
    "H44-H45": HERE + "test_http.py::test_extreme_numbers_and_invalid_text_are_answered_with_valid_json",
    "H46": STATELESS + "test_an_invalid_request_body_is_refused",
    "H47": LIMITS + "test_a_request_that_is_not_http_is_refused_in_json",
    "H48": STATELESS + "test_an_exception_in_a_handler_is_an_error_of_its_call",
    "H49": HERE + "test_http.py::test_closed_sessions_and_calls_release_their_memory",
    "H50": SESSIONS + "test_a_refused_initialize_opens_no_session",
    "H51": LIMITS + "test_pipelined_requests_are_answered_in_order",
    "H52-H53": HERE + "test_http.py::test_blocked_calls_of_one_client_leave_threads_for_another_address",
    "H54": TRAILERS + "test_a_trailer_never_becomes_a_header",
    "H55": TRAILERS + "test_trailers_of_any_length_use_bounded_memory",
    "H56": TRAILERS + "test_a_chunked_body_is_refused_in_another_server",
    "H57": SHARES + "test_an_owner_of_all_sessions_loses_some_to_others",
    "H58": SHARES + "test_unfinished_bodies_leave_room_for_other_callers",
    "H59": SHARES + "test_connections_are_shared_between_owners",
    "H60": "transports/test_unread.py::test_large_unread_answers_are_bounded_in_total",
    "H61": HERE + "test_http.py::test_blocked_calls_of_one_application_leave_threads_for_another_on_the_same_host",
    "H62": HERE + "test_http.py::test_running_out_of_descriptors_is_logged_once_without_a_busy_loop",
    "S01-S02": STDIO + "test_output_of_handlers_is_not_written_to_the_stream",
    "S03": STDIO + "test_an_incomplete_message_at_the_end_is_ignored",
    "S04": STDIO + "test_messages_may_arrive_one_byte_at_a_time",
    "S05": STDIO + "test_a_broken_output_pipe_ends_the_server",
    "S06": HERE + "test_files.py::test_large_answers_to_a_slow_reader_are_refused_and_the_connection_stays_open",
    "S07": HERE + "test_tools.py::test_a_failing_tool_returns_an_error_without_details",
    "S08": HERE + "test_messages.py::test_the_command_answers_every_malformed_line",
    "S09": STDIO + "test_a_server_with_the_null_device_as_stdin_ends_at_once",
    "S10": STDIO + "test_the_server_ends_when_its_parent_dies",
    "S11-S12": HERE + "test_tools.py::test_a_flood_of_stderr_and_an_answer_of_16_mib_are_served",
    "S13": HERE + "test_tools.py::test_progress_for_a_slow_reader_is_bounded",
    "R01-R12": HERE + "test_files.py::test_no_spelling_of_a_path_leaves_the_folder_and_all_errors_are_the_same",
    "R14": SAFE_OPEN + "test_no_manipulated_uri_prefix_reads_outside_the_folder",
    "R15-R17": HERE + "test_files.py::test_no_spelling_of_a_path_leaves_the_folder_and_all_errors_are_the_same",
    "R18": HERE + "test_files.py::test_invalid_uris_are_invalid_params_and_not_repeated",
    "R19": HERE + "test_files.py::test_a_directory_swapped_for_a_link_is_never_followed",
    "R20-R22": HERE + "test_files.py::test_no_spelling_of_a_path_leaves_the_folder_and_all_errors_are_the_same",
    "R23-R26": HERE + "test_files.py::test_content_has_its_real_mime_type",
    "R27": HERE + "test_files.py::test_no_spelling_of_a_path_leaves_the_folder_and_all_errors_are_the_same",
    "R28": HERE + "test_files.py::test_every_read_of_a_file_that_changes_is_answered",
    "R29-R30": HERE + "test_files.py::test_invalid_uris_are_invalid_params_and_not_repeated",
    "R31": HERE + "test_files.py::test_2_000_concurrent_reads_are_answered_or_refused_in_bounded_memory",
    "R32": HERE + "test_files.py::test_invalid_cursors_are_invalid_params",
    "R33": "sources/folder/test_tree.py::test_only_the_listed_name_is_served_on_a_case_insensitive_file_system",
    "R34": HERE + "test_files.py::test_a_hard_link_is_published",
    "T01": "protocol/uri/test_template_index.py::test_a_uri_with_many_segments_is_refused_in_bounded_time",
    "T02": "protocol/uri/test_template_index.py::test_the_most_specific_template_wins_in_any_order",
    "T03": "protocol/uri/test_template.py::test_match_returns_the_values_or_none",
    "T04": "sources/folder/test_file_uri.py::test_escapes_are_decoded_once",
    "T05": "protocol/uri/test_template.py::test_match_returns_the_values_or_none",
    "T06": "server/features/test_prompts.py::test_an_unknown_prompt_template_or_argument_is_an_invalid_param",
    "U01-U02": HERE + "test_subscriptions.py::test_a_missing_or_outside_uri_is_not_acknowledged",
    "U03": HERE + "test_subscriptions.py::test_a_change_is_reported_once_to_each_era_on_one_stream",
    "U04": HERE + "test_subscriptions.py::test_a_missing_or_outside_uri_is_not_acknowledged",
    "U05": EVENT_STREAMS + "test_streams_of_one_client_are_bounded",
    "U06": HERE + "test_subscriptions.py::test_disconnected_listeners_release_their_descriptors",
    "U07": HERE + "test_subscriptions.py::test_many_changes_reach_fifty_readers_coalesced",
    "U08": EVENT_STREAMS + "test_a_listener_that_never_reads_uses_bounded_memory_and_does_not_delay_others",
    "U09": HERE + "test_subscriptions.py::test_refused_uris_of_a_listen_are_not_kept",
    "U10": HERE + "test_subscriptions.py::test_a_listen_with_too_many_uris_is_refused",
    "F01": HERE + "test_tools.py::test_unknown_tools_are_refused",
    "F02": HERE + "test_tools.py::test_unknown_arguments_are_refused",
    "F03": HERE + "test_tools.py::test_only_integers_are_accepted_for_an_integer",
    "F04": HERE + "test_tools.py::test_unknown_arguments_are_refused",
    "F05-F07": HERE + "test_tools.py::test_a_failing_tool_returns_an_error_without_details",
    "F08-F10": HERE + "test_tools.py::test_blocking_calls_delay_neither_ping_nor_other_calls_for_long",
    "F11": HERE + "test_tools.py::test_arguments_of_3_mib_and_500_list_requests_are_served",
    "F12": HERE + "test_tools.py::test_text_that_looks_like_json_stays_text",
    "F13": HERE + "test_tools.py::test_only_integers_are_accepted_for_an_integer",
    "F14": HERE + "test_tools.py::test_arguments_of_3_mib_and_500_list_requests_are_served",
    "F15": HERE + "test_tools.py::test_published_schemas_have_only_internal_references",
    "A01": TOKENS + "test_requests_without_a_token_get_only_the_challenge",
    "A02": TOKENS + "test_an_unknown_token_is_refused",
    "A03": TOKENS + "test_an_expired_token_is_refused",  # the file also tests malformed tokens
    "A04": TOKENS + "test_a_token_for_another_audience_is_refused_by_default",
    "A05": TOKENS + "test_a_missing_scope_is_forbidden",
    "A06": TOKENS + "test_the_challenge_names_a_missing_scope",
    "A07": TOKENS + "test_a_token_in_the_query_or_the_body_is_ignored",
    "A08": TOKENS + "test_two_authorization_headers_are_refused",
    "A09-A10": TOKENS + "test_a_stolen_session_id_is_useless",
    "A11": TOKENS + "test_events_of_another_caller_are_not_resumed",
    "A12": TOKENS + "test_the_metadata_describes_this_endpoint",
    "A13": TOKENS + "test_no_spelling_of_the_path_is_served_without_a_token",
    "A14": TOKENS + "test_no_host_header_bypasses_the_token",
    "A15": TOKENS + "test_a_stateless_request_needs_a_token_too",
    "A16": TOKENS + "test_a_request_without_a_token_is_refused_before_its_body_is_read",
    "A17": TOKENS + "test_a_token_is_never_repeated_in_an_answer",
    "A18": TOKENS + "test_a_header_with_an_injected_line_break_is_refused",
    "A19": TOKENS + "test_a_forged_token_is_refused",
    "A20": TOKENS + "test_callers_are_refused_while_the_issuer_is_down",  # for introspection, see tests/auth/server
    "A23": TOKENS + "test_a_request_state_is_valid_only_unchanged_for_its_caller_and_call",
    "A25": TOKENS + "test_no_token_is_in_logs_tracebacks_or_the_process_table",  # the file also tests files
    "X01-X02": HERE + "test_http.py::test_thousands_of_sessions_and_calls_release_their_memory",
    "X03": HERE + "test_subscriptions.py::test_disconnected_listeners_release_their_descriptors",
    "X04": EVENT_STREAMS + "test_many_idle_streams_do_not_delay_requests",
    "X05": HERE + "test_http.py::test_thousands_of_sessions_and_calls_release_their_memory",
    "X06": LIMITS + "test_the_bytes_of_unfinished_bodies_are_bounded_in_total",
    "X07": HERE + "test_http.py::test_thousands_of_sessions_and_calls_release_their_memory",
    "X09": "sources/folder/test_file_watch.py::test_polling_is_used_and_reported_when_inotify_watches_run_out",
    "Q01-Q06": SQL + "test_postgres_refuses_statements_that_do_more_than_read",  # the file has the same test for SQLite
    "Q07": SQL + "test_a_statement_that_spends_its_time_in_one_opcode_is_stopped",
    "Q08": SQL + "test_a_large_cell_is_cut_and_marked",
    "Q09": SQL + "test_names_in_uris_are_never_inserted_into_statements",
    "Q10": SQL + "test_odd_but_harmless_statements_are_run",
    "Q11": SQL + "test_values_are_valid_json",
    "G01": GIT + "test_options_in_paths_and_queries_are_refused",
    "G02": GIT + "test_only_plain_revisions_are_accepted",
    "G03": GIT + "test_programs_in_the_configuration_of_a_repository_are_not_run",
    "G04": GIT + "test_a_planted_bare_repository_is_refused",
    "G05": GIT + "test_borrowed_objects_are_refused",
    "G07": GIT + "test_submodules_are_named_and_not_read",
    "G09": GIT + "test_odd_names_are_shown_safely_and_read_byte_for_byte",
    "G10": GIT + "test_a_decompression_bomb_is_not_inflated",
    "G12": GIT + "test_the_environment_and_the_users_configuration_are_ignored",
    "D01": "sources/log_files/test_log_follower.py::test_each_line_is_read_once_while_another_process_rotates_the_log",
    "D02": LOGS + "test_a_line_of_100_mb_is_cut_and_marked",
    "D03": LOGS + "test_a_secret_is_not_shown_in_any_window",
    "D05": SCREEN + "test_a_screen_that_is_too_large_is_refused_before_it_is_captured",
    "P01": POLICY + "test_a_resource_that_no_rule_lists_is_refused_like_one_that_does_not_exist",
    "P02": POLICY + "test_a_root_with_the_same_prefix_is_not_allowed",
    "P03": POLICY + "test_an_unusable_policy_allows_nothing",  # the file also tests a reload under load
    "P04": POLICY + "test_every_other_spelling_of_an_allowed_uri_is_not_found",
    "P05": "policy/test_rule.py::test_a_level_allows_its_own_actions_and_those_of_lower_levels",
    "P06": POLICY + "test_a_caller_who_may_only_read_cannot_call_anything_that_writes",
    "P07": POLICY + "test_a_permission_removed_after_the_list_is_checked_at_the_call",
    "P08": POLICY + "test_no_protocol_version_gives_more_rights",
    "P09": POLICY + "test_the_limit_of_a_caller_applies_across_sessions_eras_and_clock_changes",
    "P10": HERE + "test_record.py::test_hostile_text_makes_one_bounded_escaped_line",
    "P12": HERE + "test_record.py::test_requests_are_refused_when_the_disk_is_full",
    "W17": "sources/test_upstream_server.py::test_a_redirect_to_another_server_is_not_followed",
    "X10": HERE + "test_http.py::test_a_server_without_free_descriptors_recovers",
}  # fmt: skip

REASONS: dict[str, str] = {
    "R13": "Device names of Windows are plain file names on other systems.",
    "G06": "Nothing is added to a repository.",
    "G08": "Nothing is ever fetched.",
    "G11": "Nothing is initialised or cloned.",
    "D04": "The system decides what its user may see. Rules about callers belong to policies.",
    "X08": "10,000 subscriptions of one resource belong to the benchmarks of scale.",
    "X11": "A soak of 24 hours belongs to no test run.",
}
"""Rows without a test, with the reason."""


def row_ids(rows: str) -> Iterator[str]:
    """Yield every id of ranges such as `J01-J03 L05`."""
    for row in rows.split():
        first, _, last = row.partition("-")
        for number in range(int(first[1:]), int((last or first)[1:]) + 1):
            yield f"{first[0]}{number:02}"
