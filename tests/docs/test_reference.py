"""The API reference equals the output of `make reference`, and it has every public name with a docstring."""

from __future__ import annotations

import ast
import importlib
import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.docs.pages import blocks_of
from tests.docs.test_code_blocks import PAGES as DOCUMENTS

TOOL = runpy.run_path(str(ROOT / "tools" / "reference.py"))
FOLDER: Path = TOOL["FOLDER"]
Entry = tuple[str, str, Any]
"""A public name: its module, the name, and its definition."""


@pytest.fixture(scope="module")
def public_entries() -> list[Entry]:
    return [entry for page in TOOL["PAGES"] for entry in TOOL["entries"](page)]


def imported_names() -> set[tuple[str, str]]:
    """Return the names that the documents import. They are therefore public."""
    return {
        (node.module, alias.name)
        for page in DOCUMENTS
        if page.parent != FOLDER
        for block in blocks_of(page)
        if block.language == "python"
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("wharfinger")
        for alias in node.names
        if hasattr(
            importlib.import_module(node.module), alias.name
        )  # a page shows the error of a name that does not exist
    }


def test_pages_match_the_source() -> None:
    expected = TOOL["pages"]()
    actual = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.md")}
    stale = sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name))
    assert not stale, f"docs/reference: {', '.join(stale)}: run `make reference` and commit its output"


def test_every_public_name_has_a_docstring() -> None:
    missing = TOOL["undocumented"]()
    assert not missing, f"write docstrings, then run `make reference`: {', '.join(missing)}"


def test_names_that_the_documents_import_are_in_the_reference(public_entries: list[Entry]) -> None:
    missing = sorted(imported_names() - {(module, name) for module, name, _ in public_entries})
    assert not missing, f"add them to PAGES in tools/reference.py, then run `make reference`: {missing}"


def test_every_name_in_all_of_the_public_packages_is_in_the_reference(public_entries: list[Entry]) -> None:
    listed = {(module, name) for module, name, _ in public_entries}
    for module in ("", ".auth", ".client", ".errors", ".server", ".sources", ".testing", ".types"):
        package = importlib.import_module(f"wharfinger{module}")
        assert {(package.__name__, name) for name in package.__all__} - listed == set()


def test_every_public_member_of_a_class_is_in_the_reference(public_entries: list[Entry]) -> None:
    """The tool reads the source. This test lists the members of the imported classes instead."""
    missing: list[str] = []
    for module, name, definition in public_entries:
        cls = getattr(importlib.import_module(module), name)
        if definition is None or not definition.nodes or not isinstance(definition.node, ast.ClassDef):
            continue
        members = {
            member
            for base in cls.__mro__
            if base.__module__.startswith("wharfinger")
            for member in vars(base)
            if not member.startswith("_")
        }
        missing += [f"{module}.{name}.{member}" for member in members - TOOL["members"](definition).keys()]
    assert missing == []


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda path: path.name)
def test_headings_of_a_page_are_unique(page: Path) -> None:
    """Identical headings would share one URL fragment."""
    titles = Counter(re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert [title for title, times in titles.items() if times > 1] == []


# The tool itself


def function(text: str) -> Any:
    return ast.parse(text).body[0]


@pytest.mark.parametrize(
    "text",
    [
        "def f(a, /, b: int = 1, *args: str, c=2, d: int, **rest: object) -> None: ...",
        "async def f(self, *, only: int) -> str: ...",
        "@classmethod\ndef f(cls) -> None: ...",
        "def f(): ...",
    ],
)
def test_a_signature_is_shown_as_in_the_source(text: str) -> None:
    assert TOOL["signature"](function(text), "f") == text


def test_a_long_signature_has_a_line_for_each_parameter() -> None:
    names = [f"parameter_{number}: int" for number in range(10)]
    text = TOOL["signature"](function(f"def f({', '.join(names)}): ..."), "f")
    assert text.splitlines() == ["def f(", *(f"    {name}," for name in names), "): ..."]


def test_sections_of_a_docstring_become_lists() -> None:
    doc = "Gives <it>, not `<code>`.\n\nRaises:\n    KeyError, OSError: no key,\n        or no <file>.\n\nMore."
    assert TOOL["prose"](doc) == (
        "Gives &lt;it>, not `<code>`.\n\n**Raises**\n\n- `KeyError`, `OSError`: no key,\n  or no &lt;file>.\n\nMore."
    )


def test_names_without_a_docstring_are_reported(tmp_path: Path) -> None:
    """Constants, classes and inherited members need one. Overrides do not."""
    folder = tmp_path / "docks"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from docks.quays import WIDTH, Quay, Dock\n__all__ = ['WIDTH', 'Quay', 'Dock']\n"
    )
    (folder / "quays.py").write_text(
        "WIDTH = 3\n\n"
        "class Base:\n"
        "    def moor(self, ship: str) -> None:\n        'Tie up.'\n\n"
        "    def leave(self) -> None: ...\n\n"
        "class Quay(Base):\n    'A place.'\n\n"
        "    length: int = 1\n    'Metres.'\n\n"
        "    def moor(self, ship: str) -> None: ...\n\n"
        "    @property\n    def free(self) -> bool: ...\n\n"
        "class Dock: ...\n"
    )
    tool = runpy.run_path(str(ROOT / "tools" / "reference.py"))
    settings = tool["pages"].__globals__
    settings["SOURCE"] = tmp_path
    settings["PAGES"] = {"docks": {"docks": ()}}
    assert tool["undocumented"]() == ["docks.WIDTH", "docks.Quay.free", "docks.Quay.leave", "docks.Dock"]
    page = tool["render"]("docks")
    assert "- `length: int = 1`: Metres." in page
    assert (
        '### Quay.moor\n\n```python norun="a signature"\ndef moor(self, ship: str) -> None: ...\n```\n\nTie up.' in page
    )


def test_an_unknown_name_is_reported_with_the_file_to_correct() -> None:
    with pytest.raises(LookupError, match=r"does not define Nothing.*tools/reference\.py"):
        TOOL["find"]("wharfinger.client", "Nothing")
    with pytest.raises(LookupError, match=r"no module wharfinger\.nowhere.*tools/reference\.py"):
        TOOL["find"]("wharfinger.nowhere", "Nothing")
