"""Conversion of types to form schemas, and of answers to typed values."""

from __future__ import annotations

import dataclasses
import itertools
import json
import keyword
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Required, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.types.schemas import spec_folder
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.server.input import forms
from wharfinger.server.input.forms import InvalidAnswer, form_of
from wharfinger.types import check_primitive_schema


class Quay(Enum):
    NORTH_QUAY = "n"
    SOUTH_QUAY = "s"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class AllFields(msgspec.Struct):
    """Every kind of field of a form.

    Args:
        since: When it came.
    """

    mail: Annotated[str, msgspec.Meta(extra_json_schema={"format": "email"}, title="E-mail")]
    since: date | None
    quay: Quay = Quay.NORTH_QUAY
    colour: Colour | None = None
    some: list[Literal["x", "y"]] = []
    quays: list[Quay] = msgspec.field(default_factory=lambda: [Quay.SOUTH_QUAY])
    tugs: Annotated[int, msgspec.Meta(gt=3), "How many"] = 5
    draught: float = 1.5
    kind: Annotated[Literal["b", "a"], {"a": "First", "b": "Second"}] = "a"
    ok: bool = True
    at: datetime | None = None
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]+$", max_length=3)] = "A"


DEFINITIONS_KEYWORD = {"2025-06-18": "definitions", "2025-11-25": "$defs", "2026-07-28": "$defs"}


def form_schema(schema: Any, revision: str = "2025-11-25") -> Any:
    """Return the JSON Schema of a form."""
    return msgspec.to_builtins(form_of(schema).schema_for(REVISIONS[revision]))


def test_a_struct_is_converted_to_a_form_schema() -> None:
    assert form_schema(AllFields) == {
        "type": "object",
        "properties": {
            "mail": {"type": "string", "title": "E-mail", "format": "email"},
            "since": {"type": "string", "description": "When it came.", "format": "date"},
            "quay": {
                "type": "string",
                "default": "n",
                "oneOf": [{"const": "n", "title": "North quay"}, {"const": "s", "title": "South quay"}],
            },
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "some": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
            "quays": {
                "type": "array",
                "default": ["s"],
                "items": {"anyOf": [{"const": "n", "title": "North quay"}, {"const": "s", "title": "South quay"}]},
            },
            "tugs": {"type": "integer", "description": "How many", "default": 5, "minimum": 4},
            "draught": {"type": "number", "default": 1.5},
            "kind": {
                "type": "string",
                "default": "a",
                "oneOf": [{"const": "b", "title": "Second"}, {"const": "a", "title": "First"}],
            },
            "ok": {"type": "boolean", "default": True},
            "at": {"type": "string", "format": "date-time"},
            "code": {"type": "string", "default": "A", "maxLength": 3},
        },
        "required": ["mail"],
    }


def test_the_form_schema_is_reduced_for_2025_06_18() -> None:
    fields = form_schema(AllFields, "2025-06-18")["properties"]
    assert fields["quay"] == {"type": "string", "enum": ["n", "s"], "enumNames": ["North quay", "South quay"]}
    assert fields["some"] == {"type": "string", "description": "Any of x, y; with commas between them."}
    assert fields["tugs"] == {"type": "integer", "description": "How many", "minimum": 4}
    assert fields["ok"] == {"type": "boolean", "default": True}


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_a_form_matches_the_published_schema_of_its_revision(revision: str) -> None:
    params = {"message": "?", "requestedSchema": form_schema(AllFields, revision)}
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    schema = json.loads((spec_folder() / f"schema-{revision}.json").read_text())
    validator = jsonschema_rs.validator_for({**schema, "$ref": f"#/{DEFINITIONS_KEYWORD[revision]}/ElicitRequest"})
    request = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params}
    assert [error.message for error in validator.iter_errors(request)] == []


def test_an_answer_is_converted_to_the_type_of_the_form() -> None:
    content = {"mail": "a@b", "since": "2026-01-02", "quay": "s", "some": ["x"], "tugs": 7.0, "other": 1, "colour": ""}
    assert form_of(AllFields).read(content) == AllFields(
        mail="a@b", since=date(2026, 1, 2), quay=Quay.SOUTH_QUAY, some=["x"], tugs=7
    )
    assert form_of(AllFields).read({"mail": "a@b", "some": "x, y", "at": None}).some == ["x", "y"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({}, "mail: missing"),
        ([], "content: expected an object"),
        ({"mail": 5}, "mail: must be text"),
        ({"mail": "a"}, "mail: is not a valid email"),
        ({"mail": "a@b", "since": "tomorrow"}, "since: is not a valid date"),
        ({"mail": "a@b", "since": "2026-01-02T00:00:00Z"}, "since: is not a valid date"),
        ({"mail": "a@b", "at": "noon"}, "at: is not a valid date-time"),
        ({"mail": "a@b", "quay": "NORTH_QUAY"}, "quay: must be one of n, s"),
        ({"mail": "a@b", "tugs": 3}, "tugs: must be at least 4"),
        ({"mail": "a@b", "tugs": 4.5}, "tugs: must be a whole number"),
        ({"mail": "a@b", "tugs": True}, "tugs: must be a number"),
        ({"mail": "a@b", "ok": 1}, "ok: must be true or false"),
        ({"mail": "a@b", "some": ["z"]}, "some: must be some of x, y"),
        ({"mail": "a@b", "some": 5}, "some: must be a list"),
        ({"mail": "a@b", "code": "ABCD"}, "code: must have at most 3 characters"),
        ({"mail": "a@b", "code": "a"}, "code: expected str matching regex '^[A-Z]+$'"),
        ({"ok": 1, "mail": 1}, "mail: must be text\nok: must be true or false"),
    ],
)
def test_invalid_answers_are_reported_field_by_field(content: Any, fault: str) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        form_of(AllFields).read(content)
    assert str(caught.value) == fault


class Nested(msgspec.Struct):
    inner: AllFields


@dataclasses.dataclass
class Tags:
    tags: list[str]


UNSUPPORTED_SCHEMAS: list[tuple[Any, str]] = [
    (Nested, "Nested.inner: a form has only flat fields"),
    (Tags, "Tags.tags: a form has only flat fields"),
    (dict[str, int], "value: a form has only flat fields"),
    (tuple[int, int], "value: a form has only flat fields"),
    (bytes, "dates, one or several choices), and bytes is not one of them"),
    (int | str, "a union is not one of them"),
    (Literal[1, 2], "value: the choices of a form are text"),
    (object, "value: a form has only flat fields"),
    ({"type": "object", "properties": {"a": {"type": "object"}}}, "a: a form has only flat fields"),
    ({"type": "object", "properties": {"a": {"type": "number", "format": "email"}}}, "a: a form has only flat fields"),
    ({"type": "object", "properties": {}, "required": ["a"]}, "requires 'a'"),
    ({"a": 1}, "a schema of a form"),
]


@pytest.mark.parametrize(
    ("schema", "message"), UNSUPPORTED_SCHEMAS, ids=[message[:20] for _, message in UNSUPPORTED_SCHEMAS]
)
def test_the_error_for_a_type_that_a_form_cannot_represent_names_the_field(schema: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        form_of(schema)
    assert message.lower() in str(caught.value).lower()


class Line(TypedDict):
    text: str
    size: NotRequired[int]


def test_a_typed_dict_and_single_values_have_forms() -> None:
    assert form_schema(Line)["required"] == ["text"]
    assert form_of(Line).read({"text": "x"}) == {"text": "x"}
    assert form_schema(Quay)["properties"]["value"]["oneOf"][0] == {"const": "n", "title": "North quay"}
    assert form_of(Quay).read({"value": "n"}) is Quay.NORTH_QUAY
    assert "required" not in form_schema(int | None)
    assert form_of(int | None).read({}) is None
    assert form_of(date).read({"value": "2026-07-28"}) == date(2026, 7, 28)


def test_an_explicit_form_schema_is_sent_unchanged() -> None:
    legacy = {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"], "default": "opt1"}
    schema = {"type": "object", "properties": {"legacy": legacy}, "required": ["legacy"]}
    assert form_schema(schema) == schema
    assert form_of(schema).read({"legacy": "opt2"}) == {"legacy": "opt2"}
    with pytest.raises(InvalidAnswer):
        form_of(schema).read({"legacy": "One"})


def test_a_pydantic_model_has_a_form() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        name: Annotated[str, pydantic.Field(description="Whose", min_length=2)]
        colour: Colour = Colour.RED
        since: date | None = None
        some: list[Literal["a", "b"]] = ["a"]  # noqa: RUF012  # pydantic copies it

        @pydantic.field_validator("name")
        @classmethod
        def no_bob(cls, name: str) -> str:
            if name == "Bob":
                raise ValueError("not Bob")
            return name

    fields = form_schema(Model)["properties"]
    assert fields["name"] == {"type": "string", "title": "Name", "description": "Whose", "minLength": 2}
    assert fields["colour"] == {"type": "string", "default": "red", "enum": ["red", "blue"]}
    assert form_of(Model).read({"name": "Ann", "since": "2026-01-02"}) == Model(name="Ann", since=date(2026, 1, 2))
    with pytest.raises(InvalidAnswer, match=r"name: .*not Bob"):
        form_of(Model).read({"name": "Bob"})


CHOICES = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True)
KINDS = st.one_of(
    st.sampled_from([str, int, float, bool, date, datetime, Quay, Colour]),
    CHOICES.map(lambda values: Literal[tuple(values)]),
    CHOICES.map(lambda values: list[Literal[tuple(values)]]),  # type: ignore[misc]
    st.tuples(st.integers(-5, 0), st.integers(0, 5)).map(
        lambda ends: Annotated[int, msgspec.Meta(ge=ends[0], le=ends[1])]
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), KINDS, min_size=1, max_size=4), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_any_flat_type_has_a_form_that_reads_only_valid_answers(members: dict[str, Any], data: st.DataObject) -> None:
    names = {name if not keyword.iskeyword(name) else f"{name}_": kind for name, kind in members.items()}
    kind = msgspec.defstruct("Drawn", list(names.items()))
    form = form_of(kind)
    for field in form.fields.values():
        check_primitive_schema(field)
    for revision in ("2025-06-18", "2025-11-25"):
        form.schema_for(REVISIONS[revision])
    content = data.draw(st.fixed_dictionaries(dict.fromkeys(names, JSON)) | JSON)
    try:
        value = form.read(content)
    except InvalidAnswer:
        return
    assert isinstance(value, kind)
    assert msgspec.convert(msgspec.to_builtins(value), kind) == value


# -- constraints, fields and invalid schemas


class FakeModel:
    """A class with the JSON Schema methods of a pydantic model."""

    def __init__(self, properties: dict[str, Any], *required: str, **keywords: Any) -> None:
        self.schema = {"type": "object", "properties": properties, "required": list(required), **keywords}
        self.__name__ = "FakeModel"

    def model_json_schema(self) -> dict[str, Any]:
        return self.schema

    def model_validate_json(self, data: bytes) -> Any:
        value = msgspec.json.decode(data)
        if value.get("refused"):
            raise ValueError("for reasons of its own")
        return value


def field_of(raw: dict[str, Any], **keywords: Any) -> Any:
    """Return the form field of a schema with one property."""
    return form_schema(FakeModel({"a": raw}, **keywords))["properties"]["a"]


BOUNDS: list[tuple[Any, Any, Any, str]] = [
    (Annotated[str, msgspec.Meta(min_length=2)], "ab", "a", "must have at least 2 characters"),
    (Annotated[str, msgspec.Meta(max_length=2)], "ab", "abc", "must have at most 2 characters"),
    (Annotated[int, msgspec.Meta(ge=2)], 2, 1, "must be at least 2"),
    (Annotated[int, msgspec.Meta(le=2)], 2, 3, "must be at most 2"),
    (Annotated[int, msgspec.Meta(gt=2)], 3, 2, "must be at least 3"),
    (Annotated[int, msgspec.Meta(lt=2)], 1, 2, "must be at most 1"),
    (Annotated[float, msgspec.Meta(ge=0.5)], 0.5, 0.4, "must be at least 0.5"),
    (Annotated[float, msgspec.Meta(le=0.5)], 0.5, 0.6, "must be at most 0.5"),
    (Annotated[float, msgspec.Meta(gt=0.5)], 0.6, 0.5, "expected float > 0.5"),
    (Annotated[list[Literal["x", "y"]], msgspec.Meta(min_length=1)], ["x"], [], "must have at least 1 choice"),
    (Annotated[list[Literal["x", "y"]], msgspec.Meta(max_length=1)], ["x"], ["x", "y"], "must have at most 1 choice"),
]


@pytest.mark.parametrize(("kind", "valid_value", "invalid_value", "fault"), BOUNDS)
def test_each_constraint_accepts_its_bound_and_refuses_the_next_value(
    kind: Any, valid_value: Any, invalid_value: Any, fault: str
) -> None:
    assert form_of(kind).read({"value": valid_value}) == valid_value
    with pytest.raises(InvalidAnswer) as caught:
        form_of(kind).read({"value": invalid_value})
    assert str(caught.value) == f"value: {fault}"


@pytest.mark.parametrize(
    ("format", "valid_texts", "invalid_texts"),
    [
        ("email", ["a@b", "a.b+c@d.e"], ["a", "@b", "a@", "a@b@c", "a b@c", "a@b c", " a@b"]),
        ("uri", ["a:b", "file:///x", "A1+.-:x"], ["a:", "1a:b", "ab", ":b", "a:b c", "a_b:c"]),
        ("date", ["2026-07-28"], ["2026-7-28", "2026-13-01", "2026-07-28T00:00:00Z", ""]),
        ("date-time", ["2026-07-28T10:00:00Z", "2026-07-28T10:00:00"], ["10:00", "2026-07-28T25:00:00Z"]),
    ],
)
def test_each_string_format_is_validated(format: str, valid_texts: list[str], invalid_texts: list[str]) -> None:
    form = form_of({"properties": {"a": {"type": "string", "format": format}}, "required": ["a"]})
    for text in valid_texts:
        assert form.read({"a": text}) == {"a": text}
    for text in invalid_texts:
        with pytest.raises(InvalidAnswer) as caught:
            form.read({"a": text})
        assert str(caught.value) == f"a: is not a valid {format}"


def test_missing_content_is_read_as_an_empty_form() -> None:
    assert form_of(int | None).read(msgspec.UNSET) is None
    with pytest.raises(InvalidAnswer, match="mail: missing"):
        form_of(AllFields).read(msgspec.UNSET)
    with pytest.raises(InvalidAnswer, match="content: expected an object"):
        form_of(int | None).read(None)


def test_an_empty_string_leaves_out_an_optional_field_and_is_invalid_in_a_required_one_unless_it_allows_text() -> None:
    empty = {"since": "", "quay": "", "colour": "", "some": "", "tugs": "", "draught": "", "kind": "", "at": ""}
    assert form_of(AllFields).read({"mail": "a@b", **empty}) == AllFields(mail="a@b", since=None)
    assert form_of(str).read({"value": ""}) == ""
    assert form_of(str | None).read({"value": ""}) == ""
    with pytest.raises(InvalidAnswer, match="value: must be one of n, s"):
        form_of(Quay).read({"value": ""})
    with pytest.raises(InvalidAnswer, match="value: must be a number"):
        form_of(int).read({"value": ""})


@pytest.mark.parametrize(
    ("value", "fault"),
    [(None, "missing"), ({}, "must be a number"), ("x", "must be a number"), ([1], "must be a number")],
)
def test_null_in_a_required_field_is_missing_and_a_value_of_another_type_is_invalid(value: Any, fault: str) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        form_of(int).read({"value": value})
    assert str(caught.value) == f"value: {fault}"


def test_an_optional_field_without_an_answer_is_none() -> None:
    class OptionalFields(msgspec.Struct):
        needed: int | None
        other: int | None = 5

    assert "required" not in form_schema(OptionalFields)
    assert form_of(OptionalFields).read({}) == OptionalFields(needed=None, other=5)
    assert form_of(OptionalFields).read({"needed": 1, "other": None}) == OptionalFields(needed=1, other=5)


@dataclasses.dataclass
class Ship:
    name: str
    tugs: int = 2
    colours: list[Colour] = dataclasses.field(default_factory=lambda: [Colour.BLUE])


def test_a_form_of_a_dataclass_has_its_defaults_and_required_fields() -> None:
    assert form_schema(Ship) == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "tugs": {"type": "integer", "default": 2},
            "colours": {
                "type": "array",
                "default": ["blue"],
                "items": {"type": "string", "enum": ["red", "blue"]},
            },
        },
        "required": ["name"],
    }
    assert form_of(Ship).read({"name": "Mary"}) == Ship("Mary")


class PartialDict(TypedDict, total=False):
    needed: Required[str]
    free: str
    also_free: NotRequired[int]


class TotalDict(TypedDict):
    needed: Annotated[str, "Which one"]
    free: NotRequired[Annotated[int, "How many"]]


@pytest.mark.parametrize("kind", [PartialDict, TotalDict])
def test_required_and_not_required_of_a_typed_dict_are_read_from_string_annotations(kind: Any) -> None:
    assert form_schema(kind)["required"] == ["needed"]
    assert form_of(kind).read({"needed": "x"}) == {"needed": "x"}


def test_descriptions_come_from_annotations_and_docstrings_but_not_from_generated_docstrings() -> None:
    class DescribedFields(msgspec.Struct):
        """Some fields.

        Args:
            one: From the docstring.
            two: Not this.
            three: Nor this.
        """

        one: str
        two: Annotated[str, "From the annotation"]
        three: Annotated[str, msgspec.Meta(description="From msgspec"), "Not this"]
        four: str

    texts = {name: field.get("description") for name, field in form_schema(DescribedFields)["properties"].items()}
    assert texts == {
        "one": "From the docstring.",
        "two": "From the annotation",
        "three": "From msgspec",
        "four": None,
    }
    assert "description" not in form_schema(Ship)["properties"]["name"]
    field = form_schema(Annotated[list[Literal["x"]], "Which"], "2025-06-18")["properties"]["value"]
    assert field == {"type": "string", "description": "Which Any of x; with commas between them."}


def test_defaults_are_sent_as_json_unless_they_are_none_or_empty() -> None:
    class Defaults(msgspec.Struct):
        on: date = date(2026, 7, 28)
        many: set[Literal["a"]] = msgspec.field(default_factory=lambda: {"a"})
        few: set[Literal["a"]] = msgspec.field(default_factory=set)
        none: str | None = None
        zero: int = 0
        no: bool = False

    fields = form_schema(Defaults)["properties"]
    assert {name: field["default"] for name, field in fields.items() if "default" in field} == {
        "on": "2026-07-28",
        "many": ["a"],
        "zero": 0,
        "no": False,
    }
    older = form_schema(Defaults, "2025-06-18")["properties"]
    assert {name: field["default"] for name, field in older.items() if "default" in field} == {"no": False}


@pytest.mark.parametrize("is_struct", [True, False])
def test_each_form_has_a_new_default_of_a_factory(is_struct: bool) -> None:
    """A bug: the default of the first form was shown in all later ones."""
    numbers = itertools.count(1)

    class Struct(msgspec.Struct):
        berth: int = msgspec.field(default_factory=lambda: next(numbers))

    @dataclasses.dataclass
    class Record:
        berth: int = dataclasses.field(default_factory=lambda: next(numbers))

    schema = Struct if is_struct else Record
    assert [form_of(schema).fields["berth"].default for _ in range(3)] == [1, 2, 3]


def test_the_error_for_an_invalid_default_names_the_field() -> None:
    class InvalidDefault(msgspec.Struct):
        size: Annotated[int, msgspec.Meta(ge=3)] = 2

    with pytest.raises(TypeError, match=r"^InvalidDefault.size: its default must be at least 3\.$"):
        form_of(InvalidDefault)
    with pytest.raises(TypeError, match=r"^FakeModel.a: its default must be a number\.$"):
        form_of(FakeModel({"a": {"type": "integer", "default": "x"}}))


class ValidatedStruct(msgspec.Struct):
    size: int
    kind: str = ""

    def __post_init__(self) -> None:
        if self.size == 1:
            raise ValueError("One is too few")
        if self.size == 2:
            raise TypeError("Two of what")


@pytest.mark.parametrize(("size", "fault"), [(1, "value: One is too few"), (2, "value: Two of what")])
def test_errors_raised_in_post_init_are_reported_with_their_message(size: int, fault: str) -> None:
    with pytest.raises(InvalidAnswer) as caught:
        form_of(ValidatedStruct).read({"size": size})
    assert str(caught.value) == fault


def test_the_error_for_an_undefined_annotation_names_the_class() -> None:
    @dataclasses.dataclass
    class UndefinedType:
        a: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match=r"^UndefinedType: name 'Nowhere' is not defined; import or define"):
        form_of(UndefinedType)


def test_choices_have_titles_only_if_they_differ_from_the_values() -> None:
    class SameTitle(Enum):
        NORTH_QUAY = "north-quay"

    class OtherTitle(Enum):
        RED = "red"
        DARK = "b"

    assert form_schema(SameTitle)["properties"]["value"] == {"type": "string", "enum": ["north-quay"]}
    assert form_schema(OtherTitle)["properties"]["value"]["oneOf"] == [
        {"const": "red", "title": "Red"},
        {"const": "b", "title": "Dark"},
    ]
    field = form_schema(Annotated[Literal["z", "a"], {"z": "Last"}])["properties"]["value"]
    assert field == {"type": "string", "oneOf": [{"const": "z", "title": "Last"}, {"const": "a", "title": "a"}]}


def test_choices_keep_their_order() -> None:
    class Letter(Enum):
        Z = "z"
        A = "a"

    assert form_schema(Literal["z", "a"])["properties"]["value"]["enum"] == ["z", "a"]
    assert form_schema(Letter | None)["properties"]["value"] == {"type": "string", "enum": ["z", "a"]}
    assert form_schema(list[Literal["z", "a"]] | None)["properties"]["value"]["items"]["enum"] == ["z", "a"]
    titled = form_schema(Annotated[list[Literal["z", "a"]], {"z": "Zed"}])["properties"]["value"]["items"]["anyOf"]
    assert [option["const"] for option in titled] == ["z", "a"]


def test_none_among_choices_makes_the_field_optional() -> None:
    assert form_schema(Literal["b", "a", None]) == {
        "type": "object",
        "properties": {"value": {"type": "string", "enum": ["b", "a"]}},
    }
    assert form_of(Literal["b", "a", None]).read({}) is None
    assert form_of(FakeModel({"a": {"enum": ["x", None]}}, "a")).required == []
    assert field_of({"enum": ["x", None]}) == {"type": "string", "enum": ["x"]}


@pytest.mark.parametrize("kind", [datetime, datetime | None, Annotated[datetime, "When"]])
def test_datetime_fields_have_the_date_time_format(kind: Any) -> None:
    assert form_schema(kind)["properties"]["value"]["format"] == "date-time"
    assert "format" not in form_schema(str)["properties"]["value"]


def test_a_union_without_null_is_required() -> None:
    assert form_of(FakeModel({"a": {"anyOf": [{"type": "string"}]}}, "a")).required == ["a"]
    assert form_of(FakeModel({"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "a")).required == []


def test_references_and_single_alternatives_of_a_schema_are_resolved() -> None:
    shared = {"Size": {"type": "integer", "title": "Size", "description": "Of the class", "minimum": 1}}
    assert field_of({"$ref": "#/$defs/Size"}, **{"$defs": shared}) == {"type": "integer", "minimum": 1}
    assert field_of({"allOf": [{"$ref": "#/$defs/Size"}], "description": "Own"}, **{"$defs": shared}) == {
        "type": "integer",
        "minimum": 1,
        "description": "Own",
    }
    assert field_of({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "title": "T"}) == {
        "type": "string",
        "maxLength": 3,
        "title": "T",
    }
    for arms in ([{"type": "string"}, {"type": "integer"}, {"type": "null"}], [{"type": "null"}]):
        with pytest.raises(TypeError, match=r"FakeModel.a: .* a union"):
            field_of({"anyOf": arms})
    with pytest.raises(TypeError, match="anything is not one of them"):
        field_of({"allOf": [{"type": "string"}, {"maxLength": 3}]})
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(7):
        deep = {"allOf": [deep]}
    assert field_of(deep) == {"type": "string"}
    with pytest.raises(TypeError, match="anything is not one of them"):
        field_of({"allOf": [{"allOf": [deep]}]})


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({"type": "string", "format": "uuid"}, {"type": "string"}),
        ({"type": "string", "format": "email"}, {"type": "string", "format": "email"}),
        ({"type": "string", "format": "uri"}, {"type": "string", "format": "uri"}),
        ({"type": "integer", "format": "date"}, {"type": "integer"}),
        ({"type": "integer", "minLength": 1, "maxItems": 2}, {"type": "integer"}),
        ({"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 5}, {"minimum": 2, "maximum": 4}),
        ({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 5}, {"type": "number"}),
        ({"type": "number", "minimum": 1, "maximum": 5}, {"minimum": 1, "maximum": 5}),
        ({"type": "boolean", "title": "T", "minimum": 1}, {"type": "boolean", "title": "T"}),
        ({"enum": ["a"], "minLength": 1, "maxLength": 2, "format": "uri"}, {"type": "string", "enum": ["a"]}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"oneOf": [{"const": "a", "title": "A"}]}, {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}),
        (
            {"type": "array", "minItems": 1, "maxItems": 2, "minLength": 5, "items": {"const": "a"}},
            {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["a"]}},
        ),
        ({"type": "string", "default": None}, {"type": "string"}),
        ({"type": "string", "default": ""}, {"type": "string", "default": ""}),
        ({"type": "array", "items": {"const": "a"}, "default": []}, {"items": {"type": "string", "enum": ["a"]}}),
        ({"type": "string", "minLength": 1, "maxLength": 2}, {"minLength": 1, "maxLength": 2}),
    ],
)
def test_a_field_keeps_only_the_keywords_of_its_type(raw: dict[str, Any], field: dict[str, Any]) -> None:
    assert field_of(raw) == {"type": raw.get("type", "string")} | field


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"type": "string", "contentEncoding": "base64"}, "bytes is not one of them"),
        ({"type": "object"}, "object is not one of them"),
        ({"type": "array", "items": {"type": "string"}}, "a list without fixed choices"),
        ({"type": "array", "items": True}, "a list without fixed choices"),
        ({"type": "array"}, "a list without fixed choices"),
        ({"enum": [1]}, "the choices of a form are text, not [1]."),
        ({"const": 1}, "the choices of a form are text, not [1]."),
    ],
)
def test_the_error_for_an_unsupported_field_names_its_kind(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        field_of(raw)
    assert str(caught.value).startswith("FakeModel.a: ")
    assert message in str(caught.value)


def test_required_fields_of_a_model_are_optional_if_they_allow_null() -> None:
    null = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    form = form_of(FakeModel({"a": null, "b": null, "c": {"type": "string"}, "d": {"type": "string"}}, "a", "c"))
    assert form.required == ["c"]
    assert form.nullable == {"a"}
    assert form.read({"c": "x"}) == {"a": None, "c": "x"}
    assert form_of(FakeModel({"a": {"type": "string"}})).required == []


def test_validation_errors_of_a_model_are_reported_by_field_or_for_the_whole_form() -> None:
    with pytest.raises(InvalidAnswer, match=r"^content: does not fit$"):
        form_of(FakeModel({"refused": {"type": "boolean"}})).read({"refused": True})
    pydantic = pytest.importorskip("pydantic")

    class OrderedPair(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        a: int
        b: Annotated[int, pydantic.Field(gt=3)]

        @pydantic.model_validator(mode="after")
        def matching(self) -> Any:
            if self.a > self.b:
                raise ValueError("a is more than b")
            return self

    with pytest.raises(InvalidAnswer, match=r"^value: .*a is more than b$"):
        form_of(OrderedPair).read({"a": 9, "b": 5})
    with pytest.raises(InvalidAnswer) as caught:
        form_of(OrderedPair).read({"a": "x", "b": 2})
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array", "properties": {}}, "A schema of a form is an object with properties"),
        ({"type": "object", "properties": []}, "A schema of a form is an object with properties"),
        ({"type": "object"}, "A schema of a form is an object with properties"),
        ({"properties": {"a": 5}}, "and 5 is not one of them"),
        ({"properties": {"a": {"type": "object"}}}, "and object is not one of them"),
        ({"properties": {"a": {"type": "string"}}, "required": ["a", "b", "c"]}, "The form requires 'b', which"),
    ],
)
def test_an_invalid_explicit_form_schema_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        form_of(schema)
    assert message in str(caught.value)


def test_a_form_schema_may_have_no_fields() -> None:
    assert form_of({"properties": {}}).read({}) == {}


def test_several_choices_may_be_given_as_comma_separated_text() -> None:
    form = form_of(list[Literal["x", "y"]])
    assert form.read({"value": " x ,, y,"}) == ["x", "y"]
    with pytest.raises(InvalidAnswer, match=r"^value: must be some of x, y$"):
        form.read({"value": "x, z"})
    places = form_of(list[Literal["Lisbon", "Lisbon, PT", "Porto"]])  # a bug: a choice with a comma was refused
    assert places.read({"value": "Lisbon, PT , Porto"}) == ["Lisbon, PT", "Porto"]
    assert places.read({"value": "Porto,Lisbon"}) == ["Porto", "Lisbon"]
    titled = form_of(list[Quay])
    assert titled.read({"value": "s"}) == [Quay.SOUTH_QUAY]
    assert form_schema(list[Quay], "2025-06-18")["properties"]["value"]["description"].startswith("Any of n, s;")


def test_only_numbers_are_accepted_and_whole_floats_are_integers() -> None:
    value = form_of(int).read({"value": 7.0})
    assert (value, type(value)) == (7, int)
    assert form_of(float).read({"value": 7}) == 7.0
    for kind in (int, float):
        for invalid_value in (True, "7", [7]):
            with pytest.raises(InvalidAnswer, match=r"^value: must be a number$"):
                form_of(kind).read({"value": invalid_value})
    with pytest.raises(InvalidAnswer, match=r"^value: must be a whole number$"):
        form_of(int).read({"value": 7.5})


def test_a_form_is_built_once_for_each_type() -> None:
    assert form_of(Line) is form_of(Line)
    assert form_of(Line) is not form_of(ValidatedStruct)


def test_the_number_of_cached_forms_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_forms", {})
    monkeypatch.setattr(forms, "_MAX_CACHED_FORMS", 2)
    first = [form_of(kind) for kind in (int, float, bool)]
    assert [form_of(kind) is form for kind, form in zip((int, float, bool), first, strict=True)] == [True, True, False]


def test_choices_have_the_order_of_their_own_question() -> None:
    """A bug: `Literal`s with the same choices are equal, and the first one's form was used for both."""
    for choices in (["near", "far"], ["far", "near"]):
        field = form_of(Literal[tuple(choices)]).fields["value"]  # type: ignore[misc]
        assert field.enum == choices
