"""What the chat shows at the terminal."""

from __future__ import annotations

from io import StringIO

from wharfinger import types as t
from wharfinger.chat.chat_display import ARGUMENT_CHARACTERS, NAME_CHARACTERS, TerminalDisplay, call_text


def test_a_call_is_shown_as_one_short_line() -> None:
    call = t.ToolUseContent(id="1", name="write", input={"path": "a.txt", "text": "x" * ARGUMENT_CHARACTERS})
    line = call_text(call)
    assert line.startswith('write(path="a.txt", text="xxx')
    assert line.endswith("xxx… (421 characters))")


def test_a_secret_is_hidden_even_if_the_line_is_cut_in_it() -> None:
    """A bug: a quoted value without its closing quote did not look like a secret."""
    for length in (7, ARGUMENT_CHARACTERS):
        call = t.ToolUseContent(id="1", name="log_in", input={"password": "h" * length})
        assert call_text(call) == "log_in(password=***)"


def test_a_long_invented_name_of_a_tool_is_shortened() -> None:
    err = StringIO()
    display = TerminalDisplay(StringIO(), err)
    call = t.ToolUseContent(id="1", name="x" * 10_000, input={})
    display.call(call)
    display.result(call, t.ToolResultContent(tool_use_id="1", content=[]))
    name = "x" * NAME_CHARACTERS + "…"
    assert err.getvalue() == f"→ {name}()\n← {name}: no content\n"
