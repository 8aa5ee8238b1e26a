"""One table of a TOML file changes; everything else stays, byte for byte."""

import tomllib

import pytest

from wharfinger.cli.jsonc import Unreadable
from wharfinger.cli.toml_text import drop, find, put

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


def test_a_table_is_added_at_the_end() -> None:
    new = put(CONFIG, "mcp_servers", "charts", ENTRY)
    assert new == CONFIG + '\n[mcp_servers.charts]\ncommand = "/bin/w"\nargs = ["serve", "a b"]\n'
    assert find(new, "mcp_servers", "charts") == ENTRY


def test_a_table_is_replaced_with_its_sub_tables() -> None:
    said = tomllib.loads(put(CONFIG, "mcp_servers", "old", ENTRY))
    assert said["mcp_servers"] == {"old": ENTRY}
    assert said["profiles"] == [{"name": "[mcp_servers.fake]"}]


def test_a_table_is_removed_and_comments_stay() -> None:
    new = drop(CONFIG, "mcp_servers", "old")
    assert new.startswith("# mine")
    assert "old" not in new
    assert drop(CONFIG, "mcp_servers", "none") == CONFIG
    assert drop(put("", "mcp_servers", "a", ENTRY), "mcp_servers", "a") == ""


@pytest.mark.parametrize("name", ["a b", 'qu"ote', "dot.ted", "港", "back\\slash", "del\x7f"])
def test_any_name_survives(name: str) -> None:
    text = put(CONFIG, "mcp_servers", name, {"url": name, "http_headers": {name: name}})
    assert find(text, "mcp_servers", name) == {"url": name, "http_headers": {name: name}}
    assert tomllib.loads(drop(text, "mcp_servers", name)) == tomllib.loads(CONFIG)


@pytest.mark.parametrize("text", ["= nonsense", 'mcp_servers = "x"', 'mcp_servers = { a = { url = "x" } }'])
def test_what_cannot_be_changed_as_text_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        put(text, "mcp_servers", "b", ENTRY)
