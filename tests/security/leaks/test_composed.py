"""Answers composed of several things, such as histories, differences, schemas and archives, for two principals.

A directory in every revision of a repository, the commits that change nothing else, tables of a database with their
dependents, and a directory of an archive are hidden. Bob must not see their names, contents or hashes at any URI.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.leaks.all_requests import normalized, with_decoded_base64
from tests.security.leaks.callers import HttpCaller, http_app
from tests.security.leaks.world import MODIFICATION_TIME, word
from tests.server.driving import ERAS, STATELESS
from wharfinger import Server
from wharfinger.policy import Policy, Rule
from wharfinger.protocol.principal import Principal
from wharfinger.sources import git, objects, resource_tools, sql

PRINCIPALS = {name: Principal(subject=name) for name in ("ann", "bob")}
HIDDEN, SHOWN = word("hidden place"), word("shown place")
DENIED = (
    f"git://repo/tree/*/{HIDDEN}/**",
    f"git://repo/tree/*/**/{HIDDEN}.md",
    f"sqlite://shop/{HIDDEN}/**",
    f"zip://box/{HIDDEN}/**",
)
EVERYTHING = ("**", "tool:*")
POLICY = Policy(allow=[Rule(who="signed-in", what=EVERYTHING)], deny=[Rule(who="sub:bob", what=DENIED)])


def secret(seed: str) -> str:
    """Return a word that Bob must not see."""
    return word(f"secret {seed}")


def open_word(seed: str) -> str:
    """Return a word that Bob may see."""
    return word(f"open {seed}")


class Repository:
    """A repository in which visible and hidden files change, alone and together."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.clock = MODIFICATION_TIME
        self.git("init", "-q", "-b", "main")
        self.write(f"{SHOWN}/a.md", f"harbour {open_word('a')}\n")
        self.open_commits = [self.commit(f"Begin {open_word('begin')}", secret("no author"), False)]
        self.write(f"{HIDDEN}/{secret('name')}.md", f"harbour {secret('old content')}\n")
        self.hidden_commits = [self.commit(f"Add {secret('message')}", secret("author"))]
        self.git("tag", f"v-{secret('tag')}")
        self.write(f"{SHOWN}/a.md", f"harbour {open_word('a')}\nharbour {open_word('second')}\n")
        self.write(f"{HIDDEN}/{secret('name')}.md", f"harbour {secret('new content')}\n")
        self.open_commits.append(self.commit(f"Both {secret('message of both')}", "Open Author", False))
        self.write(f"{SHOWN}/{HIDDEN}.md", f"harbour {secret('content by name')}\n")
        self.write(f"{HIDDEN}/moved.md", f"harbour {secret('moved content')}\n" * 8)
        self.hidden_commits.append(self.commit(f"More {secret('second message')}", secret("author")))
        self.git("mv", f"{HIDDEN}/moved.md", f"{SHOWN}/came.md")
        self.write(f"{SHOWN}/came.md", f"harbour {open_word('came')}\n" * 8)
        self.open_commits.append(self.commit("Move", "Open Author", False))
        self.git("checkout", "-q", "-b", f"b-{secret('branch')}")
        self.write(f"{HIDDEN}/branch.md", f"harbour {secret('branch content')}\n")
        self.hidden_commits.append(self.commit(f"Branch {secret('branch message')}", secret("author")))
        self.git("checkout", "-q", "main")
        self.write(f"{HIDDEN}/last.md", f"harbour {secret('last content')}\n")
        self.hidden_commits.append(self.commit(f"Last {secret('last message')}", secret("author")))
        self.write(f"{HIDDEN}/dirty.md", f"harbour {secret('dirty content')}\n")
        self.write(f"{SHOWN}/dirty.md", f"harbour {open_word('dirty')}\n")
        lines = self.git("ls-tree", "-r", "HEAD").splitlines()
        self.hidden_objects = [line.split()[2] for line in lines if HIDDEN in line.split("\t")[1]]

    def git(self, *arguments: str) -> str:
        environment = {
            **os.environ,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_AUTHOR_DATE": f"{self.clock} +0000",
            "GIT_COMMITTER_DATE": f"{self.clock} +0000",
        }
        completed = subprocess.run(["git", *arguments], cwd=self.root, env=environment, capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self, message: str, author: str, hidden: bool = True) -> str:
        self.clock += 86_400
        author = author if hidden else "Open Author"
        self.git("add", "-A")
        identity = ("-c", f"user.name={author}", "-c", "user.email=a@a.example")
        self.git(*identity, "commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD").strip()


def write_database(path: Path, with_hidden: bool) -> None:
    """Write a visible table and, if `with_hidden`, a hidden one with a view, an index and a trigger that name it."""
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE {SHOWN} (id INTEGER PRIMARY KEY, {open_word('column')} TEXT)")
        database.execute(f"INSERT INTO {SHOWN} VALUES (1, 'harbour {open_word('row')}')")
        if with_hidden:
            database.executescript(f"""
                CREATE TABLE {HIDDEN} (id INTEGER PRIMARY KEY, {secret("column")} TEXT);
                INSERT INTO {HIDDEN} VALUES (1, 'harbour {secret("row")}'), (2, 'harbour {secret("row")}');
                CREATE VIEW {secret("view")} AS SELECT {secret("column")} FROM {HIDDEN};
                CREATE INDEX {secret("index")} ON {HIDDEN} ({secret("column")});
                CREATE TRIGGER {secret("trigger")} AFTER INSERT ON {HIDDEN} BEGIN SELECT 1; END;
            """)


def write_archive(path: Path, with_hidden: bool) -> None:
    """Write a visible member and, if `with_hidden`, members in a hidden directory."""
    with zipfile.ZipFile(path, "w") as archive:
        members = {f"{SHOWN}/a.md": open_word("member")}
        if with_hidden:
            members |= {
                f"{HIDDEN}/{secret('member name')}.md": secret("member"),
                f"{HIDDEN}/b/c.md": secret("deep member"),
            }
        for name, text in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), f"harbour {text}\n")


def all_requests(repository: Repository, revision: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield reads of every form of URI for every revision and path, searches, queries and completions."""
    revisions = [
        "HEAD",
        "main",
        "HEAD~1",
        "HEAD~2",
        "HEAD~3",
        "main~4",
        "HEAD^",
        f"v-{secret('tag')}",
        f"b-{secret('branch')}",
    ]
    commits = [*repository.open_commits, *repository.hidden_commits]
    revisions += [*commits, *(commit[:8] for commit in commits), *repository.hidden_objects]
    paths = ["", f"/{SHOWN}", f"/{SHOWN}/a.md", f"/{SHOWN}/came.md", f"/{HIDDEN}", f"/{HIDDEN}/{secret('name')}.md"]
    paths += [f"/{HIDDEN}/moved.md", f"/{SHOWN}/{HIDDEN}.md", f"/{HIDDEN}/last.md"]
    uris = ["git://repo", "git://repo/changes", f"git://repo/changes/{SHOWN}", f"git://repo/changes/{HIDDEN}"]
    for revision_or_object in revisions:
        uris += [f"git://repo/tree/{revision_or_object}{path}" for path in paths]
        uris += [f"git://repo/blame/{revision_or_object}{path}" for path in paths if path.endswith(".md")]
        uris += [f"git://repo/{kind}/{revision_or_object}" for kind in ("commit", "diff", "log")]
    for start in ("HEAD", "main", *commits[:4]):
        texts = ["harbour", secret("new content"), secret("old content"), secret("message"), open_word("came")]
        uris += [f"git://repo/grep/{start}?text={text}" for text in texts]
        uris += [f"git://repo/log/{start}?{key}={text}" for text in texts for key in ("grep", "pickaxe")]
        uris += [f"git://repo/log/{start}?path={path[1:]}" for path in paths[1:]]
        uris += [f"git://repo/log/{start}?author={author}" for author in ("Open", secret("author"))]
        uris += [
            f"git://repo/diff/{commit}..{start}{path}" for commit in commits for path in ("", f"/{HIDDEN}", f"/{SHOWN}")
        ]
    uris += ["sqlite://shop", *(f"sqlite://shop/{name}" for name in (SHOWN, HIDDEN, secret("view")))]
    for name in (SHOWN, HIDDEN, secret("view")):
        suffixes = (
            "rows",
            "rows?limit=1",
            "rows/1",
            f"rows/1/{secret('column')}",
            f"rows?{secret('column')}=x",
            "rows?tail=1",
        )
        uris += [f"sqlite://shop/{name}/{suffix}" for suffix in suffixes]
    uris += ["zip://box", "zip://box/", f"zip://box/{SHOWN}/", f"zip://box/{SHOWN}/a.md", f"zip://box/{HIDDEN}/"]
    uris += [f"zip://box/{HIDDEN}/{secret('member name')}.md", f"zip://box/{HIDDEN}/b/", f"zip://box/{HIDDEN}/b/c.md"]
    for uri in uris:
        yield "resources/read", {"uri": uri}
        if uri.startswith(("sqlite", "zip")) or "~" in uri or uri.count("/") < 4:
            yield "tools/call", {"name": "read_resource", "arguments": {"uri": uri}}
            yield "tools/call", {"name": "read_directory", "arguments": {"uri": uri}}
            if revision == STATELESS:
                yield "resources/directory/read", {"uri": uri}
    for query in (
        "harbour",
        "open",
        "moved",
        HIDDEN,
        secret("row"),
        secret("new content"),
        secret("member"),
        secret("view"),
    ):
        for source in ("", "repo", "shop", "box"):
            yield "tools/call", {"name": "search", "arguments": {"query": query, "source": source}}
    for statement in (f"SELECT * FROM {SHOWN}", f"SELECT * FROM {HIDDEN}", "SELECT sql FROM sqlite_schema"):
        yield "tools/call", {"name": "query", "arguments": {"statement": statement}}
    templates = {
        "git://repo/tree/{rev}/{+path}": ("rev", "path"),
        "git://repo/commit/{rev}": ("rev",),
        "git://repo/blame/{rev}/{+path}": ("rev", "path"),
        "sqlite://shop/{table}": ("table",),
        "sqlite://shop/{table}/rows{?columns}": ("table", "columns"),
        "zip://box/{+path}": ("path",),
    }
    for template, names in templates.items():
        for name in names:
            for value in ("", "q", HIDDEN[:3], f"{HIDDEN}/", f"{SHOWN}/", "b-", "v-"):
                yield (
                    "completion/complete",
                    {
                        "ref": {"type": "ref/resource", "uri": template},
                        "argument": {"name": name, "value": value},
                        "context": {"arguments": {"rev": "HEAD", "table": HIDDEN}},
                    },
                )


async def answers_of(
    root: Path, repository: Repository, with_hidden: bool, revision: str, schemes: tuple[str, ...]
) -> dict[str, bytes]:
    """Return Bob's answers after Ann has sent the same requests."""
    write_database(root / f"shop{with_hidden}.db", with_hidden)
    write_archive(root / f"box{with_hidden}.zip", with_hidden)
    server = Server("composed", page_size=50, secret="x" * 32)
    server.include(git(repository.root, label="repo"))
    server.include(sql(f"sqlite:///{root}/shop{with_hidden}.db", label="shop"))
    if "zip:" in schemes:
        server.include(objects(f"zip:{root}/box{with_hidden}.zip", label="box"))
    server.include(resource_tools(allow_query=True))
    server.policy = POLICY
    await server.start()
    app = http_app(server, PRINCIPALS)
    answers: dict[str, bytes] = {}
    try:
        async with HttpCaller(app, "ann", revision) as ann, HttpCaller(app, "bob", revision) as bob:
            for caller in (ann, bob):
                for method in ("resources/list", "resources/templates/list", "tools/list"):
                    answers[method] = await caller.ask(method)
                    assert b'"nextCursor":"' not in answers[method]
                for method, params in all_requests(repository, revision):
                    if not any(scheme in str(params) for scheme in (*schemes, "query", "statement")):
                        continue
                    answers[f"{method} {params}"] = await caller.ask(method, params)
    finally:
        await server.close()
    assert not with_hidden or HIDDEN.encode() in ann.received  # there is something to leak
    return answers


SECRET_SEEDS = (
    *("name", "old content", "new content", "author", "message", "second message", "content by name", "moved content"),
    *("branch content", "branch message", "last content", "last message", "dirty content", "message of both"),
    *("column", "row", "view", "index", "trigger", "member", "member name", "deep member"),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("schemes", [("git:",), ("sqlite:",), ("zip:",)], ids=str)
@pytest.mark.parametrize("revision", ERAS)
def test_composed_answers_reveal_nothing_hidden(revision: str, schemes: tuple[str, ...], tmp_path: Path) -> None:
    root = tmp_path.resolve()
    repository = Repository(root / "repo")
    secrets = {HIDDEN, *map(secret, SECRET_SEEDS)}
    for name in (*repository.hidden_commits, *repository.hidden_objects):
        secrets |= {name, name[:8]}
    found = asyncio.run(answers_of(root, repository, True, revision, schemes))
    failures: list[str] = []
    for request, answer in found.items():
        text = with_decoded_base64(answer).decode(errors="replace")
        if leaks := [name for name in secrets if name in text and name not in request]:
            failures.append(f"{request}: {leaks}")
    assert not failures, "\n".join(failures[:30])
    shown = {"git:": "a", "sqlite:": "row", "zip:": "member"}[schemes[0]]
    assert any(open_word(shown).encode() in answer for answer in found.values())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["sqlite:", "zip:"])
def test_answers_equal_those_of_a_source_without_the_hidden_part(scheme: str, tmp_path: Path) -> None:
    root = tmp_path.resolve()
    repository = Repository(root / "repo")

    def answers(with_hidden: bool) -> dict[str, bytes]:
        found = asyncio.run(answers_of(root, repository, with_hidden, STATELESS, (scheme,)))
        return {
            request: normalized(answer)
            .replace(b"box%r" % with_hidden, b"box")
            .replace(b"shop%r" % with_hidden, b"shop")
            for request, answer in found.items()
        }

    found, expected = answers(True), answers(False)
    differing = [
        f"{request}:\n  {found[request][:800]!r}\n  {expected[request][:800]!r}"
        for request in found
        if "statement" not in request  # by design, a hidden table forbids all statements on its database
        if found[request] != expected[request]
    ]
    assert not differing, "\n".join(differing[:10])
