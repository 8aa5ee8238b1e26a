"""Long calls: tasks of both eras, input requests and URL elicitation, timed to the second."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import pytest

from tests.client.scripted import SILENCE, STATELESS, TASKS_ERA, Refusal, Script, now, run, settle, text
from wharfinger import types as t
from wharfinger.client.settings import LIMITS
from wharfinger.errors import (
    Cancelled,
    Declined,
    InvalidParams,
    InvalidResponse,
    RemoteError,
    RequestTimeout,
    ToolError,
    WharfingerError,
    remote_error,
)

FORM = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
QUESTION = {"method": "elicitation/create", "params": FORM}
STAMPS = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
BOTH = pytest.mark.parametrize("revision", [TASKS_ERA, STATELESS])


class TaskServer(Script):
    """A server that turns each call into a task. The task passes through `states` and stays in the last one."""

    def __init__(self, revision: str, *states: Any, poll: int | None = 1000, result: Any = None) -> None:
        calls = {"tasks": {"requests": {"tools": {"call": {}}}}}
        super().__init__(revision, capabilities={"tools": {}, **(calls if revision == TASKS_ERA else {})})
        self.states = list(states)
        self.old = revision == TASKS_ERA
        self.poll = poll
        tool = {"name": "x", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}}
        self.answers |= {
            "tools/call": self.start,
            "tools/list": {"tools": [tool]},
            "tasks/get": self.get,
            "tasks/result": text("done") if result is None else result,
            "tasks/update": {},
            "tasks/cancel": lambda _: self.task("cancelled"),
        }

    def task(self, status: str, **more: Any) -> dict[str, Any]:
        ttl, poll = ("ttl", "pollInterval") if self.old else ("ttlMs", "pollIntervalMs")
        often = {} if self.poll is None else {poll: self.poll}
        return {"taskId": "T", "status": status, **STAMPS, ttl: None, **often, **more}

    def start(self, _: Any) -> Any:
        return {"task": self.task("working")} if self.old else {"resultType": "task", **self.task("working")}

    def get(self, _: Any) -> Any:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, dict):
            return self.task(**state)
        if state == "completed" and not self.old:
            return self.task(state, result=text("done"))
        return self.task(state)

    async def call(self, client: Any, **options: Any) -> Any:
        if self.old and not self.count("tools/list"):
            await client.list_tools()
        return await client.call_tool("x", **options)


# Polling of tasks.


def test_a_tool_that_failed_raises_its_error_if_the_tools_cannot_be_listed_again() -> None:
    """A bug: the error of the list hid what the tool said."""

    async def test() -> None:
        async with TaskServer(TASKS_ERA) as server, server.client() as client:
            server.answers["tools/list"] = Refusal(-32603, "busy")
            server.answers["tools/call"] = {**text("Your task is unknown."), "isError": True}
            with pytest.raises(ToolError, match="Your task is unknown"):
                await client.call_tool("x")
            server.answers["tools/call"] = Refusal(-32601, "no such tool")
            with pytest.raises(RemoteError, match="no such tool"):
                await client.call_tool("x")

    run(test())


@BOTH
@pytest.mark.parametrize(
    ("named", "seconds"), [(5000, 5), (None, 1), (0, 0.05), (49, 0.05), (51, 0.051), (60_000, 60), (61_000, 60)]
)
def test_a_task_is_polled_at_the_interval_of_its_server_within_bounds(
    revision: str, named: int | None, seconds: float
) -> None:
    async def test() -> None:
        script = TaskServer(revision, "working", "working", "completed", poll=named)
        async with script as server, server.client(tasks=True) as client:
            assert (await server.call(client)).text == "done"
            assert server.when("tasks/get") == [pytest.approx(seconds * n) for n in (1, 2, 3)]
            assert all(params == {"taskId": "T"} for params in server.params("tasks/get"))

    run(test())


@BOTH
def test_a_call_fails_after_max_timeout_even_if_the_task_runs(revision: str) -> None:
    async def test() -> None:
        async with TaskServer(revision, "working", poll=30_000) as server, server.client(tasks=True) as client:
            for options, seconds in (({}, 3600), ({"max_timeout": 1000}, 1000), ({"timeout": 100}, 100)):
                begun = now()
                with pytest.raises(RequestTimeout, match="The call was not complete within"):
                    await server.call(client, **options)
                assert now() - begun == pytest.approx(seconds)
                await settle()
                assert server.params("tasks/cancel") == [{"taskId": "T"}]
                server.received.clear()
                server.times.clear()

    run(test())


def test_a_question_during_a_task_of_2025_does_not_extend_max_timeout() -> None:
    """A bug: the call waited for the user without an end."""

    async def test() -> None:
        async def ask(_: Any) -> Any:
            server.say(id="q", method="elicitation/create", params=SHIP)
            return await asyncio.sleep(100_000, text("late"))

        async def never(_: Any) -> Any:
            await asyncio.sleep(100_000)

        async with (
            TaskServer(TASKS_ERA, "input_required", result=ask) as server,
            server.client(elicitation=never) as client,
        ):
            begun = now()
            with pytest.raises(RequestTimeout):
                await server.call(client, max_timeout=500)
            assert now() - begun == pytest.approx(500)

    run(test())


def test_the_time_before_a_call_becomes_a_task_counts_for_max_timeout() -> None:
    """A bug: `max_timeout` began again with the task."""

    async def test() -> None:
        async with TaskServer(STATELESS, "working") as server, server.client(tasks=True) as client:

            async def start_late(message: Any) -> Any:
                await asyncio.sleep(50)
                return server.start(message)

            server.answers["tools/call"] = start_late
            begun = now()
            with pytest.raises(RequestTimeout, match="within 100 s"):
                await client.call_tool("x", max_timeout=100)
            assert now() - begun == pytest.approx(100)

    run(test())


@BOTH
def test_each_request_about_a_task_has_the_timeout_of_a_call(revision: str) -> None:
    async def test() -> None:
        async with TaskServer(revision, "working") as server, server.client(tasks=True, timeout=20) as client:
            if revision == TASKS_ERA:
                await client.list_tools()
            for method, begins in (("tasks/get", 1), ("tools/call", 0)):
                server.answers[method] = SILENCE
                begun = now()
                with pytest.raises(RequestTimeout, match=method):
                    await client.call_tool("x")
                assert now() - begun == pytest.approx(begins + 20)
                await settle()
                assert server.count("tasks/cancel") == 1  # if no task was created, none is cancelled

    run(test())


@BOTH
def test_a_cancelled_call_cancels_its_task_and_waits_at_most_five_seconds(revision: str) -> None:
    async def test() -> None:
        async with TaskServer(revision, "working") as server, server.client(tasks=True) as client:
            server.answers["tasks/cancel"] = SILENCE
            call = asyncio.ensure_future(server.call(client))
            await asyncio.sleep(1.5)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await settle()
            assert server.params("tasks/cancel") == [{"taskId": "T"}]
            await asyncio.sleep(4.9)
            assert server.count("notifications/cancelled") == 0
            await asyncio.sleep(0.2)
            assert server.count("notifications/cancelled") == 1

    run(test())


@BOTH
def test_a_call_handles_a_refused_cancellation_or_poll_of_its_task(revision: str) -> None:
    async def test() -> None:
        async with TaskServer(revision, "working") as server, server.client(tasks=True) as client:
            server.answers["tasks/cancel"] = Refusal()
            with pytest.raises(RequestTimeout):
                await server.call(client, timeout=3)
            await settle()
            server.answers["tasks/get"] = Refusal(-32603, "lost it")
            with pytest.raises(RemoteError, match="lost it"):
                await server.call(client)
            await settle()
            assert server.count("tasks/cancel") == 1  # a task that the server refuses is not cancelled

    run(test())


@BOTH
@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"status": "cancelled"}, "The server cancelled the task of this tools/call"),
        ({"status": "working", "taskId": "U"}, "about a different task"),
    ],
)
def test_a_call_fails_if_its_task_is_cancelled_or_replaced_by_the_server(revision: str, state: Any, words: str) -> None:
    async def test() -> None:
        async with TaskServer(revision, "working", state) as server, server.client(tasks=True) as client:
            with pytest.raises((RemoteError, InvalidResponse), match=words) as caught:
                await server.call(client)
            if isinstance(caught.value, RemoteError):
                assert caught.value.code == -32603
            await settle()
            assert server.count("tasks/cancel") == 0
            assert server.count("tasks/result") == 0

    run(test())


@pytest.mark.parametrize(
    ("state", "words", "code"),
    [
        ({"status": "failed"}, r"^The task failed\. \(error -32603\)$", -32603),
        ({"status": "failed", "statusMessage": "no wind"}, "no wind", -32603),
        ({"status": "failed", "error": {"code": -7, "message": "sunk"}}, "sunk", -7),
        ({"status": "completed"}, "but sends no result", None),
    ],
)
def test_a_failed_task_of_the_extension_raises_its_error(state: Any, words: str, code: int | None) -> None:
    async def test() -> None:
        async with TaskServer(STATELESS, state) as server, server.client(tasks=True) as client:
            with pytest.raises(WharfingerError, match=words) as caught:
                await server.call(client)
            assert getattr(caught.value, "code", None) == code

    run(test())


def test_a_task_that_is_finished_at_once_is_not_polled() -> None:
    async def test() -> None:
        async with TaskServer(STATELESS, "completed") as server, server.client(tasks=True) as client:
            for state, error in (("completed", None), ("failed", RemoteError), ("cancelled", RemoteError)):
                more = {"result": text("soon")} if state == "completed" else {}
                server.answers["tools/call"] = {"resultType": "task", **server.task(state, **more)}
                if error is None and not more:
                    continue
                try:
                    assert (await server.call(client)).text == "soon"
                except WharfingerError as caught:
                    assert error is not None or isinstance(caught, InvalidResponse)
            assert server.count("tasks/get") == 0
            assert now() == 0
            server.answers["tools/call"] = {"resultType": "task", **server.task("input_required")}
            assert (await server.call(client)).text == "done"
            assert server.when("tasks/get") == [0]  # a task that needs input is polled without a wait

    run(test())


def test_a_task_of_2025_is_requested_with_max_timeout_as_its_ttl() -> None:
    async def test() -> None:
        async with TaskServer(TASKS_ERA, "completed") as server, server.client() as client:
            for most, ttl in ((None, 3_600_000), (90, 90_000), (0.0005, 1), (math.inf, None)):
                options = {} if most is None else {"max_timeout": most}
                try:
                    await server.call(client, **options)
                except RequestTimeout:
                    assert most == 0.0005
                task = server.params("tools/call")[-1]["task"]
                assert task == ({} if ttl is None else {"ttl": ttl})

    run(test())


def test_progress_of_a_task_is_reported_and_resets_its_timeout() -> None:
    async def test() -> None:
        reported: list[float] = []

        def get(message: Any) -> Any:
            for token in {each["_meta"]["progressToken"] for each in tokens()}:
                server.notify("notifications/progress", progressToken=token, progress=len(reported))
            server.notify("notifications/progress", progressToken="another", progress=7)
            server.say(method="notifications/progress")
            server.notify("notifications/progress", progressToken=[])
            return server.task("working" if len(server.when("tasks/get")) < 5 else "completed")

        def tokens() -> list[Any]:
            calls = [each["params"] for each in server.received if each.get("method") == "tools/call"]
            return [params for params in calls if "progressToken" in params.get("_meta", {})]

        async with TaskServer(TASKS_ERA, poll=8000) as server, server.client() as client:
            server.answers["tasks/get"] = get
            options = {"timeout": 10, "progress": lambda done, *_: reported.append(done), "reset_on_progress": True}
            assert (await server.call(client, **options)).text == "done"
            assert reported == [0, 1, 2, 3, 4]
            server.notify("notifications/progress", progressToken=tokens()[0]["_meta"]["progressToken"], progress=9)
            await settle()
            assert len(reported) == 5  # the call is over
            server.times.clear()
            server.received.clear()
            with pytest.raises(RequestTimeout, match="within 10 s"):
                await client.call_tool("x", timeout=10, progress=lambda *_: None)
            server.received.clear()
            server.times.clear()
            assert (await client.call_tool("x", timeout=10, reset_on_progress=True)).text == "done"
            server.received.clear()
            server.times.clear()
            await client.call_tool("x")
            assert tokens() == []

    run(test())


def test_a_status_notification_ends_the_wait_of_its_own_task_only() -> None:
    async def test() -> None:
        async with TaskServer(TASKS_ERA, "working", "completed", poll=50_000) as server, server.client() as client:
            call = asyncio.ensure_future(server.call(client))
            await asyncio.sleep(10)
            for notice in ({"taskId": "U"}, {"taskId": 3}):
                server.notify("notifications/tasks/status", **{**server.task("completed"), **notice})
            server.say(method="notifications/tasks/status")
            await settle()
            assert server.count("tasks/get") == 0
            server.notify("notifications/tasks/status", **server.task("working"))
            assert (await call).text == "done"
            assert server.when("tasks/get") == [pytest.approx(10), pytest.approx(60)]

    run(test())


@pytest.mark.parametrize(
    ("revision", "method"), [(TASKS_ERA, "tasks/get"), (TASKS_ERA, "tasks/result"), (STATELESS, "tasks/get")]
)
def test_a_task_outlives_a_connection_that_is_lost_during_a_poll(revision: str, method: str) -> None:
    """A bug: the call failed, and its task was cancelled."""

    async def test() -> None:
        async with TaskServer(revision, "completed") as server, server.client(tasks=True) as client:
            answer = server.answers[method]

            def vanish_once(message: Any) -> Any:
                if server.count(method) == 1:
                    server.hang_up()
                    return SILENCE
                return answer(message) if callable(answer) else answer

            server.answers[method] = vanish_once
            assert (await server.call(client)).text == "done"
            assert server.connections == 2
            assert server.count("tasks/cancel") == 0

    run(test())


def test_task_support_of_tools_is_dropped_with_the_connection() -> None:
    async def test() -> None:
        async with TaskServer(TASKS_ERA, "completed") as server, server.client() as client:
            await server.call(client)
            assert server.count("tasks/get") == 1
            server.hang_up()
            await settle()
            await client.ping()
            server.answers["tools/call"] = text("at once")
            assert (await client.call_tool("x")).text == "at once"
            assert "task" not in server.params("tools/call")[-1]

    run(test())


@pytest.mark.parametrize(
    "capabilities",
    [{"tools": {}}, {"tasks": {}}, {"tasks": {"requests": {}}}, {"tasks": {"requests": {"tools": {}}}}],
)
def test_a_tool_is_called_without_a_task_if_the_server_supports_no_task_calls(capabilities: Any) -> None:
    async def test() -> None:
        async with TaskServer(TASKS_ERA, "completed") as server:
            server.answers["initialize"]["capabilities"] = capabilities
            server.answers["tools/call"] = {**text("this is a task"), "isError": True}
            async with server.client(tasks=True) as client:
                await client.list_tools()
                with pytest.raises(WharfingerError, match="this is a task"):
                    await client.call_tool("x")
                server.answers["tools/call"] = Refusal(-32601, "a task!")
                with pytest.raises(RemoteError, match="a task!"):
                    await client.call_tool("x")
                assert server.params("tools/call") == [{"name": "x"}] * 2
                assert server.count("tools/list") == 1

    run(test())


def test_a_call_is_repeated_without_a_task_if_the_tool_no_longer_supports_tasks() -> None:
    async def test() -> None:
        async with TaskServer(TASKS_ERA, "completed") as server, server.client() as client:
            await client.list_tools()
            server.answers["tools/list"]["tools"][0]["execution"] = {"taskSupport": "forbidden"}

            def called(message: Any) -> Any:
                return Refusal(-32601, "no task") if "task" in message["params"] else text("plain")

            server.answers["tools/call"] = called
            assert (await client.call_tool("x")).text == "plain"
            assert (server.count("tools/call"), server.count("tools/list")) == (2, 2)
            server.answers["tools/call"] = Refusal(-32601, "no tool")
            with pytest.raises(RemoteError, match="no tool"):
                await client.call_tool("x")
            assert (server.count("tools/call"), server.count("tools/list")) == (3, 3)
            server.answers["tools/call"] = {**text("it leaks"), "isError": True}
            with pytest.raises(WharfingerError, match="it leaks"):
                await client.call_tool("x")
            assert server.count("tools/list") == 3  # its text does not mention tasks
            server.answers["tools/call"] = {**text("the Task failed"), "isError": True}
            with pytest.raises(WharfingerError, match="the Task failed"):
                await client.call_tool("x")
            assert (server.count("tools/call"), server.count("tools/list")) == (5, 4)

    run(test())


# Input requests.


def input_requests(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, QUESTION)


async def fill_in(_: Any) -> dict[str, Any]:
    return {"a": 1}


def test_each_input_request_of_a_task_is_answered_once_up_to_a_thousand() -> None:
    async def test() -> None:
        for count, fails in ((1000, False), (1001, True)):
            states: list[Any] = [
                {
                    "status": "input_required",
                    "inputRequests": input_requests(*map(str, range(start, min(start + 50, count)))),
                }
                for start in range(0, count, 50)
            ]
            states += [states[0], {"status": "input_required"}, "completed"]
            async with (
                TaskServer(STATELESS, *states, poll=0) as server,
                server.client(tasks=True, elicitation=fill_in) as client,
            ):
                if fails:
                    with pytest.raises(InvalidResponse, match="more than 1000 questions"):
                        await server.call(client)
                    continue
                assert (await server.call(client)).text == "done"
                updates = server.params("tasks/update")
                assert [len(each["inputResponses"]) for each in updates] == [50] * 20
                assert all(each["taskId"] == "T" for each in updates)

    run(test())


@pytest.mark.parametrize(("count", "fails"), [(64, False), (65, True)])
def test_a_result_may_contain_64_input_requests(count: int, fails: bool) -> None:
    async def test() -> None:
        def asks(message: Any) -> Any:
            if "inputResponses" in message["params"]:
                return text(str(len(message["params"]["inputResponses"])))
            return {"resultType": "input_required", "inputRequests": input_requests(*map(str, range(count)))}

        async with Script(tools__call=asks) as server, server.client(elicitation=fill_in) as client:
            if fails:
                with pytest.raises(InvalidResponse, match="65 questions at once; 64 are allowed"):
                    await client.call_tool("x")
            else:
                assert (await client.call_tool("x")).text == "64"

    run(test())


@pytest.mark.parametrize("rounds", [8, 2])
def test_a_call_is_repeated_with_answers_up_to_the_limit_of_rounds(rounds: int) -> None:
    async def test() -> None:
        def asks(message: Any) -> Any:
            if server.count("tools/call") > times:
                return text("done")
            return {"resultType": "input_required", "inputRequests": input_requests("q"), "requestState": "s"}

        limits = LIMITS if rounds == 8 else msgspec.structs.replace(LIMITS, rounds=rounds)
        for times in (rounds, rounds + 1):
            async with (
                Script(tools__call=asks) as server,
                server.client(elicitation=fill_in, limits=limits) as client,
            ):
                if times == rounds:
                    assert (await client.call_tool("x")).text == "done"
                else:
                    with pytest.raises(InvalidResponse, match=f"still asks after {rounds} rounds"):
                        await client.call_tool("x")
                assert server.count("tools/call") == rounds + 1
                assert server.params("tools/call")[1]["requestState"] == "s"

    run(test())


def test_request_state_and_answers_are_sent_with_their_own_call_only() -> None:
    async def test() -> None:
        replies = [
            {"resultType": "input_required", "inputRequests": input_requests("q"), "requestState": "one"},
            {"resultType": "input_required", "requestState": "two"},
            text("done"),
            text("other"),
        ]

        async with (
            Script(tools__call=lambda _: replies.pop(0)) as server,
            server.client(elicitation=fill_in) as client,
        ):
            await client.call_tool("x")
            await client.call_tool("x")
        answers = {"q": {"action": "accept", "content": {"a": 1}}}
        assert server.params("tools/call") == [
            {"name": "x"},
            {"name": "x", "inputResponses": answers, "requestState": "one"},
            {"name": "x", "requestState": "two"},
            {"name": "x"},
        ]

    run(test())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"resultType": "input_required"}, "sends neither a question nor a state"),
        ({"resultType": "input_required", "inputRequests": {}}, "sends neither a question nor a state"),
        ({"resultType": "input_required", "inputRequests": 3}, "is not a valid 'input_required' result"),
        ({"resultType": "task", "taskId": "T"}, "resultType that is not expected: 'task'"),
        ({"resultType": "surprise"}, "resultType that is not expected: 'surprise'"),
        ({"resultType": "complete"}, "content"),
        ({"resultType": "complete", "content": 3}, "content"),
        ({"resultType": 3, "content": []}, "."),
    ],
)
def test_a_result_of_an_unexpected_type_is_refused(answer: Any, words: str) -> None:
    async def test() -> None:
        async with Script(tools__call=answer) as server, server.client(roots=[]) as client:
            with pytest.raises(InvalidResponse, match=words):
                await client.call_tool("x")

    run(test())


def test_unexpected_input_required_and_task_results_are_refused() -> None:
    async def test() -> None:
        asks = {"resultType": "input_required", "requestState": "s"}
        async with (
            Script(tools__list=asks, completion__complete=asks) as server,
            server.client(roots=[]) as client,
        ):
            for call in (client.list_tools(), client.complete("p", "a")):
                with pytest.raises(InvalidResponse, match="resultType that is not expected: 'input_required'"):
                    await call
        task = {"resultType": "task", "taskId": "T", "status": "working", **STAMPS, "ttlMs": None}
        async with Script(prompts__get=task, tools__call=task) as server, server.client() as client:
            for call in (client.get_prompt("p"), client.call_tool("x")):
                with pytest.raises(InvalidResponse, match="'task'"):
                    await call
            async with server.client(tasks=True) as other:
                with pytest.raises(InvalidResponse, match="'task'"):
                    await other.get_prompt("p")
                server.answers["tools/call"] = {"resultType": "task", "taskId": 3}
                with pytest.raises(InvalidResponse, match="is not a valid 'task' result"):
                    await other.call_tool("x")

    run(test())


@pytest.mark.parametrize("kind", ["question", "prompts/get", "resources/read"])
def test_an_input_request_without_a_declared_capability_fails_the_call(kind: str) -> None:
    async def test() -> None:
        url = {"method": "elicitation/create", "params": {"message": "?", "mode": "url", "url": "https://a.test"}}
        sample = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
        for question, words in ((url, "no elicitation by url"), (sample, "declared no capability")):
            asks = {"resultType": "input_required", "inputRequests": {"q": question}}
            script = Script(tools__call=asks, prompts__get=asks, resources__read=asks)
            async with script as server, server.client(elicitation=fill_in) as client:
                calls = {
                    "question": lambda: client.call_tool("x"),
                    "prompts/get": lambda: client.get_prompt("p"),
                    "resources/read": lambda: client.read_resource("a:b"),
                }
                with pytest.raises(InvalidResponse, match=words):
                    await calls[kind]()

    run(test())


# URL elicitation.


def url_elicitations(count: int) -> Refusal:
    each = {"message": "?", "mode": "url", "url": "https://a.test"}
    return Refusal(-32042, "go there", {"elicitations": [{**each, "elicitationId": f"e{n}"} for n in range(count)]})


async def consent(_: Any) -> bool:
    return True


@pytest.mark.parametrize(("count", "again"), [(0, False), (1, True), (16, True), (17, False)])
def test_a_call_is_repeated_after_all_its_url_elicitations_complete(count: int, again: bool) -> None:
    async def test() -> None:
        def called(_: Any) -> Any:
            return url_elicitations(count) if server.count("tools/call") == 1 else text("paid")

        async with Script(TASKS_ERA, tools__call=called) as server, server.client(consent=consent) as client:
            call = asyncio.ensure_future(client.call_tool("x"))
            await asyncio.sleep(5)
            for done in range(count):
                assert server.count("tools/call") == 1
                server.say(method="notifications/elicitation/complete")
                server.notify("notifications/elicitation/complete", elicitationId=3)
                server.notify("notifications/elicitation/complete", elicitationId="other")
                server.notify("notifications/elicitation/complete", elicitationId=f"e{done}")
                await asyncio.sleep(1)
            if again:
                assert (await call).text == "paid"
                assert server.when("tools/call")[1] == pytest.approx(5 + count - 1)
            else:
                with pytest.raises(RemoteError, match="go there"):
                    await call
                assert server.count("tools/call") == 1

    run(test())


def test_a_call_waits_its_timeout_for_a_url_elicitation_that_never_completes() -> None:
    async def test() -> None:
        async def called(_: Any) -> Any:
            if server.count("tools/call") == 1:
                await asyncio.sleep(3)
                return url_elicitations(1)
            await asyncio.sleep(6.9)
            return text("paid")

        async def slow(_: Any) -> bool:
            await asyncio.sleep(50)
            return True

        async with (
            Script(TASKS_ERA, tools__call=called) as server,
            server.client(consent=slow, timeout=10) as client,
        ):
            assert (await client.call_tool("x")).text == "paid"
            assert server.when("tools/call") == [0, pytest.approx(63)]

    run(test())


def test_a_call_fails_after_max_timeout_while_the_user_is_asked_to_visit_a_url() -> None:
    """Regression: the client waited for the user without a limit."""

    async def test() -> None:
        async def absent(_: Any) -> bool:
            await asyncio.sleep(7200)
            return True

        async with (
            Script(TASKS_ERA, tools__call=url_elicitations(1)) as server,
            server.client(consent=absent) as client,
        ):
            began = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimeout, match=r"URLs were not visited, within 100 s\."):
                await client.call_tool("x", max_timeout=100)
            assert asyncio.get_running_loop().time() - began == pytest.approx(100)

    run(test())


FORM = {"type": "object", "properties": {}}
VISIT = {"message": "?", "mode": "url", "url": "https://a.test", "elicitationId": "e0"}


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"elicitations": 3},
        {"elicitations": []},
        {"elicitations": [VISIT, {"message": "?", "mode": "url", "url": "https://a.test"}]},
        {"elicitations": [VISIT, {"message": "?", "mode": "url", "elicitationId": "e1"}]},
        {"elicitations": [VISIT, {"message": "?", "mode": "form", "requestedSchema": FORM, "elicitationId": "e1"}]},
        {"elicitations": [VISIT, {"message": "?", "requestedSchema": FORM}]},
        {"elicitations": [VISIT, {**VISIT, "requestedSchema": FORM}]},
    ],
)
def test_an_elicitation_error_without_a_valid_url_fails_the_call(data: Any) -> None:
    """Bug: a form was shown for nothing, and a URL without an id made the call wait for its timeout."""

    async def fail(_: Any) -> Any:
        raise AssertionError("the user was asked")

    async def test() -> None:
        async with (
            Script(TASKS_ERA, tools__call=Refusal(-32042, "go there", data)) as server,
            server.client(consent=fail, elicitation=fail) as client,
        ):
            with pytest.raises(RemoteError, match="go there"):
                await client.call_tool("x")
            assert server.count("tools/call") == 1

    run(test())


def test_url_elicitations_of_another_error_code_are_ignored() -> None:
    async def test() -> None:
        refusal = url_elicitations(1)
        refusal.error["code"] = -32041
        async with Script(TASKS_ERA, tools__call=refusal) as server, server.client(consent=consent) as client:
            with pytest.raises(RemoteError, match="go there"):
                await client.call_tool("x")
            assert server.count("tools/call") == 1

    run(test())


@pytest.mark.parametrize("shown", [False, "cancel", "decline"])
def test_a_refused_url_elicitation_fails_the_call(shown: Any) -> None:
    async def test() -> None:
        asked: list[str] = []

        async def refuses(question: t.ElicitRequestParams) -> Any:
            asked.append(str(question.elicitation_id))
            return shown

        async with (
            Script(TASKS_ERA, tools__call=url_elicitations(2)) as server,
            server.client(consent=refuses) as client,
        ):
            with pytest.raises(RemoteError, match="go there"):
                await client.call_tool("x")
            assert server.count("tools/call") == 1
        assert asked == ["e0"]

    run(test())


@pytest.mark.parametrize(("length", "known"), [(4096, True), (4097, False)])
def test_a_completed_elicitation_is_remembered_up_to_a_length_of_its_id(length: int, known: bool) -> None:
    async def test() -> None:
        name = "e" * length

        def called(_: Any) -> Any:
            if server.count("tools/call") > 1:
                return text("paid")
            server.notify("notifications/elicitation/complete", elicitationId=name)
            refusal = url_elicitations(1)
            refusal.error["data"]["elicitations"][0]["elicitationId"] = name
            return refusal

        async with Script(TASKS_ERA, tools__call=called) as server, server.client(consent=consent) as client:
            assert (await client.call_tool("x")).text == "paid"
            assert now() == pytest.approx(0 if known else 60)

    run(test())


@pytest.mark.parametrize(("others", "known"), [(15, True), (16, False)])
def test_elicitations_completed_before_the_call_waits_are_remembered_up_to_a_number(others: int, known: bool) -> None:
    async def test() -> None:
        def called(_: Any) -> Any:
            if server.count("tools/call") > 1:
                return text("paid")
            for done in ["e0", *(f"o{n}" for n in range(others))]:
                server.notify("notifications/elicitation/complete", elicitationId=done)
            return url_elicitations(1)

        async with Script(TASKS_ERA, tools__call=called) as server, server.client(consent=consent) as client:
            assert (await client.call_tool("x")).text == "paid"
            assert now() == pytest.approx(0 if known else 60)

    run(test())


# Requests from the server.


async def request(server: Script, method: str, **params: Any) -> Any:
    """Send this request to the client and return its result or error."""
    server.received.clear()
    server.times.clear()
    server.say(id="q", method=method, **({"params": params} if params else {}))
    await settle()
    (answer,) = [each for each in server.received if each.get("id") == "q"]
    return answer.get("result", answer.get("error"))


def reply_to(settings: dict[str, Any], method: str, **params: Any) -> Any:
    """Return the result or error of this request to a client with these settings."""
    found: list[Any] = []

    async def test() -> None:
        async with Script(TASKS_ERA) as server, server.client(**settings):
            await settle()
            found.append(await request(server, method, **params))

    run(test())
    return found[0]


def returning(answer: Any) -> Any:
    async def handler(_: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return handler


SHIP = {
    "message": "?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "default": "Mary"}, "masts": {"type": "integer"}},
    },
}
ACCEPTED = t.ElicitResult(action="accept", content={"masts": 3})


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"masts": 3}, {"action": "accept", "content": {"name": "Mary", "masts": 3}}),
        ({"name": "Ann"}, {"action": "accept", "content": {"name": "Ann"}}),
        ({}, {"action": "accept", "content": {"name": "Mary"}}),
        (ACCEPTED, {"action": "accept", "content": {"name": "Mary", "masts": 3}}),
        (t.ElicitResult(action="accept"), {"action": "accept", "content": {"name": "Mary"}}),
        (
            t.ElicitResult(action="accept", content={"masts": 3}, meta={"a": 1}),
            {"action": "accept", "content": {"name": "Mary", "masts": 3}, "_meta": {"a": 1}},
        ),
        (t.ElicitResult(action="decline", content={"masts": 3}), {"action": "decline"}),
        (t.ElicitResult(action="cancel", content={"masts": 3}), {"action": "cancel"}),
        ("decline", {"action": "decline"}),
        ("cancel", {"action": "cancel"}),
        (Declined("no"), {"action": "decline"}),
        (Cancelled("no"), {"action": "cancel"}),
    ],
)
def test_a_form_handler_may_return_content_a_result_or_an_action(answer: Any, result: Any) -> None:
    assert reply_to({"elicitation": returning(answer)}, "elicitation/create", **SHIP) == result


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (True, {"action": "accept"}),
        (False, {"action": "decline"}),
        ("decline", {"action": "decline"}),
        ("cancel", {"action": "cancel"}),
        (t.ElicitResult(action="accept", content={"a": 1}), {"action": "accept"}),
        (Declined("no"), {"action": "decline"}),
        (Cancelled("no"), {"action": "cancel"}),
    ],
)
def test_a_consent_handler_may_return_a_bool_a_result_or_an_action(answer: Any, result: Any) -> None:
    url = {"message": "?", "mode": "url", "url": "https://a.test", "elicitationId": "e"}
    assert reply_to({"consent": returning(answer)}, "elicitation/create", **url) == result


SAMPLE: dict[str, Any] = {"messages": [], "maxTokens": 5}


@pytest.mark.parametrize(
    ("settings", "method", "params", "code"),
    [
        ({"elicitation": returning(3)}, "elicitation/create", SHIP, -32603),
        ({"elicitation": returning("perhaps")}, "elicitation/create", SHIP, -32603),
        ({"elicitation": returning([1])}, "elicitation/create", SHIP, -32603),
        ({"elicitation": returning(ValueError("x"))}, "elicitation/create", SHIP, -32603),
        ({"consent": returning("perhaps")}, "elicitation/create",
         {"message": "?", "mode": "url", "url": "https://a.test", "elicitationId": "e"}, -32603),
        ({"consent": returning(3)}, "elicitation/create",
         {"message": "?", "mode": "url", "url": "https://a.test", "elicitationId": "e"}, -32603),
        ({"sampling": returning(3)}, "sampling/createMessage", SAMPLE, -32603),
        ({"sampling": returning(Declined("no"))}, "sampling/createMessage", SAMPLE, -1),
        ({"sampling": returning(Cancelled("no"))}, "sampling/createMessage", SAMPLE, -1),
        ({"sampling": returning("")}, "sampling/createMessage", {"maxTokens": "x"}, -32602),
        ({"sampling": returning("")}, "sampling/createMessage", {**SAMPLE, "toolChoice": {"mode": "auto"}}, -32602),
        ({"sampling": returning("")}, "sampling/createMessage", {**SAMPLE, "tools": []}, -32602),
        ({"roots": []}, "sampling/createMessage", SAMPLE, -32601),
        ({"roots": returning([3]), "sampling": returning("")}, "roots/list", {}, -32603),
    ],
)  # fmt: skip
def test_a_request_that_the_client_cannot_answer_gets_an_error_code(
    settings: Any, method: str, params: Any, code: int
) -> None:
    assert reply_to(settings, method, **params)["code"] == code


def test_refused_sampling_sends_the_message_of_the_handler_or_a_default() -> None:
    for refusal, words in ((Declined("not today"), "not today"), (Declined(), "The user declined.")):
        assert reply_to({"sampling": returning(refusal)}, "sampling/createMessage", **SAMPLE)["message"] == words


def test_a_sampling_handler_may_return_a_text_or_a_result() -> None:
    assert reply_to({"sampling": returning("aye")}, "sampling/createMessage", **SAMPLE) == {
        "model": "unnamed", "role": "assistant", "content": {"type": "text", "text": "aye"}, "stopReason": "endTurn",
    }  # fmt: skip
    whole = t.CreateMessageResult(model="m", role="assistant", content=t.TextContent(text="no"))
    result = reply_to({"sampling": returning(whole)}, "sampling/createMessage", **SAMPLE)
    assert (result["model"], result["content"]["text"], "stopReason" in result) == ("m", "no", False)
    tools = {**SAMPLE, "tools": [{"name": "x", "inputSchema": {"type": "object"}}], "toolChoice": {"mode": "auto"}}
    settings = {"sampling": returning("aye"), "sampling_tools": True}
    assert reply_to(settings, "sampling/createMessage", **tools)["content"]["text"] == "aye"


def tool_uses(*ids: str) -> Any:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "x", "input": {}} for id in ids]}


def tool_results(*ids: str, more: Any = ()) -> Any:
    results = [{"type": "tool_result", "toolUseId": id, "content": []} for id in ids]
    return {"role": "user", "content": [*results, *more]}


WORDS = {"type": "text", "text": "hm"}


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([tool_uses("a"), tool_results("a")], None),
        ([tool_uses("a", "b"), tool_results("b", "a"), {"role": "user", "content": WORDS}], None),
        (
            [{"role": "user", "content": WORDS}, tool_uses("a"), tool_results("a"), tool_uses("b"), tool_results("b")],
            None,
        ),
        ([tool_uses("a")], "follows these: a."),
        ([tool_uses("a", "b"), tool_results("a")], "do not match: b."),
        ([tool_uses("a"), {"role": "user", "content": WORDS}, tool_results("a")], "do not match: a."),
        ([tool_results("a")], "do not match: a."),
        ([tool_uses("a"), tool_results("a", more=[WORDS])], "must contain nothing else"),
        ([tool_uses("a"), {**tool_results("a"), "role": "assistant"}], "in a user message"),
    ],
)
def test_each_tool_use_in_sampling_has_its_result_in_the_next_message(messages: Any, words: str | None) -> None:
    settings = {"sampling": returning("aye"), "sampling_tools": True}
    result = reply_to(settings, "sampling/createMessage", messages=messages, maxTokens=5)
    if words is None:
        assert result["content"]["text"] == "aye"
    else:
        assert result["code"] == -32602
        assert words in result["message"]


def test_roots_are_sent_as_uris_with_names() -> None:
    roots = ["/srv/charts", "file:///srv/log", t.Root(uri="file:///x", name="own"), "/"]
    expected = [
        {"uri": "file:///srv/charts", "name": "charts"},
        {"uri": "file:///srv/log"},
        {"uri": "file:///x", "name": "own"},
        {"uri": "file:///"},
    ]
    assert reply_to({"roots": roots}, "roots/list") == {"roots": expected}
    assert reply_to({"roots": returning_roots(roots)}, "roots/list") == {"roots": expected}
    assert reply_to({"roots": []}, "roots/list") == {"roots": []}


def returning_roots(roots: Any) -> Any:
    async def handler() -> Any:
        return roots

    return handler


def test_the_answer_to_a_request_of_a_task_names_the_task() -> None:
    key = "io.modelcontextprotocol/related-task"
    related = {"_meta": {key: {"taskId": "T"}}}
    result = reply_to({"elicitation": returning({})}, "elicitation/create", **SHIP, **related)
    assert result["_meta"] == {key: {"taskId": "T"}}
    own = t.ElicitResult(action="decline", meta={"a": 1})
    result = reply_to({"elicitation": returning(own)}, "elicitation/create", **SHIP, **related)
    assert result["_meta"] == {"a": 1, key: {"taskId": "T"}}
    result = reply_to({"elicitation": returning({})}, "elicitation/create", **SHIP, _meta={"other": 1})
    assert "_meta" not in result


@pytest.mark.parametrize(
    ("settings", "declared"),
    [
        ({}, {}),
        ({"elicitation": returning({})}, {"elicitation": {"form": {}}}),
        ({"consent": returning(True)}, {"elicitation": {"url": {}}}),
        ({"elicitation": returning({}), "consent": returning(True)}, {"elicitation": {"form": {}, "url": {}}}),
        ({"sampling": returning("")}, {"sampling": {}}),
        ({"sampling": returning(""), "sampling_tools": True}, {"sampling": {"tools": {}}}),
        ({"roots": []}, {"roots": {"listChanged": True}}),
        ({"tasks": True}, {"extensions": {"io.modelcontextprotocol/tasks": {}}}),
    ],
)
def test_a_client_declares_the_capabilities_of_its_handlers(settings: Any, declared: Any) -> None:
    async def test() -> None:
        async with Script(TASKS_ERA) as server, server.client(**settings):
            (params,) = server.params("initialize")
            assert params["capabilities"] == declared
        async with Script(STATELESS, tools__call=text("ok")) as server, server.client(**settings) as client:
            await client.call_tool("x")
            (meta,) = server.metas("tools/call")
            assert meta["io.modelcontextprotocol/clientCapabilities"] == declared

    run(test())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"elicitation": 3}, "elicitation must be an async function, not int"),
        ({"consent": "x"}, "consent must be an async function, not str"),
        ({"sampling": []}, "sampling must be an async function, not list"),
        ({"roots": "/srv"}, "roots must be a list"),
        ({"roots": 3}, "roots must be a list"),
        ({"sampling_tools": True}, "pass sampling= too"),
        ({"middleware": [print]}, r"print\(\) must be an async function"),
    ],
)
def test_an_invalid_handler_is_refused_by_the_constructor(settings: Any, words: str) -> None:
    from wharfinger.client import Client

    with pytest.raises(TypeError, match=words):
        Client("unix:/nowhere", **settings)


def test_concurrent_requests_are_answered_in_the_order_they_finish() -> None:
    async def test() -> None:
        async def slow(question: t.ElicitRequestParams) -> Any:
            await asyncio.sleep(float(question.message))
            return {"masts": 1}

        async with Script(TASKS_ERA) as server, server.client(elicitation=slow):
            await settle()
            for id, seconds in (("a", "5"), ("b", "2")):
                server.say(id=id, method="elicitation/create", params={**SHIP, "message": seconds})
            await asyncio.sleep(10)
            ids = [each["id"] for each in server.received if "result" in each]
            assert ids == ["b", "a"]

    run(test())


def test_an_error_of_another_server_is_not_forwarded_to_the_server() -> None:
    other = remote_error(-32602, "a secret of another server", None)
    error = reply_to({"sampling": returning(other)}, "sampling/createMessage", **SAMPLE)
    assert error == {"code": -32603, "message": "This client failed to answer."}
    own = reply_to({"sampling": returning(InvalidParams("too long"))}, "sampling/createMessage", **SAMPLE)
    assert (own["code"], "too long" in own["message"]) == (-32602, True)


@pytest.mark.parametrize(
    ("raised", "error", "words"),
    [
        (remote_error(-32602, "from afar", None), RemoteError, "from afar"),
        (InvalidParams("too long"), InvalidResponse, "in an invalid way: .*too long"),
        (TimeoutError("of the handler"), TimeoutError, "of the handler"),
        (ValueError("of the handler"), ValueError, "of the handler"),
    ],
)
def test_an_exception_in_a_handler_fails_the_call(raised: Any, error: Any, words: str) -> None:
    async def test() -> None:
        asks = {"resultType": "input_required", "inputRequests": {"q": QUESTION}}
        async with Script(tools__call=asks) as server, server.client(elicitation=returning(raised)) as client:
            with pytest.raises(error, match=words) as caught:
                await client.call_tool("x")
            assert not isinstance(caught.value, RequestTimeout)
            assert server.count("tools/call") == 1

    run(test())


def test_a_reply_that_is_neither_a_task_nor_a_result_is_refused() -> None:
    async def test() -> None:
        async with TaskServer(TASKS_ERA, "completed") as server, server.client() as client:
            for answer in ({"x": 1}, {"task": 3}):
                server.answers["tools/call"] = answer
                with pytest.raises(InvalidResponse):
                    await server.call(client)
            server.answers["tools/call"] = {**text("it leaks"), "isError": True}
            with pytest.raises(WharfingerError, match="it leaks"):
                await server.call(client)
            assert server.count("tasks/get") == 0

    run(test())


def test_tools_that_require_tasks_are_remembered_up_to_a_number() -> None:
    async def test() -> None:
        async with TaskServer(TASKS_ERA, "completed") as server, server.client() as client:
            (tool,) = server.answers["tools/list"]["tools"]
            server.answers["tools/list"] = {"tools": [{**tool, "name": f"n{n}"} for n in range(10_001)]}
            server.answers["tools/call"] = lambda m: server.start(m) if "task" in m["params"] else text("plain")
            await client.list_tools()
            for number in (0, 9999, 10_000):
                await client.call_tool(f"n{number}")
            assert ["task" in params for params in server.params("tools/call")] == [True, True, False]

    run(test())
