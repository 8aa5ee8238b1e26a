"""With a policy, the answers are those of a repository without the hidden files and their commits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.sources.git_repository.conftest import GitRepository
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.document_search import SourceReader, search_documents
from wharfinger.source import Hits
from wharfinger.sources.git_repository import GitSource, answer_grep, git, git_differences

Permit = Callable[..., AbstractContextManager[None]]


ALLOW = ["git://harbour/**"]
DENY = ["git://harbour/tree/*/private/**", "git://harbour/tree/*/**/*hidden*"]
TEXT = "".join(f"line {number} of a text\n" for number in range(30))
OTHER = "".join(f"{number * number} others\n" for number in range(50))


def is_hidden(path: str) -> bool:
    return path.startswith("private/") or "hidden" in path.rpartition("/")[2]


class RepositoryPair:
    """A repository with hidden files, and one with the same commits of the visible files only."""

    def __init__(self, folder: Path) -> None:
        self.repositories = [GitRepository(folder / name / "harbour").init() for name in ("whole", "visible")]
        self.oids: dict[str, str] = {}
        """Maps the ids of commits of the whole repository to those of the visible one."""

    def commit(self, message: str, **changes: str | None) -> None:
        """Commit files by path (`__` is `/`, `_0_` is `.`); None removes one."""
        files = {path.replace("__", "/").replace("_0_", "."): text for path, text in changes.items()}
        hidden = [path for path in files if is_hidden(path)]
        visible = [path for path in files if not is_hidden(path)]
        for number, work in enumerate(self.repositories):
            if number and hidden and not visible:
                work.seconds += 180
                continue
            for path in visible if number else files:
                if (text := files[path]) is None:
                    (work.path / path).unlink()
                else:
                    work.write(path, text)
            work.git("add", "-A")
            visible_message = "" if number and hidden else message
            work.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", visible_message)
            work.git("status")
        if not hidden or visible:
            self.record_commit("HEAD")

    def git(self, *arguments: str) -> None:
        """Run git in both repositories."""
        for work in self.repositories:
            work.git(*arguments)

    def record_commit(self, rev: str) -> None:
        whole, visible = (work.git("rev-parse", rev) for work in self.repositories)
        self.oids[whole] = visible

    def sources(self) -> list[GitSource]:
        return [git(work.path, label="harbour") for work in self.repositories]


@pytest.fixture
def pair(tmp_path: Path) -> RepositoryPair:
    pair = RepositoryPair(tmp_path / "pair")
    pair.commit("Hide first", private__first_0_md="hiddenword first\n")
    pair.commit("Begin", readme_0_md="# Harbour\nprudence\n", docs__guide_0_md=TEXT, private__pay_0_md="hiddenword\n")
    pair.commit("Only seen: prudence", docs__guide_0_md=TEXT + "more prudence\n")
    pair.git("tag", "v1")
    pair.commit("Hide only hiddenword", private__pay_0_md="hiddenword 2\n", docs__hidden_0_md="hiddenword\n")
    pair.git("tag", "-a", "v2", "-m", "The second")
    pair.commit("Mixed hiddenword", docs__guide_0_md=TEXT + "mixed prudence\n", docs__hidden_0_md="hiddenword 2\n")
    pair.commit("From hidden", docs__moved_0_md=TEXT * 2, private__moved_0_md=OTHER)
    pair.commit("Rename", docs__moved_0_md=None, docs__renamed_0_md=TEXT * 2)
    pair.commit("Into the open", private__moved_0_md=None, docs__opened_0_md=OTHER + "opened\n")
    pair.commit("Change opened", docs__opened_0_md=OTHER + "opened again\n")
    pair.git("checkout", "-q", "-b", "side", "HEAD~0")
    pair.commit("Side", side_0_md="side\n")
    pair.commit("Side hidden", private__side_0_md="hiddenword\n")
    pair.git("checkout", "-q", "main")
    pair.commit("Main", main_0_md="main\n")
    pair.git("merge", "-q", "--no-ff", "--no-commit", "side")
    for repository, message in zip(
        pair.repositories, ("Merge side", ""), strict=True
    ):  # the merge adds a hidden file too
        repository.git("commit", "-q", "--allow-empty-message", "-m", message)
    pair.record_commit("HEAD")
    pair.commit("Gone", docs__renamed_0_md=None)
    pair.commit("Empty")
    for number in range(5):
        pair.commit(f"Hidden last {number}", private__last_0_md=f"hiddenword {number}\n")
    for repository in pair.repositories:
        repository.write("readme.md", "# Harbour\nprudence uncommitted\n").write("new/file.txt", "x").write(
            "untracked.md", "x"
        )
    whole = pair.repositories[0]
    whole.write("private/pay.md", "hiddenword uncommitted").write("private/new.md", "hiddenword").write("h/hidden", "x")
    whole.write("docs/hidden.md", "hiddenword staged")
    whole.git("add", "docs/hidden.md")
    return pair


URIS = [
    "", "/tree/HEAD", "/tree/main", "/tree/v1", "/tree/v2", "/tree/side", "/tree/HEAD/docs", "/tree/HEAD~1/docs",
    "/tree/HEAD/docs/", "/tree/HEAD~2", "/tree/HEAD^2", "/tree/HEAD/docs/guide.md", "/tree/v1/docs/guide.md?lines=2-3",
    "/tree/HEAD/docs/hidden.md", "/tree/HEAD/private", "/tree/HEAD/private/pay.md", "/tree/HEAD~30",
    "/commit/HEAD", "/commit/HEAD~1", "/commit/HEAD~2", "/commit/HEAD~3", "/commit/HEAD~4", "/commit/v1", "/commit/v2",
    "/commit/side", "/commit/HEAD~2^2", "/commit/HEAD~5", "/commit/HEAD~6", "/commit/HEAD~7", "/commit/HEAD~8",
    "/commit/HEAD~9", "/commit/HEAD~10", "/commit/HEAD~11", "/commit/HEAD~12",
    "/log/HEAD", "/log/side", "/log/v2?limit=2", "/log/HEAD?limit=3", "/log/HEAD?path=docs", "/log/HEAD?path=private",
    "/log/HEAD?path=docs/guide.md", "/log/HEAD?path=private/pay.md", "/log/HEAD?path=docs/opened.md",
    "/log/HEAD?path=docs/renamed.md", "/log/HEAD?grep=prudence", "/log/HEAD?grep=hiddenword", "/log/HEAD?author=ada",
    "/log/HEAD?pickaxe=hiddenword", "/log/HEAD?path=docs/hidden.md", "/log/HEAD?path=docs/nothing.md",
    "/log/HEAD?grep=hide", "/log/HEAD?since=2020-01-01&limit=4",
    "/diff/v1..HEAD", "/diff/HEAD~8..HEAD", "/diff/HEAD", "/diff/HEAD~1", "/diff/HEAD~2", "/diff/HEAD~4",
    "/diff/HEAD~5", "/diff/HEAD~6", "/diff/HEAD~7", "/diff/HEAD~8", "/diff/HEAD~9", "/diff/HEAD~10",
    "/diff/v1..HEAD/docs", "/diff/v1..HEAD/docs/guide.md", "/diff/v1..HEAD/docs/hidden.md", "/diff/v1..HEAD/private",
    "/diff/v1..v2",
    "/blame/HEAD/docs/guide.md", "/blame/HEAD/docs/opened.md", "/blame/HEAD~1/docs/renamed.md",
    "/blame/HEAD/docs/hidden.md", "/blame/HEAD/readme.md", "/blame/HEAD/private/pay.md",
    "/grep/HEAD?text=hiddenword", "/grep/HEAD?text=prudence", "/grep/HEAD?text=line&path=docs", "/grep/HEAD?text=line",
    "/grep/HEAD?text=hiddenword&path=private", "/grep/HEAD?text=hiddenword&path=docs/hidden.md", "/grep/v1?text=more",
    "/changes", "/changes/readme.md", "/changes/private", "/changes/docs", "/changes/docs/hidden.md", "/changes/new",
]  # fmt: skip


async def answers_for(source: GitSource, uri: str) -> list[tuple[str, Any]]:
    """Return the requests for one URI, each with its answer or error."""
    found: list[tuple[str, Any]] = []
    for method in (source.read, source.stat, source.version, source.children):
        try:
            answer = await method(uri)
            found.append((f"{method.__name__} {uri}", answer if isinstance(answer, str) else encode(answer).decode()))
        except (ResourceNotFound, InvalidArgument) as error:
            found.append((f"{method.__name__} {uri}", repr(error)))
    return found


async def all_answers(source: GitSource) -> list[tuple[str, Any]]:
    """Make all requests to a repository, and return each with its answer."""
    found: list[tuple[str, Any]] = []
    for uri in URIS:
        found += await answers_for(source, "git://harbour" + uri)
        next_uris = re.findall(r'"wharfinger/next":"([^"]*)"', str(found[-4][1]))
        for _ in range(10):
            if not next_uris:
                break
            found += (await answers_for(source, next_uris[0]))[:1]
            next_uris = re.findall(r'"wharfinger/next":"([^"]*)"', str(found[-1][1]))
    for limit in (1, 3, 1000):
        for name, page in (("page", source.page), ("documents", source.documents)):
            after: str | None = None
            for number in range(100):
                entries, after = await page(after, limit)
                found.append((f"{name} {limit} {number} {after is None}", encode(entries).decode()))
                if after is None:
                    break
    templates = {template.name: template.uri_template for template in source.templates}
    for value in ("", "h", "hid", "v", "side", "s"):
        found.append((f"rev {value}", await source.complete(templates["harbour tree"], "rev", value, {})))
    for value in ("", "h", "hidden", "p", "private/", "docs/", "docs/h", "docs/g", "open"):
        values = await source.complete(templates["harbour tree"], "path", value, {"rev": "HEAD"})
        found.append((f"path {value}", values))
    reader = SourceReader(asyncio.get_running_loop())
    for query in ("prudence", "hiddenword", "mixed", "hidden", "hiddenwort"):
        hits: Hits = await asyncio.to_thread(search_documents, source, query, 50, reader)
        found.append((f"search {query}", (encode(list(hits)).decode(), hits.truncated, hits.remark)))
    return found


async def test_answers_equal_those_of_a_repository_without_the_hidden_files(
    pair: RepositoryPair, permit: Permit
) -> None:
    whole, visible = pair.sources()

    def replace_ids(answer: tuple[str, Any]) -> str:
        text = str(answer)
        for oid, other in pair.oids.items():
            for length in (40, 12, 7):
                text = text.replace(oid[:length], other[:length])
        return text

    try:
        with permit(*ALLOW, deny=DENY):
            actual, expected = await all_answers(whole), await all_answers(visible)
        assert "hiddenword" not in "".join(str(answer) for request, answer in actual if "hidden" not in request)
        volatile = re.compile(r'("wharfinger/version":)"[^"]*"|("ttlMs":)\d+|^(\(.version ).*')
        for answer, other in zip(actual, expected, strict=True):
            assert volatile.sub(r"\1\2\3", replace_ids(answer)) == volatile.sub(r"\1\2\3", replace_ids(other))
    finally:
        await whole.close()
        await visible.close()


async def test_the_log_of_a_removed_folder_has_only_its_visible_commits(tmp_path: Path, permit: Permit) -> None:
    """One file of the folder, and all of another folder, are hidden."""
    pair = RepositoryPair(tmp_path / "pair")
    pair.commit("Begin", old__a_0_md="a\n", old__b_0_md="b\n", old__hidden_0_md="hiddenword\n")
    pair.commit("Change", old__a_0_md="a 2\n", old__b_0_md="b 2\n")
    pair.commit("Hide", old__hidden_0_md="hiddenword 2\n", private__a_0_md="hiddenword\n", private__b_0_md="b\n")
    pair.commit("Change one", old__a_0_md="a 3\n")
    pair.commit("Remove", old__a_0_md=None, old__b_0_md=None, old__hidden_0_md=None)
    pair.commit("Remove private", private__a_0_md=None, private__b_0_md=None)
    whole, visible = pair.sources()
    try:
        for path, count in (("old", 4), ("private", 0)):
            uri = f"git://harbour/log/HEAD?path={path}"
            with permit(*ALLOW, deny=DENY):
                texts = [str((await source.read(uri)).contents[0].text) for source in (whole, visible)]
            for oid, other in pair.oids.items():
                texts[0] = texts[0].replace(oid[:12], other[:12])
            assert texts[0] == texts[1]
            assert texts[0].startswith(f"{count} commits")
    finally:
        await whole.close()
        await visible.close()


async def test_many_untracked_folders_are_searched_for_visible_files_at_once(tmp_path: Path, permit: Permit) -> None:
    """A process for each folder took several milliseconds: ten seconds for these."""
    work = GitRepository(tmp_path / "harbour").init()
    work.commit("Begin", readme__md="# Harbour\n")
    for number in range(1_500):
        work.write(f"new{number}/{'hidden' if number % 2 else 'seen'}.md", "x")
    source = git(work.path, label="harbour")
    try:
        with permit(*ALLOW, deny=DENY):
            async with asyncio.timeout(5):
                text = (await source.read("git://harbour/changes")).contents[0].text
    finally:
        await source.close()
    shown = re.findall(r"^  \? new(\d+)/  \(untracked\)$", str(text), re.MULTILINE)
    assert shown == sorted(shown)
    assert {int(number) % 2 for number in shown} == {0}
    assert "and 550 more untracked" in str(text)


async def test_versions_do_not_change_if_only_hidden_files_change(pair: RepositoryPair, permit: Permit) -> None:
    source = pair.sources()[0]
    uris = ["", "/tree/HEAD", "/tree/HEAD/docs", "/log/HEAD", "/diff/v1..HEAD", "/diff/v1..HEAD/docs", "/changes"]
    try:
        with permit(*ALLOW, deny=DENY):
            before = [await source.version("git://harbour" + uri) for uri in uris]
            work = pair.repositories[0].write("private/more.md", "hiddenword").write("docs/hidden.md", "more")
            work.git("add", "private/more.md", "docs/hidden.md")
            work.git("commit", "-q", "-m", "More", "--", "private/more.md", "docs/hidden.md")
            after = [await source.version("git://harbour" + uri) for uri in uris]
    finally:
        await source.close()
    assert before == after


async def test_hidden_objects_are_not_found_by_their_ids(pair: RepositoryPair, permit: Permit) -> None:
    source, work = pair.sources()[0], pair.repositories[0]
    oids = [work.git("rev-parse", name) for name in ("HEAD", "HEAD:private", "HEAD:private/pay.md", "HEAD:readme.md")]
    try:
        for oid in oids:
            for rev in (oid, oid[:10]):
                await source.stat(f"git://harbour/tree/{rev}")  # without a policy
        with permit(*ALLOW, deny=DENY):
            for oid in oids:
                for rev in (oid, oid[:10]):
                    for kind in ("tree", "commit", "log", "diff"):
                        with pytest.raises(ResourceNotFound):
                            await source.stat(f"git://harbour/{kind}/{rev}")
                assert await source.complete(source.templates[0].uri_template, "rev", oid[:6], {}) == []
    finally:
        await source.close()


async def test_a_branch_that_may_not_be_read_is_not_named(pair: RepositoryPair, permit: Permit) -> None:
    source = pair.sources()[0]
    try:
        with permit(*ALLOW, deny=["git://harbour/*/side/**"]):
            assert "side" not in (await source.read("git://harbour")).contents[0].text
            assert "/side" not in encode((await source.page(None, 1000))[0]).decode().replace("side.md", "")
            assert await source.complete(source.templates[0].uri_template, "rev", "side", {}) == []
    finally:
        await source.close()


async def test_a_policy_that_allows_everything_changes_no_answer(pair: RepositoryPair, permit: Permit) -> None:
    source = pair.sources()[0]
    try:
        with permit(*ALLOW):
            allowed = await all_answers(source)
        for answer, other in zip(allowed, await all_answers(source), strict=True):
            assert re.sub(r'"ttlMs":\d+', "", str(answer)) == re.sub(r'"ttlMs":\d+', "", str(other))
    finally:
        await source.close()


@pytest.mark.parametrize("count", [answer_grep.MAX_PATHS, answer_grep.MAX_PATHS + 1])
async def test_the_whole_tree_is_searched_if_it_has_too_many_paths_to_name(
    work: GitRepository, permit: Permit, count: int
) -> None:
    """A bug: from 1,001 paths on, nothing was found."""
    for number in range(count - 1):
        work.write(f"{number}.txt", "needle\n" if number == 5 else "")
    work.write("private/secret.txt", "needle\n").commit("All")
    source = git(work.path, label="harbour")
    try:
        with permit(*ALLOW, deny=["git://harbour/tree/*/private/**"]):
            text = (await source.read("git://harbour/grep/HEAD?text=needle")).contents[0].text
    finally:
        await source.close()
    assert text.startswith("1 line at HEAD") and "5.txt" in text


async def test_many_hidden_matches_do_not_use_up_the_limit_of_grep(work: GitRepository, permit: Permit) -> None:
    work.write("aaa/hidden.txt", "needle\n" * 20_000).write("zzz/seen.txt", "needle\n").commit("All")
    source = git(work.path, label="harbour")
    try:
        with permit(*ALLOW, deny=["git://harbour/tree/*/aaa/**"]):
            text = (await source.read("git://harbour/grep/HEAD?text=needle")).contents[0].text
    finally:
        await source.close()
    assert text.startswith("1 line at HEAD") and "zzz/seen.txt" in text


async def test_a_diff_of_many_paths_leaves_out_the_hidden_ones(work: GitRepository, permit: Permit) -> None:
    for number in range(700):
        work.write(f"seen/{number:03}.txt", f"seen {number}\n").write(f"hide/{number:03}.txt", f"hiddenword {number}\n")
    work.commit("All")
    source = git(work.path, label="harbour")
    text, uri = "", "git://harbour/diff/HEAD"
    try:
        with permit(*ALLOW, deny=["git://harbour/tree/*/hide/**"]):
            for _ in range(100):
                contents = (await source.read(uri)).contents
                text += contents[0].text or ""
                if len(contents) == 1:
                    break
                uri = str((contents[0].meta or {})["wharfinger/next"])
            commit = (await source.read("git://harbour/commit/HEAD")).contents[0].text
    finally:
        await source.close()
    assert text.count("diff --git ") == 700
    assert "hid" not in text
    assert commit and "More than 300 paths" in commit and "hid" not in commit and "All" not in commit


async def test_a_comparison_that_lists_only_some_paths_shows_no_hidden_one(
    work: GitRepository, permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Security: a bug: if all listed paths may be read, git compared everything, and found the hidden paths too."""
    for number in range(20):
        work.write(f"a/{number:02}.txt", f"{number}\n" * 20)
    work.commit("Begin")
    (work.path / "a").rename(work.path / "b")
    work.write("hide/z.txt", "hiddenword\n").commit("Move")
    # Without renames, git lists 41 paths. They need more bytes than the 21 changes with renames.
    monkeypatch.setattr(git_differences, "LISTED_BYTES", 3_000)
    source = git(work.path, label="harbour")
    try:
        with permit(*ALLOW, deny=["git://harbour/tree/*/hide/**"]):
            diff = await source.read(f"git://harbour/diff/{work.head}")
            commit = await source.read(f"git://harbour/commit/{work.head}")
    finally:
        await source.close()
    for answer in (diff, commit):
        assert "a/00.txt" in str(answer.contents[0].text) and "hid" not in str(answer.contents[0].text)
        assert answer.ttl_ms is not None and answer.ttl_ms <= 10_000  # so that it is made again soon


async def test_a_folder_in_place_of_a_file_is_hidden_if_its_files_are_not_listed(
    work: GitRepository, permit: Permit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Security: for the path of the file, git also shows the files of the folder."""
    work.write("a.txt", "1").write("x", "1").commit("Begin")
    (work.path / "x").unlink()
    for number in range(20):
        work.write(f"hide/{number:02}.txt", "hiddenword")
    work.write("a.txt", "2").write("x/hidden.txt", "hiddenword").commit("Replace")
    monkeypatch.setattr(git_differences, "LISTED_BYTES", 2_450)  # ends after `x`, before `x/hidden.txt`
    source = git(work.path, label="harbour")
    try:
        with permit(*ALLOW, deny=["git://harbour/tree/*/x/*", "git://harbour/tree/*/hide/**"]):
            text = str((await source.read(f"git://harbour/diff/{work.head}")).contents[0].text)
    finally:
        await source.close()
    assert "a.txt" in text and "hid" not in text


@pytest.mark.parametrize("path", ["private/pay.md", "docs/hidden.md", "docs/opened.md", "docs/guide.md"])
async def test_a_log_continues_only_after_the_commits_that_it_lists(
    pair: RepositoryPair, permit: Permit, path: str
) -> None:
    whole = pair.repositories[0]
    source = git(whole.path, label="harbour")
    uri, logged = f"git://harbour/log/HEAD?path={path}", r"(?m)^([0-9a-f]{12}) \d"
    try:
        with permit(*ALLOW, deny=DENY):
            listed = re.findall(logged, str((await source.read(uri)).contents[0].text))
            accepted: list[str] = []
            for oid in whole.git("rev-list", "HEAD").split():
                try:
                    rest = str((await source.read(f"{uri}&after={oid}")).contents[0].text)
                except InvalidArgument:
                    continue
                accepted.append(oid[:12])
                assert re.findall(logged, rest) == listed[listed.index(oid[:12]) + 1 :]
    finally:
        await source.close()
    assert sorted(accepted) == sorted(listed)
    assert bool(listed) != is_hidden(path)


async def test_a_log_that_cannot_be_followed_does_not_list_the_commits_of_a_hidden_file(
    tmp_path: Path, permit: Permit
) -> None:
    work = GitRepository(tmp_path / "harbour").init()
    work.commit("One", old__md="a text\n" * 30)
    blob = work.git("rev-parse", "HEAD:old.md")
    (work.path / "old.md").unlink()
    work.write("private/pay.md", "a text\n" * 31)
    oid = work.commit("Two", readme__md="seen\n")
    (work.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    source = git(work.path, label="harbour")
    uri = "git://harbour/log/HEAD?path=private/pay.md"
    try:
        assert oid[:12] in str((await source.read(uri)).contents[0].text)
        with permit(*ALLOW, deny=DENY):
            assert (await source.read(uri)).contents[0].text.startswith("0 commits.")
    finally:
        await source.close()
