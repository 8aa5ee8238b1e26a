"""A policy file is reloaded while the server runs. The old policy is kept if the new file is invalid."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from pathlib import Path

import pytest

from tests.waiting import wait_until_async
from wharfinger import Client, Server
from wharfinger.auth import IntrospectionVerifier, StaticTokens, TokenAuth, create_token
from wharfinger.errors import RemoteResourceNotFound
from wharfinger.policy import Policy, Rule, UnusablePolicy
from wharfinger.server.policy_file import PolicyFile
from wharfinger.sources import files

ALLOW = '[[allow]]\nwho = "local"\nwhat = "note://{name}"\n'


def notes_server(policy: Path) -> Server:
    server = Server("notes", policy=policy)
    server.resource("note://a")(lambda: "a")
    server.resource("note://b")(lambda: "b")
    return server


def replace_file(file: Path, text: str) -> None:
    """Replace a file by a rename, as editors and configuration managers do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(ALLOW.format(name="a"))
    return path


async def readable_uris(client: Client) -> list[str]:
    uris: list[str] = []
    for uri in ("note://a", "note://b"):
        try:
            await client.read_resource(uri)
        except RemoteResourceNotFound:
            continue
        uris.append(uri)
    return uris


async def test_a_changed_file_applies_from_the_next_request_without_a_restart(file: Path) -> None:
    server = notes_server(file)
    async with Client(server, cache=False) as client:
        assert await readable_uris(client) == ["note://a"]
        old = server.policy
        replace_file(file, ALLOW.format(name="b"))
        await wait_until_async(lambda: server.policy is not old, "the policy is replaced")
        assert await readable_uris(client) == ["note://b"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[[allow", "policy.toml"), ('[[allow]]\nwhoo = "anyone"', "allow 1: "),
     ('[[test]]\nas = "local"\nallow = "read note://b"', "test 1 fails"), (None, "cannot be read")],
)  # fmt: skip
async def test_the_old_policy_is_kept_if_the_new_one_is_invalid(
    file: Path, text: str | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = notes_server(file)
    async with Client(server, cache=False) as client:
        old = server.policy
        if text is None:
            file.unlink()
        else:
            replace_file(file, text)
        await server.reload()
        assert server.policy is old
        assert await readable_uris(client) == ["note://a"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "The old policy stays" in caplog.text
    assert reason in caplog.text


class SlowFile:
    """Loads policies; while `slow` is set, the text is read at once, and returned when `released` is set."""

    def __init__(self) -> None:
        self.slow, self.reading, self.released = False, threading.Event(), threading.Event()

    def load(self, path: Path) -> Policy:
        slow, policy = self.slow, Policy.load(path)
        if slow:
            self.reading.set()
            assert self.released.wait(20)
        return policy


async def test_a_policy_that_is_set_while_the_file_is_read_again_stays(file: Path) -> None:
    """A bug: the policy of the file replaced it."""
    slow_file = SlowFile()
    server = notes_server(file)
    server.policy = PolicyFile(file, load=slow_file.load)
    slow_file.slow = True
    replace_file(file, ALLOW.format(name="b"))
    reload = asyncio.create_task(server.reload())
    await asyncio.to_thread(slow_file.reading.wait, 20)
    server.policy = other = Policy(allow=[Rule(who="local", what="note://other")])
    slow_file.released.set()
    await reload
    assert server.policy is other


async def test_of_two_reloads_at_once_the_one_of_the_newer_file_wins(file: Path) -> None:
    """A bug: the one that ended last won, and the server did not read the file again."""
    slow_file = SlowFile()
    server = notes_server(file)
    server.policy = PolicyFile(file, load=slow_file.load)
    slow_file.slow = True
    replace_file(file, ALLOW.format(name="older"))
    older = asyncio.create_task(server.reload())
    await asyncio.to_thread(slow_file.reading.wait, 20)
    slow_file.slow = False
    replace_file(file, ALLOW.format(name="newer"))
    await server.reload()
    newer = server.policy
    slow_file.released.set()
    await older
    assert server.policy is newer


async def test_the_file_is_still_followed_after_an_unexpected_error(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: an error other than UnusablePolicy, from a `load` of the author's, ended the checks of the file."""

    def load(path: Path) -> Policy:
        if "{" in path.read_text():
            raise ZeroDivisionError("odd")
        return Policy.load(path)

    server = notes_server(file)
    server.policy = PolicyFile(file, load=load)
    async with Client(server, cache=False) as client:
        replace_file(file, "{")
        await wait_until_async(lambda: "odd" in caplog.text, "the failure is logged")
        replace_file(file, ALLOW.format(name="b"))
        await wait_until_async(lambda: "read again" in caplog.text, "the policy is read again")
        assert await readable_uris(client) == ["note://b"]


DOCS_RULES = '[[allow]]\nwho = "local"\nroots = "docs"\n[[test]]\nas = "local"\n'
"""A rule for `docs`, and the beginning of a test."""


def docs_server(folder: Path, expectation: str) -> tuple[Server, Path]:
    """Return a server of a folder `docs` with a file `a.md`, and its policy file, whose test has this expectation."""
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("a")
    file = folder / "policy.toml"
    file.write_text(f"{DOCS_RULES}{expectation}\n")
    server = Server("office", policy=file)
    server.include(files(folder / "docs"))
    return server, file


async def test_a_failing_policy_test_prevents_the_start_and_keeps_the_old_policy_on_reload(tmp_path: Path) -> None:
    server, file = docs_server(tmp_path, 'deny = "read file:///docs/a.md"')
    with pytest.raises(UnusablePolicy, match=r"test 1 fails: 'read file:///docs/a.md' is allowed by allow 1"):
        await server.start()
    file.write_text(f'{DOCS_RULES}allow = "read file:///docs/a.md"\n')
    server.policy = file
    await server.start()
    old = server.policy
    replace_file(
        file, '[[allow]]\nwho = "local"\nroots = "gone"\n[[test]]\nas = "local"\nallow = "read file:///docs/a.md"\n'
    )
    await server.reload()
    assert server.policy is not None
    assert old is not None
    assert server.policy.version == old.version
    await server.close()


@pytest.mark.parametrize("in_file", [True, False])
async def test_a_running_server_refuses_a_policy_whose_tests_fail_and_keeps_the_old_one(
    tmp_path: Path, in_file: bool
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("a")
    text = '[[allow]]\nwho = "local"\nroots = "docs"\n[[test]]\nas = "local"\ndeny = "read file:///docs/a.md"\n'
    file = tmp_path / "policy.toml"
    file.write_text(text)
    server = Server("office")
    server.include(files(tmp_path / "docs"))
    server.policy = old = Policy(allow=[Rule(who="local", what="file:///docs/a.md")])
    await server.start()
    with pytest.raises(UnusablePolicy, match=r"test 1 fails: 'read file:///docs/a.md' is allowed by allow 1"):
        server.policy = file if in_file else Policy.from_toml(text).relative_to(tmp_path)
    assert server.policy is old
    assert not server.has_policy_file
    await server.close()


async def test_new_tests_of_unchanged_rules_are_run_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug: a file whose tests alone had changed was ignored, so tests of rules with `roots` were not run."""
    server, file = docs_server(tmp_path, 'allow = "read file:///docs/a.md"')
    await server.start()
    replace_file(file, f'{DOCS_RULES}deny = "read file:///docs/a.md"\n')
    await server.reload()
    assert "test 1 fails: 'read file:///docs/a.md' is allowed by allow 1" in caplog.text
    replace_file(file, f'{DOCS_RULES}deny = "read file:///docs-old/a.md"\n')
    await server.reload()
    assert isinstance(server.policy, Policy)
    assert [test.deny for test in server.policy.tests] == ["read file:///docs-old/a.md"]
    await server.close()


async def test_two_servers_with_one_policy_file_both_follow_its_changes(file: Path) -> None:
    """A bug: only the one that looked first read the file again."""
    shared, servers = PolicyFile(file), [notes_server(file), notes_server(file)]
    for server in servers:
        server.policy = shared
    async with Client(servers[0], cache=False) as one, Client(servers[1], cache=False) as other:
        old = [server.policy for server in servers]
        replace_file(file, ALLOW.format(name="b"))
        for server, old_policy in zip(servers, old, strict=True):
            await wait_until_async(lambda: server.policy is not old_policy, "the policy is replaced")  # noqa: B023
        assert [await readable_uris(client) for client in (one, other)] == [["note://b"]] * 2


async def test_tests_that_a_new_source_makes_fail_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug: the rules applied to the directories of a source that was added, and the tests were not run again."""
    for name in ("docs", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("a")
    rules = '[[allow]]\nwho = "local"\nroots = ["docs", "more"]\n[[test]]\nas = "local"\n'
    tests = 'allow = "read file:///docs/a.md"\ndeny = "read file:///more/a.md"\n'
    server = Server("office", policy=Policy.from_toml(rules + tests).relative_to(tmp_path))
    server.include(files(tmp_path / "docs"))
    async with Client(server, cache=False) as client:
        assert caplog.records == []
        server.include(files(tmp_path / "more"))
        assert "test 1 fails: 'read file:///more/a.md' is allowed by allow 1" in caplog.text
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        await client.read_resource("file:///more/a.md")


async def test_a_policy_made_in_python_is_tested_before_the_server_starts() -> None:
    server = Server("office", policy=Policy.from_toml('[[test]]\nas = "local"\nallow = "read note://a"\n'))
    with pytest.raises(UnusablePolicy, match="test 1 fails"):
        await server.start()


async def test_tokens_are_verified_again_after_a_reload(file: Path, tmp_path: Path) -> None:
    token, _ = create_token(tmp_path / "tokens.json", "ann")
    tokens = StaticTokens(tmp_path / "tokens.json")
    verified_tokens: list[str] = []
    verify = tokens.verify

    async def record_token(token: str) -> object:
        verified_tokens.append(token)
        return await verify(token)

    tokens.verify = record_token  # type: ignore[method-assign,assignment]
    server, auth = notes_server(file), TokenAuth(tokens)
    server.asgi(auth=auth)

    async def authenticate() -> None:
        principal = auth.authenticate("POST", "https://a.example/mcp", {b"authorization": f"Bearer {token}".encode()})
        if asyncio.iscoroutine(principal):
            await principal

    for _ in range(2):
        await authenticate()
    assert len(verified_tokens) == 1
    replace_file(file, ALLOW.format(name="b"))
    await server.reload()
    await authenticate()
    assert len(verified_tokens) == 2


def test_a_rule_without_an_issuer_is_refused_if_two_kinds_of_tokens_are_trusted(tmp_path: Path) -> None:
    create_token(tmp_path / "tokens.json", "ann")
    other = IntrospectionVerifier(
        "https://id.example/introspect", issuer="https://id.example", client_id="c", client_secret="s"
    )
    auth = TokenAuth(StaticTokens(tmp_path / "tokens.json"), other)
    for issuer, accepted in ((None, False), ("https://id.example", True), ("", True), ("https://other.example", False)):
        rule = "" if issuer is None else f'issuer = "{issuer}"\n'
        server = Server("office", policy=Policy.from_toml(f'[[allow]]\nwho = "sub:ann"\n{rule}'))
        if accepted:
            server.asgi(auth=auth)
        else:
            with pytest.raises(UnusablePolicy, match="allow 1: this server"):
                server.asgi(auth=auth)
