"""The rules of docs/model_apis.md as code: the faults for which a model API refuses tool definitions or messages.

Nothing here uses the code under test. The stub endpoints answer 400 with the first fault.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema

Object = dict[str, Any]


def keywords(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
GEMINI_KEYWORDS = keywords(
    "$id $defs $ref $anchor type format title description enum items prefixItems minItems maxItems "
    "minimum maximum anyOf oneOf properties additionalProperties required propertyOrdering"
)
OPENAI_STRICT_KEYWORDS = keywords(
    "$defs $ref type title description enum const properties required additionalProperties items "
    "anyOf pattern format multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minItems "
    "maxItems"
)
ANTHROPIC_STRICT_KEYWORDS = keywords(
    "$defs $ref type title description enum const properties required additionalProperties items "
    "anyOf allOf format minItems"
)
SCHEMA_KEYWORDS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
SCHEMA_LIST_KEYWORDS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMA_MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "dependentSchemas")


def subschemas(schema: Any, path: str = "") -> Iterator[tuple[str, Object]]:
    """Yield the schema and every schema inside it, each with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for keyword in SCHEMA_KEYWORDS:
        yield from subschemas(schema.get(keyword), f"{path}/{keyword}")
    for keyword in SCHEMA_LIST_KEYWORDS:
        for number, subschema in enumerate(schema.get(keyword, ())):
            yield from subschemas(subschema, f"{path}/{keyword}/{number}")
    for keyword in SCHEMA_MAP_KEYWORDS:
        for name, subschema in schema.get(keyword, {}).items():
            yield from subschemas(subschema, f"{path}/{keyword}/{name}")


def types_of(schema: Object) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def schema_faults(schema: Any) -> Iterator[str]:
    """Yield the faults for which every API refuses a schema."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield f"schema must be a JSON Schema of 'type: \"object\"', got {schema!r}"[:200]
        return
    if not isinstance(schema.get("properties"), dict):
        yield "object schema missing properties"
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        yield f"JSON schema is invalid. It must match JSON Schema draft 2020-12: {error.message}"[:300]
        return
    for keyword in ("oneOf", "anyOf", "allOf", "enum", "not"):
        if keyword in schema:
            yield f"{keyword} at the top level"
    for path, subschema in subschemas(schema):
        if "array" in types_of(subschema) and "items" not in subschema:
            yield f"In context={path}, array schema missing items"
        reference = subschema.get("$ref")
        if reference is not None and reference.removeprefix("#/$defs/") not in schema.get("$defs", {}):
            yield f"In context={path}, reference {reference} does not resolve"


def openai_strict_faults(schema: Object) -> Iterator[str]:
    properties = values = 0
    for path, subschema in subschemas(schema):
        for keyword in subschema.keys() - OPENAI_STRICT_KEYWORDS:
            yield f"In context={path}, '{keyword}' is not permitted"
        if "$ref" in subschema and len(subschema) > 1:
            yield f"In context={path}, $ref cannot have keywords {sorted(subschema.keys() - {'$ref'})}"
        if not subschema.keys() & {"type", "enum", "const", "anyOf", "$ref"}:
            yield f"In context={path}, schema must have a 'type' key"
        if "object" in types_of(subschema) or "properties" in subschema:
            if subschema.get("additionalProperties") is not False:
                yield f"In context={path}, 'additionalProperties' is required to be supplied and to be false"
            if sorted(subschema.get("required", ())) != sorted(subschema.get("properties", ())):
                yield f"In context={path}, 'required' must be an array including every key in properties"
        properties += len(subschema.get("properties", ()))
        values += len(subschema.get("enum", ()))
    if properties > 5_000 or values > 1_000:
        yield "too large"


def anthropic_strict_faults(schema: Object) -> Iterator[str]:
    for path, subschema in subschemas(schema):
        for keyword in subschema.keys() - ANTHROPIC_STRICT_KEYWORDS:
            yield f"{path}: property '{keyword}' is not supported"
        if ("object" in types_of(subschema) or "properties" in subschema) and subschema.get(
            "additionalProperties"
        ) is not False:
            yield f"{path}: for 'object' type, 'additionalProperties' must be explicitly set to false"
        if subschema.get("minItems", 0) > 1:
            yield f"{path}: minItems must be 0 or 1"
    if recursive_definitions(schema):
        yield "circular references are not supported"


def referenced_definitions(schema: Any, *, required_only: bool = False) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to. `required_only` skips optional properties."""
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield schema["$ref"].removeprefix("#/$defs/")
    for keyword, value in schema.items():
        if keyword == "properties":
            for name, subschema in value.items():
                if not required_only or name in schema.get("required", ()):
                    yield from referenced_definitions(subschema, required_only=required_only)
        elif keyword in SCHEMA_KEYWORDS:
            yield from referenced_definitions(value, required_only=required_only)
        elif keyword in SCHEMA_LIST_KEYWORDS:
            for subschema in value:
                yield from referenced_definitions(subschema, required_only=required_only)


def recursive_definitions(schema: Object, *, required_only: bool = False) -> list[str]:
    """Return the names of definitions that refer to themselves, directly or through others."""
    graph = {
        name: set(referenced_definitions(subschema, required_only=required_only))
        for name, subschema in schema.get("$defs", {}).items()
    }
    recursive: list[str] = []
    for start in graph:
        reached: set[str] = set()
        queue = [*graph[start]]
        while queue:
            name = queue.pop()
            if name not in reached:
                reached.add(name)
                queue += graph.get(name, ())
        if start in reached:
            recursive.append(start)
    return recursive


def duplicate_name_faults(names: list[str]) -> Iterator[str]:
    if len(set(names)) != len(names):
        yield "Tool names must be unique."


def openai_function_faults(function: Object, description_limit: int | None) -> Iterator[str]:
    if unknown := function.keys() - {"name", "description", "parameters", "strict"}:
        yield f"Unknown parameter: {sorted(unknown)}"
    if not OPENAI_NAME.fullmatch(function["name"]):
        yield f"Invalid name {function['name']!r}: string does not match pattern '^[a-zA-Z0-9_-]+$', or is too long"
    if description_limit is not None and len(function["description"]) > description_limit:
        yield f"description: string too long. Expected a string with maximum length {description_limit}"
    faults = [*schema_faults(function["parameters"])]
    if function.get("strict") and not faults:
        faults += openai_strict_faults(function["parameters"])
    for fault in faults:
        yield f"Invalid schema for function {function['name']!r}: {fault}"


def openai_tool_faults(tools: list[Object]) -> Iterator[str]:
    if len(tools) > 128:
        yield f"Invalid 'tools': array too long. Expected an array with maximum length 128, got {len(tools)}"
    for tool in tools:
        if tool.keys() != {"type", "function"} or tool["type"] != "function":
            yield f"Unknown tool: {tool}"[:200]
            continue
        yield from openai_function_faults(tool["function"], 1024)
    yield from duplicate_name_faults([tool["function"]["name"] for tool in tools])


def responses_tool_faults(tools: list[Object]) -> Iterator[str]:
    if len(tools) > 128:
        yield f"Invalid 'tools': array too long. Expected an array with maximum length 128, got {len(tools)}"
    for tool in tools:
        if tool.get("type") != "function" or "strict" not in tool:
            yield f"Missing required parameter: {tool}"[:200]
            continue
        yield from openai_function_faults({key: tool[key] for key in tool.keys() - {"type"}}, None)
    yield from duplicate_name_faults([tool["name"] for tool in tools])


def anthropic_tool_faults(tools: list[Object]) -> Iterator[str]:
    for number, tool in enumerate(tools):
        if unknown := tool.keys() - {"name", "description", "input_schema", "strict"}:
            yield f"tools.{number}: Extra inputs are not permitted: {sorted(unknown)}"
        if not ANTHROPIC_NAME.fullmatch(tool["name"]):
            yield f"tools.{number}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'"
        for fault in schema_faults(tool["input_schema"]):
            yield f"tools.{number}.custom.input_schema: {fault}"
        for name in tool["input_schema"].get("properties", ()):
            if not ANTHROPIC_PROPERTY.fullmatch(name):
                yield f"tools.{number}.custom.input_schema.properties: Property keys should match pattern: {name!r}"
        if tool.get("strict"):
            yield from anthropic_strict_faults(tool["input_schema"])
    yield from duplicate_name_faults([tool["name"] for tool in tools])


def gemini_tool_faults(tools: list[Object]) -> Iterator[str]:
    declarations = [declaration for tool in tools for declaration in tool["functionDeclarations"]]
    if tools and not declarations:
        yield "function_declarations: should not be empty"
    for number, declaration in enumerate(declarations):
        path = f"GenerateContentRequest.tools[0].function_declarations[{number}]"
        if unknown := declaration.keys() - {"name", "description", "parametersJsonSchema"}:
            yield f"{path}: Unknown name {sorted(unknown)}"
        if not GEMINI_NAME.fullmatch(declaration["name"]):
            yield f"{path}.name: Invalid function name {declaration['name']!r}"
        schema = declaration.get("parametersJsonSchema")
        if schema is None:
            continue
        for fault in gemini_schema_faults(schema):
            yield f"{path}.parameters: {fault}"
    yield from duplicate_name_faults([declaration["name"] for declaration in declarations])


def gemini_schema_faults(schema: Object) -> Iterator[str]:
    faults = [*schema_faults(schema)]
    yield from faults
    if faults:
        return
    if not schema["properties"] and schema.get("additionalProperties", False) is False:
        yield "properties: should be non-empty for OBJECT type"
    for name in schema["properties"]:
        if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", name):
            yield f"properties: invalid name {name!r}"
    for path, subschema in subschemas(schema):
        for keyword in subschema.keys() - GEMINI_KEYWORDS:
            yield f"{path}: {keyword} is not supported"
        if "$ref" in subschema and any(not keyword.startswith("$") for keyword in subschema):
            yield f"{path}: if $ref is set, no other properties may be set"
        if any(
            isinstance(value, bool) or not isinstance(value, str | int | float) for value in subschema.get("enum", ())
        ):
            yield f"{path}.enum: only strings and numbers"
        for name in subschema.get("required", ()):
            if "properties" in subschema and name not in subschema["properties"]:
                yield f"{path}.required: property is not defined: {name}"
    for name in recursive_definitions(schema, required_only=True):
        yield f"$defs/{name}: cyclic references may only be used within non-required properties"


TOOL_FAULTS: dict[str, Callable[[list[Object]], Iterator[str]]] = {
    "openai": openai_tool_faults,
    "openai-responses": responses_tool_faults,
    "anthropic": anthropic_tool_faults,
    "gemini": gemini_tool_faults,
}


def tool_faults(format: str, tools: list[Object]) -> list[str]:
    """Return the faults for which the API refuses the tool definitions."""
    return list(TOOL_FAULTS[format](json.loads(json.dumps(tools))))


# --- messages ---------------------------------------------------------------------------------------------------------


def file_faults(data: str, declared: str, accepted: tuple[str, ...]) -> Iterator[str]:
    """Yield the faults of a file in base64."""
    if declared not in accepted:
        yield f"unsupported type {declared}"
        return
    head = base64.b64decode(data.replace("-", "+").replace("_", "/"))[:12]
    signatures = {
        "image/png": b"\x89PNG",
        "image/jpeg": b"\xff\xd8\xff",
        "image/gif": b"GIF8",
        "image/webp": b"RIFF",
        "application/pdf": b"%PDF",
    }
    if not head.startswith(signatures[declared]):
        yield f"was specified as {declared}, but appears to be of another type"


def data_url_faults(url: str, *accepted: str) -> Iterator[str]:
    mime_type, _, data = url.removeprefix("data:").partition(";base64,")
    yield from file_faults(data, mime_type, accepted)


IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def openai_message_faults(messages: list[Object]) -> Iterator[str]:
    """Yield the faults of messages. Each tool call needs one tool message, directly after the assistant message."""
    pending: list[str] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in pending:
                yield f"messages.[{number}]: tool_call_id {message['tool_call_id']!r} answers no call before it"
            else:
                pending.remove(message["tool_call_id"])
            if not isinstance(message["content"], str):
                yield f"messages.[{number}]: content of a tool is text"
            continue
        if pending:
            yield f"An assistant message with 'tool_calls' must be followed by tool messages; missing: {pending}"
        if message["role"] == "assistant":
            pending = [call["id"] for call in message.get("tool_calls") or ()]
        for part in message["content"] if isinstance(message.get("content"), list) else ():
            if part["type"] == "image_url":
                yield from data_url_faults(part["image_url"]["url"], *IMAGES)
    if pending:
        yield f"An assistant message with 'tool_calls' must be followed by tool messages; missing: {pending}"


def responses_message_faults(items: list[Object]) -> Iterator[str]:
    """Yield the faults of items. Each function_call needs one function_call_output."""
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    if calls != outputs:
        yield f"No tool output found for function calls {sorted({*calls} ^ {*outputs})}, or not in their order"
    for item in items:
        if item.get("type") != "function_call_output" or isinstance(item["output"], str):
            continue
        for part in item["output"]:
            if part["type"] == "input_image":
                yield from data_url_faults(part["image_url"], *IMAGES)
            elif part["type"] == "input_file":
                yield from data_url_faults(part["file_data"], "application/pdf")
            elif part["type"] != "input_text":
                yield f"Invalid value: {part['type']!r}"


def anthropic_message_faults(messages: list[Object]) -> Iterator[str]:
    """Yield the faults of messages. The results of all tool calls must be the first blocks of the next message."""
    for number, message in enumerate(messages):
        content = message["content"] if isinstance(message["content"], list) else []
        call_ids = [block["id"] for block in content if block["type"] == "tool_use"]
        if call_ids:
            following = messages[number + 1]["content"] if number + 1 < len(messages) else []
            first = following[: len(call_ids)] if isinstance(following, list) else []
            result_ids = [block.get("tool_use_id") for block in first]
            if sorted(map(str, result_ids)) != sorted(call_ids):
                yield f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after"
        for block in content:
            if block["type"] == "tool_result":
                yield from anthropic_result_faults(block)


def anthropic_result_faults(block: Object) -> Iterator[str]:
    parts = block["content"]
    if block.get("is_error") and any(part["type"] != "text" for part in parts):
        yield "all content must be type 'text' if 'is_error' is true"
    for part in parts:
        if part["type"] == "text" and not part["text"].strip():
            yield "text content blocks must contain non-whitespace text"
        elif part["type"] == "image":
            yield from file_faults(part["source"]["data"], part["source"]["media_type"], IMAGES)
        elif part["type"] == "document":
            yield from file_faults(part["source"]["data"], part["source"]["media_type"], ("application/pdf",))
        elif part["type"] != "text":
            yield f"content: Input tag {part['type']!r} is not expected"


def gemini_message_faults(contents: list[Object]) -> Iterator[str]:
    """Yield the faults of contents. After calls, the next content needs one response for each, with the same name."""
    for number, content in enumerate(contents):
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if not calls:
            continue
        following = contents[number + 1]["parts"] if number + 1 < len(contents) else []
        responses = [part["functionResponse"] for part in following if "functionResponse" in part]
        if len(responses) != len(calls) or len(following) != len(responses):
            yield "Please ensure that the number of function response parts is equal to the number of call parts"
            continue
        for call, response in zip(calls, responses, strict=True):
            if call["name"] != response["name"] or call.get("id") != response.get("id"):
                yield f"The response {response['name']!r} does not match the call {call['name']!r}"
            if not isinstance(response["response"], dict):
                yield "response must be an object"
            for part in response.get("parts", ()):
                accepted = ("image/png", "image/jpeg", "image/webp", "application/pdf")
                yield from file_faults(part["inlineData"]["data"], part["inlineData"]["mimeType"], accepted)


MESSAGE_FAULTS: dict[str, Callable[[list[Object]], Iterator[str]]] = {
    "openai": openai_message_faults,
    "openai-responses": responses_message_faults,
    "anthropic": anthropic_message_faults,
    "gemini": gemini_message_faults,
}


def message_faults(format: str, messages: list[Object]) -> list[str]:
    """Return the faults for which the API refuses the messages."""
    return list(MESSAGE_FAULTS[format](messages))
