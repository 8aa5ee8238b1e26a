"""What can be published, and how it is written in one word: `git:PATH`, `sqlite:///FILE`, `name=WORD`, or a folder.

A table of kinds, whose modules are loaded on first use. Refuses to know where the words come from.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wharfinger import sources
from wharfinger.content.redaction import has_password, redacted, redacted_command, redacted_text
from wharfinger.source import Source, UnusableSource
from wharfinger.sources.labels import free, split_label

__all__ = [
    "FILES",
    "KINDS",
    "ParsedSource",
    "PreparedSource",
    "SourceKind",
    "absolute_word",
    "hides_secret",
    "make_sources",
    "parse_word",
    "short_name",
    "shown_word",
]


def _whole(scheme: str, rest: str) -> str:
    return f"{scheme}:{rest}"


def _rest(scheme: str, rest: str) -> str:
    return rest


def _line(scheme: str, rest: str) -> list[str]:
    try:
        argv = shlex.split(rest)
    except ValueError as error:
        raise UnusableSource(f"{scheme}: is followed by no command line: {error}.") from None
    if not argv:
        raise UnusableSource(f"{scheme}: needs a command line, such as 'command:df -h'.")
    return argv


def _absolute_path(scheme: str, rest: str) -> str:
    return f"{scheme}:{os.path.abspath(os.path.expanduser(rest))}"


def _absolute_file_url(scheme: str, rest: str) -> str:
    """`sqlite:///shop.db` is relative, and `sqlite:////srv/shop.db` absolute (SQLAlchemy)."""
    found = re.fullmatch(r"///([^/?][^?]*)(\?.*)?", rest, re.DOTALL)
    if found is None or found[1] == ":memory:" or found[1].startswith("file:"):
        return f"{scheme}:{rest}"
    return f"{scheme}:///{os.path.abspath(found[1])}{found[2] or ''}"


class SourceKind(NamedTuple):
    """One kind of data: `form` is how its words look, `what` says what is published."""

    form: str
    what: str
    factory: str
    """The function of `wharfinger.sources`, whose module is loaded on first use."""
    schemes: tuple[str, ...] = ()
    """What its words begin with, before the colon."""
    given: Callable[[str, str], Any] = _whole
    """What the factory is given, from the scheme and the rest of a word."""
    absolute: Callable[[str, str], str] = _whole
    """The same word for another folder to start from."""
    takes: tuple[str, ...] = ()
    """Options that the factory takes."""
    needs: str = ""
    """An option without which it is refused."""
    labelled: bool = True
    """Whether there is something behind the colon, and a label to choose."""
    suffixes: tuple[str, ...] = ()
    """Ends of the names of files that it is for."""
    still: bool = False
    """Whether it seldom changes while somebody looks."""
    queried: bool = False
    """Whether it takes statements, where `--allow-query` lets it."""
    secret: str = ""
    """How to give a password without writing it into the word."""
    environment: str = ""
    """How variables begin that are looked at, and that a host which starts the server may not pass on."""


FILES = SourceKind(
    "PATH",
    "files",
    "files",
    given=_rest,
    takes=("include", "exclude", "hidden", "max_size", "absolute_uris"),
)
"""A folder, which has no scheme."""

_PGPASSWORD = "the variable PGPASSWORD"
_BY_ENVIRONMENT = "a file that the program reads"

KINDS: tuple[SourceKind, ...] = (
    SourceKind("git:PATH", "a git repository", "git", ("git",), _rest, _absolute_path),
    SourceKind(
        "sqlite:///FILE",
        "a SQLite database",
        "sql",
        ("sqlite",),
        absolute=_absolute_file_url,
        suffixes=(".db", ".sqlite", ".sqlite3", ".db3"),
        queried=True,
    ),
    SourceKind(
        "postgresql://USER@HOST/DATABASE",
        "a PostgreSQL database",
        "sql",
        ("postgresql", "postgres"),
        queried=True,
        secret=_PGPASSWORD,
        environment="PGPASSWORD",
    ),
    SourceKind(
        "mysql://…",
        "another database of SQLAlchemy",
        "sql",
        ("mysql", "mariadb", "oracle", "mssql"),
        queried=True,
    ),
    SourceKind(
        "log:GLOB",
        "logs, followed as they rotate",
        "logs",
        ("log",),
        _rest,
        _absolute_path,
        suffixes=(".log",),
    ),
    SourceKind("s3://BUCKET/PREFIX", "objects of a bucket", "objects", ("s3", "s3a"), environment="AWS_"),
    SourceKind(
        "zip:FILE", "a ZIP archive", "objects", ("zip",), _whole, _absolute_path, suffixes=(".zip",), still=True
    ),
    SourceKind("objects:URL", "objects of a store that fsspec reads", "objects", ("objects",), _rest),
    SourceKind("memory://PATH", "fsspec's objects in memory", "objects", ("memory",)),
    SourceKind(
        "table:GLOB",
        "tables in CSV, JSON Lines or Parquet",
        "tables",
        ("table",),
        _rest,
        _absolute_path,
        suffixes=(".csv", ".tsv", ".parquet", ".jsonl", ".ndjson"),
    ),
    SourceKind(
        "system:",
        "this machine: load, memory, disks and processes",
        "system",
        ("system",),
        labelled=False,
    ),
    SourceKind("screen:", "this machine's screens", "screen", ("screen",), labelled=False, environment="DISPLAY"),
    SourceKind(
        "command:LINE",
        "what a command prints (with --allow-command)",
        "command",
        ("command",),
        _line,
        takes=("every",),
        needs="allow_command",
        secret=_BY_ENVIRONMENT,
    ),
    SourceKind(
        "mcp:LINE",
        "the resources of an MCP server that a command starts (with --allow-command)",
        "upstream",
        ("mcp",),
        _line,
        needs="allow_command",
        secret=_BY_ENVIRONMENT,
    ),
    SourceKind(
        "https://HOST/mcp",
        "another MCP server's resources",
        "upstream",
        ("https", "http"),
        takes=("allow_private",),
    ),
)
"""Every kind but folders, in the order in which they are explained."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9.-]+)(\+[A-Za-z0-9._-]+)?:(.*)", re.DOTALL).fullmatch
_BY_SCHEME = {scheme: kind for kind in KINDS for scheme in kind.schemes}


class ParsedSource(NamedTuple):
    """A word as it was read: what kind it is, and its label where one was given."""

    kind: SourceKind
    scheme: str
    rest: str
    label: str | None

    @property
    def word(self) -> str:
        """The word without its label."""
        return f"{self.scheme}:{self.rest}" if self.scheme else self.rest


class PreparedSource(NamedTuple):
    """A source, and the word that asked for it."""

    asked: ParsedSource
    source: Source

    @property
    def name(self) -> str:
        """What it is called."""
        return self.source.name


def parse_word(argument: str) -> ParsedSource:
    """Read one word; a path that exists is a path, whatever is in its name.

    Raises:
        UnusableSource: it begins with what is none of the kinds, and is no path.
    """
    word, label = split_label(argument)
    found = None if os.path.lexists(word) else _SCHEME(word)
    if found is None:
        return ParsedSource(FILES, "", word, label)
    kind = _BY_SCHEME.get(found[1].lower())
    if kind is None:
        forms = ", ".join(kind.form for kind in (FILES, *KINDS))
        raise UnusableSource(
            f"{found[1]}: is no kind of data that can be published, and there is no folder {redacted(word)!r} here. "
            f"Give one of: {forms}."
        )
    return ParsedSource(kind, found[1].lower() + (found[2] or ""), found[3], label)


def absolute_word(asked: ParsedSource) -> str:
    """The same word, with its label, for a program that starts in another folder; without a password."""
    scheme, rest = asked.scheme, asked.rest
    if scheme and hides_secret(asked):
        asked = asked._replace(rest=shown_word(asked).partition(":")[2])
        rest = asked.rest
    word = asked.kind.absolute(scheme, rest) if scheme else os.path.abspath(os.path.expanduser(rest))
    return f"{asked.label}={word}" if asked.label is not None else word


def short_name(asked: ParsedSource) -> str:
    """A name for what a word asks for, where its source is not made."""
    if asked.label or (asked.scheme and not asked.rest):
        return asked.label or asked.scheme
    fixed = re.split(r"[*?\[]", redacted(asked.rest))[0].rstrip("/")
    return os.path.basename(os.path.abspath(fixed)).partition(".")[0] or asked.scheme


def hides_secret(asked: ParsedSource) -> bool:
    """Whether there is something in the word that is not shown."""
    if asked.kind.given is not _line:
        return has_password(asked.word)
    with contextlib.suppress(UnusableSource):
        argv = _line(asked.scheme, asked.rest)
        return redacted_command(argv) != shlex.join(argv)
    return redacted_text(asked.word) != asked.word


def shown_word(asked: ParsedSource) -> str:
    """The word for people, without passwords."""
    if asked.kind.given is not _line:
        return redacted(asked.word)
    with contextlib.suppress(UnusableSource):
        return f"{asked.scheme}:{redacted_command(_line(asked.scheme, asked.rest))}"
    return redacted_text(asked.word)


def make_sources(arguments: Iterable[str], options: Mapping[str, Any] | None = None) -> list[PreparedSource]:
    """Make a source of each word, each with a name of its own: with a number where it is taken.

    `options` are what the factories of a kind take (`SourceKind.takes`), and what it needs (`SourceKind.needs`).

    Raises:
        UnusableSource: something cannot be published, or the same is given twice.
        MissingExtra: a library for it is not installed.
    """
    given = options or {}
    asked = [parse_word(argument) for argument in arguments]
    taken = _chosen(asked)
    made: list[PreparedSource] = []
    for one in asked:
        source = _make(one, one.label, given)
        name = source.name
        if one.label is None and name in taken:
            if not one.kind.labelled:
                raise UnusableSource(f"{one.kind.form} is given twice.")
            source = _make(one, free(name, taken), given)
        taken.add(source.name)
        twice = next((other for other in made if source.uri and other.source.uri == source.uri), None)
        if twice is not None:
            raise UnusableSource(f"{shown_word(one)} would have the URIs of {shown_word(twice.asked)}: leave out one.")
        made.append(PreparedSource(one, source))
    return made


def _chosen(asked: Sequence[ParsedSource]) -> set[str]:
    """The labels that were chosen, each of them once."""
    taken: set[str] = set()
    for one in asked:
        if one.label is None:
            continue
        if not one.kind.labelled:
            raise UnusableSource(f"{one.kind.form} takes no name: leave out {one.label}=.")
        if one.label in taken:
            word = f"{one.label}={shown_word(one)}"
            raise UnusableSource(f"The name {one.label!r} is given twice: choose another one in {word}.")
        taken.add(one.label)
    return taken


def _make(asked: ParsedSource, label: str | None, options: Mapping[str, Any]) -> Source:
    kind = asked.kind
    if kind.needs and not options.get(kind.needs):
        flag = "--" + kind.needs.replace("_", "-")
        raise UnusableSource(f"{kind.form} runs a program, which must be allowed: add {flag} if you mean it.")
    if kind is FILES:
        _refuse_file(asked.rest)
    if bool(asked.rest) is not kind.labelled:
        raise UnusableSource(f"{shown_word(asked)!r}: write {kind.form}.")
    arguments = (kind.given(asked.scheme, asked.rest),) if asked.rest else ()
    chosen = {name: options[name] for name in kind.takes if name in options}
    if label is not None:
        chosen["label"] = label
    factory: Callable[..., Source] = getattr(sources, kind.factory)
    return factory(*arguments, **chosen)


def _refuse_file(path: str) -> None:
    """Say which word a file is for, where its name tells."""
    if not os.path.isfile(path):
        return
    for kind in KINDS:
        if path.lower().endswith(kind.suffixes or ("\0",)):
            word = kind.form.replace("FILE", path).replace("GLOB", path)
            raise UnusableSource(f"{path} is a file, and no folder: publish it as {word}, or publish its folder.")
