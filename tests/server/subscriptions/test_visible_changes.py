"""Under a policy, a client receives a notification only if a change affects what it may read at that time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.driving import ERAS, STATELESS, Wire
from tests.waiting import wait_until_async
from wharfinger import Server
from wharfinger import types as t
from wharfinger.policy import Policy, Rule
from wharfinger.protocol.limits import Limits
from wharfinger.protocol.principal import LOCAL
from wharfinger.source import Changed, ResourcePage, Source
from wharfinger.sources import files

UPDATED = "notifications/resources/updated"
LIST_CHANGED = "notifications/resources/list_changed"
TOOLS_CHANGED = "notifications/tools/list_changed"

POLICY = Policy(allow=[Rule(who="sub:ann"), Rule(who="sub:bob", what="box://open/**")])


class Box(Source):
    """A source whose entries a test adds and removes. Its directory `box://` lists those that the caller may read."""

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


def box_server(policy: Policy | None = POLICY, **options: Any) -> tuple[Server, Box]:
    server, box = Server("s", policy=policy, **options), Box()
    server.include(box)
    server.tools.add(lambda: "x", name="hidden_tool")
    return server, box


def block_version(box: Box, version: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Make the versions of the box wait. Returns the event that lets them continue, and the one set while one waits."""
    gate, blocked = asyncio.Event(), asyncio.Event()

    async def wait_for_gate(uri: str) -> str:
        blocked.set()
        await gate.wait()
        return version

    box.version = wait_for_gate  # type: ignore[method-assign]
    return gate, blocked


async def finish_requests(wire: Wire) -> None:
    """Wait until the server has handled the messages that this client sent before."""
    await wire.ask("ping") if wire.revision != STATELESS else await wire.ask("server/discover")


async def finish_changes(server: Server) -> None:
    """Wait until every change has been compared and sent."""
    watching = server.watching
    await wait_until_async(
        lambda: watching._work is None and not watching._waiting and not watching._phases, "all changes are sent"
    )
    while server.visible_changes._jobs:
        await server.visible_changes._jobs.finished()


@pytest.mark.parametrize("revision", ERAS)
async def test_a_list_change_reaches_only_callers_who_see_it(revision: str) -> None:
    server, box = box_server()
    async with Wire(server, revision, "ann") as ann, Wire(server, revision, "bob") as bob:
        await server.start()
        for wire in (ann, bob):
            if revision == STATELESS:
                await wire.watch(lists=("resources", "tools"))
        await finish_changes(server)
        await server.listening._remembering.finished()

        async def count_notifications(change: Callable[[], object]) -> tuple[int, int]:
            """Return how many notifications ann and bob receive of this change."""
            for wire in (ann, bob):
                wire.notifications.clear()
            change()
            server.list_changed("resources")
            server.list_changed("tools")
            await finish_changes(server)
            return len(ann.notifications), len(bob.notifications)

        assert await count_notifications(lambda: box.entries.update({"closed/b": "1"})) == (1, 0)
        assert await count_notifications(lambda: box.entries.update({"open/b": "1"})) == (1, 1)
        assert await count_notifications(lambda: box.entries.pop("open/b")) == (1, 1)
        assert await count_notifications(lambda: server.tools.remove("hidden_tool")) == (1, 0)
        assert await count_notifications(lambda: None) == (0, 0)
        await server.close()


async def test_a_change_before_the_acknowledgement_is_reported_after_it() -> None:
    """Bug: the first message of a subscription was a notice if another resource still had to be compared."""
    server, box = box_server(Policy(allow=[Rule(who="sub:bob", what=["box://open/**", "note://a"])]))

    @server.resource("note://a")
    async def note() -> str:
        return "text"

    async def change_note(uri: str) -> str:
        server.resource_updated("note://a")
        await wait_until_async(lambda: server.watching.sent_count == 1, "the change has been sent to the watcher")
        return "1"

    box.version = change_note  # type: ignore[method-assign]
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch("note://a", "box://open/a")
        methods = [notice["method"] for notice in await bob.wait_for_notifications(2)]
        assert methods == ["notifications/subscriptions/acknowledged", UPDATED]
        await server.close()


async def test_listens_that_begin_at_the_same_time_do_not_exceed_the_total() -> None:
    """Bug: each was counted before any of them watched its resources."""
    server, box = box_server(limits=Limits(watched_total=3))
    box.entries["open/b"] = "1"
    gate = asyncio.Event()

    async def wait_for_gate(uri: str) -> str:
        await gate.wait()
        return "1"

    box.version = wait_for_gate  # type: ignore[method-assign]
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        both = {"notifications": {"resourceSubscriptions": ["box://open/a", "box://open/b"]}}
        for id in (1, 2):
            bob.send_request("subscriptions/listen", both, id)
        await wait_until_async(lambda: server.watching.shares.total >= 2, "both listens have begun to watch")
        gate.set()
        await bob.wait_until(lambda: len(bob.answers) + len(bob.notifications) == 2)
        (answer,) = bob.answers.values()
        assert answer["error"]["message"].startswith("Too many resources are watched")
        assert server.watching.shares.total == 2
        await server.close()


@pytest.mark.parametrize("revision", ERAS)
async def test_access_is_checked_when_a_notification_is_sent(revision: str) -> None:
    server, box = box_server()
    async with Wire(server, revision, "bob") as bob:
        await server.start()
        await bob.watch("box://open/a")
        bob.notifications.clear()
        box.entries["open/a"] = "2"
        server.resource_updated("box://open/a")
        assert (await bob.wait_for_notifications())[0]["params"]["uri"] == "box://open/a"
        await finish_changes(server)
        bob.notifications.clear()
        server.policy = Policy(allow=[Rule(who="sub:bob", what="box://other/**")])
        box.entries["open/a"] = "3"
        server.resource_updated("box://open/a")
        await finish_changes(server)
        assert [notice["method"] for notice in bob.notifications if notice["method"] == UPDATED] == []
        await server.close()


async def test_a_server_ends_without_waiting_for_the_version_of_a_watched_resource() -> None:
    """A bug: the version was computed after the server and its sources had ended."""
    blocked = asyncio.Event()

    class SlowBox(Box):
        slow = False

        async def version(self, uri: str) -> str:  # type: ignore[override]
            if self.slow:
                blocked.set()
                await asyncio.Event().wait()
            return "1"

    server, box = Server("s", policy=POLICY), SlowBox()
    server.include(box)
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch("box://open/a")
        box.slow = True
        server.resource_updated("box://open/a")
        await blocked.wait()
        await server.close()
        assert not server.visible_changes._computing


async def test_watching_a_forbidden_resource_fails_like_watching_a_missing_one() -> None:
    server, _ = box_server()
    async with Wire(server, "2025-11-25", "bob") as bob:
        forbidden = await bob.ask("resources/subscribe", {"uri": "box://closed/a"})
        missing = await bob.ask("resources/subscribe", {"uri": "none://closed/a"})
        assert str(forbidden["error"]).replace("box:", "none:") == str(missing["error"])
    async with Wire(server, STATELESS, "bob") as bob:
        await bob.watch("box://closed/a", "box://open/a")
        granted = bob.notifications[0]["params"]["notifications"]
        assert granted == {"resourceSubscriptions": ["box://open/a"]}


async def test_a_new_policy_notifies_callers_whose_visible_resources_change() -> None:
    server, _ = box_server()
    async with Wire(server, STATELESS, "ann") as ann, Wire(server, STATELESS, "bob") as bob:
        await server.start()
        for wire in (ann, bob):
            await wire.watch(lists=("resources",))
            wire.notifications.clear()
        server.policy = Policy(allow=[Rule(who="sub:ann"), Rule(who="sub:bob", what="box://closed/**")])
        await finish_changes(server)
        assert [notice["method"] for notice in bob.notifications] == [LIST_CHANGED]
        assert ann.notifications == []
        await server.close()


FIRST_POLICIES = [None, Policy(allow=[Rule(who="anyone")])]


@pytest.mark.parametrize("first", FIRST_POLICIES, ids=["no policy", "a wider policy"])
@pytest.mark.parametrize("revision", ERAS)
async def test_the_first_change_after_a_narrower_policy_is_reported(revision: str, first: Policy | None) -> None:
    """A bug: it was only remembered, if the watcher saw everything until then."""
    server, box = box_server(first)
    async with Wire(server, revision, "bob") as bob:
        await server.start()
        await bob.watch("box://open/a", lists=("resources",))
        server.policy = POLICY
        await finish_changes(server)
        bob.notifications.clear()
        box.entries["open/a"] = "2"
        server.resource_updated("box://open/a")
        await finish_changes(server)
        assert [notice["method"] for notice in bob.notifications] == [UPDATED]
        box.entries["open/b"] = "1"
        server.list_changed("resources")
        await finish_changes(server)
        assert [notice["method"] for notice in bob.notifications] == [UPDATED, LIST_CHANGED]
        await server.close()


@pytest.mark.parametrize("first", FIRST_POLICIES, ids=["no policy", "a wider policy"])
async def test_after_a_narrower_policy_no_hidden_change_is_reported(first: Policy | None) -> None:
    """Watchers are notified of the new policy instead, because it may change what they see."""
    server, box = box_server(first)
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch("box://open/a", "box://closed/a", lists=("resources",))
        bob.notifications.clear()
        server.policy = POLICY
        await finish_changes(server)
        assert sorted(notice["method"] for notice in bob.notifications) == [LIST_CHANGED, UPDATED]
        bob.notifications.clear()
        box.entries |= {"closed/a": "2", "closed/b": "1"}
        for uri in ("box://closed/a", "box://open/a"):
            server.resource_updated(uri)
        server.list_changed("resources")
        await finish_changes(server)
        assert bob.notifications == []
        await server.close()


async def test_after_the_first_feature_with_scopes_no_hidden_change_is_reported() -> None:
    """Bug: the first change of each resource and list was. As after a new policy, watchers are notified at once."""
    server, _ = box_server(None)
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch("box://open/a", lists=("resources", "tools"))
        bob.notifications.clear()
        # In a thread, as by the function of a tool.
        await asyncio.to_thread(server.resources.add, "box://closed/b", lambda: "x", scopes=["box.read"])
        await finish_requests(bob)
        await finish_changes(server)
        assert {notice["method"] for notice in bob.notifications} == {LIST_CHANGED, UPDATED, TOOLS_CHANGED}
        bob.notifications.clear()
        server.resource_updated("box://open/a")
        server.tools.add(lambda: "x", name="another_tool", scopes=["box.read"])
        await finish_changes(server)
        assert bob.notifications == []
        await server.close()


async def test_the_first_feature_with_scopes_changes_nothing_for_a_local_caller() -> None:
    """Scopes do not apply to it: only the list with the new tool has changed."""
    server, _ = box_server(None)
    async with Wire(server, STATELESS, LOCAL) as local:
        await server.start()
        await local.watch("box://open/a", lists=("resources", "tools"))
        local.notifications.clear()
        server.tools.add(lambda: "x", name="new_tool", scopes=["box.read"])
        await finish_requests(local)
        await finish_changes(server)
        assert [notice["method"] for notice in local.notifications] == [TOOLS_CHANGED]
        await server.close()


async def test_watchers_of_lists_are_notified_when_the_policy_is_removed() -> None:
    server, _ = box_server()
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch(lists=("resources",))
        bob.notifications.clear()
        server.policy = None
        await finish_changes(server)
        server.policy = POLICY
        await finish_changes(server)
        assert [notice["method"] for notice in bob.notifications] == [LIST_CHANGED] * 2
        await server.close()


async def test_a_partly_visible_directory_reports_only_visible_changes(tmp_path: Path) -> None:
    (tmp_path / "docs" / "private").mkdir(parents=True)
    (tmp_path / "docs" / "a.md").write_text("a")
    policy = Policy(
        allow=[Rule(who="anyone", what="file:///docs/**")], deny=[Rule(who="anyone", what="file:///docs/*private*/**")]
    )
    server = Server("s", policy=policy)
    source = files(tmp_path / "docs")
    server.include(source)
    async with Wire(server) as wire:
        await server.start()
        await wire.watch("file:///docs")
        wire.notifications.clear()
        (tmp_path / "docs" / "private.txt").write_text("x")
        server.resource_updated("file:///docs")
        await finish_changes(server)
        assert wire.notifications == []
        (tmp_path / "docs" / "b.md").write_text("x")
        server.resource_updated("file:///docs")
        await wire.wait_for_notifications()
        await server.close()


async def test_without_a_policy_every_change_is_sent_without_comparison() -> None:
    server, _ = box_server(None)
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch("box://closed/a", lists=("resources",))
        server.list_changed("resources")
        server.resource_updated("box://closed/a")
        await bob.wait_for_notifications(3)
        assert server.visible_changes._known == {}
        await server.close()


async def test_the_states_known_to_a_watcher_are_dropped_when_it_cancels() -> None:
    server, _ = box_server()
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        id = await bob.watch("box://open/a", lists=("resources",))
        assert len(next(iter(server.visible_changes._known.values()))) == 2
        bob.notify("notifications/cancelled", {"requestId": id})
        await finish_requests(bob)
        assert server.visible_changes._known == {}
        await server.close()


async def test_the_known_state_of_a_uri_is_dropped_when_a_session_unsubscribes_from_it() -> None:
    server, _ = box_server()
    async with Wire(server, "2025-11-25", "bob") as bob:
        await server.start()
        await bob.watch("box://open/a")
        known = next(iter(server.visible_changes._known.values()))
        assert ("box://open/a", False) in known
        await bob.ask("resources/unsubscribe", {"uri": "box://open/a"})
        assert ("box://open/a", False) not in known
        await server.close()


async def test_no_state_is_kept_for_a_watcher_that_cancels_while_its_list_is_read() -> None:
    server, box = box_server()
    page_requested, release_page = asyncio.Event(), asyncio.Event()
    page = box.page

    async def slow_page(after: str | None, limit: int) -> ResourcePage:
        page_requested.set()
        await release_page.wait()
        return page(after, limit)

    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        id = await bob.watch(lists=("resources",))
        box.page = slow_page  # type: ignore[method-assign, assignment]
        server.list_changed("resources")
        await page_requested.wait()
        bob.notify("notifications/cancelled", {"requestId": id})
        await finish_requests(bob)
        release_page.set()
        await finish_changes(server)
        assert server.visible_changes._known == {}
        await server.close()


@pytest.mark.parametrize("wider", FIRST_POLICIES, ids=["no policy", "a wider policy"])
async def test_a_watcher_of_a_part_is_notified_when_it_sees_everything_and_when_it_does_not_any_more(
    wider: Policy | None,
) -> None:
    """A bug: neither was reported for resources."""
    server, _ = box_server()
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch("box://open/a")
        for policy in (wider, POLICY):
            bob.notifications.clear()
            server.policy = policy
            await finish_changes(server)
            assert [notice["method"] for notice in bob.notifications] == [UPDATED]
        await server.close()


async def test_no_notice_follows_the_result_of_an_unsubscribe() -> None:
    """A bug: it did if the session watched something else and the version took time, and the state was kept."""
    server, box = box_server()
    box.entries["open/b"] = "1"
    async with Wire(server, "2025-11-25", "bob") as bob:
        await server.start()
        for name in ("a", "b"):
            await bob.ask("resources/subscribe", {"uri": f"box://open/{name}"})
        gate, blocked = block_version(box, "2")
        server.resource_updated("box://open/a")
        await blocked.wait()
        await bob.ask("resources/unsubscribe", {"uri": "box://open/a"})
        gate.set()
        await finish_changes(server)
        assert [notice for notice in bob.notifications if notice["method"] == UPDATED] == []
        (known,) = server.visible_changes._known.values()
        assert ("box://open/a", False) not in known
        await server.close()


async def test_no_state_is_kept_for_a_resource_that_is_unsubscribed_before_the_subscription_is_confirmed() -> None:
    server, box = box_server()
    box.entries["open/b"] = "1"
    async with Wire(server, "2025-11-25", "bob") as bob:
        await server.start()
        await bob.ask("resources/subscribe", {"uri": "box://open/b"})
        gate, blocked = block_version(box, "1")
        id = bob.send_request("resources/subscribe", {"uri": "box://open/a"})
        await blocked.wait()
        await bob.ask("resources/unsubscribe", {"uri": "box://open/a"})
        gate.set()
        await bob.answer(id)
        (known,) = server.visible_changes._known.values()
        assert ("box://open/a", False) not in known
        await server.close()


@pytest.mark.parametrize(
    ("policy", "is_sent"),
    [(Policy(allow=[Rule(who="sub:bob", what="box://other/**")]), False), (Policy(allow=[Rule(who="sub:bob")]), True)],
    ids=["it is hidden now", "everything is visible now"],
)
async def test_a_comparison_that_ends_under_another_policy_obeys_that_policy(policy: Policy, is_sent: bool) -> None:
    """A bug: the notice was sent under the policy with which the comparison began."""
    server, box = box_server()
    async with Wire(server, STATELESS, "bob") as bob:
        await server.start()
        await bob.watch("box://open/a")
        bob.notifications.clear()
        gate, blocked = block_version(box, "2")
        server.resource_updated("box://open/a")
        await blocked.wait()
        server.policy = policy
        gate.set()
        await finish_changes(server)
        assert bool([notice for notice in bob.notifications if notice["method"] == UPDATED]) is is_sent
        await server.close()


async def test_a_subscription_that_ends_with_an_error_watches_nothing() -> None:
    """A bug: the URI was watched, although its client was told otherwise. One that was watched before stays so."""
    server, box = box_server()
    await server.start()

    def fail(uri: str) -> str:
        raise ValueError("broken")

    async with Wire(server, "2025-11-25", principal="bob") as wire:
        assert "result" in await wire.ask("resources/subscribe", {"uri": "box://open/a"})
        box.entries["open/b"] = "1"
        box.version = fail  # type: ignore[method-assign]
        for name in "ab":
            assert "error" in await wire.ask("resources/subscribe", {"uri": f"box://open/{name}"})
        assert server.watching.watched() == ["box://open/a"]
    await server.close()
