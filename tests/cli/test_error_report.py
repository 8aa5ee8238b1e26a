"""A failure is one line and an exit code, and its origin is shown on request."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.cli.conftest import ENVIRONMENT, RunCli
from wharfinger.cli import main
from wharfinger.cli.error_report import CommandError, report_error
from wharfinger.errors import ConnectionFailed, NotAuthorized, RequestTimeout, ResourceNotFound, ToolError


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CommandError("it did not work"), 1, "wharfinger: it did not work"),
        (ToolError("never"), 1, "wharfinger: never"),
        (ResourceNotFound("a://b"), 1, "wharfinger: Resource not found: a://b"),
        (RequestTimeout("too slow."), 1, "wharfinger: too slow. Give it more time with --timeout SECONDS."),
        (click.UsageError("wrong"), 2, "wharfinger: wrong"),
        (ConnectionFailed("no"), 3, "wharfinger: no"),
        (
            ConnectionFailed("Cannot connect to http://a/mcp."),
            3,
            "wharfinger: Cannot connect to http://a/mcp. Is the server running, and is this its address?",
        ),
        (NotAuthorized("Who?"), 4, "wharfinger: Who? Give the token with --token-env NAME."),
        (NotAuthorized("Allow it: --allow-host NAME."), 4, "wharfinger: Allow it: --allow-host NAME."),
        (FileNotFoundError(2, "No such file or directory", "/a"), 1, "wharfinger: No such file or directory: /a"),
        (TimeoutError(), 1, "wharfinger: unexpected TimeoutError (-v shows the traceback)"),
        (SystemExit("Set HARBOUR_URL."), 1, "wharfinger: Set HARBOUR_URL."),
        (ToolError("red \x1b[31m"), 1, "wharfinger: red \\x1b[31m"),
        (
            ValueError("odd"),
            1,
            "wharfinger: unexpected ValueError: odd (-v shows the traceback)",
        ),
        (
            ConnectionFailed(
                "It ended.",
                stderr="Traceback (most recent call last):\n"
                '  File "/usr/lib/python3.11/runpy.py", line 1, in run\n    go()\n'
                '  File "/home/s.py", line 3, in f\n    g(1)\n    ~^^^\nKeyError: 1',
            ),
            3,
            'wharfinger: It ended.\n  | File "/home/s.py", line 3, in f\n  |   g(1)\n  | KeyError: 1',
        ),
        (ToolError("\n".join("123456789")), 1, "wharfinger: " + "\n  | ".join("123456789")),
    ],
)
def test_a_failure_is_one_line(error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(error, level=0) == code
    assert capsys.readouterr().err == line + "\n"


@pytest.mark.skipif(sys.platform == "win32", reason="the current folder cannot be deleted")
@pytest.mark.parametrize("words", ["ls .", "ls harbour", "serve .", "run server.py", "hosts", "add cursor --project ."])
def test_a_deleted_current_folder_is_reported(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_cli: RunCli
) -> None:
    """A bug: the only words were that there is no such file or directory."""
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    code, _, error = run_cli(*words.split())
    assert code == 1
    assert error.startswith("wharfinger: The current folder was deleted: go to another one with `cd`")


@pytest.mark.parametrize(("error", "code"), [(SystemExit(), 0), (SystemExit(0), 0), (SystemExit(5), 5)])
def test_sys_exit_without_a_message_is_silent(error: SystemExit, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(error) == code
    assert not capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.exceptions.Abort()])
def test_ctrl_c_is_130_and_silent(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_error(error, level=0) == 130
    assert capsys.readouterr().err == ""


def test_the_last_output_lines_of_a_child_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    output_lines = "\n".join(str(number) for number in range(9))
    assert report_error(ConnectionFailed("It ended.", stderr=output_lines), level=0) == 3
    assert capsys.readouterr().err == "wharfinger: It ended.\n  | 4\n  | 5\n  | 6\n  | 7\n  | 8\n"


def test_a_deliberate_error_has_a_traceback_only_at_the_second_level(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        raise ToolError("never")
    except ToolError as error:
        assert report_error(error, level=1) == 1
        assert capsys.readouterr().err == "wharfinger: never\n"
        assert report_error(error, level=2) == 1
        assert capsys.readouterr().err.startswith("wharfinger: never\nTraceback")


def test_v_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        try:
            raise RuntimeError("the reason")
        except RuntimeError as error:
            raise CommandError("it did not work") from error
    except CommandError as failed:
        assert report_error(failed, level=1) == 1
    reported = capsys.readouterr().err
    assert "RuntimeError: the reason" in reported
    assert reported.startswith("wharfinger: it did not work\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls", "--", "no-such-program", "--password", "hunter2"],
        ["ls", "--", sys.executable, "-c", "raise SystemExit(3)", "--api-key=hunter2"],
        ["ls", "http://mary:hunter2@127.0.0.1:9/mcp"],
        ["ls", "http://127.0.0.1:9/mcp?token=hunter2"],
        ["ls", "--", sys.executable, "-c", "import sys; sys.exit('PASSWORD=' + sys.argv[1])", "--token", "hunter2"],
        ["doctor", "--", sys.executable, "-c", "print('hello')", "Authorization: Bearer hunter2"],
    ],
)
def test_no_message_repeats_a_password(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) != 0
    reported = capfd.readouterr()
    assert reported.err.startswith("wharfinger: ")
    assert "hunter2" not in reported.out + reported.err


def test_a_closed_output_is_not_an_error(tide_url: str) -> None:
    completed = subprocess.run(
        f"{sys.executable} -m wharfinger ls --json {tide_url} | head -c 1",
        shell=True,
        capture_output=True,
        env=ENVIRONMENT,
    )
    assert (completed.stdout, completed.stderr) == (b"{", b"")


@pytest.mark.skipif(sys.platform == "win32", reason="the shell of Windows cannot close a stream")
@pytest.mark.parametrize(("words", "code"), [("ls charts", 0), ("ls nowhere", 2)])
def test_a_command_runs_if_its_standard_streams_are_closed(words: str, code: int, charts: Path, tmp_path: Path) -> None:
    (tmp_path / "charts").symlink_to(charts)
    command = f"exec {sys.executable} -m wharfinger {words} <&- >&- 2>&-"
    assert subprocess.run(command, shell=True, cwd=tmp_path, env=ENVIRONMENT).returncode == code


def test_an_eof_error_in_the_code_of_a_server_is_no_ctrl_c(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.py").write_text(
        "from contextlib import asynccontextmanager\n"
        "from wharfinger import Server\n"
        "@asynccontextmanager\n"
        "async def load(server):\n"
        "    raise EOFError('Ran out of input')\n"
        "    yield\n"
        "server = Server('tides', lifespan=load)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--http", "127.0.0.1:0", "server.py"]) == 1
    assert "wharfinger: server.py, line 5: EOFError: Ran out of input" in capfd.readouterr().err
