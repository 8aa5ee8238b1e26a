"""Every command has help with examples, and every mistake is one line that says what to do."""

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from wharfinger.cli import main
from wharfinger.cli.app import COMMANDS, wharfinger


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_with_examples(command: str) -> None:
    result = CliRunner().invoke(wharfinger, [command, "--help"])
    assert result.exit_code == 0
    assert "Examples:\n  wharfinger " + command in result.output.replace("    wharfinger", "  wharfinger")


@pytest.mark.parametrize("group", ["auth", "policy", "token", "audit"])
def test_a_group_shows_a_whole_sentence_and_examples_for_each_of_its_commands(group: str) -> None:
    """A bug: three sentences were cut, and two commands had no examples."""
    listed = CliRunner().invoke(wharfinger, [group, "--help"]).output
    assert "..." not in listed.partition("Commands:")[2]
    command = wharfinger.get_command(click.Context(wharfinger), group)
    assert isinstance(command, click.Group)
    for name in command.commands:
        output = CliRunner().invoke(wharfinger, [group, name, "--help"]).output
        assert f"Examples:\n    wharfinger {group} {name}" in output


def test_the_group_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    output = capsys.readouterr().out
    for name, summary in COMMANDS.items():
        assert f"{name} " in output
        assert summary in output
    assert "130 Ctrl-C" in output


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("wharfinger ")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["serve"], "Give a folder"),
        (["serve", "--stdio", "--http", "1.2.3.4:1", "x"], "exclude each other"),
        (["serve", "--stdio", "nowhere-at-all"], "nowhere-at-all"),
        (["serve", "--stdio", "--insecure", "."], "--insecure is for HTTP"),
        (["serve", "--http", "127.0.0.1:8000", "--limit", "nothing=1", "."], "No limit is named 'nothing'"),
        (["serve", "--http", "127.0.0.1:99999", "."], "HOST:PORT"),
        (["serve", "--stdio", "--max-size", "huge", "."], "write a number"),
        (["run"], "Missing argument"),
        (["run", "--stdio", "nowhere.py"], "No such file"),
        (["run", "--stdio", "--reload", "server.py"], "--reload needs HTTP"),
        (["ls"], "Missing TARGET"),
        (["ls", "--"], "command after `--`"),
        (["ls", "localhost:8000"], "http://localhost:8000"),
        (["ls", "ftp://x/"], "only http:// and https://"),
        (["ls", "nothing-here"], "give a URL"),
        (["ls", "http://x/", "y"], "without 'y'"),
        (["ls", "--revision", "2020-01-01", "http://x/"], "2026-07-28"),
        (["ls", "--token-env", "NO_SUCH_VARIABLE", "http://x/"], "NO_SUCH_VARIABLE is not set"),
        (["ls", "--header", "nonsense", "http://x/"], "NAME: VALUE"),
        (["ls", "--timeout", "0", "http://x/"], "--timeout"),
        (["ls", "--timeout", "nan", "http://x/"], "--timeout"),
        (["read", "http://x/"], "Missing URI"),
        (["call", "http://x/"], "Missing NAME"),
        (["call", "http://x/", "tool", "a"], "KEY=TEXT or KEY:=JSON"),
        (["call", "http://x/", "tool", "a:={"], "is not JSON"),
        (["call", "http://x/", "tool", "a=1", "a=2"], "given twice"),
        (["call", "http://x/", "tool", "a=@no-such-file"], "No such file"),
    ],
)
def test_a_usage_error_is_one_line(args: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    reported = capsys.readouterr()
    assert reported.out == ""
    assert expected in reported.err
    assert reported.err.count("\n") == 1
    assert reported.err.startswith("wharfinger: ")


def test_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WHARFINGER_REVISION", "1999-01-01")
    assert main(["ls", "http://x/"]) == 2
    assert "1999-01-01" in capsys.readouterr().err
    monkeypatch.setenv("WHARFINGER_LS_LIMIT", "-5")
    assert main(["ls", "http://x/"]) == 2
    assert "--limit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "args", "expected"),
    [
        ("WHARFINGER_SERVE_LIMIT", "tide=3", ["serve", "."], "No limit is named 'tide'"),
        ("WHARFINGER_CALL_INPUT", "no-such-file", ["call", "http://x/", "tool"], "no-such-file"),
        ("WHARFINGER_CHAT_PROMPT", " ", ["chat", "-m", "ollama/x"], "-p is empty"),
        ("WHARFINGER_TOKEN_CREATE_EXPIRES", "soon", ["token", "create", "x.json", "--sub", "ann"], "'soon'"),
        ("WHARFINGER_POLICY_EXPLAIN_AS", "who:bob", ["policy", "explain", os.devnull, "read", "x:y"], "'who:bob'"),
    ],
)
def test_the_variable_of_an_option_has_its_name(
    variable: str,
    value: str,
    args: list[str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bug: some variables had the name of a parameter in the code, such as WHARFINGER_SERVE_LIMITS."""
    monkeypatch.setenv(variable, value)
    assert main(args) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("version", ["0.1.0", "1"])
def test_the_option_version_has_no_variable(version: str) -> None:
    """A bug: with WHARFINGER_VERSION, as images of containers often have it, no command ran."""
    result = CliRunner().invoke(wharfinger, ["completion", "bash"], env={"WHARFINGER_VERSION": version})
    assert (result.exit_code, "_WHARFINGER_COMPLETE" in result.output) == (0, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(shell: str) -> None:
    result = CliRunner().invoke(wharfinger, ["completion", shell])
    assert result.exit_code == 0
    assert "_WHARFINGER_COMPLETE" in result.output


def test_completion_knows_commands_and_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(command_line: str, number: str) -> str:
        env = {"_WHARFINGER_COMPLETE": "bash_complete", "COMP_WORDS": command_line, "COMP_CWORD": number}
        return CliRunner().invoke(wharfinger, [], env=env, prog_name="wharfinger").output

    assert "plain,serve" in completed("wharfinger se", "1")
    assert "plain,claude-desktop" in completed("wharfinger add cl", "2")


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["serve", "--help"]])
def test_help_loads_no_transport(args: list[str]) -> None:
    """Help must not load modules that it does not use, and neither must the start of `serve`."""
    code = (
        "import sys; from wharfinger.cli import main; main(sys.argv[1:]);"
        "sys.exit(bool({'asyncio', 'aiohttp', 'uvicorn', 'rich', 'watchfiles'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code, *args], stdout=subprocess.DEVNULL).returncode == 0
