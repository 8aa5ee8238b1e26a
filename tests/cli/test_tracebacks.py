"""For an exception in a server that it starts, the command line shows file, line and message."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from wharfinger.cli.tracebacks import TracebackFrame, cause_in, place_of

Start = Callable[..., subprocess.Popen[str]]

SERVER = """\
from dataclasses import dataclass

from wharfinger import Context, Image, Server

server = Server("buggy")


def look_up(name):
    return {}[name]


@server.tool
def broken() -> str:
    return look_up("mary")


@server.tool
def no_json() -> dict:
    return {"a": object()}


@server.tool
def nan() -> float:
    return float("nan")


@server.tool
def wrong() -> int:
    return "text"


@server.tool
def image() -> Image:
    return Image("no-such.png")


@dataclass
class Place:
    north: int


@dataclass
class Form:
    place: Place


@server.tool
async def form(ctx: Context) -> str:
    return str(await ctx.elicit("Where?", Form))


@server.resource("buggy://broken")
def resource() -> str:
    return look_up("anna")


@server.resource("buggy://none")
def nothing() -> str:
    pass


@server.resource("buggy://{name}/log")
async def log(name: str) -> str:
    raise ExceptionGroup("several", [ValueError("inner")])


@server.prompt
def briefing(ship: str) -> str:
    try:
        return look_up(ship)
    except KeyError as error:
        raise RuntimeError("no briefing") from error


if __name__ == "__main__":
    server.run()
"""


LIFESPAN = """\
import contextlib, wharfinger

@contextlib.asynccontextmanager
async def life(server):
    {}
    {}

server = wharfinger.Server("a", lifespan=life)
"""


def line_of(text: str) -> int:
    """Return the number of the line in the server's file that begins with a text."""
    return next(number for number, line in enumerate(SERVER.splitlines(), 1) if line.strip().startswith(text))


@pytest.fixture
def buggy(tmp_path: Path) -> Path:
    """A file with bugs of every kind."""
    file = tmp_path / "buggy.py"
    file.write_text(SERVER)
    return file


@pytest.mark.parametrize(
    ("arguments", "code_line", "raised"),
    [
        (["call", "buggy.py", "broken"], "return {}[name]", "KeyError: 'mary'"),
        (["call", "buggy.py", "form"], "return str(await", "Form.place: a form has only flat fields"),
        (["read", "buggy.py", "buggy://broken"], "return {}[name]", "KeyError: 'anna'"),
        (["read", "buggy.py", "buggy://a/log"], "raise ExceptionGroup", "ValueError: inner"),
        (["prompt", "buggy.py", "briefing", "ship=olga"], "raise RuntimeError", "KeyError: 'olga'"),
        (["call", "broken", "--", sys.executable, "buggy.py"], "return {}[name]", "KeyError: 'mary'"),
    ],
    ids=lambda value: value[2] if isinstance(value, list) else "",
)
def test_a_bug_is_shown_with_file_line_and_exception(
    start: Start, buggy: Path, arguments: list[str], code_line: str, raised: str
) -> None:
    process = start(*arguments)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err.startswith("wharfinger: ")
    assert f'| File "buggy.py", line {line_of(code_line)}' in err
    assert err.count(raised) == 1
    assert "/wharfinger/" not in err
    assert err.count("\n") < 12


@pytest.mark.parametrize(
    ("arguments", "function", "message"),
    [
        (["call", "buggy.py", "no_json"], "no_json", "the result['a'] is of type object, which JSON cannot express"),
        (["call", "buggy.py", "nan"], "nan", "the result is nan"),
        (["call", "buggy.py", "wrong"], "wrong", "Expected `int`, got `str`"),
        (["call", "buggy.py", "image"], "image", "No such file or directory: 'no-such.png'"),
        (["read", "buggy.py", "buggy://none"], "nothing", "None: return text, bytes"),
    ],
    ids=lambda value: value[2] if isinstance(value, list) else "",
)
def test_a_result_that_cannot_be_sent_is_reported_with_its_function_in_one_line(
    start: Start, buggy: Path, arguments: list[str], function: str, message: str
) -> None:
    process = start(*arguments)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert f"{function}() ({buggy}:{line_of(f'def {function}') - 1})" in err  # a function begins at its decorator
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "location", "raised"),
    [
        ("import no_such_module\n", "line 1", "No module named 'no_such_module'"),
        ("x = 1\ndef f(:\n", "line 2", "SyntaxError"),
        ("def f():\n    return 1 / 0\n\nf()\n", "line 2", "ZeroDivisionError"),
        (LIFESPAN.format("{}['database']", "yield"), "line 5", "KeyError: 'database'"),
    ],
    ids=["import", "syntax", "top", "lifespan"],
)
@pytest.mark.parametrize("command", ["call", "ls", "doctor"])
def test_a_server_file_that_does_not_start_is_reported_with_its_line(
    start: Start, tmp_path: Path, code: str, location: str, raised: str, command: str
) -> None:
    (tmp_path / "server.py").write_text(code)
    process = start(command, "server.py", *(["t"] if command == "call" else []))
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (3, "")
    first, *rest = err.splitlines()
    assert first.startswith(f"wharfinger: server.py, {location}: ")
    assert raised in first
    assert err.count(raised) == 1
    assert f'| File "server.py", {location}' in "\n".join(rest)
    assert "Traceback" not in err


def test_a_lifespan_that_fails_at_the_end_is_reported(start: Start, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(LIFESPAN.format("yield", "{}['database']"))
    process = start("inspect", "--no-probe", "server.py")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Server" in out
    assert err.startswith("wharfinger: server.py, line 6: KeyError: 'database'")


def test_doctor_and_inspect_report_the_line_where_a_list_fails(start: Start, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(
        "from wharfinger import Server\n\nserver = Server('a')\n\n@server.list_resources\nasync def every():\n"
        "    yield {}['listed']\n"
    )
    for command in ("doctor", "inspect"):
        out, _ = start(command, "--no-probe", "server.py").communicate(timeout=30)
        assert "KeyError: 'listed'" in out
        assert 'File "server.py", line 7, in every' in out


def test_verbose_prints_all_output_of_the_server_before_the_error(start: Start, buggy: Path) -> None:
    _, err = start("call", "-v", "buggy.py", "broken").communicate(timeout=30)
    assert "  | Traceback (most recent call last):" in err
    assert "  | KeyError: 'mary'" in err
    assert "client.py" not in err
    assert err.splitlines()[-1].startswith("wharfinger: ")


def test_printed_text_is_shown_before_a_later_error(start: Start, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(
        "from wharfinger import Server\n\nserver = Server('a')\n\n@server.tool\ndef t():\n"
        "    print('looking')\n    return 1 / 0\n"
    )
    _, err = start("call", "-v", "server.py", "t").communicate(timeout=30)
    assert err.index("| looking") < err.index("| ZeroDivisionError")
    _, err = start("call", "server.py", "t").communicate(timeout=30)
    assert err.splitlines()[-1] == "  |   return 1 / 0"


def test_a_line_of_code_is_shown_even_if_the_message_has_part_of_it() -> None:
    lines = (
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    g({"a": 1})\nKeyError: 1'.splitlines()
    )
    assert cause_in(lines, "a.py, line 1: KeyError: 1}) 1") == ['File "/a.py", line 1, in f', '  g({"a": 1})']


OLDER = 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    x\nKeyError: 1\n'
NEWER = 'Traceback (most recent call last):\n  File "/b.py", line 2, in g\n    y\nValueError: 2\n'


def test_the_traceback_with_the_reference_of_the_error_is_shown() -> None:
    text = f"10:00:00 error   failed (reference aaaaaaaa)\n{OLDER}10:00:00 error   failed (reference bbbbbbbb)\n{NEWER}"
    older = ['File "/a.py", line 1, in f', "  x", "KeyError: 1"]
    newer = ['File "/b.py", line 2, in g', "  y", "ValueError: 2"]
    lines = text.splitlines()
    assert cause_in(lines, "Internal error (reference aaaaaaaa): …") == older
    assert cause_in(lines, "Internal error (reference bbbbbbbb): …") == newer
    assert cause_in(lines, "Internal error (reference cccccccc): …") == []
    assert cause_in(lines, "an error of another make") == newer
    assert cause_in(["nothing of interest"], "an error") == []


def test_a_chain_whose_beginning_is_not_kept_is_shown() -> None:
    """A bug: the command failed with an IndexError if 2,000 later lines had pushed out the beginning of the chain."""
    link = "During handling of the above exception, another exception occurred:"
    newer = ['File "/b.py", line 2, in g', "  y", "ValueError: 2"]
    assert cause_in(["KeyError: 1", "", link, "", *NEWER.splitlines()], "an error") == newer


@pytest.mark.parametrize(
    ("file", "is_library"),
    [
        ("/usr/lib/python3.12/json/decoder.py", True),
        ("C:\\Python312\\Lib\\json\\decoder.py", True),
        ("/home/ann/.venv/lib64/python3.12/site-packages/anyio/to_thread.py", True),
        ("uvloop/loop.pyx", True),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", True),
        ("/home/ann/copy/src/wharfinger/server/server.py", True),
        ("<frozen importlib._bootstrap>", True),
        ("/home/ann/wharfinger/server/tides.py", False),
        ("/home/ann/harbour/Lib/tides.py", False),
        ("/home/ann/lib/tides.py", False),
    ],
)
def test_code_of_the_author_is_told_from_libraries(file: str, is_library: bool) -> None:
    """A bug: a folder `wharfinger/server` or `Lib` of the author was hidden like a library."""
    assert TracebackFrame(file, 1, "find").is_library is is_library


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not delete the current folder of a process")
def test_an_error_is_located_after_the_current_folder_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    try:
        exec(compile("raise ValueError", "/harbour/server.py", "exec"))
    except ValueError as error:
        assert "/harbour/server.py, line 1" in place_of(error)
