"""Requirements on messages, lifecycle and transports: sections 2.1 to 2.10."""

from __future__ import annotations

from tests.requirements.row import Row, must, should, suite, transcripts

__all__ = ["ROWS"]

R1, R2, R3, R4, R5 = "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"
HANDSHAKE = (R1, R2, R3, R4)
ALL = (*HANDSHAKE, R5)

CASES = "protocol/test_jsonrpc_cases.py::"
PEER = "protocol/test_server_peer.py::"
PHASES = "protocol/test_handshake.py::"
HEADERS = "protocol/http/test_headers.py::"
HTTP = "protocol/http/test_rules.py::"
SSE = "protocol/test_sse.py::"
STREAM = "transports/test_stream_server.py::"
STDIO = "transports/test_stdio_server.py::"
STATELESS = "transports/test_http_stateless.py::"
SESSIONS = "transports/http_server/test_sessions.py::"
STREAMS = "transports/http_server/test_asgi_response.py::"
LIMITS = "transports/test_http_limits.py::"
RUNNER = "transports/http_server/test_runner.py::"
ERRORS = "test_errors.py::"
SECURITY = "security/"
APP = "server/test_app.py::"
WATCHING = "server/subscriptions/test_watching.py::"

JSONRPC: tuple[Row, ...] = (
    must("2.1-1", "all: basic, requests", "An id is a string or an integer, never null.",
         CASES + "test_peer_answers_every_case_and_continues", CASES + "test_ids_are_returned_unchanged"),
    must("2.1-2", "all: basic, requests", "An id is unique among pending requests; 1 and \"1\" are different ids.",
         CASES + "test_second_use_of_an_id_in_flight_is_refused_and_the_first_gets_its_answer",
         CASES + "test_the_ids_1_and_text_1_are_different"),
    must("2.1-3", "all: basic, notifications", "A notification has no id and is never answered.",
         PEER + "test_unknown_and_misplaced_notifications_are_ignored", *transcripts("errors", *ALL)),
    must("2.1-4", "all: basic, responses", "A response has the unchanged id of its request.",
         CASES + "test_ids_are_returned_unchanged", *transcripts("ping", *HANDSHAKE)),
    must("2.1-5", "all: basic, responses", "A response has either a result or an error.",
         "transcripts/test_schemas.py::test_messages_of_the_server_match_the_schema"),
    must("2.1-6", "2025-11-25 on: schema, error responses", "If the id could not be read, the error has no id, not even null.",
         CASES + "test_peer_answers_every_case_and_continues", STATELESS + "test_an_invalid_request_body_is_refused"),
    must("2.1-7", "all: basic, error codes", "Invalid JSON is -32700.",
         CASES + "test_peer_answers_every_case_and_continues", *transcripts("errors", *ALL)),
    must("2.1-8", "all: basic, error codes", "JSON that is not a message is -32600.",
         CASES + "test_peer_answers_every_case_and_continues", *transcripts("errors", *ALL)),
    must("2.1-9", "all: basic, error codes", "A method that is unknown, or belongs to an undeclared capability, is -32601.",
         *transcripts("errors", *ALL), STATELESS + "test_an_unknown_method_or_one_of_another_era_is_not_found",
         "server/features/test_resources.py::test_an_empty_server_has_no_resource_methods"),
    must("2.1-10", "all: basic, error codes", "Params of the wrong shape are -32602.",
         CASES + "test_peer_answers_every_case_and_continues", *transcripts("errors", *ALL)),
    must("2.1-11", "all: basic, error codes", "A fault of the server itself is -32603.",
         STREAM + "test_any_exception_in_a_handler_is_an_error_of_its_request",
         STATELESS + "test_an_exception_in_a_handler_is_an_error_of_its_call"),
    must("2.1-12", "all: basic, error codes", "Error codes are integers with the meanings of the specification.",
         ERRORS + "test_codes_and_statuses_are_those_of_the_specification",
         "types/test_schemas.py::test_error_codes_match_the_schemas"),
    must("2.1-13", "2025-03-26: basic, batching", "An array of messages is accepted.", *transcripts("batches", R2),
         "transports/test_batches.py::test_the_answers_of_a_batch_are_sent_as_one_array"),
    must("2.1-14", "2025-03-26: basic, batching", "`initialize` is not part of a batch.", *transcripts("batches", R2),
         "transports/test_batches.py::test_initialize_in_a_batch_is_refused"),
    must("2.1-15", "2025-06-18 on: basic", "An array of messages is refused.", *transcripts("batches", R1, R3, R4, R5),
         STATELESS + "test_an_invalid_request_body_is_refused"),
    must("2.1-16", "all: schema", "Unknown members and capabilities are tolerated.",
         *transcripts("errors", *ALL), CASES + "test_peer_answers_every_case_and_continues"),
    must("2.1-17", "2026-07-28: basic, error codes", "-32020, -32021 and -32022 have the data that their schema requires.",
         ERRORS + "test_data_of_refusals_has_the_shape_of_the_schema", *suite("server-stateless", R5)),
    must("2.1-18", "2026-07-28: basic, error codes", "-32020, -32021, -32022 and missing `_meta` fields are HTTP 400.",
         ERRORS + "test_codes_and_statuses_are_those_of_the_specification", *suite("server-stateless", R5)),
    must("2.1-19", "2026-07-28: basic, error codes", "-32601 is HTTP 404, with the error in its body.",
         STATELESS + "test_an_unknown_method_or_one_of_another_era_is_not_found", *suite("server-stateless", R5)),
    must("2.1-20", "2026-07-28: basic, error codes", "-32002 and -32042 are not sent.",
         PEER + "test_resource_not_found_has_the_error_code_of_the_revision", *suite("sep-2164-resource-not-found", R5)),
    must("2.1-21", "2026-07-28: basic, error codes", "No new code is allocated from -32000 to -32019.",
         ERRORS + "test_codes_and_statuses_are_those_of_the_specification"),
    should("2.1-22", "2026-07-28: basic, error codes", "Codes of an application are outside -32768 to -32000.",
           "yes", ERRORS + "test_codes_and_statuses_are_those_of_the_specification"),
)  # fmt: skip

LIFECYCLE: tuple[Row, ...] = (
    must("2.2-1", "handshake: lifecycle, version negotiation", "`initialize` with a supported revision is answered with that revision.",
         PHASES + "test_a_known_revision_is_accepted", *transcripts("opening", *HANDSHAKE)),
    must("2.2-2", "handshake: lifecycle, version negotiation", "`initialize` with any other revision is answered with a supported one.",
         PHASES + "test_any_other_revision_is_answered_with_our_latest", *transcripts("version", *HANDSHAKE)),
    should("2.2-3", "handshake: lifecycle, version negotiation", "The answer to an unsupported revision is the latest of the handshake era.", "yes",
           PHASES + "test_any_other_revision_is_answered_with_our_latest"),
    must("2.2-4", "handshake: lifecycle, initialization", "The result of `initialize` has the version, the capabilities and the server's name.",
         *transcripts("opening", *HANDSHAKE), *suite("server-initialize", R4)),
    should("2.2-5", "handshake: lifecycle, initialization", "Before `notifications/initialized` the server sends nothing but ping and logs.",
           "yes", PHASES + "test_nothing_is_sent_before_the_client_confirms_or_after_the_end",
           WATCHING + "test_a_session_gets_no_list_changes_before_it_confirms_the_handshake"),
    should("2.2-6", "handshake: lifecycle, initialization", "Before the result of `initialize` a client sends nothing but ping: other requests are refused.",
           "yes", PEER + "test_a_request_before_initialize_is_refused", PEER + "test_ping_is_served_before_the_handshake"),
    must("2.2-7", "handshake: lifecycle, operation", "The agreed revision and the capabilities apply to the whole session.",
         PEER + "test_a_second_initialize_does_not_change_the_session",
         SESSIONS + "test_a_second_initialize_does_not_renegotiate"),
    must("2.2-8", "handshake: lifecycle, operation", "Only declared capabilities are used: a feature without a handler is not declared.",
         APP + "test_a_server_declares_its_name_and_capabilities", APP + "test_every_method_belongs_to_its_era"),
    must("2.2-9", "handshake: lifecycle, capabilities", "The server sends only requests whose capability the client declared.", *transcripts("undeclared_capabilities", *HANDSHAKE)),
    must("2.2-10", "2025-06-18 on: transports, version header", "A version header with an unsupported version is HTTP 400.",
         SESSIONS + "test_the_version_header_is_optional_but_must_be_known", HTTP + "test_the_version_header_of_a_session_is_a_handshake_revision"),
    should("2.2-11", "2025-06-18 on: transports, version header", "Without the header and a session, 2025-03-26 is assumed.",
           "yes", HTTP + "test_the_era_of_a_post_follows_its_meta_then_its_session_then_its_version", SESSIONS + "test_the_version_header_is_optional_but_must_be_known"),
    must("2.2-12", "handshake: cancellation", "`initialize` is not cancelled.", PEER + "test_initialize_cannot_be_cancelled"),
    should("2.2-13", "handshake: lifecycle, timeouts", "Every request has a deadline, and a maximum that progress does not extend.",
           "yes", STREAM + "test_a_request_over_its_deadline_is_cancelled_and_a_listen_request_is_not",
           SESSIONS + "test_a_request_over_its_deadline_is_cancelled_and_answered"),
    should("2.2-14", "handshake: lifecycle, errors", "A failed negotiation does not end the connection: `initialize` can be tried again.", "yes",
           PEER + "test_a_failed_initialize_leaves_the_session_new", SESSIONS + "test_a_refused_initialize_opens_no_session"),
)  # fmt: skip

ENVELOPE: tuple[Row, ...] = (
    must("2.3-1", "2026-07-28: basic, request metadata", "A request without `protocolVersion` or `clientCapabilities` in `_meta` is -32602.",
         PEER + "test_a_stateless_request_without_a_required_field_is_refused", *transcripts("opening", R5)),
    must("2.3-2", "2026-07-28: basic, request metadata", "Over HTTP the error has status 400.",
         STATELESS + "test_missing_meta_is_reported", *suite("server-stateless", R5)),
    must("2.3-3", "2026-07-28: basic, request metadata", "A request without `clientInfo` is served.",
         PEER + "test_a_stateless_request_needs_no_handshake", *suite("server-stateless", R5)),
    must("2.3-4", "2026-07-28: basic, results", "Every result has a `resultType`.",
         PEER + "test_stateless_results_have_result_type_caching_hints_and_server_info", "transcripts/test_schemas.py::test_messages_of_the_server_match_the_schema",
         *suite("input-required-result-result-type", R5)),
    should("2.3-5", "2026-07-28: basic, results", "Every result names the server in `_meta`.", "yes",
           PEER + "test_stateless_results_have_result_type_caching_hints_and_server_info", *suite("server-stateless", R5)),
    must("2.3-6", "2026-07-28: basic, statelessness", "The version, client and capabilities of an earlier request are not used.",
         PEER + "test_one_connection_may_carry_requests_of_both_eras", PEER + "test_a_stateless_request_needs_no_handshake",
         *suite("input-required-result-capability-check", R5)),
    must("2.3-7", "2026-07-28: basic, statelessness", "Neither a connection nor a process is a session.",
         SECURITY + "test_messages.py::test_both_eras_share_one_stream_and_its_ids",
         STATELESS + "test_clients_with_equal_ids_get_their_own_answers"),
    must("2.3-8", "2026-07-28: basic, statelessness", "Lists depend neither on the connection nor on earlier calls.",
         "requirements/test_base.py::test_lists_are_the_same_on_every_connection_and_after_every_call", "server/features/test_listing.py::test_a_page_is_encoded_once_until_the_list_changes"),
    must("2.3-9", "2026-07-28: basic, client and server info", "`clientInfo` and `serverInfo` affect neither behaviour nor security.",
         PEER + "test_the_client_name_in_meta_is_not_a_repeated_member", "requirements/test_base.py::test_the_client_name_affects_no_answer"),
    must("2.3-10", "all: basic, _meta", "Keys with a reserved prefix are used only as the specification says.",
         "requirements/test_base.py::test_reserved_keys_are_those_of_the_specification"),
    must("2.3-11", "all: basic, _meta", "An author's `_meta` is sent unchanged.",
         PEER + "test_meta_of_a_result_is_merged_without_changing_the_result"),
    must("2.3-12", "all: basic, _meta", "No field of the stateless era reaches a client of the handshake era.",
         PEER + "test_results_of_sessions_have_no_stateless_fields"),
)  # fmt: skip

DISCOVERY: tuple[Row, ...] = (
    must("2.4-1", "2026-07-28: server/discover", "`server/discover` is served.", *transcripts("opening", R5), *suite("server-stateless", R5)),
    must("2.4-2", "2026-07-28: server/discover", "Its result has the versions, the capabilities and the caching hints.",
         *transcripts("opening", R5), *suite("caching", R5)),
    must("2.4-3", "2026-07-28: versioning", "An unsupported version is -32022 on every method, with the supported ones.",
         PEER + "test_an_unsupported_stateless_revision_is_refused_with_the_supported_ones",
         STATELESS + "test_an_unknown_version_is_refused_with_the_supported_versions", *transcripts("opening", R5)),
    must("2.4-4", "2026-07-28: versioning", "The versions in that error are among those of discovery.",
         "requirements/test_base.py::test_versions_of_a_refusal_are_in_discovery", *suite("server-stateless", R5)),
    must("2.4-5", "2026-07-28: server/discover", "A client may skip discovery.", PEER + "test_a_stateless_request_needs_no_handshake"),
)  # fmt: skip

ERAS: tuple[Row, ...] = (
    must("2.5-1", "2026-07-28: versioning, both eras", "A request with the stateless version in `_meta` is served by the stateless rules after any earlier messages.",
         PEER + "test_one_connection_may_carry_requests_of_both_eras", SECURITY + "test_messages.py::test_both_eras_share_one_stream_and_its_ids"),
    must("2.5-2", "2026-07-28: versioning, both eras", "`initialize` without it opens a session of the handshake era.",
         *transcripts("opening", *HANDSHAKE), SESSIONS + "test_initialize_opens_a_session"),
    must("2.5-3", "2026-07-28: versioning, removed methods", "`initialize`, `ping`, `logging/setLevel`, `resources/subscribe` and `unsubscribe` are unknown methods.",
         STATELESS + "test_an_unknown_method_or_one_of_another_era_is_not_found", *transcripts("ping", R5), *transcripts("opening", R5), *suite("server-stateless", R5)),
    must("2.5-4", "2026-07-28: transports, HTTP", "GET and DELETE without a session are 405.",
         STATELESS + "test_the_stateless_era_allows_only_post"),
    must("2.5-5", "handshake: transports, sessions", "An unknown or ended session id is 404.",
         SESSIONS + "test_an_unknown_session_is_not_found_and_its_id_is_not_repeated", SESSIONS + "test_a_deleted_session_is_not_found"),
    must("2.5-6", "2026-07-28: transports, HTTP", "A session header on a stateless request is ignored.",
         STATELESS + "test_invalid_headers_are_refused_before_the_handler_runs"),
    must("2.5-7", "2026-07-28: versioning, stdio", "A first stateless request is never refused for a missing `initialize`.",
         PEER + "test_a_stateless_request_needs_no_handshake", *transcripts("opening", R5)),
    should("2.5-8", "2026-07-28: versioning, both eras", "A refusal of `initialize` names the supported versions.", "yes",
           SECURITY + "test_messages.py::test_initialize_with_stateless_meta_is_refused"),
)  # fmt: skip

STDIO_ROWS: tuple[Row, ...] = (
    must("2.6-1", "all: transports, stdio", "A message is one line of UTF-8, without line ends inside.",
         STDIO + "test_messages_may_arrive_one_byte_at_a_time", STATELESS + "test_line_ends_of_a_raw_result_do_not_split_its_event",
         "transcripts/test_replay.py::test_server_process_answers_as_recorded"),
    must("2.6-2", "all: transports, stdio", "Standard output carries nothing else.",
         STDIO + "test_output_of_handlers_is_not_written_to_the_stream", STDIO + "test_no_handler_can_end_the_server"),
    should("2.6-3", "all: transports, stdio", "The server exits at the end of input.", "yes",
           STDIO + "test_at_the_end_of_input_pending_requests_are_answered_and_the_process_exits",
           STDIO + "test_a_blocked_thread_does_not_delay_the_exit_after_the_end_of_input"),
    should("2.6-4", "all: lifecycle, shutdown", "It exits cleanly at SIGTERM.", "yes",
           STDIO + "test_sigterm_ends_the_server_after_pending_requests_are_answered"),
    must("2.6-5", "2026-07-28: transports, stdio", "The server writes only answers and notifications.", *transcripts("input_requests", R5), *transcripts("watching", R5)),
    must("2.6-6", "all: cancellation", "After `notifications/cancelled` nothing more is sent for that request.",
         PEER + "test_a_cancelled_request_is_never_answered", STREAM + "test_a_cancelled_request_is_not_answered_and_its_id_may_be_reused",
         *transcripts("cancellation", *ALL)),
    should("2.6-7", "2026-07-28: transports, byte streams", "Sockets use the framing of stdio.", "yes",
           STDIO + "test_stdin_and_stdout_may_be_a_socket"),
)  # fmt: skip

STATELESS_HTTP: tuple[Row, ...] = (
    must("2.7-1", "all: transports, HTTP security", "The Origin of every connection is checked.",
         STATELESS + "test_invalid_headers_are_refused_before_the_handler_runs", "protocol/http/test_host_origin.py::test_a_page_may_call_only_its_own_origin",
         *suite("dns-rebinding-protection", R4, R5)),
    must("2.7-2", "2025-11-25 on: transports, HTTP security", "A bad Origin is HTTP 403.",
         STATELESS + "test_invalid_headers_are_refused_before_the_handler_runs", SECURITY + "test_http.py::test_only_allowed_hosts_and_origins_are_served"),
    should("2.7-3", "all: transports, HTTP security", "A local server binds 127.0.0.1 alone.", "yes",
           RUNNER + "test_a_bind_beyond_loopback_needs_a_token_or_an_explicit_option"),
    should("2.7-4", "all: transports, HTTP security", "Connections are authenticated.",
           "yes: beyond loopback the server requires a token, or an option that waives it",
           RUNNER + "test_nothing_but_health_is_served_without_the_token"),
    must("2.7-5", "2026-07-28: transports, HTTP", "One path takes POST; other methods are 405.",
         STATELESS + "test_other_http_methods_are_not_allowed", STATELESS + "test_the_stateless_era_allows_only_post"),
    must("2.7-6", "2026-07-28: transports, sending messages", "The body is one request or notification; an array or an answer is refused.",
         STATELESS + "test_an_invalid_request_body_is_refused"),
    must("2.7-7", "2026-07-28: transports, version header", "`MCP-Protocol-Version` is on every POST and equals `_meta`; else 400 and -32020.",
         HTTP + "test_missing_version_header_is_refused", STATELESS + "test_invalid_headers_are_refused_before_the_handler_runs",
         *suite("http-header-validation", R5)),
    must("2.7-8", "2026-07-28: transports, HTTP", "A request is answered with JSON or with an event stream.",
         STATELESS + "test_a_read_is_answered_with_json", STATELESS + "test_the_first_notification_turns_the_answer_into_a_stream"),
    must("2.7-9", "2026-07-28: transports, HTTP", "The status is decided before a stream begins.",
         STATELESS + "test_invalid_headers_are_refused_before_the_handler_runs", STATELESS + "test_a_header_mismatch_is_reported_before_an_unknown_method",
         "requirements/test_base.py::test_a_missing_capability_is_refused_with_its_status"),
    must("2.7-10", "2026-07-28: transports, HTTP", "An accepted notification is 202 without a body.",
         STATELESS + "test_a_notification_is_accepted_without_an_answer"),
    must("2.7-11", "2026-07-28: transports, streams", "A request's stream has its notifications, then its answer, and then ends.",
         STATELESS + "test_the_first_notification_turns_the_answer_into_a_stream", STATELESS + "test_an_error_after_a_notification_is_the_last_event",
         *suite("tools-call-with-progress", R5)),
    must("2.7-12", "2026-07-28: transports, streams", "The server sends no requests on a stream.", *suite("server-stateless", R5)),
    must("2.7-13", "2026-07-28: transports, streams", "Events have no ids, and nothing is resumed.",
         STATELESS + "test_the_first_notification_turns_the_answer_into_a_stream",
         "transports/http_server/test_replay.py::test_stateless_streams_have_no_ids", "requirements/test_base.py::test_a_stateless_stream_has_no_event_ids"),
    should("2.7-14", "2026-07-28: transports, streams", "Streams have `X-Accel-Buffering: no`.", "yes",
           "requirements/test_base.py::test_a_stateless_stream_has_no_event_ids"),
    should("2.7-15", "2026-07-28: transports, streams", "Comments keep quiet streams open.", "yes",
           STREAMS + "test_an_idle_stream_gets_comments"),
    must("2.7-16", "2026-07-28: transports, cancellation", "A client that closes its stream cancels the request: the work stops.",
         STATELESS + "test_a_disconnect_cancels_the_request"),
    must("2.7-17", "2026-07-28: transports, HTTP", "Streams of several requests can be open at once.", *suite("server-sse-multiple-streams", R4, R5)),
)  # fmt: skip

HEADER_ROWS: tuple[Row, ...] = (
    must("2.8-1", "2026-07-28: transports, request headers", "`Mcp-Method` equals the body's method; else 400 and -32020.",
         HTTP + "test_header_that_differs_from_the_body_is_refused", *suite("http-header-validation", R5)),
    must("2.8-2", "2026-07-28: transports, request headers", "`Mcp-Name` equals the name or URI in the params; else 400 and -32020.",
         HTTP + "test_header_that_differs_from_the_body_is_refused", STATELESS + "test_invalid_headers_are_refused_before_the_handler_runs",
         *suite("http-header-validation", R5)),
    must("2.8-3", "2026-07-28: transports, request headers", "Names of headers are compared without case, values exactly.",
         HTTP + "test_headers_are_read_by_name", HTTP + "test_headers_that_match_the_body_are_accepted", *suite("http-header-validation", R5)),
    must("2.8-4", "2026-07-28: transports, value encoding", "A value in the Base64 form is decoded strictly; another alphabet or padding is 400 and -32020.",
         HEADERS + "test_value_that_is_not_exact_is_refused", HTTP + "test_name_that_looks_encoded_must_be_encoded",
         *suite("http-custom-header-server-validation", R5)),
    must("2.8-5", "2026-07-28: transports, value encoding", "A value without both markers is literal.",
         HEADERS + "test_value_without_both_markers_is_literal"),
    must("2.8-6", "2026-07-28: transports, value encoding", "URIs are compared literally, with their percent-encoding.",
         HTTP + "test_headers_that_match_the_body_are_accepted"),
    must("2.8-7", "2026-07-28: tools, x-mcp-header", "An annotation is a token, unique regardless of case, on a string, integer or boolean reached by `properties` alone.",
         HEADERS + "test_annotated_properties_are_found", HEADERS + "test_misplaced_annotation_is_an_error"),
    must("2.8-8", "2026-07-28: tools, x-mcp-header", "A header that differs from its argument, or is missing, is 400 and -32020.",
         HEADERS + "test_server_refuses_headers_unlike_their_arguments", *suite("http-custom-header-server-validation", R5)),
    must("2.8-9", "2026-07-28: tools, x-mcp-header", "No header is expected for an argument that is null or absent; integers compare as numbers.",
         HEADERS + "test_server_accepts_headers_like_their_arguments", *suite("http-custom-header-server-validation", R5)),
    must("2.8-10", "2026-07-28: tools, x-mcp-header", "Headers without an annotation are not refused.",
         HEADERS + "test_server_accepts_headers_like_their_arguments"),
)  # fmt: skip

SESSION_ROWS: tuple[Row, ...] = (
    must("2.9-1", "2025-03-26 to 2025-11-25: transports, HTTP", "One path serves POST and GET.",
         SESSIONS + "test_messages_without_a_request_are_sent_on_the_session_stream", SESSIONS + "test_initialize_opens_a_session"),
    must("2.9-2", "2025-03-26 to 2025-11-25: transports, sending messages", "Notifications and answers are 202 without a body, or a 4xx.",
         SESSIONS + "test_a_notification_and_a_late_answer_are_accepted"),
    must("2.9-3", "2025-03-26 to 2025-11-25: transports, sending messages", "A request is answered with JSON or with a stream.",
         SESSIONS + "test_the_first_notification_turns_the_answer_into_a_stream"),
    should("2.9-4", "2025-03-26 to 2025-11-25: transports, sending messages", "A request's stream ends after its answer.",
           "yes", SESSIONS + "test_the_first_notification_turns_the_answer_into_a_stream"),
    must("2.9-5", "2025-03-26 to 2025-11-25: transports, listening", "The GET stream has no answers, except when a stream is resumed.",
         SESSIONS + "test_messages_without_a_request_are_sent_on_the_session_stream"),
    must("2.9-6", "2025-03-26 to 2025-11-25: transports, streams", "Each message goes to exactly one stream.",
         SESSIONS + "test_a_session_has_one_stream_at_a_time",
         SECURITY + "test_subscriptions.py::test_a_change_is_reported_once_to_each_era_on_one_stream"),
    must("2.9-7", "2025-03-26 to 2025-11-25: transports, sessions", "A session id is visible ASCII.",
         SESSIONS + "test_session_ids_are_unguessable_and_unordered"),
    should("2.9-8", "2025-03-26 to 2025-11-25: transports, sessions", "It is unguessable.", "yes",
           SESSIONS + "test_session_ids_are_unguessable_and_unordered"),
    should("2.9-9", "2025-03-26 to 2025-11-25: transports, sessions", "A request without it is 400.", "yes",
           SESSIONS + "test_a_request_without_a_session_is_refused", HTTP + "test_handshake_request_without_a_session_is_refused"),
    must("2.9-10", "2025-03-26 to 2025-11-25: transports, sessions", "After the end of a session its id is 404.",
         SESSIONS + "test_a_deleted_session_is_not_found", *suite("server-session-lifecycle", R4)),
    must("2.9-11", "2025-03-26 to 2025-11-25: security, sessions", "A session is not authentication: it belongs to the caller who opened it.",
         SESSIONS + "test_a_session_belongs_to_its_principal"),
    must("2.9-12", "2025-03-26 to 2025-11-25: transports, resumption", "Event ids are unique in their session, and name their stream.",
         "transports/http_server/test_replay.py::test_streams_of_one_session_are_never_mixed", "transports/http_server/test_replay.py::test_a_disconnected_client_gets_the_missed_events_and_the_answer"),
    must("2.9-13", "2025-03-26 to 2025-11-25: transports, resumption", "Only events of the same stream and session are repeated.",
         SESSIONS + "test_an_unknown_last_event_id_replays_nothing",
         "transports/http_server/test_replay.py::test_streams_of_one_session_are_never_mixed", "transports/http_server/test_replay.py::test_event_ids_of_another_session_replay_nothing", "transports/http_server/test_replay.py::test_a_stream_is_resumed_by_its_principal_only"),
    should("2.9-14", "2025-11-25: transports, resumption", "A stream begins with an event that has an id and empty data.", "yes", *suite("server-sse-polling", R4),
         "transports/http_server/test_replay.py::test_a_stream_starts_with_an_event_without_data",
         "transports/http_server/test_replay.py::test_clients_of_older_revisions_get_no_event_without_data"),
    should("2.9-15", "2025-11-25: transports, resumption", "Before the server closes a connection whose stream continues, it sends `retry`.", "yes", *suite("server-sse-polling", R4)),
    should("2.9-16", "2025-03-26 to 2025-11-25: transports, streams", "A broken connection does not cancel its requests.", "yes",
           SESSIONS + "test_a_disconnect_does_not_cancel_the_request"),
    must("2.9-17", "2025-03-26: basic, batching", "A POST may have several messages, and each request among them is answered.",
         "transports/test_batches.py::test_a_batch_over_http_is_answered_with_one_array", "transports/test_batches.py::test_a_batch_with_a_notification_is_answered_as_a_stream"),
    must("2.9-18", "2025-03-26 to 2025-11-25: transports, HTTP", "GET is answered with an event stream, or 405.",
         SESSIONS + "test_messages_without_a_request_are_sent_on_the_session_stream", SESSIONS + "test_a_stream_is_refused_to_a_client_that_does_not_accept_events"),
    must("2.9-19", "2025-03-26 to 2025-11-25: transports, sessions", "DELETE ends a session, or is 405.",
         SESSIONS + "test_delete_ends_the_stream_and_pending_requests", *suite("server-session-lifecycle", R4)),
)  # fmt: skip

TWO_ENDPOINTS: tuple[Row, ...] = (
    must("2.10-1", "2024-11-05: transports, HTTP with SSE", "There are two paths: one for a stream of events, and one for POSTs.", "transports/http_server/test_legacy_sse.py::test_a_session_is_served_in_any_revision_of_the_handshake"),
    must("2.10-2", "2024-11-05: transports, HTTP with SSE", "The first event is `endpoint`, with the URL for POSTs.", "transports/http_server/test_legacy_sse.py::test_a_session_is_served_in_any_revision_of_the_handshake", "transports/http_server/test_legacy_sse.py::test_ids_cannot_be_guessed"),
    must("2.10-3", "2024-11-05: transports, HTTP with SSE", "The server's messages are `message` events.", "transports/http_server/test_legacy_sse.py::test_notifications_come_before_their_answer", "transports/http_server/test_legacy_sse.py::test_a_message_may_have_line_ends"),
    should("2.10-4", "2025-03-26 on: transports, older clients", "A server for old clients has both paths in addition to the new one.", "yes", "transports/http_server/test_legacy_sse.py::test_other_http_methods_are_not_allowed", "transports/http_server/test_legacy_sse.py::test_http_sse_can_be_disabled"),
)  # fmt: skip

ROWS = (
    *JSONRPC, *LIFECYCLE, *ENVELOPE, *DISCOVERY, *ERAS, *STDIO_ROWS, *STATELESS_HTTP, *HEADER_ROWS, *SESSION_ROWS,
    *TWO_ENDPOINTS,
)  # fmt: skip
