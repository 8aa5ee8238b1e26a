"""The frontmatter of a SKILL.md: what its author wrote, as JSON, and nothing that two readers read differently."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from wharfinger.content.frontmatter import BadFrontmatter, read_frontmatter


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
def test_scalars_are_read_as_yaml_1_2_has_them(text: str, value: Any) -> None:
    """PyYAML alone reads 1.1, where `no` is false, 012 is ten and a date is no JSON."""
    assert read(f"field: {text}") == {"field": value}


def test_every_field_passes_through() -> None:
    block = "name: a\ndescription: >\n  one\n  two\nmetadata:\n  version: '2'\n<<: {x: 1}"
    assert read(block) == {
        "name": "a",
        "description": "one two\n",
        "metadata": {"version": "2"},
        "<<": {"x": 1},
    }


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf---\r\na: b\r\n---\r\nText", b"---\na: b\n---", b"--- \na: b\n---  \n"])
def test_byte_order_marks_and_line_ends_do_not_matter(data: bytes) -> None:
    assert read_frontmatter(data) == {"a": "b"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"# Title\n", "does not begin with frontmatter"),
        (b"---\na: b\n", "has no end"),
        (b"---\n" + b"a: b\n" * 20_000 + b"---\n", "has no end, a line `---`, within 64 KiB"),
        (b"---\n---\n", "no mapping"),
        (b"---\n- a\n---\n", "no mapping"),
        (b"---\na: \xff\n---\n", "not UTF-8"),
        (b"---\na: b: c\n---\n", "not YAML: mapping values are not allowed here, line 2"),
        (b"---\na: &x 1\nb: *x\n---\n", "aliases are not read, line 3"),
        (b"---\na: 1\nb: 2\na: 3\n---\n", "'a' is there twice, line 4"),
        (b"---\n1: b\n---\n", "the key 1 is no text"),
        (b"---\n? [a]\n: b\n---\n", "a key is no text"),
        (b"---\na: !!timestamp 2026-01-01\n---\n", "the tag"),
        (b"---\na: !!python/object/apply:os.getcwd []\n---\n", "the tag"),
        (b"---\na: .inf\n---\n", "no form in JSON"),
        (b"---\na: 1e999\n---\n", "no form in JSON"),
        (b'---\na: "\\uD800"\n---\n', "no form in JSON"),
        (b"---\na: " + b"[" * 60 + b"]" * 60 + b"\n---\n", "nested too deeply"),
        (b"---\na: " + b"[" * 20_000 + b"\n---\n", "nested too deeply"),
    ],
)
def test_what_is_no_json_object_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(BadFrontmatter) as caught:
        read_frontmatter(data)
    assert why in str(caught.value)


def test_without_the_extra_the_message_says_how_to_install_it(tmp_path: Any) -> None:
    """An interpreter that finds no `yaml`: publishing skills fails at once, and by name."""
    code = (
        "import sys; sys.modules['yaml'] = None\n"
        "from wharfinger.errors import MissingExtra\nfrom wharfinger.sources import skills\n"
        f"try: skills({str(tmp_path)!r})\nexcept MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'wharfinger[skills]'" in done.stdout
