"""The approval prompts before a tool runs or a server samples the model."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from wharfinger import types as t
from wharfinger.cli.targets.terminal_approval import (
    ARGUMENT_CHARACTERS,
    SamplingApproval,
    TerminalApproval,
    arguments_lines,
    request_lines,
    shown_name,
    with_text,
)
from wharfinger.cli.targets.terminal_forms import TerminalForms
from wharfinger.host import ApprovalRequest
from wharfinger.host.questions import SamplingRequest, SamplingReview

TOOL = t.Tool(name="rise", input_schema={"type": "object"})


def approval(*, read_only: bool = False) -> ApprovalRequest:
    return ApprovalRequest(
        server="harbour",
        tool=TOOL,
        public_name="harbour_rise",
        arguments={},
        read_only=read_only,
        changed_since=False,
    )


def request(text: str = "A poem") -> SamplingRequest:
    message = t.SamplingMessage(role="user", content=t.TextContent(text=text))
    return SamplingRequest(messages=[message], max_tokens=10, system_prompt="Be brief.", server="harbour")


@pytest.mark.parametrize(
    ("mode", "read_only", "runs"),
    [
        ("ask", True, False),
        ("ask", False, False),
        ("read-only", True, True),
        ("read-only", False, False),
    ],
)
def test_without_a_terminal_only_tools_that_need_no_approval_run(
    mode: str, read_only: bool, runs: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    ask = TerminalApproval(TerminalForms(), mode, lines.append)
    assert asyncio.run(ask(approval(read_only=read_only))) is runs
    assert [("harbour_rise does not run" in line) for line in lines] == ([] if runs else [True])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rise", "rise"),
        ("ns/rise.fast-1", "ns/rise.fast-1"),
        ("rise of docs, which only reads:", "'rise of docs, which only reads:'"),
        ("a\nRun it? y", "'a?Run it? y'"),
        ("x\x1b[2J", "'x?[2J'"),
    ],
)
def test_a_name_cannot_be_mistaken_for_part_of_the_prompt(name: str, expected: str) -> None:
    assert shown_name(name) == expected
    assert len(shown_name(name * 1_000)) <= 120


def test_arguments_are_shown_up_to_a_bound_and_without_passwords() -> None:
    assert arguments_lines(None) == arguments_lines({}) == ["  (no arguments)"]
    assert arguments_lines({"a": 1, "b": "x\ny"}) == ["  a: 1", '  b: "x\\ny"']
    assert "hunter2" not in "".join(arguments_lines({"url": "postgresql://me:hunter2@host/db"}))
    exact = arguments_lines({"a": "x" * (ARGUMENT_CHARACTERS - 5)})
    over = arguments_lines({"a": "x" * (ARGUMENT_CHARACTERS - 4)})
    assert "cut" not in exact[0] and "cut" in over[0]
    assert "cut" in arguments_lines({"a": "x" * (ARGUMENT_CHARACTERS - 10), "evil": "rm -rf /"})[-1]


def test_a_long_request_to_the_model_is_cut_and_marked() -> None:
    assert request_lines(request("one\ntwo")) == ["  system: Be brief.", "  user: one", "  user: two"]
    assert "cut" in request_lines(request("x" * (ARGUMENT_CHARACTERS + 1)))[-1]


def test_request_and_result_can_be_changed() -> None:
    review = SamplingReview(server="harbour", request=request(), result=None)
    new = with_text(review, "A song")
    assert isinstance(new, t.CreateMessageRequestParams)
    assert new.messages[-1].content == t.TextContent(text="A song")
    result = t.CreateMessageResult(model="m", role="assistant", content=t.TextContent(text="x"), stop_reason="endTurn")
    new_result = with_text(SamplingReview(server="harbour", request=request(), result=result), "y")
    assert isinstance(new_result, t.CreateMessageResult) and new_result.content == t.TextContent(text="y")


def test_a_request_without_messages_gets_one() -> None:
    empty = msgspec.structs.replace(request(), messages=[])
    new = with_text(SamplingReview(server="harbour", request=empty, result=None), "A song")
    assert isinstance(new, t.CreateMessageRequestParams)
    assert new.messages == [t.SamplingMessage(role="user", content=t.TextContent(text="A song"))]


def test_without_a_terminal_servers_ask_the_model_only_in_mode_never() -> None:
    lines: list[str] = []
    review = SamplingReview(server="harbour", request=request(), result=None)
    assert asyncio.run(SamplingApproval(TerminalForms(), "ask", lines.append)(review)) is False
    assert "harbour may not ask the model" in lines[0]
    assert asyncio.run(SamplingApproval(TerminalForms(), "never", lines.append)(review)) is True
