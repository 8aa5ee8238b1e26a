"""Finds the line that says what a text is about: its first heading, its docstring, or its first comment.

Only the first `HEAD_BYTES` of a file are read, in linear time. A heading is untrusted text: it is shortened, and its
unprintable characters are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from wharfinger.content.encodings import encoding_of
from wharfinger.content.text import printable

__all__ = ["HEAD_BYTES", "MAX_HEADING_CHARACTERS", "has_heading", "heading_of"]

HEAD_BYTES = 4_096
"""Bytes at the beginning of a file that are searched for a heading."""
MAX_HEADING_CHARACTERS = 120
"""The maximum number of characters of a heading; a longer one is cut."""

_SEARCHED_LINES = 80
"""The number of lines of a file that are searched."""
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_SPACE = re.compile(r"\s+")


def has_heading(kind: str) -> bool:
    """Return whether files of this MIME type may have a heading."""
    return kind in _READERS


def heading_of(kind: str, head: bytes) -> str:
    """Return the heading of a file, or an empty string if there is none.

    Args:
        kind: The MIME type of the file.
        head: The first bytes of the file; those after `HEAD_BYTES` are ignored.
    """
    reader = _READERS.get(kind)
    if reader is None:
        return ""
    head = head[:HEAD_BYTES]
    encoding = encoding_of(head, False)
    if not encoding:
        return ""
    text = head.decode(encoding, "ignore").lstrip("\ufeff")
    if len(head) == HEAD_BYTES:
        text = text.rpartition("\n")[0] or text  # the last line may be incomplete
    heading = _SPACE.sub(" ", reader(text)).strip()
    return printable(heading, MAX_HEADING_CHARACTERS) if _LETTER_OR_DIGIT.search(heading) else ""


def _lines(text: str) -> list[str]:
    return text.split("\n", _SEARCHED_LINES)[:_SEARCHED_LINES]


def _unescape(text: str) -> str:
    """Replace entities such as `&amp;` with their characters."""
    if "&" not in text:
        return text
    import html  # imported here, because few headings need it and its table takes 2 ms to load

    return html.unescape(text)


# Documents

_FENCE = re.compile(r" {0,3}(?:```|~~~)").match
_ATX = re.compile(r" {0,3}#{1,6}(?:[ \t]+|$)(.*)").match
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$").match
_HTML_HEADING = re.compile(r"<h[1-6](?=[\s>])[^<>]{0,500}>([^<]{1,500})", re.IGNORECASE).search
_HTML_TITLE = re.compile(r"<title(?=[\s>])[^<>]{0,500}>([^<]{1,500})", re.IGNORECASE).search
_FRONT = re.compile(r"(title|description)[ \t]*[:=][ \t]*(\S.*)", re.IGNORECASE).match
_IMAGE = re.compile(r"!\[[^\[\]]{0,200}\](?:\([^()]{0,500}\)|\[[^\[\]]{0,200}\])?")
_LINK = re.compile(r"\[([^\[\]]{0,200})\](?:\([^()]{0,500}\)|\[[^\[\]]{0,200}\])?")
_TAG = re.compile(r"<[^<>]{1,500}>")
_MARKS = re.compile(r"[`*]+|(?<!\w)_+|_+(?!\w)")


def _markdown(text: str) -> str:
    """Return the description or title from the front matter, or else the first heading."""
    lines = iter(_lines(text))
    before = ""
    fenced = False
    for number, line in enumerate(lines):
        if number == 0 and line.strip() in ("---", "+++"):
            front = _front_matter(lines, line.strip())
            if front:
                return front
            continue
        if _FENCE(line):
            fenced = not fenced
        match = None if fenced else _ATX(line)
        if match is not None:
            if heading := _plain_markdown(match[1].strip().rstrip("# \t")):
                return heading
        elif not fenced and before.strip() and _UNDERLINE(line):
            if heading := _plain_markdown(before):
                return heading
        elif not fenced and (title := _HTML_HEADING(line)) is not None:
            return _unescape(title[1])
        before = "" if match is not None else line
    return ""


def _front_matter(lines: Iterator[str], end: str) -> str:
    """Return the description in the front matter of a page or, if it has none, the title."""
    members: dict[str, str] = {}
    for line in lines:
        if line.strip() == end:
            break
        if member := _FRONT(line):
            members.setdefault(member[1].lower(), member[2].strip().strip("\"'"))
    return members.get("description") or members.get("title", "")


def _plain_markdown(text: str) -> str:
    """Return the words of a heading, without images, links and emphasis."""
    text = _TAG.sub("", _LINK.sub(r"\1", _IMAGE.sub("", text)))
    return _unescape(_MARKS.sub("", text)).strip()


def _html(text: str) -> str:
    match = _HTML_TITLE(text) or _HTML_HEADING(text)
    return _unescape(match[1]) if match else ""


def _restructured_text(text: str) -> str:
    """Return the first line that is underlined with one kind of sign (reStructuredText, "Sections")."""
    before = ""
    for line in _lines(text):
        under = line.rstrip()
        title = before.strip()
        if len(under) >= 3 and under[0] in "=-~^\"'`#*+:._" and under == under[0] * len(under):
            if title and not title.startswith("..") and len(under) >= min(len(title), 12):
                return re.sub(r":[\w+-]{1,30}:`([^`<]{1,200})(?:<[^`]{0,200})?`|[`*|]", r"\1", title)
            before = ""
            continue
        before = line
    return ""


def _after_mark(*marks: str) -> Callable[[str], str]:
    """Return a reader of the first line that begins with one of these marks."""

    def read(text: str) -> str:
        for line in _lines(text):
            for mark in marks:
                if line.startswith(mark) and (heading := line[len(mark) :].strip().removesuffix("}")):
                    return heading
        return ""

    return read


# Code

_NO_CODE = re.compile(r"\s*(?:#.*)?$").match
_QUOTES = re.compile(r"""\s*[rRuU]?("{3}|'{3}|"|')""").match
_LEGAL = re.compile(
    r"copyright|\(c\)|©|spdx-|licen[cs]ed?\b|all rights reserved|permission is hereby|redistribution|the mit|apache",
    re.IGNORECASE,
).search
_DIRECTIVE = re.compile(
    r"!|-\*-|vim?:|ex:|eslint|jshint|global[s ]|pylint|flake8|noqa|type:|mypy:|ruff:|prettier|@ts-|go:|\+build|region\b"
    r"|cython:|distutils|shellcheck|yaml-language-server|syntax=|@generated|code generated|<reference|istanbul"
    r"|coding[:=]",
    re.IGNORECASE,
).match


_BEFORE_CODE = ("<?", "#!", '"use ', "'use ", "package ", "@echo")
"""Beginnings of lines that may come before the first comment."""


def _python(text: str) -> str:
    """Return the first line of the module's docstring (PEP 257)."""
    lines = iter(_lines(text))
    for line in lines:
        if _NO_CODE(line):
            continue
        match = _QUOTES(line)
        if match is None:
            return ""
        rest = line[match.end() :]
        if len(match[1]) == 3:
            while not rest.strip() and (following := next(lines, None)) is not None:
                rest = following
        return rest.partition(match[1])[0].strip().removesuffix("\\")
    return ""


def _comment_reader(*marks: str, block: tuple[str, str] | None = None) -> Callable[[str], str]:
    """Return a reader of the first comment that is neither a licence nor a directive, and comes before any code.

    Args:
        marks: The marks that begin a comment of one line.
        block: The marks that begin and end a comment of several lines.
    """

    def read(text: str) -> str:
        inside = legal = False
        for line in _lines(text):
            stripped = line.strip()
            if inside:
                comment, ends, _ = stripped.partition(block[1]) if block else (stripped, "", "")
                inside = not ends
            elif block is not None and stripped.startswith(block[0]):
                comment, ends, _ = stripped[len(block[0]) :].partition(block[1])
                inside, legal = not ends, False
            elif not stripped or stripped.startswith(_BEFORE_CODE):
                legal = False
                continue
            elif mark := next((mark for mark in marks if stripped.startswith(mark)), ""):
                comment = stripped[len(mark) :]
            else:
                return ""
            comment = comment.strip("*/!#-=;%~ \t").removeprefix("@file ").removeprefix("\\file ").strip()
            legal = legal or bool(_LEGAL(comment))
            if comment and not legal and not _DIRECTIVE(comment) and _LETTER_OR_DIGIT.search(comment):
                return comment
        return ""

    return read


_C_COMMENTS = _comment_reader("//", block=("/*", "*/"))
_HASH_COMMENTS = _comment_reader("#")
_DASH_COMMENTS = _comment_reader("--", block=("/*", "*/"))
_SEMICOLONS = _comment_reader(";")
_XML_COMMENTS = _comment_reader(block=("<!--", "-->"))

_TABLE: tuple[tuple[Callable[[str], str], str], ...] = (
    (_markdown, "text/markdown"),
    (_restructured_text, "text/x-rst"),
    (_html, "text/html application/xhtml+xml"),
    (_after_mark("= ", "== "), "text/asciidoc"),
    (_after_mark("#+TITLE:", "#+title:", "* "), "text/org"),
    (_after_mark("\\title{", "\\chapter{", "\\section{"), "text/x-tex"),
    (_python, "text/x-python"),
    (_C_COMMENTS, "text/javascript text/jsx text/x-typescript text/tsx text/css text/x-scss text/x-less text/x-rust"),
    (_C_COMMENTS, "text/x-go text/x-java text/x-kotlin text/x-scala text/x-groovy text/x-c text/x-c++ text/x-csharp"),
    (_C_COMMENTS, "text/x-fsharp text/x-objective-c text/x-swift text/x-dart text/x-php text/x-zig text/x-d"),
    (_C_COMMENTS, "text/x-solidity text/x-protobuf text/x-thrift text/x-glsl text/x-cuda text/x-verilog"),
    (_HASH_COMMENTS, "text/x-shellscript text/x-ruby text/x-perl text/x-r text/x-julia text/x-elixir text/x-makefile"),
    (_HASH_COMMENTS, "text/x-dockerfile text/x-cmake text/x-terraform text/x-nim text/x-crystal text/x-awk text/x-tcl"),
    (_HASH_COMMENTS, "text/x-nix application/yaml application/toml application/graphql"),
    (_DASH_COMMENTS, "application/sql text/x-lua text/x-haskell text/x-elm text/x-ada text/x-vhdl"),
    (_SEMICOLONS, "text/x-lisp text/x-clojure text/x-asm"),
    (_XML_COMMENTS, "text/x-vue text/x-svelte"),
    (_comment_reader("%"), "text/x-erlang"),
)
_READERS: Mapping[str, Callable[[str], str]] = {kind: reader for reader, kinds in _TABLE for kind in kinds.split()}
