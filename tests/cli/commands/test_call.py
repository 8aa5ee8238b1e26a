"""`call` shows progress, logs and forms at a terminal, and keeps stdout for the result."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import RunCli, Terminal
from wharfinger.cli import main
from wharfinger.cli.commands.call import show
from wharfinger.types import CallToolResult, TextContent

SERVER = """
from dataclasses import dataclass
from typing import Annotated, Literal

from wharfinger import Context, Server
from wharfinger.types import AudioContent, ImageContent, TextContent

server = Server("harbour")


@dataclass
class Wish:
    quay: Literal["north", "south"]
    tugs: int = 1


@server.tool
async def berth(ship: str, ctx: Context) -> dict[str, str | int]:
    wish = await ctx.elicit(f"Which quay for {ship}?\\x1b[31m", Wish, or_none=True)
    return {"ship": ship, "quay": wish.quay if wish else "none", "tugs": wish.tugs if wish else 0}


@server.tool
async def pay(ctx: Context) -> str:
    await ctx.elicit_url("Pay the dues", "http://bank.test@pay.test/dues")
    return "paid"


@server.tool
async def load(ctx: Context) -> str:
    await ctx.report_progress(1, 4, "first hold")
    await ctx.info("the crane is slow")
    await ctx.report_progress(4, 4)
    return "loaded"


@server.tool
def pictures() -> list[TextContent | ImageContent | AudioContent]:
    image = ImageContent(data=b"\\x89PNG1", mime_type="image/png")
    return [TextContent(text="two"), image, ImageContent(data=b"22", mime_type="image/png")]


@server.tool
def echo(a: int, b: str = "") -> dict[str, str | int]:
    return {"a": a, "b": b}

"""


@pytest.fixture
def harbour(tmp_path: Path) -> str:
    """A file with a server."""
    file = tmp_path / "harbour.py"
    file.write_text(SERVER)
    return str(file)


Start = Callable[..., subprocess.Popen[str]]
StartTerminal = Callable[..., Terminal]
ERAS = ["2025-11-25", "2026-07-28"]


def test_arguments_come_from_a_file_or_stdin_and_words_take_precedence(
    start: Start, harbour: str, tmp_path: Path
) -> None:
    (tmp_path / "given.json").write_text('{"a": 1, "b": "file"}')
    out, _ = start("call", harbour, "echo", "--input", "given.json", "b=word").communicate(timeout=20)
    assert json.loads(out) == {"a": 1, "b": "word"}
    out, _ = start("call", harbour, "echo", "--input", "-").communicate('{"a": 2}', timeout=20)
    assert json.loads(out) == {"a": 2, "b": ""}


@pytest.mark.parametrize(
    ("text", "expected"), [("{", "is not JSON"), ("[1]", "is not a JSON object"), (None, "No such file")]
)
def test_invalid_input_is_a_usage_error(
    text: str | None, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "given.json"
    if text is not None:
        file.write_text(text)
    assert main(["call", "http://x/", "echo", "--input", str(file)]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("revision", ERAS)
def test_a_form_is_filled_in_field_by_field_until_it_is_valid(
    terminal: StartTerminal, harbour: str, revision: str
) -> None:
    session = terminal("call", "--revision", revision, harbour, "berth", "ship=Mary", env={"NO_COLOR": "1"})
    session.wait_for("Which quay for Mary?\\x1b[31m")
    session.wait_for("quay> ")
    session.press("west\n")
    session.wait_for("not one of the choices")
    session.press("1\n")
    session.wait_for("tugs [1]> ")
    session.press("x\n")
    session.wait_for("whole number")
    session.press("\n")
    assert session.wait_for_exit() == 0
    assert '{"ship":"Mary","quay":"north","tugs":1}' in session.output


@pytest.mark.parametrize("revision", ERAS)
def test_ctrl_d_declines_a_form(terminal: StartTerminal, harbour: str, revision: str) -> None:
    session = terminal("call", "--revision", revision, harbour, "berth", "ship=Mary", env={"NO_COLOR": "1"})
    session.wait_for("quay> ")
    session.press("\x04")
    assert session.wait_for_exit() == 0
    assert "Declined." in session.output
    assert '"quay":"none"' in session.output


def test_ctrl_c_at_a_form_ends_with_130(terminal: StartTerminal, harbour: str) -> None:
    session = terminal("call", harbour, "berth", "ship=Mary")
    session.wait_for("quay> ")
    session.press("\x03")
    assert session.wait_for_exit() == 130
    assert "Traceback" not in session.output


def test_text_typed_before_a_form_does_not_answer_it(terminal: StartTerminal, harbour: str) -> None:
    """A bug: the next line that a person had typed, such as a question in a chat, was sent to the server."""
    session = terminal("call", harbour, "berth", "ship=Mary", env={"NO_COLOR": "1"})
    session.press("south\n7\n")
    session.wait_for("quay> ")
    session.press("north\n")
    session.wait_for("tugs [1]> ")
    session.press("\n")
    assert session.wait_for_exit() == 0
    assert '{"ship":"Mary","quay":"north","tugs":1}' in session.output


@pytest.mark.parametrize("revision", ERAS)
@pytest.mark.parametrize(("keys", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_url_elicitation_shows_the_host_and_needs_consent(
    terminal: StartTerminal, harbour: str, revision: str, keys: str, code: int
) -> None:
    session = terminal("call", "--revision", revision, harbour, "pay", env={"NO_COLOR": "1"})
    session.wait_for("n declines> ")
    assert "Host: pay.test  (not encrypted)\n" in session.output
    assert "Page: http://bank.test@pay.test/dues\n" in session.output
    session.press(keys)
    assert session.wait_for_exit() == code
    assert ("paid" in session.output) == (code == 0)


def test_without_a_terminal_a_form_is_declined_with_a_message(start: Start, harbour: str) -> None:
    process = start("call", harbour, "berth", "ship=Mary")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, json.loads(out)["quay"]) == (0, "none")
    assert err.count("\n") == 1
    assert "there is no terminal to answer at" in err


@pytest.mark.parametrize("revision", ERAS)
def test_progress_is_a_bar_at_a_terminal_that_is_removed_at_the_end(
    terminal: StartTerminal, harbour: str, revision: str
) -> None:
    session = terminal("call", "--revision", revision, harbour, "load", env={"NO_COLOR": "1"})
    assert session.wait_for_exit() == 0
    assert "[######..................] 1/4 first hold" in session.output
    assert session.output.endswith("\r\x1b[Kloaded\n")
    assert "crane" not in session.output


@pytest.mark.parametrize("revision", ERAS)
def test_progress_and_logs_are_lines_on_stderr_with_v_and_nothing_without(
    start: Start, harbour: str, revision: str
) -> None:
    process = start("call", "-v", "--revision", revision, harbour, "load")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "loaded\n")
    assert "1/4 first hold\n" in err
    assert "info    the crane is slow\n" in err.replace("harbour: ", "")
    assert start("call", "--revision", revision, harbour, "load").communicate(timeout=20) == ("loaded\n", "")


def test_images_are_summarised_or_saved(start: Start, harbour: str, tmp_path: Path) -> None:
    out, err = start("call", harbour, "pictures").communicate(timeout=20)
    assert out == "two\n" + "[image/png, 5 B: -o DIR saves it, --json shows it]\n" + (
        "[image/png, 2 B: -o DIR saves it, --json shows it]\n"
    )
    assert err == ""
    out, err = start("call", "-o", "saved", harbour, "pictures").communicate(timeout=20)
    assert out == "two\n"
    assert err.splitlines() == ["Wrote saved/pictures.png (5 B).", "Wrote saved/pictures-2.png (2 B)."]
    assert (tmp_path / "saved" / "pictures.png").read_bytes() == b"\x89PNG1"


def test_structured_answers_are_in_colour_at_a_terminal(terminal: StartTerminal, harbour: str) -> None:
    pytest.importorskip("rich")
    session = terminal("call", harbour, "echo", "a:=1", env={"TERM": "xterm-256color"})
    assert session.wait_for_exit() == 0
    assert "\x1b[" in session.output


def test_call_sends_text_and_json_and_files(run_cli: RunCli, tide_url: str, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("!")
    code, out, err = run_cli("call", tide_url, "rise", "by:=0", f"note=@{note}")
    assert (code, err) == (0, "")
    assert re.fullmatch(r"\d+ m!\n", out)
    result = json.loads(run_cli("call", "--json", tide_url, "rise", "by:=0")[1])
    assert result["content"][0]["type"] == "text"


def test_a_tool_error_is_exit_code_1(run_cli: RunCli, tide_url: str) -> None:
    assert run_cli("call", tide_url, "sink") == (1, "", "wharfinger: it never sinks\n")
    code, out, err = run_cli("call", "--json", tide_url, "sink")
    assert (code, err) == (1, "")
    assert json.loads(out)["isError"] is True
    assert run_cli("call", tide_url, "no_such_tool")[0] == 1
    assert run_cli("call", tide_url, "rise")[0] == 1


def test_a_text_instead_of_a_value_is_reported_with_a_correction(run_cli: RunCli, tide_url: str) -> None:
    code, _, err = run_cli("call", tide_url, "rise", "by=3")
    assert code == 1
    assert err.splitlines()[1:] == [
        "  | by: expected an integer, got a string",
        "  | by=3 sends a text: write by:=3 for the value.",
    ]
    assert "sends a text" not in run_cli("call", tide_url, "rise", "by=much")[2]


def test_a_text_that_is_nested_too_deeply_is_printed_unchanged(capfd: pytest.CaptureFixture[str]) -> None:
    """A bug: the command ended with a RecursionError if the result had structured content too."""
    text = "[" * 100_000
    show(CallToolResult(content=[TextContent(text=text)], structured_content={"depth": 100_000}), {})
    assert capfd.readouterr().out.strip() == text
