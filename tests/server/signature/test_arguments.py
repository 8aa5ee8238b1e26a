"""Signatures: the schema and the decoder of a function's arguments, and the errors for invalid arguments."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import functools
import inspect
import uuid
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import annotated_types
import jsonschema
import msgspec
import pydantic
import pytest

from tests.server.driving import ask
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.signature.arguments import BadArguments, Signature
from wharfinger.server.signature.complete import Complete
from wharfinger.server.signature.docstrings import parse_docstring
from wharfinger.server.signature.header_params import Header

if TYPE_CHECKING:
    from collections import OrderedDict as TypeCheckingOnly

    from wharfinger.server import context


class Side(Enum):
    PORT = "port"
    STARBOARD = "starboard"


class Berth(msgspec.Struct):
    quay: int
    side: Side = Side.PORT


@dataclasses.dataclass
class Ship:
    name: str
    tons: float = 0.0


class Cargo(TypedDict):
    what: str
    crates: int


class Bulk(msgspec.Struct, forbid_unknown_fields=True):
    tons: float


def vessels(typed: str) -> list[str]:
    return [typed]


def everything(
    text: str,
    count: int,
    share: float,
    sure: bool,
    names: list[str],
    extra: dict[str, int],
    mode: Literal["in", "out"],
    side: Side,
    berth: Berth,
    ship: Ship,
    cargo: Cargo,
    which: int | str,
    load: Berth | Bulk,
    where: Path,
    anything,  # type: ignore[no-untyped-def]
    maybe: Optional[int] = None,  # noqa: UP045
    loose: str = None,  # type: ignore[assignment]  # noqa: RUF013
    level: Annotated[int, msgspec.Meta(ge=1, le=5), "How loud."] = 3,
    tags: list[str] = [],  # noqa: B006
) -> None:
    """Do it.

    More about it.

    Args:
        text: What to say,
            in words.
        count (int): How often.
        level: Overridden by the annotation.

    Returns:
        count: not an argument.
    """


VALID_ARGUMENTS: dict[str, Any] = {
    "text": '{"x": 1}',
    "count": 3,
    "share": 1,
    "sure": True,
    "names": ["a"],
    "extra": {"a": 1},
    "mode": "in",
    "side": "port",
    "berth": {"quay": 1},
    "ship": {"name": "Mary"},
    "cargo": {"what": "rope", "crates": 2},
    "which": "x",
    "load": {"tons": 2},
    "where": "a/b",
    "anything": [None],
}


def decode(function: Any, arguments: Any) -> dict[str, Any]:
    return Signature(function).decode(msgspec.json.encode(arguments))


def faults(function: Any, arguments: Any) -> list[str]:
    with pytest.raises(BadArguments) as caught:
        decode(function, arguments)
    return caught.value.faults


def test_every_kind_of_parameter_is_decoded() -> None:
    assert decode(everything, VALID_ARGUMENTS) == VALID_ARGUMENTS | {
        "share": 1.0,
        "side": Side.PORT,
        "berth": Berth(1),
        "ship": Ship("Mary"),
        "load": Bulk(2.0),
        "where": Path("a/b"),
    }


def test_omitted_arguments_keep_the_default_of_the_function() -> None:
    assert "tags" not in decode(everything, VALID_ARGUMENTS)
    assert decode(everything, VALID_ARGUMENTS | {"maybe": None, "loose": None, "level": 5})["level"] == 5


def test_the_schema_has_types_descriptions_defaults_and_constraints() -> None:
    schema = Signature(everything).schema
    properties = schema["properties"]
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert schema["required"] == list(VALID_ARGUMENTS)
    assert properties["text"] == {"type": "string", "description": "What to say, in words."}
    assert properties["count"] == {"type": "integer", "description": "How often."}
    assert properties["level"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 5,
        "description": "How loud.",
        "default": 3,
    }
    assert properties["mode"] == {"enum": ["in", "out"]}
    assert properties["berth"] == {"$ref": "#/$defs/Berth"}
    assert properties["load"] == {"anyOf": [{"$ref": "#/$defs/Berth"}, {"$ref": "#/$defs/Bulk"}]}
    assert properties["where"] == {"type": "string"}
    assert properties["anything"] == {}
    assert properties["tags"]["default"] == []
    assert set(schema["$defs"]) == {"Side", "Berth", "Ship", "Cargo", "Bulk"}
    assert b"tests" not in msgspec.json.encode(schema)


def test_the_schema_and_the_decoder_accept_the_same_arguments() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = Signature(everything).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(VALID_ARGUMENTS, schema)
    for name, value in (("count", "1"), ("count", True), ("mode", "up"), ("load", {}), ("names", [1]), ("other", 1)):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(VALID_ARGUMENTS | {name: value}, schema)
        faults(everything, VALID_ARGUMENTS | {name: value})


def test_a_function_without_parameters_accepts_only_an_empty_object() -> None:
    def nothing() -> None: ...

    assert Signature(nothing).schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert Signature(nothing).decode(msgspec.UNSET) == {}
    assert faults(nothing, {"a": 1}) == ["a: no such argument; there are none"]


@pytest.mark.parametrize("value", ["1", True, " 7 ", 1.5, None, [], {}])
def test_values_of_other_types_are_not_converted_to_integers(value: Any) -> None:
    def f(count: int) -> None: ...

    (line,) = faults(f, {"count": value})
    assert line.startswith("count: expected an integer, got ")


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("sure", 1, "sure: expected true or false, got an integer"),
        ("names", ["a", 2], "names[1]: expected a string, got an integer"),
        ("names", "[]", "names: expected an array, got a string"),
        ("extra", {"secret": "s3cret"}, "extra[...]: expected an integer, got a string"),
        ("mode", "s3cret", 'mode: must be one of "in", "out"'),
        ("side", "s3cret", 'side: must be one of "port", "starboard"'),
        ("berth", {"quay": 1, "side": "s3cret"}, "berth.side: is not one of the allowed values"),
        ("berth", {}, "berth.quay: missing"),
        ("ship", {"name": 1}, "ship.name: expected a string, got an integer"),
        ("cargo", {"what": "rope"}, "cargo.crates: missing"),
        ("which", [], "which: expected an integer or a string, got an array"),
        ("load", {"s3cret": 1}, "load: does not match any of its 2 types"),
        ("where", 1, "where: expected a string"),
        ("level", 9, "level: expected an integer <= 5"),
        ("s3cret\n" * 20, 1, None),
    ],
)
def test_each_fault_is_one_line_with_its_path_and_without_the_value(name: str, value: Any, line: str | None) -> None:
    (found,) = faults(everything, VALID_ARGUMENTS | {name: value})
    if line is not None:
        assert found == line
        assert "s3cret" not in found
    assert "\n" not in found and "msgspec" not in found and len(found) < 300


def test_all_faults_are_reported_at_once() -> None:
    def f(a: int, b: str, c: bool = False) -> None: ...

    assert faults(f, {"a": "x", "c": 0, "d": 1}) == [
        "a: expected an integer, got a string",
        "b: missing",
        "c: expected true or false, got an integer",
        "d: no such argument; the arguments are a, b, c",
    ]
    assert faults(f, [1]) == ["arguments: expected an object"]


class TonsOfGrain(msgspec.Struct, forbid_unknown_fields=True):
    grain: int


class TonsOfOil(msgspec.Struct, forbid_unknown_fields=True):
    oil: int


def test_a_union_of_structs_accepts_1_0_as_an_integer_and_is_reported_with_the_other_faults() -> None:
    def f(load: TonsOfGrain | TonsOfOil, berth: int = 0) -> None: ...

    assert decode(f, {"load": {"oil": 1.0}})["load"] == TonsOfOil(1)
    assert faults(f, {"load": 1, "quay": 2}) == [
        "load: does not match any of its 2 types",
        "quay: no such argument; the arguments are load, berth",
    ]


@pytest.mark.parametrize("levels", [900, 100_000])
def test_an_argument_that_is_nested_too_deeply_is_a_fault(levels: int) -> None:
    def f(x: int) -> None: ...

    with pytest.raises(BadArguments):
        Signature(f).decode(b'{"x": ' + b"[" * levels + b"1.5" + b"]" * levels + b"}")


def test_errors_raised_in_post_init_are_reported_with_their_message() -> None:
    class Even(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("n must be even")

    def f(x: Even) -> None: ...

    assert faults(f, {"x": {"n": 1}}) == ["x: n must be even"]


def test_a_context_is_found_by_annotation_and_is_not_an_argument() -> None:
    def plain(ctx: Context, a: int) -> None: ...
    def typed(a: int, *, c: Context[dict[str, int]]) -> None: ...
    def by_text(a: int, ctx: context.Context[TypeCheckingOnly]) -> None: ...

    for function, name in ((plain, "ctx"), (typed, "c"), (by_text, "ctx")):
        signature = Signature(function)
        assert (signature.context, list(signature.parameters)) == (name, ["a"])
        assert signature.decode(b'{"a":1}') == {"a": 1}


def test_partials_and_callable_objects_have_signatures() -> None:
    class Caller:
        def __call__(self, a: int) -> str:
            return str(a)

    def f(a: int, b: str) -> None: ...

    assert Signature(Caller()).schema["properties"] == {"a": {"type": "integer"}}
    assert list(Signature(functools.partial(f, b="x")).parameters) == ["a", "b"]


def test_completers_are_read_from_annotations_and_choices() -> None:
    def f(
        vessel: Annotated[str, Complete(vessels), "Which."], mode: Literal["in", "out"], side: Side | None = None
    ) -> None: ...

    signature = Signature(f)
    assert signature.completers["vessel"].values is vessels
    assert signature.completers["mode"].values == ["in", "out"]
    assert signature.completers["side"].values == ["port", "starboard"]
    assert signature.schema["properties"]["vessel"] == {"type": "string", "description": "Which."}


def test_a_parameter_without_a_json_type_is_refused_at_registration() -> None:
    def var_positional(*names: str) -> None: ...
    def var_keyword(**names: str) -> None: ...
    def positional_only(a: int, /) -> None: ...
    def type_checking_only(a: TypeCheckingOnly) -> None: ...
    def undefined_type(a: threading_lock) -> None: ...  # type: ignore[name-defined] # noqa: F821
    def metaclass_type(a: object.__class__) -> None: ...  # type: ignore[name-defined]

    for function in (var_positional, var_keyword, positional_only, type_checking_only, undefined_type, metaclass_type):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\)"):
            Signature(function)


def test_prompt_arguments_are_decoded_from_strings() -> None:
    def f(
        a: str, n: int, x: float = 0, yes: bool = False, names: list[str] | None = None, side: Side = Side.PORT
    ) -> None: ...

    signature = Signature(f)
    arguments = {"a": "1", "n": "7", "x": "2.5", "yes": "true", "names": '["k"]', "side": "starboard"}
    assert signature.decode_strings(arguments) == {
        "a": "1",
        "n": 7,
        "x": 2.5,
        "yes": True,
        "names": ["k"],
        "side": Side.STARBOARD,
    }
    with pytest.raises(BadArguments) as caught:
        signature.decode_strings({"n": "s3cret", "other": "x", "names": "["})
    assert caught.value.faults == [
        "a: missing",
        "n: expected an integer, got a string",
        "names: is not valid here",
        "other: no such argument; the arguments are a, n, x, yes, names, side",
    ]


def test_a_prompt_argument_may_be_the_json_of_any_member_of_a_union() -> None:
    """A bug: JSON was compared with the members without being read."""

    def f(what: Berth | Bulk, when: datetime.date | uuid.UUID | Bulk) -> None: ...

    decode = Signature(f).decode_strings
    day = datetime.date(2026, 7, 28)
    assert decode({"what": '{"tons": 2.5}', "when": "2026-07-28"}) == {"what": Bulk(2.5), "when": day}
    assert decode({"what": '{"quay": 7}', "when": '{"tons": 2.5}'}) == {"what": Berth(7), "when": Bulk(2.5)}
    with pytest.raises(BadArguments) as caught:
        decode({"what": "north", "when": '{"tons": "2.5"}'})
    assert caught.value.faults == [
        "what: does not match any of its 2 types",
        "when: does not match any of its 3 types",
    ]


@pytest.mark.parametrize("scalar", [datetime.date, datetime.timedelta, uuid.UUID, bytes, Side, Literal["all"]])
def test_a_prompt_argument_may_be_json_if_its_type_is_a_union_with_a_special_string(scalar: Any) -> None:
    """A bug: it was not read as JSON, because msgspec's error named only the format of the string."""

    def f(what: Any, *, many: Any = ()) -> None: ...

    f.__annotations__ = {"what": scalar | Bulk, "many": scalar | list[int]}
    decode = Signature(f).decode_strings
    assert decode({"what": ' {"tons": 2.5}', "many": "[1, 2]"}) == {"what": Bulk(2.5), "many": [1, 2]}
    with pytest.raises(BadArguments) as caught:
        decode({"what": '{"tons": "2.5"}', "many": "zzz"})
    assert caught.value.faults[0] == "what.tons: expected a number, got a string"
    assert caught.value.faults[1].startswith("many: ")


def test_a_prompt_argument_that_is_nested_too_deeply_is_a_fault() -> None:
    """A bug: it was an internal error."""

    def f(names: list[Any], what: Berth | Bulk) -> None: ...

    with pytest.raises(BadArguments) as caught:
        Signature(f).decode_strings({"names": "[" * 100_000, "what": "[" * 100_000})
    assert caught.value.faults == ["names: is nested too deeply", "what: is nested too deeply"]


def test_a_google_style_docstring_is_parsed() -> None:
    assert parse_docstring(everything)[0] == "Do it.\n\nMore about it."
    assert set(parse_docstring(everything)[1]) == {"text", "count", "level"}
    assert parse_docstring(lambda: None) == ("", {})


def numpy_style(ship: str, quay: int, draft: float = 0.0) -> None:
    """Assign a berth.

    Parameters
    ----------
    ship : str
        Name of the ship,
        as painted.
    quay, draft : float
        Numbers.

    Returns
    -------
    None
    """


def sphinx_style(ship: str, quay: int) -> None:
    """Assign a berth.

    :param ship: Name of the ship,
        as painted.
    :param int quay: The quay.
    :returns: nothing
    :raises ValueError: never
    """


@pytest.mark.parametrize(
    ("function", "descriptions"),
    [
        (numpy_style, {"ship": "Name of the ship, as painted.", "quay": "Numbers.", "draft": "Numbers."}),
        (sphinx_style, {"ship": "Name of the ship, as painted.", "quay": "The quay."}),
    ],
)
def test_numpy_and_sphinx_docstrings_are_parsed(function: Any, descriptions: dict[str, str]) -> None:
    assert parse_docstring(function) == ("Assign a berth.", descriptions)


def test_a_colon_in_prose_does_not_start_a_section() -> None:
    def f() -> None:
        """Say: hello.

        :note this
        Parameters
        are not listed here.
        """

    assert parse_docstring(f) == (inspect.cleandoc(f.__doc__ or ""), {})


@pytest.mark.parametrize("number", [b"3.0", b"3e0"])
def test_a_float_without_a_fraction_is_accepted_as_an_integer(number: bytes) -> None:
    def f(n: int, at: list[int] | None = None, berth: Berth | None = None) -> None: ...

    decoded = Signature(f).decode(b'{"n": %b, "at": [1.0, 2], "berth": {"quay": 4.0}}' % number)
    assert (decoded["n"], decoded["at"], decoded["berth"]) == (3, [1, 2], Berth(4))
    assert all(type(n) is int for n in [decoded["n"], *decoded["at"], decoded["berth"].quay])
    assert faults(f, {"n": 3.5}) == ["n: expected an integer, got a number"]
    assert faults(f, {"n": 1e300}) == ["n: expected an integer, got a number"]


def test_json_strings_are_decoded_to_arrays_and_objects_only_if_enabled() -> None:
    def f(names: list[str], berth: Berth, text: str = "", n: int = 0, any: Any = None) -> None: ...

    signature = Signature(f)
    arguments = b'{"names": "[\\"a\\"]", "berth": " {\\"quay\\": 1}", "text": "[1]", "any": "[1]"}'
    assert signature.decode(arguments, json_strings=True) == {
        "names": ["a"],
        "berth": Berth(1),
        "text": "[1]",
        "any": "[1]",
    }
    with pytest.raises(BadArguments) as caught:
        signature.decode(arguments)
    assert caught.value.faults == ["names: expected an array, got a string", "berth: expected an object, got a string"]
    with pytest.raises(BadArguments) as caught:
        signature.decode(b'{"names": "[1]", "berth": "x", "n": "[1]"}', json_strings=True)
    assert [fault.partition(":")[0] for fault in caught.value.faults] == ["names", "berth", "n"]


class Person(NamedTuple):
    name: str
    age: int = 0


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (datetime.datetime, "2026-07-28T12:00:00Z", datetime.datetime(2026, 7, 28, 12, tzinfo=datetime.UTC)),
        (datetime.date, "2026-07-28", datetime.date(2026, 7, 28)),
        (uuid.UUID, "0" * 32, uuid.UUID(int=0)),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        (bytes, "aGk=", b"hi"),
        (Person, ["Mary", 3], Person("Mary", 3)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 1], {1}),
        (Annotated[str, msgspec.Meta(pattern="^a", max_length=2)], "ab", "ab"),
    ],
)
def test_types_of_the_standard_library_are_decoded(kind: Any, value: Any, expected: Any) -> None:
    def f(it): ...  # type: ignore[no-untyped-def]

    f.__annotations__["it"] = kind
    assert decode(f, {"it": value}) == {"it": expected}
    assert Signature(f).schema["properties"]["it"]


class Crew(pydantic.BaseModel):
    name: str
    age: Annotated[int, pydantic.Field(ge=16)] = 20
    kids: list[Crew] = []
    since: datetime.date | None = None


class Manifest(pydantic.BaseModel):
    ship: str = pydantic.Field(alias="shipName", description="Which ship.")
    crew: list[Crew]

    @pydantic.field_validator("ship")
    @classmethod
    def known(cls, value: str) -> str:
        if value == "s3cret":
            raise ValueError("no such ship")
        return value


def hire(manifest: Manifest, more: list[Crew], by_name: dict[str, Crew] | None = None) -> None: ...


def test_pydantic_models_are_decoded_at_any_depth() -> None:
    arguments = {
        "manifest": {"shipName": "Mary", "crew": [{"name": "a", "kids": [{"name": "b"}], "since": "2026-07-28"}]},
        "more": [{"name": "c", "age": 17}],
        "by_name": {"d": {"name": "d"}},
    }
    decoded = decode(hire, arguments)
    assert isinstance(decoded["manifest"], Manifest)
    assert decoded["manifest"].crew[0].since == datetime.date(2026, 7, 28)
    assert (decoded["more"], decoded["by_name"]) == ([Crew(name="c", age=17)], {"d": Crew(name="d")})


def test_the_schema_of_a_pydantic_model_is_included() -> None:
    schema = Signature(hire).schema
    assert schema["properties"]["manifest"]["properties"]["shipName"]["description"] == "Which ship."
    assert schema["properties"]["manifest"]["properties"]["crew"]["items"] == {"$ref": "#/$defs/Crew"}
    assert schema["$defs"]["Crew"]["properties"]["age"]["minimum"] == 16
    jsonschema.Draft202012Validator.check_schema(schema)


def test_faults_in_pydantic_models_are_reported_by_path() -> None:
    arguments = {
        "manifest": {"shipName": "s3cret", "crew": [{"name": "a", "age": 3}, {"name": 7, "kids": [{"age": "s3cret"}]}]},
        "more": [{}],
    }
    found = faults(hire, arguments)
    assert found == [
        "manifest.shipName: no such ship",
        "manifest.crew[0].age: input should be greater than or equal to 16",
        "manifest.crew[1].name: expected a string",
        "manifest.crew[1].kids[0].name: missing",
        "manifest.crew[1].kids[0].age: expected an integer",
        "more[0].name: missing",
    ]
    assert "pydantic" not in str(found)


def test_pydantic_field_describes_and_constrains_a_parameter() -> None:
    def f(
        ship: Annotated[str, pydantic.Field(description="Which ship.", min_length=2, pattern="^[A-Z]", title="Ship")],
        quay: int = pydantic.Field(default=3, description="Which quay.", ge=1, lt=9),
        tags: list[str] = pydantic.Field(default_factory=list, max_length=2),  # noqa: B008
        n: Annotated[int, annotated_types.Gt(0)] = 1,
        must: int = pydantic.Field(description="Needed."),
    ) -> None: ...

    schema = Signature(f).schema
    assert schema["required"] == ["ship", "must"]
    assert schema["properties"]["ship"] == {
        "type": "string",
        "title": "Ship",
        "minLength": 2,
        "pattern": "^[A-Z]",
        "description": "Which ship.",
    }
    assert schema["properties"]["quay"] == {
        "type": "integer",
        "minimum": 1,
        "exclusiveMaximum": 9,
        "description": "Which quay.",
        "default": 3,
    }
    assert schema["properties"]["tags"]["maxItems"] == 2
    assert schema["properties"]["n"]["exclusiveMinimum"] == 0
    decoded = decode(f, {"ship": "Mary", "must": 1})
    assert (decoded["quay"], decoded["tags"]) == (3, [])
    assert decode(f, {"ship": "Mary", "must": 1})["tags"] is not decoded["tags"]
    assert faults(f, {"ship": "mary", "must": 1, "quay": 9, "n": 0}) == [
        "ship: expected a string matching regex '^[A-Z]'",
        "quay: expected an integer <= 8",
        "n: expected an integer >= 1",
    ]


def test_an_alias_of_a_parameter_is_refused() -> None:
    def f(ship: Annotated[str, pydantic.Field(alias="shipName")]) -> None: ...

    with pytest.raises(TypeError, match="cannot have an alias"):
        Signature(f)


def test_two_types_with_the_same_name_are_refused() -> None:
    first = pydantic.create_model("Inner", a=(int, 1))
    second = pydantic.create_model("Inner", b=(int, 1))
    outer_a = pydantic.create_model("A", inner=(first, ...))
    outer_b = pydantic.create_model("B", inner=(second, ...))

    def f(a, b): ...  # type: ignore[no-untyped-def]

    f.__annotations__.update(a=outer_a, b=outer_b)
    with pytest.raises(TypeError, match="two different types are called 'Inner'"):
        Signature(f)


class Harbour:
    def berth(self, ship: str) -> str:
        return ship

    @classmethod
    def open(cls, day: str) -> str:
        return day

    @staticmethod
    def close(day: str) -> str:
        return day


def test_unbound_methods_are_refused() -> None:
    assert list(Signature(Harbour().berth).parameters) == ["ship"]
    assert list(Signature(Harbour.open).parameters) == ["day"]
    assert list(Signature(Harbour.close).parameters) == ["day"]
    with pytest.raises(TypeError, match=r"without an object.*server\.tools.add\(harbour\.berth\)"):
        Signature(Harbour.berth)
    with pytest.raises(TypeError, match="has no class yet"):
        Signature(Harbour.__dict__["open"])


def test_a_function_may_have_an_argument_named_self() -> None:
    def f(self: str) -> None: ...

    assert list(Signature(f).parameters) == ["self"]


def test_string_annotations_are_resolved_at_registration() -> None:
    scope: dict[str, Any] = {"Kind": int}
    exec("def make():\n  def f(a: 'Kind') -> None: ...\n  return f", scope)
    first = Signature(scope["make"]())
    scope["Kind"] = str
    assert Signature(scope["make"]()).schema["properties"]["a"]["type"] == "string"
    assert first.schema["properties"]["a"]["type"] == "integer"


def test_an_annotation_that_is_not_python_is_refused_with_the_parameter() -> None:
    scope: dict[str, Any] = {}
    exec("def f(a: 'not Python') -> None: ...", scope)
    with pytest.raises(TypeError, match=r"the annotation .*not Python.* of 'a' is unknown"):
        Signature(scope["f"])


def test_functions_with_equal_parameters_keep_their_own_schemas() -> None:
    def one(a: int, b: str = "x") -> None:
        """
        Args:
            a: The first.
        """

    def other(a: int, b: str = "y") -> None: ...

    first, second = Signature(one), Signature(other)
    assert first.decode(b'{"a": 1}') == second.decode(b'{"a": 1}') == {"a": 1}
    assert first.schema["properties"]["a"] == {"type": "integer", "description": "The first."}
    assert second.schema["properties"]["a"] == {"type": "integer"}
    assert [signature.schema["properties"]["b"]["default"] for signature in (first, second)] == ["x", "y"]


def test_the_order_of_a_union_is_kept_in_the_schema() -> None:
    def one(a: int | str) -> None: ...
    def other(a: str | int) -> None: ...

    kinds = [[branch["type"] for branch in Signature(f).schema["properties"]["a"]["anyOf"]] for f in (one, other)]
    assert kinds == [["integer", "string"], ["string", "integer"]]


def test_constraints_inside_a_type_are_applied() -> None:
    def f(
        region: Annotated[str, Header("Region"), "Where to.", Complete(["north"])] | None = None,
        basin: Annotated[str, pydantic.Field(description="Which.", max_length=3), Header("Basin")] | None = None,
        names: list[Annotated[str, pydantic.Field(max_length=3)]] = [],  # noqa: B006
        n: Annotated[int, annotated_types.Ge(1)] | None = None,
        by: dict[str, Annotated[list[int], pydantic.Field(min_length=1), msgspec.Meta(max_length=2)]] | None = None,
    ) -> None: ...

    signature = Signature(f)
    properties = signature.schema["properties"]
    assert properties["region"] == {"type": "string", "description": "Where to.", "x-mcp-header": "Region"}
    assert properties["basin"]["description"] == "Which."
    assert (properties["basin"]["maxLength"], properties["basin"]["x-mcp-header"]) == (3, "Basin")
    assert list(signature.completers) == ["region"]
    assert properties["names"]["items"] == {"type": "string", "maxLength": 3}
    assert {"type": "integer", "minimum": 1} in properties["n"]["anyOf"]
    assert decode(f, {"region": None, "names": ["abc"], "n": 1, "by": {"a": [1, 2]}})
    assert faults(f, {"names": ["abcd"], "n": 0, "by": {"a": []}}) == [
        "names[0]: expected a string of length <= 3",
        "n: expected an integer >= 1",
        "by[...]: expected an array of length >= 1",
    ]


def test_an_unsupported_type_is_reported_with_its_parameter() -> None:
    class Place:
        pass

    def berth(ship: str, at: Place) -> None: ...

    def moor(ship: Annotated[str, msgspec.Meta(ge=1)]) -> None: ...

    with pytest.raises(TypeError, match=r"berth\(\): the type of 'at' has no JSON Schema"):
        Signature(berth)
    with pytest.raises(TypeError, match=r"moor\(\): the type of 'ship' cannot be read from JSON"):
        Signature(moor)


def test_a_parameter_annotated_with_object_accepts_any_value() -> None:
    def keep(thing: object, more: dict[str, object], last: list[object] | None = None) -> None: ...

    signature = Signature(keep)
    assert signature.decode(b'{"thing":[1],"more":{"a":null}}') == {"thing": [1], "more": {"a": None}}
    assert signature.schema["properties"]["thing"] == {}


def test_a_partial_has_the_description_of_its_function() -> None:
    def lock(name: str, gate: int) -> None:
        """State of a gate.

        Args:
            gate: Which one.
        """

    signature = Signature(functools.partial(lock, "north"))
    assert signature.summary == "State of a gate."
    assert signature.schema["properties"]["gate"]["description"] == "Which one."


def result_text(function: Any, arguments: Any, **options: Any) -> str:
    """Return the text of the result of a call with these arguments."""
    server = Server("s")
    server.tools.add(function, name="it", **options)
    answer = asyncio.run(ask(server, "tools/call", {"name": "it", "arguments": arguments}))
    return str(answer["result"]["content"][0]["text"])


@pytest.mark.parametrize(("number", "lines"), [(1, 1), (8, 8), (9, 8), (20, 8)])
def test_up_to_eight_unknown_arguments_are_named(number: int, lines: int) -> None:
    def it(a: int = 1) -> str:
        return str(a)

    message_lines = result_text(it, {f"x{n}": 1 for n in range(number)}).splitlines()
    assert message_lines[1:] == [f"x{n}: no such argument; the arguments are a" for n in range(lines)]


def test_each_unknown_argument_of_a_prompt_is_named_once_in_order() -> None:
    server = Server("s")
    server.prompts.add(lambda a, b="": a, name="it")
    params = {"name": "it", "arguments": {"x": "1", "b": "2", "y": "3"}}
    message = asyncio.run(ask(server, "prompts/get", params))["error"]["message"]
    assert message == (
        "Invalid arguments: a: missing; x: no such argument; the arguments are a, b; "
        "y: no such argument; the arguments are a, b"
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "int 1"),
        (1e3, "int 1000"),
        (2.0**53, f"int {2**53}"),
        (-(2.0**53), f"int {-(2**53)}"),
        (2.0**53 + 2, "Invalid arguments"),
        (1.5, "Invalid arguments"),
        ("1", "Invalid arguments"),
        (True, "Invalid arguments"),
    ],
)
def test_a_whole_float_is_accepted_as_an_integer_up_to_2_53(value: Any, expected: str) -> None:
    def it(a: int) -> str:
        return f"{type(a).__name__} {a}"

    async def direct(a: int) -> str:
        return f"{type(a).__name__} {a}"

    assert result_text(it, {"a": value}).startswith(expected)
    assert result_text(direct, {"a": value}).startswith(expected)
    assert ("Invalid" in result_text(lambda a: str(a), {"a": [value]})) is False


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("5", int, "int 5"),
        ("x", str, "str x"),
        ("5", str, "str 5"),
        ("[1]", list[int], "list [1]"),
        ('{"a": 1}', dict[str, int], "dict {'a': 1}"),
        ("inf", float, None),
        ("nan", float, None),
        ("1.5", float, "float 1.5"),
        ("x", int, None),
        ("[1", list[int], None),
        ("true", bool, "bool True"),
        ("port", Side, "Side Side.PORT"),
    ],
)
def test_a_prompt_argument_is_converted_to_the_type_of_its_parameter(
    text: str, kind: Any, expected: str | None
) -> None:
    def it(a):  # type: ignore[no-untyped-def]
        return f"{type(a).__name__} {a}"

    it.__annotations__["a"] = kind
    server = Server("s")
    server.prompts.add(it)
    answer = asyncio.run(ask(server, "prompts/get", {"name": "it", "arguments": {"a": text}}))
    if expected is None:
        assert answer["error"]["message"].startswith("Invalid arguments: a: ")
    else:
        assert answer["result"]["messages"][0]["content"]["text"] == expected


def test_only_valid_json_strings_are_decoded() -> None:
    def it(a: str | list[int]) -> str:
        return f"{type(a).__name__} {a}"

    def numbers(a: list[int]) -> str:
        return f"{type(a).__name__} {a}"

    assert result_text(it, {"a": "[1]"}, decode_json_strings=True) == "str [1]"
    assert result_text(numbers, {"a": " [1] "}, decode_json_strings=True) == "list [1]"
    for value in ("[1", "1", '"[1]"', 5):
        assert result_text(numbers, {"a": value}, decode_json_strings=True).startswith("Invalid arguments:\na: ")


def test_names_in_annotations_are_those_of_the_function_and_not_of_its_decorator() -> None:
    """A bug: a class of the decorator's module was taken if it had the same name."""
    module: dict[str, Any] = {"functools": functools, "Berth": Ship}
    exec("def decorate(function):\n    return functools.wraps(function)(lambda **arguments: None)", module)

    def moor(berth: Berth) -> str:
        return str(berth)

    assert Signature(module["decorate"](moor)).parameters["berth"].kind is Berth


def test_a_local_class_hides_a_global_one_of_the_same_name() -> None:
    """A bug: the global class was taken."""

    class Berth(msgspec.Struct):
        quay: int

    def moor(berth: Berth, others: list[Berth]) -> None: ...
    def leave(berth: Berth) -> None: ...

    for function in (moor, leave):
        assert Signature(function).parameters["berth"].kind is Berth
    assert Signature(moor).parameters["others"].kind == list[Berth]
