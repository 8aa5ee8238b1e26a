"""The model APIs, one row each: their rules for definitions of tools, for calls, and for messages with results.

docs/model_apis.md has the rules, with their sources. To support another API, add a row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from wharfinger.content.mime import PDF
from wharfinger.content.text import many
from wharfinger.host.model_apis.narrowing import SchemaRules
from wharfinger.host.model_apis.tool_calls import (
    ModelToolCall,
    anthropic_calls,
    chat_calls,
    gemini_calls,
    plain_value,
    response_calls,
)
from wharfinger.host.model_apis.tool_outputs import IMAGES, FileOutput, ToolOutput
from wharfinger.types import JSONObject

__all__ = ["MODEL_APIS", "ModelAPI", "find_calls", "model_api"]

_REFUSED_AT_ROOT = frozenset(("anyOf", "oneOf", "allOf", "enum", "const", "not"))
_STRICT_FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))
_STRUCTURE = frozenset(
    ("type", "title", "description", "enum", "properties", "required", "additionalProperties", "items", "anyOf")
)

_OPENAI = SchemaRules(refused_at_root=_REFUSED_AT_ROOT)
_OPENAI_STRICT = SchemaRules(
    keywords=_STRUCTURE
    | frozenset(("const", "format", "pattern", "multipleOf", "minItems", "maxItems"))
    | frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")),
    refused_at_root=_REFUSED_AT_ROOT,
    formats=_STRICT_FORMATS,
    plain_patterns=True,
    bare_references=True,
    known_required=True,
    closed=True,
    all_required=True,
    max_nested_objects=10,
    max_properties=5_000,
    max_enum_values=1_000,
    max_name_characters=120_000,
)
_ANTHROPIC = SchemaRules(refused_at_root=_REFUSED_AT_ROOT, property_name=r"[a-zA-Z0-9_.-]{1,64}")
_ANTHROPIC_STRICT = SchemaRules(
    keywords=_STRUCTURE | frozenset(("const", "format", "minItems")),
    refused_at_root=_REFUSED_AT_ROOT,
    property_name=r"[a-zA-Z0-9_.-]{1,64}",
    formats=_STRICT_FORMATS | {"uri"},
    bare_references=True,
    recursion="none",
    known_required=True,
    min_items_at_most_one=True,
    closed=True,
)
_GEMINI = SchemaRules(
    keywords=_STRUCTURE | frozenset(("format", "prefixItems", "minItems", "maxItems", "minimum", "maximum")),
    refused_at_root=_REFUSED_AT_ROOT,
    property_name=r"[A-Za-z_][A-Za-z0-9_]{0,63}",
    plain_enums=True,
    bare_references=True,
    recursion="optional",
    known_required=True,
)


class ModelAPI(msgspec.Struct, frozen=True, kw_only=True):
    """The forms in which one API takes definitions, returns calls, and takes results."""

    name: str
    title: str
    rules: SchemaRules
    strict_rules: SchemaRules | None
    """The rules of strict mode; None if the API has none."""
    define: Callable[[str, str, JSONObject, bool], JSONObject]
    """Returns a definition, from a name, a description, a schema, and whether it is strict."""
    gather: Callable[[list[JSONObject]], list[JSONObject]] = list
    """Returns the value of the request's `tools` field, from all definitions."""
    calls: Callable[[Any], list[ModelToolCall] | None]
    """Returns the calls of a plain value, or None if it is not of this API."""
    messages: Callable[[list[ToolOutput]], list[JSONObject]]
    """Returns the messages with the results of all calls of an answer."""
    part: Callable[[str | FileOutput], JSONObject]
    """Returns a text or a file as a part of the content of a message."""
    file_types: frozenset[str]
    """MIME types of files in results."""
    message_file_types: frozenset[str]
    """MIME types of files in user messages."""
    max_tools: int | None = None
    max_description_characters: int | None = None


# --- definitions ------------------------------------------------------------------------------------------------------


def _chat_tool(name: str, description: str, schema: JSONObject, strict: bool) -> JSONObject:
    function: JSONObject = {"name": name, "description": description, "parameters": schema}
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _responses_tool(name: str, description: str, schema: JSONObject, strict: bool) -> JSONObject:
    # The default of `strict` is true in this API, and then it refuses most schemas.
    return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": strict}


def _anthropic_tool(name: str, description: str, schema: JSONObject, strict: bool) -> JSONObject:
    tool: JSONObject = {"name": name, "description": description, "input_schema": schema}
    if strict:
        tool["strict"] = True
    return tool


def _gemini_function(name: str, description: str, schema: JSONObject, strict: bool) -> JSONObject:
    declaration: JSONObject = {"name": name, "description": description}
    if schema.get("properties") or schema.get("additionalProperties", False) is not False:
        declaration["parametersJsonSchema"] = schema  # Gemini refuses a schema without properties
    return declaration


def _gemini_tool(declarations: list[JSONObject]) -> list[JSONObject]:
    return [{"functionDeclarations": declarations}] if declarations else []


# --- parts of messages ------------------------------------------------------------------------------------------------

_FILE_NAME = "document.pdf"


def _chat_part(part: str | FileOutput) -> JSONObject:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.mime_type == PDF:
        return {"type": "file", "file": {"filename": part.name or _FILE_NAME, "file_data": _data_url(part)}}
    return {"type": "image_url", "image_url": {"url": _data_url(part)}}


def _responses_part(part: str | FileOutput) -> JSONObject:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if part.mime_type == PDF:
        return {"type": "input_file", "filename": part.name or _FILE_NAME, "file_data": _data_url(part)}
    return {"type": "input_image", "detail": "auto", "image_url": _data_url(part)}


def _anthropic_part(part: str | FileOutput) -> JSONObject:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.mime_type, "data": _base64(part)}
    return {"type": "document" if part.mime_type == PDF else "image", "source": source}


def _gemini_part(part: str | FileOutput) -> JSONObject:
    if isinstance(part, str):
        return {"text": part}
    return {"inlineData": {"mimeType": part.mime_type, "data": _base64(part)}}


def _base64(file: FileOutput) -> str:
    return base64.b64encode(file.data).decode()


def _data_url(file: FileOutput) -> str:
    return f"data:{file.mime_type};base64,{_base64(file)}"


# --- messages ---------------------------------------------------------------------------------------------------------


def _chat_messages(outputs: list[ToolOutput]) -> list[JSONObject]:
    """Return a tool message for each call, and one user message with all files: tool messages have only text."""
    messages: list[JSONObject] = []
    files: list[JSONObject] = []
    for output in outputs:
        text = f"Error: {output.text}" if output.is_error else output.text
        if output.files:
            count = many(len(output.files), "file")
            text = "\n".join(filter(None, [text, f"[{count}: see the next user message]"]))
            files.append(_chat_part(f"{count} in the result of {output.call.name}:"))
            files += map(_chat_part, output.files)
        messages.append({"role": "tool", "tool_call_id": output.call.id, "content": text})
    return [*messages, {"role": "user", "content": files}] if files else messages


def _responses_items(outputs: list[ToolOutput]) -> list[JSONObject]:
    items: list[JSONObject] = []
    for output in outputs:
        content: str | list[JSONObject] = f"Error: {output.text}" if output.is_error else output.text
        if output.files:
            content = [_responses_part(part) for part in output.parts]
            if output.is_error:
                content.insert(0, {"type": "input_text", "text": "Error:"})
        items.append({"type": "function_call_output", "call_id": output.call.id, "output": content})
    return items


def _anthropic_messages(outputs: list[ToolOutput]) -> list[JSONObject]:
    """Return one user message with all results, in the order of the calls."""
    results: list[JSONObject] = []
    for output in outputs:
        result: JSONObject = {"type": "tool_result", "tool_use_id": output.call.id}
        if output.is_error:  # its content may have only text
            left_out = f"[{many(len(output.files), 'file')} not sent, because the call failed]" if output.files else ""
            text = "\n".join(filter(None, [output.text, left_out]))
            result |= {"content": [{"type": "text", "text": text}], "is_error": True}
        else:
            result["content"] = [_anthropic_part(part) for part in output.parts]
        results.append(result)
    return [{"role": "user", "content": results}] if results else []


def _gemini_contents(outputs: list[ToolOutput]) -> list[JSONObject]:
    """Return one content with as many responses as there are calls."""
    parts: list[JSONObject] = []
    for output in outputs:
        text = output.text or f"[{many(len(output.files), 'file')}]"
        response: JSONObject = {"name": output.call.name, "response": {"error" if output.is_error else "output": text}}
        if output.call.id:
            response["id"] = output.call.id
        if output.files:
            response["parts"] = [_gemini_part(file) for file in output.files]
        parts.append({"functionResponse": response})
    return [{"role": "user", "parts": parts}] if parts else []


# --- the table --------------------------------------------------------------------------------------------------------

_FILES = frozenset((*IMAGES, PDF))
_GEMINI_FILES = _FILES - {"image/gif"}

MODEL_APIS = {
    row.name: row
    for row in (
        ModelAPI(
            name="openai",
            title="OpenAI Chat Completions",
            rules=_OPENAI,
            strict_rules=_OPENAI_STRICT,
            define=_chat_tool,
            calls=chat_calls,
            messages=_chat_messages,
            part=_chat_part,
            file_types=frozenset(IMAGES),
            message_file_types=_FILES,
            max_tools=128,
            max_description_characters=1_024,
        ),
        ModelAPI(
            name="openai-responses",
            title="OpenAI Responses",
            rules=_OPENAI,
            strict_rules=_OPENAI_STRICT,
            define=_responses_tool,
            calls=response_calls,
            messages=_responses_items,
            part=_responses_part,
            file_types=_FILES,
            message_file_types=_FILES,
            max_tools=128,
        ),
        ModelAPI(
            name="anthropic",
            title="Anthropic Messages",
            rules=_ANTHROPIC,
            strict_rules=_ANTHROPIC_STRICT,
            define=_anthropic_tool,
            calls=anthropic_calls,
            messages=_anthropic_messages,
            part=_anthropic_part,
            file_types=_FILES,
            message_file_types=_FILES,
        ),
        ModelAPI(
            name="gemini",
            title="Gemini generateContent",
            rules=_GEMINI,
            strict_rules=None,
            define=_gemini_function,
            gather=_gemini_tool,
            calls=gemini_calls,
            messages=_gemini_contents,
            part=_gemini_part,
            file_types=_GEMINI_FILES,
            message_file_types=_GEMINI_FILES,
        ),
    )
}
"""The model APIs by the name of their format."""


def model_api(name: str) -> ModelAPI:
    """Return the API with this name.

    Raises:
        ValueError: there is no such API.
    """
    if name not in MODEL_APIS:
        raise ValueError(f"There is no format {name!r}; the formats are {', '.join(MODEL_APIS)}.")
    return MODEL_APIS[name]


def find_calls(answer: Any, format: str | None = None) -> tuple[ModelAPI, list[ModelToolCall]]:
    """Return the API of an answer, or of a call, and the calls in it, in their order.

    Raises:
        ValueError: it is not an answer of a known API or, with `format`, of that API; or there is no such API.
        TypeError: it is neither an object of an API's client, nor a dict or JSON.
    """
    plain = plain_value(answer)
    for api in MODEL_APIS.values() if format is None else [model_api(format)]:
        calls = api.calls(plain)
        if calls is not None:
            return api, calls
    if format is None:
        raise ValueError("This is not an answer of a known model API.")
    raise ValueError(f"This is not an answer of {model_api(format).title}.")
