"""The frontmatter of a SKILL.md as JSON, without forms that YAML parsers read differently."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from wharfinger.content.frontmatter import BadFrontmatter, need_yaml, read_frontmatter
from wharfinger.errors import MissingExtra


def read(block: str) -> Any:
    return read_frontmatter(f"---\n{block}\n---\nBody.\n".encode())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("true", True), ("False", False), ("null", None), ("~", None),
        ("", None), ("012", 12), ("0o17", 15), ("0x1F", 31), ("-3", -3), ("1_000", "1_000"), ("12:30", "12:30"),
        ("1.50", 1.5), (".5", 0.5), ("1e3", 1000.0), ("2026-01-01", "2026-01-01"), ('"1"', "1"), ("[a, 1]", ["a", 1]),
        ("{b: c}", {"b": "c"}), ("Bash(git:*) Read", "Bash(git:*) Read"), ("!!str 1", "1"),
    ],
)  # fmt: skip
def test_scalars_are_read_as_in_yaml_1_2(text: str, value: Any) -> None:
    """PyYAML by default reads YAML 1.1, in which `no` is false, 012 is ten, and dates have no JSON form."""
    assert read(f"field: {text}") == {"field": value}


def test_all_fields_are_returned() -> None:
    block = "name: a\ndescription: >\n  one\n  two\nmetadata:\n  version: '2'\n<<: {x: 1}"
    assert read(block) == {
        "name": "a",
        "description": "one two\n",
        "metadata": {"version": "2"},
        "<<": {"x": 1},
    }


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf---\r\na: b\r\n---\r\nText", b"---\na: b\n---", b"--- \na: b\n---  \n"])
def test_byte_order_marks_and_line_endings_are_ignored(data: bytes) -> None:
    assert read_frontmatter(data) == {"a": "b"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"# Title\n", "does not begin with frontmatter"),
        (b"---\na: b\n", "has no end"),
        (b"---\n" + b"a: b\n" * 20_000 + b"---\n", "has no end, a line `---`, within 64 KiB"),
        (b"---\n---\n", "not a mapping"),
        (b"---\n- a\n---\n", "not a mapping"),
        (b"---\na: \xff\n---\n", "not UTF-8"),
        (b"---\na: b: c\n---\n", "not YAML: mapping values are not allowed here, line 2"),
        (b"---\na: &x 1\nb: *x\n---\n", "aliases are not supported, line 3"),
        (b"---\na: 1\nb: 2\na: 3\n---\n", "'a' occurs twice, line 4"),
        (b"---\n1: b\n---\n", "the key 1 is not text"),
        (b"---\n? [a]\n: b\n---\n", "a key is not text"),
        (b"---\na: !!timestamp 2026-01-01\n---\n", "the tag"),
        (b"---\na: !!python/object/apply:os.getcwd []\n---\n", "the tag"),
        (b"---\na: !!map [b]\n---\n", "not a mapping, line 2"),
        (b"---\na: !!seq {b: c}\n---\n", "not a sequence, line 2"),
        (b"---\na: !!bool maybe\n---\n", "'maybe' is not a boolean"),
        (b"---\na: .inf\n---\n", "cannot be written as JSON"),
        (b"---\na: 1e999\n---\n", "cannot be written as JSON"),
        (b'---\na: "\\uD800"\n---\n', "cannot be written as JSON"),
        (b"---\na: " + b"[" * 60 + b"]" * 60 + b"\n---\n", "nested too deeply"),
        (b"---\na: " + b"[" * 20_000 + b"\n---\n", "nested too deeply"),
    ],
)
def test_invalid_frontmatter_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(BadFrontmatter) as raised:
        read_frontmatter(data)
    assert message in str(raised.value)


def test_the_error_of_a_missing_extra_has_the_pip_command(tmp_path: Any) -> None:
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from wharfinger.errors import MissingExtra\nfrom wharfinger.sources import skills\n"
        f"try: skills({str(tmp_path)!r})\nexcept MissingExtra as error: print(error)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'wharfinger[skills]'" in process.stdout


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"  \t\n"])
def test_frontmatter_is_limited_to_64_kib(end: bytes) -> None:
    for size, accepted in ((65_536, True), (65_537, False)):
        data = b"---\na: " + b"x" * (size - 11) + b"\n---" + end
        assert len(data) == size + len(end)
        if accepted:
            assert len(read_frontmatter(data)["a"]) == size - 11
        else:
            with pytest.raises(BadFrontmatter, match="within 64 KiB"):
                read_frontmatter(data)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_values_are_nested_at_most_32_levels_deep(opening: str, closing: str) -> None:
    def nested_block(depth: int) -> str:
        return "a: " + opening * (depth - 1) + "{}" + closing * (depth - 1)

    assert read(nested_block(32))["a"]
    with pytest.raises(BadFrontmatter, match="nested too deeply"):
        read(nested_block(33))


def test_need_yaml_reports_a_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    need_yaml("Publishing skills")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtra, match="Publishing skills needs the extra 'skills'"):
        need_yaml("Publishing skills")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+3", 3), ("-0", 0), ("0o8", "0o8"), ("0xG", "0xG"), ("TRUE", True), ("tRUE", "tRUE"), ("NULL", None),
        ("nULL", "nULL"), ("1.", 1.0), ("-1.5E-3", -0.0015), ("1e", "1e"), ("inf", "inf"), ("1 ", 1), ("'~'", "~"),
        ("0x1f", 31), ("010", 10), ("+.5", 0.5), ("2:3", "2:3"), ("=", "="), ("!!int '7'", 7), ("!!bool True", True),
        ("!!null x", None), ("!!float 2", 2.0), ("!!seq [1]", [1]), ("!!map {a: 1}", {"a": 1}),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema_of_yaml(text: str, value: Any) -> None:
    result = read(f"field: {text}")["field"]
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    "text", [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e400", "[.inf]", "{a: .nan}", "[[1e999]]"]
)
def test_a_number_without_a_json_form_is_refused(text: str) -> None:
    with pytest.raises(BadFrontmatter, match="a number is too large, infinite or NaN"):
        read(f"field: {text}")


@pytest.mark.parametrize("block", ["a: {1: b}", "a: [{true: b}]", "null: b", "a: {b: {1.5: c}}"])
def test_a_key_that_is_not_text_is_refused_at_any_level(block: str) -> None:
    with pytest.raises(BadFrontmatter, match="is not text"):
        read(block)


def test_a_repeated_key_is_refused_at_any_level() -> None:
    with pytest.raises(BadFrontmatter, match="'b' occurs twice, line 4"):
        read("a:\n  b: 1\n  b: 2")


def test_invalid_yaml_is_reported_on_one_line() -> None:
    with pytest.raises(BadFrontmatter, match=r"\Aits frontmatter is not YAML: .*, line 3\Z"):
        read("a: 1\nb: [")
    with pytest.raises(BadFrontmatter, match=r"\Aits frontmatter is not YAML: it cannot be read\Z"):
        read("a: \x00")
