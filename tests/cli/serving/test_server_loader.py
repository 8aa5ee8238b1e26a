"""Finding the server in a user's file or module: every error suggests a correction."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from wharfinger.cli.error_report import CommandError
from wharfinger.cli.serving.server_loader import load_server, source_file, split_place

IMPORT = "from wharfinger import Server\n"


@pytest.fixture(autouse=True)
def clean_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo the imports of each test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if not name.startswith("wharfinger"):
            del sys.modules[name]


def write(text: str, name: str = "harbour.py") -> str:
    """Write a file in the current folder."""
    Path(name).parent.mkdir(exist_ok=True, parents=True)
    Path(name).write_text(IMPORT + text)
    return name


@pytest.mark.parametrize(
    ("text", "place", "name"),
    [
        ("anything = Server('one')", "harbour.py", "one"),
        ("server = Server('one'); other = Server('two')", "harbour.py", "one"),
        ("app = Server('one'); other = Server('two')", "harbour.py", "one"),
        ("server = Server('one'); other = Server('two')", "harbour.py:other", "two"),
        ("server = Server('one'); same = server", "harbour.py", "one"),
        ("part = Server('two'); whole = Server('one'); whole.include(part)", "harbour.py", "one"),
        ("server = Server('two'); whole = Server('one'); whole.include(server)", "harbour.py", "one"),
        ("server = Server('two'); whole = Server('one'); whole.include(server)", "harbour.py:server", "two"),
        ("server = Server('one')", "harbour", "one"),
        ("x = Server('one')", "harbour:x", "one"),
    ],
)
def test_the_server_is_found(text: str, place: str, name: str) -> None:
    write(text)
    assert load_server(place).info.name == name


def test_a_module_in_a_package_is_found() -> None:
    write("", "pkg/__init__.py")
    write("app = Server('deep')", "pkg/mod.py")
    assert load_server("pkg.mod:app").info.name == "deep"


def test_a_file_may_import_its_neighbour() -> None:
    write("NAME = 'next door'", "sub/neighbour_of_harbour.py")
    write("import neighbour_of_harbour as n\nserver = Server(n.NAME)", "sub/harbour.py")
    assert load_server("sub/harbour.py").info.name == "next door"


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", "harbour.py", 'server = Server("name")'),
        ("a = Server('a'); b = Server('b')", "harbour.py", "harbour.py:a"),
        ("a = 1", "harbour.py:a", "is a int, not a Server"),
        ("a = Server('a')", "harbour.py:b", "it has a"),
        ("", "missing.py", "No such file"),
        ("", "missing_module", "No module or file named 'missing_module'"),
        ("", "missing_module.sub:app", "No module or file named 'missing_module.sub'"),
    ],
)
def test_a_missing_server_is_reported_with_the_existing_ones(text: str, place: str, expected: str) -> None:
    write(text)
    with pytest.raises(click.UsageError) as caught:
        load_server(place)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ny = nonsense", "harbour.py, line 3: NameError: name 'nonsense' is not defined"),
        ("x = (", "line 2: SyntaxError"),
        ("import no_such_dependency", "line 2: ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("raise SystemExit(3)", "line 2: SystemExit: 3"),
    ],
)
@pytest.mark.parametrize("place", ["harbour.py", "harbour"])
def test_code_that_fails_is_reported_with_its_line(text: str, expected: str, place: str) -> None:
    write(text)
    with pytest.raises(CommandError) as caught:
        load_server(place)
    assert expected.removeprefix("harbour.py, line 3: " if place == "harbour" else "") in str(caught.value) or (
        place == "harbour" and expected.partition(": ")[2] in str(caught.value)
    )


def test_places_are_split() -> None:
    assert split_place("pkg.mod:app") == ("pkg.mod", "app")
    assert split_place("pkg.mod") == ("pkg.mod", "")
    write("", "odd:name.py")
    assert split_place("odd:name.py") == ("odd:name.py", "")
    assert source_file("pkg.mod") == ""
    assert source_file("odd:name.py") == str(Path.cwd() / "odd:name.py")
