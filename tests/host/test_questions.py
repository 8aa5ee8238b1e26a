"""Input requests for forms, URLs, sampling and roots reach the application with the name of their server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.waiting import wait_until_async
from wharfinger import Context, Host, Server
from wharfinger import types as t
from wharfinger.errors import ToolError
from wharfinger.host import Elicitation, SamplingRequest, SamplingReview, questions
from wharfinger.record import AuditLog

ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


def input_server() -> Server:
    server = Server("asking")

    @server.tool
    async def form(ctx: Context) -> str:
        return str(await ctx.elicit("Which berth?", str))

    @server.tool
    async def page(ctx: Context) -> str:
        return str(await ctx.elicit_url("Sign in", "https://harbour.example/in"))

    @server.tool
    async def sample(ctx: Context) -> str:
        return str((await ctx.sample("How deep?")).text)

    @server.tool
    async def roots(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    return server


@ERAS
async def test_forms_and_url_elicitations_have_the_name_of_their_server(revision: str, tmp_path: Path) -> None:
    async def form(question: t.ElicitRequestParams) -> dict[str, str]:
        assert isinstance(question, Elicitation)
        assert question.requested_schema is not msgspec.UNSET
        (name,) = question.requested_schema.properties
        return {name: f"{question.server}: {question.message}"}

    async def consent(question: t.ElicitRequestParams) -> bool:
        assert isinstance(question, Elicitation)
        return (question.server, question.url) == ("b", "https://harbour.example/in")

    servers = {"a": input_server(), "b": input_server()}
    audit = AuditLog(tmp_path / "audit.jsonl")
    async with Host(servers, elicitation=form, consent=consent, revision=revision, audit=audit) as host:
        assert (await host.call_tool("a_form")).data == "a: Which berth?"
        assert (await host.call_tool("b_form")).data == "b: Which berth?"
        assert (await host.call_tool("b_page")).data == "True"
        with pytest.raises(ToolError, match="declined"):
            await host.call_tool("a_page")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    records = [(line["outcome"], line["server"]) for line in lines if line["action"] == "elicit"]
    assert records == [("allowed", "a"), ("allowed", "b"), ("allowed", "b"), ("refused", "a")]
    assert "Which berth" not in (tmp_path / "audit.jsonl").read_text()


@ERAS
async def test_a_review_changes_the_request_and_the_result_of_sampling(revision: str) -> None:
    async def sample(request: t.CreateMessageRequestParams) -> str:
        assert isinstance(request, SamplingRequest)
        return f"{request.server} {request.max_tokens}: 12 m"

    async def review(sampling: SamplingReview) -> Any:
        if sampling.result is None:
            return msgspec.structs.replace(sampling.request, max_tokens=7)
        assert sampling.request.max_tokens == 7
        assert isinstance(sampling.result.content, t.TextContent)
        text = t.TextContent(text=sampling.result.content.text + ", at low tide")
        return msgspec.structs.replace(sampling.result, content=text)

    async with Host({"it": input_server()}, sampling=sample, review=review, revision=revision) as host:
        assert (await host.call_tool("sample")).data == "it 7: 12 m, at low tide"
    async with Host({"it": input_server()}, sampling=sample, revision=revision) as host:
        assert (await host.call_tool("sample")).data == "it 1024: 12 m"


async def test_a_request_that_a_review_replaces_has_the_name_of_its_server() -> None:
    async def sample(request: t.CreateMessageRequestParams) -> str:
        assert isinstance(request, SamplingRequest)
        return f"{request.server} {request.max_tokens}"

    async def review(sampling: SamplingReview) -> Any:
        if sampling.result is None:
            return t.CreateMessageRequestParams(messages=sampling.request.messages, max_tokens=7)
        assert sampling.request.server == "it"
        return True

    async with Host({"it": input_server()}, sampling=sample, review=review) as host:
        assert (await host.call_tool("sample")).data == "it 7"


@ERAS
@pytest.mark.parametrize("stage", ["before", "after"])
async def test_a_review_refuses_the_request_or_the_result_of_sampling(revision: str, stage: str) -> None:
    requests: list[Any] = []

    async def sample(request: t.CreateMessageRequestParams) -> str:
        requests.append(request)
        return "12 m"

    async def review(sampling: SamplingReview) -> bool:
        return (sampling.result is None) is (stage == "after")

    async with Host({"it": input_server()}, sampling=sample, review=review, revision=revision) as host:
        with pytest.raises(Exception, match=r"refused|declined") as error:
            await host.call_tool("sample")
        assert "12 m" not in str(error.value)
    assert len(requests) == (stage == "after")


@ERAS
async def test_the_roots_of_the_host_are_sent_to_its_servers(revision: str, tmp_path: Path) -> None:
    async with Host({"it": input_server()}, roots=[tmp_path], revision=revision) as host:
        assert (await host.call_tool("roots")).data == [tmp_path.as_uri()]


async def test_input_requests_over_the_limit_per_minute_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "QUESTIONS_PER_MINUTE", 3)
    messages: list[str] = []

    async def form(question: t.ElicitRequestParams) -> Any:
        messages.append(question.message)
        assert question.requested_schema is not msgspec.UNSET
        return dict.fromkeys(question.requested_schema.properties, "x")

    async with Host({"it": input_server()}, elicitation=form) as host:
        for _ in range(3):
            await host.call_tool("form")
        with pytest.raises(ToolError, match="cancelled"):
            await host.call_tool("form")
    assert len(messages) == 3


async def test_a_handler_that_returns_a_future_is_not_called_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug: only a coroutine was not started. The form of another function was shown to the user without a limit."""
    monkeypatch.setattr(questions, "QUESTIONS_PER_MINUTE", 1)
    messages: list[str] = []

    def form(question: t.ElicitRequestParams) -> asyncio.Future[Any]:
        messages.append(question.message)
        assert question.requested_schema is not msgspec.UNSET
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(dict.fromkeys(question.requested_schema.properties, "x"))
        return answer

    async with Host({"it": input_server()}, elicitation=form) as host:
        await host.call_tool("form")
        with pytest.raises(ToolError, match="cancelled"):
            await host.call_tool("form")
    assert len(messages) == 1


async def test_open_input_requests_over_the_limit_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MAX_OPEN_QUESTIONS", 2)

    answered = asyncio.Event()
    opened = 0

    async def form(question: t.ElicitRequestParams) -> Any:
        nonlocal opened
        opened += 1
        await answered.wait()
        assert question.requested_schema is not msgspec.UNSET
        return dict.fromkeys(question.requested_schema.properties, "x")

    async with Host({"it": input_server()}, elicitation=form) as host:
        await host.upstreams.tools()
        calls = [asyncio.ensure_future(host.call_tool("form")) for _ in range(2)]
        await wait_until_async(lambda: opened == 2, "both questions are asked")
        with pytest.raises(ToolError, match="cancelled"):
            await host.call_tool("form")
        answered.set()
        await asyncio.gather(*calls)


async def test_an_input_request_without_an_answer_in_time_is_cancelled() -> None:
    async def form(question: t.ElicitRequestParams) -> Any:
        await asyncio.Event().wait()

    async with Host({"it": input_server()}, elicitation=form, answer_timeout=0.05) as host:
        with pytest.raises(ToolError, match="cancelled"):
            await host.call_tool("form")


async def test_a_timeout_in_a_handler_is_not_taken_for_a_missing_answer() -> None:
    async def sampling(request: t.CreateMessageRequestParams) -> str:
        raise TimeoutError("the model is slow")

    async with Host({"it": input_server()}, sampling=sampling) as host:
        with pytest.raises(TimeoutError, match="the model is slow"):
            await host.call_tool("sample")
