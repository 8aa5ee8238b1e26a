"""The requests that a client sends in each era, and how it handles their results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.scripted import (
    HANDSHAKE,
    SILENCE,
    STATELESS,
    TASKS_ERA,
    Refusal,
    Script,
    now,
    run,
    settle,
    text,
)
from wharfinger import types as t
from wharfinger.errors import (
    ConnectionLost,
    InvalidResponse,
    RemoteError,
    RequestTimeout,
    ResourceNotFound,
    ToolError,
)

EACH_ERA = pytest.mark.parametrize("revision", [HANDSHAKE, STATELESS])
OBJECT = {"type": "object"}


# Completion and templates.


@pytest.mark.parametrize(
    ("ref", "sent"),
    [
        ("greet", {"type": "ref/prompt", "name": "greet"}),
        ("log://today", {"type": "ref/resource", "uri": "log://today"}),
        ("log:{day}", {"type": "ref/resource", "uri": "log:{day}"}),
        (t.Prompt(name="greet"), {"type": "ref/prompt", "name": "greet"}),
        (t.PromptReference(name="greet"), {"type": "ref/prompt", "name": "greet"}),
        (t.ResourceTemplate(name="log", uri_template="log:{day}"), {"type": "ref/resource", "uri": "log:{day}"}),
        (t.ResourceTemplateReference(uri="log:{day}"), {"type": "ref/resource", "uri": "log:{day}"}),
    ],
)
def test_complete_accepts_each_form_of_a_reference(ref: Any, sent: Any) -> None:
    async def test() -> None:
        answer = {"completion": {"values": ["monday"]}}
        async with Script(completion__complete=answer) as server, server.client() as client:
            assert (await client.complete(ref, "day", "mo")).values == ["monday"]
            await client.complete(ref, "day", context={"month": "may"})
        argument = {"name": "day", "value": "mo"}
        assert server.params("completion/complete") == [
            {"ref": sent, "argument": argument},
            {"ref": sent, "argument": {"name": "day", "value": ""}, "context": {"arguments": {"month": "may"}}},
        ]

    run(test())


def test_completion_of_a_template_variable_sends_the_other_values_as_context() -> None:
    async def test() -> None:
        answer = {"completion": {"values": []}}
        async with Script(completion__complete=answer) as server, server.client() as client:
            template = client.template("log:{day}/{hour}")
            await template.complete("day", "mo")
            await template.complete("hour", day="monday")
        first, second = server.params("completion/complete")
        assert first["ref"] == {"type": "ref/resource", "uri": "log:{day}/{hour}"}
        assert "context" not in first
        assert second["argument"] == {"name": "hour", "value": ""}
        assert second["context"] == {"arguments": {"day": "monday"}}

    run(test())


def test_a_template_reports_missing_and_unknown_variables() -> None:
    async def test() -> None:
        read = {"contents": [{"uri": "x", "text": "calm"}]}
        async with Script(resources__read=read) as server, server.client() as client:
            template = client.template("log:{day}/{+path}{?page,size}")
            with pytest.raises(TypeError, match="has no variable moon, tide: its variables are day, path, page, size"):
                await template.uri(day="monday", path="a", tide=1, moon=2)
            with pytest.raises(TypeError, match=r"needs a value for day, path \(None to leave it out\)"):
                await template.uri(page=1)
            assert (await template.read(day="monday", path="a/b", page=2)).text == "calm"
            assert await template.uri(day=None, path="a") == "log:/a"
            with pytest.raises(TypeError, match="its variables are none"):
                await client.template(t.ResourceTemplate(name="x", uri_template="log:today")).uri(day=1)
        assert server.params("resources/read") == [{"uri": "log:monday/a/b?page=2"}]

    run(test())


def test_a_template_is_looked_up_once_by_name_over_all_pages() -> None:
    async def test() -> None:
        def page(message: Any) -> Any:
            number = int(message["params"].get("cursor", 0))
            listed = [{"name": f"{'n' * 99}{number}-{'x' * 50}", "uriTemplate": f"a:{number}/{{x}}"}]
            return {"resourceTemplates": listed} | ({"nextCursor": str(number + 1)} if number < 11 else {})

        async with Script(resources__templates__list=page) as server, server.client() as client:
            template = client.template(f"{'n' * 99}3-{'x' * 50}")
            assert await template.uri(x=1) == "a:3/1"
            assert await template.uri(x=2) == "a:3/2"
            assert server.count("resources/templates/list") == 4
            with pytest.raises(ResourceNotFound) as caught:
                await client.template("nowhere").uri()
            shown = str(caught.value).removesuffix(" (error -32602)").partition("it has: ")[2].split(", ")
            assert shown == [f"{'n' * 99}{number}-"[:100] for number in range(10)]

    run(test())


def test_an_unknown_template_is_reported_if_the_server_has_none() -> None:
    async def test() -> None:
        async with (
            Script(resources__templates__list={"resourceTemplates": []}) as server,
            server.client() as client,
        ):
            with pytest.raises(ResourceNotFound, match="no template 'log'; it has: none"):
                await client.template("log").uri()

    run(test())


@pytest.mark.parametrize("over", [0, 1])
def test_a_template_of_a_server_may_have_64_ki_characters(over: int) -> None:
    async def test() -> None:
        listed = {"name": "log", "uriTemplate": "a:" + "x" * (64 * 1024 - 2 + over)}
        async with (
            Script(resources__templates__list={"resourceTemplates": [listed]}) as server,
            server.client() as client,
        ):
            if over:
                with pytest.raises(InvalidResponse, match="'log' has 65537 characters; 65536 are allowed"):
                    await client.template("log").uri()
            else:
                assert await client.template("log").uri() == listed["uriTemplate"]

    run(test())


# Lists.


LISTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "list_resources": ("resources/list", "resources", {"uri": "a:b"}),
    "list_resource_templates": ("resources/templates/list", "resourceTemplates", {"uriTemplate": "a:{b}"}),
    "list_tools": ("tools/list", "tools", {"inputSchema": OBJECT}),
    "list_prompts": ("prompts/list", "prompts", {}),
    "read_directory": ("resources/directory/read", "resources", {"uri": "a:b"}),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_requested_page_by_page_up_to_max_pages(name: str) -> None:
    method, member, rest = LISTS[name]
    given = ["a:"] if name == "read_directory" else []

    def page(message: Any) -> Any:
        number = int(message["params"].get("cursor", 0))
        listed = [{**rest, "name": f"{number}{letter}"} for letter in "ab"]
        return {member: listed} | ({"nextCursor": str(number + 1)} if number < 2 else {})

    async def test() -> None:
        async with Script(**{method.replace("/", "__"): page}) as server:
            async with server.client(max_pages=3) as client:
                listed = await getattr(client, name)(*given)
                assert [each.name for each in listed] == ["0a", "0b", "1a", "1b", "2a", "2b"]
                cursors = [params.get("cursor") for params in server.params(method)]
                assert cursors == [None, "1", "2"]
                if given:
                    assert all(params["uri"] == "a:" for params in server.params(method))
                items, following = await getattr(client, name)(*given).page("1")
                assert ([each.name for each in items], following) == (["1a", "1b"], "2")
                async for each in getattr(client, name)(*given):
                    assert each.name == "0a"
                    break
                assert server.count(method) == 5
            async with server.client(max_pages=2) as client:
                with pytest.raises(InvalidResponse, match="more than 2 pages"):
                    await getattr(client, name)(*given)

    run(test())


def test_a_list_is_not_restarted_if_its_first_page_is_refused() -> None:
    async def test() -> None:
        async with Script(tools__list=Refusal(-32602, "no list")) as server, server.client() as client:
            with pytest.raises(RemoteError, match="no list"):
                await client.list_tools()
            assert server.count("tools/list") == 1

    run(test())


def test_a_list_is_restarted_once_if_a_later_cursor_is_refused() -> None:
    async def test() -> None:
        def page(message: Any) -> Any:
            if "cursor" in message["params"]:
                raise Refusal(-32602, "no such cursor")
            listed = [{"name": "a", "inputSchema": OBJECT}]
            return {"tools": listed} | ({"nextCursor": "1"} if server.count("tools/list") < last else {})

        for last, asked in ((3, 3), (9, 4)):
            async with Script(tools__list=page) as server, server.client() as client:
                if last == 3:
                    assert [tool.name for tool in await client.list_tools()] == ["a"]
                else:
                    with pytest.raises(RemoteError, match="no such cursor"):
                        await client.list_tools()
                assert server.count("tools/list") == asked

    run(test())


# Other requests.


def test_ping_sends_the_method_of_the_era() -> None:
    async def test() -> None:
        for revision, method in ((HANDSHAKE, "ping"), (STATELESS, "server/discover")):
            async with Script(revision) as server, server.client() as client:
                before = server.count(method)
                await client.ping()
                assert server.count(method) == before + 1
                assert server.count("ping") == (method == "ping")
                server.answers[method] = SILENCE
                begun = now()
                with pytest.raises(RequestTimeout):
                    await client.ping(timeout=2)
                assert now() - begun == pytest.approx(2)

    run(test())


def test_roots_changed_notifies_the_server_in_the_handshake_era_only() -> None:
    async def test() -> None:
        for revision, times in ((HANDSHAKE, 1), (STATELESS, 0)):
            async with Script(revision) as server, server.client(roots=[]) as client:
                client.roots_changed()
                await client.ping()
                assert server.count("notifications/roots/list_changed") == times

    run(test())


def test_a_client_sends_its_name_and_version() -> None:
    async def test() -> None:
        from wharfinger import __version__

        own = t.Implementation(name="boat", version="9")
        for info, name, version in ((None, "wharfinger", __version__), (own, "boat", "9")):
            async with Script(HANDSHAKE) as server, server.client(info=info):
                (params,) = server.params("initialize")
                assert params["protocolVersion"] == HANDSHAKE
                assert (params["clientInfo"]["name"], params["clientInfo"]["version"]) == (name, version)
                await settle()
                assert server.count("notifications/initialized") == 1
            async with Script(STATELESS) as server, server.client(info=info) as client:
                with pytest.raises(RemoteError):
                    await client.list_tools()
                (meta,) = server.metas("tools/list")
                assert meta["io.modelcontextprotocol/clientInfo"]["name"] == name
                assert meta["io.modelcontextprotocol/protocolVersion"] == STATELESS

    run(test())


def test_arguments_are_sent_only_if_they_are_given() -> None:
    async def test() -> None:
        prompt = {"messages": []}
        async with Script(tools__call=text("ok"), prompts__get=prompt) as server, server.client() as client:
            await client.call_tool("x")
            await client.call_tool("x", {})
            await client.call_tool("x", t.Implementation(name="a", version="b"))
            await client.get_prompt("p")
            await client.get_prompt("p", {"a": "b"})
        assert server.params("tools/call") == [
            {"name": "x"},
            {"name": "x", "arguments": {}},
            {"name": "x", "arguments": {"name": "a", "version": "b"}},
        ]
        assert server.params("prompts/get") == [{"name": "p"}, {"name": "p", "arguments": {"a": "b"}}]

    run(test())


def test_a_failed_tool_call_without_a_message_raises_tool_error() -> None:
    async def test() -> None:
        async with Script(tools__call={"content": [], "isError": True}) as server, server.client() as client:
            with pytest.raises(ToolError, match="failed, without a reason") as caught:
                await client.call_tool("x")
            assert caught.value.result is not None
            server.answers["tools/call"] = {**text("it leaks"), "isError": True}
            with pytest.raises(ToolError, match=r"^it leaks$"):
                await client.call_tool("x")
            server.answers["tools/call"] = {**text("it floats"), "isError": False}
            assert (await client.call_tool("x")).text == "it floats"
            assert server.count("tools/list") == 0

    run(test())


@EACH_ERA
def test_a_client_that_is_not_open_raises_connection_lost(revision: str) -> None:
    async def test() -> None:
        async with Script(revision) as server:
            client = server.client()

            def accesses() -> list[Any]:
                return [
                    lambda: client.server_info, lambda: client.capabilities, lambda: client.revision,
                    lambda: client.instructions, client.roots_changed,
                ]  # fmt: skip

            assert client.transport == ""
            for access in accesses():
                with pytest.raises(ConnectionLost, match="not open"):
                    access()
            for call in (client.ping(), client.list_tools(), client.set_log_level("info"), client.watch("a:b").start()):
                with pytest.raises(ConnectionLost, match="not open"):
                    await call
            async with client:
                assert client.transport == "unix socket"
                assert client.revision == revision
            assert client.transport == ""
            with pytest.raises(ConnectionLost, match="not open"):
                await client.call_tool("x")

    run(test())


# Log messages.


def test_the_log_level_is_sent_with_every_stateless_request_if_a_log_function_is_set() -> None:
    async def test() -> None:
        level = "io.modelcontextprotocol/logLevel"
        for settings, expected in (
            ({}, None),
            ({"log": print}, "info"),
            ({"log": print, "log_level": "debug"}, "debug"),
        ):
            async with Script(tools__call=text("ok")) as server, server.client(**settings) as client:
                await client.call_tool("x")
                await client.set_log_level("error")
                await client.call_tool("x")
                assert [meta.get(level) for meta in server.metas("tools/call")] == [expected, "error"]
                server.hang_up()
                await settle()
                await client.call_tool("x")
                assert server.metas("tools/call")[-1].get(level) == "error"

    run(test())


def test_the_log_level_is_set_once_for_each_session_if_both_sides_support_logs() -> None:
    async def test() -> None:
        logging: dict[str, Any] = {"logging": {}}
        for capabilities, settings, expected in (
            (logging, {"log": print}, [{"level": "info"}]),
            (logging, {"log": print, "log_level": "warning"}, [{"level": "warning"}]),
            (logging, {}, []),
            ({}, {"log": print}, []),
        ):
            async with (
                Script(HANDSHAKE, capabilities=capabilities, logging__setLevel={}) as server,
                server.client(**settings) as client,
            ):
                await client.ping()
                assert server.params("logging/setLevel") == expected
                await client.set_log_level("alert")
                assert server.params("logging/setLevel") == [*expected, {"level": "alert"}]
                server.hang_up()
                await settle()
                await client.ping()
                again = [{"level": "alert"}] if capabilities else []
                assert server.params("logging/setLevel") == [*expected, {"level": "alert"}, *again]

    run(test())


def test_an_unanswered_log_level_request_delays_no_call_and_is_cancelled_after_five_seconds() -> None:
    async def test() -> None:
        script = Script(HANDSHAKE, capabilities={"logging": {}}, logging__setLevel=SILENCE)
        async with script as server, server.client(log=print) as client:
            await client.ping()
            await asyncio.sleep(4.9)
            assert server.count("notifications/cancelled") == 0
            await asyncio.sleep(0.2)
            assert server.count("notifications/cancelled") == 1

    run(test())


@EACH_ERA
def test_log_messages_are_reported_and_invalid_ones_are_skipped(revision: str) -> None:
    async def test() -> None:
        reported: list[t.LoggingMessageNotificationParams] = []

        def logs(message: Any) -> Any:
            for params in ({"level": "info", "data": 1}, {"level": "loud", "data": 2}, {"level": "error", "data": [3]}):
                server.say(method="notifications/message", params=params)
            server.say(method="notifications/message")
            server.notify("notifications/made/up", level="info", data=4)
            server.notify("notifications/progress", level="info", data=5)
            return text("ok")

        async with Script(revision, tools__call=logs) as server:
            async with server.client(log=reported.append) as client:
                await client.call_tool("x")
                assert [(each.level, each.data) for each in reported] == [("info", 1), ("error", [3])]
            async with server.client() as client:
                assert (await client.call_tool("x")).text == "ok"
            assert len(reported) == 2

    run(test())


@EACH_ERA
def test_a_closed_client_reports_no_more_log_messages(revision: str) -> None:
    async def test() -> None:
        reported: list[Any] = []
        go = asyncio.Event()

        async def slow(params: t.LoggingMessageNotificationParams) -> None:
            reported.append(params.data)
            await go.wait()
            reported.append("went")

        def logs(message: Any) -> Any:
            for data in range(3):
                server.notify("notifications/message", level="info", data=data)
            return text("ok")

        async with Script(revision, tools__call=logs) as server:
            async with server.client(log=slow) as client:
                await client.call_tool("x")
                await settle()
            go.set()
            await settle()
            assert reported == [0]

    run(test())


@EACH_ERA
def test_a_function_for_log_messages_may_close_its_client(revision: str) -> None:
    """A bug: closing cancelled the function itself, and did not finish."""

    async def test() -> None:
        reported: list[Any] = []
        ended = asyncio.Event()

        async def close(params: t.LoggingMessageNotificationParams) -> None:
            reported.append(params.data)
            try:
                await client.close()
                reported.append("closed")
            finally:
                ended.set()

        def logs(message: Any) -> Any:
            for data in range(3):
                server.notify("notifications/message", level="info", data=data)
            return text("ok")

        async with Script(revision, tools__call=logs) as server:
            client = server.client(log=close)
            await client.open()
            await client.call_tool("x")
            await ended.wait()
            assert reported == [0, "closed"]

    run(test())


def test_log_messages_for_a_slow_function_are_queued_and_the_oldest_are_dropped() -> None:
    async def test() -> None:
        reported: list[Any] = []
        go = asyncio.Event()

        async def slow(params: t.LoggingMessageNotificationParams) -> None:
            await go.wait()
            reported.append(params.data)
            if params.data == 5:
                raise ValueError

        def logs(message: Any) -> Any:
            for data in range(message["params"]["arguments"]["count"]):
                server.notify("notifications/message", level="info", data=data)
            return text("ok")

        for count, kept in ((1001, range(1001)), (1003, [0, *range(3, 1003)])):
            reported.clear()
            go.clear()
            async with Script(tools__call=logs) as server, server.client(log=slow) as client:
                await client.call_tool("x", {"count": count})
                go.set()
                await asyncio.sleep(1)
                assert reported == list(kept)
                server.notify("notifications/message", level="info", data="late")
                await settle()

    run(test())


def test_log_messages_for_a_slow_function_are_bounded_in_bytes() -> None:
    async def test() -> None:
        reported: list[int] = []
        go = asyncio.Event()
        large = "x" * (1024 * 1024)

        async def slow(params: t.LoggingMessageNotificationParams) -> None:
            await go.wait()
            reported.append(int(params.data[:2]))

        def logs(message: Any) -> Any:
            for data in range(10, 40):
                server.notify("notifications/message", level="info", data=f"{data}{large}")
            return text("ok")

        async with Script(HANDSHAKE, tools__call=logs) as server, server.client(log=slow) as client:
            for _ in range(2):  # a reported message frees its bytes
                reported.clear()
                go.clear()
                await client.call_tool("x")
                go.set()
                await asyncio.sleep(1)
                assert reported == [10, *range(25, 40)]

    run(test())


def test_no_progress_is_reported_after_its_call_has_failed() -> None:
    async def test() -> None:
        reported: list[float] = []
        go = asyncio.Event()

        async def slow(done: float, *_: Any) -> None:
            reported.append(done)
            await go.wait()

        def run_steps(message: Any) -> Any:
            for done in range(3):
                token = message["params"]["_meta"]["progressToken"]
                server.notify("notifications/progress", progressToken=token, progress=done)
            return Refusal(-32603, "sunk")

        async with Script(tools__call=run_steps) as server, server.client() as client:
            with pytest.raises(RemoteError, match="sunk"):
                await client.call_tool("x", progress=slow)
            go.set()
            await settle()
            assert reported == [0]

    run(test())


def test_a_call_returns_after_its_progress_was_reported() -> None:
    async def test() -> None:
        reported: list[float] = []

        async def slow(done: float, *_: Any) -> None:
            await asyncio.sleep(5)
            reported.append(done)

        def run_steps(message: Any) -> Any:
            for done in range(3):
                token = message["params"]["_meta"]["progressToken"]
                server.notify("notifications/progress", progressToken=token, progress=done)
            return text("done")

        async with Script(TASKS_ERA, tools__call=run_steps) as server, server.client() as client:
            await client.call_tool("x", progress=slow)
            assert (reported, now()) == ([0, 1, 2], 15)

    run(test())


def test_the_repr_of_a_template_shows_its_uri_template_if_known() -> None:
    async def test() -> None:
        listed = {"name": "log", "uriTemplate": "log:{day}"}
        async with (
            Script(resources__templates__list={"resourceTemplates": [listed]}) as server,
            server.client() as client,
        ):
            assert repr(client.template("log:{hour}")) == "<Template 'log:{hour}'>"
            template = client.template("log")
            assert repr(template) == "<Template 'log'>"
            await template.uri(day=1)
            assert repr(template) == "<Template 'log:{day}'>"

    run(test())
