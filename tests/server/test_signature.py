"""Signatures as schema and decoder: strict by type, one readable line for each fault, no value and no library in it."""

from __future__ import annotations

import dataclasses
import functools
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pytest

from wharfinger.server.completion import Complete
from wharfinger.server.context import Context
from wharfinger.server.signature import BadArguments, Signature, described

if TYPE_CHECKING:
    from collections import OrderedDict as Hidden

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


GOOD: dict[str, Any] = {
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
    assert decode(everything, GOOD) == GOOD | {
        "share": 1.0,
        "side": Side.PORT,
        "berth": Berth(1),
        "ship": Ship("Mary"),
        "load": Bulk(2.0),
        "where": Path("a/b"),
    }


def test_what_is_left_out_keeps_the_functions_default() -> None:
    assert "tags" not in decode(everything, GOOD)
    assert decode(everything, GOOD | {"maybe": None, "loose": None, "level": 5})["level"] == 5


def test_the_schema_says_it_all() -> None:
    schema = Signature(everything).schema
    properties = schema["properties"]
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert schema["required"] == list(GOOD)
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


def test_the_schema_accepts_what_the_decoder_accepts() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = Signature(everything).schema
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(GOOD, schema)
    for name, value in (("count", "1"), ("count", True), ("mode", "up"), ("load", {}), ("names", [1]), ("other", 1)):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(GOOD | {name: value}, schema)
        faults(everything, GOOD | {name: value})


def test_no_parameters_is_an_empty_closed_object() -> None:
    def nothing() -> None: ...

    assert Signature(nothing).schema == {"type": "object", "additionalProperties": False}
    assert Signature(nothing).decode(msgspec.UNSET) == {}
    assert faults(nothing, {"a": 1}) == ["a: no such argument; there are none"]


@pytest.mark.parametrize("value", ["1", True, " 7 ", 1.5, None, [], {}])
def test_only_an_integer_is_an_integer(value: Any) -> None:
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
        ("berth", {"quay": 1, "side": "s3cret"}, "berth.side: is not one of the values that are allowed here"),
        ("berth", {}, "berth.quay: missing"),
        ("ship", {"name": 1}, "ship.name: expected a string, got an integer"),
        ("cargo", {"what": "rope"}, "cargo.crates: missing"),
        ("which", [], "which: expected an integer or a string, got an array"),
        ("load", {"s3cret": 1}, "load: fits none of the 2 types that it may have"),
        ("where", 1, "where: expected a string"),
        ("level", 9, "level: expected an integer <= 5"),
        ("s3cret\n" * 20, 1, None),
    ],
)
def test_a_fault_is_one_line_with_its_path_and_without_the_value(name: str, value: Any, line: str | None) -> None:
    (found,) = faults(everything, GOOD | {name: value})
    if line is not None:
        assert found == line
        assert "s3cret" not in found
    assert "\n" not in found and "msgspec" not in found and len(found) < 300


def test_all_faults_are_told_at_once() -> None:
    def f(a: int, b: str, c: bool = False) -> None: ...

    assert faults(f, {"a": "x", "c": 0, "d": 1}) == [
        "a: expected an integer, got a string",
        "b: missing",
        "c: expected true or false, got an integer",
        "d: no such argument; the arguments are a, b, c",
    ]
    assert faults(f, [1]) == ["arguments: expected an object"]


def test_an_authors_own_check_is_told_in_the_authors_words() -> None:
    class Even(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            if self.n % 2:
                raise ValueError("n must be even")

    def f(x: Even) -> None: ...

    assert faults(f, {"x": {"n": 1}}) == ["x: n must be even"]


def test_a_context_is_found_by_annotation_and_is_no_argument() -> None:
    def plain(ctx: Context, a: int) -> None: ...
    def typed(a: int, *, c: Context[dict[str, int]]) -> None: ...
    def by_text(a: int, ctx: context.Context[Hidden]) -> None: ...

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


def test_completers_stand_beside_parameters() -> None:
    def f(
        vessel: Annotated[str, Complete(vessels), "Which."], mode: Literal["in", "out"], side: Side | None = None
    ) -> None: ...

    signature = Signature(f)
    assert signature.completers["vessel"].values is vessels
    assert signature.completers["mode"].values == ["in", "out"]
    assert signature.completers["side"].values == ["port", "starboard"]
    assert signature.schema["properties"]["vessel"] == {"type": "string", "description": "Which."}


def test_what_cannot_be_filled_from_json_is_refused_at_registration() -> None:
    def stars(*names: str) -> None: ...
    def words(**names: str) -> None: ...
    def positional(a: int, /) -> None: ...
    def hidden(a: Hidden) -> None: ...
    def odd(a: threading_lock) -> None: ...  # type: ignore[name-defined] # noqa: F821
    def shapeless(a: object.__class__) -> None: ...  # type: ignore[name-defined]

    for function in (stars, words, positional, hidden, odd, shapeless):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\)"):
            Signature(function)


def test_prompt_arguments_are_read_from_strings() -> None:
    def f(
        a: str, n: int, x: float = 0, yes: bool = False, names: list[str] | None = None, side: Side = Side.PORT
    ) -> None: ...

    signature = Signature(f)
    given = {"a": "1", "n": "7", "x": "2.5", "yes": "true", "names": '["k"]', "side": "starboard"}
    assert signature.decode_strings(given) == {
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
        "other: no such argument; the arguments are a, n, x, yes, names, side",
        "names: is not valid here",
    ]


def test_a_docstring_is_text_and_sections() -> None:
    assert described(everything)[0] == "Do it.\n\nMore about it."
    assert set(described(everything)[1]) == {"text", "count", "level"}
    assert described(lambda: None) == ("", {})
