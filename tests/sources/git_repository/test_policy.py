"""A repository with a policy: a caller sees what one without the hidden files and their commits would show."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.sources.git_repository.conftest import Work
from wharfinger.errors import InvalidArgument, ResourceNotFound
from wharfinger.protocol.jsonrpc import encode
from wharfinger.server.document_search import SourceReader, search_documents
from wharfinger.source import Hits
from wharfinger.sources.git_repository import GitSource, git

Permit = Callable[..., AbstractContextManager[None]]

pytestmark = pytest.mark.anyio

ALLOW = ["git://harbour/**"]
DENY = ["git://harbour/tree/*/private/**", "git://harbour/tree/*/**/*hidden*"]
TEXT = "".join(f"line {number} of a text\n" for number in range(30))
OTHER = "".join(f"{number * number} others\n" for number in range(50))


def is_hidden(path: str) -> bool:
    return path.startswith("private/") or "hidden" in path.rpartition("/")[2]


class Pair:
    """The whole repository, and one without the hidden files but with the same commits."""

    def __init__(self, folder: Path) -> None:
        self.works = [Work(folder / name / "harbour").init() for name in ("whole", "rest")]
        self.oids: dict[str, str] = {}
        """The names of commits of the whole repository by those of the other one, and of blobs."""

    def commit(self, message: str, **changes: str | None) -> None:
        """Commit files by path (`__` is `/`, `_0_` is `.`); None removes one."""
        files = {path.replace("__", "/").replace("_0_", "."): text for path, text in changes.items()}
        hidden = [path for path in files if is_hidden(path)]
        seen = [path for path in files if not is_hidden(path)]
        for number, work in enumerate(self.works):
            if number and hidden and not seen:
                work.seconds += 180
                continue
            for path in seen if number else files:
                if (text := files[path]) is None:
                    (work.path / path).unlink()
                else:
                    work.write(path, text)
            work.git("add", "-A")
            shown = "" if number and hidden else message
            work.git("commit", "-q", "--allow-empty", "--allow-empty-message", "-m", shown)
            work.git("status")
        if not hidden or seen:
            self.pair("HEAD")

    def both(self, *arguments: str) -> None:
        for work in self.works:
            work.git(*arguments)

    def pair(self, rev: str) -> None:
        whole, rest = (work.git("rev-parse", rev) for work in self.works)
        self.oids[whole] = rest

    def sources(self) -> list[GitSource]:
        return [git(work.path, label="harbour") for work in self.works]


@pytest.fixture
def pair(work: Work, tmp_path: Path) -> Pair:
    made = Pair(tmp_path / "pair")
    made.commit("Hide first", private__first_0_md="hiddenword first\n")
    made.commit("Begin", readme_0_md="# Harbour\nprudence\n", docs__guide_0_md=TEXT, private__pay_0_md="hiddenword\n")
    made.commit("Only seen: prudence", docs__guide_0_md=TEXT + "more prudence\n")
    made.both("tag", "v1")
    made.commit("Hide only hiddenword", private__pay_0_md="hiddenword 2\n", docs__hidden_0_md="hiddenword\n")
    made.both("tag", "-a", "v2", "-m", "The second")
    made.commit("Mixed hiddenword", docs__guide_0_md=TEXT + "mixed prudence\n", docs__hidden_0_md="hiddenword 2\n")
    made.commit("From hidden", docs__moved_0_md=TEXT * 2, private__moved_0_md=OTHER)
    made.commit("Rename", docs__moved_0_md=None, docs__renamed_0_md=TEXT * 2)
    made.commit("Into the open", private__moved_0_md=None, docs__opened_0_md=OTHER + "opened\n")
    made.commit("Change opened", docs__opened_0_md=OTHER + "opened again\n")
    made.both("checkout", "-q", "-b", "side", "HEAD~0")
    made.commit("Side", side_0_md="side\n")
    made.commit("Side hidden", private__side_0_md="hiddenword\n")
    made.both("checkout", "-q", "main")
    made.commit("Main", main_0_md="main\n")
    made.both("merge", "-q", "--no-ff", "--no-commit", "side")
    for one, message in zip(made.works, ("Merge side", ""), strict=True):  # which brings a hidden file too
        one.git("commit", "-q", "--allow-empty-message", "-m", message)
    made.pair("HEAD")
    made.commit("Gone", docs__renamed_0_md=None)
    made.commit("Empty")
    for number in range(5):
        made.commit(f"Hidden last {number}", private__last_0_md=f"hiddenword {number}\n")
    whole, rest = made.works
    for one in (whole, rest):
        one.write("readme.md", "# Harbour\nprudence uncommitted\n").write("new/file.txt", "x").write(
            "untracked.md", "x"
        )
    whole.write("private/pay.md", "hiddenword uncommitted").write("private/new.md", "hiddenword").write("h/hidden", "x")
    whole.write("docs/hidden.md", "hiddenword staged")
    whole.git("add", "docs/hidden.md")
    return made


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


async def asked(source: GitSource, uri: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for what in (source.read, source.stat, source.version, source.children):
        try:
            answer = await what(uri)
            found.append((f"{what.__name__} {uri}", answer if isinstance(answer, str) else encode(answer).decode()))
        except (ResourceNotFound, InvalidArgument) as error:
            found.append((f"{what.__name__} {uri}", repr(error)))
    return found


async def answers(source: GitSource) -> list[tuple[str, Any]]:
    """Return every answer of a repository, each with its question."""
    found: list[tuple[str, Any]] = []
    for uri in URIS:
        found += await asked(source, "git://harbour" + uri)
        following = re.findall(r'"wharfinger/next":"([^"]*)"', str(found[-4][1]))
        for _ in range(10):
            if not following:
                break
            found += (await asked(source, following[0]))[:1]
            following = re.findall(r'"wharfinger/next":"([^"]*)"', str(found[-1][1]))
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


async def test_a_policy_shows_a_repository_as_one_without_the_hidden_files(pair: Pair, permit: Permit) -> None:
    whole, rest = pair.sources()

    def translated(answer: tuple[str, Any]) -> str:
        text = str(answer)
        for oid, other in pair.oids.items():
            for length in (40, 12, 7):
                text = text.replace(oid[:length], other[:length])
        return text

    try:
        with permit(*ALLOW, deny=DENY):
            seen, expected = await answers(whole), await answers(rest)
        assert "hiddenword" not in "".join(str(answer) for question, answer in seen if "hidden" not in question)
        unhashed = re.compile(r'("wharfinger/version":)"[^"]*"|("ttlMs":)\d+|^(\(.version ).*')
        for one, other in zip(seen, expected, strict=True):
            assert unhashed.sub(r"\1\2\3", translated(one)) == unhashed.sub(r"\1\2\3", translated(other))
    finally:
        await whole.close()
        await rest.close()


async def test_versions_stay_the_same_while_only_hidden_files_change(pair: Pair, permit: Permit) -> None:
    source = pair.sources()[0]
    uris = ["", "/tree/HEAD", "/tree/HEAD/docs", "/log/HEAD", "/diff/v1..HEAD", "/diff/v1..HEAD/docs", "/changes"]
    try:
        with permit(*ALLOW, deny=DENY):
            before = [await source.version("git://harbour" + uri) for uri in uris]
            work = pair.works[0].write("private/more.md", "hiddenword").write("docs/hidden.md", "more")
            work.git("add", "private/more.md", "docs/hidden.md")
            work.git("commit", "-q", "-m", "More", "--", "private/more.md", "docs/hidden.md")
            after = [await source.version("git://harbour" + uri) for uri in uris]
    finally:
        await source.close()
    assert before == after


async def test_hidden_objects_are_not_found_by_name(pair: Pair, permit: Permit) -> None:
    source, work = pair.sources()[0], pair.works[0]
    names = [work.git("rev-parse", name) for name in ("HEAD", "HEAD:private", "HEAD:private/pay.md", "HEAD:readme.md")]
    try:
        for name in names:
            for rev in (name, name[:10]):
                await source.stat(f"git://harbour/tree/{rev}")  # without a policy
        with permit(*ALLOW, deny=DENY):
            for name in names:
                for rev in (name, name[:10]):
                    for kind in ("tree", "commit", "log", "diff"):
                        with pytest.raises(ResourceNotFound):
                            await source.stat(f"git://harbour/{kind}/{rev}")
                assert await source.complete(source.templates[0].uri_template, "rev", name[:6], {}) == []
    finally:
        await source.close()


async def test_a_branch_that_may_not_be_read_is_not_named(pair: Pair, permit: Permit) -> None:
    source = pair.sources()[0]
    try:
        with permit(*ALLOW, deny=["git://harbour/*/side/**"]):
            assert "side" not in (await source.read("git://harbour")).contents[0].text
            assert "/side" not in encode((await source.page(None, 1000))[0]).decode().replace("side.md", "")
            assert await source.complete(source.templates[0].uri_template, "rev", "side", {}) == []
    finally:
        await source.close()


async def test_with_rules_that_allow_everything_nothing_changes(pair: Pair, permit: Permit) -> None:
    source = pair.sources()[0]
    try:
        with permit(*ALLOW):
            seen = await answers(source)
        for one, other in zip(seen, await answers(source), strict=True):
            assert re.sub(r'"ttlMs":\d+', "", str(one)) == re.sub(r'"ttlMs":\d+', "", str(other))
    finally:
        await source.close()


async def test_hidden_lines_do_not_starve_the_visible_ones(work: Work, permit: Permit) -> None:
    work.write("aaa/hidden.txt", "needle\n" * 20_000).write("zzz/seen.txt", "needle\n").commit("All")
    source = git(work.path, label="harbour")
    try:
        with permit(*ALLOW, deny=["git://harbour/tree/*/aaa/**"]):
            text = (await source.read("git://harbour/grep/HEAD?text=needle")).contents[0].text
    finally:
        await source.close()
    assert text.startswith("1 line at HEAD") and "zzz/seen.txt" in text


async def test_many_paths_are_compared_without_the_hidden_ones(work: Work, permit: Permit) -> None:
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
