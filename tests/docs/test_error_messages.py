"""The headings of docs/errors.md are messages that the code can produce, word for word."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.conftest import ROOT

HEADING = re.compile(r"^### `(.+)`$", re.MULTILINE)


def headings() -> list[str]:
    return HEADING.findall((ROOT / "docs" / "errors.md").read_text(encoding="utf-8"))


def text_of(node: ast.AST) -> str | None:
    """Return the text of a string expression, with `…` for its inserted values."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in values)  # type: ignore[misc]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return (text_of(left) or "…") + (text_of(right) or "…")
    return None


@cache
def messages() -> str:
    """Return every string of the package, one on each line."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = text_of(node)
            if text is not None:
                found.add(text.replace("\n", " "))
    return "\n".join(sorted(found))


@pytest.mark.parametrize("heading", headings())
def test_every_documented_message_exists_in_the_code(heading: str) -> None:
    """Our own requirement, since users search for messages. Each part between `…` occurs in the code unchanged."""
    parts = [part.strip(" .,:") for part in heading.split("…")]
    missing = [part for part in parts if len(part) > 2 and part not in messages()]
    assert not missing, f"no message of the package contains {missing}"
