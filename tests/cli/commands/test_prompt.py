"""`wharfinger prompt` prints the messages of a prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import RunCli, Terminal


def test_the_messages_of_a_prompt_are_printed(run_cli: RunCli, harbour_url: str, tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("soon")
    code, out, err = run_cli("prompt", harbour_url, "briefing", "vessel=mary", f"notes=@{tmp_path / 'n.txt'}")
    assert (code, err) == (0, "")
    assert out == "[user]\nBrief me on mary.\x1b[31msoon\n"  # text is not escaped in a pipe
    result = json.loads(run_cli("prompt", "--json", harbour_url, "briefing", "vessel=mary")[1])
    assert result["messages"][0]["role"] == "user"


def test_an_invalid_prompt_is_refused_with_a_short_error(run_cli: RunCli, harbour_url: str) -> None:
    for args, code in (
        (["nothing"], 1),
        (["briefing"], 1),
        (["briefing", "vessel"], 2),
        (["briefing", "vessel:=1"], 2),
        (["briefing", "vessel=a", "vessel=b"], 2),
        ([], 2),
    ):
        exit_code, out, err = run_cli("prompt", harbour_url, *args)
        assert (exit_code, out) == (code, "")
        assert err.count("\n") <= 2


def test_no_escape_sequence_of_a_prompt_reaches_a_terminal(
    terminal: Callable[..., Terminal], harbour_file: Path
) -> None:
    session = terminal("prompt", str(harbour_file), "briefing", "vessel=mary")
    assert session.wait_for_exit() == 0
    assert "\x1b" not in session.output
