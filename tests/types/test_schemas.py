"""The structs agree with the schemas of all revisions, except for the rows of `intended_differences`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.types import intended_differences
from tests.types.schemas import Node, differences, is_struct, load_schemas, our_type, read
from wharfinger import errors, types
from wharfinger.protocol.methods import CORE, METHODS
from wharfinger.protocol.revisions import REVISIONS as RULES


def test_without_the_schemas_nothing_is_compared_except_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bare clone has no schemas. In CI their absence is a failure."""
    monkeypatch.setattr("tests.types.schemas.SPEC", tmp_path / "none")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="published schemas are not at"):
        load_schemas()
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="published schemas are not at"):
        load_schemas()


@pytest.fixture(scope="module")
def schemas() -> dict[str, dict[str, Node]]:
    return load_schemas()


def test_structs_differ_from_the_schemas_only_where_intended(schemas: dict[str, dict[str, Node]]) -> None:
    assert sorted(differences(schemas) - intended_differences.DIFFERENCES.keys()) == []


def test_every_intended_difference_exists(schemas: dict[str, dict[str, Node]]) -> None:
    assert sorted(intended_differences.DIFFERENCES.keys() - differences(schemas)) == []


def test_every_definition_has_a_type_or_a_reason_for_having_none(schemas: dict[str, dict[str, Node]]) -> None:
    definitions = {name: node for part in schemas.values() for name, node in part.items()}
    without = (
        intended_differences.NOT_HERE.keys()
        | intended_differences.PLAIN_DICTS.keys()
        | intended_differences.UNTYPED.keys()
    )
    missing = [
        name
        for name, node in definitions.items()
        if our_type(name) is None and name not in without and "method" not in node.get("properties", {})
    ]
    assert missing == []


def test_every_row_about_a_definition_is_needed(schemas: dict[str, dict[str, Node]]) -> None:
    definitions = {name for part in schemas.values() for name in part}
    rows = (
        intended_differences.RENAMED,
        intended_differences.NOT_HERE,
        intended_differences.PLAIN_DICTS,
        intended_differences.UNTYPED,
        intended_differences.PARAMS_STRUCTS,
    )
    assert sorted(name for row in rows for name in row if name not in definitions) == []
    assert sorted(name for name in intended_differences.NOT_HERE if hasattr(types, name)) == []
    assert (
        sorted(
            name
            for name, (own, _) in intended_differences.RENAMED.items()
            if not hasattr(types, own) or hasattr(types, name)
        )
        == []
    )


def test_every_row_about_an_object_described_in_place_is_needed(schemas: dict[str, dict[str, Node]]) -> None:
    used = {row for reader in read(schemas) for row in reader.used}
    rows = (
        intended_differences.PARAMS_STRUCTS,
        intended_differences.STRUCTS_BY_PATH,
        intended_differences.STRUCTS_BY_LAST_MEMBER,
        intended_differences.KEPT_WHOLE,
    )
    assert sorted(row for part in rows for row in part if row not in used) == []


def test_every_row_has_a_reason() -> None:
    rows = (
        intended_differences.NOT_HERE,
        intended_differences.PLAIN_DICTS,
        intended_differences.UNTYPED,
        intended_differences.KEPT_WHOLE,
        intended_differences.DIFFERENCES,
    )
    assert all(reason for part in rows for reason in part.values())
    assert all(reason for _, reason in intended_differences.RENAMED.values())


EDITS: dict[str, tuple[Callable[[dict[str, Node]], object], str]] = {
    "member": (lambda d: d["Resource"]["properties"].update(colour={}), "Resource.colour: not here"),
    "enum": (lambda d: d["Role"]["enum"].append("system"), "Role: 'system' (not here)"),
    "required": (lambda d: d["Icon"].update(required=[]), "Icon.src: required here"),
    "const": (
        lambda d: d["TextContent"]["properties"]["type"].update(const="words"),
        "TextContent.type: 'words' (not here)",
    ),
    "union": (lambda d: d["ContentBlock"]["anyOf"].append({"$ref": "#/Tool"}), "ContentBlock: Tool (not here)"),
    "reference": (
        lambda d: d["ListToolsResult"]["properties"]["tools"]["items"].update({"$ref": "#/Prompt"}),
        "ListToolsResult.tools[]: Prompt (not here)",
    ),
    "definition": (lambda d: d.update(Crane={"type": "object", "properties": {}}), "Crane: not here"),
}


@pytest.mark.parametrize(("edit", "expected"), EDITS.values(), ids=EDITS)
def test_a_changed_schema_is_detected(
    schemas: dict[str, dict[str, Node]], edit: Callable[[dict[str, Node]], object], expected: str
) -> None:
    """One change to the newest schema adds one difference."""
    changed = json.loads(json.dumps(schemas))
    edit(changed["2026-07-28"])
    assert expected in differences(changed) - differences(schemas)


TASKS_OF_2025_11_25 = {"tasks/cancel", "tasks/get", "tasks/list", "tasks/result", "notifications/tasks/status"}
"""Experimental methods that are not in the table. An extension uses two of the names with other params."""
EXTENSIONS = {"tasks/get", "tasks/update", "tasks/cancel", "notifications/tasks"}
"""Methods of extensions, which the core schemas do not have."""


def test_the_method_table_has_the_params_and_revisions_of_the_schemas(schemas: dict[str, dict[str, Node]]) -> None:
    theirs: dict[str, set[tuple[str, int]]] = {}
    for revision, definitions in schemas.items():
        for name, node in definitions.items():
            members = node.get("properties", {})
            # In 2026-07-28 three requests occur only inside a result.
            if "const" in members.get("method", {}) and ("jsonrpc" in members or revision != "2026-07-28"):
                row = (params_struct(name, members.get("params", {})), RULES[revision].order)
                theirs.setdefault(members["method"]["const"], set()).add(row)
    own = {
        name: {(row.params.__name__, order) for order in range(row.first, row.last + 1)}
        for name, row in METHODS.items()
        if name in CORE - EXTENSIONS  # other rows are of extensions that another test has added
    }
    assert theirs.keys() - own.keys() == TASKS_OF_2025_11_25
    assert {METHODS[name].first for name in EXTENSIONS} == {RULES["2026-07-28"].order}
    assert {name: theirs[name] for name in own} == own


def params_struct(definition: str, params: Node) -> str:
    if "$ref" not in params:
        return intended_differences.PARAMS_STRUCTS.get(definition, f"{definition}Params")
    name: str = our_type(params["$ref"].rsplit("/", 1)[1]).__name__
    return name


def test_error_codes_match_the_schemas(schemas: dict[str, dict[str, Node]]) -> None:
    definitions = schemas["2026-07-28"]
    codes: dict[str, type[errors.ProtocolError]] = {
        "ParseError": errors.ParseError,
        "InvalidRequestError": errors.InvalidRequest,
        "MethodNotFoundError": errors.MethodNotFound,
        "InvalidParamsError": errors.InvalidParams,
        "InternalError": errors.InternalError,
        "HeaderMismatchError": errors.HeaderMismatch,
        "MissingRequiredClientCapabilityError": errors.MissingClientCapability,
        "UnsupportedProtocolVersionError": errors.UnsupportedVersion,
    }
    theirs = {name for name in definitions if name.endswith("Error") and name != "Error"}
    assert theirs == codes.keys()
    assert {n: constant_code(definitions[n]) for n in theirs} == {n: error.code for n, error in codes.items()}


def constant_code(node: Node) -> int:
    members = node["properties"]
    inner = members["error"]["allOf"][1]["properties"] if "error" in members else members
    code = inner["code"]["const"]
    assert isinstance(code, int)
    return code


def test_every_struct_can_be_decoded_and_is_not_tracked_by_the_garbage_collector() -> None:
    structs = [thing for thing in vars(types).values() if is_struct(thing)]
    for struct in structs:
        msgspec.json.Decoder(struct)
        assert not struct.__struct_config__.gc, struct
    assert len(structs) > 100


def test_every_public_name_of_a_module_is_a_name_of_the_package() -> None:
    exported = set(types.__all__)
    assert exported == {name for name in exported if hasattr(types, name)}
    structs = {name for name, thing in vars(types).items() if is_struct(thing)}
    assert structs <= exported
