"""Public names of tools are valid in every API, distinct, and independent of other servers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger import Server
from wharfinger.upstreams.public_names import (
    MAX_NAME_CHARACTERS,
    distinct_names,
    name_of_target,
    prefixes_of,
    program_name,
    public_names,
)

is_valid_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch


def names(servers: dict[str, list[str]]) -> dict[tuple[str, str], str]:
    """Return the public name of each (server, tool)."""
    prefixes = prefixes_of(dict.fromkeys(servers))
    result: dict[tuple[str, str], str] = {}
    for server, tools in servers.items():
        public = public_names(server, prefixes[server], tools, {}, prefixes.values())
        result |= {(server, tool): public[tool] for tool in tools}
    return result


def test_tools_of_a_single_server_keep_their_names() -> None:
    assert names({"docs": ["read", "a.b"]}) == {("docs", "read"): "read", ("docs", "a.b"): "a_b"}


def test_with_several_servers_each_name_starts_with_the_name_of_its_server() -> None:
    assert names({"docs": ["read"], "my server": ["read"]}) == {
        ("docs", "read"): "docs_read",
        ("my server", "read"): "my_server_read",
    }


def test_a_name_that_is_already_valid_takes_precedence() -> None:
    public = names({"a": ["x.y", "x_y", "x/y"], "b": []})
    assert public["a", "x_y"] == "a_x_y"
    assert re.fullmatch(r"a_x_y_[0-9a-f]{8}", public["a", "x.y"])
    assert len(set(public.values())) == 3


def test_a_name_that_another_server_could_use_always_gets_a_digest() -> None:
    public = names({"a": ["b_c"], "a_b": []})
    assert re.fullmatch(r"a_b_c_[0-9a-f]{8}", public["a", "b_c"])
    assert names({"a": ["b_c"], "a_b": ["c"]})["a_b", "c"] == "a_b_c"


@pytest.mark.parametrize("prefix", ["a", ""])
def test_a_server_cannot_choose_the_name_that_another_server_gets(prefix: str) -> None:
    """A bug: the digest can be computed, so a server could list a tool that got the calls of another one."""
    prefixes = (prefix, "a_b")
    own = "b_c" if prefix else "a_b_c"
    (name,) = public_names("a", prefix, [own], {}, prefixes).values()
    (other,) = public_names("b", "a_b", [name.removeprefix("a_b_")], {}, prefixes).values()
    assert name != other
    assert names({"a": [], "a_b": ["c_cafe", "c_2026"]})["a_b", "c_cafe"] == "a_b_c_cafe"


def test_a_long_name_is_cut_at_64_characters() -> None:
    longest = "t" * (MAX_NAME_CHARACTERS - 2)
    public = names({"a": [longest, longest + "t", longest + "u"], "b": []})
    assert public["a", longest] == "a_" + longest
    assert len(public["a", longest + "t"]) == MAX_NAME_CHARACTERS
    assert len(set(public.values())) == 3


def test_long_and_similar_names_of_servers_remain_distinct() -> None:
    prefixes = prefixes_of(dict.fromkeys(("s" * 40, "s" * 41, "a.b", "a_b", "a/b")))
    assert prefixes["a_b"] == "a_b"
    assert len(set(prefixes.values())) == 5
    assert max(map(len, prefixes.values())) == 32


def test_a_configured_prefix_replaces_the_name_of_the_server() -> None:
    assert prefixes_of({"a": "x", "b": "", "c": None}) == {"a": "x", "b": "", "c": "c"}
    assert prefixes_of({"a": "x"}) == {"a": "x"}
    assert prefixes_of({"a": None}) == {"a": ""}


tool_names = st.lists(st.text(st.sampled_from("ab_. é"), max_size=70), unique=True, max_size=6)


@given(st.dictionaries(st.text(st.sampled_from("ab_.-"), min_size=1, max_size=40), tool_names, max_size=5))
def test_names_are_valid_distinct_and_independent_of_the_order(servers: dict[str, list[str]]) -> None:
    public = names(servers)
    assert len(set(public.values())) == len(public)
    assert all(is_valid_name(name) for name in public.values())
    assert names({server: servers[server][::-1] for server in reversed(servers)}) == public


@given(st.dictionaries(st.text(st.sampled_from("abc"), min_size=1, max_size=3), tool_names, min_size=2, max_size=4))
def test_adding_a_server_changes_no_name(servers: dict[str, list[str]]) -> None:
    public = names(servers)
    with_another = names({**servers, "later": ["read"]})
    assert public.items() <= with_another.items()


def test_a_repeated_name_gets_a_number_that_no_other_name_has() -> None:
    assert distinct_names(["a", "a", "a_2", "a", "b"]) == ["a", "a_3", "a_2", "a_4", "b"]


def test_a_target_is_named_after_its_server_host_or_command() -> None:
    assert name_of_target(Server("docs")) == "docs"
    assert name_of_target("https://harbour.example/mcp") == "harbour.example"
    assert name_of_target("servers/tides.py") == "tides"
    assert name_of_target(["uvx", "mcp-server-git", "--repository", "."]) == "mcp-server-git"
    assert name_of_target([""]) == name_of_target([]) == name_of_target("http://[::1") == "server"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/charts --all", "charts"),
        ("./charts.sh", "charts"),
        ("run charts", "run"),
        ("npx", "npx"),
        ("npx -y @harbour/charts@1.2.3", "charts"),
        ("npx mcp-remote https://harbour.example/mcp", "mcp-remote"),
        ("uvx charts@latest", "charts"),
        ("uvx charts[all]==1.2", "charts"),
        ("uvx --from git+https://harbour.example/pier charts", "charts"),
        ("uv --directory /srv/charts run main.py", "charts"),
        ("uv run --with mcp charts.py", "charts"),
        ("python3.11 -m charts", "charts"),
        ("python -c print(1) charts", "python"),
        ("docker run -i --rm -e TOKEN=s3cret -v /a:/b ghcr.io/harbour/charts:latest --all", "charts"),
        ("docker run --label TOKEN=s3cret charts", "charts"),
        ("docker exec -i charts serve", "charts"),
        ("uvx wharfinger serve ./charts", "charts"),
        ("wharfinger serve .", "wharfinger"),
    ],
)
def test_a_command_is_named_after_what_it_runs(command: str, name: str) -> None:
    """A bug: `add` and `Host` disagreed. A variable of `docker run -e`, with its value, was a name in hosts' files."""
    assert program_name(command.split()) == name
    assert name_of_target(command.split()) == name
