"""Permissions on a server process (rows P01 to P09, and R33 and R34 with a policy)."""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.policy.test_patterns import OTHER_SPELLINGS
from tests.security.leaks.callers import HttpCaller, http_app
from tests.security.server_processes import ServerProcess, StdioProcess, handshake_request
from tests.server.driving import ERAS, STATELESS
from tests.waiting import wait_until
from wharfinger import Server
from wharfinger.policy import Limit, Policy
from wharfinger.protocol.principal import Principal

FILE = "file:///data/open/a.txt"
POLICY = """
[[allow]]
who  = "local"
do   = "read"
what = "file:///data/open/**"
"""
WRITING_SERVER = '''
from pathlib import Path
from typing import Annotated
from wharfinger import Complete, Context, Server

server = Server("writes")
part = Server("part")
LOG = Path(__file__).with_name("written")


def write(value: str = "") -> list[str]:
    """A completion must not write either."""
    LOG.open("a").write("written ")
    return ["written"]


@server.tool
@part.tool
def erase() -> str:
    """Write something."""
    return write()[0]


@server.prompt
def ask(name: Annotated[str, Complete(write)]) -> str:
    return write()[0]


@server.resource("writes://{name}/do")
def do(name: Annotated[str, Complete(write)]) -> str:
    return write()[0]


@server.resource("open://a")
def a() -> str:
    return "open"


server.include(part, prefix="alias")
'''


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with an open and a private directory, beside a folder whose name has the same prefix."""
    for name in ("data/open/a.txt", "data/private/b.txt", "data-evil/c.txt", "data/open-evil/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"text of {name}")
    return tmp_path / "data"


def policy_file(folder: Path, text: str = POLICY) -> str:
    """Write a policy file. Return its path."""
    file = folder / "policy.toml"
    file.write_text(text)
    return str(file)


@pytest.fixture
def server(data: Path) -> Iterator[StdioProcess]:
    """A server of the folder. The local user may read one directory of it."""
    with StdioProcess(
        "serve", str(data), str(data.parent / "data-evil"), "--policy", policy_file(data.parent)
    ) as server:
        yield server


def without_names(answer: Any, *names: str) -> str:
    """Return an answer without its id and without the requested URI or name."""
    text = str({key: value for key, value in answer.items() if key != "id"})
    for name in names:
        text = text.replace(name, "…")
    return text


def test_a_resource_that_no_rule_lists_is_refused_like_one_that_does_not_exist(server: StdioProcess) -> None:
    """P01."""
    assert server.request("resources/read", {"uri": FILE})["result"]["contents"][0]["text"] == "text of data/open/a.txt"
    for uri in ("file:///data/private/b.txt", "file:///data-evil/c.txt", "file:///data/open-evil/d.txt"):
        missing = uri[:-5] + "q.txt"
        hidden = without_names(server.request("resources/read", {"uri": uri}), uri)
        assert hidden == without_names(server.request("resources/read", {"uri": missing}), missing)
    tool = server.request("tools/call", {"name": "read_resource", "arguments": {"uri": FILE}})
    nothing = server.request("tools/call", {"name": "never_was", "arguments": {"uri": FILE}})
    assert without_names(tool, "read_resource") == without_names(nothing, "never_was")
    assert server.request("tools/list")["result"]["tools"] == []
    uris = [resource["uri"] for resource in server.request("resources/list")["result"]["resources"]]
    assert not [uri for uri in uris if "private" in uri or "evil" in uri]


def test_a_root_with_the_same_prefix_is_not_allowed(data: Path) -> None:
    """P02."""
    text = f'[[allow]]\nwho = "local"\nroots = "{data}"\n'
    arguments = (str(data), str(data.parent / "data-evil"), "--policy", policy_file(data.parent, text))
    with StdioProcess("serve", *arguments) as server:
        assert "result" in server.request("resources/read", {"uri": FILE})
        assert "error" in server.request("resources/read", {"uri": "file:///data-evil/c.txt"})
    policy_file(data.parent, text.replace(str(data), str(data / "open")))
    with StdioProcess("serve", *arguments) as server:
        assert "result" in server.request("resources/read", {"uri": FILE})
        for uri in ("file:///data/open-evil/d.txt", "file:///data/private/b.txt", "file:///data-evil/c.txt"):
            assert "error" in server.request("resources/read", {"uri": uri})


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[[allow",
        '[[allow]]\nwho = "everyone"',
        '[[allow]]\nwho = "local"\nroots = []',
        '[[allow]]\nwho = "local"\n[[test]]\nas = "local"\ndeny = "read file:///a"',
    ],
    ids=["missing", "empty", "broken", "wrong", "no roots", "failing test"],
)
def test_an_unusable_policy_allows_nothing(data: Path, text: str | None) -> None:
    """P03: the server does not start. With an empty policy, nothing can be read."""
    file = str(data.parent / "missing.toml") if text is None else policy_file(data.parent, text)
    if text == "":
        with StdioProcess("serve", str(data), "--policy", file) as server:
            assert "error" in server.request("resources/read", {"uri": FILE})
            assert server.request("resources/list")["result"]["resources"] == []
        return
    with ServerProcess("serve", str(data), "--policy", file) as server:
        assert server.wait_for_exit(20) == 2
        wait_until(lambda: file.rpartition("/")[2].encode() in server.errors, "the error names the file")


def test_the_old_policy_applies_until_a_valid_one_replaces_it(data: Path, server: StdioProcess) -> None:
    """P03: broken, missing and correct files follow each other while requests are served."""
    private = "file:///data/private/b.txt"
    file = data.parent / "policy.toml"
    assert "result" in server.request("resources/read", {"uri": FILE})  # the server has read the first policy
    for broken in ("[[allow", '[[allow]]\nwho = "local"\nroots = []', None):
        if broken is None:
            file.unlink()
        else:
            policy_file(data.parent, broken)
        before = server.errors.count(b"old policy stays")

        def is_reported(before: int = before) -> bool:
            assert "result" in server.request("resources/read", {"uri": FILE})
            assert "error" in server.request("resources/read", {"uri": private})
            return server.errors.count(b"old policy stays") > before

        wait_until(is_reported, "the server reports that the old policy stays")
    policy_file(data.parent, POLICY.replace("open", "private"))
    wait_until(lambda: "result" in server.request("resources/read", {"uri": private}), "the new policy applies")
    assert "error" in server.request("resources/read", {"uri": FILE})


def test_every_other_spelling_of_an_allowed_uri_is_not_found(data: Path) -> None:
    """P04: also if everything else is allowed. None of them reads the private directory."""
    rules = '[[allow]]\nwho = "local"\n[[deny]]\nwho = "local"\nwhat = "file:///data/private/**"\n'
    with StdioProcess("serve", str(data), "--policy", policy_file(data.parent, rules)) as server:
        assert "result" in server.request("resources/read", {"uri": FILE})
        others = [
            other.replace("docs", "data/private").replace("a.md", "b.txt").replace("%2Emd", "%2Etxt")
            for other in OTHER_SPELLINGS["file:///docs/a.md"]
        ]
        others += [
            "file:///data/open/../private/b.txt",
            "file:///data/open/%2E%2E/private/b.txt",
            "file:///data/open/..%2Fprivate/b.txt",
            "file:///data/PRIVATE/b.txt",
            "file:///data/privat%65/b.txt",
            "file:///data/%70rivate/b.txt",
            "file:///data/private%C0%AFb.txt",
            "file:///data/private/b.txt?x=/../open/a.txt",
            "file:///data/private/b.txt#/../../open/a.txt",
        ]
        for uri in others:
            answer = server.request("resources/read", {"uri": uri})
            assert "error" in answer, uri
            assert "text of" not in str(answer)


@pytest.fixture
def writing_server(tmp_path: Path) -> Iterator[tuple[StdioProcess, Path]]:
    """A server whose tool, prompt, template and completions write, for a caller who may only read one resource."""
    (tmp_path / "app.py").write_text(WRITING_SERVER)
    rules = '[[allow]]\nwho = "local"\nlevel = "read"\nwhat = ["open://**", "tool:*"]\n'
    with StdioProcess("run", str(tmp_path / "app.py"), "--policy", policy_file(tmp_path, rules)) as server:
        yield server, tmp_path / "written"


def test_a_caller_who_may_only_read_cannot_call_anything_that_writes(writing_server: tuple[StdioProcess, Path]) -> None:
    """P06: a tool, its alias, a prompt, a template or a completion."""
    server, written = writing_server
    assert "result" in server.request("resources/read", {"uri": "open://a"})
    argument = {"name": "name", "value": ""}
    for method, params in [
        ("tools/call", {"name": "erase"}),
        ("tools/call", {"name": "alias_erase"}),
        ("prompts/get", {"name": "ask", "arguments": {"name": "x"}}),
        ("resources/read", {"uri": "writes://x/do"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": argument}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": "writes://{name}/do"}, "argument": argument}),
    ]:
        assert "error" in server.request(method, params), method
    assert not written.exists()


def test_a_permission_removed_after_the_list_is_checked_at_the_call(tmp_path: Path) -> None:
    """P07: and a tool that is not listed cannot be called."""
    (tmp_path / "app.py").write_text(WRITING_SERVER)
    rules = '[[allow]]\nwho = "local"\nwhat = "tool:erase"\n'
    with StdioProcess("run", str(tmp_path / "app.py"), "--policy", policy_file(tmp_path, rules)) as server:
        assert [tool["name"] for tool in server.request("tools/list")["result"]["tools"]] == ["erase"]
        assert "error" in server.request("tools/call", {"name": "alias_erase"})
        assert "result" in server.request("tools/call", {"name": "erase"})
        policy_file(tmp_path, rules.replace("tool:erase", "tool:other"))
        wait_until(lambda: "error" in server.request("tools/call", {"name": "erase"}), "the new policy applies")
        written = (tmp_path / "written").read_text()
        assert "error" in server.request("tools/call", {"name": "erase"})
        assert (tmp_path / "written").read_text() == written


async def test_the_limit_of_a_caller_applies_across_sessions_eras_and_clock_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P09: in new sessions and at any time of day. Other callers are not affected."""
    server = Server("limited")
    server.resources.add("open://a", lambda: "open")
    server.policy = Policy(limits=[Limit(who="signed-in", do="read", calls="5/day")])

    async def read(name: str, revision: str) -> bool:
        principals = {name: Principal(subject=name)}  # as a new token gives it
        async with HttpCaller(http_app(server, principals), name, revision) as caller:
            return b"open" in (await caller.ask("resources/read", {"uri": "open://a"})).partition(b'"result"')[2]

    allowed = [await read("ann", revision) for revision in (*ERAS, *ERAS, *ERAS, *ERAS)]
    assert allowed == [True] * 5 + [False] * 3
    now = time.time()
    for step in (86_400, -86_400, 10**9):
        monkeypatch.setattr(time, "time", lambda step=step: now + step)
        assert not await read("ann", STATELESS)
    assert await read("bob", STATELESS)
    await server.close()


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28", "0", "9999-12-31", "2025-11-25x", ""])
def test_no_protocol_version_gives_more_rights(server: StdioProcess, version: str) -> None:
    """P08: the version, capabilities and name of a client give no rights."""
    params = {
        "protocolVersion": version,
        "capabilities": {"experimental": {"policy": {"level": "admin"}}, "roots": {"listChanged": True}},
        "clientInfo": {"name": "local admin", "version": "99"},
    }
    server.send(handshake_request("open", "initialize", params))
    answer, _ = server.read_until_answer("open")
    if "result" in answer:
        assert answer["result"]["protocolVersion"] in ("2024-11-05", "2025-11-25")
        server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    server.send(handshake_request(2, "resources/read", {"uri": "file:///data/private/b.txt"}))
    assert "error" in server.read_until_answer(2)[0]
    server.send(handshake_request(3, "tools/call", {"name": "read_resource", "arguments": {"uri": FILE}}))
    assert "error" in server.read_until_answer(3)[0]


def test_names_in_another_case_or_form_are_other_files(data: Path) -> None:
    """R33: a rule for a name neither misses nor matches the name in another case or Unicode form."""
    composed, decomposed = (unicodedata.normalize(form, "privé.txt") for form in ("NFC", "NFD"))
    (data / "open" / composed).write_text("composed")
    try:
        (data / "open" / decomposed).write_text("decomposed")
    except OSError:
        pytest.skip("this file system has one name for both")
    rules = POLICY + '[[deny]]\nwho = "local"\nwhat = ["file:///data/open/priv%C3%A9.txt", "file:///data/open/a.txt"]\n'
    with StdioProcess("serve", str(data), "--policy", policy_file(data.parent, rules)) as server:
        for hidden in ("priv%C3%A9.txt", "privé.txt", "a.txt", "A.txt", "a.TXT", "PRIV%C3%89.TXT", "priv%C3%89.txt"):
            answer = server.request("resources/read", {"uri": f"file:///data/open/{hidden}"})
            assert "error" in answer, hidden
        other = server.request("resources/read", {"uri": "file:///data/open/prive%CC%81.txt"})
        assert other["result"]["contents"][0]["text"] == "decomposed"


def test_rules_apply_to_each_name_of_a_hard_link(data: Path) -> None:
    """R34, as documented: two names of one file are two resources, and a rule applies to names."""
    os.link(data / "private" / "b.txt", data / "open" / "linked.txt")
    os.symlink(data / "private" / "b.txt", data / "open" / "symbolic.txt")
    with StdioProcess("serve", str(data), "--policy", policy_file(data.parent)) as server:
        assert "result" in server.request("resources/read", {"uri": "file:///data/open/linked.txt"})
        assert "error" in server.request("resources/read", {"uri": "file:///data/private/b.txt"})
        assert "error" in server.request("resources/read", {"uri": "file:///data/open/symbolic.txt"})
