"""Requirements on a client, by the sections of the digest. Their numbers begin with a C."""

from __future__ import annotations

from tests.requirements.row import Row, client_suite, must, should

__all__ = ["ROWS"]

R2, R4, R5 = "2025-03-26", "2025-11-25", "2026-07-28"

CLIENT = "client/test_client.py::"
CONNECT = "client/test_connect.py::"
INPUT_REQUESTS = "client/test_input_requests.py::"
CALLS = "client/test_calls.py::"
ERAS = "client/test_eras.py::"
CONNECTION = "client/test_connection.py::"
WATCHING = "client/test_subscriptions.py::"
OUTPUTS = "client/test_output_schemas.py::"
TASKS = "client/test_tasks.py::"
SKILLS = "client/test_skills.py::"
CACHE = "client/test_cache.py::"
HEADERS = "client/test_headers.py::"
PEER = "protocol/test_client_peer.py::"
NEGOTIATION = "protocol/test_negotiation.py::"
HEADER_VALUES = "protocol/http/test_headers.py::"
EVENTS = "protocol/test_sse.py::"
HTTP = "transports/http_client/test_http_link.py::"
RESUMING = "transports/test_http_resuming.py::"
ORIGIN = "transports/http_client/test_origin.py::"
STDIO_LINK = "transports/test_stdio_client.py::"
SSE_LINK = "transports/http_client/test_sse_link.py::"
UNIX = "transports/test_unix_sockets.py::"
DISCOVERY = "auth/client/test_discovery.py::"
URLS = "auth/test_urls.py::"
GRANTS = "auth/client/test_grants.py::"
SIGN_IN = "auth/client/test_sign_in.py::"
CLIENT_REQUIREMENTS = "requirements/test_client.py::"

JSONRPC: tuple[Row, ...] = (
    must("C2.1-1", "all: basic, requests", "An id is an integer or a string, and unique among pending requests.",
         PEER + "test_request_is_one_message_with_a_new_id", CLIENT_REQUIREMENTS + "test_every_message_is_one_line_with_a_unique_id"),
    must("C2.1-2", "all: basic, responses", "Responses are matched to their requests in any order.",
         PEER + "test_responses_in_any_order_are_matched_to_their_requests"),
    must("C2.1-3", "all: schema, error responses", "An error whose id is null or absent is understood.",
         PEER + "test_error_without_an_id_answers_no_request"),
    must("C2.1-4", "2025-03-26: basic, batching", "An array of messages is accepted, in this revision only.",
         PEER + "test_batches_are_read_only_in_2025_03_26"),
    must("C2.1-5", "all: schema", "Unknown members and capabilities are tolerated.",
         CLIENT_REQUIREMENTS + "test_unknown_members_are_tolerated"),
    must("C2.1-6", "handshake: basic, error codes", "A method that the client does not have is answered with -32601.",
         PEER + "test_other_requests_of_the_server_are_refused", RESUMING + "test_requests_without_a_handler_are_refused_and_failures_are_reported_without_details"),
    should("C2.1-7", "2026-07-28: basic, error codes", "-32002 means a missing resource, like -32602 with its URI.", "yes",
           "test_errors.py::test_a_remote_missing_resource_is_a_resource_not_found"),
    must("C2.1-9", "handshake: basic, responses", "A response of the client has the unchanged id of the server's request.", RESUMING + "test_a_request_on_the_session_stream_is_answered"),
    must("C2.1-8", "2026-07-28: basic, error codes", "Codes from -32000 to -32019 mean only that there is an error.",
         NEGOTIATION + "test_any_other_answer_means_a_handshake_server", "test_errors.py::test_the_class_of_a_remote_error_depends_on_its_code"),
)  # fmt: skip

LIFECYCLE: tuple[Row, ...] = (
    must("C2.2-1", "handshake: lifecycle, initialization", "The first request is `initialize`, with version, capabilities and the client's name.",
         CLIENT_REQUIREMENTS + "test_the_handshake_is_complete_before_other_requests", *client_suite("initialize", R4)),
    must("C2.2-2", "handshake: lifecycle, initialization", "After the answer the client confirms with `notifications/initialized`.",
         CLIENT_REQUIREMENTS + "test_the_handshake_is_complete_before_other_requests"),
    should("C2.2-3", "handshake: lifecycle, version negotiation", "The version is the latest that the client has.",
           "yes: unless another one is pinned", NEGOTIATION + "test_any_other_answer_means_a_handshake_server"),
    should("C2.2-4", "handshake: lifecycle, version negotiation", "The client disconnects from a server that answers with an unknown version.", "yes",
           CONNECT + "test_an_unknown_revision_of_a_server_is_refused", NEGOTIATION + "test_only_known_revisions_are_accepted_in_the_handshake"),
    should("C2.2-5", "handshake: lifecycle, initialization", "No other request is sent before the answer.", "yes",
           CLIENT_REQUIREMENTS + "test_the_handshake_is_complete_before_other_requests"),
    must("C2.2-6", "handshake: cancellation", "`initialize` is not cancelled.", PEER + "test_cancelling_initialize_sends_no_notification"),
    should("C2.2-7", "handshake: lifecycle, timeouts", "Every request has a timeout, of its own or the client's, and is cancelled after it.", "yes",
           CLIENT + "test_the_timeout_of_a_call_overrides_that_of_its_client", CALLS + "test_a_timeout_or_a_cancellation_cancels_the_call_at_the_server"),
    should("C2.2-8", "handshake: lifecycle, timeouts", "Progress may extend the timeout, up to a maximum.", "yes",
           CALLS + "test_progress_resets_the_timeout_if_reset_on_progress_is_set"),
    must("C2.2-9", "2025-06-18, 2025-11-25: transports, version header", "After the handshake each HTTP request names the version.",
         HTTP + "test_a_session_is_used_by_each_request_and_deleted_at_the_end"),
    must("C2.2-10", "handshake: lifecycle, capabilities", "The client declares the capabilities that it has handlers for.",
         INPUT_REQUESTS + "test_handlers_determine_the_capabilities", *client_suite("elicitation-sep1034-client-defaults", R4)),
)  # fmt: skip

ENVELOPE: tuple[Row, ...] = (
    must("C2.3-1", "2026-07-28: basic, request metadata", "`_meta` of every request has the version and the capabilities.",
         CLIENT_REQUIREMENTS + "test_every_stateless_request_names_its_client", *client_suite("request-metadata", R5)),
    should("C2.3-2", "2026-07-28: basic, request metadata", "`_meta` also has the client's name.", "yes",
           CLIENT_REQUIREMENTS + "test_every_stateless_request_names_its_client", *client_suite("request-metadata", R5)),
    must("C2.3-3", "2026-07-28: basic, result type", "A result without `resultType` is complete.", *client_suite("sep-2322-client-request-state", R5)),
    must("C2.3-4", "2026-07-28: basic, result type", "A result of an unknown type is an error.", CALLS + "test_an_invalid_result_raises_invalid_response"),
    must("C2.3-5", "2026-07-28: basic, result type", "A type of an extension is accepted if the client declared the extension.",
         TASKS + "test_a_task_is_polled_until_it_is_completed", CALLS + "test_an_invalid_result_raises_invalid_response"),
    must("C2.3-6", "2026-07-28: basic, request metadata", "The name of the server affects nothing.",
         CLIENT_REQUIREMENTS + "test_the_server_name_affects_no_request"),
    must("C2.4-1", "2026-07-28: versioning", "After -32022, the client takes a version from the server's list and tries once more.",
         NEGOTIATION + "test_a_refused_revision_is_retried_once_if_the_server_offers_it", CONNECT + "test_discovery_is_repeated_once_after_a_refused_revision",
         ERAS + "test_a_call_with_a_refused_but_offered_revision_is_repeated_once", *client_suite("request-metadata", R5)),
)  # fmt: skip

EITHER_ERA: tuple[Row, ...] = (
    must("C2.5-1", "2026-07-28: versioning, older servers", "Any answer of a handshake server to `server/discover` leads to `initialize`, not only one code.",
         CONNECT + "test_a_handshake_server_is_detected_by_any_other_answer", NEGOTIATION + "test_any_other_answer_means_a_handshake_server"),
    must("C2.5-2", "2026-07-28: versioning, older servers", "A missing answer leads to `initialize` too.", CONNECT + "test_a_silent_server_gets_initialize_after_the_probe_timeout"),
    must("C2.5-3", "2026-07-28: versioning, older servers", "An error of the stateless era does not cause a fallback.",
         NEGOTIATION + "test_other_stateless_errors_end_the_negotiation", CONNECT + "test_an_http_stateless_error_does_not_lead_to_the_handshake"),
    must("C2.5-4", "2026-07-28: transports, older servers", "Over HTTP the body takes precedence over the status.",
         CONNECT + "test_an_http_handshake_server_is_detected_by_any_other_answer", HTTP + "test_an_error_object_is_accepted_with_any_status"),
    should("C2.5-5", "2026-07-28: versioning, older servers", "The era is remembered, and detected again if it is wrong.", "yes",
           ERAS + "test_a_known_handshake_server_is_not_probed_again", ERAS + "test_the_era_is_detected_again_if_the_remembered_one_fails"),
)  # fmt: skip

STDIO: tuple[Row, ...] = (
    must("C2.6-1", "all: transports, stdio", "Each message is one line of UTF-8 without line ends inside, and nothing else is written.",
         CLIENT_REQUIREMENTS + "test_every_message_is_one_line_with_a_unique_id"),
    should("C2.6-2", "all: lifecycle, shutdown", "A server is ended by closing its input, then by signals.", "yes",
           STDIO_LINK + "test_a_server_that_ignores_sigterm_is_killed", STDIO_LINK + "test_the_process_group_is_killed_at_close"),
    should("C2.6-3", "all: transports, stdio", "Output on stderr is not an error.", "yes",
           STDIO_LINK + "test_all_of_stderr_is_read_and_its_end_is_kept"),
    should("C2.6-4", "2026-07-28: transports, stdio", "A server that exited is started again, and its watches continue.", "yes: within bounds",
           CONNECTION + "test_a_killed_child_fails_its_calls_and_the_next_call_succeeds", CONNECTION + "test_a_watch_continues_with_the_next_child_and_reports_the_gap"),
    must("C2.6-5", "2026-07-28: transports, stdio", "The client sends no responses.", PEER + "test_requests_of_a_stateless_server_are_ignored"),
    must("C2.6-6", "2026-07-28: transports, stdio", "A request is cancelled by `notifications/cancelled`.", STDIO_LINK + "test_cancelling_the_caller_cancels_the_request"),
    should("C2.6-7", "2026-07-28: transports, custom", "A byte stream, such as a Unix socket, has the framing of stdio.", "yes", UNIX + "test_a_client_connects_to_the_server"),
)  # fmt: skip

STATELESS_HTTP: tuple[Row, ...] = (
    must("C2.7-1", "all since 2025-03-26: transports, sending messages", "Each message is a separate POST, which accepts JSON and events.",
         HTTP + "test_a_stateless_request_repeats_its_method_and_name_in_headers"),
    must("C2.7-2", "all since 2025-03-26: transports, sending messages", "An answer is read as JSON and as a stream of events.",
         HTTP + "test_an_answer_may_be_sent_as_an_event", HTTP + "test_a_stateless_request_repeats_its_method_and_name_in_headers"),
    must("C2.7-3", "2026-07-28: transports, version header", "`MCP-Protocol-Version` is on each POST and equals `_meta`.", *client_suite("request-metadata", R5)),
    must("C2.7-4", "2026-07-28: transports, sending messages", "The client POSTs no responses.", PEER + "test_requests_of_a_stateless_server_are_ignored"),
    should("C2.7-5", "2026-07-28: transports, streams", "Comments in a stream are ignored.", "yes", EVENTS + "test_streams_are_parsed_as_in_the_standard"),
    must("C2.7-6", "2026-07-28: transports, cancellation", "A request is cancelled by closing its stream.", HTTP + "test_cancelling_closes_the_stream_in_the_stateless_era"),
    must("C2.7-7", "2026-07-28: transports, streams", "A broken stream is not resumed: a repeated request has a new id.",
         RESUMING + "test_a_stateless_stream_is_not_resumed", CLIENT_REQUIREMENTS + "test_a_repeated_request_has_a_new_id"),
    must("C2.7-8", "2026-07-28: transports, HTTP", "An error is read from the body, whatever the status.", HTTP + "test_an_error_object_is_accepted_with_any_status"),
    must("C2.8-1", "2026-07-28: transports, request headers", "`Mcp-Method` and `Mcp-Name` repeat the body, URIs literally.",
         HTTP + "test_a_stateless_request_repeats_its_method_and_name_in_headers", *client_suite("http-standard-headers", R5)),
    must("C2.8-2", "2026-07-28: transports, value encoding", "A value that is not plain ASCII is sent in the Base64 form.",
         HEADER_VALUES + "test_only_unsafe_values_are_encoded_in_base64", HEADER_VALUES + "test_every_text_survives_a_round_trip", *client_suite("http-custom-headers", R5)),
    must("C2.8-3", "2026-07-28: tools, x-mcp-header", "Annotated arguments are repeated in headers; null and absent ones are not.",
         HTTP + "test_annotated_arguments_are_repeated_in_headers", HEADER_VALUES + "test_client_sends_a_header_for_each_present_value", *client_suite("http-custom-headers", R5)),
    must("C2.8-4", "2026-07-28: tools, x-mcp-header", "A tool whose annotation is wrong is left out, and the others are kept.",
         HEADER_VALUES + "test_an_invalid_or_misplaced_annotation_is_an_error", *client_suite("http-invalid-tool-headers", R5)),
    should("C2.8-6", "2026-07-28: tools, x-mcp-header", "A tool that is left out is logged.", "yes", CLIENT_REQUIREMENTS + "test_a_tool_that_is_left_out_is_logged"),
    should("C2.8-5", "2026-07-28: transports, request headers", "After -32020 the list is requested again, and the call repeated once.", "yes",
           HEADERS + "test_a_refused_call_is_repeated_with_the_headers_of_the_list", HEADERS + "test_a_call_that_is_refused_twice_raises_the_error"),
)  # fmt: skip

SESSIONS: tuple[Row, ...] = (
    must("C2.9-1", "2025-03-26 to 2025-11-25: transports, sessions", "The session's id goes with every request after the first.", HTTP + "test_a_session_is_used_by_each_request_and_deleted_at_the_end"),
    must("C2.9-2", "2025-03-26 to 2025-11-25: transports, sessions", "After 404 a new session is opened, without the id.", CONNECTION + "test_an_ended_session_is_opened_again"),
    should("C2.9-3", "2025-03-26 to 2025-11-25: transports, sessions", "A session is ended by DELETE.", "yes", HTTP + "test_a_session_is_used_by_each_request_and_deleted_at_the_end"),
    must("C2.9-4", "2025-11-25: transports, resumption", "Before the client resumes, it waits as long as `retry` says.", *client_suite("sse-retry", R4)),
    should("C2.9-5", "2025-03-26 to 2025-11-25: transports, resumption", "The client resumes by GET with `Last-Event-ID`.", "yes",
           RESUMING + "test_the_answer_arrives_on_the_resumed_stream", RESUMING + "test_a_stream_that_breaks_within_an_event_resumes_after_the_last_complete_one", *client_suite("sse-retry", R4)),
    must("C2.9-6", "2025-11-25: transports, streams", "An event with empty data is not a message.", *client_suite("sse-retry", R4)),
    should("C2.9-7", "2025-03-26 to 2025-11-25: transports, streams", "A request is cancelled by a notification, not by disconnecting.", "yes", HTTP + "test_cancelling_notifies_the_server_in_the_handshake_era"),
    must("C2.9-8", "2025-03-26 to 2025-11-25: transports, streams", "A server's request on any stream is answered by a POST.",
         RESUMING + "test_a_request_on_the_stream_of_a_call_is_answered_by_a_separate_post", RESUMING + "test_a_request_on_the_session_stream_is_answered",
         CLIENT_REQUIREMENTS + "test_a_client_with_handlers_opens_the_session_stream", *client_suite("elicitation-sep1034-client-defaults", R4)),
    must("C2.9-9", "2025-03-26 to 2025-11-25: transports, listening", "A server that answers GET with 405 has no such stream, which is not an error.",
         HTTP + "test_a_server_without_a_session_stream_is_reported", CLIENT_REQUIREMENTS + "test_a_client_with_handlers_opens_the_session_stream"),
    must("C2.10-1", "2024-11-05: transports, HTTP with SSE", "Messages are POSTed to the URL of the first event, on the same server only.",
         SSE_LINK + "test_messages_are_posted_to_the_url_of_the_first_event", SSE_LINK + "test_an_endpoint_on_another_server_is_refused"),
    must("C2.10-2", "2024-11-05: transports, HTTP with SSE", "Responses and requests of the server are `message` events.", SSE_LINK + "test_a_client_connects_to_a_wharfinger_server", SSE_LINK + "test_a_server_may_send_requests"),
    should("C2.10-3", "2025-03-26 on: transports, older servers", "If a URL refuses a POST, a GET requests a stream there.", "yes", CLIENT_REQUIREMENTS + "test_a_server_of_http_with_sse_is_detected"),
)  # fmt: skip

RESOURCES: tuple[Row, ...] = (
    must("C2.11-1", "all: server/resources, URIs", "A URI is sent unchanged.", *client_suite("http-standard-headers", R5)),
    must("C2.11-2", "all: server/resources, templates", "A template is expanded by RFC 6570.", CALLS + "test_a_template_is_read_by_its_uri_template_its_name_or_its_listed_object"),
    must("C2.11-3", "all: server/resources, contents", "A result with several contents, or with none, is accepted.",
         CLIENT + "test_several_contents_have_no_single_text", CALLS + "test_text_of_several_contents_raises_an_error"),
    must("C2.11-4", "all: server/resources, subscriptions", "A change may be reported for a sub-resource.", WATCHING + "test_a_change_of_a_sub_resource_is_reported_to_watches_of_its_parents"),
    must("C2.12-1", "2026-07-28: subscriptions", "A watch begins with its acknowledgement, which may grant less.", WATCHING + "test_a_watch_starts_only_after_a_valid_acknowledgement"),
    must("C2.12-2", "2026-07-28: subscriptions", "Notifications are attributed to the listen request with their subscription id.",
         PEER + "test_notifications_are_attributed_to_their_request", PEER + "test_a_subscription_id_sent_back_as_a_string_is_matched"),
    must("C2.12-3", "2026-07-28: subscriptions, ending", "A watch ends by closing its stream, on stdio by `notifications/cancelled`.", CLIENT + "test_a_resource_is_unsubscribed_after_its_last_watch_ends"),
    should("C2.12-4", "2026-07-28: subscriptions, ending", "After a stream ends without a result, the client listens again.", "yes",
           CONNECTION + "test_a_watch_continues_with_the_next_child_and_reports_the_gap", WATCHING + "test_a_watch_that_the_server_ends_is_restarted_and_reports_the_gap"),
)  # fmt: skip

CACHING: tuple[Row, ...] = (
    should("C2.13-1", "2026-07-28: caching", "A cached result is used until it expires, and no longer.", "yes: stale ones only if that is configured and the server is unreachable",
           CACHE + "test_a_result_is_cached_until_it_expires", CACHE + "test_a_stale_result_is_returned_if_the_server_is_gone_and_stale_if_error_is_set"),
    must("C2.13-2", "2026-07-28: caching", "A missing or negative lifetime is zero.", CACHE + "test_a_result_without_a_ttl_is_not_cached"),
    must("C2.13-3", "2026-07-28: caching", "A result is cached by its method and params.", CACHE + "test_pages_of_lists_and_resources_are_cached_separately"),
    must("C2.13-4", "2026-07-28: caching", "A private result is cached for one authorization only.", CACHE + "test_private_results_are_shared_within_an_authorization_and_public_ones_with_all", CACHE + "test_another_credential_is_another_principal"),
    must("C2.13-5", "2026-07-28: caching", "A result that used input responses is not cached.", CACHE + "test_results_of_calls_with_input_responses_are_not_cached"),
    must("C2.13-6", "2026-07-28: caching", "A notification of a change removes the cached result.", CACHE + "test_a_change_of_a_resource_invalidates_it_and_its_parents", CACHE + "test_a_change_of_a_list_invalidates_all_its_pages_and_no_other_list"),
    must("C2.13-7", "2026-07-28: caching", "A refused cursor removes all pages of its list.", CACHE + "test_a_refused_cursor_invalidates_all_pages_and_restarts_the_list"),
)  # fmt: skip

ANSWERS: tuple[Row, ...] = (
    must("C2.14-1", "2026-07-28: MRTR", "The same call is repeated with a response for each key.",
         CALLS + "test_a_call_is_repeated_with_answers_and_the_same_state", *client_suite("sep-2322-client-request-state", R5)),
    must("C2.14-2", "2026-07-28: MRTR", "`requestState` is returned byte for byte; without one, none is sent.",
         CALLS + "test_a_call_is_repeated_with_answers_and_the_same_state", CALLS + "test_a_request_state_without_input_requests_is_sent_back_at_once",
         *client_suite("sep-2322-client-request-state", R5)),
    must("C2.14-3", "2026-07-28: MRTR", "The repeated call has a new id.", CLIENT_REQUIREMENTS + "test_a_repeated_request_has_a_new_id", *client_suite("sep-2322-client-request-state", R5)),
    must("C2.14-4", "2026-07-28: MRTR", "Input responses and state are sent with no other call.", INPUT_REQUESTS + "test_concurrent_calls_with_several_rounds_do_not_mix_their_answers", *client_suite("sep-2322-client-request-state", R5)),
    must("C2.14-5", "2026-07-28: MRTR", "An input request without a declared capability is not answered.", INPUT_REQUESTS + "test_an_undeclared_input_request_in_a_result_fails_the_call"),
    must("C2.14-6", "2026-07-28: MRTR", "Only `tools/call`, `prompts/get` and `resources/read` may return `input_required`.", CALLS + "test_an_invalid_result_raises_invalid_response"),
    should("C2.14-7", "2026-07-28: MRTR", "The rounds are bounded.", "yes", CLIENT_REQUIREMENTS + "test_the_number_of_input_rounds_is_bounded"),
)  # fmt: skip

REST: tuple[Row, ...] = (
    must("C2.15-1", "all: server/tools, calling", "A tool is called by its name, with an object of arguments.", *client_suite("tools_call", R4, R5)),
    should("C2.15-2", "2025-06-18 on: server/tools, output schema", "Structured results are checked against the tool's schema, in bounded time.",
           "yes: if the tool was listed and the extra `schema` is installed", OUTPUTS + "test_the_result_of_a_listed_tool_is_validated_unless_validate_is_false", OUTPUTS + "test_valid_results_are_accepted_and_invalid_ones_raise_their_fault",
           OUTPUTS + "test_validation_with_any_schema_takes_a_bounded_time"),
    must("C2.15-3", "all: server/tools, annotations", "A server's annotations of its tools are not trusted: by default no tool is called twice because of them.",
         CONNECTION + "test_a_read_is_retried_once_and_a_tool_call_only_if_it_is_safe"),
    must("C2.16-1", "all: pagination", "A cursor is opaque, and the list ends without one; an empty one is a cursor (2026-07-28).", CLIENT + "test_an_empty_cursor_is_valid_in_the_stateless_era_only"),
    should("C2.16-2", "all: server/prompts", "Messages of prompts are validated.", "yes", "types/test_content.py::test_malformed_prompt_is_refused"),
    must("C2.17-1", "all: progress", "A token is unique among pending requests.", PEER + "test_the_progress_token_is_the_request_id"),
    must("C2.17-2", "all: progress", "Progress reaches its caller, before the answer.", CALLS + "test_progress_is_reported_in_order_and_before_the_result"),
    must("C2.17-3", "all: cancellation", "A late answer to a cancelled request is ignored.", PEER + "test_a_response_to_a_cancelled_request_is_ignored"),
    must("C2.17-4", "all: cancellation", "The server is notified with the id of the request.", CALLS + "test_a_timeout_or_a_cancellation_cancels_the_call_at_the_server", STDIO_LINK + "test_cancelling_the_caller_cancels_the_request"),
    must("C2.17-5", "handshake: ping", "Ping is answered at once.", PEER + "test_ping_is_answered"),
    must("C2.17-6", "all: logging", "Logs of a level and above are requested as the era requires.", CALLS + "test_the_log_function_gets_messages_from_the_log_level_upwards"),
    must("C2.17-7", "handshake: cancellation", "A request that the server cancels is not answered.", RESUMING + "test_a_cancelled_request_stops_its_handler_and_is_not_answered", INPUT_REQUESTS + "test_a_cancelled_call_cancels_its_elicitation"),
    must("C2.18-1", "all: client/roots", "Roots are `file:` URIs.", INPUT_REQUESTS + "test_roots_are_paths_or_a_function"),
    must("C2.18-2", "handshake: client", "An undeclared method is -32601.", INPUT_REQUESTS + "test_tools_that_need_an_undeclared_capability_fail"),
    must("C2.18-3", "2025-11-25: client/elicitation", "An undeclared mode is -32602.", INPUT_REQUESTS + "test_an_invalid_or_undeclared_request_is_refused"),
    must("C2.18-4", "2025-11-25 on: client/sampling, tools", "Tools without `sampling.tools`, and results of tools without a use, are errors.", INPUT_REQUESTS + "test_an_invalid_or_undeclared_request_is_refused"),
    must("C2.18-5", "2025-11-25 on: client/elicitation", "Defaults of a form are sent for fields without a choice.",
         INPUT_REQUESTS + "test_a_form_is_answered_with_fields_and_defaults", *client_suite("elicitation-sep1034-client-defaults", R4)),
    must("C2.18-6", "2025-06-18 on: client/elicitation", "A user can decline and cancel; only accepted forms have `content`.", INPUT_REQUESTS + "test_a_declined_or_cancelled_form_raises_a_tool_error"),
    must("C2.18-7", "2025-11-25 on: client/elicitation, URL mode", "Nothing is opened or fetched without consent, and the whole URL is shown.",
         INPUT_REQUESTS + "test_url_elicitation_needs_consent", "cli/commands/test_call.py::test_url_elicitation_shows_the_host_and_needs_consent"),
    must("C2.18-9", "handshake: client/roots", "Changed roots are reported.", CLIENT_REQUIREMENTS + "test_changed_roots_are_reported_in_the_handshake_era"),
    should("C2.18-8", "all: client/sampling", "A user can refuse sampling: the error code is -1.", "yes", INPUT_REQUESTS + "test_refused_sampling_has_the_code_of_the_specification"),
    must("C2.19-1", "2026-07-28: extension tasks", "A task is polled until it ends, no faster than its server requests.", TASKS + "test_a_task_is_polled_until_it_is_completed"),
    must("C2.19-2", "2026-07-28: extension tasks", "Input requests of a task are answered by `tasks/update`, each key once.", TASKS + "test_each_input_request_of_a_task_is_answered_once"),
    must("C2.19-3", "2026-07-28: extension tasks", "An abandoned call cancels its task.", TASKS + "test_a_timeout_or_a_cancellation_cancels_the_task"),
    must("C2.20-1", "extension skills", "No file is read before a skill is loaded.", SKILLS + "test_skills_are_listed_and_loaded", *client_suite("sep-2640-client-no-prefetch", R4, R5)),
    must("C2.20-2", "extension skills", "A file is used only if its size and digest match its entry.", SKILLS + "test_a_file_that_changed_since_the_list_is_refused",
         *client_suite("sep-2640-client-verify-digest", R4, R5), *client_suite("sep-2640-client-verify-size", R4, R5)),
    must("C2.20-3", "extension skills", "A SKILL.md is used only if its frontmatter matches the entry, field by field.", SKILLS + "test_frontmatter_that_differs_from_its_entry_is_refused",
         SKILLS + "test_numbers_in_the_frontmatter_are_compared_by_value", *client_suite("sep-2640-client-verify-frontmatter", R4, R5)),
    must("C2.20-4", "extension skills", "A file outside the manifest is refused.", SKILLS + "test_a_file_outside_the_manifest_is_not_requested"),
    must("C2.22-1", "2026-07-28: schemas", "A reference to the network is never followed.", *client_suite("json-schema-ref-no-deref", R5), OUTPUTS + "test_validation_with_any_schema_takes_a_bounded_time"),
    must("C2.22-2", "2025-11-25 on: schemas", "A schema in a list is kept unchanged.", *client_suite("json-schema-2020-12-preservation", R4, R5)),
)  # fmt: skip

AUTHORIZATION: tuple[Row, ...] = (
    must("C2.21-1", "2025-06-18 on: authorization, discovery", "The server's metadata is requested from the URL in its header, then under the path, then at the root.",
         URLS + "test_the_metadata_url_of_the_challenge_precedes_the_well_known_urls", *client_suite("auth/metadata-default", R4, R5), *client_suite("auth/metadata-var1", R4, R5),
         *client_suite("auth/metadata-var2", R4, R5), *client_suite("auth/metadata-var3", R4, R5)),
    must("C2.21-2", "2025-11-25 on: authorization, discovery", "The authorization server's metadata is requested by RFC 8414 and OpenID, with the path.",
         URLS + "test_the_oauth_metadata_url_precedes_the_openid_urls", DISCOVERY + "test_metadata_is_not_requested_from_the_root_of_an_issuer_with_a_path", *client_suite("auth/metadata-var3", R4, R5)),
    must("C2.21-3", "2025-11-25 on: authorization, discovery", "Metadata with another issuer is not used.", DISCOVERY + "test_invalid_metadata_ends_the_discovery", *client_suite("auth/metadata-issuer-mismatch", R5)),
    must("C2.21-4", "2026-07-28: authorization, resource", "A resource that does not cover the server ends the sign-in.", URLS + "test_a_resource_covers_urls_below_it_on_its_origin",
         SIGN_IN + "test_metadata_for_another_resource_ends_the_sign_in_before_the_browser_opens", *client_suite("auth/resource-mismatch", R5)),
    must("C2.21-5", "2025-06-18 on: authorization, resource", "`resource` is sent with the authorization and the token request, as published.",
         GRANTS + "test_the_authorization_url_has_the_published_resource_and_the_code_challenge", *client_suite("auth/metadata-var2", R4, R5)),
    must("C2.21-6", "2025-11-25 on: authorization, PKCE", "PKCE is S256, and without it no user signs in.", SIGN_IN + "test_an_authorization_server_without_pkce_is_refused_before_the_browser_opens",
         GRANTS + "test_the_authorization_url_has_the_published_resource_and_the_code_challenge"),
    should("C2.21-7", "all since 2025-03-26: authorization, state", "`state` is sent, and compared in the redirect.", "yes", GRANTS + "test_an_unrelated_redirect_is_refused"),
    should("C2.21-8", "2025-11-25 on: authorization, registration", "A client is pre-registered, has a metadata document, or is registered, in this order.", "yes",
           GRANTS + "test_a_known_client_precedes_a_metadata_document_and_a_registration", *client_suite("auth/basic-cimd", R4, R5), *client_suite("auth/pre-registration", R4, R5)),
    must("C2.21-9", "2026-07-28: authorization, registration", "Credentials belong to their issuer: another issuer gets a new registration.",
         SIGN_IN + "test_credentials_of_one_authorization_server_are_not_sent_to_another", SIGN_IN + "test_a_client_id_is_sent_only_to_its_issuer", *client_suite("auth/authorization-server-migration", R5)),
    must("C2.21-10", "2026-07-28: authorization, issuer", "`iss` is compared exactly; it must be present if the metadata announces it.",
         GRANTS + "test_the_issuer_is_compared_exactly", GRANTS + "test_the_issuer_parameter_is_required_if_the_metadata_announces_it",
         *(test for kind in ("normalized", "not-advertised", "supported", "supported-missing", "unexpected", "wrong-issuer") for test in client_suite(f"auth/iss-{kind}", R5))),
    must("C2.21-11", "2026-07-28: authorization, issuer", "An error of another issuer is not shown.", SIGN_IN + "test_the_description_of_another_issuer_is_not_shown"),
    must("C2.21-12", "2025-11-25 on: authorization, scopes", "Scopes are those of the challenge, or else the published ones, or else none.", DISCOVERY + "test_published_scopes_are_used_if_the_challenge_has_none",
         *client_suite("auth/scope-from-www-authenticate", R4, R5), *client_suite("auth/scope-from-scopes-supported", R4, R5), *client_suite("auth/scope-omitted-when-undefined", R4, R5)),
    must("C2.21-13", "2026-07-28: authorization, step-up", "For more scopes all are requested, including earlier ones.", SIGN_IN + "test_additional_scopes_are_requested_together_with_the_earlier_scopes", *client_suite("auth/scope-step-up", R4, R5)),
    should("C2.21-14", "2025-11-25 on: authorization, step-up", "Step-up is attempted only a few times.", "yes", ORIGIN + "test_a_request_is_refused_after_three_rejected_tokens", *client_suite("auth/scope-retry-limit", R4, R5)),
    must("C2.21-15", "2025-11-25 on: authorization, tokens", "The client authenticates at the token endpoint by a method that it offers.", GRANTS + "test_a_client_authenticates_with_its_registered_method",
         *client_suite("auth/token-endpoint-auth-basic", R4, R5), *client_suite("auth/token-endpoint-auth-post", R4, R5), *client_suite("auth/token-endpoint-auth-none", R4, R5)),
    must("C2.21-16", "2026-07-28: authorization, refresh", "`offline_access` is requested only if it is listed.", GRANTS + "test_offline_access_is_requested_only_if_listed_and_never_alone",
         *client_suite("auth/offline-access-scope", R5), *client_suite("auth/offline-access-not-supported", R5)),
    should("C2.21-21", "all since 2025-03-26: authorization, refresh", "An expired token is renewed once, without the user.", "yes",
           SIGN_IN + "test_a_token_is_refreshed_before_it_expires", SIGN_IN + "test_a_refused_token_is_refreshed_once"),
    must("C2.21-17", "all since 2025-03-26: authorization, tokens", "A token is in the header of every request to its server, and nowhere else.",
         SIGN_IN + "test_the_user_signs_in_once_and_every_request_has_the_token", ORIGIN + "test_credentials_are_not_sent_to_another_server"),
    must("C2.21-18", "2025-03-26: authorization, fallback", "Without metadata of the server, its root is the authorization server, with default paths if necessary.",
         DISCOVERY + "test_a_server_without_metadata_is_its_own_authorization_server", *client_suite("auth/2025-03-26-oauth-metadata-backcompat", R2), *client_suite("auth/2025-03-26-oauth-endpoint-fallback", R2)),
    must("C2.21-19", "all since 2025-03-26: authorization, security", "Only web pages are opened, and tokens are sent only with TLS, or on this machine.",
         SIGN_IN + "test_an_authorization_endpoint_that_is_not_https_is_not_opened", DISCOVERY + "test_a_remote_server_without_tls_gets_no_token"),
    must("C2.21-20", "extension client credentials", "A client signs in with a secret, or with a signature; `resource` is sent with it.",
         *client_suite("auth/client-credentials-basic", R4, R5), *client_suite("auth/client-credentials-jwt", R4, R5)),
)  # fmt: skip

ROWS = (
    *JSONRPC, *LIFECYCLE, *ENVELOPE, *EITHER_ERA, *STDIO, *STATELESS_HTTP, *SESSIONS, *RESOURCES, *CACHING, *ANSWERS, *REST,
    *AUTHORIZATION,
)  # fmt: skip
