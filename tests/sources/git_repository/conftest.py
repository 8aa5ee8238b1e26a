"""Repositories created by git, independently of the git configuration of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha1
from pathlib import Path
from typing import Any, cast

import pytest

from tests.conftest import absent
from wharfinger.server.document_search import search_documents
from wharfinger.server.threads import is_async
from wharfinger.source import Hit, Source
from wharfinger.sources.git_repository import GitSource, git
from wharfinger.sources.git_repository.references import References
from wharfinger.testing.source_suite.driver import SourceDriver

GIT = shutil.which("git")


class GitRepository:
    """A git repository, usually with a work tree. Its methods run git."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds = 1_795_000_000

    def git(self, *arguments: str, data: bytes | None = None, cwd: Path | None = None, **env: str) -> str:
        """Run git and return what it prints."""
        if GIT is None:
            absent("git (on Debian: apt-get install git)")
        self.seconds += 60
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment |= {
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.path.parent),
            "GIT_AUTHOR_NAME": "Ada Berth",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_COMMITTER_NAME": "Ada Berth",
            "GIT_COMMITTER_EMAIL": "ada@example.org",
            "GIT_AUTHOR_DATE": f"{self.seconds} +0100",
            "GIT_COMMITTER_DATE": f"{self.seconds} +0100",
            "LC_ALL": "C.UTF-8",
        } | env
        ran = subprocess.run(
            [GIT or "git", *arguments],
            cwd=cwd or self.path,
            input=data,
            env=environment,
            capture_output=True,
            timeout=50,
        )
        assert ran.returncode == 0, ran.stderr.decode()
        return os.fsdecode(ran.stdout).rstrip("\n")

    def init(self, *options: str) -> GitRepository:
        """Create the folder and the repository."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", *options)
        return self

    def write(self, name: str, content: str | bytes) -> GitRepository:
        """Write a file in the work tree."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return self

    def commit(self, message: str = "Change", **files: str | bytes) -> str:
        """Commit these files (`a__b` is written as `a.b`) and all other changes. Return the id of the commit."""
        for name, content in files.items():
            self.write(name.replace("__", "."), content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head

    @property
    def head(self) -> str:
        """The id of the commit of HEAD."""
        return self.git("rev-parse", "HEAD")

    def put(self, kind: str, content: bytes) -> str:
        """Store an object without checking its format. Return its id."""
        return self.git("hash-object", "-w", "-t", kind, "--literally", "--stdin", data=content)


@pytest.fixture
def work(tmp_path: Path) -> GitRepository:
    """Return an empty repository."""
    return GitRepository(tmp_path / "harbour").init()


@pytest.fixture
def history(work: GitRepository) -> GitRepository:
    """Return a repository with three commits, two branches and two tags."""
    work.commit("Begin", README__md="# Harbour\n", hull__txt="four\nfathoms\n")
    work.git("tag", "v1")
    work.write("docs/tides.md", "# Tides\n\nHigh at six.\n")
    work.commit("Tell of tides\n\nWith a table of all ports.")
    work.git("tag", "-a", "v2", "-m", "The second release")
    work.git("branch", "feature/lights")
    work.write("bin/run.sh", "#!/bin/sh\necho hi\n")
    work.write("buoy.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\xff\xfe")
    work.commit("Add a buoy", hull__txt="five\nfathoms\n")
    return work


class ServedGit:
    """Runs a source as a server does: its coroutines run on one event loop, in another thread."""

    def __init__(self, source: GitSource) -> None:
        self.source = source
        self.driver = SourceDriver(source)
        self.driver.__enter__()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.source, name)
        if is_async(value) or name in ("watch", "unwatch"):
            return partial(self._call, name)
        return value

    def _call(self, name: str, *arguments: Any) -> Any:
        if name in ("watch", "unwatch"):
            return self.driver.on_loop(name, *arguments)
        return self.driver.ask(name, *arguments, within=60)

    def references(self) -> References:
        """Return the current references."""
        return self.driver.run(self.source.repository.references.now())

    def search(self, query: str, limit: int) -> list[Hit]:
        """Search the documents as the server does without an index."""
        return search_documents(cast("Source", self), query, limit)

    def close(self) -> None:
        """Close the source and its event loop."""
        self.driver.run(self.source.close())
        self.driver.__exit__()


@pytest.fixture
def publish() -> Iterator[Callable[..., ServedGit]]:
    """Return a function that serves the source of a repository until the end of the test."""
    sources: list[ServedGit] = []

    def make(work: GitRepository | Path | str, **options: Any) -> ServedGit:
        sources.append(ServedGit(git(work.path if isinstance(work, GitRepository) else work, **options)))
        return sources[-1]

    yield make
    for source in sources:
        source.close()


@pytest.fixture
def source(history: GitRepository, publish: Callable[..., ServedGit]) -> ServedGit:
    """Return the source of the repository `history`, with the label `repo`."""
    return publish(history, label="repo")


def put_ambiguous_blobs(work: GitRepository) -> tuple[str, list[str]]:
    """Store blobs whose ids begin with the same four digits. Return these digits and the ids."""
    contents: dict[str, list[bytes]] = {}
    for number in range(3_000):
        content = b"%d" % number
        digits = sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()[:4]
        contents.setdefault(digits, []).append(content)
    digits = next(digits for digits in contents if len(contents[digits]) > 1)
    return digits, [work.put("blob", content) for content in contents[digits]]


def text_of(source: ServedGit, uri: str) -> str:
    """Return the text of the first content."""
    text = source.read(uri).contents[0].text
    assert isinstance(text, str)
    return text
