"""Completion: completers of arguments, the number of values, and invalid completers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.server.driving import ask, looped
from wharfinger import types as t
from wharfinger.server.app import Server
from wharfinger.server.context import Context
from wharfinger.server.signature.complete import Complete
from wharfinger.source import Source
from wharfinger.sources import files


async def completed(
    complete: Any, typed: str = "", others: dict[str, str] | None = None, *, name: str = "quay", uri: str = ""
) -> Any:
    """Return completions of `quay` of a prompt whose other argument is `ship`."""
    server = Server("s")

    @server.prompt
    def moor(quay: Annotated[str, complete], ship: str = "") -> str:
        return quay

    return await answer(server, {"type": "ref/prompt", "name": "moor"}, name, typed, others)


async def answer(server: Server, ref: Any, name: str, typed: str, others: dict[str, str] | None = None) -> Any:
    params: dict[str, Any] = {"ref": ref, "argument": {"name": name, "value": typed}}
    if others is not None:
        params["context"] = {"arguments": others}
    found = await ask(server, "completion/complete", params)
    return found["result"]["completion"] if "result" in found else found["error"]


@pytest.mark.parametrize(("number", "more"), [(0, False), (99, False), (100, False), (101, True), (250, True)])
@looped
async def test_a_hundred_values_and_their_total_are_sent(number: int, more: bool) -> None:
    values = [f"q{n}" for n in range(number)]
    expected = {"values": values[:100], "total": number, "hasMore": more}
    assert await completed(Complete(values)) == expected
    assert await completed(Complete(lambda typed: values)) == expected
    own = await completed(Complete(lambda typed: t.Completion(values=values, total=7)))
    assert own["values"] == values[:100]
    assert own["total"] == 7
    assert own.get("hasMore") is (True if more else None)


@looped
async def test_a_returned_completion_is_sent_unchanged() -> None:
    own = await completed(Complete(lambda typed: t.Completion(values=["a"], total=9, has_more=True)))
    assert own == {"values": ["a"], "total": 9, "hasMore": True}


@pytest.mark.parametrize(("number", "more"), [(99, False), (100, False), (101, True)])
@looped
async def test_a_completion_of_a_folder_reports_whether_it_has_more_paths(
    tmp_path: Path, number: int, more: bool
) -> None:
    for at in range(number):
        (tmp_path / f"quay{at:03}.txt").touch()
    server = Server("s")
    folder = files(tmp_path, label="quays")
    server.include(folder)
    found = await answer(server, {"type": "ref/resource", "uri": folder.template}, "path", "quay")
    assert found["values"] == [f"quay{at:03}.txt" for at in range(min(number, 100))]
    assert (found["hasMore"], found.get("total")) == (more, None if more else number)


@looped
async def test_fixed_values_are_filtered_by_the_typed_prefix() -> None:
    fixed = Complete(["north", "nose", "south"])
    assert (await completed(fixed, "no"))["values"] == ["north", "nose"]
    assert (await completed(fixed, "x")) == {"values": [], "total": 0, "hasMore": False}


@looped
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

    assert (await completed(Complete(both), "n", {"ship": "Mary"}))["values"] == ["n", "Mary"]
    assert (await completed(Complete(both), "n"))["values"] == ["n"]
    assert (await completed(Complete(with_context), "n"))["values"] == ["n", "s"]
    assert (await completed(Complete(context_first), "n"))["values"] == ["n", "s"]
    assert (await completed(Complete(typed_by_position), "n"))["values"] == ["n", "s"]
    assert (await completed(Complete(all_three), "n", {"ship": "Mary"}))["values"] == ["n", "s", "ship"]
    assert (await completed(Complete(lambda *given: [str(len(given))])))["values"] == ["1"]
    assert (await completed(Complete(lambda typed: None)))["values"] == []
    assert (await completed(Complete(lambda typed: (5, "x"))))["values"] == ["5", "x"]


@pytest.mark.parametrize("values", ["text", b"bytes", 5])
@looped
async def test_a_completer_that_returns_no_list_is_an_internal_error(values: Any) -> None:
    assert (await completed(Complete(lambda typed: values)))["code"] == -32603


def test_a_function_that_cannot_complete_is_refused() -> None:
    def none() -> list[str]:
        return []

    def three(a: str, b: Any, c: int) -> list[str]:
        return []

    def named(*, typed: str) -> list[str]:
        return []

    for function in (none, three, named):
        with pytest.raises(TypeError, match=rf"{function.__name__}\(\) cannot complete: it must take"):
            Complete(function)
    for values in ("text", 5, None, {"a"}):
        with pytest.raises(TypeError, match="takes a function or a list of texts"):
            Complete(values)  # type: ignore[arg-type]
    Complete(lambda a, b, c=1: [])
    Complete(("a", "b"))


class Rows(Source):
    templates = (t.ResourceTemplate(uri_template="row://{n}", name="row"),)

    def matches(self, uri: str) -> bool:
        return uri.startswith("row:")

    def complete(self, template: str, argument: str, value: str, context: Any) -> list[str]:
        return [template, argument, value, *context]


@looped
async def test_each_reference_is_completed_by_its_own_feature() -> None:
    server = Server("s")
    server.include(Rows())
    server.resources.add("a:static", lambda: "x")
    server.resources.add("a:{x}/{y}", lambda x, y: x)

    def ref(uri: str) -> dict[str, str]:
        return {"type": "ref/resource", "uri": uri}

    assert (await answer(server, ref("row://{n}"), "n", "1", {"m": "2"}))["values"] == ["row://{n}", "n", "1", "m"]
    assert (await answer(server, ref("a:{x}/{y}"), "x", ""))["values"] == []
    wrong = await answer(server, ref("a:{x}/{y}"), "z", "")
    assert wrong == {"code": -32602, "message": "There is no such argument: one of x, y was expected."}
    static = await answer(server, ref("a:static"), "x", "")
    assert static == {"code": -32602, "message": "This resource has no variables."}
    assert "There is no such resource template" in (await answer(server, ref("b:{x}"), "x", ""))["message"]
    assert (await answer(server, {"type": "ref/prompt", "name": "none"}, "x", ""))["code"] == -32602
