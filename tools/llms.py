"""Write docs/llms.txt (llmstxt.org): what the project is and where each page of its documents leads, for models.

Run it, or `make reference`, after a page was added, or its title or first paragraph changed; a test says when.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FENCED = re.compile(r"^ *```.*?^ *```$|<!--.*?-->|^#.*?$", re.MULTILINE | re.DOTALL)
LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE = re.compile(r"(?<=[.:?!])\s+(?=[\W_]*[A-Z0-9])")
LONGEST = 300
"""Characters of a page's summary."""


def first_paragraph(text: str) -> str:
    """On one line, without links; a page may begin with an example instead."""
    paragraphs = (" ".join(part.split()) for part in FENCED.sub("", text).split("\n\n"))
    return LINKED.sub(r"\1", next(part for part in paragraphs if part and part[0] not in "|>-"))


def summary(text: str) -> str:
    """As many whole sentences of the first paragraph as fit, but one at least."""
    kept = ""
    for sentence in SENTENCE.split(first_paragraph(text)):
        if kept and len(kept) + len(sentence) >= LONGEST:
            break
        kept = f"{kept} {sentence}".strip()
    return kept.removesuffix(":") + "." if kept.endswith(":") else kept


def line(page: Path) -> str:
    """One page of the list."""
    text = page.read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ").replace("`", "")
    return f"- [{title}]({page.relative_to(DOCS).as_posix()}): {summary(text)}"


def written() -> str:
    """The whole file: pages in the order in which the README names them, then the others."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    places = {page: readme.find(f"docs/{page.relative_to(DOCS).as_posix()}") for page in DOCS.glob("**/*.md")}
    pages = sorted(places, key=lambda page: (places[page] % (len(readme) + 1), page.name))
    about = f"# Wharfinger\n\n> {first_paragraph(readme)}\n"
    return f"{about}\n## Documents\n\n" + "\n".join(line(page) for page in pages) + "\n"


if __name__ == "__main__":
    (DOCS / "llms.txt").write_text(written(), encoding="utf-8")
