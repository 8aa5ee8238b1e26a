"""The server's messages in the transcripts match the published schema of their revision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.transcripts.transcript import FOLDER, parse
from tests.types.schemas import spec_folder
from wharfinger.protocol.methods import METHODS

FILES = sorted(FOLDER.glob("*/*.txt"))

EXTENSION_METHODS = ("tasks/", "skills/", "resources/directory/", "notifications/tasks")
"""Prefixes of methods that are in extensions and not in the core schemas."""


class Schema:
    """The published schema of one revision."""

    def __init__(self, revision: str) -> None:
        self.document = json.loads((spec_folder() / f"schema-{revision}.json").read_text("utf-8"))
        self.key = "$defs" if "$defs" in self.document else "definitions"
        self.definitions: dict[str, Any] = self.document[self.key]

    def by_method(self, method: str, suffix: str) -> str:
        """Return the name of the definition of a request or notification."""
        return next(
            name
            for name, node in self.definitions.items()
            if name.endswith(suffix) and node.get("properties", {}).get("method", {}).get("const") == method
        )

    def check(self, definition: str, value: Any) -> None:
        """Validate a value.

        Raises:
            jsonschema.ValidationError: the value does not match the definition.
        """
        root = {**self.document, "$ref": f"#/{self.key}/{definition}"}
        root.pop("anyOf", None)
        jsonschema.validators.validator_for(self.document)(root).validate(value)


def result_of(method: str, result: dict[str, Any]) -> str | None:
    """Return the name of a result's definition, or None if an extension defines it."""
    if result.get("resultType") == "input_required":
        return "InputRequiredResult"
    if result.get("resultType") == "task" or method.startswith(EXTENSION_METHODS):
        return None
    kind = METHODS[method].result
    assert kind is not None
    return str(kind.__name__)


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}-{file.stem}" for file in FILES])
def test_messages_of_the_server_match_the_schema(file: Path) -> None:
    schema = Schema(file.parent.name)
    methods: dict[Any, str] = {}
    for line in parse(file.read_bytes()):
        try:
            parsed = json.loads(line.text)
        except ValueError:
            assert line.sender == ">"
            continue
        for message in parsed if isinstance(parsed, list) else [parsed]:
            if line.sender == "<":
                check(schema, message, methods)
            elif isinstance(message, dict) and "method" in message:
                methods[str(message.get("id"))] = message["method"]


def check(schema: Schema, message: dict[str, Any], methods: dict[Any, str]) -> None:
    """Validate one message of the server."""
    if "method" in message and message["method"].startswith(EXTENSION_METHODS):
        return
    if "method" in message:
        schema.check(schema.by_method(message["method"], "Request" if "id" in message else "Notification"), message)
    elif "error" in message:
        # The older schemas require an id even if it could not be read, and do not allow null: no error can be valid.
        known = message if "id" in message else message | {"id": "unknown"}
        schema.check("JSONRPCErrorResponse" if "JSONRPCErrorResponse" in schema.definitions else "JSONRPCError", known)
    elif name := result_of(methods[str(message["id"])], message["result"]):
        schema.check(name, message["result"])
