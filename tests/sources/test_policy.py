"""Logs, tables, archives, skills and the machine with a policy: as if the hidden part had never been there."""

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
HUNDREDS = {f"private/{number:03}.txt": "prudence hiddenword" for number in range(300)}
CASES: Mapping[str, tuple[Callable[[Path], Any], dict[str, str], dict[str, str]]] = {
    "log": (
        lambda place: logs(str(place / "**/*.log*"), label="d"),
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
        lambda place: tables(place, label="d"),
        {"a.csv": "day,price\n1,2\n", "sub/b.csv": "x,y\nprudence,2\n"},
        {
            "secret.csv": "hiddenword,pay\n1,2\n",
            "private/c.csv": "hiddenword\n1\n",
            "sub/secret.csv": "hiddenword\n1\n2\n",
        },
    ),
    "archive": (
        lambda place: objects(f"zip:{zipped(place)}", label="d"),
        {"a.txt": "prudence", "docs/b.txt": "b", "docs/deep/c.txt": "c", "zed.txt": "z"},
        {
            **HUNDREDS,
            "docs/secret.txt": "hiddenword",
            "docs/a/secret.txt": "x",
            "secret.txt": "x",
            "docs/deep/secret": "x",
        },
    ),
    "tar archive": (
        lambda place: objects(f"tar:{tarred(place)}", label="d"),
        {"a.txt": "prudence", "docs/b.txt": "b", "docs/deep/c.txt": "c", "zed.txt": "z"},
        {
            **HUNDREDS,
            "docs/secret.txt": "hiddenword",
            "docs/a/secret.txt": "x",
            "secret.txt": "x",
            "docs/deep/secret": "x",
        },
    ),
    "skill": (
        lambda place: skills(place),
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


def zipped(place: Path) -> Path:
    path = place / "d.zip"
    with zipfile.ZipFile(path, "w") as file:
        for each in sorted(place.rglob("*")):
            if each.is_file() and each != path:
                member = zipfile.ZipInfo(each.relative_to(place).as_posix(), (2026, 11, 20, 10, 0, 0))
                file.writestr(member, each.read_bytes())
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def tarred(place: Path) -> Path:
    path = place / "d.tar"
    with tarfile.open(path, "w") as file:
        for each in sorted(place.rglob("*")):
            if each.is_file() and each != path:
                file.add(each, each.relative_to(place).as_posix())
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def make(place: Path, contents: Mapping[str, str], same: Path | None = None) -> Path:
    """Write files. A file that `same` has too is the same file, with the same inode."""
    for path, text in contents.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        if same is not None:
            os.link(same / path, place / path)
        else:
            (place / path).write_text(text)
            os.utime(place / path, (1_700_000_000, 1_700_000_000))
    return place


def answers(source: Any, paths: list[str], top: str) -> list[tuple[str, Any]]:
    """Return all answers of a source, each with its question."""
    found: list[tuple[str, Any]] = []
    for limit in (1, 2, 1000):
        after: str | None = None
        for _ in range(50):
            entries, after = source.page(after, limit)
            found.append((f"page {limit} {after is None}", encode(entries).decode()))
            if after is None:
                break
    documents, after = source.documents(None, 100)  # no caller sees its pages
    while after is not None:
        more, after = source.documents(after, 100)
        documents = [*documents, *more]
    found.append(("documents", encode(documents).decode()))
    directories = ["", *sorted({str(path.parent) for path in map(Path, paths)} - {"."})]
    for path in [*directories, *(f"{path}/" for path in directories if path), *paths]:
        for what in (source.read, source.stat, source.children):
            try:
                found.append((f"{what.__name__} {path}", encode(what(top + path)).decode()))
            except (ResourceNotFound, InvalidArgument) as error:
                found.append((f"{what.__name__} {path}", repr(error)))
    for value in ("", "s", "a", "docs/", "private/", "sub/", "one", "secret"):
        for template in source.templates:
            found.append((f"path {value}", source.complete(template.uri_template, "path", value, {})))
            columns = source.complete(template.uri_template, "columns", "", {"path": f"{value}secret.csv"})
            found.append((f"columns {value}", columns))
    for query in ("prudence", "hiddenword", "secret", "prudense"):
        hits = search_documents(source, query, 10)
        found.append((f"search {query}", (encode(list(hits)), hits.truncated, hits.remark)))
    return found


@pytest.mark.parametrize("kind", CASES)
def test_a_policy_shows_a_source_as_one_without_the_hidden_resources(kind: str, tmp_path: Path, permit: Permit) -> None:
    make_source, seen, hidden = CASES[kind]
    places = [make(tmp_path / "whole" / "d", seen)]
    time.sleep(0.02)
    places.append(make(tmp_path / "rest" / "d", seen, places[0]))
    make(places[0], hidden)
    whole, rest = map(make_source, places)
    assert whole.uri == rest.uri
    top = whole.uri if whole.uri.endswith("/") else whole.uri + "/"
    deny = [f"{top}private/**", f"{top}**/secret*/**", f"{top}**/secret*", f"{top}app.log.1", f"{top}docs/a/**"]
    with permit(f"{top}**", deny=deny):
        for one, other in zip(answers(whole, list(seen), top), answers(rest, list(seen), top), strict=True):
            assert one == other
    assert "hiddenword" in str(answers(whole, [*seen, *hidden], top))


def test_the_machine_shows_only_the_views_that_may_be_read(permit: Permit) -> None:
    source = system()
    with permit("system:///", "system:///memory"):
        assert [resource.name for resource in source.page(None, 10)[0]] == ["system", "memory"]
        assert [resource.name for resource in source.children("system:///")[0]] == ["memory"]
        text = encode(source.read("system:///")).decode()
        assert "1 view" in text and "disks" not in text and "processes" not in text
        assert [document.uri for document in source.documents(None, 10)[0]] == ["system:///memory"]
