"""What the chat shows at the terminal."""

from __future__ import annotations

from wharfinger import types as t
from wharfinger.chat.chat_display import ARGUMENT_CHARACTERS, call_text


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
