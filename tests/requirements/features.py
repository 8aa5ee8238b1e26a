"""Requirements on the features of a server and its requests to the client: sections 2.11 to 2.18."""

from __future__ import annotations

from tests.requirements.base import ALL, HANDSHAKE, R2, R3, R4, R5
from tests.requirements.row import Row, must, should, suite, transcripts

__all__ = ["ROWS"]

RESOURCES = "server/features/test_resources.py::"
WATCHING = "server/subscriptions/test_watching.py::"
TOOLS = "server/features/test_tools.py::"
SIGNATURE = "server/signature/test_arguments.py::"
PROMPTS = "server/features/test_prompts.py::"
LISTS = "server/features/test_listing.py::"
CURSORS = "server/test_cursors.py::"
CONTEXT = "server/test_context.py::"
APP = "server/test_app.py::"
PEER = "protocol/test_server_peer.py::"
URIS = "protocol/uri/test_template.py::"
STREAM_SERVER = "transports/test_stream_server.py::"
EVENT_STREAMS = "transports/http_server/test_asgi_response.py::"
STATELESS = "transports/test_http_stateless.py::"
FOLDER = "sources/folder/test_source.py::"
SAFE_OPEN = "sources/folder/test_safe_open.py::"
FILES = "security/test_files.py::"
HOSTILE = "security/test_tools.py::"
SUBSCRIPTIONS = "security/test_subscriptions.py::"
SCHEMA = "transcripts/test_schemas.py::test_messages_of_the_server_match_the_schema"

RESOURCE_ROWS: tuple[Row, ...] = (
    must("2.11-1", "all: server/resources, capabilities", "A server with resources declares the capability.",
         APP + "test_a_server_declares_its_name_and_capabilities", *transcripts("opening", *ALL)),
    must("2.11-2", "all: server/resources, capabilities", "Without the declaration, its methods are unknown.",
         RESOURCES + "test_an_empty_server_has_no_resource_methods"),
    must("2.11-3", "2026-07-28: server/resources, capabilities", "With the declaration, `resources/list` is served, even if it is empty.",
         RESOURCES + "test_a_catalogue_lists_resources_that_are_not_registered", *suite("resources-list", R4, R5)),
    must("2.11-4", "all: server/resources, data types", "A resource has a URI, a name, and only members of its schema.",
         RESOURCES + "test_a_resource_is_listed_with_all_its_registered_fields", SCHEMA),
    must("2.11-5", "all: server/resources, templates", "Templates follow RFC 6570, and have a separate list.",
         URIS + "test_the_examples_of_the_rfc_are_expanded", *transcripts("resources", *ALL), *suite("resources-templates-read", R4, R5)),
    must("2.11-6", "all: server/resources, reading", "Contents have the requested URI and either text or base64.",
         FOLDER + "test_the_answer_has_the_requested_uri", *transcripts("resources", *ALL), *suite("resources-read-text", R4, R5), *suite("resources-read-binary", R4, R5)),
    must("2.11-7", "all: server/resources, contents", "Text contents are text; anything else is base64.",
         "content/test_mime.py::test_binary_data_is_not_decoded", FILES + "test_content_has_its_real_mime_type"),
    must("2.11-8", "2026-07-28: server/resources, error handling", "A missing resource is -32602, never empty contents.",
         *transcripts("resources", R5), *suite("sep-2164-resource-not-found", R5), FOLDER + "test_an_empty_directory_has_a_nonempty_answer"),
    should("2.11-9", "handshake: server/resources, error handling", "A missing resource is -32002.", "yes", *transcripts("resources", *HANDSHAKE)),
    should("2.11-10", "all: server/resources, error handling", "The error's data has the URI.", "yes", *transcripts("resources", *ALL)),
    should("2.11-11", "all: server/resources, error handling", "A fault of the server is -32603.", "yes",
           RESOURCES + "test_an_error_of_a_handler_is_sent_without_its_details"),
    must("2.11-12", "handshake: server/resources, subscriptions", "A subscriber gets changes with the URI, until it unsubscribes.",
         *transcripts("watching", *HANDSHAKE), WATCHING + "test_a_repeated_subscription_is_notified_once_and_ends_with_one_unsubscribe",
         *suite("resources-subscribe", R4), *suite("resources-unsubscribe", R4)),
    must("2.11-13", "handshake: server/resources, subscriptions", "Subscriptions end with their session.",
         WATCHING + "test_the_end_of_a_session_drops_its_watches"),
    should("2.11-14", "all: server/resources, list changed", "With `listChanged` declared, a changed list is reported.", "yes",
           WATCHING + "test_adding_and_removing_notifies_the_watchers_of_the_list"),
    must("2.11-15", "all: server/resources, annotations", "Annotations match the schema, on resources, templates and blocks.",
         RESOURCES + "test_callable_annotations_are_called_for_every_list", SCHEMA),
    must("2.11-16", "all: server/resources, security", "Every URI is validated.",
         RESOURCES + "test_an_invalid_uri_is_an_invalid_param", FILES + "test_invalid_uris_are_invalid_params_and_not_repeated"),
    must("2.11-17", "2026-07-28: server/resources, security", "Paths of `file://` URIs do not leave their folder.",
         SAFE_OPEN + "test_no_manipulated_path_reads_outside_the_folder", FILES + "test_no_spelling_of_a_path_leaves_the_folder_and_all_errors_are_the_same"),
    must("2.11-18", "all: server/resources, security", "Bytes are properly encoded.",
         "types/test_content.py::test_bytes_are_base64_on_the_wire_only", PEER + "test_large_blobs_are_encoded_in_chunks"),
    should("2.11-19", "all: server/resources, security", "A caller without permission is refused.", "yes",
           RESOURCES + "test_missing_and_forbidden_resources_return_the_same_error"),
    must("2.11-20", "all: server/resources, URI schemes", "Custom schemes follow RFC 3986.",
         RESOURCES + "test_an_invalid_uri_cannot_be_registered"),
    should("2.11-21", "all: server/resources, URI schemes", "A resource has an `https` URI only if a client can fetch it without the server.",
           "no: the author chooses the scheme, and only the author can know"),
    must("2.11-22", "all: server/resources, templates", "A simple variable does not match a slash.",
         URIS + "test_match_returns_the_values_or_none", *transcripts("resources", *ALL)),
    must("2.11-23", "all: server/resources, templates", "Captured values are decoded after matching, once.",
         URIS + "test_match_returns_the_values_or_none", *transcripts("resources", *ALL)),
    should("2.11-24", "all: server/resources, templates", "Variables are completed by `completion/complete`.", "yes", *transcripts("completion", *ALL)),
    must("2.11-25", "2026-07-28: server/resources, reading", "`resources/read` may return `input_required`; complete results have caching hints.",
         "requirements/test_features.py::test_a_resource_may_request_input", *suite("caching", R5)),
    must("2.11-27", "all: server/resources, data types", "A size is that of the raw bytes; a template has none.",
         FOLDER + "test_a_file_is_listed_with_title_type_size_time_and_version", RESOURCES + "test_a_template_accepts_no_size_and_the_decorator_requires_a_uri"),
    must("2.11-28", "2026-07-28: server/resources, reading", "An existing empty resource is one content with an empty text.",
         *transcripts("resources", *ALL)),
    should("2.11-26", "all: server/resources, embedded resources", "A server that embeds resources declares them.", "yes",
           *suite("tools-call-embedded-resource", R4, R5)),
)  # fmt: skip

LISTEN: tuple[Row, ...] = (
    must("2.12-1", "2026-07-28: subscriptions", "The first message is the acknowledgement, with exactly what is granted.",
         WATCHING + "test_the_acknowledgement_is_sent_first_and_subscription_ids_keep_their_type", *transcripts("watching", R5),
         *suite("server-stateless", R5)),
    must("2.12-2", "2026-07-28: subscriptions", "Changes that were not requested are not reported.",
         WATCHING + "test_only_changes_in_the_filter_are_reported", *transcripts("watching", R5)),
    must("2.12-3", "2026-07-28: subscriptions", "Every notification has the id of its listen request, with the same JSON type.",
         WATCHING + "test_the_acknowledgement_is_sent_first_and_subscription_ids_keep_their_type", *transcripts("watching", R5)),
    must("2.12-4", "2026-07-28: subscriptions", "Progress and logs are never sent on a listen stream.",
         "requirements/test_features.py::test_progress_and_logs_are_not_sent_on_a_listen_stream"),
    must("2.12-5", "2026-07-28: subscriptions", "Several listen requests may be open at once.",
         WATCHING + "test_two_listens_on_one_stream_are_independent"),
    must("2.12-6", "2026-07-28: subscriptions", "The watches of a listen end with its stream.",
         EVENT_STREAMS + "test_a_disconnected_listener_is_removed", SUBSCRIPTIONS + "test_disconnected_listeners_release_their_descriptors"),
    should("2.12-7", "2026-07-28: subscriptions, ending", "A server that ends a listen answers it with the subscription's id.", "yes",
           WATCHING + "test_drain_completes_every_listen", EVENT_STREAMS + "test_drain_ends_a_listen_stream_with_its_result"),
    must("2.12-8", "2026-07-28: cancellation", "On stdio a server that ends a listen sends `notifications/cancelled` for it.",
         "requirements/test_features.py::test_a_listen_that_the_server_ends_is_cancelled_and_then_answered"),
    must("2.12-9", "2026-07-28: cancellation", "On stdio the client ends a listen by `notifications/cancelled`.",
         *transcripts("watching", R5), WATCHING + "test_two_listens_on_one_stream_are_independent"),
    must("2.12-10", "2026-07-28: subscriptions", "Over HTTP the answer is an event stream.",
         EVENT_STREAMS + "test_a_listen_stream_starts_with_its_acknowledgement", EVENT_STREAMS + "test_a_client_that_does_not_accept_events_cannot_listen"),
)  # fmt: skip

CACHING: tuple[Row, ...] = (
    must("2.13-1", "2026-07-28: caching", "`ttlMs` and `cacheScope` are in complete results of discovery, the lists and reads.",
         *suite("caching", R5), PEER + "test_caching_hints_are_only_on_cacheable_results",
         "requirements/test_features.py::test_every_list_has_the_caching_hints_of_the_server"),
    must("2.13-2", "2026-07-28: caching", "Other results and those of type `input_required` do not have the hints.",
         PEER + "test_caching_hints_are_only_on_cacheable_results", *transcripts("input_requests", R5)),
    must("2.13-3", "2026-07-28: caching", "`ttlMs` is an integer from 0, `cacheScope` public or private.", SCHEMA, *suite("caching", R5)),
    must("2.13-4", "2026-07-28: caching", "All pages of a list have one scope.", "requirements/test_features.py::test_all_pages_of_a_list_have_the_same_cache_scope"),
    must("2.13-5", "2026-07-28: caching", "Results that depend on the user are private.",
         "requirements/test_features.py::test_results_are_private_by_default"),
    must("2.13-7", "2026-07-28: caching", "The hints of a result that used input responses forbid caching.",
         "requirements/test_features.py::test_a_resource_may_request_input"),
    must("2.13-6", "2026-07-28: caching", "A public scope does not replace the authorization of a read.", RESOURCES + "test_missing_and_forbidden_resources_return_the_same_error"),
)  # fmt: skip

ROUNDS: tuple[Row, ...] = (
    must("2.14-1", "2026-07-28: MRTR", "Only `tools/call`, `prompts/get` and `resources/read` return `input_required`.",
         *suite("input-required-result-unsupported-methods", R5), "server/input/test_round_trips.py::test_subscribing_sends_no_input_requests"),
    must("2.14-2", "2026-07-28: MRTR", "Such a result has `inputRequests` or `requestState`, and the `resultType` `input_required`.",
         *transcripts("input_requests", R5), *suite("input-required-result-result-type", R5)),
    must("2.14-3", "2026-07-28: MRTR", "An input request is one of the three methods with its params, under a unique key.",
         *transcripts("input_requests", R5), SCHEMA, *suite("input-required-result-multiple-input-requests", R5),
         *suite("input-required-result-basic-elicitation", R5), *suite("input-required-result-basic-sampling", R5),
         *suite("input-required-result-basic-list-roots", R5)),
    must("2.14-4", "2026-07-28: MRTR", "Input requests are limited to the capabilities in the request.",
         *suite("input-required-result-capability-check", R5), *transcripts("undeclared_capabilities", R5)),
    must("2.14-5", "2026-07-28: MRTR", "A request that needs other capabilities is -32021 with an object of the missing ones.", *transcripts("undeclared_capabilities", R5), *suite("server-stateless", R5)),
    must("2.14-6", "2026-07-28: MRTR", "`requestState` is untrusted: changed state is refused.",
         *suite("input-required-result-tampered-state", R5), *suite("input-required-result-request-state", R5),
         *transcripts("input_requests", R5)),
    must("2.14-7", "2026-07-28: MRTR", "`requestState` is bound to its caller and its request, and expires.", "server/input/test_round_trips.py::test_a_state_is_valid_only_for_its_own_call", "server/input/test_round_trips.py::test_a_state_with_a_changed_bit_is_refused", "server/input/test_round_trips.py::test_an_expired_state_is_refused_before_the_function_runs"),
    should("2.14-8", "2026-07-28: MRTR", "Missing input responses are requested again.", "yes", *suite("input-required-result-missing-input-response", R5), *transcripts("input_requests", R5)),
    should("2.14-9", "2026-07-28: MRTR", "Input responses under unknown keys are ignored.", "yes", *suite("input-required-result-ignore-extra-params", R5)),
    should("2.14-10", "2026-07-28: MRTR", "Input responses are validated before they are used.", "yes", *suite("input-required-result-validate-input", R5), *transcripts("input_requests", R5)),
    must("2.14-11", "2026-07-28: MRTR", "The state of each round contains the earlier input responses.", *suite("input-required-result-multi-round", R5), *transcripts("input_requests", R5)),
    should("2.14-12", "2026-07-28: MRTR", "The rounds are bounded.", "yes", "server/input/test_round_trips.py::test_the_number_of_rounds_is_limited", "server/input/test_round_trips.py::test_the_size_of_the_state_is_limited"),
    must("2.14-13", "2026-07-28: MRTR", "Prompts request input in the same way as tools.",
         *suite("input-required-result-non-tool-request", R5)),
)  # fmt: skip

TOOL_ROWS: tuple[Row, ...] = (
    must("2.15-1", "all: server/tools, capabilities", "A server with tools declares the capability.",
         APP + "test_a_server_declares_its_name_and_capabilities", *transcripts("opening", *ALL)),
    must("2.15-2", "all: server/tools, error handling", "An unknown tool is a protocol error, -32602.",
         TOOLS + "test_an_unknown_tool_raises_invalid_params", *transcripts("tools", *ALL)),
    must("2.15-3", "all: server/tools, error handling", "A failure in a tool is a result with `isError`.",
         TOOLS + "test_tool_errors_are_results_with_is_error", *transcripts("tools", *ALL), *suite("tools-call-error", R4, R5)),
    should("2.15-4", "2025-11-25 on: server/tools, error handling", "Invalid arguments are results with `isError`.",
           "yes: in every revision", TOOLS + "test_invalid_arguments_are_reported_and_the_function_does_not_run", *transcripts("tools", *ALL)),
    must("2.15-5", "all: server/tools", "`arguments` may be absent.", *transcripts("tools", *ALL)),
    must("2.15-6", "all: server/tools, tool", "`inputSchema` is an object's schema, never absent.",
         SIGNATURE + "test_a_function_without_parameters_accepts_only_an_empty_object", *suite("tools-list", R4, R5)),
    must("2.15-7", "2025-06-18 on: server/tools, output schema", "Structured results conform to the `outputSchema`.",
         TOOLS + "test_a_result_that_does_not_match_its_annotation_raises_type_error"),
    should("2.15-8", "2025-06-18 on: server/tools, structured content", "Structured content is also sent as a text block.", "yes",
           TOOLS + "test_values_returned_without_an_annotation_are_sent_by_their_type", *transcripts("tools", *ALL)),
    must("2.15-9", "2025-06-18, 2025-11-25: server/tools", "In these revisions, structured content is an object.",
         TOOLS + "test_a_value_is_wrapped_in_an_object_for_older_revisions", *transcripts("tools", R3, R4)),
    must("2.15-10", "2026-07-28: server/tools", "In this revision, structured content is any JSON value, including null.",
         TOOLS + "test_none_is_structured_content_if_the_annotation_is_optional", *transcripts("tools", R5)),
    must("2.15-11", "all: server/tools, security", "All inputs are validated.",
         HOSTILE + "test_unknown_arguments_are_refused", SIGNATURE + "test_every_kind_of_parameter_is_decoded"),
    must("2.15-12", "all: server/tools, security", "Access is controlled.", "server/middleware/test_chain.py::test_middleware_may_return_its_own_result_or_raise_an_error", TOOLS + "test_tool_errors_are_results_with_is_error"),
    must("2.15-13", "all: server/tools, security", "Calls are rate-limited.", "server/middleware/test_guards.py::test_a_caller_above_the_rate_is_refused_with_retry_after", STREAM_SERVER + "test_requests_over_the_limit_are_refused"),
    must("2.15-14", "all: server/tools, security", "Outputs are sanitised: an error reveals no internals.",
         TOOLS + "test_other_exceptions_propagate_to_the_transport", STREAM_SERVER + "test_any_exception_in_a_handler_is_an_error_of_its_request"),
    should("2.15-15", "2025-11-25 on: server/tools, names", "Names have 1 to 128 letters, digits, `_`, `-` and `.`, unique in a server.",
           "partly: `/` is allowed, as in other servers", TOOLS + "test_an_overlong_or_invalid_name_is_refused",
           "server/features/test_feature_set.py::test_duplicate_and_unknown_names_are_refused_with_the_name"),
    should("2.15-16", "2026-07-28: server/tools, listing", "Tools are listed in one order.", "yes",
           "server/features/test_feature_set.py::test_features_keep_the_order_of_their_registration", *suite("tools-list", R5)),
    must("2.15-17", "all: server/tools, content", "All content blocks have types that the revision defines.", SCHEMA,
         *suite("tools-call-simple-text", R4, R5), *suite("tools-call-mixed-content", R4, R5), *suite("tools-call-image", R4, R5), *suite("tools-call-audio", R4, R5)),
    should("2.15-18", "all: server/tools, list changed", "With `listChanged` declared, a changed list is reported.", "yes",
           WATCHING + "test_adding_and_removing_notifies_the_watchers_of_the_list", *transcripts("watching", *ALL)),
    should("2.15-20", "all: server/tools, names", "A server that combines others keeps their names apart by a prefix.",
           "yes: the author chooses the prefix, and collisions are refused", "server/test_mounting.py::test_prefixes_are_joined_and_may_be_empty",
           "server/test_mounting.py::test_include_refuses_a_collision_and_names_both_servers"),
    must("2.15-19", "2026-07-28: server/tools, task support", "`execution.taskSupport` is not sent.", SCHEMA),
)  # fmt: skip

PROMPT_ROWS: tuple[Row, ...] = (
    must("2.16-1", "all: server/prompts, capabilities", "A server with prompts declares the capability.",
         APP + "test_a_server_declares_its_name_and_capabilities", *suite("prompts-list", R4, R5)),
    should("2.16-2", "all: server/prompts, error handling", "An unknown prompt, or a missing argument, is -32602.", "yes",
           PROMPTS + "test_an_unknown_prompt_is_an_invalid_param", PROMPTS + "test_missing_unknown_and_malformed_arguments_are_invalid_params",
           *transcripts("prompts", *ALL)),
    must("2.16-3", "all: server/prompts", "Arguments are text.", PROMPTS + "test_arguments_are_converted_to_the_types_of_the_parameters", *transcripts("prompts", *ALL),
         *suite("prompts-get-with-args", R4, R5)),
    must("2.16-4", "all: server/prompts, messages", "Messages have the role user or assistant, and blocks that the revision defines.",
         PROMPTS + "test_return_values_become_messages", SCHEMA, *suite("prompts-get-simple", R4, R5), *suite("prompts-get-embedded-resource", R4, R5),
         *suite("prompts-get-with-image", R4, R5)),
    must("2.16-5", "all: server/prompts, security", "Inputs and outputs of prompts are validated.",
         PROMPTS + "test_missing_unknown_and_malformed_arguments_are_invalid_params", PROMPTS + "test_a_return_value_that_is_not_a_message_raises_type_error"),
    must("2.16-6", "2025-03-26 on: completion, capabilities", "A server that completes declares it.",
         APP + "test_a_server_declares_its_name_and_capabilities", *transcripts("opening", R2, R3, R4, R5),
         *suite("completion-complete", R4, R5)),
    must("2.16-7", "all: completion", "At most a hundred values are sent.",
         PROMPTS + "test_at_most_100_values_are_sent_with_their_total"),
    must("2.16-8", "all: completion, security", "Inputs are validated.", PROMPTS + "test_an_unknown_prompt_template_or_argument_is_an_invalid_param", *transcripts("completion", *ALL)),
    must("2.16-9", "all: completion, security", "Completion is rate-limited.", "server/middleware/test_guards.py::test_a_caller_above_the_rate_is_refused_with_retry_after", STREAM_SERVER + "test_requests_over_the_limit_are_refused"),
    must("2.16-10", "all: completion, security", "Completion reveals nothing that its caller may not see.",
         "requirements/test_features.py::test_completion_reveals_no_unpublished_file"),
    should("2.16-11", "all: completion", "Best matches come first.", "yes: in the author's order", PROMPTS + "test_fixed_choices_are_completed_by_prefix"),
    must("2.16-12", "all: pagination", "The server chooses the size of a page, and the list ends without a cursor.",
         LISTS + "test_the_last_page_has_no_cursor", LISTS + "test_pages_are_full_across_registered_resources_catalogues_and_sources"),
    should("2.16-13", "all: pagination", "Cursors are stable while the list changes.", "yes", LISTS + "test_permanent_entries_are_listed_once"),
    should("2.16-14", "all: pagination", "An invalid cursor is -32602.", "yes",
           LISTS + "test_a_cursor_of_another_list_is_an_invalid_param", *transcripts("tools", *ALL), *transcripts("resources", *ALL)),
    must("2.16-15", "all: pagination", "Cursors are opaque.", CURSORS + "test_a_cursor_with_any_changed_bit_is_refused"),
)  # fmt: skip

UTILITIES: tuple[Row, ...] = (
    must("2.17-1", "all: progress", "Progress is sent only for a token of the request, in its own type; 0 is a token.",
         *transcripts("progress", *ALL), CONTEXT + "test_progress_only_increases_and_requires_a_progress_token"),
    must("2.17-2", "all: progress", "Progress grows with every notification.", CONTEXT + "test_progress_only_increases_and_requires_a_progress_token",
         *suite("tools-call-with-progress", R4, R5)),
    must("2.17-3", "all: progress", "Progress stops when the request is answered.", CONTEXT + "test_messages_after_the_answer_are_dropped"),
    must("2.17-4", "2025-03-26 on: progress", "Progress may have a message in these revisions only.", *transcripts("progress", *ALL)),
    must("2.17-5", "2026-07-28: progress", "Progress is sent on the stream of its request.", STATELESS + "test_the_first_notification_turns_the_answer_into_a_stream"),
    should("2.17-6", "all: progress", "Progress notifications are rate-limited.", "partly: a slow reader's notifications are dropped, a fast one gets what the author sends",
           HOSTILE + "test_progress_for_a_slow_reader_is_bounded"),
    must("2.17-7", "all: cancellation", "A cancelled request gets no answer.", *transcripts("cancellation", *ALL), PEER + "test_a_cancelled_request_is_never_answered"),
    should("2.17-8", "all: cancellation", "The work stops and releases its resources.", "yes", "security/test_messages.py::test_cancelled_work_stops"),
    should("2.17-9", "all: cancellation", "A cancellation of an unknown or finished request is ignored.", "yes",
           PEER + "test_a_cancellation_of_an_unknown_request_is_ignored", *transcripts("cancellation", *ALL)),
    must("2.17-10", "all: cancellation", "Ids of different types are different ids.", *transcripts("cancellation", *ALL)),
    must("2.17-11", "handshake: ping", "Ping is answered at once with an empty result.", *transcripts("ping", *HANDSHAKE), *suite("ping", R4)),
    must("2.17-12", "all: logging, capabilities", "A server that logs declares it.", *transcripts("opening", *HANDSHAKE)),
    must("2.17-13", "handshake: logging", "After `logging/setLevel` only that level and above is sent.", *transcripts("logging", *HANDSHAKE),
         *suite("logging-set-level", R4)),
    must("2.17-14", "2026-07-28: logging", "Without `logLevel` in the request nothing is logged to the client.", *transcripts("logging", R5),
         *suite("server-stateless", R5)),
    must("2.17-15", "2026-07-28: logging", "Logs are sent only on their request's stream.", *transcripts("logging", R5),
         "requirements/test_features.py::test_progress_and_logs_are_not_sent_on_a_listen_stream"),
    should("2.17-16", "all: logging, error handling", "An unknown level is -32602.", "yes", *transcripts("logging", *ALL)),
    must("2.17-17", "all: logging", "A level is one of the eight of syslog.", SCHEMA, *suite("tools-call-with-logging", R4)),
    must("2.17-18", "all: logging, security", "Logs hold no secrets: only what an author passes is sent, and faults go to the server's own log.",
         CONTEXT + "test_a_session_receives_all_log_messages_until_it_sets_a_level", "security/test_http.py::test_a_token_is_neither_printed_nor_logged_nor_in_the_command_line"),
    should("2.17-19", "all: logging, security", "Log messages are rate-limited.", "partly: dropped if the reader is slow",
           STREAM_SERVER + "test_notifications_over_the_backlog_limit_are_dropped_and_answers_are_not"),
)  # fmt: skip

INPUT_REQUESTS: tuple[Row, ...] = (
    must("2.18-1", "handshake: client/roots", "Roots are requested only if the client declared them.", *transcripts("undeclared_capabilities", *HANDSHAKE)),
    must("2.18-2", "handshake: client/sampling", "Sampling is requested only if the client declared it.", *transcripts("undeclared_capabilities", *HANDSHAKE)),
    must("2.18-3", "2025-06-18, 2025-11-25: client/elicitation", "Elicitation is requested only if the client declared it, and its mode.",
         *transcripts("undeclared_capabilities", R3, R4)),
    must("2.18-4", "all: client/sampling", "`maxTokens` is in every sampling request.", *transcripts("input_requests", *ALL), SCHEMA),
    must("2.18-5", "2025-11-25 on: client/sampling, tools", "Tools are sent only if `sampling.tools` was declared.", *transcripts("input_requests", R4, R5), "server/input/test_round_trips.py::test_an_input_request_without_the_client_capability_fails"),
    must("2.18-6", "2025-11-25 on: client/sampling, tools", "A message with tool results has no other content, and has a result for every preceding tool use.", *transcripts("input_requests", R4, R5), "server/input/test_round_trips.py::test_sample_refuses_tool_uses_without_matching_results"),
    must("2.18-7", "2025-06-18 on: client/elicitation", "A form is a flat object of strings, numbers, booleans and choices.",
         *transcripts("input_requests", R3, R4, R5), *suite("elicitation-sep1034-defaults", R4), *suite("elicitation-sep1330-enums", R4)),
    must("2.18-8", "2025-06-18 on: client/elicitation", "Declined and cancelled elicitations are distinguished.", *transcripts("input_requests", R3, R4, R5)),
    should("2.18-9", "2025-06-18 on: client/elicitation", "Accepted content is checked against the form.", "yes", *transcripts("input_requests", R3, R4, R5)),
    must("2.18-10", "2025-11-25 on: client/elicitation, URL mode", "Secrets are requested by URL elicitation, not by a form.", "server/input/test_round_trips.py::test_elicit_url_returns_true_when_the_user_accepts"),
    must("2.18-11", "2025-11-25: client/elicitation, URL mode", "URL elicitation has an id, which -32042 contains if it must be completed first.", "server/input/test_round_trips.py::test_url_elicitation_required_is_reported_as_the_revision_defines_it", *transcripts("input_requests", R4)),
    must("2.18-12", "all: client/sampling", "A refusal of the client is an error of that call only.", "server/input/test_round_trips.py::test_an_error_response_of_the_client_fails_the_call", "server/input/test_round_trips.py::test_a_declined_or_cancelled_elicitation_raises_or_returns_none_with_or_none"),
    must("2.18-13", "handshake: lifecycle", "An input request is a request with an id of the server, and is cancelled with its call.", *transcripts("input_requests", *HANDSHAKE), *suite("tools-call-sampling", R4),
         *suite("tools-call-elicitation", R4), "server/input/test_round_trips.py::test_cancelling_a_call_cancels_its_input_requests", "server/input/test_round_trips.py::test_a_lost_connection_cancels_the_call_and_its_input_requests"),
)  # fmt: skip

ROWS = (*RESOURCE_ROWS, *LISTEN, *CACHING, *ROUNDS, *TOOL_ROWS, *PROMPT_ROWS, *UTILITIES, *INPUT_REQUESTS)
