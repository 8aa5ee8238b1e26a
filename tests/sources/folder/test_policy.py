"""A folder with a policy: a caller sees the same as in a folder without the hidden files."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sources.conftest import Permit
from wharfinger.errors import ResourceNotFound
from wharfinger.policy.current import CURRENT_ACCESS, readable_names
from wharfinger.policy.policy import Policy
from wharfinger.policy.rule import Rule
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.principal import LOCAL
from wharfinger.server.document_search import search_documents
from wharfinger.sources.folder import tree
from wharfinger.sources.folder.file_uri import quote
from wharfinger.sources.folder.safe_open import has_another_spelling, open_root
from wharfinger.sources.folder.source import Folder, files

VISIBLE = {
    "readme.md": "# About\nprudence",
    "docs/guide.md": "# Guide\nprudence",
    "docs/a b.txt": "text",
    "docs/deep/x.md": "x",
    "mixed/open.md": "# Open\n",
    "mixed/sub/open.md": "prudence",
    "zebra.txt": "z",
}
HIDDEN = {
    "private/pay.md": "# Salaries\nprudence hiddenword",
    "private/deep/er/wages.md": "hiddenword",
    "mixed/wages.md": "hiddenword",
    "mixed/sub/wages.txt": "prudense",
    "mixed/awages.md": "a",
    "aaa/first.md": "first in the list",
    "docs/deep/wages.md": "prudence",
}
ALLOW = ["file:///d/**"]
DENY = ["file:///d/private/**", "file:///d/**/*wages.*", "file:///d/aaa/**"]


def write_files(root: Path, contents: dict[str, str]) -> None:
    for path, text in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        os.utime(root / path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Folder, Folder]:
    """A folder with hidden files, and a reference without them, whose files are hard links to the same files."""
    full, reference = tmp_path / "whole", tmp_path / "rest"
    write_files(full, VISIBLE)
    time.sleep(0.02)
    for path in VISIBLE:
        (reference / path).parent.mkdir(parents=True, exist_ok=True)
        os.link(full / path, reference / path)
    write_files(full, HIDDEN)
    return files(full, label="d"), files(reference, label="d")


def answers(folder: Folder) -> list[tuple[str, Any]]:
    """Return the answers to many requests about a folder, each with a label of its request."""
    found: list[tuple[str, Any]] = []
    for limit in (1, 2, 3, 1000):
        for name, page in (("page", folder.page), ("documents", folder.documents)):
            after: str | None = None
            for _ in range(50):
                entries, after = page(after, limit)
                found.append((f"{name} {limit} {after}", encode(entries)))
                if after is None:
                    break
    directories = ["file:///d", *(f"file:///d/{path}" for path in ("docs", "docs/deep", "mixed/", "mixed/sub"))]
    for uri in directories:
        found += [
            (f"{method.__name__} {uri}", encode(method(uri))) for method in (folder.read, folder.stat, folder.children)
        ]
        found.append((f"first of {uri}", encode(folder.children(uri, None, 1))))
    for path in VISIBLE:
        uri = "file:///d/" + path.replace(" ", "%20")
        found += [(f"{method.__name__} {uri}", encode(method(uri))) for method in (folder.read, folder.stat)]
    for value in ("", "s", "wages", "p", "private/", "mixed/", "mixed/s", "a", "open", "docs/deep/", "aaa/"):
        found.append((f"complete {value}", folder.complete(folder.template, "path", value, {})))
    for query in ("prudence", "prudense", "hiddenword", "wages", "salaries", "hiddenwort"):
        hits = search_documents(folder, query, 10)
        found.append((f"search {query}", (encode(list(hits)), hits.truncated, hits.remark)))
    return found


def without_ttl(answer: tuple[str, Any]) -> str:
    return re.sub(r'"ttlMs":\d+', "", str(answer))


def test_a_folder_with_denied_files_looks_like_one_without_them(folders: tuple[Folder, Folder], permit: Permit) -> None:
    full, reference = folders
    with permit(*ALLOW, deny=DENY):
        actual, expected = answers(full), answers(reference)
    for answer, expected_answer in zip(actual, expected, strict=True):
        assert answer == expected_answer


def test_rules_that_allow_everything_change_no_answer(folders: tuple[Folder, Folder], permit: Permit) -> None:
    with permit("file:///d/**"):
        actual = answers(folders[0])
    for answer, expected_answer in zip(actual, answers(folders[0]), strict=True):
        assert without_ttl(answer) == without_ttl(expected_answer)  # a TTL depends on the age of the folder


def test_a_directory_with_hidden_entries_has_no_date_and_a_stable_version(
    folders: tuple[Folder, Folder], permit: Permit
) -> None:
    full, _ = folders
    with permit(*ALLOW, deny=DENY):
        before = [full.stat(uri) for uri in ("file:///d", "file:///d/mixed", "file:///d/docs")]
        Path(full.root, "mixed/another.wages.md").write_text("new")
        Path(full.root, "docs/deep/another.wages.md").write_text("new")
        after = [full.stat(uri) for uri in ("file:///d", "file:///d/mixed", "file:///d/docs")]
    assert encode(before) == encode(after)
    assert all("lastModified" not in encode(resource).decode() for resource in before)


def test_only_files_below_an_allowed_directory_are_listed(folders: tuple[Folder, Folder], permit: Permit) -> None:
    full, _ = folders
    with permit("file:///d/mixed/sub/*"):
        assert [resource.uri for resource in full.page(None, 100)[0]] == [
            "file:///d/mixed/sub/open.md",
            "file:///d/mixed/sub/wages.txt",
        ]
        assert full.complete(full.template, "path", "", {}) == []
        assert full.complete(full.template, "path", "mixed/sub/", {}) == [
            "mixed/sub/open.md",
            "mixed/sub/wages.txt",
        ]
        assert "d/ holds 0 folders and 0 files" in str(full.read("file:///d").contents[0].text)


def test_directories_without_readable_files_are_not_opened(
    folders: tuple[Folder, Folder], permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, _ = folders
    opened: list[str] = []
    original = os.scandir

    def scandir(handle: Any) -> Any:
        opened.append(os.readlink(f"/proc/self/fd/{handle}") if isinstance(handle, int) else handle)
        return original(handle)

    monkeypatch.setattr(os, "scandir", scandir)
    with permit(*ALLOW, deny=DENY):
        full.page(None, 1000)
    assert opened
    assert not any("private" in path or "aaa" in path for path in opened)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_a_link_to_a_hidden_file_is_not_found(folders: tuple[Folder, Folder], permit: Permit) -> None:
    full, _ = folders
    os.symlink("../private/pay.md", Path(full.root, "docs/link.md"))
    os.symlink("../private", Path(full.root, "docs/linked"))
    with permit(*ALLOW, deny=DENY):
        for uri in ("file:///d/docs/link.md", "file:///d/docs/linked/pay.md", "file:///d/docs/linked"):
            with pytest.raises(ResourceNotFound):
                full.read(uri)


def test_another_spelling_of_a_name_is_detected(tmp_path: Path) -> None:
    (tmp_path / "Pay.md").write_text("x")
    (tmp_path / "plain").write_text("x")
    handle = open_root(str(tmp_path))
    ignores_case = (tmp_path / "pAY.MD").exists()
    assert has_another_spelling(handle, "Pay.md") is ignores_case
    if not ignores_case:  # the same inode under both names, as on a disk that ignores case
        os.link(tmp_path / "Pay.md", tmp_path / "pAY.MD")
        assert has_another_spelling(handle, "Pay.md")
    assert not has_another_spelling(handle, "missing")
    if isinstance(handle, int):
        os.close(handle)


def test_on_a_disk_that_ignores_case_only_the_listed_name_is_read(
    folders: tuple[Folder, Folder], permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, _ = folders

    # Such a disk opens `private`, but its listing has only the name `Private`.
    def list_directory(place: object) -> tree.DirectoryListing:
        return tree.DirectoryListing([], ["Private"], {})

    monkeypatch.setattr(tree, "has_another_spelling", lambda parent, name: True)
    monkeypatch.setattr(tree, "_list", list_directory)
    with permit(*ALLOW, deny=["file:///d/Private/**"]), pytest.raises(ResourceNotFound):
        full.read("file:///d/private/pay.md")


def test_a_cached_file_is_checked_for_another_spelling_under_a_policy(
    folders: tuple[Folder, Folder], permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, _ = folders
    uri = "file:///d/docs/guide.md"
    checked: list[str] = []

    def has_another_spelling(parent: object, name: str) -> bool:
        checked.append(name)
        return False

    monkeypatch.setattr(tree, "has_another_spelling", has_another_spelling)
    full.read(uri)
    full.read(uri)
    assert checked == []
    with permit(*ALLOW, deny=DENY):
        full.read(uri)
        assert checked == ["docs", "guide.md"]
        full.read(uri)
        assert checked == ["docs", "guide.md", "docs"]
        os.utime(Path(full.root, "docs/guide.md"))
        full.read(uri)  # opened to detect the changed status, and then checked like a new file
        assert checked == ["docs", "guide.md", "docs", "docs", "docs", "guide.md"]


NAMES = st.text(st.sampled_from("ab*.s\\ %é\n"), min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
PATTERNS = st.sampled_from([
    "file:///d/**", "file:///d/*", "file:///d/a/**", "file:///d/a/*", "file:///d/a/*s*", "file:///d/**/a", "**",
    "file:///d/a/b", "file:///d/*/*.*", "file:///d/a/**/**", "file:///*/a/%C3%A9",
])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(PATTERNS, max_size=3),
    st.lists(PATTERNS, max_size=3),
    st.lists(NAMES, min_size=1, max_size=8),
    st.sampled_from(["file:///d/", "file:///d/a/", "file:///d/a/b/"]),
)
def test_names_are_allowed_like_their_uris(allow: list[str], deny: list[str], names: list[str], prefix: str) -> None:
    policy = Policy(
        allow=[Rule(who="anyone", what=tuple(allow))] if allow else [],
        deny=[Rule(who="anyone", what=tuple(deny))] if deny else [],
    )
    access = policy.access(LOCAL)
    token = CURRENT_ACCESS.set(access)
    try:
        may_read = readable_names(prefix)
        for name in names:
            if may_read is not None:
                assert may_read(name) == access.allows("read", prefix + quote(name))
    finally:
        CURRENT_ACCESS.reset(token)
