"""Every published example is decoded into our structs and encoded again without loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.types import intended_differences
from tests.types.schemas import SPEC, our_type, spec_folder
from wharfinger import types
from wharfinger.protocol.methods import METHODS

EXAMPLES = sorted((SPEC / "examples").glob("*/*.json"))


def test_the_published_examples_are_present() -> None:
    assert (spec_folder() / "examples").is_dir()
    assert len(EXAMPLES) > 100


@pytest.mark.parametrize("path", EXAMPLES, ids=[f"{path.parent.name}/{path.stem}" for path in EXAMPLES])
def test_example_survives_a_round_trip(path: Path) -> None:
    kind, value = content_of(path.parent.name, json.loads(path.read_bytes()))
    for member in intended_differences.NOT_IN_ITS_SCHEMA.get(path.parent.name, ("", ()))[1]:
        del value[member]
    decoded = msgspec.json.decode(msgspec.json.encode(value), type=kind)
    assert msgspec.json.decode(msgspec.json.encode(decoded)) == value


def content_of(definition: str, value: dict[str, Any]) -> tuple[Any, Any]:
    """Return the type and the value to compare: the params of a request, or the result of a response."""
    if "error" in value:
        return types.ErrorObject, value["error"]
    if "result" in value:
        return our_type(definition.removesuffix("Response")), value["result"]
    if "jsonrpc" in value:
        return METHODS[value["method"]].params, value.get("params", {})
    if definition == "InputResponses":
        return msgspec.defstruct("Answers", [(key, response_type(item)) for key, item in value.items()]), value
    return our_type(definition) or types.ErrorObject, value


def response_type(value: dict[str, Any]) -> Any:
    kinds = {"action": types.ElicitResult, "model": types.CreateMessageResult, "roots": types.ListRootsResult}
    return next(kind for member, kind in kinds.items() if member in value)
