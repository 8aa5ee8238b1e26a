"""Completion: completers of arguments, the number of values, and invalid completers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.server.driving import ask
from wharfinger import types as t
from wharfinger.policy import Policy, Rule
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.signature.complete import Complete
from wharfinger.source import Source
from wharfinger.sources import files


async def complete_quay(complete: Any, typed: str = "", others: dict[str, str] | None = None) -> Any:
    """Return the completion of the argument `quay` of a prompt whose other argument is `ship`."""
    server = Server("s")

    @server.prompt
    def moor(quay: Annotated[str, complete], ship: str = "") -> str:
        return quay

    return await request_completion(server, {"type": "ref/prompt", "name": "moor"}, "quay", typed, others)


async def request_completion(
    server: Server, ref: Any, name: str, typed: str, others: dict[str, str] | None = None
) -> Any:
    params: dict[str, Any] = {"ref": ref, "argument": {"name": name, "value": typed}}
    if others is not None:
        params["context"] = {"arguments": others}
    response = await ask(server, "completion/complete", params)
    return response["result"]["completion"] if "result" in response else response["error"]


@pytest.mark.parametrize(("number", "more"), [(0, False), (99, False), (100, False), (101, True), (250, True)])
async def test_at_most_100_values_are_sent_with_their_total(number: int, more: bool) -> None:
    values = [f"q{n}" for n in range(number)]
    expected = {"values": values[:100], "total": number, "hasMore": more}
    assert await complete_quay(Complete(values)) == expected
    assert await complete_quay(Complete(lambda typed: values)) == expected
    completion = await complete_quay(Complete(lambda typed: t.Completion(values=values, total=7)))
    assert completion["values"] == values[:100]
    assert completion["total"] == 7
    assert completion.get("hasMore") is (True if more else None)


async def test_a_returned_completion_is_sent_unchanged() -> None:
    completion = await complete_quay(Complete(lambda typed: t.Completion(values=["a"], total=9, has_more=True)))
    assert completion == {"values": ["a"], "total": 9, "hasMore": True}


@pytest.mark.parametrize(("number", "more"), [(99, False), (100, False), (101, True)])
async def test_a_completion_of_a_folder_reports_whether_it_has_more_paths(
    tmp_path: Path, number: int, more: bool
) -> None:
    for index in range(number):
        (tmp_path / f"quay{index:03}.txt").touch()
    server = Server("s")
    folder = files(tmp_path, label="quays")
    server.include(folder)
    response = await request_completion(server, {"type": "ref/resource", "uri": folder.template}, "path", "quay")
    assert response["values"] == [f"quay{index:03}.txt" for index in range(min(number, 100))]
    assert (response["hasMore"], response.get("total")) == (more, None if more else number)


async def test_fixed_values_are_filtered_by_the_typed_prefix() -> None:
    fixed = Complete(["north", "nose", "south"])
    assert (await complete_quay(fixed, "no"))["values"] == ["north", "nose"]
    assert (await complete_quay(fixed, "x")) == {"values": [], "total": 0, "hasMore": False}


async def test_a_completer_may_use_the_other_arguments_and_the_context() -> None:
    def both(typed: str, others: Any) -> list[str]:
        return [typed, *others.values()]

    async def with_context(typed: str, ctx: Context[Any]) -> list[str]:
        return [typed, ctx.server.info.name]

    def context_first(ctx: Context[Any], typed: str) -> list[str]:
        return [typed, ctx.server.info.name]

    def typed_by_position(typed: str, /, ctx: Context[Any]) -> list[str]:
        return [typed, ctx.server.info.name]

    def all_three(ctx: Context[Any], typed: str, others: Any) -> list[str]:
        return [typed, ctx.server.info.name, *others]

    assert (await complete_quay(Complete(both), "n", {"ship": "Mary"}))["values"] == ["n", "Mary"]
    assert (await complete_quay(Complete(both), "n"))["values"] == ["n"]
    assert (await complete_quay(Complete(with_context), "n"))["values"] == ["n", "s"]
    assert (await complete_quay(Complete(context_first), "n"))["values"] == ["n", "s"]
    assert (await complete_quay(Complete(typed_by_position), "n"))["values"] == ["n", "s"]
    assert (await complete_quay(Complete(all_three), "n", {"ship": "Mary"}))["values"] == ["n", "s", "ship"]
    assert (await complete_quay(Complete(lambda *arguments: [str(len(arguments))])))["values"] == ["1"]
    assert (await complete_quay(Complete(lambda typed: None)))["values"] == []
    assert (await complete_quay(Complete(lambda typed: (5, "x"))))["values"] == ["5", "x"]


@pytest.mark.parametrize("values", ["text", b"bytes", 5])
async def test_a_completer_that_returns_no_list_is_an_internal_error(values: Any) -> None:
    assert (await complete_quay(Complete(lambda typed: values)))["code"] == -32603


def test_a_completer_with_other_parameters_or_of_another_type_is_refused() -> None:
    def none() -> list[str]:
        return []

    def three(a: str, b: Any, c: int) -> list[str]:
        return []

    def keyword_only(*, typed: str) -> list[str]:
        return []

    def also_keyword_only(typed: str, *, limit: int) -> list[str]:
        return []

    for function in (none, three, keyword_only, also_keyword_only, dict):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\) cannot complete: it must take"):
            Complete(function)
    for values in ("text", 5, None, {"a"}):
        with pytest.raises(TypeError, match="takes a function or a list of strings"):
            Complete(values)  # type: ignore[arg-type]
    Complete(lambda a, b, c=1: [])
    Complete(("a", "b"))


class RowSource(Source):
    templates = (t.ResourceTemplate(uri_template="row://{n}", name="row"),)

    def matches(self, uri: str) -> bool:
        return uri.startswith("row:")

    def complete(self, template: str, argument: str, value: str, context: Any) -> list[str]:
        return [template, argument, value, *context]


async def test_each_reference_is_completed_by_its_prompt_source_or_template() -> None:
    server = Server("s")
    server.include(RowSource())
    server.resources.add("a:static", lambda: "x")
    server.resources.add("a:{x}/{y}", lambda x, y: x)

    def ref(uri: str) -> dict[str, str]:
        return {"type": "ref/resource", "uri": uri}

    assert (await request_completion(server, ref("row://{n}"), "n", "1", {"m": "2"}))["values"] == [
        "row://{n}",
        "n",
        "1",
        "m",
    ]
    assert (await request_completion(server, ref("a:{x}/{y}"), "x", ""))["values"] == []
    unknown_variable = await request_completion(server, ref("a:{x}/{y}"), "z", "")
    assert unknown_variable == {"code": -32602, "message": "There is no such argument: one of x, y was expected."}
    static = await request_completion(server, ref("a:static"), "x", "")
    assert static == {"code": -32602, "message": "This resource has no variables."}
    assert "There is no such resource template" in (await request_completion(server, ref("b:{x}"), "x", ""))["message"]
    assert (await request_completion(server, {"type": "ref/prompt", "name": "none"}, "x", ""))["code"] == -32602


async def test_a_plain_completer_gets_the_context_of_a_plain_function() -> None:
    """A bug: its calls of methods that must be awaited returned coroutines that nobody awaited."""

    def quays(typed: str, ctx: Context) -> list[str]:
        ctx.roots()
        return []

    assert "internal" in (await complete_quay(Complete(quays)))["message"].lower()


class Rooms(Source):
    """A source with a template of 200 rooms. It completes 101 of them, as many as a source may return."""

    name = "rooms"
    templates = (t.ResourceTemplate(uri_template="room:{number}", name="rooms"),)

    def matches(self, uri: str) -> bool:
        return uri.startswith("room:")

    def complete(self, template: str, argument: str, value: str, context: Any) -> Any:
        return [f"{number:03}" for number in range(101)]


async def test_values_that_a_caller_may_not_know_leave_no_total_if_the_source_may_have_more() -> None:
    """A bug: the shown values of the first 101 were called all."""
    server = Server("s", policy=Policy(allow=[Rule(who="anyone", what="room:05*")]))
    server.add_source(Rooms())
    ref = {"type": "ref/resource", "uri": "room:{number}"}
    shown = await request_completion(server, ref, "number", "")
    assert shown == {"values": [f"{number:03}" for number in range(50, 60)]}


async def test_shown_values_over_the_limit_have_more_although_others_are_hidden() -> None:
    """A bug: if a completer returned a `Completion`, hidden values hid `hasMore` too."""
    server = Server("s", policy=Policy(allow=[Rule(who="anyone", what="room:1*")]))

    @server.resource("room:{number}")
    def room(
        number: Annotated[str, Complete(lambda typed: t.Completion(values=[str(n) for n in range(1300)], total=1300))],
    ) -> str:
        return number

    shown = await request_completion(server, {"type": "ref/resource", "uri": "room:{number}"}, "number", "")
    assert (len(shown["values"]), shown["hasMore"], "total" in shown) == (100, True, False)


async def test_a_template_that_a_source_sets_while_it_starts_can_be_completed() -> None:
    """A bug: a client that knew the template from before a restart was told that it does not exist."""
    released = asyncio.Event()

    class LearningSource(Source):
        def matches(self, uri: str) -> bool:
            return False

        async def start(self) -> None:
            await released.wait()
            self.templates = (t.ResourceTemplate(uri_template="row://{n}", name="row"),)

        async def complete(self, template: str, argument: str, value: str, context: Any) -> list[str]:
            return ["1"]

    server = Server("s")
    server.include(LearningSource())
    await server.start()
    completing = asyncio.ensure_future(
        request_completion(server, {"type": "ref/resource", "uri": "row://{n}"}, "n", "")
    )
    await asyncio.sleep(0)
    released.set()
    assert (await completing)["values"] == ["1"]
    await server.close()
