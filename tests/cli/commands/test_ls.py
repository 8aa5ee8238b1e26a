"""`ls` shows a tree, sorts and filters it, and prints URIs as the server sends them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli, Terminal
from wharfinger.cli import main
from wharfinger.cli.render.resource_tree import split_uri

SERVER = '''
from wharfinger import Server
from wharfinger.types import Annotations

server = Server("harbour")


def add(uri, size, priority, modified, mime, audience):
    notes = Annotations(priority=priority, last_modified=modified, audience=audience)

    @server.resource(uri, size=size, mime_type=mime, annotations=notes)
    def content() -> bytes:
        return b"x"


add("a://log/1", 10, 0.5, "2026-01-02T00:00:00Z", "text/plain; charset=utf-8", ["user"])
add("a://log/2", 30, 1.0, "2026-01-01T00:00:00+00:00", "text/csv", ["assistant"])
add("a://log/sub/3", 20, 0.0, "nonsense", "image/png", ["user", "assistant"])


@server.resource("b:plain")
def plain() -> str:
    return ""


@server.resource("a://log/{day}/all", mime_type="text/plain")
def day(day: str) -> str:
    return day


@server.tool
def sink() -> str:
    """Sink.

    More."""
    return ""


@server.prompt
def brief() -> str:
    return ""
'''

ListHarbour = Callable[..., str]


@pytest.fixture
def harbour(tmp_path: Path) -> str:
    """A file with a server."""
    file = tmp_path / "harbour.py"
    file.write_text(SERVER)
    return str(file)


@pytest.fixture
def list_harbour(capfd: pytest.CaptureFixture[str], harbour: str) -> ListHarbour:
    """Run `ls` in this process."""

    def run(*args: str) -> str:
        assert main(["ls", *args, harbour]) == 0
        return capfd.readouterr().out

    return run


def uris(out: str) -> list[str]:
    return re.findall(r"\b[ab]:\S+", out)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--sort", "size"], ["a://log/2", "a://log/sub/3", "a://log/1", "b:plain"]),
        (["--sort", "priority"], ["a://log/2", "a://log/1", "a://log/sub/3", "b:plain"]),
        (["--sort", "modified", "--limit", "2"], ["a://log/1", "a://log/2"]),
        (["--sort", "size", "--limit", "1"], ["a://log/2"]),
        (["--sort", "priority", "--limit", "9"], ["a://log/2", "a://log/1", "a://log/sub/3", "b:plain"]),
        (["--mime", "text/*"], ["a://log/1", "a://log/2"]),
        (["--mime", "TEXT/plain", "--templates"], ["a://log/{day}/all"]),
        (["--audience", "user"], ["a://log/1", "a://log/sub/3", "b:plain"]),
        (["--audience", "assistant", "--mime", "image/*"], ["a://log/sub/3"]),
        (["--mime", "video/*"], []),
    ],
)
def test_entries_are_filtered_and_sorted_by_the_options(
    list_harbour: ListHarbour, args: list[str], expected: list[str]
) -> None:
    assert uris(list_harbour(*args)) == expected
    assert [
        json.loads(line).get("uri", "a://log/{day}/all") for line in list_harbour("--json", *args).splitlines()
    ] == expected


def test_a_sorted_list_shows_its_sort_key(list_harbour: ListHarbour) -> None:
    assert list_harbour("--sort", "modified", "--limit", "1").startswith("2026-01-02T00:00:00Z")
    assert list_harbour("--sort", "priority", "--limit", "1").startswith("1.00")


def test_the_tree_shows_everything_once(list_harbour: ListHarbour) -> None:
    tree = list_harbour("--tree")
    assert tree.splitlines()[0] == "harbour 0"
    assert [line.split("  ")[0] for line in tree.splitlines() if not line.startswith(" ")][1:] == [
        "resources (4)",
        "templates (1)",
        "tools (1)",
        "prompts (1)",
    ]
    assert re.search(r"^  a://log/\n    1 +10 B  text/plain.*\n    2 .*\n    sub/3 .*\n  b:plain", tree, re.MULTILINE)
    assert "  sink  Sink.\n" in tree
    assert "resources (1)\n  a://log/1" in list_harbour("--tree", "--limit", "1")
    assert "tools" not in list_harbour("--tree", "--mime", "text/*")
    assert list_harbour("--tree", "--tools").splitlines()[1:] == ["tools (1)", "  sink  Sink."]


@pytest.mark.parametrize("args", [["--tree", "--json"], ["--tools", "--mime", "a/b"], ["--prompts", "--sort", "size"]])
def test_options_that_contradict_each_other_are_usage_errors(args: list[str], harbour: str) -> None:
    assert main(["ls", *args, harbour]) == 2


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:///a/b.md", ["file:///", "a/", "b.md"]),
        ("http://h.test:80/a?b=/c/d", ["http://h.test:80/", "a?b=/c/d"]),
        ("a:b", ["a:b"]),
        ("a://", ["a://"]),
        ("a://h//b/", ["a://h/", "/", "b/"]),
        ("nonsense", ["nonsense"]),
        ("", [""]),
        ("a:b\0c", ["a:b\0c"]),
        # A bug: a tree with such a URI took hours.
        ("a://" + "b/" * 1_000_000, ["a://b/", *["b/"] * 99, "b/" * 999_900]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_segments_join_to_the_uri(uri: str, expected: list[str]) -> None:
    assert split_uri(uri) == expected
    assert "".join(split_uri(uri)) == uri


def test_no_color_disables_colour(terminal: Callable[..., Terminal], harbour: str) -> None:
    session = terminal("ls", "--tree", harbour, env={"NO_COLOR": "1"})
    assert session.wait_for_exit() == 0
    assert "\x1b" not in session.output


def test_a_server_without_the_method_for_templates_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server may leave out `resources/templates/list`. "Method not found" means that it has no templates."""
    file = tmp_path / "plain.py"
    file.write_text(
        'from wharfinger import Server\n\nserver = Server("plain")\n\n@server.resource("a://b")\ndef b() -> str: ...\n'
        'del server.handlers["resources/templates/list"]\n'
    )
    assert main(["ls", "--tree", str(file)]) == 0
    assert capsys.readouterr().out == "plain 0\nresources (1)\n  a://b\n"
    assert main(["ls", "--templates", str(file)]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["ls", "--prompts", str(file)]) == 1
    assert "The server has no prompts; it has resources: `ls --resources`." in capsys.readouterr().err


def test_ls_shows_resources_and_no_escape_sequences(run_cli: RunCli, tide_url: str) -> None:
    code, out, err = run_cli("ls", tide_url)
    assert (code, err) == (0, "")
    assert re.search(r"^ +-  text/plain  tide://now  The tide \\x1b\[31mnow$", out, re.MULTILINE)


def test_ls_shows_templates_and_tools(run_cli: RunCli, tide_url: str) -> None:
    assert run_cli("ls", "--templates", tide_url)[1].split() == ["tide://at/{place}", "at"]
    assert "rise  Let the water rise.\n" in run_cli("ls", "--tools", tide_url)[1]
    assert len(run_cli("ls", "--limit", "1", tide_url)[1].splitlines()) == 1


def test_ls_json_prints_one_object_per_line(run_cli: RunCli, tide_url: str) -> None:
    _, out, _ = run_cli("ls", "--json", "--tools", "--resources", tide_url)
    objects = [json.loads(line) for line in out.splitlines()]
    assert [item["name"] for item in objects] == ["rise", "sink", "now", "map"]
