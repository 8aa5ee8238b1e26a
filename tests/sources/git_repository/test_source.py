"""The resources of a repository: files, commits, diffs and logs."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec import UNSET

from tests.sources.git_repository.conftest import GitRepository, ServedGit, text_of
from wharfinger.content.mime import DIRECTORY
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.source import version_of
from wharfinger.sources.git_repository.git_objects import MAX_TAGS
from wharfinger.sources.ttl import IMMUTABLE_TTL_MS
from wharfinger.sources.windows.window import NEXT

Publish = Callable[..., ServedGit]


def test_the_repository_branches_tags_commits_and_files_are_listed(source: ServedGit, history: GitRepository) -> None:
    oids = history.git("rev-list", "HEAD").split("\n")
    expected = ["", "/tree/HEAD", "/log/HEAD", "/tree/feature%2Flights", "/tree/main", "/tree/v2", "/tree/v1"]
    expected += [f"/commit/{oid}" for oid in oids]
    names = history.git("ls-tree", "-r", "-t", "--name-only", "HEAD").split("\n")
    expected += [f"/tree/HEAD/{name}" for name in names]
    assert [resource.uri for resource in source.page(None, 1_000)[0]] == ["git://repo" + path for path in expected]


def test_the_top_resource_summarizes_the_repository(source: ServedGit, history: GitRepository) -> None:
    result = source.read("git://repo")
    text = text_of(source, "git://repo")
    assert f"main at {history.head[:7]}" in text
    assert "2 branches, 2 tags" in text
    assert "git://repo/tree/feature%2Flights" in text
    assert [content.uri for content in result.contents[1:]] == [child.uri for child in source.children("git://repo")[0]]


@pytest.mark.parametrize(
    "rev",
    [
        "HEAD", "main", "heads/main", "refs/heads/main", "v2", "v1", "feature/lights", "main~1", "HEAD^", "HEAD~2",
        "v2^0", "HEAD^^",
    ],
)  # fmt: skip
def test_revisions_resolve_as_in_git(source: ServedGit, history: GitRepository, rev: str) -> None:
    """gitrevisions(7)."""
    oid = history.git("rev-parse", f"{rev}^{{commit}}")
    assert source.version(f"git://repo/log/{quote(rev, safe='')}") == oid
    short = oid[:7]
    assert source.version(f"git://repo/log/{short}") == oid


def test_a_file_is_read_at_any_revision(source: ServedGit, history: GitRepository) -> None:
    assert text_of(source, "git://repo/tree/main/hull.txt") == "five\nfathoms\n"
    assert text_of(source, "git://repo/tree/v1/hull.txt") == "four\nfathoms\n"
    assert text_of(source, f"git://repo/tree/{history.head}~1/hull.txt") == "four\nfathoms\n"
    blob = history.git("rev-parse", "HEAD:hull.txt")
    assert text_of(source, f"git://repo/tree/{blob}") == "five\nfathoms\n"
    tree = history.git("rev-parse", "HEAD^{tree}")
    assert text_of(source, f"git://repo/tree/{tree}/hull.txt") == "five\nfathoms\n"
    assert source.version("git://repo/tree/main/hull.txt") == blob
    with pytest.raises(ResourceNotFound):
        source.read("git://repo/tree/v1/docs/tides.md")
    for uri in ("git://repo/tree/main/hull.txt/", "git://repo/tree/main/hull.txt/x", f"git://repo/tree/{blob}/x"):
        with pytest.raises(ResourceNotFound):
            source.read(uri)


def test_binary_files_are_read_as_blobs(source: ServedGit) -> None:
    """Bytes are never decoded as text."""
    content = source.read("git://repo/tree/main/buoy.png").contents[0]
    assert content.blob == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\xff\xfe"
    assert content.mime_type == "image/png"


def test_a_file_is_read_in_windows(history: GitRepository, publish: Publish) -> None:
    """The files are in UTF-8 and UTF-16."""
    text = "".join(f"{number} ⚓\n" for number in range(5_000))
    history.commit("Long", long__txt=text, wide__txt=b"\xff\xfe" + text.encode("utf-16-le"))
    source = publish(history, label="repo", max_size=20_000)
    for name in ("long.txt", "wide.txt"):
        uri = f"git://repo/tree/main/{name}"
        assert text_of(source, f"{uri}?lines=11-12") == "10 ⚓\n11 ⚓\n"
        assert text_of(source, f"{uri}?tail=2") == "4998 ⚓\n4999 ⚓\n"
        joined, following = "", uri
        while following:
            content = source.read(following).contents[0]
            joined += str(content.text)
            following = str((content.meta or {}).get(NEXT, ""))
        assert joined == text
    with pytest.raises(InvalidArgument):
        source.read("git://repo/tree/main?lines=1-2")


def test_a_folder_is_read_as_a_listing(source: ServedGit) -> None:
    """The listing is like that of a folder source."""
    result = source.read("git://repo/tree/HEAD")
    assert "repo/ at HEAD holds " in str(result.contents[0].text)
    assert [content.uri for content in result.contents[1:]][:2] == [
        "git://repo/tree/HEAD/README.md", "git://repo/tree/HEAD/bin",
    ]  # fmt: skip
    assert source.stat("git://repo/tree/HEAD/docs").mime_type == DIRECTORY


def test_a_commit_has_author_time_message_and_changes(source: ServedGit, history: GitRepository) -> None:
    text = text_of(source, "git://repo/commit/v2")
    oid = history.git("rev-parse", "v2^{commit}")
    assert text.startswith(f"commit {oid}\nparent ")
    for words in ("author Ada Berth <ada@example.org>", "+0100", "    With a table of all ports.", "The second release",
                  "1 path changed", "A docs/tides.md"):  # fmt: skip
        assert words in text


def test_a_rename_is_reported_as_one_change(history: GitRepository, publish: Publish) -> None:
    """The content of the file is unchanged."""
    history.git("mv", "hull.txt", "keel.txt")
    history.commit("Rename")
    source = publish(history, label="repo")
    assert "R hull.txt -> keel.txt" in text_of(source, "git://repo/commit/HEAD")
    assert "rename from hull.txt\nrename to keel.txt\n" in text_of(source, "git://repo/diff/HEAD")


def test_git_applies_a_diff(source: ServedGit, history: GitRepository, tmp_path: Path) -> None:
    text = text_of(source, "git://repo/diff/v1..main")
    assert "-four\n+five\n fathoms\n" in text
    history.git("checkout", "-q", "v1")
    subprocess.run(["git", "apply", "--index", "-"], cwd=history.path, input=text.encode(), check=True)
    assert history.git("write-tree") == history.git("rev-parse", "main^{tree}")
    assert text_of(source, "git://repo/diff/v1..main/hull.txt").count("diff --git") == 1
    assert text_of(source, "git://repo/diff/v1..main/docs").count("diff --git") == 1
    assert text_of(source, "git://repo/diff/main..main") == "Nothing differs.\n"
    with pytest.raises(ResourceNotFound):
        source.read("git://repo/diff/v1..main/none")


def test_a_long_diff_is_read_in_windows(history: GitRepository, publish: Publish) -> None:
    """Each path is listed once, in order. The windows stay the same while commits arrive."""
    for number in range(40):
        history.write(f"part{number % 4}/{number:02}.txt", f"line {number}\n" * 3_000)
    history.commit("Write much")
    source = publish(history, label="repo")
    texts: list[str] = []
    following = "git://repo/diff/HEAD"
    while following:
        contents = source.read(following).contents
        texts.append(str(contents[0].text))
        following = str(contents[0].meta.get(NEXT, ""))  # type: ignore[union-attr]
        history.commit("Another")
    assert len(texts) > 1
    paths = [line.split(" b/")[1] for line in "".join(texts).split("\n") if line.startswith("diff --git")]
    assert paths == history.git("diff", "--name-only", "HEAD~" + str(len(texts) + 1), "HEAD").split("\n")


def test_the_remark_after_each_window_counts_the_entries_of_this_window(
    history: GitRepository, publish: Publish
) -> None:
    """A bug: after the second window of a diff it said "4 paths so far", although the first had four others."""
    for number in range(15):
        history.write(f"{number:02}.txt", f"line {number}\n" * 10_000)
    history.commit("Write much")
    source = publish(history, label="repo")
    first = source.read("git://repo/diff/HEAD").contents
    second = source.read(str((first[0].meta or {})[NEXT])).contents  # type: ignore[index]
    shown, before = (str(contents[0].text).count("diff --git") for contents in (second, first))
    assert f"[{shown} paths in this window, {15 - before - shown} after it. To continue" in str(second[-1].text)
    first = source.read("git://repo/log/HEAD?limit=1").contents
    second = source.read(str((first[0].meta or {})[NEXT])).contents  # type: ignore[index]
    assert "[1 commit in this window. To continue" in str(second[-1].text)


def test_a_log_is_filtered_by_path_and_time(source: ServedGit, history: GitRepository) -> None:
    def subjects(query: str) -> list[str]:
        text = text_of(source, "git://repo/log/HEAD" + query)
        lines = [line.strip() for line in text.split("\n") if line.startswith("    ")]
        return [line for line in lines if line != "With a table of all ports."]

    assert subjects("") == ["Add a buoy", "Tell of tides", "Begin"]
    assert subjects("?path=hull.txt") == ["Add a buoy", "Begin"]
    assert subjects("?path=docs") == ["Tell of tides"]
    assert subjects("?limit=1") == ["Add a buoy"]
    second = int(history.git("log", "-1", "--format=%ct", "HEAD~1"))
    assert subjects(f"?since={second}") == ["Add a buoy", "Tell of tides"]
    assert subjects(f"?until={second}") == ["Tell of tides", "Begin"]
    assert subjects("?since=2020-01-01&until=2020-12-31") == []
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
    assert subjects(f"?since={stamp}&until={stamp.replace('Z', '%2B00:00')}") == ["Tell of tides"]
    for bad in ("since=yesterday", "until=2026-13-01", "limit=0", "limit=99999", "after=HEAD", "path=../x", "depth=3",
                "after=" + "0" * 40):  # fmt: skip
        with pytest.raises(InvalidArgument):
            source.read("git://repo/log/HEAD?" + bad)


def test_the_log_of_a_merge_lists_each_commit_once(work: GitRepository, publish: Publish) -> None:
    """The newest commit is first."""
    work.commit("Begin", a__txt="a")
    work.git("checkout", "-q", "-b", "side")
    work.commit("Side", b__txt="b")
    work.git("checkout", "-q", "main")
    work.commit("Main", c__txt="c")
    work.git("merge", "-q", "--no-ff", "-m", "Merge", "side")
    source = publish(work, label="repo")
    text = text_of(source, "git://repo/log/HEAD")
    assert [line[:12] for line in text.split("\n")[2:10:2]] == [
        oid[:12] for oid in work.git("rev-list", "--date-order", "HEAD").split("\n")
    ]
    assert [
        line for line in text_of(source, "git://repo/log/HEAD?path=c.txt").split("\n") if line.startswith("  ")
    ] == ["    Main"]
    assert source.version("git://repo/log/HEAD%5E2") == work.git("rev-parse", "side")


def test_a_uri_with_an_object_id_has_the_ttl_of_immutable_content(source: ServedGit, history: GitRepository) -> None:
    """A branch may move at any time, but an object id always names the same object."""
    oid = history.head
    for uri in (
        f"tree/{oid}",
        f"tree/{oid}/hull.txt",
        f"commit/{oid}",
        f"diff/{oid}",
        f"log/{oid}",
        f"diff/{oid}..{oid}~1",
    ):
        assert source.read(f"git://repo/{uri}").ttl_ms == IMMUTABLE_TTL_MS, uri
    for uri in ("", "/tree/HEAD", "/tree/v1/hull.txt", f"/commit/{oid[:8]}", f"/diff/{oid}..HEAD"):
        ttl = source.read("git://repo" + uri).ttl_ms
        assert ttl is not UNSET
        assert 0 <= ttl <= 10_000, uri


def test_a_repository_without_commits_can_be_read(work: GitRepository, publish: Publish) -> None:
    source = publish(work, label="repo")
    assert [resource.uri for resource in source.page(None, 10)[0]] == ["git://repo"]
    assert "without commits yet" in text_of(source, "git://repo")
    assert source.describe().startswith("main, without commits yet, 0 branches")
    assert source.search("x", 5) == []
    assert source.documents(None, 5) == ([], None)
    with pytest.raises(ResourceNotFound):
        source.read("git://repo/tree/HEAD")


def test_a_detached_head_is_reported(history: GitRepository, publish: Publish) -> None:
    history.git("checkout", "-q", "--detach", "v1")
    assert publish(history, label="repo").describe().startswith(f"detached at {history.head[:7]}, 2 branches, 2 files")


def test_a_head_without_a_space_names_its_branch(history: GitRepository, publish: Publish) -> None:
    """Bug: git accepts any white space after `ref:`, or none, and such a repository seemed to have no commits."""
    (history.path / ".git" / "HEAD").write_text("ref:refs/heads/main\n")
    assert publish(history, label="repo").describe().startswith(f"main at {history.head[:7]}")


def test_a_branch_and_a_tag_with_the_same_name_are_distinguished(history: GitRepository, publish: Publish) -> None:
    """gitrevisions(7): the tag has precedence."""
    history.git("branch", "v1", "HEAD")
    history.git("branch", "a" * 40)
    source = publish(history, label="repo")
    uris = [resource.uri for resource in source.children("git://repo")[0]]
    assert "git://repo/tree/heads%2Fv1" in uris
    assert f"git://repo/tree/heads%2F{'a' * 40}" in uris
    assert source.version("git://repo/log/v1") == history.git("rev-parse", "refs/tags/v1")
    assert source.version("git://repo/log/heads%2Fv1") == history.head


def test_ten_tags_in_a_chain_are_followed_and_eleven_are_not(history: GitRepository, publish: Publish) -> None:
    """A bug: a chain of exactly `MAX_TAGS` tags was refused."""
    for number in range(1, MAX_TAGS + 2):
        history.git("tag", "-a", "-m", "Again", f"chain{number}", f"chain{number - 1}" if number > 1 else "HEAD")
    source = publish(history, label="repo")
    text_of(source, f"git://repo/log/chain{MAX_TAGS}")
    with pytest.raises(ResourceNotFound):
        source.read(f"git://repo/log/chain{MAX_TAGS + 1}")


def test_all_resources_are_read_after_gc_and_pack_refs(source: ServedGit, history: GitRepository) -> None:
    """The source is in use meanwhile."""
    before = {resource.uri: version_of(resource) for resource in source.page(None, 1_000)[0]}
    history.git("gc", "-q", "--prune=now")
    history.git("pack-refs", "--all")
    after = {resource.uri: version_of(resource) for resource in source.page(None, 1_000)[0]}
    assert after == before
    for uri in after:
        source.read(uri)


def test_revisions_and_paths_are_completed(source: ServedGit, history: GitRepository) -> None:
    """Revisions are completed by name, and paths within the chosen revision."""
    tree = "git://repo/tree/{rev}/{+path}"
    assert source.complete(tree, "rev", "", {}) == ["HEAD", "feature/lights", "main", "v2", "v1"]
    assert source.complete(tree, "rev", "light", {}) == ["feature/lights"]
    assert source.complete(tree, "rev", history.head[:6], {}) == [history.head[:12]]
    assert source.complete(tree, "path", "", {"rev": "v1"}) == ["README.md", "hull.txt"]
    assert source.complete(tree, "path", "docs/t", {"rev": "main"}) == ["docs/tides.md"]
    assert source.complete(tree, "path", "tid", {"rev": "main"}) == ["docs/tides.md"]
    assert source.complete(tree, "path", "", {"rev": "none"}) == []


def test_search_finds_paths_messages_and_text(source: ServedGit, history: GitRepository) -> None:
    """The search uses no index."""
    assert [hit.uri for hit in source.search("fathoms", 10)] == ["git://repo/tree/HEAD/hull.txt"]
    assert "git://repo/tree/HEAD/docs/tides.md" in [hit.uri for hit in source.search("tides.md", 10)]
    hits = source.search("table ports", 10)
    assert [hit.uri for hit in hits] == [f"git://repo/commit/{history.git('rev-parse', 'v2^{commit}')}"]


def test_documents_are_files_and_messages(source: ServedGit, history: GitRepository) -> None:
    """They are the documents that a server indexes."""
    documents, key = source.documents(None, 100)
    assert key is None
    assert [document.uri for document in documents[:5]] == [
        f"git://repo/tree/HEAD/{name}" for name in history.git("ls-tree", "-r", "--name-only", "HEAD").split("\n")
    ]
    assert len(documents) == 5 + 3
    assert list(source.text("git://repo/tree/HEAD/buoy.png")) == []
    assert "With a table of all ports." in "".join(source.text("git://repo/commit/v2"))


def test_diffs_of_files_are_patches(work: GitRepository, publish: Publish, tmp_path: Path) -> None:
    """`git apply` turns the old content into the new one, with any line end at the end of the file."""
    pairs = [
        ("", "a\n"), ("a", "a\n"), ("a\n", "a"), ("a\nb\nc", "a\nb\nd"), ("x\n" * 50, "x\n" * 49), ("", "a"),
        ("a\n\n\n", "a\n\n"), ("".join(f"{n}\n" for n in range(60)), "".join(f"{n % 9}\n" for n in range(60))),
        ("a\r\nb\r\n", "a\r\nc\r\n"), ("\n", "\n\n"), ("same\n" * 3_000, "other\n" * 3_000),
    ]  # fmt: skip
    for number, (old, _) in enumerate(pairs):
        work.write(f"{number}.txt", old)
    work.commit("Old")
    for number, (_, new) in enumerate(pairs):
        work.write(f"{number}.txt", new)
    work.commit("New")
    source = publish(work, label="repo")
    patch = text_of(source, "git://repo/diff/HEAD~1..HEAD")
    work.git("checkout", "-q", "HEAD~1")
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=work.path, input=patch.encode(), check=True)
    for number, (_, new) in enumerate(pairs):
        assert (work.path / f"{number}.txt").read_bytes() == new.encode(), number


def test_the_last_path_of_a_large_diff_is_quoted_if_it_cannot_be_shown(work: GitRepository, publish: Publish) -> None:
    """A bug: only the first 1,000 paths decided whether git quotes paths, but a window can show 3,000."""
    work.commit("Begin")
    for number in range(1_000):
        work.write(f"{number:04}", "")
    work.write("z\u202e.txt", "")
    work.commit("Add")
    text = text_of(publish(work, label="repo"), "git://repo/diff/HEAD~1..HEAD")
    assert text.count("diff --git ") == 1_001
    assert r'diff --git "a/z\342\200\256.txt" "b/z\342\200\256.txt"' in text


def log_subjects(source: ServedGit, query: str) -> list[str]:
    """Return the subjects of the commits that a log shows."""
    lines = text_of(source, "git://repo/log/HEAD" + query).split("\n")
    return [line.strip() for before, line in pairwise(lines) if re.match(r"[0-9a-f]{12} \d{4}-", before)]


def test_a_log_has_whole_messages_and_filters_by_author_message_and_pickaxe(
    history: GitRepository, publish: Publish
) -> None:
    """The results equal those of `git log` with the same options."""
    history.git("config", "user.name", "x")
    history.write("hull.txt", "five\nfathoms\nand Mary\n")
    history.git("add", "-A")
    history.git(
        "commit", "-q", "-m", "Name the ferry\n\nShe is called Mary.\n\n- twice a day", GIT_AUTHOR_NAME="Berta Quay"
    )
    source = publish(history, label="repo")
    text = text_of(source, "git://repo/log/HEAD")
    assert "    Name the ferry\n\n    She is called Mary.\n\n    - twice a day\n" in text
    for query, arguments in (
        ("?author=berta", ("--author=berta", "-i")), ("?grep=called mary", ("--grep=called mary", "-i")),
        ("?grep=c.lled", ("--grep=c.lled", "-F")), ("?pickaxe=Mary", ("-SMary",)),
        ("?author=ada&grep=buoy", ("--author=ada", "--grep=buoy", "-i")),
        ("?pickaxe=four&path=hull.txt", ("-Sfour", "--", "hull.txt")), ("?author=--all", ("--author=--all",)),
    ):  # fmt: skip
        expected = history.git("log", "--format=%s", *arguments).split("\n")
        assert log_subjects(source, query) == [subject for subject in expected if subject], query
    assert "remove a condition" in text_of(source, "git://repo/log/HEAD?grep=nowhere")
    for bad in ("author=", "grep=%0Ax", "pickaxe=" + "x" * 1_001, "grep=%00"):
        with pytest.raises(InvalidArgument):
            source.read("git://repo/log/HEAD?" + bad)


def test_a_log_is_filtered_by_age(work: GitRepository, publish: Publish) -> None:
    """An age is relative to the first request, also in the next windows."""
    for days in (40, 9, 6, 1):
        when = f"{int(time.time()) - days * 86_400} +0000"
        work.write("a.txt", str(days))
        work.git("add", "-A")
        work.git("commit", "-q", "-m", f"{days} days", GIT_COMMITTER_DATE=when, GIT_AUTHOR_DATE=when)
    source = publish(work, label="repo")
    for age, expected in (("7d", 2), ("2w", 3), ("2mo", 4), ("12h", 0), ("200h", 2), ("99999min", 4), ("1y", 4)):
        assert len(log_subjects(source, f"?since={age}")) == expected, age
    assert len(log_subjects(source, "?until=7d")) == 2
    contents = source.read("git://repo/log/HEAD?since=7d&limit=1").contents
    following = str(contents[0].meta[NEXT])
    assert re.search(r"since=\d{10}&", following)
    assert "6 days" in text_of(source, following)
    with pytest.raises(InvalidArgument, match="7d"):
        source.read("git://repo/log/HEAD?since=7x")


def test_the_log_of_a_file_follows_renames_to_the_first_commit(history: GitRepository, publish: Publish) -> None:
    """The results equal those of `git log --follow`, also if a commit changes name and content."""
    lines = [f"line {number}\n" for number in range(100)]
    history.commit("Write", first__txt="".join(lines))
    history.git("mv", "first.txt", "second.txt")
    history.commit("Move and change", second__txt="".join(lines[:90]))
    history.git("mv", "second.txt", "third.txt")
    history.commit("Move again")
    history.commit("Change", third__txt="".join(lines[:80]))
    source = publish(history, label="repo")
    expected = ["Change", "Move again", "Move and change", "Write"]
    assert history.git("log", "--follow", "--format=%s", "--", "third.txt").split("\n") == expected
    assert log_subjects(source, "?path=third.txt") == expected
    text = text_of(source, "git://repo/log/HEAD?path=third.txt")
    assert "[renamed from second.txt]" in text
    assert "[renamed from first.txt]" in text
    assert f"{history.git('rev-parse', 'HEAD~3')[:12]} added first.txt: it has no older history under any name." in text
    found, uri = list[str](), "?path=third.txt&limit=1"
    while uri:
        found += log_subjects(source, uri)
        uri = str((source.read("git://repo/log/HEAD" + uri).contents[0].meta or {}).get(NEXT, "")).partition("?")[2]
        uri = uri and "?" + uri
    assert found == expected
    assert log_subjects(source, "?path=second.txt") == ["Move again", "Move and change", "Write"]
    assert "Renames of folders are not followed" in text_of(source, "git://repo/log/HEAD?path=docs")


def test_hunk_headers_name_functions_and_renames_with_changes_are_detected(
    work: GitRepository, publish: Publish
) -> None:
    """git knows functions of Python files by their suffix. The patch of a renamed file has only the changed lines."""
    body = "".join(f"        depth = {number}\n" for number in range(12))
    work.commit("Begin", hull__py=f"class Hull:\n    def sound(self):\n{body}        return depth\n")
    work.git("mv", "hull.py", "keel.py")
    work.commit("Change", keel__py=f"class Hull:\n    def sound(self):\n{body}        return -depth\n")
    text = text_of(publish(work, label="repo"), "git://repo/diff/HEAD")
    assert re.search(
        r"^@@ -12,4 \+12,4 @@ def sound\(self\):$|^@@ -12,4 \+12,4 @@     def sound\(self\):$", text, re.MULTILINE
    )
    assert "rename from hull.py\nrename to keel.py\n" in text
    assert [line for line in text.split("\n") if line.startswith(("+ ", "- "))] == [
        "-        return depth", "+        return -depth",
    ]  # fmt: skip


def test_git_applies_every_kind_of_change(history: GitRepository, publish: Publish) -> None:
    """The diff has binary files, modes, links, submodules, type changes and odd names."""
    history.write("old.bin", bytes(range(256)) * 300).write("gone.bin", b"\0gone").write("run.sh", "x\n")
    history.write("file.txt", "a file\n").write("a b/ü\tquoted.txt", "x\n").write("move.bin", bytes(range(255)) * 99)
    history.commit("Old")
    history.write("old.bin", bytes(range(255, -1, -1)) * 300).write("new.bin", b"\xff\0" * 70_000)
    (history.path / "gone.bin").unlink()
    (history.path / "run.sh").chmod(0o755)
    (history.path / "file.txt").unlink()
    (history.path / "file.txt").symlink_to("run.sh")
    history.write("a b/ü\tquoted.txt", "y\n").write("-dash.txt", "z").write("empty", "")
    history.git("mv", "move.bin", "moved to.bin")
    history.git("add", "-A")
    history.git("update-index", "--add", "--cacheinfo", f"160000,{history.head},module")
    history.git("commit", "-q", "-m", "New")
    newer = history.git("rev-parse", "HEAD^{tree}")
    patch = text_of(publish(history, label="repo"), "git://repo/diff/HEAD")
    history.git("reset", "-q", "--hard", "HEAD~1")
    subprocess.run(["git", "apply", "--index", "-"], cwd=history.path, input=patch.encode(), check=True)
    assert history.git("write-tree") == newer


def test_tracked_files_are_published_even_if_ignored(work: GitRepository, publish: Publish) -> None:
    """`.gitignore` does not apply to committed files."""
    work.write("kept.log", "tracked\n").write(".gitignore", "*.log\n").write("other.log", "untracked\n")
    work.git("add", ".gitignore")
    work.git("add", "-f", "kept.log")
    work.git("commit", "-q", "-m", "Keep one log")
    source = publish(work, label="repo")
    uris = [resource.uri for resource in source.page(None, 100)[0]]
    assert "git://repo/tree/HEAD/kept.log" in uris
    assert "git://repo/tree/HEAD/other.log" not in uris
    assert [hit.uri for hit in source.search("tracked", 5)] == ["git://repo/tree/HEAD/kept.log"]


def test_a_sha256_repository_is_read(tmp_path: Path, publish: Publish) -> None:
    """Object ids have 64 digits."""
    work = GitRepository(tmp_path / "harbour").init("--object-format=sha256")
    work.commit("Begin", hull__txt="four\n")
    work.commit("Deepen", hull__txt="five\n")
    source = publish(work, label="repo")
    head = work.head
    assert len(head) == 64
    assert text_of(source, f"git://repo/tree/{head}/hull.txt") == "five\n"
    assert text_of(source, f"git://repo/tree/{head[:8]}~1/hull.txt") == "four\n"
    assert "-four\n+five\n" in text_of(source, "git://repo/diff/HEAD")
    assert "A hull.txt" in text_of(source, "git://repo/commit/HEAD~1")
    assert log_subjects(source, "") == ["Deepen", "Begin"]
    first, key = source.page(None, 4)
    assert len(first) + len(source.page(key, 100)[0]) == 7


def test_a_clone_shows_its_whole_history_after_it_is_unshallowed(
    history: GitRepository, publish: Publish, tmp_path: Path
) -> None:
    """The boundary of a shallow clone is read again."""
    history.git("clone", "-q", "--depth=1", f"file://{history.path}", str(tmp_path / "shallow"))
    source = publish(tmp_path / "shallow", label="repo")
    assert "This is a shallow clone" in text_of(source, "git://repo/log/HEAD")
    assert "A README.md" in text_of(source, "git://repo/commit/HEAD")
    history.git("fetch", "-q", "--unshallow", cwd=tmp_path / "shallow")
    assert log_subjects(source, "") == ["Add a buoy", "Tell of tides", "Begin"]
    assert source.version("git://repo/log/HEAD~2") == history.git("rev-parse", "HEAD~2")
    assert "A README.md" not in text_of(source, "git://repo/commit/HEAD")


def test_a_repository_that_disappears_is_reported(history: GitRepository, publish: Publish) -> None:
    """It is never reported as empty."""
    source = publish(history, label="repo")
    assert source.page(None, 10)[0]
    history.path.rename(history.path.with_name("elsewhere"))
    for request in (
        lambda: source.page(None, 10),
        lambda: source.read("git://repo"),
        lambda: source.stat("git://repo"),
    ):
        with pytest.raises(InvalidArgument, match="moved or removed"):
            request()
    assert "moved or removed" in source.describe()
    history.path.with_name("elsewhere").rename(history.path)
    assert source.page(None, 10)[0]


def test_the_log_of_a_removed_folder_goes_back_to_its_first_commit(
    work: GitRepository, publish: Callable[..., ServedGit]
) -> None:
    """Later, the folder is replaced by a file, whose log includes the folder's, as in git."""
    work.write("docs/a.md", "1\n").write("docs/b.md", "1\n").commit("Begin")
    work.write("docs/a.md", "2\n").write("docs/b.md", "2\n").commit("Change both")
    work.write("docs/a.md", "3\n").commit("Change one")
    work.git("rm", "-q", "-r", "docs")
    work.git("commit", "-q", "--allow-empty", "-m", "Remove")
    work.git("tag", "removed")
    work.commit("Replace", docs="now a file\n")
    source = publish(work, label="repo")
    for rev in ("removed", "main"):
        logged = re.findall(r"^([0-9a-f]{12}) ", text_of(source, f"git://repo/log/{rev}?path=docs"), re.MULTILINE)
        assert logged == work.git("log", "--format=%h", "--abbrev=12", rev, "--", "docs").split("\n")


def test_the_log_has_the_commits_of_a_submodule(work: GitRepository, publish: Callable[..., ServedGit]) -> None:
    first, second = "1" * 40, "2" * 40
    work.commit("Begin", hull__txt="four\n")
    for message, path, oid in (("Add", "lib/tides", first), ("Update", "lib/tides", second), ("Move", "ebb", second)):
        work.git("rm", "-q", "-r", "--cached", "--ignore-unmatch", "lib")
        work.git("update-index", "--add", "--cacheinfo", f"160000,{oid},{path}")
        work.git("commit", "-q", "-m", message)
    source = publish(work, label="repo")
    for query, options in (
        ("path=ebb", ["--follow", "--", "ebb"]),
        ("path=lib/tides", ["--", "lib/tides"]),
        ("path=lib", ["--", "lib"]),
        ("pickaxe=222222", ["-S222222"]),
    ):
        logged = re.findall(r"^([0-9a-f]{12}) 2", text_of(source, f"git://repo/log/main?{query}"), re.MULTILINE)
        assert logged == work.git("log", "--format=%h", "--abbrev=12", *options).split("\n"), query


def test_a_head_outside_of_the_branches_is_read(history: GitRepository, publish: Callable[..., ServedGit]) -> None:
    history.git("update-ref", "refs/stacks/lights", "main~1")
    history.git("symbolic-ref", "HEAD", "refs/stacks/lights")
    source = publish(history, label="repo")
    assert f"refs/stacks/lights at {history.head[:7]}" in text_of(source, "git://repo")
    assert source.stat("git://repo/commit/HEAD").name == history.head[:12]


ENCODED = [
    ("ISO-2022-JP", "潮の表"),
    ("eucJP", "潮の表"),
    ("latin1", "Küste"),
    ("ISO8859-15", "5 €"),
    ("utf8", "Küste"),
]


@pytest.mark.parametrize(("encoding", "text"), ENCODED, ids=[encoding for encoding, _ in ENCODED])
def test_a_message_is_decoded_as_its_commit_says(
    work: GitRepository, publish: Callable[..., ServedGit], encoding: str, text: str
) -> None:
    """The commits are those that git writes with `i18n.commitEncoding`."""
    work.git(
        "-c", f"i18n.commitEncoding={encoding}", "commit", "-q", "--allow-empty", "-F", "-", data=text.encode(encoding)
    )
    assert publish(work, label="repo").stat("git://repo/commit/HEAD").title == text


TIMES = [
    "> 1795000000 +0100", "> 1795000000 -0430", "> 1795000000 +051800", "> 1795000000 +5", "> 1795000000 -7",
    ">  1795000000  +0100", ">1795000000 +0100", "> 1795000000 +0000 later", "> 1795000000 -0000",
]  # fmt: skip


@pytest.mark.parametrize("when", TIMES)
def test_a_badly_written_time_is_read_as_by_git(
    work: GitRepository, publish: Callable[..., ServedGit], when: str
) -> None:
    person = f"Ada <ada@example.org{when}"
    tree = work.git("mktree", data=b"")
    oid = work.put("commit", f"tree {tree}\nauthor {person}\ncommitter {person}\n\n \nTides\n".encode())
    work.git("update-ref", "refs/heads/main", oid)
    source = publish(work, label="repo")
    shown_time = work.git("log", "-1", "--date=format:%Y-%m-%d %H:%M:%S %z", "--format=%an <%ae>  %ad", "main")
    # git prints some offsets as they were written, and others with four digits.
    assert text_of(source, "git://repo/commit/main").split("\n")[1][:-5] == f"author {shown_time}"[:-5]
    annotations = source.stat("git://repo/commit/main").annotations
    assert annotations.last_modified == "2026-11-18T11:06:40Z"
    assert source.stat("git://repo/commit/main").title == work.git("log", "-1", "--format=%s", "main") == "Tides"
