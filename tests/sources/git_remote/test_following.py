"""A clone has all objects of its remote, follows it, and survives outages and force-pushes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
from pathlib import Path

import pytest

from tests.sources.git_remote.conftest import clone, read_text, serving, wait_for_text, wait_until_complete
from tests.sources.git_remote.git_host import GitHost
from tests.sources.git_repository.conftest import GitRepository
from tests.waiting import wait_until_async
from wharfinger.errors import RemoteError

pytestmark = pytest.mark.usefixtures("cache")

HULL = "git://harbour/tree/HEAD/hull.txt"


def objects_of(path: Path) -> str:
    """Return HEAD, all references, and all objects with their kinds and sizes, as git prints them."""
    list_objects = (
        "cat-file",
        "--batch-all-objects",
        "--unordered",
        "--batch-check=%(objectname) %(objecttype) %(objectsize)",
    )
    commands = [("symbolic-ref", "HEAD"), ("for-each-ref", "--format=%(objectname) %(refname)"), list_objects]
    printed = [
        subprocess.run(["git", "-C", str(path), *command], capture_output=True, text=True, check=True).stdout
        for command in commands
    ]
    return "\n".join([*printed[:2], *sorted(set(printed[2].splitlines()))])


@pytest.mark.parametrize("partial", [True, False])
async def test_a_clone_has_the_same_objects_as_git_clone(
    tmp_path: Path, host: GitHost, history: GitRepository, partial: bool
) -> None:
    for number in range(60):
        history.commit(f"Deepen {number}", **{f"log{number % 7}__txt": f"{number} fathoms\n" * number})
    history.git("branch", "-f", "side", "HEAD~3")
    url = host.add(history, partial=partial)
    source = clone(url)
    async with serving(source) as client:
        await wait_until_complete(source)
        plain = tmp_path / "plain.git"
        await asyncio.to_thread(history.git, "clone", "-q", "--mirror", url, str(plain), cwd=tmp_path)
        assert objects_of(source.mirror.folder.repository) == objects_of(plain)
        assert source.mirror.why_incomplete == ""
        for revision in ("HEAD", "v1", "feature%2Flights", "side"):
            shown = await read_text(client, f"git://harbour/tree/{revision}/hull.txt")
            assert shown.rstrip("\n") == history.git("show", f"{revision.replace('%2F', '/')}:hull.txt")
        assert await read_text(client, "git://harbour/tree/v1/old.txt") == "old contents\n"
        assert "Tell of tides" in await read_text(client, "git://harbour/log/HEAD?path=docs/tides.md")
        assert "Ada Berth" in await read_text(client, "git://harbour/blame/HEAD/hull.txt")
        assert "-four\n+five" in await read_text(client, "git://harbour/diff/v1..HEAD/hull.txt")
    assert not list(source.mirror.folder.repository.glob("objects/pack/*.promisor"))
    assert subprocess.run(["git", "-C", str(source.mirror.folder.repository), "fsck", "--strict"]).returncode == 0


async def test_watchers_are_notified_of_a_push(host: GitHost, history: GitRepository) -> None:
    source = clone(host.add(history))
    async with serving(source) as client:
        assert await read_text(client, HULL) == "five\nfathoms\n"
        async with client.watch(HULL) as changes, client.watch_lists() as lists:
            history.commit("Dredge", hull__txt="six\nfathoms\n", new__txt="new\n")
            history.git("push", "-q", "origin", "main")
            assert (await asyncio.wait_for(anext(changes), 50)).uri == HULL
            assert await read_text(client, HULL) == "six\nfathoms\n"
            await asyncio.wait_for(anext(lists), 50)
        assert "git://harbour/tree/HEAD/new.txt" in [each.uri async for each in client.list_resources()]
        description = await asyncio.to_thread(source.describe)
        assert f"main at {history.head[:7]}, 2 branches, 4 files, fetched " in description
        assert "every 1 s" in description


async def test_no_objects_are_fetched_while_the_remote_does_not_change(host: GitHost, history: GitRepository) -> None:
    source = clone(host.add(history))
    async with serving(source):
        await wait_until_complete(source)
        packs = host.requests.count("POST /harbour.git/git-upload-pack")
        listed = host.requests.count("GET /harbour.git/info/refs")
        await wait_until_async(
            lambda: host.requests.count("GET /harbour.git/info/refs") >= listed + 2, "two more polls"
        )
        # in protocol 2, each listing of references is one POST
        extra = host.requests.count("POST /harbour.git/git-upload-pack") - packs
        assert extra <= host.requests.count("GET /harbour.git/info/refs") - listed + 1


async def test_a_force_push_and_deleted_references_are_reported(
    host: GitHost, history: GitRepository, caplog: pytest.LogCaptureFixture
) -> None:
    source = clone(host.add(history))
    old = history.head
    async with serving(source) as client:
        await wait_until_complete(source)
        history.git("reset", "-q", "--hard", "HEAD~1")
        history.commit("Another past", hull__txt="seven\nfathoms\n")
        history.git("push", "-q", "--force", "origin", "main", ":feature/lights", ":v2")
        await wait_until_async(lambda: "force-push" in source.mirror.replaced, "the force-push is found")
        assert await read_text(client, HULL) == "seven\nfathoms\n"
        assert f"main was replaced by a force-push ({old[:7]} became {history.head[:7]})" in source.describe()
        for words in ("main was replaced by a force-push", "feature/lights was deleted", "tag v2 was deleted"):
            assert words in caplog.text
        with pytest.raises(RemoteError, match="not found"):
            await read_text(client, "git://harbour/tree/v2/hull.txt")
        # the old commit can still be read by its id
        assert await read_text(client, f"git://harbour/tree/{old}/hull.txt") == "five\nfathoms\n"


async def test_another_branch_is_served_after_the_default_branch_is_deleted(
    host: GitHost, history: GitRepository
) -> None:
    source = clone(host.add(history))
    async with serving(source) as client:
        await wait_until_complete(source)
        bare = host.folder / "repositories" / "harbour.git"
        history.git("symbolic-ref", "HEAD", "refs/heads/feature/lights", cwd=bare)
        history.git("update-ref", "-d", "refs/heads/main", cwd=bare)
        await wait_until_async(lambda: "main was deleted" in source.mirror.replaced, "the deletion is found")
        assert await read_text(client, HULL) == "four\nfathoms\n"
        assert "feature/lights at" in await read_text(client, "git://harbour")


async def test_the_first_commit_of_an_empty_repository_is_served(host: GitHost, work: GitRepository) -> None:
    source = clone(host.add(work))
    async with serving(source) as client:
        assert "without commits yet" in await read_text(client, "git://harbour")
        async with client.watch("git://harbour") as changes:
            work.commit("Begin", hull__txt="four\n")
            work.git("push", "-q", "origin", "main")
            await asyncio.wait_for(anext(changes), 50)
        assert await read_text(client, HULL) == "four\n"
        bare = host.folder / "repositories" / "harbour.git"
        work.git("update-ref", "-d", "refs/heads/main", cwd=bare)
        await wait_until_async(lambda: "main was deleted" in source.mirror.replaced, "the deletion is found")
        assert "without commits yet" in await read_text(client, "git://harbour")


async def test_an_outage_lasts_while_another_server_tries_to_fetch(
    host: GitHost, history: GitRepository, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug: a server that found the clone locked logged that it can be fetched again."""
    source = clone(host.add(history))
    async with serving(source):
        await wait_until_complete(source)
        host.stop()
        await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
        with contextlib.ExitStack() as other_server:

            async def locks() -> bool:
                return other_server.enter_context(source.mirror.folder.lock()) is not None

            await wait_until_async(locks, "the clone is locked")
            source.mirror._progress = ""
            await wait_until_async(lambda: source.mirror._progress == "by another server", "a round finds it locked")
            assert source.mirror.problem
    assert "can be fetched again" not in caplog.text


async def test_an_outage_is_reported_and_the_last_state_is_served(
    host: GitHost, history: GitRepository, caplog: pytest.LogCaptureFixture
) -> None:
    url = host.add(history)
    source = clone(url)
    async with serving(source) as client:
        await wait_until_complete(source)
        host.stop()
        await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
        assert await read_text(client, HULL) == "five\nfathoms\n"
        assert "high at six" in (await read_text(client, "git://harbour/grep/HEAD?text=high")).lower()
        assert "has not been fetched since then (127.0.0.1 does not answer)" in await read_text(client, "git://harbour")
        (top,) = [each async for each in client.list_resources() if each.uri == "git://harbour"]
        assert "does not answer" in str((top.meta or {})["wharfinger/problem"])
        assert "127.0.0.1 does not answer" in source.describe() and "is served" in source.describe()
        assert f"{url} could not be fetched: 127.0.0.1 does not answer" in caplog.text
        history.commit("Dredge", hull__txt="six\nfathoms\n")
        history.git("push", "-q", "origin", "main")
        host.start()
        async with client.watch(HULL) as changes, client.watch("git://harbour") as top_changes:
            await asyncio.wait_for(anext(changes), 50)
            await asyncio.wait_for(anext(top_changes), 50)
        assert await read_text(client, HULL) == "six\nfathoms\n"
        await wait_until_async(lambda: not source.mirror.problem, "a fetch succeeds")
        assert "does not answer" not in await read_text(client, "git://harbour")
        assert "does not answer" not in source.describe()
        assert f"{url} can be fetched again" in caplog.text


async def test_a_clone_is_served_after_a_restart_even_if_the_host_is_down(
    host: GitHost, history: GitRepository
) -> None:
    url = host.add(history)
    first = clone(url)
    async with serving(first):
        await wait_until_complete(first)
    host.stop()
    source = clone(url)
    async with serving(source) as client:
        assert await read_text(client, HULL) == "five\nfathoms\n"
        await wait_until_async(lambda: source.mirror.problem, "a fetch fails")
        assert await read_text(client, HULL) == "five\nfathoms\n"


async def test_a_repository_is_unavailable_until_it_can_be_cloned(host: GitHost, history: GitRepository) -> None:
    url = host.add(history)
    host.stop()
    source = clone(url)
    async with serving(source) as client:
        with pytest.raises(RemoteError, match=r"could not be cloned: 127\.0\.0\.1 does not answer"):
            await read_text(client, HULL)
        host.start()
        async with client.watch_lists() as lists:
            while "git://harbour/tree/HEAD/hull.txt" not in [each.uri async for each in client.list_resources()]:
                await asyncio.wait_for(anext(lists), 50)
        assert await read_text(client, HULL) == "five\nfathoms\n"


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
async def test_each_failure_to_clone_is_explained(
    host: GitHost, history: GitRepository, path: str, reason: str
) -> None:
    host.add(history)
    source = clone(f"{host.origin}/{path}", label="harbour")
    async with serving(source) as client:
        with pytest.raises(RemoteError, match=reason):
            await read_text(client, "git://harbour")


async def test_the_last_state_is_served_if_a_fetch_exceeds_the_size_limit(
    host: GitHost, history: GitRepository
) -> None:
    source = clone(host.add(history))
    mirror = source.mirror
    async with serving(source) as client:
        await wait_until_complete(source)
        mirror._git.max_bytes = mirror.folder.size() + 100_000
        history.commit("Dredge", hull__txt=os.urandom(300_000))
        history.git("push", "-q", "origin", "main")
        await wait_until_async(lambda: "the bound of the clone" in mirror.problem, "a fetch exceeds the bound")
        assert await read_text(client, HULL) == "five\nfathoms\n"
        mirror._git.max_bytes = 1 << 30
        await wait_until_async(lambda: not mirror.problem, "a fetch succeeds")
        assert mirror.folder.size() > 300_000


async def test_the_last_state_is_served_if_the_disk_is_full(host: GitHost, history: GitRepository, cache: Path) -> None:
    disk = cache / "wharfinger" / "git"
    disk.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        source = clone(host.add(history))
        async with serving(source) as client:
            await wait_until_complete(source)
            history.commit("Dredge", hull__txt=os.urandom(2_000_000))
            history.git("push", "-q", "origin", "main")
            await wait_until_async(lambda: "no space is left" in source.mirror.problem, "the disk is full")
            assert await read_text(client, HULL) == "five\nfathoms\n"
            subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
            await wait_until_async(lambda: not source.mirror.problem, "a fetch succeeds")
            assert history.head[:7] in source.describe()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_two_servers_share_a_clone(
    host: GitHost, history: GitRepository, caplog: pytest.LogCaptureFixture
) -> None:
    url = host.add(history)
    caplog.set_level(logging.WARNING)
    first, second = clone(url), clone(url)
    async with serving(first) as first_client, serving(second) as second_client:
        await asyncio.gather(wait_until_complete(first), wait_until_complete(second))
        assert first.mirror.folder.path == second.mirror.folder.path
        for number in range(3):
            history.commit(f"Dredge {number}", hull__txt=f"{number}\n")
            history.git("push", "-q", "origin", "main")
            for source, client in ((first, first_client), (second, second_client)):
                await wait_for_text(client, HULL, f"{number}\n")
                assert not source.mirror.problem
    assert "could not be fetched" not in caplog.text


async def test_packs_of_many_pushes_are_merged(host: GitHost, history: GitRepository) -> None:
    from wharfinger.sources.git_remote import mirror

    source = clone(host.add(history))
    async with serving(source) as client:
        await wait_until_complete(source)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mirror, "MAX_PACKS", 3)
            for number in range(6):
                history.commit(f"Dredge {number}", hull__txt=f"{number}\n")
                history.git("push", "-q", "origin", "main")
                await wait_for_text(client, HULL, f"{number}\n")
            await wait_until_async(lambda: len(source.mirror.folder.pack_names()) <= 4, "packs are merged")
        assert await read_text(client, "git://harbour/tree/v1/old.txt") == "old contents\n"
