"""A folder with a policy: a caller sees what the folder would show if the rest had never been there."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wharfinger.errors import ResourceNotFound
from wharfinger.policy.current import CURRENT_ACCESS, readable_names
from wharfinger.policy.policy import Policy
from wharfinger.protocol.jsonrpc import encode
from wharfinger.protocol.principal import LOCAL
from wharfinger.server.document_search import search_documents
from wharfinger.sources.folder.safe_open import has_another_spelling, open_root
from wharfinger.sources.folder.source import Folder, files

Permit = Callable[..., AbstractContextManager[None]]

SEEN = {
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


def make(root: Path, contents: dict[str, str]) -> None:
    for path, text in contents.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        os.utime(root / path, (1_700_000_000, 1_700_000_000))


@pytest.fixture
def both(tmp_path: Path) -> tuple[Folder, Folder]:
    """The whole folder, and one without the hidden files. A file of both is the same file (a hard link)."""
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    make(whole, SEEN)
    time.sleep(0.02)
    for path in SEEN:
        (rest / path).parent.mkdir(parents=True, exist_ok=True)
        os.link(whole / path, rest / path)
    make(whole, HIDDEN)
    return files(whole, label="d"), files(rest, label="d")


def answers(folder: Folder) -> list[tuple[str, Any]]:
    """Return all answers about a folder, each with its question."""
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
        found += [(f"{what.__name__} {uri}", encode(what(uri))) for what in (folder.read, folder.stat, folder.children)]
        found.append((f"first of {uri}", encode(folder.children(uri, None, 1))))
    for path in SEEN:
        uri = "file:///d/" + path.replace(" ", "%20")
        found += [(f"{what.__name__} {uri}", encode(what(uri))) for what in (folder.read, folder.stat)]
    for value in ("", "s", "wages", "p", "private/", "mixed/", "mixed/s", "a", "open", "docs/deep/", "aaa/"):
        found.append((f"complete {value}", folder.complete(folder.template, "path", value, {})))
    for query in ("prudence", "prudense", "hiddenword", "wages", "salaries", "hiddenwort"):
        hits = search_documents(folder, query, 10)
        found.append((f"search {query}", (encode(list(hits)), hits.truncated, hits.remark)))
    return found


def without_ttl(answer: tuple[str, Any]) -> str:
    return re.sub(r'"ttlMs":\d+', "", str(answer))


def test_a_policy_shows_a_folder_as_one_without_the_hidden_files(both: tuple[Folder, Folder], permit: Permit) -> None:
    whole, rest = both
    with permit(*ALLOW, deny=DENY):
        seen, expected = answers(whole), answers(rest)
    for one, other in zip(seen, expected, strict=True):
        assert one == other


def test_with_rules_that_allow_everything_nothing_changes(both: tuple[Folder, Folder], permit: Permit) -> None:
    with permit("file:///d/**"):
        seen = answers(both[0])
    for one, other in zip(seen, answers(both[0]), strict=True):
        assert without_ttl(one) == without_ttl(other)  # the folder has become older meanwhile


def test_a_directory_with_hidden_entries_has_no_date_and_keeps_its_version(
    both: tuple[Folder, Folder], permit: Permit
) -> None:
    whole, _ = both
    with permit(*ALLOW, deny=DENY):
        before = [whole.stat(uri) for uri in ("file:///d", "file:///d/mixed", "file:///d/docs")]
        Path(whole.root, "mixed/another.wages.md").write_text("new")
        Path(whole.root, "docs/deep/another.wages.md").write_text("new")
        after = [whole.stat(uri) for uri in ("file:///d", "file:///d/mixed", "file:///d/docs")]
    assert encode(before) == encode(after)
    assert all("lastModified" not in encode(resource).decode() for resource in before)


def test_only_what_is_below_an_allowed_directory_is_listed(both: tuple[Folder, Folder], permit: Permit) -> None:
    whole, _ = both
    with permit("file:///d/mixed/sub/*"):
        assert [resource.uri for resource in whole.page(None, 100)[0]] == [
            "file:///d/mixed/sub/open.md",
            "file:///d/mixed/sub/wages.txt",
        ]
        assert whole.complete(whole.template, "path", "", {}) == []
        assert whole.complete(whole.template, "path", "mixed/sub/", {}) == [
            "mixed/sub/open.md",
            "mixed/sub/wages.txt",
        ]
        assert "d/ holds 0 folders and 0 files" in str(whole.read("file:///d").contents[0].text)


def test_directories_below_which_nothing_may_be_read_are_not_opened(
    both: tuple[Folder, Folder], permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, _ = both
    opened: list[str] = []
    real = os.scandir

    def scandir(handle: Any) -> Any:
        opened.append(os.readlink(f"/proc/self/fd/{handle}") if isinstance(handle, int) else handle)
        return real(handle)

    monkeypatch.setattr(os, "scandir", scandir)
    with permit(*ALLOW, deny=DENY):
        whole.page(None, 1000)
    assert opened
    assert not any("private" in path or "aaa" in path for path in opened)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege")
def test_a_link_to_a_hidden_file_is_not_found(both: tuple[Folder, Folder], permit: Permit) -> None:
    whole, _ = both
    os.symlink("../private/pay.md", Path(whole.root, "docs/link.md"))
    os.symlink("../private", Path(whole.root, "docs/linked"))
    with permit(*ALLOW, deny=DENY):
        for uri in ("file:///d/docs/link.md", "file:///d/docs/linked/pay.md", "file:///d/docs/linked"):
            with pytest.raises(ResourceNotFound):
                whole.read(uri)


def test_another_spelling_of_a_name_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "Pay.md").write_text("x")
    (tmp_path / "plain").write_text("x")
    handle = open_root(str(tmp_path))
    folds = (tmp_path / "pAY.MD").exists()
    assert has_another_spelling(handle, "Pay.md") is folds
    if not folds:  # the same inode under both names, as on a disk that ignores case
        os.link(tmp_path / "Pay.md", tmp_path / "pAY.MD")
        assert has_another_spelling(handle, "Pay.md")
    assert not has_another_spelling(handle, "missing")
    if isinstance(handle, int):
        os.close(handle)


def test_on_a_disk_that_ignores_case_only_the_listed_name_is_read(
    both: tuple[Folder, Folder], permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wharfinger.sources.folder import tree

    whole, _ = both

    # What such a disk does: it finds `Private` by another name, which its listing does not have.
    def listed(place: object) -> tree.DirectoryListing:
        return tree.DirectoryListing([], ["Private"], {})

    def found(parent: object, name: str) -> bool:
        return True

    monkeypatch.setattr(tree, "has_another_spelling", found)
    monkeypatch.setattr(tree, "_list", listed)
    with permit(*ALLOW, deny=["file:///d/Private/**"]), pytest.raises(ResourceNotFound):
        whole.read("file:///d/private/pay.md")


def test_a_file_that_was_read_without_a_policy_is_still_checked_for_another_spelling_with_one(
    both: tuple[Folder, Folder], permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wharfinger.sources.folder import tree

    whole, _ = both
    uri = "file:///d/docs/guide.md"
    checked: list[str] = []

    def has_another_spelling(parent: object, name: str) -> bool:
        checked.append(name)
        return False

    monkeypatch.setattr(tree, "has_another_spelling", has_another_spelling)
    whole.read(uri)
    whole.read(uri)
    assert checked == []
    with permit(*ALLOW, deny=DENY):
        whole.read(uri)
        assert checked == ["docs", "guide.md"]
        whole.read(uri)
        assert checked == ["docs", "guide.md", "docs"]
        os.utime(Path(whole.root, "docs/guide.md"))
        whole.read(uri)  # opened once to find that its status has changed, and then as if for the first time
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
def test_names_are_judged_like_uris(allow: list[str], deny: list[str], names: list[str], prefix: str) -> None:
    from wharfinger.policy.rule import Rule
    from wharfinger.sources.folder.file_uri import quote

    policy = Policy(
        allow=[Rule(who="anyone", what=tuple(allow))] if allow else [],
        deny=[Rule(who="anyone", what=tuple(deny))] if deny else [],
    )
    access = policy.access(LOCAL)
    token = CURRENT_ACCESS.set(access)
    try:
        test = readable_names(prefix)
        for name in names:
            if test is not None:
                assert test(name) == access.allows("read", prefix + quote(name))
    finally:
        CURRENT_ACCESS.reset(token)
