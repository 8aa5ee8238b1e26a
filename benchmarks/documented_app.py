"""An ASGI application made from an OpenAPI document. It needs only the standard library, so it runs everywhere.

It has the document's paths and methods, and answers each with the document's own example, or a value that fits the
schema. `hits` lists the operations that were called. It shares no code with the parsers under test, so it checks them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

__all__ = ["DocumentedApp", "example_of"]

METHODS = ("get", "put", "post", "delete", "patch")
SAMPLE_STRINGS = (
    "a1",
    "1.2.3",
    "refs/heads/main",
    f"sha256:{'a' * 64}",
    "do:droplet:1",
    "a1b2c3d4-0000-0000-0000-0123456789ab",
)
"""Strings that match patterns that are common in documents."""
MAX_DEPTH = 6
"""The maximum depth of nested values; deeper ones are left out, or None if they are required."""


class DocumentedApp:
    """The application. `answers` has the answer of each operation, with keys such as `GET /path`."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.answers: dict[str, Any] = {}
        self.hits: list[str] = []
        self._routes: list[tuple[int, re.Pattern[str], str]] = []
        for path, given in root["paths"].items():
            item = _resolve(root, given)
            pattern = "".join(
                "[^/]+" if part[:1] == "{" else re.escape(part) for part in re.split(r"(\{[^{}]*\})", path)
            )
            self._routes.append((path.count("{"), re.compile(pattern), path))
            if any(_resolve(root, one).get("x-multi-segment") for one in item.get("get", {}).get("parameters", ())):
                self._routes.append((100, re.compile(pattern.removesuffix("[^/]+") + ".+"), path))
            for method in METHODS:
                if method in item:
                    self.answers[f"{method.upper()} {path}"] = self._answer(item[method])
        self._routes.sort(key=lambda route: (route[0], route[2]))

    def _answer(self, operation: dict[str, Any]) -> Any:
        answers = operation.get("responses", {})
        status = next((each for each in ("200", "201", "202", "default", *answers) if each in answers), None)
        content = {} if status is None else _resolve(self.root, answers[status]).get("content", {})
        media = content.get("application/json") or next(iter(content.values()), {})
        value = media.get("example")
        for each in list(media.get("examples", {}).values())[:1] if value is None else ():
            value = _resolve(self.root, each).get("value")
        value = example_of(self.root, media.get("schema", {})) if value is None else value
        return value if isinstance(value, (dict, list)) else {"value": value}

    async def __call__(
        self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Answer a request: 404 if no path matches, 405 if the path has no such method."""
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        path, status, body = unquote(scope["path"]), 404, b'{"detail": "no such path"}'
        for _, pattern, template in self._routes:
            if pattern.fullmatch(path):
                name = f"{scope['method']} {template}"
                status, body = 405, b'{"detail": "no such method"}'
                if name in self.answers:
                    self.hits.append(name)
                    status, body = 200, json.dumps(self.answers[name]).encode()
                    break
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": body})


def example_of(root: Mapping[str, Any], given: Any, depth: int = 0) -> Any:
    """Return a value that fits most schemas: the example, or the simplest value of the type."""
    schema = _resolve(root, given) if isinstance(given, dict) else {}
    for name in ("example", "const", "default"):
        if schema.get(name) is not None:
            return schema[name]
    if schema.get("examples") and isinstance(schema["examples"], list):
        return schema["examples"][0]
    if schema.get("enum"):
        return schema["enum"][0]
    schema = _merged(root, schema) if depth < MAX_DEPTH else schema
    for name in ("enum", "example"):
        if schema.get(name):
            return schema[name][0] if name == "enum" else schema[name]
    kind = schema.get("type")
    kind = next((each for each in kind if each != "null"), "null") if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema or (kind is None and "required" in schema):
        required = list(schema.get("required", ()))
        members = schema.get("properties", {})
        names = [*members, *(each for each in required if each not in members)] if depth == 0 else required
        return {
            each: example_of(root, members.get(each, {}), depth + 1) if depth < MAX_DEPTH else None for each in names
        }
    if kind == "array":
        return (
            [example_of(root, schema.get("items", {}), depth + 1)] * max(1, schema.get("minItems", 1))
            if depth < MAX_DEPTH
            else []
        )
    if kind in ("integer", "number"):
        return max(1, schema.get("minimum", 1)) if not schema.get("maximum", 1) < 1 else schema["maximum"]
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    known = {
        "date-time": "2026-11-20T10:00:00Z",
        "date": "2026-11-20",
        "uri": "https://example.test/a",
        "email": "a@example.test",
    }
    text = known.get(
        schema.get("format", ""), "0123456789abcdef0123456789abcdef01234567"[: schema.get("maxLength", 40)]
    )
    text = text.ljust(schema.get("minLength", 0), "0")
    if "pattern" in schema and not _fits(schema["pattern"], text):
        return next((each for each in SAMPLE_STRINGS if _fits(schema["pattern"], each)), text)
    return text


def _fits(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return True


def _merged(root: Mapping[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema merged with all of its `allOf`, and with the first of its `anyOf` and `oneOf`."""
    parts = [*schema.get("allOf", ()), *schema.get("anyOf", ())[:1], *schema.get("oneOf", ())[:1]]
    found = {name: value for name, value in schema.items() if name not in ("allOf", "anyOf", "oneOf")}
    for part in parts:
        other = _resolve(root, part)
        inner = (
            _merged(root, other)
            if other is not schema and any(n in other for n in ("allOf", "anyOf", "oneOf"))
            else other
        )
        found = {
            **inner,
            **found,
            "properties": {**inner.get("properties", {}), **found.get("properties", {})},
            "required": [*inner.get("required", ()), *found.get("required", ())],
        }
    for name in ("properties", "required"):
        if not found.get(name):
            found.pop(name, None)
    return found


def _resolve(root: Mapping[str, Any], node: Any) -> dict[str, Any]:
    for _ in range(16):
        if not isinstance(node, dict) or "$ref" not in node:
            break
        found: Any = root
        for part in node["$ref"].removeprefix("#/").split("/"):
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            found = found[int(name)] if isinstance(found, list) else found.get(name, {})
        node = found
    return node if isinstance(node, dict) else {}
