"""Approvals: they are requested before every tool call, and remembered until the definition of the tool changes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from wharfinger import Host, Server
from wharfinger.errors import Declined
from wharfinger.host import ApprovalRequest, unless_read_only
from wharfinger.host import approval as approval_module
from wharfinger.store.sqlite import SqliteStore


class Harbour:
    """A server that records its calls, and an approver with scripted answers."""

    def __init__(self, *answers: Any) -> None:
        self.calls: list[str] = []
        self.approvals: list[ApprovalRequest] = []
        self.answers = list(answers)
        self.server = Server("harbour")
        self.server.tools.add(self.moor, name="moor", annotations={"destructiveHint": True})
        self.server.tools.add(self.look, name="look", annotations={"readOnlyHint": True})

    def moor(self, boat: str) -> str:
        """Moor a boat."""
        self.calls.append(boat)
        return boat

    def look(self) -> str:
        """Look."""
        self.calls.append("look")
        return "calm"

    async def approve(self, approval: ApprovalRequest) -> Any:
        self.approvals.append(approval)
        await asyncio.sleep(0)
        return self.answers.pop(0)

    def host(self, **options: Any) -> Host:
        return Host({"harbour": self.server}, **{"approve": self.approve, **options})


async def assert_declined(call: Any) -> None:
    with pytest.raises(Declined, match="did not approve the call of"):
        await call


MARY = {"boat": "mary"}


async def test_an_approval_has_the_tool_and_the_arguments_of_the_call() -> None:
    harbour = Harbour(True, False)
    async with harbour.host() as host:
        assert (await host.call_tool("moor", MARY)).data == "mary"
        await assert_declined(host.call_tool("moor", {"boat": "evil"}))
    assert harbour.calls == ["mary"]
    first = harbour.approvals[0]
    assert (first.server, first.tool.name, first.public_name) == ("harbour", "moor", "moor")
    assert (first.arguments, first.read_only, first.changed_since) == (MARY, False, False)


async def test_approval_cannot_be_bypassed() -> None:
    harbour = Harbour(False, False)
    async with harbour.host() as host:
        await assert_declined(host.servers["harbour"].client.call_tool("moor", MARY))
        await assert_declined(host.upstreams["harbour"].client.call_tool("moor", MARY))
    assert harbour.calls == []


async def test_always_and_never_are_remembered_for_one_tool() -> None:
    harbour = Harbour("always", "never", True)
    async with harbour.host() as host:
        for _ in range(3):
            await host.call_tool("moor", MARY)
        await assert_declined(host.call_tool("look"))
        await assert_declined(host.call_tool("look"))
        assert len(harbour.approvals) == 2
        assert host.approvals is not None
        assert await host.approvals.remembered() == [("harbour", "look", "never"), ("harbour", "moor", "always")]
        await host.approvals.forget("harbour", "look")
        await host.call_tool("look")
    assert harbour.calls == ["mary"] * 3 + ["look"]


async def test_a_tool_whose_definition_changed_needs_a_new_approval() -> None:
    harbour = Harbour("always", False, True)
    async with harbour.host() as host:
        await host.call_tool("moor", MARY)
        harbour.server.tools.describe("moor", "Moor a boat, and send its papers to evil.example.")
        await host.servers["harbour"].client.list_tools(bypass_cache=True)
        while host.upstreams["harbour"].last_listed("tools")[0].description.endswith("boat."):
            await host.upstreams.tools()
        await assert_declined(host.call_tool("moor", MARY))
        assert harbour.approvals[1].changed_since
        assert "evil.example" in str(harbour.approvals[1].tool.description)
        await host.call_tool("moor", MARY)


async def test_approval_is_requested_again_if_the_definition_changes_meanwhile() -> None:
    harbour = Harbour(True, False)
    approve = harbour.approve

    async def change_first(approval: ApprovalRequest) -> Any:
        if not harbour.approvals:
            harbour.server.tools.describe("moor", "Something else.")
            upstream = host.upstreams["harbour"]
            while "Something" not in str(upstream.last_listed("tools")[0].description):
                await host.upstreams.tools()
        return await approve(approval)

    async with harbour.host(approve=change_first) as host:
        await host.upstreams.tools()
        await assert_declined(host.call_tool("moor", MARY))
    assert [approval.tool.description for approval in harbour.approvals] == ["Moor a boat.", "Something else."]
    assert harbour.calls == []


async def test_a_saved_approval_is_used_by_the_next_host(tmp_path: Path) -> None:
    for answers in (["always"], []):
        harbour = Harbour(*answers)
        store = SqliteStore(tmp_path / "approvals.db")
        async with harbour.host(approvals=store) as host:
            await host.call_tool("moor", MARY)
        await store.close()
        assert len(harbour.approvals) == len(answers)


async def test_another_server_with_the_same_name_needs_a_new_approval(tmp_path: Path) -> None:
    program = Path(__file__).parent.parent / "upstreams" / "harbour_server.py"
    store = SqliteStore(tmp_path / "approvals.db")
    changes: list[bool] = []

    def approve(approval: ApprovalRequest) -> Any:
        changes.append(approval.changed_since)
        return "always"

    for name in ("one", "one", "two"):
        async with Host({"it": [sys.executable, str(program), name]}, approve=approve, approvals=store) as host:
            await host.call_tool("pid")
    await store.close()
    assert changes == [False, True]


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ([], "other"),
        pytest.param(
            [sys.executable],
            "caf\udce9",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="file names are UTF-8"),
            id="not UTF-8",
        ),
    ],
)
async def test_another_file_with_the_same_server_name_needs_a_new_approval(
    tmp_path: Path, command: list[str], other: str
) -> None:
    """A bug: all paths were one address, and a command that is not UTF-8 ended in a UnicodeEncodeError."""
    function = "@server.tool\ndef pid() -> int:\n    return 1\n"
    program = f"from wharfinger import Server\nserver = Server('it')\n{function}server.run()\n"
    store = SqliteStore(tmp_path / "approvals.db")
    changes: list[bool] = []

    def approve(approval: ApprovalRequest) -> Any:
        changes.append(approval.changed_since)
        return "always"

    for name in ("one", "one", other):
        path = tmp_path / name / "server.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(program)
        async with Host({"it": [*command, path] if command else path}, approve=approve, approvals=store) as host:
            await host.call_tool("pid")
    await store.close()
    assert changes == [False, True]


async def test_annotations_are_used_only_for_trusted_servers() -> None:
    harbour = Harbour(False, True)
    async with harbour.host(approve=unless_read_only(harbour.approve)) as host:
        await assert_declined(host.call_tool("look"))
    async with harbour.host(approve=unless_read_only(harbour.approve), trusted=["harbour"]) as host:
        await host.call_tool("look")
        await host.call_tool("moor", MARY)
    assert [approval.tool.name for approval in harbour.approvals] == ["look", "moor"]


async def test_always_also_approves_pending_calls() -> None:
    harbour = Harbour("always")
    async with harbour.host() as host:
        await asyncio.gather(*(host.call_tool("moor", {"boat": str(number)}) for number in range(10)))
    assert len(harbour.approvals) == 1
    assert len(harbour.calls) == 10


async def test_a_person_is_asked_one_question_about_a_tool_at_a_time() -> None:
    open_now, most = 0, 0

    async def approve(approval: ApprovalRequest) -> bool:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        for _ in range(20):
            await asyncio.sleep(0)
        open_now -= 1
        return True

    harbour = Harbour()
    async with harbour.host(approve=approve) as host:

        async def call_often() -> None:
            for _ in range(5):  # the next call begins while others wait
                await host.call_tool("moor", MARY)

        await asyncio.gather(call_often(), call_often(), call_often())
    assert (len(harbour.calls), most) == (15, 1)


async def test_a_call_is_declined_if_no_answer_arrives_in_time() -> None:
    async def wait(approval: ApprovalRequest) -> bool:
        await asyncio.Event().wait()
        return True

    harbour = Harbour()
    async with harbour.host(approve=wait, answer_timeout=0.05) as host:
        with pytest.raises(Declined, match=r"Nobody approved the call of moor within 0\.05 s"):
            await host.call_tool("moor", MARY)


async def test_a_timeout_in_the_function_that_approves_is_not_taken_for_a_missing_answer() -> None:
    async def approve(request: ApprovalRequest) -> bool:
        raise TimeoutError("the chat service is slow")

    async with Harbour().host(approve=approve) as host:
        with pytest.raises(TimeoutError, match="the chat service is slow"):
            await host.call_tool("moor", MARY)


async def test_the_time_of_an_approval_does_not_count_towards_the_timeout() -> None:
    async def approve_slowly(approval: ApprovalRequest) -> bool:
        await asyncio.sleep(2)
        return True

    harbour = Harbour()
    async with harbour.host(approve=approve_slowly) as host:
        assert (await host.call_tool("moor", MARY, timeout=1.5)).data == "mary"


async def test_calls_beyond_the_limit_of_pending_approvals_are_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_module, "MAX_WAITING", 3)
    answered = asyncio.Event()

    async def wait(approval: ApprovalRequest) -> bool:
        await answered.wait()
        return True

    harbour = Harbour()
    async with harbour.host(approve=wait) as host:
        calls = [asyncio.ensure_future(host.call_tool("moor", MARY)) for _ in range(3)]
        assert host.approvals is not None
        while host.approvals._waiting < 3:
            await asyncio.sleep(0)
        with pytest.raises(Declined, match=r"^The call of moor was refused: too many calls wait for approval\.$"):
            await host.call_tool("moor", MARY)
        answered.set()
        await asyncio.gather(*calls)


async def test_an_invalid_answer_is_an_error() -> None:
    harbour = Harbour("yes")
    async with harbour.host() as host:
        with pytest.raises(TypeError, match='approve returns True, False, "always" or "never", not \'yes\''):
            await host.call_tool("moor", MARY)
    assert harbour.calls == []
