"""From types to forms, and from what was filled in to values."""

from __future__ import annotations

import dataclasses
import json
import keyword
from datetime import date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.types.schemas import spec_folder
from wharfinger.protocol.revisions import REVISIONS
from wharfinger.server.input.forms import Misfit, form_of
from wharfinger.types import check_primitive_schema


class Quay(Enum):
    NORTH_QUAY = "n"
    SOUTH_QUAY = "s"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Everything(msgspec.Struct):
    """What a form can have.

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


_DEFS = {"2025-06-18": "definitions", "2025-11-25": "$defs", "2026-07-28": "$defs"}


def said(schema: Any, revision: str = "2025-11-25") -> Any:
    """The form as JSON says it."""
    return msgspec.to_builtins(form_of(schema).requested(REVISIONS[revision]))


def test_a_struct_says_all_that_a_form_can() -> None:
    assert said(Everything) == {
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


def test_the_first_revision_with_forms_gets_what_it_knows() -> None:
    fields = said(Everything, "2025-06-18")["properties"]
    assert fields["quay"] == {"type": "string", "enum": ["n", "s"], "enumNames": ["North quay", "South quay"]}
    assert fields["some"] == {"type": "string", "description": "Any of x, y; with commas between them."}
    assert fields["tugs"] == {"type": "integer", "description": "How many", "minimum": 4}
    assert fields["ok"] == {"type": "boolean", "default": True}


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
def test_a_form_is_what_the_published_schema_of_its_revision_says(revision: str) -> None:
    params = {"message": "?", "requestedSchema": said(Everything, revision)}
    jsonschema_rs = pytest.importorskip("jsonschema_rs")
    schema = json.loads((spec_folder() / f"schema-{revision}.json").read_text())
    validator = jsonschema_rs.validator_for({**schema, "$ref": f"#/{_DEFS[revision]}/ElicitRequest"})
    request = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params}
    assert [error.message for error in validator.iter_errors(request)] == []


def test_an_answer_becomes_the_type() -> None:
    content = {"mail": "a@b", "since": "2026-01-02", "quay": "s", "some": ["x"], "tugs": 7.0, "other": 1, "colour": ""}
    assert form_of(Everything).read(content) == Everything(
        mail="a@b", since=date(2026, 1, 2), quay=Quay.SOUTH_QUAY, some=["x"], tugs=7
    )
    assert form_of(Everything).read({"mail": "a@b", "some": "x, y", "at": None}).some == ["x", "y"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({}, "mail: missing"),
        ([], "content: expected an object"),
        ({"mail": 5}, "mail: is no text"),
        ({"mail": "a"}, "mail: is no email"),
        ({"mail": "a@b", "since": "tomorrow"}, "since: is no date"),
        ({"mail": "a@b", "since": "2026-01-02T00:00:00Z"}, "since: is no date"),
        ({"mail": "a@b", "at": "noon"}, "at: is no date-time"),
        ({"mail": "a@b", "quay": "NORTH_QUAY"}, "quay: must be one of n, s"),
        ({"mail": "a@b", "tugs": 3}, "tugs: must be at least 4"),
        ({"mail": "a@b", "tugs": 4.5}, "tugs: is no whole number"),
        ({"mail": "a@b", "tugs": True}, "tugs: is no number"),
        ({"mail": "a@b", "ok": 1}, "ok: is neither true nor false"),
        ({"mail": "a@b", "some": ["z"]}, "some: must be some of x, y"),
        ({"mail": "a@b", "some": 5}, "some: is no list"),
        ({"mail": "a@b", "code": "ABCD"}, "code: must have at most 3 characters"),
        ({"mail": "a@b", "code": "a"}, "code: expected str matching regex '^[A-Z]+$'"),
        ({"ok": 1, "mail": 1}, "mail: is no text\nok: is neither true nor false"),
    ],
)
def test_what_does_not_fit_is_told_field_by_field(content: Any, fault: str) -> None:
    with pytest.raises(Misfit) as caught:
        form_of(Everything).read(content)
    assert str(caught.value) == fault


class Nested(msgspec.Struct):
    inner: Everything


@dataclasses.dataclass
class Tags:
    tags: list[str]


NO_FORMS: list[tuple[Any, str]] = [
    (Nested, "Nested.inner: a form has flat fields only"),
    (Tags, "Tags.tags: a form has flat fields only"),
    (dict[str, int], "value: a form has flat fields only"),
    (tuple[int, int], "value: a form has flat fields only"),
    (bytes, "value: a form has flat fields only"),
    (int | str, "a union is none of these"),
    (Literal[1, 2], "value: the choices of a form are text"),
    (object, "value: a form has flat fields only"),
    ({"type": "object", "properties": {"a": {"type": "object"}}}, "a: a form has flat fields only"),
    ({"type": "object", "properties": {"a": {"type": "number", "format": "email"}}}, "a: a form has flat fields only"),
    ({"type": "object", "properties": {}, "required": ["a"]}, "requires 'a'"),
    ({"a": 1}, "a form written by hand"),
]


@pytest.mark.parametrize(("schema", "message"), NO_FORMS, ids=[message[:20] for _, message in NO_FORMS])
def test_what_no_form_can_have_is_refused_by_name(schema: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        form_of(schema)
    assert message.lower() in str(caught.value).lower()


class Line(TypedDict):
    text: str
    size: NotRequired[int]


def test_a_typed_dict_and_single_values_have_forms() -> None:
    assert said(Line)["required"] == ["text"]
    assert form_of(Line).read({"text": "x"}) == {"text": "x"}
    assert said(Quay)["properties"]["value"]["oneOf"][0] == {"const": "n", "title": "North quay"}
    assert form_of(Quay).read({"value": "n"}) is Quay.NORTH_QUAY
    assert "required" not in said(int | None)
    assert form_of(int | None).read({}) is None
    assert form_of(date).read({"value": "2026-07-28"}) == date(2026, 7, 28)


def test_a_form_by_hand_keeps_its_own_words() -> None:
    legacy = {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"], "default": "opt1"}
    schema = {"type": "object", "properties": {"legacy": legacy}, "required": ["legacy"]}
    assert said(schema) == schema
    assert form_of(schema).read({"legacy": "opt2"}) == {"legacy": "opt2"}
    with pytest.raises(Misfit):
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

    fields = said(Model)["properties"]
    assert fields["name"] == {"type": "string", "title": "Name", "description": "Whose", "minLength": 2}
    assert fields["colour"] == {"type": "string", "default": "red", "enum": ["red", "blue"]}
    assert form_of(Model).read({"name": "Ann", "since": "2026-01-02"}) == Model(name="Ann", since=date(2026, 1, 2))
    with pytest.raises(Misfit, match=r"name: .*not Bob"):
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
def test_any_flat_type_has_a_form_and_reads_only_what_fits(members: dict[str, Any], data: st.DataObject) -> None:
    names = {name if not keyword.iskeyword(name) else f"{name}_": kind for name, kind in members.items()}
    kind = msgspec.defstruct("Drawn", list(names.items()))
    form = form_of(kind)
    for field in form.fields.values():
        check_primitive_schema(field)
    for revision in ("2025-06-18", "2025-11-25"):
        form.requested(REVISIONS[revision])
    content = data.draw(st.fixed_dictionaries(dict.fromkeys(names, JSON)) | JSON)
    try:
        value = form.read(content)
    except Misfit:
        return
    assert isinstance(value, kind)
    assert msgspec.convert(msgspec.to_builtins(value), kind) == value
