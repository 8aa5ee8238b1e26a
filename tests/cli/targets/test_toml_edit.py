"""One table of a TOML file changes; everything else stays, byte for byte."""

import sys
import tomllib

import pytest

from wharfinger.cli.targets.toml_edit import find, put, remove
from wharfinger.errors import MissingExtra

ENTRY = {"command": "/bin/w", "args": ["serve", "a b"]}

CONFIG = """# mine
model = "x"

[mcp_servers.old] # keep
url = "http://x/"

[mcp_servers.old.env]
A = "1"

[[profiles]]
name = "[mcp_servers.fake]"
"""


def test_a_table_is_added_after_the_others() -> None:
    new = put(CONFIG, "mcp_servers", "charts", ENTRY)
    added = '[mcp_servers.charts]\ncommand = "/bin/w"\nargs = ["serve", "a b"]\n'
    assert new.replace(added + "\n", "") == CONFIG
    assert find(new, "mcp_servers", "charts") == ENTRY


def test_the_first_table_follows_an_empty_line() -> None:
    assert put('model = "x"', "mcp_servers", "a", {"url": "u"}) == 'model = "x"\n\n[mcp_servers.a]\nurl = "u"\n'
    assert put("", "mcp_servers", "a", {"url": "u"}) == '[mcp_servers.a]\nurl = "u"\n'


def test_separated_tables_keep_their_places() -> None:
    separated = '[mcp_servers.a]\nurl = "x" # c\n\n[other]\nb = 1\n\n[mcp_servers.b]\nurl = "y"\n'
    assert put(separated, "mcp_servers", "b", {"url": "z"}) == separated.replace('"y"', '"z"')
    assert remove(separated, "mcp_servers", "a") == separated[separated.index("[other]") :]


def test_an_inline_table_stays_inline() -> None:
    new = put('mcp_servers = { a = { url = "x" } } # c\nb = 1\n', "mcp_servers", "d", ENTRY)
    assert new.startswith('mcp_servers = { a = { url = "x" }, d = {')
    assert new.endswith("} # c\nb = 1\n")
    assert find(new, "mcp_servers", "d") == ENTRY


def test_windows_line_ends_are_kept() -> None:
    new = put(CONFIG.replace("\n", "\r\n"), "mcp_servers", "a", ENTRY)
    assert new.count("\n") == new.count("\r\n")


def test_a_table_is_replaced_with_its_sub_tables() -> None:
    document = tomllib.loads(put(CONFIG, "mcp_servers", "old", ENTRY))
    assert document["mcp_servers"] == {"old": ENTRY}
    assert document["profiles"] == [{"name": "[mcp_servers.fake]"}]


def test_a_table_is_removed_and_comments_stay() -> None:
    new = remove(CONFIG, "mcp_servers", "old")
    assert new.startswith("# mine")
    assert "old" not in new
    assert remove(CONFIG, "mcp_servers", "none") == CONFIG
    assert remove(put("", "mcp_servers", "a", ENTRY), "mcp_servers", "a") == ""


@pytest.mark.parametrize("name", ["a b", 'qu"ote', "dot.ted", "港", "back\\slash", "del\x7f"])
def test_any_name_is_written_and_read_back(name: str) -> None:
    text = put(CONFIG, "mcp_servers", name, {"url": name, "http_headers": {name: name}})
    assert find(text, "mcp_servers", name) == {"url": name, "http_headers": {name: name}}
    assert tomllib.loads(remove(text, "mcp_servers", name)) == tomllib.loads(CONFIG)


@pytest.mark.parametrize("text", ["= nonsense", 'mcp_servers = "x"', "mcp_servers = [1]", "[[mcp_servers]]"])
def test_text_that_cannot_hold_tables_is_refused(text: str) -> None:
    for edit in (lambda: put(text, "mcp_servers", "b", ENTRY), lambda: remove(text, "mcp_servers", "b")):
        with pytest.raises(ValueError, match=r"Invalid|expected"):
            edit()


def test_without_tomlkit_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tomlkit", None)
    assert find(CONFIG, "mcp_servers", "old") is not None
    with pytest.raises(MissingExtra, match=r"wharfinger\[toml\]"):
        put(CONFIG, "mcp_servers", "b", ENTRY)
