"""OpenAPI documents: JSON and YAML, versions, references, schemas, URIs and hostile documents."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote, unquote

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.json_schema import CompiledSchema
from wharfinger.source import UnusableSource
from wharfinger.sources.http_api import api_document
from wharfinger.sources.http_api.api_catalogue import ApiCatalogue
from wharfinger.sources.http_api.api_document import UnresolvedReference, parse_document, resolve
from wharfinger.sources.http_api.api_operations import ApiDocument, read_document
from wharfinger.sources.http_api.api_schemas import MAX_SCHEMA_CHARACTERS, json_schema, types_of, values_of
from wharfinger.sources.http_api.api_tools import allowed_operations
from wharfinger.sources.http_api.api_uris import ApiUris, is_escaped_path

PATHS: dict[str, Any] = {"/ships": {"get": {"responses": {"200": {"description": "All"}}}}}


def document(**members: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "Quay", "version": "1"}, "paths": PATHS, **members}


def operations_of(paths: dict[str, Any], **members: Any) -> ApiDocument:
    return read_document(document(paths=paths, **members), "quay.json")


def get(*parameters: Any, **members: Any) -> dict[str, Any]:
    return {"get": {"parameters": list(parameters), "responses": {"200": {"description": ""}}, **members}}


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_a_document_has_the_same_values_in_json_and_yaml(value: Any) -> None:
    root = {"openapi": "3.1.0", "x": value}
    assert parse_document(json.dumps(root).encode(), "a") == root
    assert parse_document(b"# YAML\n" + yaml.safe_dump(root, allow_unicode=True).encode(), "a") == root


def test_yaml_dates_and_switches_are_strings() -> None:
    data = b"openapi: 3.1.0\nday: 2026-11-20\nswitch: on\nanswer: no\n200: ok\nclock: 12:30:45\noctal: 0o17\n"
    assert parse_document(data, "a") == {
        "openapi": "3.1.0", "day": "2026-11-20", "switch": "on", "answer": "no", "200": "ok", "clock": "12:30:45",
        "octal": "0o17",
    }  # fmt: skip


def test_json_may_begin_with_a_byte_order_mark() -> None:
    """A bug: it was read as YAML, which does not have all escapes of JSON."""
    assert parse_document(b'\xef\xbb\xbf{"openapi": "3.1.0", "x": "\\ud83d\\udea2"}', "a")["x"] == "🚢"


def test_yaml_merge_keys_are_applied() -> None:
    data = b"openapi: 3.1.0\nbase: &base {a: 1, b: 2}\nmore:\n  <<: *base\n  b: 3\n"
    assert parse_document(data, "a")["more"] == {"a": 1, "b": 3}


def test_the_names_of_merged_members_are_strings() -> None:
    data = b"openapi: 3.1.0\nx:\n  y:\n    z: &a {200: ok}\nb:\n  <<: *a\n"
    assert parse_document(data, "a")["b"] == {"200": "ok"}


@pytest.mark.parametrize(
    "value",
    ["!!timestamp 2026-11-20", "!!binary aGk=", "!!set {a}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!bool x", "1e999"],
)
def test_yaml_values_that_json_does_not_have_are_refused(value: str) -> None:
    with pytest.raises(UnusableSource, match="nor as YAML"):
        parse_document(f"openapi: 3.1.0\nx: {value}\n".encode(), "a")


def yaml_bomb(levels: int, width: int = 10) -> bytes:
    lines = ["openapi: 3.1.0", "a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels + 1)]
    return "\n".join(lines).encode()


HOSTILE = {
    "a billion laughs": yaml_bomb(9),
    "a document that contains itself": b"openapi: 3.1.0\na: &a [*a]\n",
    "merges that multiply": "\n".join(
        ["openapi: 3.1.0", "m0: &m0 {" + ", ".join(f"k{n}: 1" for n in range(1_000)) + "}"]
        + [f"m{n}: {{<<: *m0, own: {n}}}" for n in range(1, 200)]
    ).encode(),
    "many merges by many names": b"openapi: 3.1.0\nm: &m {a: 1}\nn: {" + b", ".join([b"<<: *m"] * 101) + b"}\n",
    "many members merged into one": "\n".join(
        ["openapi: 3.1.0", "m: &m {" + ", ".join(f"k{n}: 1" for n in range(50_000)) + "}", "n:"] + ["  <<: *m"] * 100
    ).encode(),
    "a bomb of tuples": yaml_bomb(9).replace(b" [", b" !!pairs [").replace(b"[x]", b"[{x: 1}]").replace(b"*", b"x: *"),
    "many merges into one": b"openapi: 3.1.0\nm: &m {a: 1}\nn: {<<: [" + b", ".join([b"*m"] * 101) + b"]}\n",
    "deep JSON": b'{"openapi": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep YAML": b"openapi: " + b"[" * 5_000 + b"]" * 5_000,
    "an object as a name": b"openapi: 3.1.0\n? {a: b}\n: c\n",
    "a Python object": b"openapi: !!python/object/apply:os.system [id]\n",
    "a list": b"[1]",
    "a text": b"nothing",
    "nothing": b"",
    "not UTF-8": b'{"openapi": "\xff"}',
    "half of it": b'{"openapi": "3.1.0"',
    "a huge number": b"openapi: " + b"9" * 5_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_quickly(name: str) -> None:
    began = time.thread_time()
    with pytest.raises(UnusableSource, match="quay"):
        api_document.check_version(parse_document(HOSTILE[name], "quay"), "quay")
    assert time.thread_time() - began < 10


def test_the_depth_of_a_document_is_limited() -> None:
    def nested(levels: int) -> bytes:
        return b'{"a":' * (levels - 1) + b'{"a":1}' + b"}" * (levels - 1)

    parse_document(nested(api_document.MAX_DOCUMENT_DEPTH), "a")
    with pytest.raises(UnusableSource, match="128 levels"):
        parse_document(nested(api_document.MAX_DOCUMENT_DEPTH + 1), "a")


def test_the_number_of_values_of_a_document_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_document, "MAX_VALUES", 100)
    parse_document(json.dumps({"a": [1] * 99}).encode(), "a")
    with pytest.raises(UnusableSource, match="more than 100 values"):
        parse_document(json.dumps({"a": [1] * 100}).encode(), "a")


@pytest.mark.parametrize(("limit", "data"), [("MAX_DOCUMENT_BYTES", b'{"a": 1}'), ("MAX_YAML_BYTES", b"a: 1 #...")])
def test_the_size_of_a_document_is_limited(limit: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_document, limit, len(data))
    parse_document(data, "a")
    with pytest.raises(UnusableSource, match="too large"):
        parse_document(data + b" ", "a")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"openapi": "2.0"}, "only 3.0 and 3.1"),
        ({"openapi": "3.10.0"}, "only 3.0 and 3.1"),
        ({"openapi": None, "swagger": "2.0"}, "convert it to OpenAPI 3.0"),
        ({"openapi": None}, "no member 'openapi'"),
        ({"paths": {}}, "no operations"),
        ({"paths": {"/a": 5}}, "no operations"),
    ],
)
def test_an_unusable_document_is_refused_with_a_reason(members: dict[str, Any], message: str) -> None:
    with pytest.raises(UnusableSource, match=message):
        read_document(document(**members), "quay.json")


# References


@pytest.mark.parametrize(
    "reference",
    [
        "https://elsewhere.test/a.json#/b",
        "other.yaml",
        "file:///etc/passwd",
        "//elsewhere.test/a",
        "#/nowhere",
        "#",
        "#/a/9",
    ],
)
def test_references_outside_the_document_are_not_resolved(reference: str) -> None:
    with pytest.raises(UnresolvedReference):
        resolve({"a": [1]}, {"$ref": reference})


def test_circular_references_are_refused() -> None:
    root = {"a": {"$ref": "#/b"}, "b": {"$ref": "#/a"}}
    with pytest.raises(UnresolvedReference, match="circle"):
        resolve(root, root["a"])


def test_a_chain_of_references_is_followed_up_to_the_limit() -> None:
    root = {"r0": 1, **{f"r{n}": {"$ref": f"#/r{n - 1}"} for n in range(1, api_document.MAX_REFERENCES + 2)}}
    assert resolve(root, root[f"r{api_document.MAX_REFERENCES}"]) == 1
    with pytest.raises(UnresolvedReference, match="circle"):
        resolve(root, root[f"r{api_document.MAX_REFERENCES + 1}"])


def test_escaped_names_in_references_are_resolved() -> None:
    root = {"paths": {"/a~b": {"x": [10, 20]}}}
    assert resolve(root, {"$ref": "#/paths/~1a~0b/x/1"}) == 20


def test_an_operation_with_a_remote_reference_is_left_out_with_a_remark() -> None:
    found = operations_of(
        {"/bad": get({"$ref": "https://elsewhere.test/p.json"}), "/good": get(), "/worse": {"$ref": "https://e.test/x"}}
    )
    assert [operation.path for operation in found.operations] == ["/good"]
    assert found.skipped == [
        "GET /bad: https://elsewhere.test/p.json is not in the document, and nothing is fetched",
        "/worse: https://e.test/x is not in the document, and nothing is fetched",
    ]


@pytest.mark.parametrize(
    ("path", "item", "reason"),
    [
        ("/a/{x}", get(), "different variables"),
        ("/a", get({"name": "x", "in": "path", "required": True, "schema": {}}), "different variables"),
        ("/a", get({"in": "query", "schema": {}}), "name: Field required"),
        ("/a", get({"name": "x", "in": "elsewhere"}), "in: Input should be 'query'"),
        ("/a", get(summary=["not text"]), "summary: Input should be a valid string"),
        ("/a/../b", get(), "not the path of a URL"),
        ("/a/%2e%2E/b", get(), "not the path of a URL"),
        ("/a%00", get(), "not the path of a URL"),
        ("/a?b=c", get(), "not the path of a URL"),
        ("/a", get(*[{"name": f"p{n}", "in": "query", "schema": {}} for n in range(101)]), "more than 100"),
        (
            "/a",
            get({"name": "x", "in": "query", "required": True, "content": {"application/json": {"schema": {}}}}),
            "not supported",
        ),
    ],
)
def test_only_the_invalid_operation_is_left_out(path: str, item: dict[str, Any], reason: str) -> None:
    found = operations_of({path: item, "/good": get()})
    assert [operation.path for operation in found.operations] == ["/good"]
    assert reason in found.skipped[0]


@pytest.mark.parametrize("name", ["Accept", "Authorization", "Content-Type", "Host", "Transfer-Encoding"])
def test_headers_that_the_source_sets_are_not_parameters(name: str) -> None:
    (operation,) = operations_of({"/a": get({"name": name, "in": "header", "required": True, "schema": {}})}).operations
    assert operation.parameters == ()


def test_the_directory_counts_the_operations_that_are_left_out() -> None:
    found = operations_of({"/good": get(), **{f"/a/{{x{n}}}": get() for n in range(150)}})
    catalogue = ApiCatalogue(found, ApiUris("quay"), {}, frozenset())
    assert "Left out: 130 more." in catalogue.directory_text("api://quay")


def test_an_operation_may_have_a_hundred_parameters() -> None:
    found = operations_of({"/a": get(*[{"name": f"p{n}", "in": "query", "schema": {}} for n in range(100)])})
    assert len(found.operations[0].parameters) == 100


def test_parameters_of_an_operation_override_those_of_its_path() -> None:
    shared = {"name": "x", "in": "query", "schema": {"type": "string"}}
    item = {"parameters": [shared], **get({**shared, "schema": {"type": "integer"}})}
    (operation,) = operations_of({"/a": item}).operations
    assert [types_of(parameter.schema) for parameter in operation.parameters] == [{"integer"}]


def test_duplicate_operation_ids_are_made_unique() -> None:
    found = operations_of({"/a": get(operationId="list"), "/b": get(operationId="list"), "/c/{x}": get(
        {"name": "x", "in": "path", "required": True, "schema": {}})})  # fmt: skip
    assert [operation.id for operation in found.operations] == ["list", "list_2", "get_c_x"]


# Schemas


def test_schemas_of_openapi_3_0_are_converted_to_json_schema() -> None:
    schema = {"type": "integer", "nullable": True, "minimum": 3, "exclusiveMinimum": True, "enum": [4, 5], "example": 4}
    found = json_schema({}, schema, version="3.0")
    assert found == {"type": ["integer", "null"], "exclusiveMinimum": 3, "enum": [4, 5, None]}
    compiled = CompiledSchema(found, "it")
    assert [compiled.fits(value) for value in (4, None, 3, "4")] == [True, True, False, False]


def test_a_recursive_schema_is_self_contained() -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/components/schemas/Node"}}}
    found = json_schema(
        {"components": {"schemas": {"Node": node}}}, {"$ref": "#/components/schemas/Node"}, version="3.1"
    )
    compiled = CompiledSchema(found, "it")
    assert compiled.fits({"name": "a", "next": {"name": "b", "next": {}}})
    assert not compiled.fits({"next": {"next": {"name": 5}}})


def test_a_large_schema_keeps_its_required_members_within_the_budget() -> None:
    members = {f"optional{n:04}": {"type": "string", "description": "x" * 100} for n in range(500)}
    members["needed"] = {"type": "integer"}
    schema = {"type": "object", "properties": members, "required": ["needed"], "additionalProperties": False}
    found = json_schema({}, schema, version="3.1")
    assert len(json.dumps(found)) < MAX_SCHEMA_CHARACTERS * 1.2
    assert found["properties"]["needed"] == {"type": "integer"}
    compiled = CompiledSchema(found, "it")
    assert compiled.fits({"needed": 1, "optional0499": "a"})
    assert not compiled.fits({"optional0000": "a"})


def test_a_remote_reference_in_a_schema_accepts_any_value() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "https://elsewhere.test/x"}, "b": {"type": "integer"}}}
    compiled = CompiledSchema(json_schema({}, schema, version="3.1"), "it")
    assert compiled.fits({"a": "object", "b": 1})
    assert not compiled.fits({"b": "x"})


def test_read_only_properties_are_not_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer", "readOnly": True}, "a": {}},
        "required": ["id", "a"],
    }
    found = json_schema({}, schema, version="3.1")
    assert found["required"] == ["a"]
    assert list(found["properties"]) == ["a"]


def test_enum_values_are_found_through_references_and_any_of() -> None:
    root = {"components": {"schemas": {"Status": {"type": "string", "enum": ["open", "shut"]}}}}
    schema = {"anyOf": [{"$ref": "#/components/schemas/Status"}, {"type": "null"}]}
    found = json_schema(root, schema, version="3.1")
    assert values_of(found) == ["open", "shut"]
    assert types_of(found) == {"string", "null"}
    assert values_of({"anyOf": [{"enum": ["a"]}, {"type": "string"}]}) == []


KEYWORDS = st.sampled_from(
    [
        "type",
        "items",
        "properties",
        "allOf",
        "anyOf",
        "$ref",
        "required",
        "enum",
        "nullable",
        "additionalProperties",
        "a",
    ]
)
SCHEMAS = st.recursive(
    st.none() | st.text() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYWORDS, inner),
    max_leaves=30,
)


@given(SCHEMAS)
def test_any_value_is_converted_to_a_schema_or_refused(value: Any) -> None:
    for version in ("3.0", "3.1"):
        try:
            found = json_schema({"a": value}, value, version=version)
        except UnresolvedReference:
            continue
        assert isinstance(found, dict)
        values_of(found)
        types_of(found)


OPERATION_NAMES = st.sampled_from(
    [
        *("get", "post", "parameters", "requestBody", "content", "schema", "name", "in", "required", "tags"),
        *("responses", "operationId", "summary", "description", "$ref", "query", "path", "style", "explode"),
        "a",
        "security",
        "application/json",
    ]
)
PARTS = st.recursive(
    st.none() | st.sampled_from(["query", "path", "a", "#/paths", "#/a"]) | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(OPERATION_NAMES, inner, max_size=4),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(["/a", "/a/{query}", "/{a}/b", "/", "x", "/a b"]), PARTS), PARTS, PARTS)
def test_any_document_is_read_or_refused(paths: Any, components: Any, value: Any) -> None:
    root = {
        "openapi": "3.0.3",
        "info": value,
        "paths": paths,
        "components": components,
        "servers": value,
        "tags": value,
    }
    try:
        found = read_document(root, "quay.json")
    except UnusableSource:
        return
    uris = ApiUris("quay")
    tools = allowed_operations(found, [operation.id for operation in found.operations if operation.body is None])
    catalogue = ApiCatalogue(found, uris, tools, frozenset())
    for operation in catalogue.operations:
        assert uris.read(uris.about(operation)).operation is operation
        catalogue.about_text(operation)
    for resource in catalogue.listed():
        assert uris.matches(resource.uri)
        assert resource.name


@pytest.mark.parametrize("query", ["id=1234567890123456789", "width=0.30000000000000004", "width=1e5", "width=12"])
def test_numbers_with_many_digits_are_numbers(query: str) -> None:
    """A bug: an ID of 64 bits was refused with "expected an integer"."""
    parameters = [
        {"name": "id", "in": "query", "schema": {"type": "integer"}},
        {"name": "width", "in": "query", "schema": {"type": "number"}},
    ]
    uris = ApiUris("quay")
    assert not uris.add(operations_of({"/ships": get(*parameters)}).operations[0])
    assert uris.read(f"api://quay/ships?{query}").pairs == (tuple(query.split("=")),)


@pytest.mark.parametrize(
    ("schema", "value", "accepted"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "1,2", True),
        ({"type": "array", "items": {"type": "integer"}}, "7", True),
        ({"type": "array", "items": {"type": "integer"}}, "1,x", False),
        ({"type": "object", "properties": {"x": {"type": "integer"}}}, "x,1", True),
    ],
)
def test_a_path_may_have_lists_and_objects(schema: Any, value: str, accepted: bool) -> None:
    """A bug: each value was refused with "expected an array"."""
    uris = ApiUris("quay")
    path = {"name": "ids", "in": "path", "required": True, "schema": schema}
    assert not uris.add(operations_of({"/ships/{ids}": get(path)}).operations[0])
    if accepted:
        assert uris.read(f"api://quay/ships/{value}").path == f"/ships/{value}"
    else:
        with pytest.raises(InvalidArgument, match="ids"):
            uris.read(f"api://quay/ships/{value}")


@pytest.mark.parametrize(
    ("schema", "accepted"),
    [
        ({"type": "object", "additionalProperties": {"type": "integer"}}, True),
        ({"type": "object"}, True),
        ({"type": "object", "properties": {"b": {}}}, False),
        ({"type": "object", "additionalProperties": False}, False),
    ],
)
def test_a_query_may_have_any_name_if_the_document_says_so(schema: Any, accepted: bool) -> None:
    """A bug: the free-form query of the specification's example (Parameter Object) was refused."""
    uris = ApiUris("quay")
    assert not uris.add(operations_of({"/a": get({"name": "any", "in": "query", "schema": schema})}).operations[0])
    if accepted:
        assert uris.read("api://quay/a?a=1").pairs == (("a", "1"),)
    else:
        with pytest.raises(InvalidArgument, match="has no parameter 'a'"):
            uris.read("api://quay/a?a=1")


def test_booleans_are_named_as_they_are_written() -> None:
    """A bug: the error asked for True or False, which are refused."""
    uris = ApiUris("quay")
    flag = {"name": "open", "in": "query", "schema": {"type": "boolean"}}
    assert not uris.add(operations_of({"/a": get(flag)}).operations[0])
    with pytest.raises(InvalidArgument, match="must be one of true, false"):
        uris.read("api://quay/a?open=True")
    assert uris.read("api://quay/a?open=true").pairs == (("open", "true"),)


def test_a_parameter_that_is_a_credential_is_not_offered() -> None:
    """A bug: `parameters` had it, but each URI with it is refused."""
    found = operations_of({"/ships": get(*({"name": name, "in": "query", "schema": {}} for name in ("key", "page")))})
    assert list(ApiCatalogue(found, ApiUris("quay", frozenset({"key"})), {}, frozenset()).parameters) == ["page"]


def shop_uris() -> ApiUris:
    uris = ApiUris("shop")
    text = {"type": "string"}
    parameters = [
        {"name": "id", "in": "path", "required": True, "schema": text},
        {"name": "q[x]", "in": "query", "schema": text},
        {"name": "n", "in": "query", "schema": {"type": "integer"}},
    ]
    for operation in operations_of({"/a/{id}/b": get(*parameters), "/a": get()}).operations:
        assert not uris.add(operation)
    return uris


def test_paths_that_differ_only_in_their_escapes_are_one() -> None:
    """A bug: both were added, and the second one could not be read."""
    first, second = operations_of({"/a b": get(), "/a%20b": get()}).operations
    uris = ApiUris("shop")
    assert uris.add(first) == ""
    assert "has the same URIs" in uris.add(second)


@given(st.text(st.sampled_from("ab/{}%?&=#.:;,+-~1@ []é"), max_size=40))
def test_any_uri_is_read_or_refused(suffix: str) -> None:
    uris = shop_uris()
    for uri in (f"api://shop{suffix}", f"api://shop/a/{suffix}/b", f"api://shop/a/x/b?{suffix}", suffix):
        try:
            found = uris.read(uri)
        except (ResourceNotFound, InvalidArgument):
            continue
        assert ".." not in found.path.split("/")
        assert found.kind != "answer" or found.path.count("/") in (1, 3)


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1),
    st.text(st.characters(codec="utf-8")),
)
def test_values_round_trip_through_uris(value: str, query: str) -> None:
    uris = shop_uris()
    uri = f"api://shop/a/{quote(value, safe='')}/b?q%5Bx%5D={quote(query, safe='')}"
    leads_elsewhere = set(value) & set("/\\") or value in (".", "..") or is_escaped_path(value, allow_slashes=False)
    if leads_elsewhere or len(uri) > 8_192:
        return
    found = uris.read(uri)
    assert unquote(found.path) == f"/a/{value}/b"
    assert found.pairs == (("q[x]", query),)
    again = uris.read(uris.answer(found.path, found.pairs))
    assert (again.path, again.pairs) == (found.path, found.pairs)
