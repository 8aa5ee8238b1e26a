"""A clone is exactly its remote, follows it, and survives what happens to it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from pathlib import Path

import pytest

from tests.sources.git_remote.conftest import clone, complete, serving, text, until
from tests.sources.git_remote.git_host import GitHost
from tests.sources.git_repository.conftest import Work
from wharfinger.errors import RemoteError

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("cache")]

HULL = "git://harbour/tree/HEAD/hull.txt"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def objects_of(path: Path) -> str:
    """Return all references, HEAD, and all objects with their kinds and sizes, from git itself."""
    read = ("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname) %(objecttype) %(objectsize)")
    commands = [("symbolic-ref", "HEAD"), ("for-each-ref", "--format=%(objectname) %(refname)"), read]
    ran = [
        subprocess.run(["git", "-C", str(path), *command], capture_output=True, text=True, check=True).stdout
        for command in commands
    ]
    return "\n".join([*ran[:2], *sorted(set(ran[2].splitlines()))])


@pytest.mark.parametrize("partial", [True, False])
async def test_a_clone_is_what_git_clones(tmp_path: Path, host: GitHost, history: Work, partial: bool) -> None:
    for number in range(60):
        history.commit(f"Deepen {number}", **{f"log{number % 7}__txt": f"{number} fathoms\n" * number})
    history.git("branch", "-f", "side", "HEAD~3")
    url = host.add(history, partial=partial)
    source = clone(url)
    async with serving(source) as client:
        await complete(source)
        plain = tmp_path / "plain.git"
        await asyncio.to_thread(history.git, "clone", "-q", "--mirror", url, str(plain), cwd=tmp_path)
        assert objects_of(source.mirror.folder.repository) == objects_of(plain)
        assert source.mirror.incomplete == ""
        for revision in ("HEAD", "v1", "feature%2Flights", "side"):
            shown = await text(client, f"git://harbour/tree/{revision}/hull.txt")
            assert shown.rstrip("\n") == history.git("show", f"{revision.replace('%2F', '/')}:hull.txt")
        assert await text(client, "git://harbour/tree/v1/old.txt") == "old contents\n"
        assert "Tell of tides" in await text(client, "git://harbour/log/HEAD?path=docs/tides.md")
        assert "Ada Berth" in await text(client, "git://harbour/blame/HEAD/hull.txt")
        assert "-four\n+five" in await text(client, "git://harbour/diff/v1..HEAD/hull.txt")
    assert not list(source.mirror.folder.repository.glob("objects/pack/*.promisor"))
    assert subprocess.run(["git", "-C", str(source.mirror.folder.repository), "fsck", "--strict"]).returncode == 0


async def test_a_push_is_noticed_by_those_who_watch(host: GitHost, history: Work) -> None:
    source = clone(host.add(history))
    async with serving(source) as client:
        assert await text(client, HULL) == "five\nfathoms\n"
        async with client.watch(HULL) as changes, client.watch_lists() as lists:
            history.commit("Dredge", hull__txt="six\nfathoms\n", new__txt="new\n")
            history.git("push", "-q", "origin", "main")
            assert (await asyncio.wait_for(anext(changes), 50)).uri == HULL
            assert await text(client, HULL) == "six\nfathoms\n"
            await asyncio.wait_for(anext(lists), 50)
        assert "git://harbour/tree/HEAD/new.txt" in [each.uri async for each in client.list_resources()]
        found = await asyncio.to_thread(source.describe)
        assert f"main at {history.head[:7]}, 2 branches, 4 files, fetched " in found and "every 1 s" in found


async def test_nothing_is_fetched_while_nothing_changes(host: GitHost, history: Work) -> None:
    source = clone(host.add(history))
    async with serving(source):
        await complete(source)
        packs = host.requests.count("POST /harbour.git/git-upload-pack")
        listed = host.requests.count("GET /harbour.git/info/refs")
        await until(lambda: host.requests.count("GET /harbour.git/info/refs") >= listed + 2)
        # each list of references is one POST in protocol 2
        extra = host.requests.count("POST /harbour.git/git-upload-pack") - packs
        assert extra <= host.requests.count("GET /harbour.git/info/refs") - listed + 1


async def test_a_force_push_and_deletions_are_reported_and_survived(
    host: GitHost, history: Work, caplog: pytest.LogCaptureFixture
) -> None:
    source = clone(host.add(history))
    old = history.head
    async with serving(source) as client:
        await complete(source)
        history.git("reset", "-q", "--hard", "HEAD~1")
        history.commit("Another past", hull__txt="seven\nfathoms\n")
        history.git("push", "-q", "--force", "origin", "main", ":feature/lights", ":v2")
        await until(lambda: "force-push" in source.mirror.replaced)
        assert await text(client, HULL) == "seven\nfathoms\n"
        assert f"main was replaced by a force-push ({old[:7]} became {history.head[:7]})" in source.describe()
        for words in ("main was replaced by a force-push", "feature/lights was deleted", "tag v2 was deleted"):
            assert words in caplog.text
        with pytest.raises(RemoteError, match="not found"):
            await text(client, "git://harbour/tree/v2/hull.txt")
        assert await text(client, f"git://harbour/tree/{old}/hull.txt") == "five\nfathoms\n"  # still there, by its name


async def test_the_deleted_default_branch_leaves_the_others(host: GitHost, history: Work) -> None:
    source = clone(host.add(history))
    async with serving(source) as client:
        await complete(source)
        bare = host.folder / "repositories" / "harbour.git"
        history.git("symbolic-ref", "HEAD", "refs/heads/feature/lights", cwd=bare)
        history.git("update-ref", "-d", "refs/heads/main", cwd=bare)
        await until(lambda: "main was deleted" in source.mirror.replaced)
        assert await text(client, HULL) == "four\nfathoms\n"
        assert "feature/lights at" in await text(client, "git://harbour")


async def test_an_empty_repository_gets_its_first_commit(host: GitHost, work: Work) -> None:
    source = clone(host.add(work))
    async with serving(source) as client:
        assert "without commits yet" in await text(client, "git://harbour")
        async with client.watch("git://harbour") as changes:
            work.commit("Begin", hull__txt="four\n")
            work.git("push", "-q", "origin", "main")
            await asyncio.wait_for(anext(changes), 50)
        assert await text(client, HULL) == "four\n"
        bare = host.folder / "repositories" / "harbour.git"
        work.git("update-ref", "-d", "refs/heads/main", cwd=bare)
        await until(lambda: "main was deleted" in source.mirror.replaced)
        assert "without commits yet" in await text(client, "git://harbour")


async def test_an_outage_leaves_the_last_state_and_is_reported(
    host: GitHost, history: Work, caplog: pytest.LogCaptureFixture
) -> None:
    url = host.add(history)
    source = clone(url)
    async with serving(source) as client:
        await complete(source)
        host.stop()
        await until(lambda: source.mirror.problem)
        assert await text(client, HULL) == "five\nfathoms\n"
        assert "high at six" in (await text(client, "git://harbour/grep/HEAD?text=high")).lower()
        assert "could not be fetched since (127.0.0.1 does not answer)" in await text(client, "git://harbour")
        (top,) = [each async for each in client.list_resources() if each.uri == "git://harbour"]
        assert "does not answer" in str((top.meta or {})["wharfinger/problem"])
        assert "127.0.0.1 does not answer" in source.describe() and "is served" in source.describe()
        assert f"{url} could not be fetched: 127.0.0.1 does not answer" in caplog.text
        history.commit("Dredge", hull__txt="six\nfathoms\n")
        history.git("push", "-q", "origin", "main")
        host.begin()
        async with client.watch(HULL) as changes, client.watch("git://harbour") as top_changes:
            await asyncio.wait_for(anext(changes), 50)
            await asyncio.wait_for(anext(top_changes), 50)
        assert await text(client, HULL) == "six\nfathoms\n"
        await until(lambda: not source.mirror.problem)
        assert "does not answer" not in await text(client, "git://harbour")
        assert "does not answer" not in source.describe()
        assert f"{url} can be fetched again" in caplog.text


async def test_after_a_restart_the_clone_is_read_without_the_host(host: GitHost, history: Work) -> None:
    url = host.add(history)
    first = clone(url)
    async with serving(first):
        await complete(first)
    host.stop()
    source = clone(url)
    async with serving(source) as client:
        assert await text(client, HULL) == "five\nfathoms\n"
        await until(lambda: source.mirror.problem)
        assert await text(client, HULL) == "five\nfathoms\n"


async def test_a_repository_that_cannot_be_cloned_yet_is_unavailable_until_it_can(host: GitHost, history: Work) -> None:
    url = host.add(history)
    host.stop()
    source = clone(url)
    async with serving(source) as client:
        with pytest.raises(RemoteError, match=r"could not be cloned: 127\.0\.0\.1 does not answer"):
            await text(client, HULL)
        host.begin()
        async with client.watch_lists() as lists:
            while "git://harbour/tree/HEAD/hull.txt" not in [each.uri async for each in client.list_resources()]:
                await asyncio.wait_for(anext(lists), 50)
        assert await text(client, HULL) == "five\nfathoms\n"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("missing.git", r"no such repository \(HTTP 404\)"),
        ("broken/harbour.git", r"HTTP 5xx"),
        ("private/harbour.git", r"requires a valid token \(HTTP 401\)"),
        ("moved/harbour.git", "redirects to another address"),
        ("files/harbour.git", r"no such repository \(HTTP 404\)"),
    ],
)
async def test_each_refusal_has_its_sentence(host: GitHost, history: Work, path: str, reason: str) -> None:
    host.add(history)
    source = clone(f"{host.origin}/{path}", label="harbour")
    async with serving(source) as client:
        with pytest.raises(RemoteError, match=reason):
            await text(client, "git://harbour")


async def test_a_fetch_beyond_the_bound_leaves_the_last_state(host: GitHost, history: Work) -> None:
    source = clone(host.add(history))
    mirror = source.mirror
    async with serving(source) as client:
        await complete(source)
        mirror.limit(mirror.folder.size() + 100_000)
        history.commit("Dredge", hull__txt=os.urandom(300_000))
        history.git("push", "-q", "origin", "main")
        await until(lambda: "the bound of the clone" in mirror.problem)
        assert await text(client, HULL) == "five\nfathoms\n"
        mirror.limit(1 << 30)
        await until(lambda: not mirror.problem)
        assert mirror.folder.size() > 300_000


async def test_a_full_disk_leaves_the_last_state(host: GitHost, history: Work, cache: Path) -> None:
    disk = cache / "wharfinger" / "git"
    disk.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        source = clone(host.add(history))
        async with serving(source) as client:
            await complete(source)
            history.commit("Dredge", hull__txt=os.urandom(2_000_000))
            history.git("push", "-q", "origin", "main")
            await until(lambda: "no space is left" in source.mirror.problem)
            assert await text(client, HULL) == "five\nfathoms\n"
            subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
            await until(lambda: not source.mirror.problem)
            assert history.head[:7] in source.describe()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_two_servers_share_a_clone(host: GitHost, history: Work, caplog: pytest.LogCaptureFixture) -> None:
    url = host.add(history)
    caplog.set_level(logging.WARNING)
    first, second = clone(url), clone(url)
    async with serving(first) as one, serving(second) as other:
        await asyncio.gather(complete(first), complete(second))
        assert first.mirror.folder.path == second.mirror.folder.path
        for number in range(3):
            history.commit(f"Dredge {number}", hull__txt=f"{number}\n")
            history.git("push", "-q", "origin", "main")
            for source, client in ((first, one), (second, other)):
                async with asyncio.timeout(50):
                    while await text(client, HULL) != f"{number}\n":
                        await asyncio.sleep(0.05)
                assert not source.mirror.problem
    assert "could not be fetched" not in caplog.text


async def test_many_pushes_leave_few_packs(host: GitHost, history: Work) -> None:
    from wharfinger.sources.git_remote import mirror

    source = clone(host.add(history))
    async with serving(source) as client:
        await complete(source)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mirror, "MAX_PACKS", 3)
            for number in range(6):
                history.commit(f"Dredge {number}", hull__txt=f"{number}\n")
                history.git("push", "-q", "origin", "main")
                async with asyncio.timeout(50):
                    while await text(client, HULL) != f"{number}\n":
                        await asyncio.sleep(0.05)
            await until(lambda: len(source.mirror.folder.pack_names()) <= 4)
        assert await text(client, "git://harbour/tree/v1/old.txt") == "old contents\n"
