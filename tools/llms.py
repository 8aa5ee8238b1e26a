"""Writes docs/llms.txt (llmstxt.org) for models: what the project is, and a list of its pages with a summary of each.

Run it, or `make reference`, after a page was added, or its title or first paragraph changed. A test fails otherwise.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NOT_PROSE = re.compile(r"^ *```.*?^ *```$|<!--.*?-->|^#.*?$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE_END = re.compile(r"(?<=[.:?!])\s+(?=[\W_]*[A-Z0-9])")
MAX_SUMMARY_CHARACTERS = 300


def first_paragraph(text: str) -> str:
    """Return the first paragraph that is prose, on one line and without links."""
    paragraphs = (" ".join(part.split()) for part in NOT_PROSE.sub("", text).split("\n\n"))
    return LINK.sub(r"\1", next(part for part in paragraphs if part and part[0] not in "|>-"))


def summary(text: str) -> str:
    """Return as many sentences of the first paragraph as fit, at least one."""
    result = ""
    for sentence in SENTENCE_END.split(first_paragraph(text)):
        if result and len(result) + len(sentence) >= MAX_SUMMARY_CHARACTERS:
            break
        result = f"{result} {sentence}".strip()
    return result.removesuffix(":") + "." if result.endswith(":") else result


def line(page: Path) -> str:
    """Return the line of the list for one page."""
    text = page.read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ").replace("`", "")
    return f"- [{title}]({page.relative_to(DOCS).as_posix()}): {summary(text)}"


def render() -> str:
    """Return the whole file: pages in the order in which the README names them, then the others."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    places = {page: readme.find(f"docs/{page.relative_to(DOCS).as_posix()}") for page in DOCS.glob("**/*.md")}
    pages = sorted(places, key=lambda page: (places[page] % (len(readme) + 1), page.name))
    about = f"# Wharfinger\n\n> {first_paragraph(readme)}\n"
    return f"{about}\n## Documents\n\n" + "\n".join(line(page) for page in pages) + "\n"


if __name__ == "__main__":
    (DOCS / "llms.txt").write_text(render(), encoding="utf-8")
