"""Editing one entry of a JSON file leaves all other bytes unchanged."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from wharfinger.upstreams.jsonc import InvalidJson, find, loads, put, remove

ENTRY = {"command": "/bin/w", "args": ["serve"]}

COMMENTED = """// settings of a host
{
    "theme": "dark", // keep me
    /* servers */
    "mcpServers": {
        "old": { "url": "http://x/", }, // trailing comma
    },
}
"""


def test_an_empty_file_becomes_an_object_with_the_entry() -> None:
    assert json.loads(put("", "mcpServers", "charts", ENTRY)) == {"mcpServers": {"charts": ENTRY}}


def test_the_comments_of_a_file_without_an_object_are_kept() -> None:
    new = put("// mine\n", "servers", "c", ENTRY)
    assert new.startswith("// mine\n{")
    assert find(new, "servers", "c") == ENTRY
    assert remove("// mine\n", "servers", "c") == "// mine\n"


def test_a_string_that_looks_like_a_comment_is_kept() -> None:
    text = '\ufeff{"url": "http://x/*y*/", /* "a": 1, */ "b": ",]", "c": [1, 2,],}'
    assert loads(text) == {"url": "http://x/*y*/", "b": ",]", "c": [1, 2]}


def test_a_file_of_one_megabyte_is_edited_in_less_than_a_second() -> None:
    """Claude Code keeps the history of every project in the same file."""
    history = {f"/home/me/{n}": {"history": [{"display": "x" * 80}] * 20} for n in range(400)}
    text = json.dumps({"projects": history, "mcpServers": {}}, indent=2)
    assert len(text) > 1_000_000
    started = time.process_time()
    new = put(text, "mcpServers", "c", ENTRY)
    assert time.process_time() - started < 1
    assert new.startswith(text[:-5])


@pytest.mark.parametrize("text", ["/* ", '\\"', "{/* ", '{"\\'])
def test_a_file_with_unclosed_comments_or_strings_is_refused_quickly(text: str) -> None:
    """A bug: the time grew with the square of the size; a megabyte took hours."""
    began = time.process_time()
    with pytest.raises(InvalidJson):
        loads(text * 300_000)
    assert time.process_time() - began < 1


def test_comments_and_order_are_kept() -> None:
    new = put(COMMENTED, "mcpServers", "charts", ENTRY)
    assert new == COMMENTED.replace(
        '"old": { "url": "http://x/", }, // trailing comma\n',
        '"old": { "url": "http://x/", },\n'
        '        "charts": {\n            "command": "/bin/w",\n            "args": [\n                "serve"\n'
        "            ]\n        }, // trailing comma\n",
    )
    assert find(new, "mcpServers", "charts") == ENTRY
    assert find(new, "mcpServers", "old") == {"url": "http://x/"}


def test_an_entry_of_the_same_name_is_replaced() -> None:
    text = '{\n  "servers": {\n    "a": {"x": 1},\n    "b": 2\n  }\n}'
    assert json.loads(put(text, "servers", "a", ENTRY)) == {"servers": {"a": ENTRY, "b": 2}}


def test_a_file_on_one_line_stays_on_one_line() -> None:
    text = '{"a":1,"servers":{"b":{}}}'
    assert put(text, "servers", "c", {"d": 1}) == '{"a":1,"servers":{"b":{}, "c": {"d": 1}}}'


def test_a_missing_object_of_servers_is_created() -> None:
    assert json.loads(put('{\n\t"a": 1\n}', "servers", "c", ENTRY)) == {"a": 1, "servers": {"c": ENTRY}}
    assert "\n\t\t" in put('{\n\t"a": 1\n}', "servers", "c", ENTRY)
    assert json.loads(put("{}", "servers", "c", ENTRY)) == {"servers": {"c": ENTRY}}


def test_windows_line_endings_are_kept() -> None:
    new = put('{\r\n  "a": 1\r\n}\r\n', "servers", "c", ENTRY)
    assert new.count("\n") == new.count("\r\n")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"servers": []}',
        '{"servers": {',
        '{"a" 1}',
        '{"a": "x}',
        "nonsense",
        '{"a": [}',
        '{"a": 1 "b": 2}',
        "{a: 1}",
        '{"a": ' + "9" * 5_000 + "}",
    ],
)
def test_a_file_of_another_structure_is_refused_with_line_and_column(text: str) -> None:
    with pytest.raises(InvalidJson, match="line 1, column"):
        put(text, "servers", "c", ENTRY)


@pytest.mark.parametrize(
    ("text", "name", "remaining"),
    [
        ('{"s": {\n  "a": 1,\n  // of b\n  "b": 2\n}}', "a", '{"s": {\n  // of b\n  "b": 2\n}}'),
        ('{"s": {\n  "a": 1,\n  // of b\n  "b": 2\n}}', "b", '{"s": {\n  "a": 1\n  // of b\n}}'),
        ('{"s": {\n  "a": 1, /* , */ "b": 2,\n}}', "b", '{"s": {\n  "a": 1 /* , */ ,\n}}'),
        ('{"s": {\n  "a": 1 // of a\n  , "b": 2}}', "b", '{"s": {\n  "a": 1 // of a\n   }}'),
        ('{"s": {\n  // "b": 2,\n  "a": 1, // of a\n}}', "a", '{"s": {\n  // "b": 2,\n   // of a\n}}'),
        ('{"s": {\n  "a": 1, // of a\n  "b": 2\n}}', "a", '{"s": {\n  // of a\n  "b": 2\n}}'),
    ],
)
def test_removing_an_entry_keeps_comments(text: str, name: str, remaining: str) -> None:
    assert remove(text, "s", name) == remaining
    assert loads(remaining) == {"s": {key: value for key, value in loads(text)["s"].items() if key != name}}


def test_removing_an_entry_keeps_its_neighbours() -> None:
    text = json.dumps({"servers": {"a": {}, "b": {}, "c": {}}, "z": 1}, indent=2)
    for removed, remaining in (("a", "bc"), ("b", "ac"), ("c", "ab")):
        assert json.loads(remove(text, "servers", removed)) == {"servers": {name: {} for name in remaining}, "z": 1}
    assert json.loads(remove('{"servers": {"a": {}}}', "servers", "a")) == {"servers": {}}
    assert remove(text, "servers", "d") == text
    assert remove("", "servers", "d") == ""
    assert remove("{}", "servers", "d") == "{}"
    assert remove('{"servers": {"a": 1, "b": {}, "a": {}}}', "servers", "a") == '{"servers": {"b": {}}}'


def test_an_entry_that_occurs_thousands_of_times_is_removed_in_less_than_a_second() -> None:
    """A bug: the rest of the file was read again for each of them, and 1,500 ended in an error."""
    text = '{"servers": {' + '"a": {}, /* of a */ "b": {}, ' * 3_000 + '"a": {}}}'
    started = time.process_time()
    new = remove(text, "servers", "a")
    assert time.process_time() - started < 1
    assert loads(new) == {"servers": {"b": {}}}
    assert (new.count("/* of a */"), new.count('"b"')) == (3_000, 3_000)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(40))
@given(
    st.dictionaries(st.text(), values, max_size=4),
    st.dictionaries(st.text(), values, max_size=4),
    st.text(),
    st.sampled_from([None, 2, 4, "\t"]),
)
def test_putting_and_removing_an_entry_keeps_the_rest_of_any_json_file(
    rest: dict[str, Any], servers: dict[str, Any], name: str, indent: int | str | None
) -> None:
    before = {**rest, "servers": servers}
    text = json.dumps(before, indent=indent)
    after = put(text, "servers", name, ENTRY)
    assert json.loads(after) == {**rest, "servers": {**servers, name: ENTRY}}
    assert json.loads(remove(after, "servers", name)) == {
        **rest,
        "servers": {key: value for key, value in servers.items() if key != name},
    }
