"""Schemas of parameters: constraints in annotations, pydantic models and paths."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import annotated_types
import msgspec
import pydantic
import pytest

from tests.server.driving import ask
from wharfinger.server.app import Server
from wharfinger.server.signature.type_schemas import to_json


def schema_of(annotation: Any, default: Any = ...) -> Any:
    """Return the input schema of a tool with one argument of this type."""

    def it(a) -> str:  # type: ignore[no-untyped-def]
        return f"{type(a).__name__} {a}"

    it.__annotations__["a"] = annotation
    if default is not ...:
        it.__defaults__ = (default,)
    server = Server("s")
    server.tools.add(it)
    return asyncio.run(ask(server, "tools/list"))["result"]["tools"][0]["inputSchema"]


def result_of(annotation: Any, value: Any) -> str:
    """Return the text of the result of a tool that is called with this argument."""

    async def it(a) -> str:  # type: ignore[no-untyped-def]
        return f"{type(a).__name__} {a}"

    it.__annotations__["a"] = annotation
    server = Server("s")
    server.tools.add(it)
    answer = asyncio.run(ask(server, "tools/call", {"name": "it", "arguments": {"a": value}}))
    return str(answer["result"]["content"][0]["text"])


@pytest.mark.parametrize(
    ("marker", "kind", "expected"),
    [
        (pydantic.Field(ge=1, le=5), int, {"type": "integer", "minimum": 1, "maximum": 5}),
        (pydantic.Field(gt=1, lt=5), int, {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 5}),
        (pydantic.Field(multiple_of=2), int, {"type": "integer", "multipleOf": 2}),
        (pydantic.Field(min_length=1, max_length=2), str, {"type": "string", "minLength": 1, "maxLength": 2}),
        (pydantic.Field(pattern="^x$"), str, {"type": "string", "pattern": "^x$"}),
        (pydantic.Field(title="T", description="D"), str, {"type": "string", "title": "T", "description": "D"}),
        (pydantic.Field(examples=["x"]), str, {"type": "string", "examples": ["x"]}),
        (pydantic.Field(json_schema_extra={"format": "uri"}), str, {"type": "string", "format": "uri"}),
        (annotated_types.Ge(3), int, {"type": "integer", "minimum": 3}),
        (annotated_types.MinLen(3), str, {"type": "string", "minLength": 3}),
        (annotated_types.Predicate(bool), str, {"type": "string"}),
    ],
)
def test_constraints_of_a_parameter_and_of_the_items_of_a_list_are_in_the_schema(
    marker: Any, kind: Any, expected: dict[str, Any]
) -> None:
    assert schema_of(Annotated[kind, marker])["properties"]["a"] == expected
    list_schema = schema_of(list[Annotated[kind, marker]])["properties"]["a"]
    assert list_schema == {"type": "array", "items": expected}


def test_the_description_of_the_only_type_in_a_union_with_none_is_that_of_the_parameter() -> None:
    kind = Annotated[int, pydantic.Field(description="D", ge=1)]
    members = [{"type": "integer", "minimum": 1}, {"type": "null"}]
    assert schema_of(kind | None)["properties"]["a"] == {"anyOf": members, "description": "D"}
    items = schema_of(list[kind | None])["properties"]["a"]["items"]
    assert items == {"anyOf": [{**members[0], "description": "D"}, members[1]]}


def test_constraints_of_several_libraries_are_combined_in_nested_types() -> None:
    inner = Annotated[int, msgspec.Meta(le=9), annotated_types.Ge(1), "text"]
    mapping_schema = schema_of(dict[str, inner])["properties"]["a"]
    assert mapping_schema["additionalProperties"] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert result_of(list[inner], [1, 9]) == "list [1, 9]"
    assert result_of(list[inner], [0]).startswith("Invalid arguments")
    assert result_of(list[inner], [10]).startswith("Invalid arguments")
    union = schema_of(list[Annotated[int, annotated_types.Ge(1)] | None])["properties"]["a"]["items"]
    assert {"type": "integer", "minimum": 1} in union["anyOf"]
    assert schema_of(list[Literal["x"]])["properties"]["a"]["items"] == {"enum": ["x"]}
    assert schema_of(list[object])["properties"]["a"] == {"type": "array"}


@pytest.mark.parametrize(
    "marker",
    [
        pydantic.Field(alias="b"),
        pydantic.Field(validation_alias="b"),
        pydantic.Field(validation_alias="b", alias="c"),
    ],
)
def test_an_alias_is_refused(marker: Any) -> None:
    with pytest.raises(TypeError, match="a parameter cannot have an alias"):
        schema_of(Annotated[int, marker])
    with pytest.raises(TypeError, match="a parameter cannot have an alias"):
        schema_of(list[Annotated[int, marker]])


def test_a_parameter_with_a_default_in_its_field_is_not_required() -> None:
    assert "required" not in schema_of(Annotated[int, pydantic.Field(default=3)])
    assert "required" not in schema_of(Annotated[list[int], pydantic.Field(default_factory=list)])
    assert schema_of(Annotated[int, pydantic.Field()])["required"] == ["a"]


def test_paths_are_strings_in_json_and_paths_in_python() -> None:
    assert schema_of(PurePosixPath)["properties"]["a"]["type"] == "string"
    assert result_of(PurePosixPath, "x/y") == "PurePosixPath x/y"
    assert result_of(list[PurePosixPath], ["x"]) == "list [PurePosixPath('x')]"
    assert "expected a string" in result_of(list[PurePosixPath], [5])


class Crew(pydantic.BaseModel):
    name: str
    age: Annotated[int, pydantic.Field(ge=18)]
    mates: list["Crew"] = []  # noqa: UP037

    @pydantic.field_validator("name")
    @classmethod
    def not_bob(cls, name: str) -> str:
        assert name != "Abe", "Not Abe"
        if name == "Bob":
            raise ValueError("Not Bob")
        return name


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"name": "Ann"}, "a.age: missing"),
        ({"name": 5, "age": 20}, "a.name: expected a string"),
        ({"name": "Ann", "age": "20"}, "a.age: expected an integer"),
        ({"name": "Ann", "age": 17}, "a.age: input should be greater than or equal to 18"),
        ({"name": "Bob", "age": 20}, "a.name: Not Bob"),
        ({"name": "Abe", "age": 20}, "a.name: Not Abe"),
        ({"name": "Ann", "age": 20, "mates": [{"name": "x", "age": 1}]}, "a.mates[0].age: "),
        ({"name": "Ann", "age": 20, "mates": {}}, "a.mates: expected an array"),
        ({"name": "Ann", "age": 20, "mates": [5]}, "a.mates[0]: expected an object"),
    ],
)
def test_faults_in_a_model_are_reported_with_their_path(value: Any, fault: str) -> None:
    assert result_of(Crew, value).startswith(f"Invalid arguments:\n{fault}")


def test_a_model_class_is_not_a_value() -> None:
    """A bug: the error said that an argument of `model_dump_json` is missing."""
    with pytest.raises(TypeError, match="JSON cannot express ModelMetaclass"):
        to_json(Crew)


def test_the_schema_of_a_model_has_all_its_definitions() -> None:
    schema = schema_of(list[Crew])
    assert schema["properties"]["a"]["items"] == {"$ref": "#/$defs/Crew"}
    assert set(schema["$defs"]["Crew"]["properties"]) == {"name", "age", "mates"}
    assert result_of(Crew, {"name": "Ann", "age": 20}).startswith("Crew name='Ann' age=20")


def test_two_types_with_the_same_name_are_refused_at_any_depth() -> None:
    class Vessel(pydantic.BaseModel):
        crew: Crew

    def make_other_model() -> Any:
        class Crew(pydantic.BaseModel):
            size: int

        class Holder(pydantic.BaseModel):
            crew: Crew

        return Holder

    with pytest.raises(TypeError, match="two different types are called 'Crew'"):
        schema_of(tuple[Vessel, make_other_model()])


def test_paths_and_models_in_results_are_encoded_and_other_objects_are_an_error() -> None:
    server = Server("s")
    server.tools.add(lambda: {"a": Path("x/y")}, name="path")
    server.tools.add(lambda: {"a": Crew(name="Ann", age=20)}, name="crew")
    server.tools.add(lambda: {"a": object()}, name="odd")

    def result(name: str) -> Any:
        return asyncio.run(ask(server, "tools/call", {"name": name}))["result"]

    assert result("path")["structuredContent"] == {"a": str(Path("x/y"))}
    assert result("crew")["structuredContent"] == {"a": {"name": "Ann", "age": 20, "mates": []}}
    assert result("odd")["isError"] is True
