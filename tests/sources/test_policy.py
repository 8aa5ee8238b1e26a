"""Logs, tables, archives, skills and the system with a policy: denied resources appear in no answer."""

from __future__ import annotations

import os
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.document_search import search_documents
from wharfinger.sources import logs, objects, skills, system, tables

Permit = Callable[..., AbstractContextManager[None]]

SKILL = "---\nname: {name}\ndescription: What {name} does, with prudence.\n---\nBody\n"
MANY_HIDDEN_FILES = {f"private/{number:03}.txt": "prudence hiddenword" for number in range(300)}
# The factory of a source from a folder, the files of the folder that may be read, and those that may not.
CASES: Mapping[str, tuple[Callable[[Path], Any], dict[str, str], dict[str, str]]] = {
    "log": (
        lambda root: logs(str(root / "**/*.log*"), label="d"),
        {
            "app.log": "2026-11-20T10:00:00Z INFO prudence 3\n",
            "app.log.2": "2026-11-18T10:00:00Z INFO prudence 1\n",
            "sub/other.log": "2026-11-20T10:00:00Z ERROR other\n",
        },
        {
            "app.log.1": "2026-11-19T10:00:00Z ERROR hiddenword prudence 2\n",
            "sub/secret.log": "2026-11-20T10:00:00Z ERROR hiddenword\n",
            "private/app.log": "2026-11-20T10:00:00Z ERROR hiddenword\n",
        },
    ),
    "table": (
        lambda root: tables(root, label="d"),
        {"a.csv": "day,price\n1,2\n", "sub/b.csv": "x,y\nprudence,2\n"},
        {
            "secret.csv": "hiddenword,pay\n1,2\n",
            "private/c.csv": "hiddenword\n1\n",
            "sub/secret.csv": "hiddenword\n1\n2\n",
        },
    ),
    "archive": (
        lambda root: objects(f"zip:{write_zip(root)}", label="d"),
        {"a.txt": "prudence", "docs/b.txt": "b", "docs/deep/c.txt": "c", "zed.txt": "z"},
        {
            **MANY_HIDDEN_FILES,
            "docs/secret.txt": "hiddenword",
            "docs/a/secret.txt": "x",
            "secret.txt": "x",
            "docs/deep/secret": "x",
        },
    ),
    "tar archive": (
        lambda root: objects(f"tar:{write_tar(root)}", label="d"),
        {"a.txt": "prudence", "docs/b.txt": "b", "docs/deep/c.txt": "c", "zed.txt": "z"},
        {
            **MANY_HIDDEN_FILES,
            "docs/secret.txt": "hiddenword",
            "docs/a/secret.txt": "x",
            "secret.txt": "x",
            "docs/deep/secret": "x",
        },
    ),
    "skill": (
        skills,
        {
            "one/SKILL.md": SKILL.format(name="one"),
            "one/notes.md": "prudence",
            "area/two/SKILL.md": SKILL.format(name="two"),
        },
        {
            "private/three/SKILL.md": SKILL.format(name="three"),
            "one/secret.md": "hiddenword",
            "area/secret/SKILL.md": SKILL.format(name="secret"),
        },
    ),
}


def write_zip(root: Path) -> Path:
    path = root / "d.zip"
    with zipfile.ZipFile(path, "w") as file:
        for source in sorted(root.rglob("*")):
            if source.is_file() and source != path:
                member = zipfile.ZipInfo(source.relative_to(root).as_posix(), (2026, 11, 20, 10, 0, 0))
                file.writestr(member, source.read_bytes())
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def write_tar(root: Path) -> Path:
    path = root / "d.tar"
    with tarfile.open(path, "w") as file:
        for source in sorted(root.rglob("*")):
            if source.is_file() and source != path:
                file.add(source, source.relative_to(root).as_posix())
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def write_files(root: Path, contents: Mapping[str, str], linked_from: Path | None = None) -> Path:
    """Write files, or hard links to the files in `linked_from`, which have the same times and inodes."""
    for path, text in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if linked_from is not None:
            os.link(linked_from / path, root / path)
        else:
            (root / path).write_text(text)
            os.utime(root / path, (1_700_000_000, 1_700_000_000))
    return root


def collect_answers(source: Any, paths: list[str], root_uri: str) -> list[tuple[str, Any]]:
    """Return the result or the error of each method of a source, with the call."""
    answers: list[tuple[str, Any]] = []
    for limit in (1, 2, 1000):
        after: str | None = None
        for _ in range(50):
            entries, after = source.page(after, limit)
            answers.append((f"page {limit} {after is None}", encode(entries).decode()))
            if after is None:
                break
    documents, after = source.documents(None, 100)  # callers do not see where these pages end
    while after is not None:
        more, after = source.documents(after, 100)
        documents = [*documents, *more]
    answers.append(("documents", encode(documents).decode()))
    directories = ["", *sorted({str(path.parent) for path in map(Path, paths)} - {"."})]
    for path in [*directories, *(f"{path}/" for path in directories if path), *paths]:
        for method in (source.read, source.stat, source.children):
            try:
                answers.append((f"{method.__name__} {path}", encode(method(root_uri + path)).decode()))
            except (ResourceNotFound, InvalidArgument) as error:
                answers.append((f"{method.__name__} {path}", repr(error)))
    for value in ("", "s", "a", "docs/", "private/", "sub/", "one", "secret"):
        for template in source.templates:
            answers.append((f"path {value}", source.complete(template.uri_template, "path", value, {})))
            columns = source.complete(template.uri_template, "columns", "", {"path": f"{value}secret.csv"})
            answers.append((f"columns {value}", columns))
    for query in ("prudence", "hiddenword", "secret", "prudense"):
        hits = search_documents(source, query, 10)
        answers.append((f"search {query}", (encode(list(hits)), hits.truncated, hits.remark)))
    return answers


@pytest.mark.parametrize("kind", CASES)
def test_a_source_answers_as_if_denied_resources_did_not_exist(kind: str, tmp_path: Path, permit: Permit) -> None:
    """The expected answers come from a source whose folder lacks the denied files."""
    make_source, visible, hidden = CASES[kind]
    roots = [write_files(tmp_path / "whole" / "d", visible)]
    time.sleep(0.02)  # gives the folders, unlike the files, different times
    roots.append(write_files(tmp_path / "rest" / "d", visible, roots[0]))
    write_files(roots[0], hidden)
    restricted, reduced = map(make_source, roots)
    assert restricted.uri == reduced.uri
    root_uri = restricted.uri if restricted.uri.endswith("/") else restricted.uri + "/"
    deny = [
        f"{root_uri}private/**",
        f"{root_uri}**/secret*/**",
        f"{root_uri}**/secret*",
        f"{root_uri}app.log.1",
        f"{root_uri}docs/a/**",
    ]
    with permit(f"{root_uri}**", deny=deny):
        for actual, expected in zip(
            collect_answers(restricted, list(visible), root_uri),
            collect_answers(reduced, list(visible), root_uri),
            strict=True,
        ):
            assert actual == expected
    assert "hiddenword" in str(collect_answers(restricted, [*visible, *hidden], root_uri))


def test_the_system_shows_only_permitted_views(permit: Permit) -> None:
    source = system()
    with permit("system:///", "system:///memory"):
        assert [resource.name for resource in source.page(None, 10)[0]] == ["system", "memory"]
        assert [resource.name for resource in source.children("system:///")[0]] == ["memory"]
        text = encode(source.read("system:///")).decode()
        assert "1 view" in text and "disks" not in text and "processes" not in text
        assert [document.uri for document in source.documents(None, 10)[0]] == ["system:///memory"]
