"""Under a policy a watcher receives a notice only if what it sees has changed, decided when the notice is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.driving import ERAS, STATELESS, Wire, looped
from wharfinger import Server
from wharfinger import types as t
from wharfinger.policy import Policy, Rule
from wharfinger.source import Changed, ResourcePage, Source
from wharfinger.sources import files

UPDATED = "notifications/resources/updated"
LIST_CHANGED = "notifications/resources/list_changed"

POLICY = Policy(allow=[Rule(who="sub:ann"), Rule(who="sub:bob", what="box://open/**")])


class Box(Source):
    """Entries that a test adds and removes; its directory `box://` lists those that the caller may read."""

    name = "box"
    uri = "box://"

    def __init__(self) -> None:
        self.entries = {"open/a": "1", "closed/a": "1"}
        self.changed: Changed = lambda uri: None

    def matches(self, uri: str) -> bool:
        return uri.startswith("box://")

    def page(self, after: str | None, limit: int) -> ResourcePage:
        return [t.Resource(uri=f"box://{name}", name=name) for name in sorted(self.entries)], None

    def stat(self, uri: str) -> t.Resource:
        return t.Resource(uri=uri, name=uri, meta={"wharfinger/version": self.entries[uri.removeprefix("box://")]})

    def watch(self, uri: str | None, changed: Changed) -> None:
        self.changed = changed


def boxed(policy: Policy | None = POLICY) -> tuple[Server, Box]:
    server, box = Server("s", policy=policy), Box()
    server.include(box)
    server.tools.add(lambda: "x", name="hidden_tool")
    return server, box


async def settled(wire: Wire) -> None:
    """Wait until earlier work of the server is done: all comparisons, and a request after them."""
    await wire.ask("ping") if wire.revision != STATELESS else await wire.ask("server/discover")


async def finished(server: Server) -> None:
    """Wait until every change has been compared and sent."""

    while server.watching._work is not None or server.watching._waiting or server.watching._phases:
        await asyncio.sleep(0.01)
    await server.visible_changes._jobs.finished()


@pytest.mark.parametrize("revision", ERAS)
@looped
async def test_a_list_change_reaches_only_callers_who_see_it(revision: str) -> None:
    server, box = boxed()
    async with Wire(server, revision, "ann") as ann, Wire(server, revision, "bob") as bob:
        await server.start()
        for wire in (ann, bob):
            if revision == STATELESS:
                await wire.watch(lists=("resources", "tools"))
        await finished(server)
        await server.listening._remembering.finished()

        async def notices(change: Callable[[], object]) -> tuple[int, int]:
            for wire in (ann, bob):
                wire.notices.clear()
            change()
            server.list_changed("resources")
            server.list_changed("tools")
            await finished(server)
            return len(ann.notices), len(bob.notices)

        assert await notices(lambda: box.entries.update({"closed/b": "1"})) == (1, 0)
        assert await notices(lambda: box.entries.update({"open/b": "1"})) == (1, 1)
        assert await notices(lambda: box.entries.pop("open/b")) == (1, 1)
        assert await notices(lambda: server.tools.remove("hidden_tool")) == (1, 0)
        assert await notices(lambda: None) == (0, 0)
        await server.close()


@pytest.mark.parametrize("revision", ERAS)
@looped
async def test_access_is_checked_when_a_notification_is_sent(revision: str) -> None:
    server, box = boxed()
    async with Wire(server, revision, "bob") as bob:
        await server.start()
        await bob.watch("box://open/a")
        bob.notices.clear()
        box.entries["open/a"] = "2"
        server.resource_updated("box://open/a")
        assert (await bob.notice())[0]["params"]["uri"] == "box://open/a"
        await finished(server)
        bob.notices.clear()
        server.policy = Policy(allow=[Rule(who="sub:bob", what="box://other/**")])
        box.entries["open/a"] = "3"
        server.resource_updated("box://open/a")
        await finished(server)
        assert [notice["method"] for notice in bob.notices if notice["method"] == UPDATED] == []
        await server.close()


@looped
async def test_watching_a_forbidden_resource_is_refused_like_a_missing_one() -> None:
    server, _ = boxed()
    async with Wire(server, "2025-11-25", "bob") as bob:
        hidden = await bob.ask("resources/subscribe", {"uri": "box://closed/a"})
        missing = await bob.ask("resources/subscribe", {"uri": "none://closed/a"})
        assert str(hidden["error"]).replace("box:", "none:") == str(missing["error"])
    async with Wire(server, STATELESS, "bob") as bob:
        await bob.watch("box://closed/a", "box://open/a")
        granted = bob.notices[0]["params"]["notifications"]
        assert granted == {"resourceSubscriptions": ["box://open/a"]}


@looped
async def test_a_new_policy_notifies_callers_who_see_another_part() -> None:
    server, _ = boxed()
    async with Wire(server, STATELESS, "ann") as ann, Wire(server, STATELESS, "bob") as bob:
        await server.start()
        for wire in (ann, bob):
            await wire.watch(lists=("resources",))
            wire.notices.clear()
        server.policy = Policy(allow=[Rule(who="sub:ann"), Rule(who="sub:bob", what="box://closed/**")])
        await finished(server)
        assert [notice["method"] for notice in bob.notices] == [LIST_CHANGED]
        assert ann.notices == []
        await server.close()


@looped
async def test_a_directory_of_which_a_part_is_visible_reports_only_visible_changes(tmp_path: Path) -> None:
    (tmp_path / "docs" / "private").mkdir(parents=True)
    (tmp_path / "docs" / "a.md").write_text("a")
    rules = Policy(
        allow=[Rule(who="anyone", what="file:///docs/**")], deny=[Rule(who="anyone", what="file:///docs/*private*/**")]
    )
    server = Server("s", policy=rules)
    source = files(tmp_path / "docs")
    server.include(source)
    async with Wire(server) as wire:
        await server.start()
        await wire.watch("file:///docs")
        wire.notices.clear()
        (tmp_path / "docs" / "private.txt").write_text("x")
        server.resource_updated("file:///docs")
        await finished(server)
        assert wire.notices == []
        (tmp_path / "docs" / "b.md").write_text("x")
        server.resource_updated("file:///docs")
        await wire.notice()
        await server.close()


@looped
async def test_nothing_is_compared_without_a_policy() -> None:
    server, _ = boxed(None)
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch("box://closed/a", lists=("resources",))
        server.list_changed("resources")
        server.resource_updated("box://closed/a")
        await bob.notice(3)
        assert server.visible_changes._known == {}
        await server.close()


@looped
async def test_the_state_of_a_watcher_is_dropped_when_it_leaves() -> None:
    server, _ = boxed()
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        id = await bob.watch("box://open/a", lists=("resources",))
        assert len(next(iter(server.visible_changes._known.values()))) == 2
        bob.notify("notifications/cancelled", {"requestId": id})
        await settled(bob)
        await bob.until(lambda: True)
        assert server.visible_changes._known == {}
        await server.close()


@looped
async def test_no_state_is_kept_of_a_watcher_that_leaves_while_its_list_is_read() -> None:
    server, box = boxed()
    asked, go_on = asyncio.Event(), asyncio.Event()
    page = box.page

    async def slow(after: str | None, limit: int) -> ResourcePage:
        asked.set()
        await go_on.wait()
        return page(after, limit)

    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        id = await bob.watch(lists=("resources",))
        box.page = slow  # type: ignore[method-assign, assignment]
        server.list_changed("resources")
        await asked.wait()
        bob.notify("notifications/cancelled", {"requestId": id})
        await settled(bob)
        go_on.set()
        await finished(server)
        assert server.visible_changes._known == {}
        await server.close()
