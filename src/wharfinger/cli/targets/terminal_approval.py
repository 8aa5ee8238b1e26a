"""Asks at the terminal whether a tool may run, and whether a server may ask the model."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from wharfinger import types as t
from wharfinger.cli.targets.terminal_forms import TerminalForms
from wharfinger.content.redaction import redacted_text
from wharfinger.content.text import printable

if TYPE_CHECKING:
    from wharfinger.host import ApprovalRequest
    from wharfinger.host.questions import SamplingReview

__all__ = ["SamplingApproval", "TerminalApproval"]

ARGUMENT_CHARACTERS = 4_000
"""Maximum number of characters that are shown of the arguments, or of one message."""
NAME_CHARACTERS = 100
PLAIN_NAME = re.compile(r"[A-Za-z0-9_./-]{1,100}").fullmatch
ANSWERS: dict[str, bool | Literal["always", "never"]] = {
    "y": True,
    "yes": True,
    "n": False,
    "no": False,
    "a": "always",
    "always": "always",
    "never": "never",
}
PROMPT = "Run it? y(es), n(o), a(lways), never> "


class TerminalApproval:
    """Approves tool calls. If `mode` is "ask", asks about every tool; if "read-only", about tools that may write.

    Other tools run without a question. Without a terminal, a tool that needs a question does not run.
    """

    def __init__(self, forms: TerminalForms, mode: str, report_refusal: Callable[[str], object]) -> None:
        """`report_refusal` is called with a line for each call that is refused without a terminal."""
        self._forms = forms
        self._mode = mode
        self._report_refusal = report_refusal

    async def __call__(self, request: ApprovalRequest) -> bool | Literal["always", "never"]:
        """Return whether the tool may run this time, or the answer for this and all later calls."""
        if self._mode == "read-only" and request.read_only:
            return True
        if not self._forms.has_terminal:
            self._report_refusal(
                f"{request.public_name} does not run: there is no terminal to ask at. Allow tools that only read with"
                " --approve read-only and --trust SERVER, or every tool with --approve never."
            )
            return False
        name = shown_name(request.tool.name)
        remark = ", which only reads" if request.read_only else ""
        if request.changed_since:
            remark = ", which has CHANGED since you allowed it"
        lines = [f"The model wants to run {name} of {request.server}{remark}:"]
        lines += arguments_lines(request.arguments)
        while True:
            typed = await self._forms.choose(lines, PROMPT)
            if not typed:
                return False
            if typed in ANSWERS:
                return ANSWERS[typed]
            lines = ["Type y, n, a or never."]


def shown_name(name: str) -> str:
    """Return the name that the server gives a tool, in quotes if it could be read as a part of the question."""
    return name if PLAIN_NAME(name) else repr(printable(name, NAME_CHARACTERS))


class SamplingApproval:
    """Shows a person what a server asks the model, and then the model's answer. Nothing is sent before they agree.

    The person can change both.
    """

    def __init__(self, forms: TerminalForms, mode: str, report_refusal: Callable[[str], object]) -> None:
        """Approve without a question if `mode` is "never".

        `report_refusal` is called with a line for each request that is refused without a terminal.
        """
        self._forms = forms
        self._mode = mode
        self._report_refusal = report_refusal

    async def __call__(self, review: SamplingReview) -> bool | t.CreateMessageRequestParams | t.CreateMessageResult:
        """Return whether to continue, or the changed request or result."""
        if self._mode == "never":
            return True
        if not self._forms.has_terminal:
            self._report_refusal(f"{review.server} may not ask the model: there is no terminal to ask you at.")
            return False
        if review.result is None:
            lines, subject = request_lines(review.request), "question"
            head = f"{review.server} wants to ask the model, for at most {review.request.max_tokens:,} tokens:"
        else:
            lines, subject = text_lines("answer", text_of(review.result.content)), "answer"
            head = f"{review.server} would get this answer from the model:"
        lines = [head, *lines]
        while True:
            typed = await self._forms.choose(lines, "Send it? y(es), n(o), e(dit)> ")
            if typed in ("y", "yes"):
                return True
            if typed in ("", "n", "no"):
                return False
            if typed in ("e", "edit"):
                text = await self._forms.choose([f"Type the {subject} in one line."], "> ", lower=False)
                return with_text(review, text) if text else False
            lines = ["Type y, n or e."]


def with_text(review: SamplingReview, text: str) -> t.CreateMessageRequestParams | t.CreateMessageResult:
    """Return the request with another last message, or the result with another text."""
    content = t.TextContent(text=text)
    if review.result is not None:
        return msgspec.structs.replace(review.result, content=content)
    *earlier, last = review.request.messages or [t.SamplingMessage(role="user", content=content)]
    return msgspec.structs.replace(review.request, messages=[*earlier, msgspec.structs.replace(last, content=content)])


def request_lines(request: t.CreateMessageRequestParams) -> list[str]:
    """Return the system prompt and the messages of a request as lines."""
    lines = text_lines("system", request.system_prompt) if isinstance(request.system_prompt, str) else []
    for message in request.messages:
        lines += text_lines(message.role, text_of(message.content))
    return lines


def text_lines(who: str, text: str) -> list[str]:
    """Return the lines of a text, each after its speaker. The text is cut after `ARGUMENT_CHARACTERS`."""
    cut = f" … (cut: {len(text):,} characters)" if len(text) > ARGUMENT_CHARACTERS else ""
    return [f"  {who}: {line}" for line in (text[:ARGUMENT_CHARACTERS] + cut).splitlines() or [""]]


def text_of(content: object) -> str:
    """Return the text of one or several blocks. A block without a text is shown as its type in brackets."""
    blocks = cast("list[object]", content) if isinstance(content, list) else [content]
    return "\n".join(
        block.text if isinstance(block, t.TextContent) else f"[{type(block).__name__}]" for block in blocks
    )


def arguments_lines(arguments: Any) -> list[str]:
    """Return a line for each argument; texts that look like passwords are replaced."""
    if not isinstance(arguments, dict) or not arguments:
        return ["  (no arguments)"]
    lines: list[str] = []
    remaining = ARGUMENT_CHARACTERS
    for name, value in cast("dict[str, Any]", arguments).items():
        line = redacted_text(f"{name}: {msgspec.json.encode(value).decode()}")
        if len(line) > remaining:
            lines.append(f"  {line[:remaining]}… (cut: the arguments are longer than what is shown here)")
            break
        lines.append(f"  {line}")
        remaining -= len(line)
    return lines
