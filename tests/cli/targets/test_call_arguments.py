"""Arguments on the command line that are not JSON are usage errors, in one line."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest

from wharfinger.cli import main
from wharfinger.cli.targets.call_arguments import json_hint, parse_arguments

CALL = ["call", "http://x/", "echo"]
DEEP = "[" * 100_000


def test_json_that_is_nested_too_deeply_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Regression: a RecursionError was reported as an unexpected error, with exit code 1."""
    file = tmp_path / "deep.json"
    file.write_text(DEEP)
    for words in ([f"k:=@{file}"], ["--input", str(file)]):
        assert main([*CALL, *words]) == 2
        reported = capsys.readouterr().err
        assert "is not JSON (" in reported
        assert "unexpected" not in reported
    assert json_hint(f"k={DEEP}") == ""


def test_input_that_is_not_utf_8_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: a UnicodeDecodeError was reported as an unexpected error."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"k":"\xff"}')))
    assert main([*CALL, "--input", "-"]) == 2
    assert "--input - is not JSON (" in capsys.readouterr().err


def test_an_error_in_a_file_names_the_file_and_not_its_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: the error had the whole content of the file, twice."""
    file = tmp_path / "bad.json"
    file.write_text("{tide")
    assert main([*CALL, f"k:=@{file}"]) == 2
    reported = capsys.readouterr().err
    assert f"k:=@{file} is not JSON (" in reported
    assert f"; for a text write k=@{file}." in reported
    assert "tide" not in reported


def test_the_line_ends_of_a_file_are_sent_as_they_are(tmp_path: Path) -> None:
    """A bug: each CRLF of a file was sent as LF."""
    file = tmp_path / "dos.txt"
    file.write_bytes(b"a\r\nb\rc\n")
    context = click.Context(click.Command("call"))
    assert parse_arguments(context, (f"k=@{file}",)) == {"k": "a\r\nb\rc\n"}
