"""Intended differences between our types and the schemas, with reasons. A row that is no longer true fails a test."""

from __future__ import annotations

_ENVELOPE = "the envelope is protocol.jsonrpc.Message, whose parts are decoded once the method is known"
_ROWS = "which methods, params and results belong together is protocol.methods.METHODS"
_FIELD = "not distinguished by a tag: one struct and check_primitive_schema"
_PART = "only a part of other definitions, whose structs have its members"
_ERROR = "an error with a code of its own is a class in wharfinger.errors"

RENAMED: dict[str, tuple[str, str]] = {
    "BlobResourceContents": ("ResourceContents", "not distinguished by a tag: one struct and check_contents"),
    "TextResourceContents": ("ResourceContents", "not distinguished by a tag: one struct and check_contents"),
    "ElicitRequestFormParams": ("ElicitRequestParams", "mode may be absent: one struct and check_elicitation"),
    "ElicitRequestURLParams": ("ElicitRequestParams", "mode may be absent: one struct and check_elicitation"),
    "StringSchema": ("PrimitiveSchema", _FIELD),
    "NumberSchema": ("PrimitiveSchema", _FIELD),
    "BooleanSchema": ("PrimitiveSchema", _FIELD),
    "EnumSchema": ("PrimitiveSchema", _FIELD),
    "SingleSelectEnumSchema": ("PrimitiveSchema", _FIELD),
    "MultiSelectEnumSchema": ("PrimitiveSchema", _FIELD),
    "LegacyTitledEnumSchema": ("PrimitiveSchema", _FIELD),
    "TitledMultiSelectEnumSchema": ("PrimitiveSchema", _FIELD),
    "TitledSingleSelectEnumSchema": ("PrimitiveSchema", _FIELD),
    "UntitledMultiSelectEnumSchema": ("PrimitiveSchema", _FIELD),
    "UntitledSingleSelectEnumSchema": (
        "PrimitiveSchema",
        _FIELD,
    ),
    "Error": ("ErrorObject", "Error would look like an exception"),
    "RequestMetaObject": ("RequestMeta", "a shorter name, since every request has it"),
    "SamplingMessageContentBlock": ("SamplingContent", "a shorter name, similar to ContentBlock"),
}
"""Definitions whose struct has another name. One struct covers several if the wire does not distinguish them."""

NOT_HERE: dict[str, str] = {
    "Annotated": _PART,
    "BaseMetadata": _PART,
    "Icons": _PART,
    "ClientNotification": _ROWS,
    "ClientRequest": _ROWS,
    "ClientResult": _ROWS,
    "ServerNotification": _ROWS,
    "ServerRequest": _ROWS,
    "ServerResult": _ROWS,
    "JSONRPCBatchRequest": _ENVELOPE,
    "JSONRPCBatchResponse": _ENVELOPE,
    "JSONRPCError": _ENVELOPE,
    "JSONRPCErrorResponse": _ENVELOPE,
    "JSONRPCMessage": _ENVELOPE,
    "JSONRPCNotification": _ENVELOPE,
    "JSONRPCRequest": _ENVELOPE,
    "JSONRPCResponse": _ENVELOPE,
    "JSONRPCResultResponse": _ENVELOPE,
    "Notification": _ENVELOPE,
    "PaginatedRequest": _ENVELOPE,
    "Request": _ENVELOPE,
    "CallToolResultResponse": _ENVELOPE,
    "CompleteResultResponse": _ENVELOPE,
    "DiscoverResultResponse": _ENVELOPE,
    "GetPromptResultResponse": _ENVELOPE,
    "ListPromptsResultResponse": _ENVELOPE,
    "ListResourceTemplatesResultResponse": _ENVELOPE,
    "ListResourcesResultResponse": _ENVELOPE,
    "ListToolsResultResponse": _ENVELOPE,
    "ReadResourceResultResponse": _ENVELOPE,
    "SubscriptionsListenResultResponse": _ENVELOPE,
    "HeaderMismatchError": _ERROR,
    "InternalError": _ERROR,
    "InvalidParamsError": _ERROR,
    "InvalidRequestError": _ERROR,
    "MethodNotFoundError": _ERROR,
    "MissingRequiredClientCapabilityError": _ERROR,
    "ParseError": _ERROR,
    "UnsupportedProtocolVersionError": _ERROR,
    "URLElicitationRequiredError": "an error for URL elicitation of the handshake era only",
    "GetTaskPayloadResult": "it is decoded as the result of the request that made the task",
    "ResultType": "any string: an extension may add to it",
}
"""Definitions without a type in `wharfinger.types`."""

PLAIN_DICTS: dict[str, str] = {
    "JSONObject": "a dict: its members have no names",
    "MetaObject": "a dict, kept as it came",
    "NotificationMetaObject": "a dict, kept as it came: META_SUBSCRIPTION_ID",
    "ResultMetaObject": "a dict, kept as it came: META_SERVER_INFO",
    "SubscriptionsListenResultMetaObject": "a dict, kept as it came: META_SUBSCRIPTION_ID",
}
"""Definitions that are a dict in `wharfinger.types`."""

UNTYPED: dict[str, str] = {
    "JSONArray": "any JSON",
    "JSONValue": "any JSON",
}
"""Definitions that are `Any` in `wharfinger.types`."""

PARAMS_STRUCTS: dict[str, str] = {
    "ElicitRequest": "ElicitRequestParams",
    "InitializedNotification": "NotificationParams",
    "ListPromptsRequest": "PaginatedRequestParams",
    "ListResourceTemplatesRequest": "PaginatedRequestParams",
    "ListResourcesRequest": "PaginatedRequestParams",
    "ListRootsRequest": "RequestParams",
    "ListToolsRequest": "PaginatedRequestParams",
    "PingRequest": "RequestParams",
    "PromptListChangedNotification": "NotificationParams",
    "ResourceListChangedNotification": "NotificationParams",
    "RootsListChangedNotification": "NotificationParams",
    "ToolListChangedNotification": "NotificationParams",
}
"""Structs for params that a revision describes inline, if their name is not that of the message plus Params."""

STRUCTS_BY_PATH: dict[str, str] = {
    "ClientCapabilities.elicitation": "ElicitationCapability",
    "ClientCapabilities.roots": "RootsCapability",
    "ClientCapabilities.sampling": "SamplingCapability",
    "ClientCapabilities.tasks": "ClientTasksCapability",
    "ClientTasksCapability.requests": "ClientTaskRequests",
    "ClientTaskRequests.elicitation": "ElicitationTaskRequests",
    "ClientTaskRequests.sampling": "SamplingTaskRequests",
    "ServerCapabilities.prompts": "PromptsCapability",
    "ServerCapabilities.resources": "ResourcesCapability",
    "ServerCapabilities.tasks": "ServerTasksCapability",
    "ServerCapabilities.tools": "ToolsCapability",
    "ServerTasksCapability.requests": "ServerTaskRequests",
    "ServerTaskRequests.tools": "ToolTaskRequests",
    "CompleteRequestParams.argument": "CompletionArgument",
    "CompleteRequestParams.context": "CompletionContext",
    "CompleteResult.completion": "Completion",
    "ElicitRequestParams.requestedSchema": "RequestedSchema",
    "CreateMessageRequest.params": "CreateMessageRequestParams",
    "ElicitRequest.params": "ElicitRequestParams",
    "ListRootsRequest.params": "RequestParams",
    "PrimitiveSchema.items": "EnumItems",
    "PrimitiveSchema.oneOf[]": "EnumOption",
    "EnumItems.anyOf[]": "EnumOption",
}
"""Structs for objects that the schemas describe inline, by their path."""

STRUCTS_BY_LAST_MEMBER: dict[str, str] = {
    "_meta": "RequestMeta",
    "annotations": "Annotations",
}
"""Structs for objects that the schemas describe inline, by the last member of their path."""

KEPT_WHOLE: dict[str, str] = {
    "Tool.inputSchema": "a JSON Schema must arrive as it was sent; a server checks its type at registration",
    "Tool.outputSchema": "a JSON Schema must arrive as it was sent",
}
"""Objects that the schemas describe in part and that are dicts in `wharfinger.types`."""

_STATELESS = "required in the stateless era only, and added when the answer is sealed"
_INHERITED = "inherited from Result or PaginatedResult; never set if the revision does not have it"
_OPENED = "protocol.request requires it in the stateless era, with the right error"
_ANSWERS = "kept raw, since the input request decides how its response is decoded"
_ANY_META = "every request and notification may carry _meta"

DIFFERENCES: dict[str, str] = {
    "CacheableResult.cacheScope: optional here": _STATELESS,
    "CacheableResult.resultType: optional here": _STATELESS,
    "CacheableResult.ttlMs: optional here": _STATELESS,
    "DiscoverResult.cacheScope: optional here": _STATELESS,
    "DiscoverResult.resultType: optional here": _STATELESS,
    "DiscoverResult.ttlMs: optional here": _STATELESS,
    "InputRequiredResult.resultType: optional here": _STATELESS,
    "SubscriptionsListenResult._meta: optional here": _STATELESS,
    "SubscriptionsListenResult.resultType: optional here": _STATELESS,
    "CreateMessageResult.resultType: in no schema": _INHERITED,
    "CreateTaskResult.resultType: in no schema": _INHERITED,
    "ElicitResult.resultType: in no schema": _INHERITED,
    "InitializeResult.resultType: in no schema": _INHERITED,
    "ListRootsResult.resultType: in no schema": _INHERITED,
    "ListTasksResult.cacheScope: in no schema": _INHERITED,
    "ListTasksResult.resultType: in no schema": _INHERITED,
    "ListTasksResult.ttlMs: in no schema": _INHERITED,
    "PaginatedResult.cacheScope: in no schema": _INHERITED,
    "PaginatedResult.ttlMs: in no schema": _INHERITED,
    "InputResponseRequestParams._meta: optional here": _OPENED,
    "SubscriptionsListenRequestParams._meta: optional here": _OPENED,
    "RequestParams._meta{}: any (not here)": "an input request has a plain _meta, of which nothing else is used",
    "CancelTaskRequestParams._meta: in no schema": _ANY_META,
    "ElicitationCompleteNotificationParams._meta: in no schema": _ANY_META,
    "GetTaskPayloadRequestParams._meta: in no schema": _ANY_META,
    "GetTaskRequestParams._meta: in no schema": _ANY_META,
    "CallToolRequestParams.arguments: raw (in no schema)": "the tool's own decoder checks and decodes in one pass",
    "CallToolRequestParams.arguments{}: any (not here)": "the tool's own decoder checks and decodes in one pass",
    **{
        f"{path}{{}}: {statement}": _ANSWERS
        for path in (
            "InputResponses",
            "CallToolRequestParams.inputResponses",
            "GetPromptRequestParams.inputResponses",
            "InputResponseRequestParams.inputResponses",
            "ReadResourceRequestParams.inputResponses",
        )
        for statement in (
            "CreateMessageResult (not here)",
            "ElicitResult (not here)",
            "ListRootsResult (not here)",
            "raw (in no schema)",
        )
    },
    "ElicitResult.content{}: integer (not here)": "the specification's text says number; the schemas are generated",
    "ElicitResult.content{}: number (in no schema)": "the specification's text says number; the schemas are generated",
    "SubscriptionFilter.taskIds: in no schema": "the extension io.modelcontextprotocol/tasks adds it",
    "RequestMeta.baggage: in no schema": "reserved for W3C Baggage by the text of 2026-07-28",
    "RequestMeta.traceparent: in no schema": "reserved for W3C Trace Context by the text of 2026-07-28",
    "RequestMeta.tracestate: in no schema": "reserved for W3C Trace Context by the text of 2026-07-28",
    "RequestMeta.io.modelcontextprotocol/related-task: in no schema": "reserved for tasks by the text of 2025-11-25",
}
"""All other differences, by statement (see schemas.py)."""

NOT_IN_ITS_SCHEMA: dict[str, tuple[str, tuple[str, ...]]] = {
    "ListRootsRequest": ("the example has the id of an envelope, which its definition does not have", ("id",)),
}
"""Members of published examples that the schema of their revision does not have."""
