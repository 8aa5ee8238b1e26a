"""Requirements on extensions, schemas and contradictions of the sources: sections 2.19, 2.20, 2.22, 2.23."""

from __future__ import annotations

from tests.requirements.base import ALL, R4, R5
from tests.requirements.row import Row, must, should, suite, transcripts

__all__ = ["ROWS"]

SIGNATURE = "server/signature/test_arguments.py::"
HOSTILE = "security/test_tools.py::"

TASKS: tuple[Row, ...] = (
    must("2.19-1", "tasks extension: negotiation", "The extension is declared, and used only with clients whose request declares it.",
         *suite("tasks-capability-negotiation", R5)),
    must("2.19-2", "tasks extension: negotiation", "A client without the declaration gets -32021 from its methods.", *suite("tasks-capability-negotiation", R5)),
    must("2.19-3", "tasks extension: creation", "The server decides; `CreateTaskResult` is flat, of `resultType` task.",
         *suite("tasks-lifecycle", R5), *suite("tasks-wire-fields", R5)),
    must("2.19-4", "tasks extension: creation", "A task is stored before it is reported.", "server/tasks/test_task_extension.py::test_a_task_is_stored_before_its_call_is_answered_and_before_its_function_runs"),
    must("2.19-5", "tasks extension: tasks/get", "`tasks/get` returns the state, and the result or error of a finished task.", *suite("tasks-lifecycle", R5)),
    must("2.19-6", "tasks extension: states", "A task with a tool error is `completed`; `failed` is for protocol errors.", *suite("tasks-lifecycle", R5)),
    must("2.19-7", "tasks extension: tasks/update, tasks/cancel", "`tasks/update` and `tasks/cancel` return an empty result.",
         *suite("tasks-lifecycle", R5), *suite("tasks-mrtr-input", R5)),
    must("2.19-8", "tasks extension: tasks/cancel", "Cancelling a finished task is acknowledged in the same way.", *suite("tasks-lifecycle", R5)),
    must("2.19-9", "tasks extension", "`tasks/list` and `tasks/result` are unknown methods.", *suite("tasks-dispatch-and-envelope", R5)),
    must("2.19-10", "tasks extension", "An unknown task is -32602.", *suite("tasks-dispatch-and-envelope", R5)),
    must("2.19-11", "tasks extension: input", "A task that needs input has its input requests, whose keys are never reused.", *suite("tasks-mrtr-input", R5),
         "server/tasks/test_task_extension.py::test_input_requests_may_be_answered_separately_and_keys_are_never_reused"),
    must("2.19-12", "tasks extension: input", "Tasks carry no `requestState`.", *suite("tasks-request-state-removal", R5)),
    must("2.19-13", "tasks extension: input", "All rounds of input end before a task begins.", *suite("tasks-mrtr-composition", R5)),
    must("2.19-14", "tasks extension: security", "Ids are unguessable, and bound to their caller.", "server/tasks/test_task_extension.py::test_tasks_of_another_principal_are_not_found_by_any_method"),
    must("2.19-15", "tasks extension: notifications", "States are sent to listen requests that name the task.", "server/tasks/test_task_extension.py::test_a_listener_receives_each_change_with_the_full_state_and_its_subscription_id", *transcripts("tasks", R5)),
    must("2.19-16", "tasks extension: headers", "`Mcp-Name` is the task's id.", *suite("tasks-request-headers", R5)),
    must("2.19-17", "tasks extension", "A tool that requires tasks is refused to other clients with -32021.", *suite("tasks-required-task-error", R5)),
    must("2.19-18", "tasks extension", "Tasks send no progress and no logs.", "server/tasks/test_task_extension.py::test_a_task_sends_neither_progress_nor_logs"),
    must("2.19-19", "2025-11-25: tasks", "The experimental tasks of that revision are not declared, and their methods unknown.",
         *transcripts("opening", R4), "requirements/test_extensions.py::test_the_older_tasks_are_neither_declared_nor_served"),
)  # fmt: skip

SKILLS: tuple[Row, ...] = (
    must("2.20-1", "skills extension: declaration", "The extension is declared inline, together with `resources`.", *transcripts("skills", R4, R5), *suite("sep-2640-skills-enumeration", R5)),
    must("2.20-2", "skills extension: skills/list", "`skills/list` is served with pages and caching hints.", *suite("sep-2640-skills-enumeration", R5)),
    must("2.20-3", "skills extension: skills/get", "`skills/get` is served; an unknown URI is -32602.", *suite("sep-2640-skills-enumeration", R5)),
    must("2.20-4", "skills extension: entries", "An entry has its URI, its front matter verbatim, and every file once with digest and size.",
         *suite("sep-2640-skills-enumeration", R5), *suite("sep-2640-skills-manifest", R5)),
    must("2.20-5", "skills extension: names", "The last directory is the skill's name.", *suite("sep-2640-skills-enumeration", R5)),
    must("2.20-6", "skills extension: files", "Every file is read by `resources/read`, and matches its digest.", *suite("sep-2640-skills-manifest", R5)),
    must("2.20-7", "skills extension: directories", "`resources/directory/read` lists the children of a directory; any other URI is -32602.",
         *suite("sep-2640-skills-directory", R5)),
    should("2.20-8", "skills extension: limits", "No skill has more than 512 files or 16 MiB.", "yes", *suite("sep-2640-skills-enumeration", R5)),
    should("2.20-9", "skills extension: URIs", "The scheme is `skill`.", "yes", *suite("sep-2640-skills-enumeration", R5)),
    must("2.20-10", "2026-07-28: extensions", "Extensions are declared under `capabilities.extensions`, by an id with a prefix.", "server/test_extensions.py::test_an_extension_is_declared_in_revisions_with_extensions", "server/test_extensions.py::test_an_invalid_identifier_is_refused"),
    must("2.20-11", "2026-07-28: extensions", "An extension's method is unknown where it is not declared.", "server/test_extensions.py::test_a_required_extension_must_be_declared_by_the_client", "server/test_extensions.py::test_an_extension_method_is_not_found_in_revisions_without_extensions"),
    must("2.20-12", "apps extension", "A `ui://` resource is HTML of its profile, and its tool names it in `_meta`.", "server/test_apps.py::test_a_page_is_read_with_its_type_and_metadata", "server/test_apps.py::test_tools_have_their_page_and_visibility_in_meta"),
)  # fmt: skip

SCHEMAS: tuple[Row, ...] = (
    must("2.22-1", "2025-11-25 on: basic, JSON Schema", "A schema without `$schema` has the dialect 2020-12.", "protocol/test_json_schema.py::test_the_default_dialect_is_2020_12",
         SIGNATURE + "test_the_schema_and_the_decoder_accept_the_same_arguments"),
    must("2.22-2", "2025-11-25 on: basic, JSON Schema", "A schema of an unknown dialect is refused with a clear error.", "protocol/test_json_schema.py::test_the_declared_dialect_is_used", "protocol/test_json_schema.py::test_a_schema_that_cannot_be_used_is_refused_with_its_reason"),
    must("2.22-3", "2026-07-28: basic, JSON Schema", "No `$ref` is fetched; external references are refused.", "protocol/test_json_schema.py::test_a_schema_that_cannot_be_used_is_refused_with_its_reason",
         HOSTILE + "test_published_schemas_have_only_internal_references"),
    should("2.22-4", "2026-07-28: basic, JSON Schema", "Depth, subschemas and time are bounded.", "yes", "protocol/test_json_schema.py::test_a_schema_that_cannot_be_used_is_refused_with_its_reason", "protocol/test_json_schema.py::test_a_backtracking_pattern_is_evaluated_in_bounded_time"),
    must("2.22-5", "2026-07-28: server/tools", "Schemas are listed unchanged.", *suite("json-schema-2020-12", R4, R5), "server/signature/test_explicit_schema.py::test_an_explicit_input_schema_is_listed_unchanged"),
    must("2.22-6", "2025-11-25 on: basic, icons", "Icons have the members of the schema, on servers and features alike.", "requirements/test_extensions.py::test_icons_are_sent_unchanged"),
    must("2.22-7", "2026-07-28: basic, tracing", "`traceparent`, `tracestate` and `baggage` in `_meta` are accepted.",
         "requirements/test_extensions.py::test_trace_keys_are_accepted"),
)  # fmt: skip

CONTRADICTIONS: tuple[Row, ...] = (
    must("2.23-1", "2026-07-28: subscriptions against cancellation", "A listen that the server ends is answered; on stdio it is cancelled before that.",
         "requirements/test_features.py::test_a_listen_that_the_server_ends_is_cancelled_and_then_answered"),
    must("2.23-2", "2026-07-28: changelog against caching", "Discovery carries caching hints.", *suite("caching", R5)),
    must("2.23-3", "2026-07-28: schema against MRTR", "Input responses on other methods are ignored.", *suite("input-required-result-unsupported-methods", R5)),
    must("2.23-4", "tasks extension: prose against examples", "`tasks/get` is of `resultType` complete.", *suite("tasks-wire-fields", R5)),
    must("2.23-5", "2026-07-28: transports against SEP-2243", "`number` is never annotated with a header.",
         "protocol/http/test_headers.py::test_an_invalid_or_misplaced_annotation_is_an_error"),
    must("2.23-6", "skills extension: draft against suite", "Sizes and the caching hints of `skills/get` are sent.", *suite("sep-2640-skills-enumeration", R5)),
    must("2.23-7", "2025-11-25 on: tools page against schema", "Invalid arguments are `isError`; -32602 is for `name` and `arguments` of the wrong shape.",
         *transcripts("tools", *ALL)),
    must("2.23-8", "handshake: TypeScript fixture against transports", "Problems of sessions are reported by HTTP status.",
         "transports/http_server/test_sessions.py::test_a_request_without_a_session_is_refused",
         "transports/http_server/test_sessions.py::test_an_unknown_session_is_not_found_and_its_id_is_not_repeated"),
    must("2.23-9", "2026-07-28: schema against suite", "Removed members of capabilities are tolerated.", *suite("server-stateless", R5)),
)  # fmt: skip

ROWS = (*TASKS, *SKILLS, *SCHEMAS, *CONTRADICTIONS)
